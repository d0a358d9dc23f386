"""Ray itself: found or asked for by the exact command, connected to within seconds, kept quiet."""

from __future__ import annotations

import logging
import os
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from evenhand.core.errors import InputError

ADDRESS = re.compile(r"auto|local|(ray://)?(\[[0-9A-Fa-f:.]+\]|[\w.-]+):\d+")
_PROBE_SECONDS = 5.0
# What an HTTP/2 client says first, with empty settings; a server of gRPC, as Ray's is, answers with its own.
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_SETTINGS = 4
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_USAGE_STATS_PROMPT_ENABLED": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # what the nodes say of lost workers would stand in standard output
    "RAY_SCHEDULER_EVENTS": "0",
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    "RAY_worker_niceness": "0",  # by itself Ray lets all other programs of the machine go before its workers
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


# A cluster for one run on one machine is nobody else's business: Ray asks for no password. (The name is that of the
# systems where this is Ray's own choice.)
_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


@dataclass(frozen=True)
class Cluster:
    """A cluster that this process is connected to."""

    ray: Any
    address: str  # "local" where it was started here
    cores: tuple[float, ...]  # of each node that is alive

    def close(self) -> None:
        """Let go of it; one that was started here ends."""
        self.ray.shutdown()


def ray_data(address: str = "local") -> Any:
    """The library, or how to get it; it reads its settings from the environment when it is loaded."""
    for name, value in {**_QUIET, **(_LOOPBACK if address == "local" else {})}.items():
        os.environ.setdefault(name, value)
    try:
        import ray
        import ray.data
    except ImportError:
        raise InputError("evenhand ray needs Ray", hint="pip install 'evenhand[ray]'") from None
    return ray


def address_of(given: str) -> str:
    """The address that is meant: the one given, else that of RAY_ADDRESS, else this machine alone.

    >>> address_of("head:6379")
    'head:6379'
    """
    return given or os.environ.get("RAY_ADDRESS", "") or "local"


def connect(address: str = "") -> Cluster:
    """A running cluster by its address; without one, that of RAY_ADDRESS, or one on this machine for this run.

    >>> connect("ray://head:10001")
    Traceback (most recent call last):
    evenhand.core.errors.InputError: ray://head:10001 is the address of Ray Client, which Ray Data does not work
    over (run the command on a node of the cluster with its plain address, or submit it:
    ray job submit -- evenhand ...)
    """
    where = address_of(address)
    if where.startswith("ray://"):
        raise InputError(
            f"{where} is the address of Ray Client, which Ray Data does not work over",
            hint="run the command on a node of the cluster with its plain address, or submit it: "
            "ray job submit -- evenhand ...",
        )
    if not ADDRESS.fullmatch(where):
        raise InputError(f"--address {where} is not an address", hint="write HOST:PORT or auto, or leave it out")
    if where not in ("local", "auto"):
        probe(where)
    ray = ray_data(where)
    own = {"include_dashboard": False} if where == "local" else {}
    try:
        with _muted():
            ray.init(address=where, log_to_driver=False, logging_level=logging.CRITICAL, **own)
    except (ConnectionError, RuntimeError, ValueError) as fault:
        raise _no_cluster(where, fault) from None
    _quieten(ray)
    alive = [node["Resources"].get("CPU", 0.0) for node in ray.nodes() if node["Alive"]]
    return Cluster(ray, where, tuple(cpus for cpus in alive if cpus))


def _no_cluster(where: str, fault: Exception) -> InputError:
    said = "\n".join(_causes(fault))
    if where == "auto":
        return InputError(
            "no Ray cluster runs on this machine", hint="start one: ray start --head, or give HOST:PORT"
        )
    if "InvalidAuthToken" in said or "AuthenticationError" in said:
        return InputError(
            f"Ray at {where} asks for a token and was given none, or another",
            hint="set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH, as on the cluster",
        )
    first = said.strip().splitlines()[0] if said.strip() else "it did not answer"
    away = f"the command has to be given on a node of the cluster: ray start --address={where}"
    return InputError(f"no connection to Ray at {where}: {first}", hint="" if where == "local" else away)


def _causes(fault: BaseException | None) -> Iterator[str]:
    while fault is not None:
        yield f"{fault}\n{type(fault).__name__}"
        fault = fault.__cause__ or fault.__context__


def probe(where: str) -> None:
    """Ray itself waits minutes for an address at which nobody answers."""
    host, _, port = where.rpartition(":")
    hint = "is the address right, and does the cluster run? ray status --address=" + where
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_SECONDS) as line:
            line.sendall(_HELLO)
            said = line.recv(9)
    except (OSError, OverflowError) as fault:
        why = "it did not answer" if isinstance(fault, TimeoutError) else str(fault)
        raise InputError(f"no answer from {where}: {why}", hint=hint) from None
    if len(said) < 4 or said[3] != _SETTINGS:
        raise InputError(f"what answers at {where} is not Ray", hint=hint)


@contextmanager
def _muted() -> Iterator[None]:
    """Ray's core writes to standard error, past Python, that it was told to be quiet."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _quieten(ray: Any) -> None:
    """Ray's own words go to its log files; what matters is said by the command."""
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.execution_no_progress_timeout_s = -1  # a slow judge is at its task for as long as it takes
    for name in ("ray", "ray.data"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def share_cores(
    nodes: tuple[float, ...], *, embedded: bool, workers: int | None, threads: int | None
) -> tuple[int, int]:
    """How many workers there are, and how many cores each has.

    An embedded model has all cores of a node unless more workers are wanted; who asks an endpoint has one.

    >>> share_cores((8, 8), embedded=True, workers=None, threads=None)
    (2, 8)
    >>> share_cores((8, 8), embedded=True, workers=4, threads=None)
    (4, 4)
    >>> share_cores((8, 8), embedded=True, workers=None, threads=2)
    (8, 2)
    >>> share_cores((8, 8), embedded=False, workers=None, threads=None)
    (2, 1)
    """

    def room(each: int) -> int:
        return sum(int(cores // each) for cores in nodes)

    if not embedded:
        each = 1
    elif threads:
        each = threads
    else:
        most = max(1, int(min(nodes, default=1)))
        each = next((cores for cores in range(most, 0, -1) if room(cores) >= (workers or 1)), 1)
    wanted = workers or (room(each) if embedded else len(nodes))
    if not 0 < wanted <= room(each):
        cores = sum(map(int, nodes))
        raise InputError(
            f"{max(wanted, 1)} workers of {each} cores do not fit the cluster, which has {cores} cores"
            f" on {len(nodes)} nodes",
            hint="give fewer --workers, or fewer --threads",
        )
    return wanted, each
