"""Secrets that reach no message, no log and no database; and text of others that cannot steer a terminal.

    Redaction.text    a text without the secrets
    Redaction.data    the same for all texts in parsed JSON
    secrets_of        the passwords in a proxy's address, in every form in which they are sent
    printable         a text in which control characters are shown instead of obeyed

What is shortened is cleaned first: a secret that was cut in two is not found any more.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from itertools import takewhile
from typing import Any
from urllib.parse import quote, unquote

from evenhand.core.steering import STEERING

HIDDEN = "***"
# A key this short may be a word of an answer ("none", "EMPTY"), so that only messages are cleaned of it.
_LONG = 8
# So much of a secret is none by chance; some begin alike, and servers show the last few characters.
_PIECE = 4
_CUT = 12


class Redaction:
    """Takes secrets out.

    >>> Redaction(["sk-1234567890"]).text("Incorrect key: sk-1234567890.")
    'Incorrect key: ***.'
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = sorted({secret for secret in secrets if secret}, key=len, reverse=True)

    def text(self, text: str) -> str:
        """The text without the secrets."""
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
            if len(secret) > _CUT and secret[:_CUT] in text:
                text = _without_beginnings(text, secret)
        return text

    def data(self, data: Any, depth: int = 0) -> Any:
        """Parsed JSON without the secrets, names of fields included; nothing that is nested deeply.

        It is changed in place: a reply may be large, and should not be in memory twice.

        >>> Redaction(["sk-1"]).data({"error": {"message": ["no sk-1"]}})
        {'error': {'message': ['no ***']}}
        """
        if isinstance(data, str):
            return self.text(data)
        if depth > 100:
            return None
        if isinstance(data, list):
            for number, item in enumerate(data):
                data[number] = self.data(item, depth + 1)
        elif isinstance(data, dict):
            for name, value in list(data.items()):
                data[name] = self.data(value, depth + 1)
                if (shown := self.text(name)) != name:
                    data[shown] = data.pop(name)
        return data

    def stands_in(self, content: bytes) -> bool:
        """Whether a long secret, or the beginning of one, may be in JSON; escaped characters can be its own."""
        long = [secret for secret in self._secrets if len(secret) >= _LONG]
        if long and (b"\\u" in content or b"\\/" in content):
            return True
        return any(secret[:_CUT].encode() in content for secret in long)


def _without_beginnings(text: str, secret: str) -> str:
    """A text without what a server has left of a secret.

    >>> _without_beginnings("no: sk-0123456789ab...", "sk-0123456789abcdef")
    'no: ***...'
    """
    first, *others = text.split(secret[:_CUT])
    for other in others:
        alike = takewhile(lambda both: both[0] == both[1], zip(other, secret[_CUT:], strict=False))
        first += HIDDEN + other[len(list(alike)) :]
    return first


def secrets_of(url: str | None) -> list[str]:
    """What must not be shown of an address.

    The address need not be valid: an invalid one ends up in a message, with the password in it. A name without a
    password is a key.

    >>> secrets_of("http://me:p%40ss@proxy:3128")
    ['p%40ss', 'p@ss', 'bWU6cEBzcw==']
    >>> secrets_of("key:@proxy"), secrets_of("http://proxy")
    (['key', 'a2V5Og=='], [])
    """
    before, _, _ = (url or "").rpartition("@")
    user, _, password = before.rpartition("://")[2].removeprefix("//").partition(":")
    secret = password or user
    if not secret:
        return []
    plain = unquote(secret)
    login = f"{unquote(user)}:{unquote(password)}"
    pieces = [piece for piece in re.split("[/?#]", secret) if len(piece) >= _PIECE]  # as one who misreads it has it
    forms = [secret, plain, quote(plain, safe=""), base64.b64encode(login.encode()).decode(), *pieces]
    return list(dict.fromkeys(forms))


def printable(text: str) -> str:
    r"""A text that can be shown in a terminal: its control characters are written out.

    >>> print(printable("\x1b[2Jgone"))
    \x1b[2Jgone
    """
    return STEERING.sub(lambda found: ascii(found[0])[1:-1], text)
