"""The report opened from disk in a real browser, with the network off: Debian's Chromium, driven by Playwright.

Without a Chromium these tests are skipped, except where CI runs them: there that is a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, expect

from browsing import PATIENCE, chromium, ready
from evenhand import Pair
from evenhand.core.attacks import attack_all
from evenhand.io.attacks import built_in_attacks
from evenhand.io.pairs import sample_pairs
from evenhand.store import Store
from evenhand.views.report import ReportOptions, compile_report
from evenhand.views.report.page import write_page
from web_server import CANARY, HOSTILE, fill, fill_names, hostile_pairs, plain_pairs

ODD = Pair("Say something unreadable.", "x", "y", id="odd", model_1="alpha", model_2="beta")


def write(folder: Path, pairs: list[Pair], protocols: tuple[str, ...]) -> Path:
    fill(folder / "evenhand.db", pairs, protocols)
    with Store(folder / "evenhand.db") as store, (folder / "report.html").open("w", encoding="utf-8") as to:
        write_page(compile_report(store, store.judges()), store, to)
    return folder / "report.html"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("plain"), [*plain_pairs(40), ODD], ("chained", "overall"))


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same kinds of things, fewer of each: axe looks at all of them, one by one."""
    return write(tmp_path_factory.mktemp("short"), [*plain_pairs(8), ODD], ("chained", "overall"))


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With attacks of every name, on one pair."""
    cases = attack_all(islice(sample_pairs(), 1), built_in_attacks())
    return write(tmp_path_factory.mktemp("attacked"), [case.pair for case in cases], ("overall",))


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    long = Pair("Write much.", "word " * 2_000_000, "y" * 1_000_000, id="ten megabytes")
    return write(tmp_path_factory.mktemp("bad"), [*hostile_pairs(), long], ("overall",))


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Hostile in all that is not of a pair: judges, protocols, reasons, attacks, people, notes, the title."""
    folder = tmp_path_factory.mktemp("named")
    fill_names(folder / "evenhand.db")
    title = HOSTILE["breakout"]
    with Store(folder / "evenhand.db") as store, (folder / "report.html").open("w", encoding="utf-8") as to:
        write_page(compile_report(store, store.judges(), ReportOptions(title=title)), store, to)
    return folder / "report.html"


@pytest.fixture(scope="module")
def browser(plain: Path, bad: Path, short: Path, attacked: Path, named: Path) -> Iterator[Browser]:
    """Started after the reports are written: while it runs, this thread has a loop of its own."""
    with chromium() as browser:
        yield browser


Opener = Callable[..., Page]


@pytest.fixture
def opened(browser: Browser) -> Iterator[Opener]:
    """Opens a file without a network; whatever it asked for or ran besides fails the test at its end."""
    contexts: list[BrowserContext] = []
    faults: list[str] = []

    def new(file: Path, *, width: int = 1280, **options: Any) -> Page:
        context = browser.new_context(viewport={"width": width, "height": 900}, offline=True, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        watch(page, file, faults)
        page.goto(file.as_uri())
        return page

    yield new
    for context in contexts:
        context.close()
    assert not faults


def test_all_that_attacks_did_is_seen_without_scrolling(attacked: Path, opened: Opener) -> None:
    table = opened(attacked, width=1280).get_by_role("region", name="Attacks on")
    assert table.evaluate("e => e.scrollWidth <= e.clientWidth")


def watch(page: Page, file: Path, faults: list[str]) -> None:
    page.add_init_script("window.canary = 0; window.fired = () => { window.canary += 1; };")
    page.on("request", lambda r: None if r.url.startswith(file.as_uri()) else faults.append(f"asked for {r.url}"))
    page.on("dialog", lambda d: faults.append(f"dialog {d.message}"))
    page.on("pageerror", lambda e: faults.append(f"script error {e}"))
    page.on("console", lambda m: faults.append(m.text) if "Content Security" in m.text else None)


def open_all(page: Page) -> None:
    page.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")


def test_no_table_that_fits_has_a_shade(plain: Path, opened: Opener) -> None:
    """What hides the shade has the colour of what the table lies on."""
    page = opened(plain, width=1400)
    open_all(page)
    apart = """[...document.querySelectorAll('.scroll')].filter(table => {
        let under = table.parentElement
        while (getComputedStyle(under).backgroundColor === 'rgba(0, 0, 0, 0)') under = under.parentElement
        const probe = document.createElement('i')
        probe.style.backgroundColor = 'var(--under)'
        table.append(probe)
        return getComputedStyle(probe).backgroundColor !== getComputedStyle(under).backgroundColor
    }).map(table => table.ariaLabel)"""
    assert page.evaluate(apart) == []


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_hostile_runs_or_is_fetched(bad: Path, opened: Opener, width: int) -> None:
    page = opened(bad, width=width)
    expect(page.locator("details.pair")).to_have_count(len(HOSTILE) + 1)
    open_all(page)
    page.mouse.move(200, 400)
    for summary in page.locator("details.pair > summary").all()[:3]:
        summary.click()
    assert page.evaluate("window.canary") == 0
    assert page.locator("main").get_by_text("<script>").count() > 0  # it is there, as text
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    expect(page.get_by_role("heading", name="Provenance")).to_be_visible()


@pytest.mark.parametrize("width", [360, 1280])
def test_no_name_runs_or_fetches_anything(named: Path, opened: Opener, width: int) -> None:
    page = opened(named, width=width)
    open_all(page)
    page.mouse.move(200, 400)
    assert page.evaluate("window.canary") == 0
    assert CANARY in page.title()  # it is there, as text
    assert page.locator("main").get_by_text("is poor: ").count() > 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_policy_holds_even_if_text_were_markup(bad: Path, tmp_path: Path, browser: Browser) -> None:
    """What would happen if all our escaping failed: the file's own policy still lets nothing run."""
    smuggled = (
        f"<script>{CANARY}</script><img src=http://evil.test/x onerror={CANARY}><style>main{{display:none}}</style>"
    )
    html = bad.read_text("utf-8")
    results = {}
    for name, text in (("with", html), ("without", html.replace("Content-Security-Policy", "x-none"))):
        file = tmp_path / f"{name}.html"
        file.write_text(text.replace('<main id="main"', f'{smuggled}<main id="main"'), "utf-8")
        results[name] = sung(browser, file)
    assert results == {"with": (False, True), "without": (True, False)}


def sung(browser: Browser, file: Path) -> tuple[bool, bool]:
    """Whether the canary was called in a file, and whether the file still shows itself."""
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.add_init_script("window.canary = 0; window.fired = () => { window.canary += 1; };")
    page.goto(file.as_uri())
    found = (bool(page.evaluate("window.canary")), page.locator("main").is_visible())
    context.close()
    return found


def test_search_by_keyboard(plain: Path, opened: Opener) -> None:
    page = opened(plain)
    given = page.locator("#found")
    ready(page).keyboard.press("/")
    expect(page.get_by_label("Search")).to_be_focused()
    page.keyboard.type("NUMBER 17: spider")
    expect(given).to_have_text("1 of 41 pairs")
    page.keyboard.press("Enter")
    first = page.locator("details.pair:not([hidden])")
    expect(first).to_have_count(1)
    expect(first).to_have_attribute("open", "")
    expect(first.locator("> summary")).to_be_focused()
    page.keyboard.press("/")
    page.keyboard.press("Escape")
    expect(given).to_have_text("41 of 41 pairs")
    page.get_by_label("Only where").select_option("invalid")
    expect(given).to_have_text("1 of 41 pairs")
    expect(page.locator("details.pair:not([hidden])")).to_contain_text("unreadable")
    page.get_by_label("Only where").select_option("")
    page.locator("h1").click()
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    expect(page.locator("details.pair > summary").first).to_be_focused()


def test_an_example_leads_to_its_pair(plain: Path, opened: Opener) -> None:
    page = opened(plain)
    page.get_by_label("Search").fill("nothing is like this")
    expect(page.locator("#found")).to_have_text("0 of 41 pairs")
    link = page.locator("#examples a").first
    said = (link.text_content() or "").strip()
    link.focus()
    page.keyboard.press("Enter")
    pair = page.locator("details.pair[open]")
    expect(pair).to_have_count(1)
    expect(pair.locator("> summary")).to_contain_text(said)
    expect(pair.locator(".sides")).to_be_in_viewport()


def test_it_reads_without_a_script(plain: Path, opened: Opener) -> None:
    page = opened(plain, java_script_enabled=False)
    expect(page.locator("#find")).to_be_hidden()
    expect(page.locator("details.pair")).to_have_count(41)
    page.locator("#examples a").first.click()
    expect(page.locator(".pair .sides").filter(visible=True)).to_have_count(1)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(short: Path, opened: Opener, scheme: str) -> None:
    page = opened(short, color_scheme=scheme)
    page.evaluate("for (const part of [...document.querySelectorAll('details')].slice(0, 12)) part.open = true")
    found = Axe().run(page)
    assert not found.response["violations"], found.generate_report()


@pytest.mark.parametrize("width", [360, 2500])
def test_it_fits_any_width(plain: Path, opened: Opener, width: int) -> None:
    page = opened(plain, width=width)
    open_all(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
