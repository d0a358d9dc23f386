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
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

HIDDEN = "***"
# A key this short may be a word of an answer ("none", "EMPTY"), so that only messages are cleaned of it.
_LONG = 8
# Control characters but line feed and tab, and those that change the direction of what follows.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


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
        return text

    def data(self, data: Any, depth: int = 0) -> Any:
        """Parsed JSON without the secrets, names of fields included; nothing that is nested deeply.

        >>> Redaction(["sk-1"]).data({"error": {"message": ["no sk-1"]}})
        {'error': {'message': ['no ***']}}
        """
        if isinstance(data, str):
            return self.text(data)
        if depth > 100:
            return None
        if isinstance(data, list):
            return [self.data(item, depth + 1) for item in data]
        if isinstance(data, dict):
            return {self.text(name): self.data(item, depth + 1) for name, item in data.items()}
        return data

    def stands_in(self, content: bytes) -> bool:
        """Whether a long secret is in an answer as it came."""
        return any(len(secret) >= _LONG and secret.encode() in content for secret in self._secrets)


def secrets_of(url: str | None) -> list[str]:
    """What must not be shown of an address.

    >>> secrets_of("http://me:p%40ss@proxy:3128")
    ['p%40ss', 'p@ss', 'bWU6cEBzcw==']
    """
    parts = urlsplit(url or "")
    if not parts.password:
        return []
    plain = unquote(parts.password)
    login = f"{unquote(parts.username or '')}:{plain}"
    forms = [parts.password, plain, quote(plain, safe=""), base64.b64encode(login.encode()).decode()]
    return list(dict.fromkeys(forms))


def without_login(url: str) -> str:
    """An address without the name and password in it.

    >>> without_login("http://me:secret@proxy:3128/x")
    'http://proxy:3128/x'
    """
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def printable(text: str) -> str:
    r"""A text that can be shown in a terminal: its control characters are written out.

    >>> print(printable("\x1b[2Jgone"))
    \x1b[2Jgone
    """
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)
