"""Responses as the Markdown that they mostly are, made safe three times over.

The parser takes HTML for text; links go to http, https or mailto or nowhere; pictures become words, because
fetching a picture would tell its server that the page was read. What comes out is then filtered by nh3 down to a
few tags, and the pages' Content-Security-Policy allows neither foreign scripts nor styles nor pictures.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup, escape

from evenhand.views.web.code import highlight
from evenhand.views.web.text import cut, visible

How = Literal["markdown", "text"]
# A text beyond one of these is shown as it is: parsing it would hold up the page, or drop what is nested too deep.
MARKDOWN_LIMIT = 20_000  # characters
_MOST_LINES, _MOST_BRACKETS = 2_000, 500
_TOO_DEEP = re.compile(r"^(?: {48}|\t{12}|(?:[ \t]{0,4}(?:>|[-+*]|\d{1,9}[.)])){12})", re.MULTILINE)
TEXT_LIMIT = 100_000  # characters that a page shows of one text at all

_TAGS = {
    *("p", "br", "hr", "em", "strong", "s", "blockquote", "ul", "ol", "li", "pre", "code", "span", "a"),
    *("h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td"),
}
_ATTRIBUTES = {
    "a": {"href", "target"},
    "code": {"class"},
    "span": {"class"},
    "th": {"class"},
    "td": {"class"},
    "ol": {"start"},
    "pre": {"tabindex"},
}
_SCHEMES = {"http", "https", "mailto"}


@dataclass(frozen=True, slots=True)
class Rendered:
    """A text as a page shows it, how, and how many of its characters are not shown."""

    html: Markup
    how: How
    left_out: int


def render(text: str, how: How = "markdown") -> Rendered:
    """A text for a page; one too long for Markdown comes as plain text.

    >>> render("**bold** <script>").html
    Markup('<p><strong>bold</strong> &lt;script&gt;</p>\\n')
    >>> render("x" * 200_000).left_out
    100000
    """
    if how == "markdown" and _is_modest(text):
        return Rendered(render_markdown(text), "markdown", 0)
    shown, left_out = cut(text, TEXT_LIMIT)
    return Rendered(render_plain(shown), "text", left_out)


def _is_modest(text: str) -> bool:
    """Whether a text can be parsed in no time, with nothing of it lost.

    >>> _is_modest("# Fine"), _is_modest(">" * 30 + "hidden"), _is_modest("[" * 10_000)
    (True, False, False)
    """
    if len(text) > MARKDOWN_LIMIT or text.count("\n") > _MOST_LINES or text.count("[") > _MOST_BRACKETS:
        return False
    return _TOO_DEEP.search(text) is None


def render_plain(text: str) -> Markup:
    """Text as it is, line by line.

    >>> render_plain("<b>")
    Markup('<div class="plain">&lt;b&gt;</div>')
    """
    return Markup('<div class="plain">{}</div>').format(visible(text))


def render_markdown(text: str) -> Markup:
    """Markdown as HTML that cannot do anything.

    >>> render_markdown("[x](javascript:alert(1)) ![p](http://example.com/p.png)")
    Markup('<p>[x](javascript:alert(1)) <span class="picture">picture: p (http://example.com/p.png)</span></p>\\n')
    """
    made = str(_parser().render(visible(text)))
    return Markup(
        nh3.clean(
            made,
            tags=_TAGS,
            attributes=_ATTRIBUTES,
            url_schemes=_SCHEMES,
            link_rel="noopener noreferrer nofollow",
            strip_comments=True,
        )
    )


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": 100}, renderer_cls=_Renderer)
    # A definition such as "[1]: text" would not be seen; as text it is.
    return parser.enable(["table", "strikethrough"]).disable("reference")


class _Renderer(RendererHTML):
    """Tokens to HTML: code in colours, pictures as words, links that say where they lead."""

    def fence(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        token = tokens[idx]
        language = token.info.split()[0] if token.info.split() else ""
        about = Markup('<span class="about">{}</span>\n').format(token.info.strip()) if token.info.strip() else ""
        return f'<pre tabindex="0">{about}<code>{highlight(token.content, language)}</code></pre>\n'

    def code_block(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return f'<pre tabindex="0"><code>{escape(tokens[idx].content)}</code></pre>\n'

    def image(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        token = tokens[idx]
        said, source = token.content or "unnamed", str(token.attrs.get("src", ""))
        return str(Markup('<span class="picture">picture: {} ({})</span>').format(said, source[:200]))

    def link_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        href = str(tokens[idx].attrs.get("href", ""))
        if href.partition(":")[0].lower() not in _SCHEMES:
            return "<a>"
        return str(Markup('<a href="{}" target="_blank">').format(href))

    def heading_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return f"<{_heading(tokens[idx].tag)}>"

    def heading_close(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return f"</{_heading(tokens[idx].tag)}>\n"

    def th_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return f"<th{_aligned(tokens[idx])}>"

    def td_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return f"<td{_aligned(tokens[idx])}>"


def _heading(tag: str) -> str:
    """A response's headings stand below the page's own: h1 -> h4."""
    return f"h{min(6, 3 + int(tag[1]))}"


def _aligned(token: Token) -> str:
    """A class instead of a style, which the pages' policy would refuse."""
    style = str(token.attrs.get("style", ""))
    return next((f' class="{side}"' for side in ("right", "center") if side in style), "")
