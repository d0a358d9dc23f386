"""How long the pages take over 100,000 pairs, beside bare reads of the same file.

    python benchmarks/web_speed.py [--pairs 100000] [--rounds 50]

A database is filled with pairs and verdicts of made-up judges, then a real server answers over HTTP on loopback.
On a machine that is busy with other things the seconds that passed say little; those that this process had a core,
and their ratio to a bare read of the same pair, say more.
"""

from __future__ import annotations

import argparse
import http.client
import random
import socket
import sqlite3
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import uvicorn

from evenhand import Judge, Pair
from evenhand.core.protocol import Prompt
from evenhand.engines.scripted import ScriptedEngine
from evenhand.store import Store
from evenhand.views.web.app import make_app
from evenhand.views.web.serving import ServerAddress, open_site

SYLLABLES = [a + b for a in "bcdfghklmnprstvz" for b in ("a", "e", "i", "o", "u", "an", "er", "is", "ol", "un")]
WORDS = ["".join(random.Random(i).choices(SYLLABLES, k=2 + i % 3)) for i in range(4000)]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--pairs", type=int, default=100_000)
    options.add_argument("--rounds", type=int, default=50)
    options.add_argument("--protocol", action="append", help="one judge for each; default: overall")
    given = options.parse_args()
    given.protocol = given.protocol or ["overall"]
    with tempfile.TemporaryDirectory() as folder:
        db = Path(folder) / "large.db"
        timed("filling the database", lambda: fill(db, given.pairs, given.protocol))
        with Store(db) as store:
            judges = [judge.id for judge in store.judges(counted=False)]
        print(f"{given.pairs:,} pairs, {len(judges)} judges, {db.stat().st_size / 1e6:,.0f} MB")
        measure(db, given.pairs, given.rounds)


def fill(db: Path, count: int, protocols: list[str]) -> None:
    """Pairs of five models, each judged in both orders by each judge."""
    for name in protocols:
        with Judge(ScriptedEngine(say, name="made up"), name, db=db) as judge:
            for _ in judge.judge(made_up(random.Random(1), count)):
                pass


def say(prompt: Prompt) -> str | dict[str, float]:
    """An answer that the prompt decides: probabilities where one label is asked for."""
    draw = random.Random(prompt.turns[-1].text)
    if prompt.verdicts > 1:
        return ", ".join(draw.choices(prompt.words, k=prompt.verdicts))
    shares = {word: draw.random() + 0.05 for word in prompt.words}
    return {word: 0.99 * share / sum(shares.values()) for word, share in shares.items()}


def made_up(draw: random.Random, count: int) -> Iterator[Pair]:
    for number in range(count):
        one, two = draw.sample(("alpha", "beta", "gamma", "delta", "epsilon"), 2)
        texts = (" ".join(draw.choices(WORDS, k=k)) for k in (20, draw.randrange(40, 200), draw.randrange(40, 200)))
        known = {"overall": draw.choice(("1", "2", "tie"))} if number % 10 == 0 else {}
        yield Pair(
            *texts, id=f"pair-{number}", model_1=one, model_2=two, labels=known, metadata={"topic": number % 20}
        )  # type: ignore[arg-type]


def measure(db: Path, count: int, rounds: int) -> None:
    draw = random.Random(2)
    with Server(db) as server, sqlite3.connect(db) as bare:
        pairs = [draw.randrange(1, count + 1) for _ in range(rounds)]
        reads = [time_of(partial(read, bare, n)) for n in pairs]
        report("a bare read of a pair and its verdicts", reads, None)
        base = statistics.median(core for _, core in reads)
        pages = {
            "opening a pair": lambda n: f"/pair/{n}?judge=1",
            "a pair of a filtered list": lambda n: f"/pair/{n}?judge=1&only=inconsistent&f.topic=3",
            "the list, least certain first": lambda n: "/pairs?judge=1",
            "the list, a page from the middle": lambda n: f"/pairs?judge=1&page={1 + n // 50}",
            "the list, filtered": lambda n: "/pairs?judge=1&verdict=1&only=inconsistent&f.topic=3",
            "a search for a word": lambda n: f"/pairs?judge=1&q={WORDS[n % 4000]}",
            "a search before the index is there": lambda n: f"/pairs?judge=1&q={WORDS[(n + 7) % 4000]}",
        }
        timed("the index that searches ask", partial(server.wait_for_words, count))
        for name, address in pages.items():
            some = pairs[:5] if "before" in name else pairs  # each reads every text
            if "before" in name:
                server.forget_words()
            report(name, [time_of(partial(server.get, address(n))) for n in some], base)
        report("the overview", [time_of(lambda: server.get("/")) for _ in range(5)], base)


def read(db: sqlite3.Connection, number: int) -> None:
    """What must be read for a page of one pair, in as many statements as plain SQL needs."""
    db.execute("SELECT * FROM pairs WHERE id = ?", (number,)).fetchone()
    db.execute(
        "SELECT v.* FROM queue d JOIN verdicts v ON v.conversation = d.conversation WHERE d.pair = ?", (number,)
    ).fetchall()


def report(what: str, times: list[tuple[float, float]], base: float | None) -> None:
    wall, core = (statistics.median(column) for column in zip(*times, strict=True))
    worst = sorted(seconds for seconds, _ in times)[int(0.95 * (len(times) - 1))]
    ratio = "" if base is None else f"   {core / base:6.0f} bare reads"
    print(
        f"{what:34} {1000 * wall:8.2f} ms, 95% within {1000 * worst:8.2f}; {1000 * core:8.2f} ms of a core{ratio}",
        flush=True,
    )


def time_of(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds that passed, and seconds that this process (server and client) had a core."""
    wall, core = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - core


def timed(what: str, work: Callable[[], object]) -> None:
    wall, core = time_of(work)
    print(f"{what}: {wall:.1f} s, {core:.1f} s of a core", flush=True)


class Server:
    """The page of a database in a thread of this process, and somebody who asks."""

    def __init__(self, db: Path) -> None:
        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        site = open_site(db, ServerAddress(port=self.port), self.port)
        self.server = uvicorn.Server(uvicorn.Config(make_app(site), log_level="critical", access_log=False))
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.socket]}, daemon=True)
        self.link = site.door.link
        self.site = site

    def __enter__(self) -> Server:
        self.thread.start()
        while not self.server.started:
            time.sleep(0.05)
        self.wire = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        self.cookie = ""
        self.cookie = self.get(f"/enter/{self.link}", 303).partition(";")[0]
        return self

    def wait_for_words(self, count: int) -> None:
        """Wait until the index has taken in all pairs."""
        while self.site.words is None or self.site.words.last < count:
            time.sleep(0.1)
        self.wire.close()  # the server does not keep an idle one; the next question opens another

    def forget_words(self) -> None:
        """Throw the index away, as if it were not made yet."""
        if self.site.words is not None:
            self.site.words.close()

    def get(self, path: str, expected: int = 200) -> str:
        """Ask for a page; the cookie that comes with it."""
        self.wire.request("GET", path, headers={"Cookie": self.cookie} if self.cookie else {})
        answer = self.wire.getresponse()
        answer.read()
        assert answer.status == expected, (path, answer.status)
        return answer.getheader("set-cookie", "")

    def __exit__(self, *_: object) -> None:
        self.wire.close()
        self.server.should_exit = True
        self.thread.join()


if __name__ == "__main__":
    main()
