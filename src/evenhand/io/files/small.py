"""Small files that somebody wrote by hand: a table of prices, attacks, a system prompt, a password."""

from __future__ import annotations

import errno
from pathlib import Path

MOST_SMALL = 2**24


def read_small(path: Path) -> bytes:
    """All of a file; OSError if it is larger than anybody writes by hand, or without end, as a device is.

    >>> len(read_small(Path(__file__))) < MOST_SMALL
    True
    """
    with path.open("rb") as file:
        content = file.read(MOST_SMALL + 1)
    if len(content) > MOST_SMALL:
        raise OSError(errno.EFBIG, f"it has more than {MOST_SMALL // 2**20} MB")
    return content
