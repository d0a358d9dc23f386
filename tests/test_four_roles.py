"""Four people who know nothing of evenhand, from the first command to the answer.

An engineer with two files of outputs, a researcher with five models, a CI gate, blind labelling: each in a real
terminal of 80 columns with a judge behind HTTP, and in a real browser, on a phone and on a desk, in light and dark.
"""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import web
from playwright.sync_api import Browser, Page, expect

from browsing import PATIENCE, chromium, ready
from misbehaving_server import Body, Server, says
from terminal import Terminal, run
from web_server import WebServer

QUESTIONS = 40
WINDOWS = [(390, "light"), (1400, "dark"), (390, "dark"), (1400, "light")]
MODELS = {"ant": (5, 5, 3, 5), "bee": (4, 6, 4, 4), "cat": (1, 1, 7, 1), "dog": (2, 3, 2, 2), "eel": (0,)}
SIDES = {"new": (5, 5, 5, 5, 2), "old": (3,), "bad": (1,)}


async def larger_level(request: web.Request, body: Body) -> web.StreamResponse:
    """A judge that prefers the response with the larger level, wherever it stands."""
    text = "\n".join(message["content"] for message in body["messages"])
    one, two = (int(level) for level in re.findall(r"level (\d)", text)[-2:])
    return await says("tie" if one == two else "A" if one > two else "B")(request, body)


@pytest.fixture(scope="module")
def judge(loop: Any) -> Iterator[str]:
    server = Server(larger_level)
    loop.run(server.__aenter__())
    yield f"{server.url}#judge"
    loop.run(server.__aexit__())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of outputs for each model."""
    path = tmp_path_factory.mktemp("roles")
    for name, levels in (MODELS | SIDES).items():
        rows = [
            {"instruction": f"Question {n}: name a level.", "output": f"level {levels[n % len(levels)]}"}
            for n in range(QUESTIONS)
        ]
        (path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


# -- terminals: each role's commands once, before the browser is started ----------------------------------------


@pytest.fixture(scope="module")
def engineer(folder: Path, judge: str) -> str:
    return run("old.jsonl", "new.jsonl", "--judge", judge, "--protocol", "overall", "--db", "two.db", cwd=folder)


@pytest.fixture(scope="module")
def researcher(folder: Path, judge: str) -> str:
    files = [f"{name}.jsonl" for name in MODELS]
    return run("arena", *files, "--judge", judge, "--protocol", "overall", "--db", "arena.db", cwd=folder)


def gate(folder: Path, judge: str, candidate: str, code: int) -> str:
    sides = ("--candidate", f"{candidate}.jsonl", "--baseline", "old.jsonl", "--margin", "0.2")
    where = ("--db", f"gate-{candidate}.db", "--junit", f"{candidate}.xml")
    return run("gate", *sides, "--judge", judge, "--protocol", "overall", *where, cwd=folder, code=code)


@pytest.fixture(scope="module")
def passed(folder: Path, judge: str) -> str:
    return gate(folder, judge, "new", 0)


def answer_of(text: str, begins: str) -> str:
    """The sentence that begins so, which may go over two lines."""
    assert begins in text, text
    found = re.search(rf"^{re.escape(begins)}.*?n = \d+", text, re.MULTILINE | re.DOTALL)
    assert found, text
    return " ".join(found[0].split())


SOURCES = (Path(__file__).resolve().parents[1] / "src").rglob("*.py")
WORDS = {word for file in SOURCES for word in re.findall(r"[a-z]+", file.read_text("utf-8").lower())}


def no_word_is_broken(text: str) -> bool:
    """A line that is full ends with a whole word: one that stands in the program's own texts."""
    full = [line for line in text.splitlines() if len(line) == 80 and not re.search(r"evenhand|://|━", line)]
    return all(word[0] in WORDS for line in full if (word := re.findall(r"[a-z]+$", line.lower())))


def test_a_broken_word_is_seen() -> None:
    line = "note: the server gives no log-probabilities: verdicts are hard, without probabil"
    assert not no_word_is_broken(f"{line}\nities")
    assert no_word_is_broken("x" * 81)


def test_an_engineer_is_told_which_of_two_files_is_better(engineer: str) -> None:
    answer = answer_of(engineer, "new (candidate) is better: it wins 80% of pairs")
    assert engineer.index("is better") < engineer.index("dimension"), "the answer stands before any table"
    assert re.search(r"\(\d+ to \d+%\), n = 40", answer)
    assert "evenhand judge --baseline old.jsonl --candidate new.jsonl" in engineer
    assert "kept in two.db; see it again: evenhand results --db two.db" in engineer
    assert no_word_is_broken(engineer)


def test_a_researcher_is_told_who_leads(researcher: str) -> None:
    answer_of(researcher, "ant leads, and cannot be told apart yet from bee")
    rows = re.findall(r"^ +[\d–]+  (\w+) +\S+ .*?(\d+) +\d+ +\d+ +\d+", researcher, re.MULTILINE)
    assert {name for name, _ in rows} == set(MODELS)
    assert {games for _, games in rows} == {str(QUESTIONS * 4)}, "each has met the four others"
    assert "cannot be told apart" in researcher
    assert "evenhand rank --db arena.db" in researcher
    assert no_word_is_broken(researcher)


def test_a_gate_says_pass_or_fail_first(folder: Path, judge: str, passed: str) -> None:
    failed = gate(folder, judge, "bad", 1)
    for text, word in ((passed, "PASS"), (failed, "FAIL")):
        before = r"note:|prob|━|╸|  |\d+ answers?, "
        said = [line for line in text.splitlines() if not re.match(before, line)]
        assert said[0].startswith(f"{word}: "), text
        assert no_word_is_broken(text)
    assert "pairs got worse" in failed
    for name, failures in (("new", "0"), ("bad", "1")):
        suite = ElementTree.parse(folder / f"{name}.xml").getroot()
        assert next(suite.iter("testsuite")).get("failures") == failures


# -- browsers ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser(engineer: str, researcher: str, passed: str) -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


Look = Callable[[Page], None]


def in_every_window(browser: Browser, base: str, link: str, look: Look) -> None:
    """The same look by phone and desk, in light and dark; no page is wider than its window, and no script fails."""
    faults: list[str] = []
    context = browser.new_context(viewport={"width": 390, "height": 844})
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(base + link)
    papers = set()
    for width, scheme in WINDOWS:
        page.set_viewport_size({"width": width, "height": 844})
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        look(page)
        papers.add((scheme, page.evaluate("getComputedStyle(document.body).backgroundColor")))
    assert len(papers) == 2, "light is light and dark is dark, at any width"
    assert not faults
    context.close()


def fits(page: Page) -> None:
    ready(page)
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    cut = page.evaluate(
        "[...document.querySelectorAll('table')].filter(t => t.getBoundingClientRect().right > innerWidth + 1"
        " && !t.closest('.scroll')).length"
    )
    assert cut == 0, "a table that is too wide scrolls by itself"


def test_the_engineers_page(folder: Path, engineer: str, browser: Browser) -> None:
    answer = answer_of(engineer, "new (candidate) is better")

    with WebServer(folder / "two.db") as server:

        def look(page: Page) -> None:
            page.goto(server.base)
            fits(page)
            expect(page.locator("p.answer")).to_have_text(answer)
            page.goto(server.base + "/pairs")
            fits(page)
            with page.expect_navigation():
                page.locator("a[data-row]").first.click()
            fits(page)
            expect(page.get_by_role("heading", level=1)).to_contain_text("name a level.")

        in_every_window(browser, server.base, server.link, look)


def test_the_researchers_page(folder: Path, researcher: str, browser: Browser) -> None:
    answer = answer_of(researcher, "ant leads")

    with WebServer(folder / "arena.db") as server:

        def look(page: Page) -> None:
            page.goto(server.base)
            fits(page)
            expect(page.locator("section.card").first).to_have_id("models")
            expect(page.locator("#models p.answer")).to_have_text(answer)
            expect(page.locator("table.ranking tbody tr")).to_have_count(len(MODELS))
            heads = page.locator("table.matrix tbody th").all()
            assert all((box := head.bounding_box()) and box["width"] > 2 * 16 for head in heads), (
                "no letter by letter"
            )

        in_every_window(browser, server.base, server.link, look)


def test_the_page_of_a_gate(folder: Path, browser: Browser) -> None:
    with WebServer(folder / "gate-new.db") as server:

        def look(page: Page) -> None:
            page.goto(server.base)
            fits(page)
            expect(page.locator("p.answer")).to_contain_text("old (baseline)")  # the roles of the command
            expect(page.locator(".legend")).to_contain_text("new")

        in_every_window(browser, server.base, server.link, look)


# -- blind labelling: the program itself serves ------------------------------------------------------------------


@pytest.fixture
def served(folder: Path, tmp_path: Path) -> Iterator[tuple[str, str, Path]]:
    """`evenhand serve --pairs` in a terminal: where it listens, the owner's link, the database."""
    pairs = tmp_path / "pairs.jsonl"
    rows = [{"instruction": f"Task {n}", "output_1": f"one {n}", "output_2": f"two {n}"} for n in range(4)]
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    terminal = Terminal("serve", "--pairs", pairs, "--db", tmp_path / "people.db", "--port", "0", cwd=tmp_path)
    shown = terminal.read(lambda text: bool(re.search(r"/enter/\S{32}", text.replace("\n", ""))))
    assert "4 pairs, 4 new" in shown
    link = re.search(r"http://\S+/enter/\S+", shown.replace("\n", ""))
    assert link, shown
    where = urlsplit(link[0])
    yield f"http://{where.netloc}", where.path, tmp_path / "people.db"
    terminal.close()


def invite(page: Page, base: str, name: str) -> str:
    page.goto(f"{base}/people")
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_role("button", name="Invite", exact=True).click()
    expect(page.get_by_text("This link works on this machine only")).to_be_visible()
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    return page.locator("#link").input_value()


def label(browser: Browser, link: str, keys: str, **window: Any) -> None:
    """Whoever was invited labels what is on their list, by key on a desk and by touch on a phone."""
    context = browser.new_context(**window)
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(link)
    for done, key in enumerate(keys):
        expect(page.locator("#count")).to_have_text(f"{done} of {len(keys)}")
        fits(page)
        if window["viewport"]["width"] > 900:
            page.keyboard.press(key)
        else:
            page.locator(f"button.choice[value={ {'a': 'A', 'b': 'B', 't': 'tie'}[key] }]").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("All done, thank you")
    context.close()


def test_two_people_label_blind_and_a_third_decides(
    served: tuple[str, str, Path], browser: Browser, tmp_path: Path
) -> None:
    base, link, db = served
    context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme="dark")
    owner = context.new_page()
    owner.set_default_timeout(PATIENCE)
    owner.goto(base + link)
    phone = {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"}
    desk = {"viewport": {"width": 1400, "height": 900}, "color_scheme": "dark"}
    label(browser, invite(owner, base, "ann"), "tttt", **phone)
    label(browser, invite(owner, base, "ben"), "atta", **desk)
    for width in (390, 1400):
        owner.set_viewport_size({"width": width, "height": 844})
        owner.goto(f"{base}/people")
        fits(owner)
    expect(owner.get_by_text("People differ on 2 pairs that nobody has decided")).to_be_visible()
    owner.get_by_label("Name of the adjudicator").fill("cleo")
    owner.get_by_role("button", name="Invite an adjudicator").click()
    label(browser, owner.locator("#link").input_value(), "bb", **desk)
    owner.goto(f"{base}/people")
    expect(owner.get_by_text("All 2 pairs on which people differ are decided.")).to_be_visible()
    owner.goto(f"{base}/card")
    fits(owner)
    context.close()
    shown = run("labels", "export", "labels.csv", "--db", db, cwd=tmp_path)
    assert shown == "10 labels: labels.csv"
    roles = [line.split(",")[5] for line in (tmp_path / "labels.csv").read_text().splitlines()[1:]]
    assert sorted(roles) == ["adjudicator"] * 2 + ["annotator"] * 8
    table = run("labels", "--db", db, cwd=tmp_path)
    assert re.search(r"cleo +overall +labels, adjudicator", table)
