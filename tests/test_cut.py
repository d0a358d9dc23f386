"""GGUF models cut after some blocks: files that these tests write themselves."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from evenhand.core.errors import ModelError
from evenhand.engines.cut import cut_after
from evenhand.engines.gguf import read_header, special_tokens
from test_gguf import U32, gguf_bytes, metadata

F32 = 0
NAMES = ("token_embd.weight", "blk.0.a", "blk.1.a", "blk.2.a", "blk.10.a", "output.weight", "output_norm.weight")


def model(path: Path, *, align: int = 32) -> Path:
    """A model of tensors whose bytes are their own number, out of order in the file."""
    more = {"qwen2.block_count": (U32, struct.pack("<I", 11))}
    if align != 32:
        more["general.alignment"] = (U32, struct.pack("<I", align))
    step = -(-4 * 20 // align) * align
    places = {name: (len(NAMES) - 1 - n) * step for n, name in enumerate(NAMES)}
    head = gguf_bytes(metadata(**more), [(name, (20,), F32, places[name]) for name in NAMES], align=align)
    body = bytearray(step * len(NAMES))
    for n, name in enumerate(NAMES):
        body[places[name] : places[name] + 80] = bytes([n + 1]) * 80
    path.write_bytes(head + bytes(body))
    return path


def tensors(path: Path, align: int) -> dict[str, bytes]:
    """Each tensor's bytes, read the plain way."""
    data = path.read_bytes()
    at, found = 0, []
    for name in NAMES:
        raw = struct.pack("<Q", len(name)) + name.encode()
        if (place := data.find(raw)) >= 0:
            at = place + len(raw)
            dims, size, kind, offset = struct.unpack_from("<IQIQ", data, at)
            assert (dims, size, kind) == (1, 20, F32)
            found.append((name, offset))
            at += struct.calcsize("<IQIQ")
    start = -(-at // align) * align
    return {name: data[start + offset : start + offset + 80] for name, offset in found}


@pytest.mark.parametrize("align", [32, 64])
def test_the_copy_has_the_first_blocks_and_their_own_bytes(tmp_path: Path, align: int) -> None:
    source = model(tmp_path / "m.gguf", align=align)
    target = cut_after(source, 2, tmp_path / "cut" / "m-2.gguf")
    header = read_header(target)  # refuses a file that is shorter than it should be
    assert header.metadata["qwen2.block_count"] == 2
    assert header.tensors == 4
    kept = ("token_embd.weight", "blk.0.a", "blk.1.a", "output_norm.weight")
    assert tensors(target, align) == {name: bytes([NAMES.index(name) + 1]) * 80 for name in kept}
    assert special_tokens(target) == special_tokens(source)
    changed = {key for key, value in header.metadata.items() if read_header(source).metadata[key] != value}
    assert changed == {"qwen2.block_count"}


def test_a_copy_that_is_there_is_left_alone_and_no_half_file_stays(tmp_path: Path) -> None:
    source = model(tmp_path / "m.gguf")
    target = tmp_path / "m-2.gguf"
    target.write_bytes(b"there already")
    assert cut_after(source, 2, target).read_bytes() == b"there already"
    target.unlink()
    cut_after(source, 2, target)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m-2.gguf", "m.gguf"]


@pytest.mark.parametrize("blocks", [0, 12])
def test_more_blocks_than_there_are_cannot_be_kept(tmp_path: Path, blocks: int) -> None:
    with pytest.raises(ModelError, match="has 11 blocks"):
        cut_after(model(tmp_path / "m.gguf"), blocks, tmp_path / "m-0.gguf")
