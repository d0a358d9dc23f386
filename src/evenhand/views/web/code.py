"""Code in colours: strings, comments, numbers and the commonest keywords, whatever the language.

One pass of one pattern without nested repeats, so that no text takes long: less than a real highlighter knows,
and enough to read a response by.
"""

from __future__ import annotations

import re
from functools import cache

from markupsafe import Markup, escape

_LONGEST = 10_000  # characters; longer code stays plain
_WORDS = """and as assert async await bool break case catch char class const continue def default del do double elif
else enum except export extends extern false finally float fn for from function global goto if impl implements
import
in instanceof int interface is lambda let long loop match mod mut namespace new nil none not null or package pass
private protected pub public raise return self static struct super switch this throw trait true try type typedef
typeof union unsafe use using var void while with yield select insert update delete create table where group order
by
join on left inner outer limit values into set"""
_HASH = {
    *("python", "py", "bash", "sh", "shell", "ruby", "rb", "yaml", "yml", "toml"),
    *("r", "perl", "make", "dockerfile"),
}
_DASH = ("sql", "lua", "haskell", "hs")


def highlight(code: str, language: str = "") -> Markup:
    """Code as spans of the classes k (keyword), s (string), c (comment) and n (number).

    >>> highlight("x = 1  # <b>", "python")
    Markup('x = <span class="n">1</span>  <span class="c"># &lt;b&gt;</span>')
    """
    if not language or len(code) > _LONGEST:
        return escape(code)
    pattern = _pattern(_comment(language.lower()))
    made, done = [], 0
    for found in pattern.finditer(code):
        made.append(escape(code[done : found.start()]))
        made.append(Markup('<span class="{}">{}</span>').format(found.lastgroup, found[0]))
        done = found.end()
    return Markup("").join([*made, escape(code[done:])])


def _comment(language: str) -> str:
    if language in _HASH:
        return r"\#[^\n]*"
    if language in _DASH:
        return r"--[^\n]*"
    return r"//[^\n]*|/\*.{0,600}?\*/|<!--.{0,600}?-->"


@cache
def _pattern(comment: str) -> re.Pattern[str]:
    strings = r"\"\"\".{0,600}?\"\"\"|\"(?:[^\"\\\n]|\\.){0,300}\"|'(?:[^'\\\n]|\\.){0,300}'"
    words = "|".join(_WORDS.split())
    return re.compile(
        rf"(?P<c>{comment})|(?P<s>{strings})|(?P<k>(?<![\w.])(?:{words})(?!\w))|(?P<n>(?<![\w.])\d[\w.]*)",
        re.DOTALL | re.IGNORECASE,
    )
