"""evenhand report: the facts, the HTML file and the Markdown, without a browser."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from command import evenhand
from evenhand import Judge, Pair, ScriptedEngine, __version__
from evenhand.core.protocol import ORDERS
from evenhand.core.verdict import found_on
from evenhand.results.bias import biases_of
from evenhand.results.card import card_of
from evenhand.results.evidence import gather
from evenhand.results.examples import LowestRanks
from evenhand.results.people import People
from evenhand.results.plain import plain
from evenhand.results.ranking import matches_of
from evenhand.results.summary import summarise
from evenhand.store import HumanLabel, Store
from evenhand.views.cli.report import write_report
from evenhand.views.report import ReportOptions, compile_report
from evenhand.views.report.page import TEXT_LIMIT, write_page
from evenhand.views.report.passages import LONGEST, code, fenced, table
from evenhand.views.report.summary import write_markdown
from evenhand.views.web.text import cut, visible
from web_server import CANARY, HOSTILE, asks_yes_or_no, fill, hostile_pairs, plain_pairs

CALLS = "@everyone #1 GH-2 owner/repo#3 https://evil.test/x"


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "evenhand.db"
    odd = Pair("Say something unreadable.", "x", "y", id="odd", model_1="alpha", model_2="beta")
    fill(path, [*plain_pairs(36), odd], ("chained", "overall"))
    with Store(path) as store:
        keys = [pair.key for pair in plain_pairs(36)]
        for who, side in (("ann", "1"), ("ben", "2"), ("cat", "2")):
            store.labels.add([HumanLabel(key, "overall", who, side, note=f"a note by {who}") for key in keys[:20]])  # type: ignore[arg-type]
    return path


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "hostile.db"
    calls = Pair(CALLS, CALLS, f"{CALLS} again", id=CALLS, model_1=CALLS, model_2="m2")
    fill(path, [*hostile_pairs(), calls])
    return path


def written(path: Path, **options: Any) -> str:
    with Store(path) as store:
        to = io.StringIO()
        write_page(compile_report(store, store.judges(), ReportOptions(**options)), store, to)
    return to.getvalue()


# -- facts -----------------------------------------------------------------------------------------------------


def test_the_numbers_are_those_of_the_results(db: Path) -> None:
    found = json.loads(evenhand("report", "--db", db, "--json").stdout)
    with Store(db) as store:
        for mine, row in zip(reversed(found["judges"]), store.judges(), strict=True):
            assert mine["fingerprint"] == row.fingerprint
            summary = summarise(store.blocks(row), found_on(row.dimensions))
            assert mine["sides"] == {"1": "1", "2": "2"}, "three models, so the sides have no names"
            assert mine["dimensions"] == as_json(summary.dimensions)
            assert mine["effects"] == as_json({n: biases_of(d) for n, d in summary.dimensions.items()})
            cards = {name: card_of(e) for name, e in gather(store, row, People(store)).items() if len(e.labelled)}
            assert mine["people"].keys() == cards.keys()
            for name, card in mine["people"].items():
                theirs = as_json(cards[name])
                assert theirs["people"].pop("kappas")
                assert card["people"].pop("kappas") == []
                assert card == theirs
            assert mine["ranking"] == as_json(matches_of(store.blocks(row), mine["decides"]).ranking())


def as_json(results: Any) -> Any:
    return json.loads(json.dumps(plain(results)))


def test_a_judge_that_always_says_yes_has_no_position_bias(tmp_path: Path) -> None:
    """Yes/no questions are about one response: there is no place to favour, and nothing that can flip."""
    path = tmp_path / "yes.db"
    engine = ScriptedEngine(lambda prompt: "yes" if asks_yes_or_no(prompt) else "tie", name="yes")
    labelled = [replace(pair, labels={"good_1": "1", "overall": "2"}) for pair in plain_pairs(12)]
    with Judge(engine, "weighed", db=path) as judge:
        assert {judgment["good_1"].side for judgment in judge.judge(labelled)} == {"tie"}
    [given] = json.loads(evenhand("report", "--db", path, "--json", "-o", tmp_path / "r.html").stdout)["judges"]
    found, effects, card = (given[part]["good_1"] for part in ("dimensions", "effects", "people"))
    assert (found["n"], found["ties"], found["position_bias"], found["inconsistent"]) == (12, 12, None, 0)
    for part, name in ((effects, "position_bias"), (card["biases"], "position_bias")):
        assert (part[name]["value"], part["flips"]["value"]) == (None, None)
    assert given["effects"]["overall"]["position_bias"]["value"] == 0, "a judge that always says tie"
    assert "orders differ" not in (tmp_path / "r.html").read_text("utf-8")


def test_one_judge_is_called_by_its_model(tmp_path: Path) -> None:
    path = tmp_path / "one.db"
    with Judge(ScriptedEngine(lambda _: "A", name="umpire"), "overall", db=path) as judge:
        list(judge.judge(plain_pairs(4)))
    assert '<td class="who">umpire</td>' in written(path)


def test_provenance_is_whole(db: Path) -> None:
    with Store(db) as store:
        row = store.judges()[-1]
    [part] = json.loads(evenhand("report", "--db", db, "--json", "--protocol", "overall").stdout)["judges"]
    assert part["template"] == row.template
    assert part["template_sha256"] == hashlib.sha256(row.template.encode()).hexdigest()
    assert part["identity"] == dict(row.identity)
    assert part["runs"][0]["settings"] == {"orders": "both", "seed": 0, "evenhand": __version__}
    assert part["runs"][0]["ended"] >= part["runs"][0]["started"] > 1e9
    assert part["effects"]["overall"]["position_bias"]["n"] == 36


def test_what_each_order_said_is_told_word_for_word(db: Path, tmp_path: Path) -> None:
    """In both forms: the raw answers of both orders, with the label mass of each."""
    page, lines = tmp_path / "r.html", tmp_path / "r.md"
    evenhand("report", "--db", db, "-o", page, "--protocol", "chained")
    evenhand("report", "--db", db, "-o", lines, "--protocol", "chained", "--pairs", "100")
    html, text = page.read_text("utf-8"), lines.read_text("utf-8")
    with Store(db) as store:
        [judge] = [row for row in store.judges() if row.protocol == "chained"]
        for number in (1, 2):
            said = store.archive.said(judge.id, number)
            assert {order: len(answers) for order, answers in said.items()} == {"forward": 4, "swapped": 4}
            part = html[html.index(f'id="p{number}"') :].partition("</details>")[0]
            found = re.findall(r"<td><code>(.*?)</code></td>", part)
            assert found == [said[order][question] for question in range(4) for order in ORDERS]
            assert "; mass 100%" in part
            for first, order in zip("12", ORDERS, strict=True):
                words = ", ".join(f"`{answer}`" for answer in said[order])
                assert f"answered, {first} shown first: {words}" in text
        for row in store.judges():
            assert (row.template.strip() in text) == (row.protocol == "chained")
    assert "mass 100%" in text


def test_no_person_is_named(db: Path, tmp_path: Path) -> None:
    everything = evenhand("report", "--db", db, "--json", "-o", tmp_path / "r.html").stdout
    everything += (tmp_path / "r.html").read_text("utf-8")
    assert "a note by ann" in everything  # a note is shown as it is
    assert not re.search(r"(?<!note by )\b(ann|ben|cat)\b", everything)


def test_an_exact_repeat_is_no_example(tmp_path: Path) -> None:
    pairs = plain_pairs(12)
    fill(tmp_path / "e.db", [*pairs, *(replace(pair, id=f"again {pair.id}") for pair in pairs)])
    with Store(tmp_path / "e.db") as store:
        [part] = compile_report(store, store.judges(), ReportOptions(examples=20)).judges
    found = part.dimensions["overall"]
    assert part.repeats == 12
    assert part.counts["inconsistent"] == found.inconsistent == len(part.examples["inconsistent"]) > 0
    assert part.counts["near_tie"] == found.n == 12
    assert not [line.id for few in part.examples.values() for line in few if line.id.startswith("again")]


def test_examples_are_of_their_kind(db: Path) -> None:
    with Store(db) as store:
        [part] = [p for p in compile_report(store, store.judges()).judges if p.protocol == "overall"]
    few = part.examples
    assert [(e.id, e.verdict) for e in few["invalid"]] == [("odd", "invalid")]
    assert few["against_people"]
    assert all(e.people not in (None, e.verdict) for e in few["against_people"])
    gaps = [abs(e.p["1"] - e.p["2"]) for e in few["near_tie"] if e.p]
    assert len(gaps) == 5
    assert gaps == sorted(gaps)
    sure = [max(e.p.values()) for e in few["clear"] if e.p]
    assert len(sure) == 5
    assert sure == sorted(sure, reverse=True)
    found = part.dimensions["overall"]
    assert part.counts["inconsistent"] == found.inconsistent
    assert part.counts["invalid"] == found.invalid == 1
    assert found.agreement is not None
    assert part.counts["against_people"] == round(found.agreement.n * (1 - found.agreement.three_way))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9))), st.integers(0, 6), st.integers(1, 4))
def test_the_lowest_are_those_of_a_sorted_list(entries: list[tuple[int, int]], size: int, at_once: int) -> None:
    first: dict[int, int] = {}
    for rank, number in entries:
        first.setdefault(number, rank)
    few, given = LowestRanks(size), list(first.items())
    for _ in range(2):  # a second judge has judged the same pairs
        for begin in range(0, len(given), at_once):
            some = given[begin : begin + at_once]
            few.add(np.array([float(rank) for _, rank in some]), np.array([number for number, _ in some]))
    expected = sorted((rank, number) for number, rank in first.items())[:size]
    assert few.numbers == [number for _, number in expected]


# -- the HTML file -------------------------------------------------------------------------------------------


def test_same_database_and_seed_same_bytes(db: Path, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        evenhand("report", "--db", db, "-o", tmp_path / f"{name}.html", "--pairs", "3", "--seed", str(seed))
    a, b, c = ((tmp_path / f"{name}.html").read_bytes() for name in "abc")
    assert a == b != c
    assert [file.name for file in tmp_path.iterdir() if file.suffix != ".html"] == []


def test_a_limit_of_pairs_holds(db: Path) -> None:
    pairs = re.compile('<details class="pair"')
    assert len(pairs.findall(written(db, pairs=0, examples=0))) == 0
    assert len(pairs.findall(written(db, pairs=7, examples=0))) == 7
    whole = written(db, pairs=500)
    assert len(pairs.findall(whole)) == 37
    assert "All 37 pairs." in whole


class Seen(HTMLParser):
    """Tags and attributes of a file, as a browser would take them."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_hostile_text_makes_no_tag_and_no_reference(bad: Path) -> None:
    html = written(bad, title=HOSTILE["breakout"], date=HOSTILE["script"])
    seen = Seen()
    seen.feed(html)
    names = [tag for tag, _ in seen.tags]
    assert names.count("script") == names.count("style") == 1
    assert not {"img", "iframe", "object", "link", "base", "use", "embed", "math", "audio", "video"} & {*names}
    for tag, attributes in seen.tags:
        assert not [name for name in attributes if name.startswith("on") or name in ("style", "src", "srcdoc")]
        href = attributes.get("href") or "#"
        assert re.match(r"#|https?://|mailto:", href), (tag, href)
    assert "\x00" not in html
    assert "\u202e" not in html


def test_the_policy_names_what_is_there(db: Path) -> None:
    html = written(db, pairs=1)
    [policy] = re.findall(r'Content-Security-Policy" content="([^"]+)"', html)
    for tag in ("style", "script"):
        [body] = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{tag}-src &#39;sha256-{digest}&#39;" in policy
    assert policy.startswith("default-src &#39;none&#39;;")


def test_pictures_need_no_extra(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    html = written(db, pairs=0)
    for kind in ("interval", "bar", "reliability"):
        assert f'<svg class="{kind}"' in html


def test_without_the_extra_for_pages_the_pip_command_is_told(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("evenhand.views.report.page", "evenhand.views.web.markdown"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "nh3", None)
    monkeypatch.chdir(db.parent)
    assert "pip install 'evenhand[web]'" in evenhand("report", "--db", db, code=2).stderr
    assert not (db.parent / "report.html").exists()
    assert "# evenhand report" in evenhand("report", "--db", db, "--format", "md", "-o", "-").stdout


def test_memory_does_not_grow_with_the_texts(tmp_path: Path) -> None:
    size = 150_000
    pairs = [Pair(f"{i} {'q' * size}", f"{i}" * (size // 2), "y" * size, id=str(i)) for i in range(60)]
    fill(tmp_path / "big.db", pairs)
    text = sum(len(p.instruction) + len(p.output_1) + len(p.output_2) for p in pairs)
    del pairs
    with Store(tmp_path / "big.db") as store, (tmp_path / "r.html").open("w", encoding="utf-8") as to:
        written(tmp_path / "big.db", pairs=1)  # what is loaded once is not counted
        tracemalloc.start()
        write_page(compile_report(store, store.judges()), store, to)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert text > 20_000_000
    assert peak < 6_000_000


def test_ten_megabytes_of_text_are_cut(tmp_path: Path) -> None:
    fill(tmp_path / "big.db", [Pair("Write much.", "<b>x\n" * 2_000_000, "y")])
    html = written(tmp_path / "big.db")
    assert len(html) < 500_000
    assert f"{10_000_000 - TEXT_LIMIT:,} more characters are not in this file" in html


# -- Markdown ------------------------------------------------------------------------------------------------


def tokens(markdown: str) -> Iterator[Token]:
    parser = MarkdownIt("commonmark", {"html": True, "linkify": False}).enable(["table", "strikethrough"])
    for token in parser.parse(markdown):
        yield token
        yield from token.children or ()


OUR_HTML = ["<details><summary>The templates, word for word</summary>\n", "</details>\n"]


def test_markdown_for_a_pull_request(db: Path, tmp_path: Path) -> None:
    evenhand(
        "report", "--db", db, "-o", tmp_path / "r.md", "--pairs", "2", "--title", "Nightly", "--date", "2026-11-15"
    )
    text = (tmp_path / "r.md").read_text("utf-8")
    assert text.startswith("# `Nightly`\n")
    assert text.count("\n### ") == 2
    kinds = [token.type for token in tokens(text)]
    assert kinds.count("table_open") == 2 * 4  # rates, people, ranking, examples of two judges
    assert [token.content for token in tokens(text) if token.type == "html_block"] == OUR_HTML


def test_hostile_text_stays_in_code(bad: Path, tmp_path: Path) -> None:
    evenhand("report", "--db", bad, "-o", tmp_path / "r.md", "--pairs", "50", "--title", HOSTILE["breakout"])
    text = (tmp_path / "r.md").read_text("utf-8")
    found = list(tokens(text))
    assert not {t.type for t in found} & {"html_inline", "link_open", "image", "code_block"}
    assert [t.content for t in found if t.type == "html_block"] == OUR_HTML
    plain = "\n".join(t.content for t in found if t.type == "text")
    for sign in (CANARY, "evil.test", "@", "#1", "GH-2", "<", "javascript", "im_end"):
        assert sign not in plain
    assert CANARY in "".join(t.content for t in found if t.type in ("code_inline", "fence"))
    assert "\x00" not in text
    assert "\u202e" not in text
    outside = re.sub(r"^(`{3,})text\n.*?\n\1$", "", text, flags=re.MULTILINE | re.DOTALL)
    for block in re.findall(r"(?:^\|.*\|$\n?)+", outside, re.MULTILINE):
        assert len({line.count("|") for line in block.splitlines()}) == 1


def test_notes_that_name_a_judge_stay_in_code(db: Path) -> None:
    evil = f"Level 1, [x](https://evil.test) {CALLS} <img src=x>: decided 1 of 2 pairs."
    with Store(db) as store:
        made = compile_report(store, store.judges(), ReportOptions(pairs=0))
        to = io.StringIO()
        write_markdown(replace(made, judges=(replace(made.judges[0], notes=(evil,)),)), store, to)
    found = list(tokens(to.getvalue()))
    assert evil in [t.content for t in found if t.type == "code_inline"]
    assert not {t.type for t in found} & {"html_inline", "link_open", "image"}
    assert "evil.test" not in "".join(t.content for t in found if t.type == "text")


@pytest.mark.parametrize("name", ["r.md", "r.html"])
def test_json_says_how_many_pairs_the_file_shows(db: Path, tmp_path: Path, name: str) -> None:
    told = json.loads(evenhand("report", "--db", db, "-o", tmp_path / name, "--pairs", "2", "--json").stdout)
    text = (tmp_path / name).read_text("utf-8")
    assert told["pairs_shown"] == (text.count("\n### ") if name == "r.md" else text.count('<details class="pair"'))


@given(st.text())
def test_any_text_stays_in_its_cell(text: str) -> None:
    found = list(tokens(table(["a", "b"], [[code(text), "end"]])))
    cells = [t for t in found if t.type == "inline"]
    assert len(cells) == 4
    assert cells[3].content == "end"
    children = cells[2].children or []
    assert [t.type for t in children] in (["code_inline"], ["text"])
    shown = " ".join(visible(cut(text, LONGEST)[0]).split()).replace("|", "│")
    assert children[0].content.rstrip("…") == (shown.rstrip("…") or "–")


@given(st.text(alphabet=st.sampled_from("`~ \n\tx>-#|<"), max_size=60) | st.text())
def test_any_text_stays_in_its_block(text: str) -> None:
    found = list(tokens(f"{fenced(text, 1000)}\n\nafter"))
    assert [t.type for t in found] == ["fence", "paragraph_open", "inline", "text", "paragraph_close"]
    assert found[3].content == "after"


# -- the command ---------------------------------------------------------------------------------------------


def test_the_name_of_the_file_decides_its_form(db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    evenhand("report", "--db", db, "--pairs", "0")
    evenhand("report", "--db", db, "--format", "md")
    assert (tmp_path / "report.html").read_text("utf-8").lstrip().startswith("<!doctype html>")
    assert (tmp_path / "report.md").read_text("utf-8").startswith("# ")


def test_nothing_lies_in_wait_beside_a_report_and_a_link_stays(db: Path, tmp_path: Path) -> None:
    """In a folder that others write to, a link of the name of the unfinished file led to any file of the user's."""
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    for name in (".r.html.part", ".link.html.part"):
        (tmp_path / name).symlink_to(mine)
    (tmp_path / "link.html").symlink_to("r.html")
    evenhand("report", "--db", db, "--pairs", "0", "--out", tmp_path / "link.html")
    assert mine.read_text() == "mine"
    assert (tmp_path / "link.html").is_symlink()
    assert (tmp_path / "r.html").read_text("utf-8").lstrip().startswith("<!doctype html>")


def test_two_at_once_write_one_report_whole(db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, wait = tmp_path / "r.md", threading.Barrier(2)
    done: list[int] = []

    def write(_: object, __: object, to: IO[str]) -> None:
        for part in "ab":
            wait.wait(60)
            to.write(part * 100_000)
            to.flush()

    def command(number: int) -> None:
        with Store(db) as store:
            write_report(compile_report(store, store.judges()), store, "md", out)
        done.append(number)

    monkeypatch.setattr("evenhand.views.cli.report._writer", lambda _: write)
    both = [threading.Thread(target=command, args=[number]) for number in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join(60)
    assert sorted(done) == [0, 1]
    assert out.read_text() == "a" * 100_000 + "b" * 100_000


def test_json_alone_writes_no_file(db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert json.loads(evenhand("report", "--db", db, "--json").stdout)["pairs"] == 37
    assert not list(tmp_path.iterdir())


def test_what_is_wrong_is_said(db: Path, tmp_path: Path) -> None:
    assert "no database" in evenhand("report", "--db", tmp_path / "no.db", code=2).stderr
    assert "dimensions here" in evenhand("report", "--db", db, "-d", "taste", "-o", tmp_path / "x", code=2).stderr
    assert "holds no verdicts" in evenhand("report", "--db", db, "-j", "nobody", code=2).stderr
    assert "one of html, md" in evenhand("report", "--db", db, "--format", "pdf", code=2).stderr
    assert "or --json" in evenhand("report", "--db", db, "-o", tmp_path / "x.JSON", code=2).stderr
    lost = tmp_path / "none" / "r.html"
    assert "cannot be written" in evenhand("report", "--db", db, "-o", lost, code=2).stderr
