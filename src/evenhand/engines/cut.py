"""A GGUF model without its last blocks, so that llama.cpp's embedding output is the state of a middle layer.

llama.cpp gives the state after the last block of the file it is given. A copy that ends earlier gives an earlier
state, and computes less: 23 blocks of 28 take four fifths of the time. The copy keeps the metadata byte for byte,
except the number of blocks, and leaves out the tensors of later blocks and the output matrix, which no state needs.
The layout is that of llama.cpp's `ggml/docs/gguf.md`.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from evenhand.core.errors import ModelError
from evenhand.engines.gguf import Cursor, read_header

_BLOCK = re.compile(rb"blk\.(\d+)\.")
_OUTPUT = b"output.weight"
_ARRAY, _U32_KIND, _U64_KIND = 9, 4, 10
_CHUNK = 16 * 2**20


class _Tensor(NamedTuple):
    name: bytes
    shape: bytes  # how many dimensions, their sizes, and the type: copied as they are
    offset: int


class _Layout(NamedTuple):
    head: bytes  # magic, version
    metadata: bytes
    pairs: int
    tensors: list[_Tensor]
    data: int  # where the weights begin
    align: int


def cut_after(source: Path, blocks: int, target: Path) -> Path:
    """Write the first `blocks` blocks of a model to `target`, unless they are there already; give `target`.

    The file appears whole or not at all.
    """
    header = read_header(source)
    known = header.metadata.get(f"{header.architecture}.block_count")
    if not isinstance(known, int) or not 0 < blocks <= known:
        raise ModelError(f"{source} has {known} blocks and cannot be cut after {blocks}")
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with source.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            layout = _read(Cursor(data, source), f"{header.architecture}.block_count".encode(), blocks)
            with partial.open("wb") as out:
                _write(out, layout, data, blocks)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return target


def _read(cursor: Cursor, count_key: bytes, blocks: int) -> _Layout:
    head = bytes(cursor.data[: cursor.move(8) + 8])
    tensors, pairs = cursor.u64(), cursor.u64()
    begin = cursor.at
    patch, align = None, 32
    for _ in range(pairs):
        key, kind = cursor.text().encode(), cursor.u32()
        if key == count_key and kind in (_U32_KIND, _U64_KIND):
            patch = cursor.at - begin, kind
        if kind == _ARRAY:
            cursor.skip(kind, 1)
        elif key == b"general.alignment":
            align = int(cursor.scalars(kind, 1)[0])
        else:
            cursor.scalars(kind, 1)
    if patch is None:
        raise ModelError(f"{cursor.path} does not say how many blocks it has")
    metadata = bytearray(cursor.data[begin : cursor.at])
    struct.pack_into("<I" if patch[1] == _U32_KIND else "<Q", metadata, patch[0], blocks)
    entries = [_entry(cursor) for _ in range(tensors)]
    return _Layout(head, bytes(metadata), pairs, entries, _up(cursor.at, align), align)


def _entry(cursor: Cursor) -> _Tensor:
    size = cursor.u64()
    start = cursor.move(size)
    name = bytes(cursor.data[start : start + size])
    begin = cursor.at
    cursor.move(8 * cursor.u32() + 4)
    return _Tensor(name, bytes(cursor.data[begin : cursor.at]), cursor.u64())


def _write(out: BinaryIO, layout: _Layout, data: mmap.mmap, blocks: int) -> None:
    kept = [tensor for tensor in layout.tensors if _is_kept(tensor.name, blocks)]
    sizes = _sizes(layout, len(data))
    out.write(layout.head + struct.pack("<QQ", len(kept), layout.pairs) + layout.metadata)
    offset = 0
    for tensor in kept:
        out.write(struct.pack("<Q", len(tensor.name)) + tensor.name + tensor.shape + struct.pack("<Q", offset))
        offset = _up(offset + sizes[tensor.name], layout.align)
    for tensor in kept:
        out.write(bytes(_up(out.tell(), layout.align) - out.tell()))
        start = layout.data + tensor.offset
        for at in range(start, start + sizes[tensor.name], _CHUNK):
            out.write(data[at : min(at + _CHUNK, start + sizes[tensor.name])])
    out.write(bytes(_up(out.tell(), layout.align) - out.tell()))


def _is_kept(name: bytes, blocks: int) -> bool:
    number = _BLOCK.match(name)
    return int(number[1]) < blocks if number else name != _OUTPUT


def _sizes(layout: _Layout, end: int) -> dict[bytes, int]:
    """The bytes of each tensor: up to where the next one begins, so that no type needs to be known."""
    ordered: Sequence[_Tensor] = sorted(layout.tensors, key=lambda tensor: tensor.offset)
    ends = [tensor.offset for tensor in ordered[1:]] + [end - layout.data]
    return {tensor.name: stop - tensor.offset for tensor, stop in zip(ordered, ends, strict=True)}


def _up(position: int, align: int) -> int:
    return -(-position // align) * align
