"""Turns and spans: rendering in a dialect, and breaking up control tokens where only strings can be sent."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from evenhand.core.markup import (
    CHATML,
    DIALECTS,
    LLAMA3,
    Dialect,
    Span,
    Turn,
    break_up,
    break_up_spans,
    frames,
    merge,
    put_together,
    render,
)
from evenhand.engines.control_tokens import FAMILIES, KNOWN

MARKERS = [marker for dialect in DIALECTS for marker in dialect.markers]
SHARDS = [*MARKERS, "<|", "|>", "<", "|", ">", "\\", "[INST]", "[/INST]", "[", "<s>", "</s>", "<eos>", "x" * 34]
SHARDS += [*KNOWN, "]", "◁", "▷", "｜", "~b", ">>", "<<", "_", "INST", "im_end", "]~", "think", "SYS"]
SHARDS += ["＜", "［", "］", "＞", "＼", "ｓ", "]<", "[>["]
any_text = st.text(st.characters(exclude_categories=["Cs"]))
hostile_text = st.lists(st.one_of(st.sampled_from(SHARDS), any_text)).map("".join)


PLAIN = [
    "a < b",
    "x|y|z",
    "<p>",
    "[1]",
    "<| not a token |>",
    "\\n",
    "</div>",
    "<h1>",
    "[A]",
    "[[B]]",
    "x >> y",
    "]",
]
PLAIN += ["＜注意＞", "［１］", "Ａ＜Ｂ"]
PLAIN += ["List<String>", "map<K, V>", "a[i][j]", "[link](x)", "<https://a.org>", "std::vector<int>", "1 < 2 > 0"]


def ours(text: str) -> Span:
    return Span(text, trusted=True)


def theirs(text: str) -> Span:
    return Span(text, trusted=False)


TALK = (Turn("system", (ours("Judge."),)), Turn("user", (ours("Q: "), theirs("hi"), theirs("yo"))))


@pytest.mark.parametrize(
    ("dialect", "expected"),
    [
        (
            CHATML,
            "<|im_start|>system\nJudge.<|im_end|>\n<|im_start|>user\nQ: hiyo<|im_end|>\n<|im_start|>assistant\n",
        ),
        (
            LLAMA3,
            "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nJudge.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nQ: hiyo<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Dialect) else "",
)
def test_a_conversation_is_written_in_each_dialect(dialect: Dialect, expected: str) -> None:
    assert "".join(span.text for span in render(TALK, dialect)) == expected


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_frames_have_one_piece_more_than_there_are_turns(dialect: Dialect) -> None:
    assert len(frames(["system", "user"], dialect)) == 3


def test_neighbouring_trusted_spans_become_one_and_untrusted_ones_stay_apart() -> None:
    spans = render(TALK, CHATML)
    assert [span.trusted for span in spans] == [True, False, False, True]


def test_merge_drops_empty_spans_and_joins_across_them() -> None:
    assert merge([ours("a"), theirs(""), ours("b")]) == (ours("ab"),)


@settings(deadline=None)
@given(hostile_text, hostile_text, st.sampled_from(DIALECTS))
def test_untrusted_text_survives_rendering_in_its_own_span(first: str, second: str, dialect: Dialect) -> None:
    spans = render([Turn("user", (ours("a"), theirs(first), ours("b"), theirs(second)))], dialect)
    assert [span.text for span in spans if not span.trusted] == [text for text in (first, second) if text]


@settings(deadline=None)
@given(hostile_text)
@example("<|[INST]" + "x" * 34 + "|>")  # broken up inside, it would be too long to be mended outside
@example("<\\|im_end|>")
@example("<|<|im_end|>|>")
def test_mending_undoes_breaking_up(text: str) -> None:
    assert put_together(break_up(text)) == text


@settings(deadline=None)
@given(any_text)
def test_mending_undoes_breaking_up_of_any_text(text: str) -> None:
    assert put_together(break_up(text)) == text


@settings(deadline=None)
@given(hostile_text)
def test_no_marker_is_left_after_breaking_up(text: str) -> None:
    broken = break_up(text)
    assert [marker for marker in (*MARKERS, *KNOWN) if marker in broken] == []


@pytest.mark.parametrize("token", [*MARKERS, "[INST]", "[/INST]", "<s>", "</s>", "<end_of_turn>", "<|fim_middle|>"])
def test_a_control_token_is_broken_up_visibly(token: str) -> None:
    assert break_up(f"a{token}b") == f"a{token[0]}\\{token[1:]}b"


@pytest.mark.parametrize("text", PLAIN)
def test_plain_text_is_left_alone(text: str) -> None:
    assert (break_up(text), put_together(text)) == (text, text)


def test_there_are_a_hundred_control_tokens_of_twenty_families() -> None:
    assert len(KNOWN) > 150
    assert len(FAMILIES) > 20


@pytest.mark.parametrize("token", [*KNOWN, "<0x0A>", "<|never_seen_before|>", "<new_family_7>", "[NEW_TOKEN]"])
def test_a_control_token_of_any_family_is_broken_up(token: str) -> None:
    for text in (token, f"a{token}b", f"{token}{token}", f"\\{token}", f"<{token}>", f"[{token}]"):
        assert token not in break_up(text)
        assert put_together(break_up(text)) == text


WIDE = {ord(c): ord(c) + 0xFEE0 for c in map(chr, range(0x21, 0x7F)) if c != "\\"}


@pytest.mark.parametrize("token", [*KNOWN, "[THIN\u212a]", "<|im_end|\ufe65"])
def test_a_control_token_in_other_forms_of_its_letters_is_broken_up(token: str) -> None:
    """A tokeniser that brings a text into one form, as NFKC does, would find it."""
    wide = token.translate(WIDE)
    for text in (wide, wide[0] + token[1:], token[:-1] + wide[-1]):
        found = unicodedata.normalize("NFKC", break_up(f"a{text}b"))
        assert unicodedata.normalize("NFKC", text) not in found
        assert put_together(break_up(text)) == text
        assert break_up_spans([theirs(text)]) == (break_up(text), True)


@pytest.mark.parametrize("token", KNOWN)
def test_a_control_token_that_is_spread_over_spans_is_broken_up(token: str) -> None:
    doubled = token[0] == token[1]  # of <<SYS>> and >>ANSWER<< the inner part is broken up, wherever the outer is
    for cut in range(1 + doubled, len(token) - doubled):
        first, second = token[:cut], token[cut:]
        for spans in (
            (ours("x" + first), theirs(second + "y")),
            (theirs("x" + first), ours(second + "y")),
            (theirs(first), theirs(second)),
            (ours(first), theirs(second[:1]), ours(second[1:])),
        ):
            text, broken = break_up_spans(spans)
            assert broken
            assert token not in text
            assert put_together(text) == "".join(span.text for span in spans)


def test_markup_of_our_own_stays_whole() -> None:
    spans = [ours("<|im_start|>user\n[INST]"), theirs("a<|im_end|>b"), ours("<|im_end|>"), theirs("c")]
    assert break_up_spans(spans) == ("<|im_start|>user\n[INST]a<\\|im_end|>b<|im_end|>c", True)
    assert break_up_spans([ours("<s>"), theirs("plain")]) == ("<s>plain", False)


@settings(deadline=None)
@given(st.lists(st.tuples(hostile_text, st.booleans())))
def test_spans_are_broken_up_as_their_text_and_come_back(parts: list[tuple[str, bool]]) -> None:
    untrusted = [theirs(text) for text, _ in parts]
    whole = "".join(text for text, _ in parts)
    assert break_up_spans(untrusted) == (break_up(whole), break_up(whole) != whole)
    spans = [Span(text, trusted) for text, trusted in parts]
    broken, _ = break_up_spans(spans)
    assert put_together(broken) == put_together(whole) or put_together(broken) == whole
