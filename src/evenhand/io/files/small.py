"""Small files that somebody wrote by hand: a table of prices, attacks, a system prompt, a password."""

from __future__ import annotations

import errno
from pathlib import Path

MOST_SMALL = 2**24
_PIECE = 2**16  # read at a time: a buffer for the most that a file may hold would take that much memory


def read_small(path: Path) -> bytes:
    """All of a file; OSError if it is larger than anybody writes by hand, or without end, as a device is.

    >>> len(read_small(Path(__file__))) < MOST_SMALL
    True
    """
    content = bytearray()
    with path.open("rb") as file:
        while len(content) <= MOST_SMALL and (piece := file.read(_PIECE)):
            content += piece
    if len(content) > MOST_SMALL:
        raise OSError(errno.EFBIG, f"it has more than {MOST_SMALL // 2**20} MB")
    return bytes(content)
