"""A file that the owner sends from a page: read within bounds, and taken in by the one reader of pairs.

The form is multipart/form-data (RFC 7578). What is in the file is text of strangers: it goes through the reader
that `evenhand judge` uses, into the database, and onto pages as any other pair does.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from pathlib import Path

from starlette.requests import Request

from evenhand.core.errors import InputError
from evenhand.io.pairs import check_pairs, read_pairs
from evenhand.store import Store
from evenhand.views.web.guard import Refusal

MOST_UPLOAD = 32 * 1024 * 1024  # bytes
_MOST_PARTS = 16
# Plain text, so that what is read is no larger than what was sent.
_KINDS = (".jsonl", ".ndjson", ".json", ".csv")
_BY_COMMAND = "evenhand serve --pairs FILE takes larger files, and packed ones"


@dataclass(frozen=True, slots=True)
class Upload:
    """A form with a file: its other fields, and what the file is called and holds."""

    fields: Mapping[str, list[str]]
    name: str
    data: bytes


async def read_upload(request: Request) -> Upload:
    """The form that a page sends with a file; Refusal where it is too large or something else."""
    header = Message()
    header["content-type"] = request.headers.get("content-type", "")
    boundary = header.get_boundary("")
    if header.get_content_type() != "multipart/form-data" or not boundary:
        raise Refusal(415, "That is not a form with a file.")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_UPLOAD:
            raise Refusal(413, "That file is too large.", f"at most {MOST_UPLOAD >> 20} MB; {_BY_COMMAND}")
    try:
        return parse_upload(bytes(body), boundary.encode())
    except ValueError as fault:
        raise Refusal(400, "That form cannot be read.") from fault


def parse_upload(body: bytes, boundary: bytes) -> Upload:
    """The parts of a multipart form; ValueError where it is not one.

    >>> head = b'Content-Disposition: form-data; name="file"; filename="a.csv"'
    >>> found = parse_upload(b"\\r\\n".join([b"--x", head, b"", b"id,b", b"--x--", b""]), b"x")
    >>> found.name, found.data
    ('a.csv', b'id,b')
    """
    first, *parts = (b"\r\n" + body).split(b"\r\n--" + boundary)
    if first or not parts or not parts[-1].startswith(b"--") or len(parts) > _MOST_PARTS:
        raise ValueError("no multipart form")
    fields: dict[str, list[str]] = {}
    name, data = "", b""
    for part in parts[:-1]:
        head, gap, content = part.partition(b"\r\n\r\n")
        if not gap:
            raise ValueError("a part without a head")
        field, file = _disposition(head)
        if file is None:
            fields.setdefault(field, []).append(content.decode())
        else:
            name, data = file, content
    return Upload(fields, name, data)


def _disposition(head: bytes) -> tuple[str, str | None]:
    """The name of a part, and that of its file, where it is one."""
    for line in head.decode().split("\r\n"):
        title, _, value = line.partition(":")
        if title.strip().lower() == "content-disposition":
            message = Message()
            message["content-disposition"] = value.strip()
            field, file = (message.get_param(word, None, "content-disposition") for word in ("name", "filename"))
            if isinstance(field, str):
                return field, file if isinstance(file, str) else None
    raise ValueError("a part without a name")


def take_pairs(store: Store, upload: Upload) -> tuple[int, int, list[str]]:
    """Keep the pairs of a file; how many it has, how many are new, and what there is to say of it.

    The whole file is found good before anything is kept.
    """
    suffix = Path(upload.name).suffix.lower()
    if not upload.name:
        raise InputError("no file was chosen", hint=f"a file of pairs: {', '.join(_KINDS)}")
    if suffix not in _KINDS:
        raise InputError(f"{upload.name[:80]} is no {', '.join(_KINDS)} file", hint=_BY_COMMAND)
    with tempfile.TemporaryDirectory(prefix="evenhand-") as folder:
        file = Path(folder, f"pairs{suffix}")
        file.write_bytes(upload.data)
        notes: Counter[str] = Counter()
        try:
            check_pairs(file, notes=notes)
        except InputError as fault:  # with the name that the owner knows
            shown = fault.message.replace(str(file), upload.name[:80])
            raise InputError(shown, hint=fault.hint) from None
        given, new = store.add_pairs(read_pairs(file))
    return given, new, [f"{count:,} × {note}" for note, count in notes.items()]
