"""From a database to a listening server."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from evenhand.core.errors import InputError
from evenhand.views.web.app import make_app
from evenhand.views.web.connections import BACKLOG, make_server
from evenhand.views.web.guard import Door, own_hosts
from evenhand.views.web.site import Site, is_local

_SHORTEST_PASSWORD = 8


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where to listen, and the names by which others know that place."""

    host: str = "127.0.0.1"
    port: int = 8765
    names: tuple[str, ...] = ()

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        return is_local(self.host)


def serve(
    db: Path, address: ServerAddress, *, password: str = "", ready: Callable[[str, bool], None] | None = None
) -> None:
    """Serve a database until Ctrl-C; `ready` gets the owner's link, and every new one."""
    if not address.is_local and len(password) < _SHORTEST_PASSWORD:
        raise InputError(
            f"{address.host} can be reached by other machines, and there is no password of"
            f" {_SHORTEST_PASSWORD} characters or more",
            hint="put one into a file and name it with --password-file, or listen on 127.0.0.1",
        )
    listening = listen(address)
    with listening:
        site = open_site(db, address, listening.getsockname()[1], password, ready)
        server = make_server(make_app(site))
        if ready is not None:
            ready(f"{site.base}/enter/{site.door.link}", True)
        server.run(sockets=[listening])


def open_site(
    db: Path,
    address: ServerAddress,
    port: int,
    password: str = "",
    ready: Callable[[str, bool], None] | None = None,
) -> Site:
    """The site of a database; one of an older version is brought up to date first."""
    host = f"[{address.host}]" if ":" in address.host else address.host
    shown = address.names[0] if address.names else host
    base = f"http://{shown}:{port}"
    door = Door(password, (lambda link: ready(f"{base}/enter/{link}", False)) if ready is not None else None)
    names = address.names if address.is_local else (*address.names, host)
    site = Site(db, port, door, base, own_hosts(port, names))
    with site.store():  # opened once now, so that an error is shown before the page is
        return site


def listen(address: ServerAddress) -> socket.socket:
    """A socket that is bound; refused with the remedy where it cannot be."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((address.host, address.port))
        listening.listen(BACKLOG)  # a link that is opened before the server is up waits for it
    except (OSError, OverflowError) as fault:
        listening.close()
        raise InputError(
            f"cannot listen on {address.host}:{address.port}: {getattr(fault, 'strerror', None) or fault}",
            hint="another program may have the port; --port 0 takes one that is free",
        ) from fault
    return listening
