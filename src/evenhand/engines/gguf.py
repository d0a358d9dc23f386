"""The header of a GGUF file: what the model is, how long its context, and whether the file is whole.

A header is a magic word, a version, key-value metadata and a list of tensors; the weights come after.
Only the header is read, through a memory map, so the cost does not grow with the model. The layout is
that of llama.cpp's `ggml/docs/gguf.md`.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from evenhand.core.errors import ModelError

Scalar = bool | int | float | str
Value = Scalar | list[Scalar]

TOKENS = "tokenizer.ggml.tokens"
TOKEN_TYPES = "tokenizer.ggml.token_type"
UNKNOWN, CONTROL, USER_DEFINED = 2, 3, 4

_STRING, _ARRAY = 8, 9
_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_VERSIONS = (2, 3)
_MOST_DIMENSIONS = 4  # ggml's own limit
_DEEPEST = 8  # arrays in arrays: no known file has any
_LONGEST = 2**26  # bytes of a text; chat templates have a few thousand
_MOST_ENTRIES = 2**23  # keys, tensors, and texts and arrays in arrays; the largest known file has a million
_AGAIN = "fetch the file again, or give another GGUF file"

# Bytes of a block, by the number of elements in it and the ggml type. A type that is missing here is no
# fault of the file: its tensors then count with their offset alone.
_BLOCK_BYTES = {
    1: {0: 4, 1: 2, 30: 2, 28: 8, 24: 1, 25: 2, 26: 4, 27: 8},  # F32, F16, BF16, F64, I8 ... I64
    32: {2: 18, 3: 20, 6: 22, 7: 24, 8: 34, 20: 18, 39: 17},  # Q4_0 ... Q8_0, IQ4_NL, MXFP4
    256: {10: 84, 11: 110, 12: 144, 13: 176, 14: 210}  # Q2_K ... Q6_K
    | {16: 66, 17: 74, 22: 82, 18: 98, 21: 110}  # IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S
    | {19: 50, 29: 56, 23: 136, 34: 54, 35: 66},  # IQ1_S, IQ1_M, IQ4_XS, TQ1_0, TQ2_0
}
_BLOCKS = {kind: (n, size) for n, sizes in _BLOCK_BYTES.items() for kind, size in sizes.items()}


@dataclass(frozen=True)
class Header:
    """What a GGUF file says about itself; `needed_bytes` is how long the file must at least be."""

    path: Path
    version: int
    tensors: int
    needed_bytes: int
    metadata: Mapping[str, Value] = field(repr=False)

    @property
    def architecture(self) -> str:
        """The family of the model, such as `llama` or `qwen2`; empty where the file does not say."""
        return str(self.metadata.get("general.architecture", ""))

    @property
    def context_length(self) -> int | None:
        """How many tokens the model was trained to hold, where the file says so."""
        length = self.metadata.get(f"{self.architecture}.context_length")
        return length if isinstance(length, int) else None

    @property
    def chat_template(self) -> str | None:
        """The Jinja template of the model's own chat markup, where the file carries one."""
        template = self.metadata.get("tokenizer.chat_template")
        return template if isinstance(template, str) else None


class SpecialTokens(NamedTuple):
    """Texts and ids of a vocabulary's tokens that are more than text.

    llama.cpp leaves `control` alone where `parse_special` is false; `user_defined` it finds in any text.
    """

    control: dict[str, int]
    user_defined: dict[str, int]


def read_header(path: Path, *, arrays: Collection[str] = ()) -> Header:
    """Read the header of a GGUF file; of the array-valued keys only those named in `arrays`.

    A file that is no GGUF, or shorter than its header says, raises ModelError.
    """
    if path.is_fifo():  # opening it would wait for somebody who writes
        raise ModelError(f"{path} is a pipe, not a file", hint="check the path")
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            header = _parse(Cursor(data, path), arrays)
            size = len(data)
    except ValueError:  # mmap's word for an empty file
        raise ModelError(f"{path} is empty", hint=_AGAIN) from None
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}", hint="check the path") from error
    if size < header.needed_bytes:
        fault = f"{path} is cut short: it has {size} bytes and needs {header.needed_bytes}"
        raise ModelError(fault, hint=_AGAIN)
    return header


def special_tokens(path: Path) -> SpecialTokens:
    """Find the tokens of a model that are markup; a file without token types has none."""
    metadata = read_header(path, arrays=(TOKENS, TOKEN_TYPES)).metadata
    texts, types = metadata.get(TOKENS), metadata.get(TOKEN_TYPES)
    if not isinstance(texts, list) or not isinstance(types, list):
        return SpecialTokens({}, {})
    special = [(str(texts[i]), i, t) for i, t in enumerate(types[: len(texts)]) if t != 1]
    return SpecialTokens(
        {text: i for text, i, kind in special if kind in (UNKNOWN, CONTROL)},
        {text: i for text, i, kind in special if kind == USER_DEFINED},
    )


def control_tokens(path: Path) -> dict[str, int]:
    """Give the texts and ids of the tokens that untrusted text must never become."""
    return special_tokens(path).control


class Cursor:
    """A place in the file that moves on as values are read; past the end is a cut file."""

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self.data, self.path, self.at, self.end = data, path, 0, len(data)
        self._left = _MOST_ENTRIES

    def move(self, count: int) -> int:
        """Move over `count` bytes and give where they began."""
        start, self.at = self.at, self.at + count
        if self.at > self.end:
            fault = f"{self.path} is cut short: its header goes on past the end of the file"
            raise ModelError(fault, hint=_AGAIN)
        return start

    def u32(self) -> int:
        """The next 4 bytes as a number."""
        return int(_U32.unpack_from(self.data, self.move(4))[0])

    def u64(self) -> int:
        """The next 8 bytes as a number."""
        return int(_U64.unpack_from(self.data, self.move(8))[0])

    def text(self) -> str:
        """The next string."""
        count = self.u64()
        start = self.move(count)
        if count > _LONGEST:
            raise ModelError(f"{self.path} is damaged: its header holds a text of {count} bytes", hint=_AGAIN)
        return self.data[start : start + count].decode("utf-8", "replace")

    def entries(self, count: int, least: int) -> int:
        """A count of what is read one by one, each in `least` bytes at least: a damaged one keeps nobody busy."""
        if count * least > self.end - self.at:
            self.move(count * least)  # past the end
        self._left -= count
        if self._left < 0:
            fault = f"{self.path} is damaged: its header holds more than {_MOST_ENTRIES:,} entries"
            raise ModelError(fault, hint=_AGAIN)
        return count

    def scalars(self, kind: int, count: int) -> list[Scalar]:
        """So many values of a type."""
        if kind == _STRING:
            return [self.text() for _ in range(self.entries(count, 8))]
        layout = self._format(kind)
        start = self.move(struct.calcsize(layout) * count)
        return list(struct.unpack_from(f"<{count}{layout}", self.data, start))

    def skip(self, kind: int, count: int, depth: int = 0) -> None:
        """Move over so many values of a type."""
        if kind == _STRING:
            self._skip_texts(self.entries(count, 8))
        elif kind == _ARRAY and depth >= _DEEPEST:
            raise ModelError(f"{self.path} is damaged: arrays in arrays without end", hint=_AGAIN)
        elif kind == _ARRAY:
            for _ in range(self.entries(count, 12)):
                self.skip(self.u32(), self.u64(), depth + 1)
        else:
            self.move(struct.calcsize(self._format(kind)) * count)

    def _skip_texts(self, count: int) -> None:
        # a vocabulary has 150,000 texts and as many merges: no calls of ours inside this loop
        data, at, unpack = self.data, self.at, _U64.unpack_from
        try:
            for _ in range(count):
                at += 8 + unpack(data, at)[0]
        except (struct.error, OverflowError):
            at = self.end + 1
        self.move(at - self.at)

    def _format(self, kind: int) -> str:
        if kind not in _FORMATS:
            raise ModelError(f"{self.path} is damaged: no GGUF value has the type {kind}", hint=_AGAIN)
        return _FORMATS[kind]


def _parse(cursor: Cursor, arrays: Collection[str]) -> Header:
    version = _version(cursor)
    tensors, pairs = cursor.u64(), cursor.u64()
    metadata: dict[str, Value] = {}
    for _ in range(cursor.entries(pairs, 13)):
        key, kind = cursor.text(), cursor.u32()
        if kind != _ARRAY:
            metadata[key] = cursor.scalars(kind, 1)[0]
        elif (value := _array(cursor, wanted=key in arrays)) is not None:
            metadata[key] = value
    needed = _needed_bytes(cursor, tensors, metadata)
    return Header(cursor.path, version, tensors, needed, metadata)


def _version(cursor: Cursor) -> int:
    if cursor.data[:4] != b"GGUF":
        fault = f"{cursor.path} is no GGUF file: it begins with {cursor.data[:4]!r}"
        raise ModelError(fault, hint="give a model file in the GGUF format")
    cursor.move(4)
    version = cursor.u32()
    if version in _VERSIONS:
        return version
    # a big-endian file shows its small version number in the high bytes
    found = "big-endian" if version & 0xFFFF == 0 else f"of version {version}"
    fault = f"{cursor.path} is a GGUF file {found}; evenhand reads little-endian ones of version 2 and 3"
    raise ModelError(fault, hint="convert the model again with a current llama.cpp")


def _array(cursor: Cursor, *, wanted: bool) -> list[Scalar] | None:
    kind, count = cursor.u32(), cursor.u64()
    if wanted and kind != _ARRAY:
        return cursor.scalars(kind, count)
    cursor.skip(kind, count)
    return None


def _needed_bytes(cursor: Cursor, tensors: int, metadata: Mapping[str, Value]) -> int:
    ends = [_tensor_end(cursor) for _ in range(cursor.entries(tensors, 24))]
    if not ends:
        return cursor.at
    align = metadata.get("general.alignment", 32)
    step = align if isinstance(align, int) and align > 0 else 32
    start = -(-cursor.at // step) * step
    return start + max(ends)


def _tensor_end(cursor: Cursor) -> int:
    """Read one tensor's entry and give where its data ends, counted from where all data begins."""
    cursor.move(cursor.u64())  # its name
    elements = 1
    dimensions = cursor.u32()
    if dimensions > _MOST_DIMENSIONS:
        fault = f"{cursor.path} is damaged: a tensor with {dimensions} dimensions"
        raise ModelError(fault, hint=_AGAIN)
    for _ in range(dimensions):
        elements *= cursor.u64()
    kind, offset = cursor.u32(), cursor.u64()
    block, size = _BLOCKS.get(kind, (1, 0))
    return offset + elements // block * size
