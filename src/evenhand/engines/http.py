"""JSON over HTTP: one small client for the embedded llama.cpp server and for every endpoint.

    JsonClient.post    a body out, a Reply back; what went wrong on the way is an EngineError
    JsonClient.fault   a Reply that is no answer -> the EngineError that says why

Requests go over `transport.py`, through a proxy where the environment names one. A key goes into a header and
nowhere else: no message, no repr and no log holds it, nor a proxy's password.
"""

from __future__ import annotations

import codecs
import ipaddress
import json
import math
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import orjson

from evenhand.core.errors import EngineError
from evenhand.core.json_size import holds_too_much
from evenhand.engines.redaction import Redaction, printable, secrets_of
from evenhand.engines.unreached import TooLarge, Unreachable

if TYPE_CHECKING:
    from evenhand.engines.transport import Transport

MAX_BODY = 64 * 2**20
# A server that asks for more patience than this is asked again earlier; the run's own retries have an end.
MAX_RETRY_AFTER = 600.0
# Seconds of pause after which a user would think that the run hangs.
_LONG_PAUSE = 15.0
# Escaped surrogates in JSON: a pair, or half of one, which is the group. Backslashes before it that are escaped
# themselves are part of the match, so that none of them is taken for its own.
_SURROGATES = re.compile(
    rb"(?<!\\)(?:\\\\)*+\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2}))"
)
_QUESTION_MARK = b"u003f"  # as long as what it stands for


class Reply(NamedTuple):
    """What a server sent back; `data` is the parsed JSON, or the text where it is none."""

    status: int
    data: Any
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class ServerReply:
    """What an error body says, whichever of the usual shapes it has.

    >>> ServerReply.of([{"error": {"message": "API key not valid", "code": 400}}]).message
    'API key not valid'
    >>> ServerReply.of({"detail": [{"loc": ["body", "seed"], "msg": "Extra inputs"}]}).message
    'body.seed: Extra inputs'
    """

    message: str = ""
    code: str = ""
    param: str = ""

    @classmethod
    def of(cls, data: Any) -> ServerReply:
        """Find the message, the code and the parameter that is at fault."""
        while isinstance(data, list) and data:
            data = data[0]
        if isinstance(data, Mapping) and isinstance(data.get("detail"), list):
            return cls(short("; ".join(_detail(item) for item in data["detail"][:10])))
        inner = data.get("error", data) if isinstance(data, Mapping) else data
        if not isinstance(inner, Mapping):
            return cls(short(inner))
        message = inner.get("message") or inner.get("detail") or inner
        code = inner.get("code") or inner.get("type") or ""
        return cls(short(message), short(code), short(inner.get("param") or ""))


@dataclass(frozen=True, slots=True)
class _Fault:
    """A way to fail; `{who}` and `{said}` are filled in, and `{key}` with the key's variable."""

    reason: str
    message: str
    hint: str = ""
    retryable: bool = False
    overloaded: bool = False
    fatal: bool = False


_TOO_LONG = _Fault("too_long", "the conversation does not fit the model's context: {said}")
# What the server says about a key is not repeated: some repeat the key.
_WRONG_KEY = _Fault("wrong_key", "{who} does not accept the key", "{key}", fatal=True)
_FORBIDDEN = _Fault(
    "wrong_key", "{who} does not accept the key, or does not allow this: {said}", "{key}", fatal=True
)
_NO_CREDIT = _Fault("no_credit", "{who} asks for payment first: {said}", "check the account", fatal=True)
_NO_MODEL = _Fault("no_such_model", "{who} does not have this model: {said}", "check the model's name", fatal=True)
_NO_ROUTE = _Fault("no_such_route", "{who} does not know this address: {said}", "check the URL", fatal=True)
_MOVED = _Fault("no_such_route", "{who} has moved ({status})", "check the URL", fatal=True)
_FILTERED = _Fault("content_filter", "{who} will not judge this text: {said}")
_TIMEOUT = _Fault("timeout", "{who} took too long ({status}): {said}", retryable=True, overloaded=True)
_LIMITED = _Fault("rate_limited", "{who} asks for fewer requests: {said}", retryable=True, overloaded=True)
_BUSY = _Fault("server_error", "{who} is overloaded ({status}): {said}", retryable=True, overloaded=True)
_BROKEN = _Fault("server_error", "{who} failed ({status}): {said}", retryable=True)
_STRANGE = _Fault("bad_response", "{who} answered with something else: {said}", retryable=True)
_REFUSED = _Fault("bad_request", "{who} refused the request ({status}): {said}")
_BARRED = _Fault("bad_request", "{who} refused this request ({status}), and has answered others before")
_ODD = _Fault("bad_response", "{who} answered with the status {status}, which no answer has", retryable=True)

# After so many refusals without an answer between them, it is not the prompts that are refused.
_MOST_REFUSALS = 5
# Of an account, whatever is asked.
_LASTING = (401, 402, 429)

_STATUS = {
    200: _STRANGE,
    401: _WRONG_KEY,
    402: _NO_CREDIT,
    403: _FORBIDDEN,
    404: _NO_ROUTE,
    405: _NO_ROUTE,
    408: _TIMEOUT,
    413: _TOO_LONG,
    425: _BUSY,
    429: _LIMITED,
    498: _BUSY,  # Groq: flex capacity exceeded
    503: _BUSY,
    504: _TIMEOUT,
    524: _TIMEOUT,  # Cloudflare, in front of many: the origin did not answer in time
    529: _BUSY,  # Anthropic: overloaded
}
# Servers agree less on statuses than on words: Gemini answers 400 to a wrong key, OpenRouter 403 to moderated text.
_WORDS: tuple[tuple[tuple[int, ...], re.Pattern[str], _Fault], ...] = tuple(
    (statuses, re.compile(words, re.IGNORECASE), fault)
    for statuses, words, fault in (
        ((400, 413, 422, 500), r"context.?(length|size|window)|prompt is too long|too many tokens", _TOO_LONG),
        ((400, 403, 422), r"content.?(filter|policy|management)|moderation|flagged|safety", _FILTERED),
        ((400,), r"api.?key", _WRONG_KEY),
        ((400, 404, 422), r"model.?not.?found|(no such|invalid) model|model\b.*not (exist|found)", _NO_MODEL),
        ((404,), r"\bmodel|endpoints found", _NO_MODEL),
        ((429, 403), r"insufficient.?(quota|credit|balance)|exceeded your current quota|billing", _NO_CREDIT),
    )
)


class JsonClient:
    """Asks one server over kept connections.

    `who` names the server in messages; `key_env` is the variable that its key came from, for hints. `headers`
    stand in the place of the one that carries the key.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str = "",
        key_env: str = "",
        timeout: float | None = None,
        limit: int = 64,
        who: str = "the server",
        headers: Mapping[str, str] | None = None,
        once_only: bool = False,
        answered: bool = False,
        on_notice: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._once_only = once_only  # whether each request has a connection of its own from the beginning
        self._headers = headers  # that carry the key, where it is not a bearer's
        self.url, self.who = url.rstrip("/"), who
        self.reached = False  # whether the server ever answered
        self.answered = answered  # whether it ever did so well, in this run or an earlier one
        self._refusals = 0  # since the last answer
        self._key, self._key_env = key, key_env
        self._timeout, self._limit = timeout, limit
        self._proxy = proxy_for(self.url)
        self._redaction = Redaction([key, *secrets_of(self._proxy)])
        self._transport: Transport | None = None
        self._distrusted = False  # whether the server has sent what nobody asked for
        self._notice = on_notice
        self._paused_until = 0.0  # by what was said of it last

    async def post(self, path: str, body: Mapping[str, Any]) -> Reply:
        """Send a body as JSON."""
        return await self._send("POST", path, dump(body))

    async def get(self, path: str) -> Reply:
        """Fetch a path."""
        return await self._send("GET", path, b"")

    async def close(self) -> None:
        """Close the connections; the next request opens them again."""
        if self._transport is not None:
            await self._transport.close()
            self._transport = None

    def fault(self, reply: Reply) -> EngineError:
        """Say why a reply is no answer.

        >>> error = JsonClient("http://x/v1", who="x").fault(Reply(429, {"error": "slow down"}, 2.0))
        >>> error.message, error.reason, error.retry_after, error.overloaded
        ('x asks for fewer requests: slow down', 'rate_limited', 2.0, True)
        """
        said = ServerReply.of(reply.data)
        kind = self._of_one(_kind(reply.status, f"{said.code} {said.message}"), reply.status)
        message = kind.message.format(who=self.who, said=said.message or "no reason given", status=reply.status)
        if kind.retryable and reply.retry_after is not None:
            self._report_pause(reply.retry_after)
        return EngineError(
            self._redaction.text(message),
            reason=kind.reason,
            retryable=kind.retryable,
            overloaded=kind.overloaded,
            retry_after=reply.retry_after if kind.retryable else None,
            fatal=kind.fatal,
            hint=kind.hint.format(key=self._key_hint()),
        )

    def may_be_of_one(self, reply: Reply) -> bool:
        """Whether a refusal that would end a run may be that of one prompt: nothing has been answered yet."""
        return not self.answered and reply.status not in _LASTING and self.fault(reply).fatal

    def _report_pause(self, seconds: float) -> None:
        """Say that a long pause begins, once for all requests that have to wait."""
        now = time.monotonic()
        if seconds >= _LONG_PAUSE and now >= self._paused_until:
            self._paused_until = now + seconds
            self._notice(f"{self.who} asks to be left alone for {seconds:.0f} s: waiting")

    def _of_one(self, kind: _Fault, status: int) -> _Fault:
        """A refusal among answers is that of one prompt: a firewall reads prompts too, and servers quote them."""
        if not kind.fatal or not self.answered or status in _LASTING or self._refusals > _MOST_REFUSALS:
            return kind
        return _BARRED if kind.reason == _WRONG_KEY.reason else replace(kind, fatal=False, hint="")

    async def _send(self, method: str, path: str, body: bytes) -> Reply:
        try:
            transport = self._transport = self._transport or self._open()
            response = await transport.send(method, path, body)
        except TimeoutError:
            raise self._late() from None
        except TooLarge:
            raise EngineError(
                f"{self.who} answered with more than {MAX_BODY // 2**20} MB", reason="bad_response"
            ) from None
        except (OSError, ValueError) as fault:
            raise self._cut(fault) from None
        self.reached = True
        self._refusals = self._refusals + 1 if 300 <= response.status < 500 else 0
        self.answered = self.answered or response.status == 200
        data = self._parse(response.status, response.body)
        return Reply(response.status, data, _retry_after(response.headers))

    def _open(self) -> Transport:
        headers = {"Content-Type": "application/json", "Accept": "application/json", **self._identification()}
        headers["Accept-Encoding"] = "gzip, deflate"
        from evenhand.engines.transport import Transport  # with aiohttp, which takes a third of a second

        return Transport(
            self.url,
            headers,
            timeout=self._timeout,
            limit=self._limit,
            most=MAX_BODY,
            proxy=self._proxy,
            once_only=self._once_only or self._distrusted,
            on_stray=self._distrust,
        )

    def _identification(self) -> dict[str, str]:
        """The headers that say who asks."""
        if self._headers is not None:
            return {"User-Agent": "evenhand", **self._headers}
        key = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        return {"User-Agent": "evenhand", **key}

    def _distrust(self) -> None:
        self._distrusted = True
        self._notice(
            f"{self.who} sent a response that was not asked for: from now on each request has a connection of its"
            " own, and what may be the answer to another prompt is asked again"
        )

    def _parse(self, status: int, content: bytes) -> Any:
        if holds_too_much(content):
            raise EngineError(f"{self.who} answered with millions of values", reason="bad_response")
        try:
            data = load(content)
            hide = status != 200 or self._redaction.stands_in(content)
            return self._redaction.data(data) if hide else data
        except ValueError:
            text = self._redaction.text(content[:10_000].decode("utf-8", "replace"))
            if status != 200:
                return text  # a proxy's page; its status says enough
            shown = short(text)
            raise EngineError(
                f"{self.who} answered with something that is not JSON: {shown}",
                reason="bad_response",
                retryable=True,
            ) from None

    def _late(self) -> EngineError:
        seconds = f" within {self._timeout:g} s" if self._timeout else ""
        return EngineError(f"{self.who} did not answer{seconds}", reason="timeout", retryable=True, overloaded=True)

    def _cut(self, fault: Exception) -> EngineError:
        why = short(self._redaction.text(str(fault) or type(fault).__name__))
        if isinstance(fault, ValueError):  # a URL or a key that cannot be sent
            return self._unreachable(why)
        if isinstance(fault, Unreachable):
            if fault.lasting or not self.reached:
                return self._unreachable(why)
            if fault.late:
                return self._late()
            return EngineError(
                f"{self.who} cannot be reached any more at {self.url}: {why}",
                reason="connection",
                retryable=True,
                nobody_there=True,
            )
        return EngineError(f"the connection to {self.who} broke: {why}", reason="connection", retryable=True)

    def _unreachable(self, why: str) -> EngineError:
        """Nobody has ever answered there, so that the address is at fault rather than the moment."""
        return EngineError(
            f"{self.who} cannot be reached at {self.url}: {why}",
            reason="connection",
            fatal=True,
            hint="is the server running, and the URL right?",
        )

    def _key_hint(self) -> str:
        if not self._key_env:
            return "none was sent: --set key_env=NAME names the variable that holds it"
        return f"check the environment variable {self._key_env}" + ("" if self._key else ", which is not set")


def proxy_for(url: str) -> str | None:
    """The proxy that the environment names for this address, looked up once instead of for every request.

    >>> proxy_for("http://127.0.0.1:8080") is None
    True
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if _is_loopback(host) or proxy_bypass(host):
        return None
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    return f"http://{proxy}" if proxy and "://" not in proxy and not proxy.startswith("//") else proxy


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def dump(body: Mapping[str, Any]) -> bytes:
    """A body as JSON; it may hold parts that are JSON already, as orjson.Fragment.

    >>> dump({"done": orjson.Fragment(b"[1]"), "half": chr(0xD83D)})
    b'{"done": [1], "half": "\\\\ud83d"}'
    """
    try:
        return orjson.dumps(body)
    except TypeError:  # half of a surrogate pair: no UTF-8, but JSON has a way to write it
        return json.dumps(body, default=lambda part: json.loads(orjson.dumps(part))).encode()


def load(content: bytes) -> Any:
    """Parse JSON; half of a surrogate pair, which no database takes, becomes a question mark.

    >>> load(b'{"half": "\\\\ud83d"}')
    {'half': '?'}
    """
    content = content.removeprefix(codecs.BOM_UTF8)
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        if b"\\u" not in content:
            raise
    whole = bytearray(content)  # one copy: a parser that takes halves would hold all values a second time
    for found in _SURROGATES.finditer(content):
        if found[1]:
            whole[found.start(1) : found.end(1)] = _QUESTION_MARK
    return orjson.loads(whole)


def _kind(status: int, said: str) -> _Fault:
    for statuses, words, fault in _WORDS:
        if status in statuses and words.search(said):
            return fault
    if status in _STATUS:
        return _STATUS[status]
    if 300 <= status < 400:
        return _MOVED
    if 400 <= status < 600:
        return _BROKEN if status >= 500 else _REFUSED
    return _ODD


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, given as such or as a date.

    >>> _retry_after({"retry-after": "1.5"}), _retry_after({"retry-after": "soon"})
    (1.5, None)
    >>> _retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"})
    0.0
    """
    value = headers.get("retry-after")
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, TypeError, ArithmeticError, LookupError, OSError):  # a date that is none, or no clock's
            return None
    return min(max(seconds, 0.0), MAX_RETRY_AFTER) if not math.isnan(seconds) else None


def _detail(item: Any) -> str:
    if not isinstance(item, Mapping):
        return short(item)
    where = item.get("loc")
    named = ".".join(map(short, where)) if isinstance(where, (list, tuple)) else short(where or "")
    return f"{named}: {short(item.get('msg') or '')}"


def short(text: Any) -> str:
    """One line of at most 300 characters, none of which steers a terminal."""
    try:
        line = printable(" ".join(str(text)[:1000].split()))
    except RecursionError:  # brackets within brackets
        return "…"
    return line if len(line) <= 300 else line[:299] + "…"
