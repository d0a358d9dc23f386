r"""Characters that control how a text is shown: control characters, and marks that turn its direction.

    STEERING   all of them, for what a text may not hold as it is
    PICTURES   control characters as pictures of themselves
    TURNS      what each mark is called

Terminal, messages, JSON, files for CI and pages show them, each in its own way. Line feed and tab are none of them.
Left-to-right and right-to-left marks by themselves are harmless, and usual in Arabic and Hebrew; the marks here
reach over the end of a word, and can show a line in another order.

>>> STEERING.sub("?", "a\x1b[31mb\u202ec\n")
'a?[31mb?c\n'
"""

from __future__ import annotations

import re
from collections.abc import Mapping

PICTURES: Mapping[int, str] = {
    **{code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\n\t"},
    **dict.fromkeys(range(0x7F, 0xA0), "␡"),
}
TURNS: Mapping[int, str] = {
    0x202A: "LRE",
    0x202B: "RLE",
    0x202C: "PDF",
    0x202D: "LRO",
    0x202E: "RLO",
    0x2066: "LRI",
    0x2067: "RLI",
    0x2068: "FSI",
    0x2069: "PDI",
}
STEERING = re.compile(f"[{''.join(map(re.escape, map(chr, (*PICTURES, *TURNS))))}]")
