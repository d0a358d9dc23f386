"""Files that are packed, read as if they were not; one that breaks off in the middle is a fault, not an end."""

from __future__ import annotations

import gzip
import importlib
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from evenhand.core.errors import InputError
from evenhand.io.files.finding import Table

_CHUNK = 1 << 17
# Four bytes of zstd may stand for 128 KB, and its decompressor knows no limit: so it is fed a little at a time.
_PACKED = 1 << 12


@contextmanager
def open_bytes(table: Table) -> Iterator[BinaryIO]:
    """The bytes of a file, unpacked on the way; broken packing raises PairError where it is found."""
    opened: Any
    with table.path.open("rb") as file:
        if table.packing == ".gz":
            opened = gzip.GzipFile(fileobj=file)
        elif table.packing == ".zst":
            opened = io.BufferedReader(_Unpacked(file), _CHUNK)
        else:
            opened = file
        try:
            yield opened
        except (EOFError, zlib.error, gzip.BadGzipFile, _BrokenError) as fault:
            # A part of a file that reads well must not pass for all of it.
            raise table.error(
                None,
                f"the {table.packing} data is broken or breaks off: {fault}",
                hint="nothing of it was used; make or fetch the file again",
            ) from None


class _BrokenError(Exception):
    """What zstd says of data that it cannot unpack, or that ends too early."""


class _Unpacked(io.RawIOBase):
    """The content of a .zst file, of one frame or of several."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._new = file, _zstd()
        self._frame: Any = None
        self._ready = memoryview(b"")  # much may be ready at once, and be taken in small pieces

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            if not self._advance():
                return 0
        count = min(len(buffer), len(self._ready))
        buffer[:count], self._ready = self._ready[:count], self._ready[count:]
        return count

    def _advance(self) -> bool:
        """Unpack a little more; whether there was more."""
        left = self._frame.unused_data if self._frame is not None and self._frame.eof else b""
        packed = left or self._file.read(_PACKED)
        if not packed:
            if self._frame is not None and not self._frame.eof:
                raise _BrokenError("it ends in the middle")
            return False
        if self._frame is None or self._frame.eof:
            self._frame = self._new()
        try:
            self._ready = memoryview(self._frame.decompress(packed))
        except Exception as fault:  # each library has an error of its own
            raise _BrokenError(str(fault)) from None
        return True


def _zstd() -> Any:
    """A maker of decompressors: Python's own from 3.14 on, else the one of the extra."""
    for module, maker in (
        ("compression.zstd", lambda found: found.ZstdDecompressor),
        ("zstandard", lambda found: lambda: found.ZstdDecompressor().decompressobj()),
    ):
        try:
            return maker(importlib.import_module(module))
        except ImportError:
            continue
    raise InputError("a .zst file cannot be read without zstandard", hint="pip install 'evenhand[zst]'")
