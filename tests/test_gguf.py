"""Headers of GGUF files that these tests write themselves, whole, cut and damaged."""

from __future__ import annotations

import contextlib
import os
import struct
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.core.errors import ModelError
from evenhand.engines import gguf

U32, F32, BOOL, STRING, ARRAY, U64, I32 = 4, 6, 7, 8, 9, 10, 5
CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
TOKENS = ["<unk>", "a", "<|im_start|>", "<|im_end|>", "<tool_call>", "é", "[PAD6]", "<0x0A>"]
TYPES = [2, 1, 3, 3, 4, 1, 5, 6]
Tensor = tuple[str, tuple[int, ...], int, int]
TENSORS: Sequence[Tensor] = (("norm", (256,), 0, 0), ("head", (256, 3), 12, 1024))


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def strings(values: Sequence[str]) -> bytes:
    return struct.pack("<IQ", STRING, len(values)) + b"".join(map(text, values))


def metadata(**more: tuple[int, bytes]) -> dict[str, tuple[int, bytes]]:
    return {
        "general.architecture": (STRING, text("qwen2")),
        "qwen2.context_length": (U32, struct.pack("<I", 32768)),
        "qwen2.rope.freq_base": (F32, struct.pack("<f", 0.5)),
        "tokenizer.ggml.add_bos_token": (BOOL, b"\x00"),
        gguf.TOKENS: (ARRAY, strings(TOKENS)),
        gguf.TOKEN_TYPES: (ARRAY, struct.pack(f"<IQ{len(TYPES)}i", I32, len(TYPES), *TYPES)),
        "nested": (ARRAY, struct.pack("<IQ", ARRAY, 2) + strings(["x"]) + strings([])),
        "tokenizer.chat_template": (STRING, text(CHATML)),
        **more,
    }


def gguf_bytes(
    pairs: Mapping[str, tuple[int, bytes]], tensors: Sequence[Tensor] = (), *, data: int = 0, align: int = 32
) -> bytes:
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(pairs))
    head += b"".join(text(key) + struct.pack("<I", kind) + raw for key, (kind, raw) in pairs.items())
    for name, shape, kind, offset in tensors:
        head += text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        head += struct.pack("<IQ", kind, offset)
    return head + b"\0" * (-len(head) % align) * bool(tensors) + b"w" * data


WHOLE = gguf_bytes(metadata(), TENSORS, data=1024 + 3 * 144)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(WHOLE)
    return path


def test_header(model: Path) -> None:
    header = gguf.read_header(model)
    assert (header.version, header.tensors, header.architecture) == (3, 2, "qwen2")
    assert header.context_length == 32768
    assert header.chat_template == CHATML
    assert header.metadata["qwen2.rope.freq_base"] == 0.5
    assert header.metadata["tokenizer.ggml.add_bos_token"] is False
    assert header.needed_bytes == len(WHOLE)


def test_arrays_come_only_when_asked_for(model: Path) -> None:
    assert not {gguf.TOKENS, gguf.TOKEN_TYPES, "nested"} & set(gguf.read_header(model).metadata)
    asked = gguf.read_header(model, arrays=[gguf.TOKENS, "nested"]).metadata
    assert asked[gguf.TOKENS] == TOKENS
    assert gguf.TOKEN_TYPES not in asked


def test_special_tokens(model: Path) -> None:
    assert gguf.control_tokens(model) == {"<unk>": 0, "<|im_start|>": 2, "<|im_end|>": 3}
    assert gguf.special_tokens(model).user_defined == {"<tool_call>": 4}


def test_a_vocabulary_without_types_has_no_special_tokens(tmp_path: Path) -> None:
    path = tmp_path / "plain.gguf"
    path.write_bytes(gguf_bytes({gguf.TOKENS: (ARRAY, strings(["a", "<s>"]))}))
    assert gguf.special_tokens(path) == ({}, {})


def test_what_a_file_does_not_say_is_none(tmp_path: Path) -> None:
    path = tmp_path / "bare.gguf"
    path.write_bytes(gguf_bytes({}))
    header = gguf.read_header(path)
    assert (header.architecture, header.context_length, header.chat_template) == ("", None, None)


def test_every_shorter_file_is_refused(model: Path) -> None:
    for length in reversed(range(len(WHOLE))):
        os.truncate(model, length)
        with pytest.raises(ModelError, match=r"cut short|is empty|no GGUF") as caught:
            gguf.read_header(model)
        assert str(model) in str(caught.value)
        assert caught.value.hint


@pytest.mark.parametrize(
    ("kind", "elements", "size"),
    [(0, 8, 32), (1, 8, 16), (3, 64, 40), (8, 32, 34), (12, 512, 288), (14, 256, 210), (39, 32, 17)],
)
def test_tensor_sizes(tmp_path: Path, kind: int, elements: int, size: int) -> None:
    path = tmp_path / "one.gguf"
    for missing in (0, 1):
        path.write_bytes(gguf_bytes({}, [("t", (elements,), kind, 64)], data=64 + size - missing))
        if missing:
            with pytest.raises(ModelError, match=f"needs {path.stat().st_size + 1}"):
                gguf.read_header(path)
        else:
            assert gguf.read_header(path).needed_bytes == path.stat().st_size


def test_a_tensor_of_an_unknown_type_counts_with_its_offset(tmp_path: Path) -> None:
    path = tmp_path / "new.gguf"
    path.write_bytes(gguf_bytes({}, [("t", (10**6,), 999, 64)], data=64))
    assert gguf.read_header(path).needed_bytes == path.stat().st_size
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ModelError, match="cut short"):
        gguf.read_header(path)


def test_alignment_is_the_files_own(tmp_path: Path) -> None:
    path = tmp_path / "wide.gguf"
    pairs = {"general.alignment": (U32, struct.pack("<I", 4096))}
    path.write_bytes(gguf_bytes(pairs, [("t", (1,), 0, 0)], data=4, align=4096))
    assert gguf.read_header(path).needed_bytes == 4096 + 4


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "is empty"),
        (b"<!DOCTYPE html>", "no GGUF file: it begins with b'<!DO'"),
        (b"GGUF\x01\0\0\0" + b"\0" * 16, "of version 1"),
        (b"GGUF\0\0\0\x03" + b"\0" * 16, "big-endian"),
        (gguf_bytes({"odd": (77, b"\0" * 8)}), "no GGUF value has the type 77"),
        (gguf_bytes({"huge": (ARRAY, struct.pack("<IQ", STRING, 2**60))}), "cut short"),
        (gguf_bytes({"huge": (ARRAY, struct.pack("<IQ", U64, 2**63))}), "cut short"),
        (gguf_bytes({"far": (ARRAY, struct.pack("<IQQ", STRING, 1, 2**64 - 1))}), "cut short"),
        (gguf_bytes({"farther": (ARRAY, struct.pack("<IQQQ", STRING, 2, 2**64 - 1, 0))}), "cut short"),
        (gguf_bytes({}, [("t", (1, 1, 1, 1, 1), 0, 0)], data=4), "a tensor with 5 dimensions"),
    ],
)
def test_what_is_no_gguf_is_refused(tmp_path: Path, content: bytes, fault: str) -> None:
    path = tmp_path / "other.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=fault) as caught:
        gguf.read_header(path)
    assert caught.value.hint


@pytest.mark.parametrize("name", ["missing.gguf", "."])
def test_a_file_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelError, match="cannot be read"):
        gguf.read_header(tmp_path / name)


@given(at=st.integers(0, len(WHOLE) - 1), raw=st.binary(min_size=1, max_size=12))
def test_damage_is_refused_or_harmless(tmp_path_factory: pytest.TempPathFactory, at: int, raw: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.gguf"
    path.write_bytes((WHOLE[:at] + raw + WHOLE[at + len(raw) :])[: len(WHOLE)])
    with contextlib.suppress(ModelError):
        gguf.special_tokens(path)


def test_a_large_vocabulary_is_quick(tmp_path: Path) -> None:
    path, words = tmp_path / "large.gguf", [f"word{n}" for n in range(150_000)]
    types = struct.pack("<IQ150000i", I32, 150_000, *[3] + [1] * 149_999)
    more = {gguf.TOKENS: (ARRAY, strings(words)), gguf.TOKEN_TYPES: (ARRAY, types)}
    path.write_bytes(gguf_bytes(metadata(**more, merges=(ARRAY, strings(words)))))
    start = time.process_time()
    assert gguf.control_tokens(path) == {"word0": 0}
    assert time.process_time() - start < 1


def test_a_tensor_of_four_thousand_million_dimensions_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    head = struct.pack("<4sIQQ", b"GGUF", 3, 1, 0) + text("t") + struct.pack("<I", 2**32 - 1)
    path.write_bytes(head + b"\xff" * 2**21)
    began = time.process_time()
    with pytest.raises(ModelError, match="4294967295 dimensions"):
        gguf.read_header(path)
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize("depth", [20, 100_000])
def test_arrays_in_arrays_without_end_are_refused(tmp_path: Path, depth: int) -> None:
    path = tmp_path / "x.gguf"
    nested = struct.pack("<IQ", ARRAY, 1) * depth + struct.pack("<IQ", U32, 0)
    path.write_bytes(gguf_bytes({"nested": (ARRAY, nested)}))
    with pytest.raises(ModelError, match="arrays in arrays"):
        gguf.read_header(path)


def test_a_text_of_a_gigabyte_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    head = struct.pack("<4sIQQ", b"GGUF", 3, 0, 1) + struct.pack("<Q", 2**30)
    path.write_bytes(head)
    os.truncate(path, 2**30 + 100)  # a hole that takes no room
    with pytest.raises(ModelError, match="a text of 1073741824 bytes"):
        gguf.read_header(path)


ZEROS = 2**28  # a hole that takes no room; as so many texts without a character, keys without a name, ...
COUNTED: dict[str, bytes] = {
    "keys": struct.pack("<4sIQQ", b"GGUF", 3, 0, 2**60),
    "tensors": struct.pack("<4sIQQ", b"GGUF", 3, 2**60, 0),
    "texts": gguf_bytes({"a": (ARRAY, struct.pack("<IQ", STRING, 2**60))}),
    "texts that are wanted": gguf_bytes({gguf.TOKENS: (ARRAY, struct.pack("<IQ", STRING, 2**60))}),
    "arrays": gguf_bytes({"a": (ARRAY, struct.pack("<IQ", ARRAY, 2**60))}),
}


@pytest.mark.parametrize("what", COUNTED)
@pytest.mark.parametrize("fits", [False, True], ids=["more than fit", "as many as fit"])
def test_a_count_that_cannot_be_keeps_nobody_busy(what: str, fits: bool, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    head = COUNTED[what].replace(struct.pack("<Q", 2**60), struct.pack("<Q", ZEROS // 25 if fits else 2**60))
    path.write_bytes(head)
    os.truncate(path, ZEROS)
    began = time.process_time()
    with pytest.raises(ModelError, match="more than 8,388,608 entries" if fits else "cut short"):
        gguf.read_header(path, arrays=[gguf.TOKENS])
    assert time.process_time() - began < 0.5
