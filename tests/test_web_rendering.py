"""From untrusted text and numbers to markup: properties that hold for any text."""

from __future__ import annotations

import re
import time
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand import Pair, Protocol
from evenhand.core.engine import Answer
from evenhand.core.protocol import ORDERS, built_in_names
from evenhand.views.web.code import highlight
from evenhand.views.web.conversation import conversation_view
from evenhand.views.web.differences import MOST_WORDS, mark_differences
from evenhand.views.web.markdown import MARKDOWN_LIMIT, render, render_markdown
from evenhand.views.web.people_pages import rubric_of
from evenhand.views.web.text import visible
from web_server import HOSTILE


class Parsed(HTMLParser):
    """What a browser would see: tags, attributes, and the text between them."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.marked = ""
        self._open = 0
        self.feed("".join(html))  # a plain str: Markup would escape what is added to it

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self._open += tag == "mark"

    def handle_endtag(self, tag: str) -> None:
        self._open -= tag == "mark"

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._open:
            self.marked += data


# Text that looks like Markdown, HTML and tricks, far more often than random text would.
pieces = st.sampled_from(
    [
        *(
            "<script>",
            "</script>",
            "<img src=x onerror=fired()>",
            "<a href='javascript:fired()'>",
            "<svg/onload=x>",
        ),
        *("[a](javascript:x)", "[a](http://x.test/)", "![p](http://x.test/p)", "<http://x.test>", "[r]: http://x"),
        *(
            "```html\n",
            "```",
            "`",
            "**",
            "_",
            "# ",
            "> ",
            "- ",
            "1. ",
            "| a | b |\n|:-:|--:|\n",
            "\n",
            "\n\n",
            "    ",
        ),
        *(
            "&lt;",
            "&#60;",
            "&",
            '"',
            "'",
            "\\",
            "\x00",
            "\u202e",
            "\u2066",
            "style=",
            "on",
            "word",
            " ",
            "\t",
            "{{ x }}",
        ),
    ]
)
texts = st.one_of(st.lists(pieces, max_size=25).map("".join), st.text(max_size=200))
TAGS = {
    *("p", "br", "hr", "em", "strong", "s", "blockquote", "ul", "ol", "li", "pre", "code", "span", "a", "div"),
    *("h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td"),
}
CLASSES = {"k", "s", "c", "n", "right", "center", "picture", "about", "plain"}


@given(texts)
@settings(max_examples=300, deadline=None)
def test_any_markdown_comes_out_harmless(text: str) -> None:
    seen = Parsed(render(text).html)
    assert seen.tags <= TAGS
    for tag, name, value in seen.attributes:
        assert (tag, name) in {
            ("a", "href"),
            ("a", "target"),
            ("a", "rel"),
            ("ol", "start"),
            ("pre", "tabindex"),
        } or (name == "class" and value in CLASSES)
        assert name != "href" or re.match(r"(?i)(?:https?|mailto):", value)
        assert name != "rel" or "noopener" in value


@given(texts)
@settings(max_examples=200, deadline=None)
def test_plain_text_is_all_there(text: str) -> None:
    assert Parsed(render(text, "text").html).text == visible(text)


@given(texts, st.sampled_from(["python", "js", "sql", "html", ""]))
@settings(max_examples=200, deadline=None)
def test_colours_change_no_character_of_code(code: str, language: str) -> None:
    seen = Parsed(highlight(code, language))
    assert seen.text == code.replace("\x00", "\ufffd") or seen.text == code
    assert seen.tags <= {"span"}


@given(texts, texts)
@settings(max_examples=200, deadline=None)
def test_differences_lose_nothing(one: str, two: str) -> None:
    marked = mark_differences(one, two)
    assert marked is not None
    for text, html in zip((one, two), marked, strict=True):
        assert Parsed(html).text == visible(text)
    if one == two:
        assert not Parsed(marked[0]).marked


def test_differences_are_what_the_other_does_not_have() -> None:
    marked = mark_differences("The quick brown fox.", "The slow brown fox!")
    assert marked is not None
    assert [Parsed(html).marked for html in marked] == ["quick.", "slow!"]


def test_what_is_too_long_to_compare_is_not_compared() -> None:
    assert mark_differences("a " * MOST_WORDS, "b") is None
    assert mark_differences("x" * 10_000_000, "b") is None


@pytest.mark.parametrize("text", [t for k, t in HOSTILE.items()], ids=list(HOSTILE))
def test_no_text_takes_long(text: str) -> None:
    """A second is far more than any of them needs, on a machine that is busy with other things too."""
    begin = time.process_time()
    render((text * (1 + 10_000_000 // len(text)))[:10_000_000])
    render((text * (1 + MARKDOWN_LIMIT // len(text)))[:MARKDOWN_LIMIT])
    assert time.process_time() - begin < 2


@pytest.mark.parametrize(
    "text",
    ["[" * 19_999, "![" * 9_000, "*a **a " * 2_800, "a\n" * 9_999, '"\\' * 9_999, "<!--" * 4_999, "|a" * 9_999],
)
def test_no_markdown_takes_long(text: str) -> None:
    begin = time.process_time()
    render(text)
    highlight(text[:10_000], "js")
    assert time.process_time() - begin < 2


def test_nothing_is_hidden_by_nesting_or_by_definitions() -> None:
    for text in (
        ">" * 150 + " hidden",
        "- " * 150 + "hidden",
        "[1]: hidden",
        "<!-- hidden -->",
        "```x hidden\ny\n```",
    ):
        assert "hidden" in Parsed(render(text).html).text, text


def test_markdown_is_markdown() -> None:
    html = render_markdown(
        "# Title\n\n| a | b |\n|:-:|--:|\n| 1 | 2 |\n\n```python\nx = 1\n```\n[l](https://x.test/)"
    )
    assert "<h4>Title</h4>" in html
    assert '<td class="right">2</td>' in html
    assert '<span class="n">1</span>' in html
    assert '<a href="https://x.test/" target="_blank" rel="noopener noreferrer nofollow">l</a>' in html


# -- the conversation ------------------------------------------------------------------------------


ONE_CONVERSATION = [name for name in built_in_names() if name != "weighed"]


@given(texts, texts, texts, st.sampled_from(ONE_CONVERSATION), st.sampled_from(ORDERS))
@settings(max_examples=60, deadline=None)
def test_a_conversation_is_retold_word_for_word(task: str, one: str, two: str, name: str, order: str) -> None:
    pair = Pair(task, one, two)
    protocol = Protocol.load(name)
    shown = ORDERS[0] if order == "forward" else ORDERS[1]
    labels = [
        "A" if len(question.dimensions) == 1 else ", ".join("A" for _ in question.dimensions)
        for question in protocol.questions
    ]
    given = conversation_view(protocol, pair, shown, [Answer(label) for label in labels], raw=False)
    prompt = protocol.prompt(pair, shown, len(labels) - 1, labels)
    assert [turn.role for turn in given.turns[:-1]] == [turn.role for turn in prompt.turns]
    assert ["".join(p.text for p in turn.pieces) for turn in given.turns[:-1]] == [
        turn.text for turn in prompt.turns
    ]
    theirs = [p.text for turn in given.turns for p in turn.pieces if p.kind == "theirs"]
    assert theirs == [text for text in (task, *pair.shown(shown)) if text]
    assert sum(p.kind == "answer" for turn in given.turns for p in turn.pieces) == len(labels)
    assert given.turns[-1].pieces[0].text == labels[-1]


@pytest.mark.parametrize("answered", [1, 2, 5])
def test_each_conversation_of_a_protocol_is_told(answered: int) -> None:
    said = ["yes", "A", "tie", "B", "A"][:answered]
    protocol, pair = Protocol.load("weighed"), Pair("Hi", "Hello.", "Yo.")
    given = conversation_view(protocol, pair, "forward", [Answer(word) for word in said], raw=False)
    answers = [piece.text for turn in given.turns for piece in turn.pieces if piece.kind == "answer"]
    assert answers == said
    theirs = [piece.text for turn in given.turns for piece in turn.pieces if piece.kind == "theirs"]
    assert theirs == ["Hi", "Hello."] + ["Hi", "Hello.", "Yo."] * (answered > 1)
    assert [turn.role for turn in given.turns].count("system") == (2 if answered > 1 else 1)
    assert [verdict.word for verdict in given.verdicts] == said


def test_people_are_not_asked_what_is_asked_of_one_response() -> None:
    rubric = rubric_of(Protocol.load("weighed"))
    assert rubric == rubric_of(Protocol.load("chained"))
    assert "good_1" not in rubric["questions"]


def test_a_conversation_without_an_answer_is_told_up_to_its_question() -> None:
    given = conversation_view(Protocol.load("chained"), Pair("Hi", "x", "y"), "forward", [], raw=False)
    assert given.turns[-1].role == "user"
    assert not given.verdicts


def test_a_raw_conversation_is_told_in_the_files_own_markup() -> None:
    given = conversation_view(Protocol.load("overall"), Pair("Hi", "x", "y"), "forward", [Answer("B")], raw=True)
    assert given.turns[0].pieces[0].text.startswith("<|im_start|>system")
