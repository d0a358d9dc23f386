"""What one connection can make the client hold: not more than a little beyond the largest body that is taken."""

from __future__ import annotations

import asyncio
import gzip
import json
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from bare_server import CHUNKED, Peer
from evenhand.core import json_size
from evenhand.core.errors import EngineError, PairError
from evenhand.engines.http import JsonClient
from evenhand.io.files import find_tables, read_rows, reading

# Run in a process of its own, whose peak memory is its own.
CLIENT = """
import asyncio, resource, sys
from evenhand.engines.http import JsonClient
from evenhand.core import json_size
from evenhand.core.errors import EngineError, PairError
from evenhand.io.files import find_tables, read_rows, reading

async def main(url):
    client = JsonClient(url, who="x", timeout=120, key="sk-0123456789abcdef")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        await client.post("/ask", {})
        reason = "none"
    except EngineError as error:
        reason = error.reason
    await client.close()
    print(reason, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)

asyncio.run(main(sys.argv[1]))
"""
MEGABYTE = 2**20


def gzip_bomb(block: bytes, size: int) -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    packed = b"".join([packer.compress(block) for _ in range(size // len(block))]) + packer.flush()
    return b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b" % (len(packed), packed)


def names(number: int) -> bytes:
    """A block of headers, each of another name than all before."""
    return b"".join([b"h%x:\r\n" % (20_000 * number + n) for n in range(20_000)])


# Made where they are sent: the seconds that they take are not for every process that reads this file.
BOMBS: dict[str, Callable[[], bytes]] = {
    "gzip": lambda: gzip_bomb(b" " * MEGABYTE, 1000 * MEGABYTE),
    "gzip of lists": lambda: gzip_bomb(b"[{}" + b",{}" * 20_000_000 + b"]", 60_000_004),
    "gzip of texts": lambda: gzip_bomb(b'["a"' + b',"a"' * 15_000_000 + b"]", 60_000_005),
}
# What comes first, and what comes then for as long as it is taken; b"" is the end.
FLOODS: dict[str, tuple[bytes, Callable[[int], bytes]]] = {
    "headers": (b"HTTP/1.1 200 OK\r\n", names),
    "one header": (b"HTTP/1.1 200 OK\r\nX: ", lambda _: b"x" * 100_000),
    "status line": (b"HTTP/1.1 200 ", lambda _: b"x" * 100_000),
    "trailers": (CHUNKED + b"2\r\n{}\r\n0\r\n", names),
    "one trailer": (CHUNKED + b"2\r\n{}\r\n0\r\nX: ", lambda _: b"x" * 100_000),
    "chunk extension": (CHUNKED + b"2;", lambda _: b"x" * 100_000),
    "small chunks": (CHUNKED, lambda number: b"1\r\n \r\n" * 20_000 if number < 50 else b""),
    "continue": (b"", lambda _: b"HTTP/1.1 100 Continue\r\n\r\n" * 5_000),
    "body": (b"HTTP/1.1 200 OK\r\n\r\n", lambda _: b" " * 100_000),
}


# As many values as are taken, and something in them that has them all looked at once more.
LARGE: dict[str, Callable[[], bytes]] = {
    "half a pair": lambda: gzip_bomb(b'["\\ud83d"' + b',{"a":1}' * 1_990_000 + b"]", 15_920_011),
    "what may be a key": lambda: gzip_bomb(b'["\\u0041"' + b',{"a":1}' * 1_990_000 + b"]", 15_920_011),
}


@pytest.mark.parametrize("kind", [*FLOODS, *BOMBS])
def test_a_flood_is_a_failure_and_takes_little_memory(kind: str) -> None:
    reason, grown = asked(*FLOODS[kind]) if kind in FLOODS else asked(BOMBS[kind]())
    assert reason in ("bad_response", "connection")
    assert grown < 300, f"{grown} MB"


@pytest.mark.parametrize("kind", LARGE)
def test_a_large_reply_is_held_once(kind: str) -> None:
    reason, grown = asked(LARGE[kind]())
    assert reason == "none"
    assert grown < 620, f"{grown} MB"


def asked(first: bytes, then: Callable[[int], bytes] = lambda _: b"") -> tuple[str, int]:
    """What comes of asking a server that sends this, and by how many megabytes the client has grown."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(first)
            sent = number = 0
            while sent < 400 * MEGABYTE and (block := then(number)):
                writer.write(block)
                await writer.drain()
                sent, number = sent + len(block), number + 1
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def run() -> tuple[str, int]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        client = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CLIENT, url, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        out, said = await client.communicate()
        server.close()
        assert client.returncode == 0, said.decode()
        reason, grown = out.decode().split()
        return reason, int(grown)

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (b"101 Switching Protocols", "bad_response"),
        (b"204 No Content", "bad_response"),
        (b"206 Partial", "bad_response"),
        (b"299 Well", "bad_response"),
        (b"304 Not Modified", "no_such_route"),
        (b"600 Odd", "bad_response"),
        (b"999 Odder", "bad_response"),
    ],
)
def test_an_odd_status_is_a_failure_that_says_so(status: bytes, reason: str) -> None:
    upgrade = b"Upgrade: websocket\r\nConnection: Upgrade\r\n" if status.startswith(b"101") else b""
    script = b"HTTP/1.1 %b\r\n%bContent-Length: 0\r\n\r\n" % (status, upgrade)

    async def run() -> EngineError:
        async with Peer([script]) as peer:
            client = JsonClient(f"http://127.0.0.1:{peer.port}/v1", who="x", timeout=60)
            try:
                reply = await client.post("/ask", {})
                return client.fault(reply)
            except EngineError as error:
                return error
            finally:
                await client.close()

    error = asyncio.run(run())
    assert error.reason == reason
    assert status[:3].decode() in error.message


READER = """
import resource, sys
from evenhand.core.errors import InputError
from evenhand.io.pairs import read_pairs

before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    for pair in read_pairs(sys.argv[1]):
        pass
    said = "nothing"
except InputError as error:
    said = str(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024, said)
"""


@pytest.mark.parametrize("kind", ["jsonl.gz", "csv.gz", "jsonl.zst", "json.gz"])
def test_a_packed_line_of_a_gigabyte_is_a_fault_and_takes_little_memory(kind: str, tmp_path: Path) -> None:
    file = tmp_path / f"pairs.{kind}"
    first = {"csv": b"instruction,output_1,output_2\n", "json": b'["'}.get(kind.split(".")[0], b'{"instruction": "')
    packer = zstandard.ZstdCompressor().compressobj() if kind.endswith("zst") else zlib.compressobj(wbits=31)
    block = b"x" * MEGABYTE
    with file.open("wb") as out:
        out.write(packer.compress(first))
        for _ in range(1024):
            out.write(packer.compress(block))
        out.write(packer.flush())
    assert file.stat().st_size < 2 * MEGABYTE
    done = subprocess.run([sys.executable, "-c", READER, str(file)], capture_output=True, text=True, check=True)
    grown, _, said = done.stdout.partition(" ")
    assert ("more than 256 MB once unpacked" if kind == "json.gz" else "longer than 64 MB") in said
    assert int(grown) < 600


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_a_text_that_stands_once_in_a_file_and_in_every_row_takes_little_memory(kind: str, tmp_path: Path) -> None:
    file, rows = tmp_path / f"pairs.{kind}", 1500
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["x" * MEGABYTE]))
    names = pa.array([f"Question {n}?" for n in range(rows)])
    table = pa.table({"instruction": names, "output_1": texts, "output_2": pa.array(["y"] * rows)})
    if kind == "parquet":
        pq.write_table(table, file, store_schema=False)
    else:
        with pa.OSFile(str(file), "wb") as out, pa.ipc.new_file(out, table.schema) as writer:
            writer.write_table(table)
    assert file.stat().st_size < 2 * MEGABYTE
    done = subprocess.run([sys.executable, "-c", READER, str(file)], capture_output=True, text=True, check=True)
    grown, _, said = done.stdout.partition(" ")
    assert said == "nothing\n"
    assert int(grown) < 500


def test_rows_behind_a_line_that_is_too_long_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_LINE", 100)
    row = b'{"instruction": "a", "output_1": "b", "output_2": "c"}\n'
    file = tmp_path / "pairs.jsonl"
    file.write_bytes(row + b"x" * 350 + b"\n" + row + b" " * 99 + b"\n" + row)
    [table] = find_tables(file)
    found = list(read_rows(table))
    assert [(number, isinstance(row, dict)) for number, row in found] == [
        (1, True),
        (2, False),
        (3, True),
        (5, True),
    ]


ROW = {"instruction": "a", "output_1": "b", "output_2": "c"}


def rows_of(file: Path, data: bytes) -> list[object]:
    file.write_bytes(gzip.compress(data) if file.suffix == ".gz" else data)
    [table] = find_tables(file)
    return [row for _, row in read_rows(table)]


def test_a_packed_document_may_hold_less_than_one_that_never_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_MOST_UNPACKED", 2 * MEGABYTE)
    data = json.dumps([ROW | {"output_1": "x" * 3 * MEGABYTE}]).encode()
    assert len(rows_of(tmp_path / "a.json", data)) == 1
    with pytest.raises(PairError, match="more than 2 MB once unpacked") as caught:
        rows_of(tmp_path / "a.json.gz", data)
    assert ".jsonl" in str(caught.value)
    assert len(rows_of(tmp_path / "a.jsonl.gz", data[1:-1])) == 1


def test_json_of_too_many_values_is_refused_before_it_is_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (reading, json_size):
        monkeypatch.setattr(module, "MOST_VALUES", 1_000_000)
    many = json.dumps(ROW | {"x": [{}] * 300_000}).encode()
    assert len(many) > MEGABYTE
    [fault] = rows_of(tmp_path / "a.jsonl.gz", many + b"\n")
    assert "holds more than 1,000,000 values" in str(fault)
    with pytest.raises(PairError, match="holds more than 1,000,000 values"):
        rows_of(tmp_path / "a.json.gz", b"[" + many + b"]")
    assert len(rows_of(tmp_path / "a.json", b"[" + many + b"]")) == 1, "who has the room for it on disk may read it"


def test_brackets_and_commas_inside_of_texts_are_no_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_size, "MOST_VALUES", 1_000)
    assert not json_size.holds_too_much(json.dumps(['{[,"\\' * 400_000]).encode())
    assert json_size.holds_too_much(json.dumps(["{[,", 1.5] * 200_000).encode())
    assert not json_size.holds_too_much(b'"' + b'\\"{' * 400_000), "not closed"
