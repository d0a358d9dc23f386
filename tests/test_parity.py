"""Two views of one number never disagree: every protocol, five kinds of judge, every view, to the last digit."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from command import evenhand
from evenhand import Judge, Pair, ScriptedEngine
from evenhand.core.pair import COMBINED
from evenhand.core.protocol import Prompt, built_in_names
from evenhand.store import Store
from evenhand.store.shards.copying import copy_store
from web_server import Client, WebServer

SEEDS = sorted((Path(__file__).resolve().parents[2] / "shared" / "seeds").glob("*.txt"))
PROTOCOLS: list[str | Path] = [*built_in_names(), *SEEDS]
PAIRS = 24


def make_pairs() -> list[Pair]:
    """Two pairs an instruction, outputs of all lengths, labels on some of them."""
    rng = random.Random(5)
    return [
        Pair(
            f"Task {number // 2}",
            f"one {'so ' * rng.randint(0, 9)}{number}",
            f"two {'so ' * rng.randint(0, 9)}{number}",
            id=f"p{number}",
            model_1="left",
            model_2="right",
            labels={"overall": rng.choice(["1", "2", "tie"])} if number % 3 == 0 else {},
        )
        for number in range(PAIRS)
    ]


def words_for(prompt: Prompt, word: str) -> str:
    """As many labels as are asked for; yes or no where that is the question."""
    if set(prompt.words) == {"yes", "no"}:
        word = {"A": "yes", "B": "no"}.get(word, word)
    return ", ".join([word] * prompt.verdicts)


def dice(prompt: Prompt) -> random.Random:
    return random.Random("".join(turn.text for turn in prompt.turns))


def say_random(prompt: Prompt) -> Any:
    rng = dice(prompt)
    if prompt.verdicts > 1:
        return words_for(prompt, rng.choice(["A", "B"]))
    labels = ["yes", "no"] if set(prompt.words) == {"yes", "no"} else ["A", "B", "tie"]
    weights = [rng.random() for _ in labels]
    return {label: weight / (1.1 * sum(weights)) for label, weight in zip(labels, weights, strict=True)}


def say_sometimes(prompt: Prompt) -> Any:
    return "I cannot say." if dice(prompt).random() < 0.15 else say_random(prompt)


JUDGES: Mapping[str, Callable[[Prompt], Any]] = {
    "always A": lambda prompt: words_for(prompt, "A"),
    "always tie": lambda prompt: words_for(prompt, "tie"),
    "always yes": lambda prompt: words_for(prompt, "yes" if set(prompt.words) == {"yes", "no"} else "A"),
    "random": say_random,
    "sometimes invalid": say_sometimes,
}


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One database with every judge under every protocol."""
    path = tmp_path_factory.mktemp("parity") / "evenhand.db"
    for protocol in PROTOCOLS:
        for name, say in JUDGES.items():
            with Judge(ScriptedEngine(say, name=name), protocol, db=path) as judge:
                list(judge.judge(make_pairs()))
    return path


Fields = dict[str, Any]
Who = tuple[str, str]


def by_judge(rows: Iterable[Fields]) -> dict[Who, Fields]:
    return {(row["judge"], row["protocol"]): row for row in rows}


@pytest.fixture(scope="module")
def results(db: Path) -> dict[Who, Fields]:
    """What `results --json` says of each judge."""
    found = by_judge(json.loads(evenhand("results", "--db", db, "--json").stdout)["judges"])
    assert len(found) == len(PROTOCOLS) * len(JUDGES)
    return found


@pytest.fixture(scope="module")
def exported(db: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Fields]]:
    folder = tmp_path_factory.mktemp("exports")
    found = {}
    for kind in ("judgments", "verdicts"):
        file = folder / f"{kind}.jsonl"
        evenhand("export", kind, "--db", db, "--out", file)
        found[kind] = [json.loads(line) for line in file.read_text().splitlines()]
    return found


# -- naive counting over what is exported --------------------------------------------------------------------------


def test_results_are_what_naive_counting_of_the_exports_finds(
    results: dict[Who, Fields], exported: dict[str, list[Fields]]
) -> None:
    judgments: dict[tuple[Who, str], list[Fields]] = {}
    verdicts: dict[tuple[Who, str], list[Fields]] = {}
    for kind, groups in (("judgments", judgments), ("verdicts", verdicts)):
        for row in exported[kind]:
            groups.setdefault(((row["judge"], row["protocol"]), row["dimension"]), []).append(row)
    for who, fields in results.items():
        for dimension, found in fields["dimensions"].items():
            own = judgments[who, dimension]
            sides = Counter(row["verdict"] for row in own)
            assert (found["wins_1"], found["ties"], found["wins_2"]) == (sides["1"], sides["tie"], sides["2"])
            assert found["invalid"] == sides[None]
            assert found["inconsistent"] == sum(row["inconsistent"] for row in own)
            shares: dict[int, list[float]] = {}  # by instruction, each of which weighs the same
            for row in own:
                if row["p_1"] is not None:
                    shares.setdefault(int(row["pair"][1:]) // 2, []).append(row["p_1"] + row["p_tie"] / 2)
            if shares:
                each = [sum(some) / len(some) for some in shares.values()]
                assert found["expected"]["win_rate_1"] == pytest.approx(sum(each) / len(each), abs=1e-9)
            if dimension == COMBINED:
                continue
            valid = {row["pair"] for row in own if row["verdict"] is not None}
            said = [row for row in verdicts[who, dimension] if row["pair"] in valid]
            if dimension in ("good_1", "good_2"):
                assert found["position_bias"] is None, "what is asked of one response at a time has no place"
                assert found["inconsistent"] == 0
            elif said:
                shown = Counter(row["shown"] for row in said)
                assert found["position_bias"] == pytest.approx((shown["A"] - shown["B"]) / len(said), abs=1e-12)
            masses = [row["mass"] for row in said if row["mass"] is not None]
            expected = sum(masses) / len(masses) if masses else None
            assert found["label_mass"] == (None if expected is None else pytest.approx(expected, abs=1e-9))


# -- the terminal --------------------------------------------------------------------------------------------------


def percent(share: float | None, digits: int) -> str:
    return "–" if share is None else f"{100 * share:.{digits}f}%"


def shown(found: Fields) -> list[str]:
    """The cells of a row of `results`, as they are printed."""
    ci = found["ci"]
    return [
        percent(found["win_rate_1"], 1),
        f"{100 * ci[0]:.0f}–{percent(ci[1], 0)}" if ci else "–",
        *(str(found[name]) for name in ("wins_1", "ties", "wins_2", "inconsistent", "invalid")),
        percent(found["label_mass"], 0),
        "–" if found["position_bias"] is None else f"{found['position_bias']:+z.2f}",
    ]


def test_the_table_shows_what_the_json_says(db: Path, results: dict[Who, Fields]) -> None:
    text = evenhand("results", "--db", db).stdout
    titles = {f"{judge} under {protocol}: {PAIRS} pairs": (judge, protocol) for judge, protocol in results}
    who: Who | None = None
    seen = set()
    for line in text.splitlines():
        who = titles.get(line.strip(), who)
        words = line.split()
        if who and words and words[0] in results[who]["dimensions"] and (who, words[0]) not in seen:
            assert words[1:] == shown(results[who]["dimensions"][words[0]])
            seen.add((who, words[0]))
    assert len(seen) == sum(len(fields["dimensions"]) for fields in results.values())


# -- the card ------------------------------------------------------------------------------------------------------


def test_the_card_has_the_same_biases(db: Path, results: dict[Who, Fields]) -> None:
    cards = by_judge(json.loads(evenhand("card", "--db", db, "--json").stdout)["judges"])
    for who, fields in results.items():
        for dimension, card in cards[who]["dimensions"].items():
            found, biases = fields["dimensions"][dimension], card["biases"]
            assert biases["position_bias"]["value"] == found["position_bias"]
            flips = biases["flips"]["value"]
            assert (flips or 0.0) == pytest.approx(found["inconsistent"] / max(1, biases["flips"]["n"]), abs=1e-12)
            assert biases["invalid"]["value"] == pytest.approx(found["invalid"] / PAIRS, abs=1e-12)
            assert card["pairs"] == PAIRS
            mass = found["label_mass"]
            assert biases["label_mass"]["value"] == (None if mass is None else pytest.approx(mass, abs=1e-9))
            if "agreement" in found and found["agreement"]["n"]:
                right = card["readings"]["pooled"]["decided"]["value"]
                assert right == (
                    None if found["agreement"]["decided"] is None else pytest.approx(found["agreement"]["decided"])
                )


# -- the web page --------------------------------------------------------------------------------------------------


class Tables(HTMLParser):
    """The text of every row of every table, under the last heading before it."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[str, list[str]]] = []
        self._heading = ""
        self._cells: list[str] = []
        self._in = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("h2", "td", "th"):
            self._in = tag
            if tag == "h2":
                self._heading = ""
            else:
                self._cells.append("")
        elif tag == "title":
            self._in = "title"  # the words of a picture
        elif tag == "tr":
            self._cells = []

    def handle_endtag(self, tag: str) -> None:
        if tag == "title" and self._cells:
            self._in = "td"
        elif tag == "tr":
            self.rows.append((" ".join(self._heading.split()), [" ".join(cell.split()) for cell in self._cells]))
        elif tag in ("h2", "td", "th"):
            self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in == "h2":
            self._heading += data
        elif self._in in ("td", "th"):
            self._cells[-1] += data


def rows_of(html: str) -> list[tuple[str, list[str]]]:
    tables = Tables()
    tables.feed(html)
    return tables.rows


@pytest.fixture(scope="module")
def owner(db: Path) -> Iterator[Client]:
    with WebServer(db) as server:
        yield server.owner()


def test_the_web_overview_shows_what_the_json_says(owner: Client, results: dict[Who, Fields]) -> None:
    titles = {f"{judge} under {protocol}": (judge, protocol) for judge, protocol in results}
    seen = 0
    for heading, cells in rows_of(owner.get("/").text):
        who = titles.get(heading)
        if who is None or cells[0] not in results[who]["dimensions"]:
            continue
        found, ci = results[who]["dimensions"][cells[0]], results[who]["dimensions"][cells[0]]["ci"]
        assert cells[1] == percent(found["win_rate_1"], 1)
        assert cells[2] == (f"{percent(ci[0], 0)} – {percent(ci[1], 0)}" if ci else "–")
        names = ("wins_1", "ties", "wins_2", "inconsistent", "invalid")
        assert cells[5:10] == [str(found[name]) for name in names]
        assert cells[10] == percent(found["label_mass"], 0)
        assert cells[11] == shown(found)[-1], (who, cells)
        agreed = found.get("agreement")
        assert cells[14] == (percent(agreed["three_way"], 0) if agreed else "–")
        seen += 1
    assert seen == sum(len(fields["dimensions"]) for fields in results.values())


def test_a_pairs_page_shows_the_outcomes_of_every_judge(owner: Client, exported: dict[str, list[Fields]]) -> None:
    wanted: dict[str, list[Fields]] = {}
    for row in exported["judgments"]:
        if row["pair"] == "p0":
            wanted.setdefault(f"{row['judge']} under {row['protocol']}", []).append(row)
    page = owner.get("/pair/1").text
    for row in [row for rows in wanted.values() for row in rows]:
        assert f"{row['judge']}" in page
    shares = Counter(
        " · ".join(percent(row[name], 0) for name in ("p_1", "p_tie", "p_2"))
        for rows in wanted.values()
        for row in rows
        if row["p_1"] is not None
    )
    on_page = Counter(
        match
        for _, cells in rows_of(page)
        if len(cells) == 6
        for match in re.findall(r"[\d.]+% · [\d.]+% · [\d.]+%", cells[2])
    )
    assert on_page == shares


# -- the report ----------------------------------------------------------------------------------------------------


def test_the_report_has_the_same_numbers(db: Path, results: dict[Who, Fields], tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    given = by_judge(json.loads(evenhand("report", "--db", db, "--out", file, "--json").stdout)["judges"])
    for who, fields in results.items():
        for dimension, found in fields["dimensions"].items():
            same = {name: value for name, value in found.items() if name != "agreement"}
            assert {name: given[who]["dimensions"][dimension][name] for name in same} == same
            effects = given[who]["effects"][dimension]
            assert effects["position_bias"]["value"] == found["position_bias"]
            assert (effects["flips"]["value"] is None) == (found["position_bias"] is None)


# -- shards --------------------------------------------------------------------------------------------------------


def test_a_folder_of_shards_shows_the_same_numbers(db: Path, results: dict[Who, Fields], tmp_path: Path) -> None:
    with Store(db) as store:
        for number, row in enumerate(store.judges()):
            folder = tmp_path / str(number)
            copy_store(store, row, folder, rows=7)
            given = json.loads(evenhand("results", "--db", folder, "--json").stdout)
            assert given["dimensions"] == results[row.model, row.protocol]["dimensions"]
