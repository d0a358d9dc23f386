"""The web page in a real browser: Debian's Chromium, driven by Playwright.

Without a Chromium these tests are skipped, except where CI runs them: there that is a failure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect

from browsing import PATIENCE, chromium, ready
from evenhand import Pair
from evenhand.store import HumanLabel, Store
from web_server import CANARY, HOSTILE, WebServer, fill, hostile_pairs, plain_pairs

SIZES = {"narrow": 360, "usual": 1280, "wide": 2500}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("browser") / "evenhand.db"
    fill(path, plain_pairs(24), ("chained", "overall"))
    return path


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("browser") / "hostile.db"
    long = Pair("Write much.", "word " * 2_000_000, "y" * 1_000_000, id="ten megabytes")
    fill(path, [*hostile_pairs(), long], name=f"<script>{CANARY}</script>")
    return path


@pytest.fixture(scope="module")
def browser(plain: Path, bad: Path) -> Iterator[Browser]:
    """Started after the databases are filled: while it runs, this thread has a loop of its own."""
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def server(plain: Path) -> Iterator[WebServer]:
    with WebServer(plain) as server:
        yield server


@pytest.fixture(scope="module")
def hostile(bad: Path) -> Iterator[WebServer]:
    with WebServer(bad) as server:
        yield server


Opener = Callable[..., Page]


@pytest.fixture
def opened(browser: Browser) -> Iterator[Opener]:
    """Opens pages in fresh contexts; whatever went wrong in any of them fails the test at its end."""
    contexts: list[BrowserContext] = []
    faults: list[str] = []

    def new(server: WebServer, *, width: int = 1280, **options: Any) -> Page:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        watch(page, server, faults)
        return page

    yield new
    for context in contexts:
        context.close()
    assert not faults


def watch(page: Page, server: WebServer, faults: list[str]) -> None:
    """Nothing may run that is not ours, and nothing may be asked of anybody else."""
    page.add_init_script("window.canary = 0; window.fired = () => { window.canary += 1; };")
    page.on("request", lambda r: None if r.url.startswith(server.base) else faults.append(f"asked for {r.url}"))
    page.on("dialog", lambda d: faults.append(f"dialog {d.message}"))
    page.on("pageerror", lambda e: faults.append(f"script error {e}"))
    page.on("console", lambda m: faults.append(m.text) if "Content Security" in m.text else None)


def enter(page: Page, server: WebServer) -> Page:
    page.goto(server.base + server.link)
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    return page


def invite(page: Page, server: WebServer, name: str, *, count: int = 12, asked: str = "overall only") -> str:
    """Invite somebody by the form; their link."""
    page.goto(server.base + "/people")
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("What to label").select_option(asked)
    page.get_by_label("Pairs", exact=True).fill(str(count))
    page.get_by_label("Seed").fill("5")
    page.get_by_role("button", name="Invite", exact=True).click()
    return page.locator("input.copy").input_value()


def press(page: Page, key: str) -> None:
    """A key that is answered by the page with what comes next."""
    with ready(page).expect_navigation():
        page.keyboard.press(key)


def labels(path: Path, name: str) -> list[HumanLabel]:
    with Store(path) as store:
        return list(store.labels.all(annotator=name))


# -- looking ---------------------------------------------------------------------------------------


def test_the_owner_looks_around(server: WebServer, opened: Opener) -> None:
    page = enter(opened(server), server)
    assert page.url == f"{server.base}/"
    page.locator("a.warn").first.click()
    expect(page).to_have_url(re.compile("only=inconsistent"))
    count = page.locator(".found b").inner_text()
    assert int(count) > 0
    # A filter sends itself, and stands in the address.
    with ready(page).expect_navigation():
        page.get_by_label("Verdict", exact=True).select_option("2")
    expect(page).to_have_url(re.compile(r"verdict=2.*only=inconsistent|only=inconsistent.*verdict=2"))
    rows = page.locator("tbody tr").count()
    assert 0 < rows < int(count)
    page.get_by_role("searchbox", name="Search").fill("spider")
    with page.expect_navigation():
        ready(page).keyboard.press("Enter")
    expect(page).to_have_url(re.compile("q=spider"))
    assert page.locator("tbody tr").count() == rows
    # A pair, the next, and the one before, by key.
    page.locator("a[data-row]").first.click()
    expect(page.locator(".where")).to_contain_text(f"1 of {rows}")
    first = page.get_by_role("heading", level=1).inner_text()
    press(page, "j")
    expect(page.locator(".where")).to_contain_text(f"2 of {rows}")
    assert page.get_by_role("heading", level=1).inner_text() != first
    press(page, "k")
    assert page.get_by_role("heading", level=1).inner_text() == first
    # The differences, and what the judge saw.
    page.get_by_role("link", name="Differences").click()
    expect(page.locator("mark")).not_to_have_count(0)
    page.locator("#conversation > summary").click()
    expect(page.locator("#conversation .theirs").nth(1)).to_be_visible()
    page.get_by_role("link", name="The list").click()
    expect(page).to_have_url(re.compile("q=spider"))


def test_a_link_shows_the_same_view_to_another_browser(server: WebServer, opened: Opener) -> None:
    address = "/pairs?judge=1&dimension=format&sort=gap&f.topic=maths&only=against_judges"
    views = []
    for _ in range(2):
        page = enter(opened(server), server)
        page.goto(server.base + address)
        views.append(page.locator("main").inner_text())
    assert views[0] == views[1]


def test_the_keyboard_alone_is_enough(server: WebServer, opened: Opener) -> None:
    page = enter(opened(server), server)
    page.goto(server.base + "/pairs")
    ready(page).keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('a[data-row]')"):
            break
    ring = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert ring == "solid", "the focus can be seen"
    press(page, "Enter")
    expect(page).to_have_url(re.compile("/pair/"))


# -- labelling -------------------------------------------------------------------------------------


def test_ten_pairs_by_key_with_a_reload_in_the_middle(server: WebServer, plain: Path, opened: Opener) -> None:
    owner = enter(opened(server), server)
    known, agreed = agreement(owner, server)
    page = opened(server)
    page.goto(invite(owner, server, "ann", count=12))
    said = []
    for number in range(10):
        expect(page.locator("#count")).to_have_text(f"{number} of 12")
        if number == 5:  # a note that is being written, and the time, outlast a reload
            ready(page).keyboard.press("n")
            expect(page.get_by_label("Note")).to_be_focused()
            page.keyboard.type("both are poor")
            page.reload()
            expect(page.get_by_label("Note")).to_have_value("both are poor")
            ready(page).keyboard.press("Escape")
        key = "abt"[number % 3]
        said.append(key)
        press(page, key)
    expect(page.locator("#count")).to_have_text("10 of 12")
    kept = sorted(labels(plain, "ann"), key=lambda label: label.created)
    assert [shown(label) for label in kept] == said
    assert [label.note for label in kept] == [""] * 5 + ["both are poor"] + [""] * 4
    assert all(label.seconds is not None and label.seconds < 60 for label in kept)
    press(page, "u")
    expect(page.locator("#count")).to_have_text("9 of 12")
    assert len(labels(plain, "ann")) == 9
    press(page, "t")
    # The owner sees what came of it.
    later, otherwise = agreement(owner, server)
    assert later > known
    assert otherwise != agreed


def agreement(owner: Page, server: WebServer) -> tuple[int, str]:
    """What the card says: how many pairs people have labelled, and how far the judge agrees with them."""
    owner.goto(server.base + "/card")
    card = owner.locator("section[aria-labelledby^='card-']").first
    row = card.get_by_role("row", name="overall")
    return int(row.get_by_role("cell").nth(0).inner_text()), row.inner_text()


def shown(label: HumanLabel) -> str:
    if label.side == "tie":
        return "t"
    return "a" if (label.side == "1") == (label.order == "forward") else "b"


def test_four_dimensions_skip_and_the_rubric(server: WebServer, plain: Path, opened: Opener) -> None:
    owner = enter(opened(server), server)
    page = opened(server)
    page.goto(invite(owner, server, "dims", count=2, asked="chained"))
    expect(page.locator("#question")).to_have_text("Best on precision: A, B, or tie?")
    ready(page).keyboard.press("r")
    expect(page.locator("#rubric .prose")).to_be_visible()
    for key, question in (("a", "correctness"), ("b", "format"), ("t", "overall")):
        press(page, key)
        expect(page.locator("#question")).to_contain_text(question)
    ready(page).keyboard.press("s")
    expect(page.get_by_label("Reason to skip")).to_be_focused()
    page.keyboard.press("Enter")  # without a reason nothing is passed over
    expect(page.locator("#notice")).to_contain_text("reason")
    page.keyboard.press("c")  # one letter: a second one that is late begins a new search
    expect(page.get_by_label("Reason to skip")).to_have_value("cannot tell")
    press(page, "Enter")
    expect(page.locator("#count")).to_have_text("1 of 2")
    assert [
        (label.side is None, label.note) for label in labels(plain, "dims") if label.dimension == "overall"
    ] == [(True, "cannot tell")]


def test_a_dead_connection_loses_nothing_and_labels_once(server: WebServer, plain: Path, opened: Opener) -> None:
    owner = enter(opened(server), server)
    page = opened(server)
    page.goto(invite(owner, server, "dead", count=3))
    tries: list[int] = []

    def fail_twice(route: Route) -> None:
        tries.append(1)
        if len(tries) == 1:
            route.abort()  # never arrives
        elif len(tries) == 2:
            route.fetch()  # arrives, and its answer is lost
            route.abort()
        else:
            route.continue_()

    expect(page.locator("#count")).to_have_text("0 of 3")
    page.route("**/annotate/save", fail_twice)
    ready(page).keyboard.press("a")
    expect(page.locator("#notice")).to_contain_text("Not saved yet")
    expect(page.locator("#count")).to_have_text("1 of 3", timeout=2 * PATIENCE)
    assert len(tries) == 3
    assert [shown(label) for label in labels(plain, "dead")] == ["a"]


def test_a_server_that_dies_and_comes_back_has_lost_nothing(plain: Path, opened: Opener) -> None:
    """Labelled, killed, labelled with a note while it is dead, started again: both verdicts are kept, each once."""
    with Store(plain) as store:
        secret = store.annotation.invite("survivor", dimensions=["overall"], seed=4)
        store.annotation.assign("survivor", count=4, shared=0)
    with WebServer(plain) as server:
        page = opened(server)
        page.goto(f"{server.base}/a/{secret}")
        press(page, "a")
        ready(page).keyboard.press("n")
        expect(page.get_by_label("Note")).to_be_focused()
        page.keyboard.type("said into the dark")
        page.keyboard.press("Escape")
    page.keyboard.press("b")
    expect(page.locator("#notice")).to_contain_text("Not saved yet")
    assert len(labels(plain, "survivor")) == 1
    with WebServer(plain, port=server.port):
        expect(page.locator("#count")).to_have_text("2 of 4", timeout=2 * PATIENCE)
        kept = sorted(labels(plain, "survivor"), key=lambda label: label.created)
        assert [(shown(label), label.note) for label in kept] == [("a", ""), ("b", "said into the dark")]
        assert kept[1].seconds is not None
        page.reload()
        expect(page.locator("#count")).to_have_text("2 of 4")
        expect(page.get_by_label("Note")).to_have_value("")


def test_two_tabs_label_a_pair_once(server: WebServer, plain: Path, opened: Opener) -> None:
    owner = enter(opened(server), server)
    one = opened(server)
    one.goto(invite(owner, server, "two tabs", count=3))
    two = one.context.new_page()
    two.goto(server.base + "/annotate")
    press(one, "a")
    press(two, "b")
    expect(two.locator("#notice")).to_contain_text("nothing was changed")
    expect(two.locator("#count")).to_have_text("1 of 3")
    assert [shown(label) for label in labels(plain, "two tabs")] == ["a"]


def test_labelling_works_without_scripts(server: WebServer, plain: Path, opened: Opener) -> None:
    owner = enter(opened(server), server)
    page = opened(server, java_script_enabled=False)
    page.goto(invite(owner, server, "no script", count=2))
    page.get_by_role("button", name="Tie").click()
    expect(page.locator("#count")).to_have_text("1 of 2")
    page.get_by_role("button", name="B", exact=False).last.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("All done")
    assert len(labels(plain, "no script")) == 2


# -- hostile text ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("width", "shows"), [(SIZES["narrow"], ["markdown"]), (SIZES["usual"], ["text", "differences"])]
)
def test_nothing_of_theirs_runs_and_every_page_stays_usable(
    hostile: WebServer, opened: Opener, width: int, shows: list[str]
) -> None:
    page = enter(opened(hostile, width=width), hostile)
    addresses = ["/", "/pairs", "/pairs?gap=1&longer=2", "/pairs/all", "/people", "/card"]
    addresses += [f"/pairs?q={quote(CANARY)}", f"/pairs/all?q={quote(HOSTILE['script'])}"]
    for show in shows:
        addresses += [f"/pair/{number}?order=forward&show={show}" for number in range(1, len(HOSTILE) + 2)]
    for address in addresses:
        page.goto(hostile.base + address)
        assert page.evaluate("window.canary") == 0, address
        assert page.url.startswith(hostile.base), address
        assert page.get_by_role("link", name="Overview").is_visible(), address
        assert page.evaluate("document.documentElement.scrollWidth") <= width, address
        assert CANARY in page.content() or "/pair/" not in address or not address_has_canary(address)


def address_has_canary(address: str) -> bool:
    number = int(re.findall(r"/pair/(\d+)", address)[0])
    return number <= len(HOSTILE) and CANARY in list(HOSTILE.values())[number - 1]


def test_nothing_of_theirs_runs_on_the_labelling_page(hostile: WebServer, opened: Opener) -> None:
    owner = enter(opened(hostile), hostile)
    page = opened(hostile)
    page.goto(invite(owner, hostile, f"<script>{CANARY}</script>", count=len(HOSTILE) + 1))
    for _ in range(len(HOSTILE) + 1):
        assert page.evaluate("window.canary") == 0
        expect(page.get_by_role("button", name="Tie")).to_be_in_viewport()
        page.get_by_label("Note").fill(f"</p><script>{CANARY}</script>")
        page.keyboard.press("Escape")
        press(page, "a")
    expect(page.get_by_role("heading", level=1)).to_contain_text("All done")
    page.goto(hostile.base + "/annotate/said")
    assert page.evaluate("window.canary") == 0
    owner.goto(hostile.base + "/pair/1")
    assert owner.locator("blockquote.said").inner_text().startswith("</p><script>")
    assert owner.evaluate("window.canary") == 0


def test_the_canary_does_fire_where_it_can(browser: Browser, hostile: WebServer) -> None:
    """Else the tests above would prove nothing."""
    page = browser.new_page()
    page.add_init_script("window.canary = 0; window.fired = () => { window.canary += 1; };")
    page.goto("data:text/html," + quote(HOSTILE["script"].partition("<script src")[0] + HOSTILE["handlers"]))
    page.wait_for_function("window.canary > 0")
    page.close()


# -- for everybody ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def labelled(plain: Path, server: WebServer) -> str:
    """A link of somebody who has said something already."""
    with Store(plain) as store:
        secret = store.annotation.invite("axe", dimensions=["format", "overall"], seed=2, rubric=RUBRIC)
        store.annotation.assign("axe", count=5, shared=5)
        store.annotation.save("axe", 1, "format", "A", note="a note")
        store.annotation.save("axe", 1, "overall", "B")
    return f"/a/{secret}"


RUBRIC = '{"text": "Format is how it looks.", "questions": {"format": "Best on format: A, B, or tie?"}}'
PAGES = (
    "/",
    "/pairs/all",
    "/pairs?only=inconsistent",
    "/pair/1?order=forward",
    "/pair/2?show=differences",
    "/people",
    "/card",
)


@pytest.mark.parametrize(("scheme", "width"), [("light", SIZES["usual"]), ("dark", SIZES["narrow"])])
def test_axe_finds_no_fault(server: WebServer, opened: Opener, labelled: str, scheme: str, width: int) -> None:
    page = enter(opened(server, width=width, color_scheme=scheme), server)
    addresses = [*PAGES, "/nowhere", labelled, "/annotate", "/annotate/said"]
    for address in addresses:
        page.goto(server.base + address)
        found = Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21aa", "best-practice"]})
        faults = [
            f"{fault['id']}: {node['target']} {node.get('failureSummary', '')}"
            for fault in found.response["violations"]
            for node in fault["nodes"]
        ]
        assert not faults, f"{address}\n" + "\n".join(faults)


@pytest.mark.parametrize("width", SIZES.values(), ids=list(SIZES))
def test_pages_fit_their_window_and_hold_still(
    server: WebServer, opened: Opener, labelled: str, width: int
) -> None:
    page = enter(opened(server, width=width), server)
    for address in (*PAGES, labelled, "/annotate"):
        page.goto(server.base + address, wait_until="networkidle")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, address
        assert page.evaluate(SHIFT) < 0.01, address


@pytest.mark.parametrize("width", SIZES.values(), ids=list(SIZES))
def test_the_widest_rate_stays_in_its_cell(server: WebServer, opened: Opener, width: int) -> None:
    page = enter(opened(server, width=width), server)
    cells = page.locator(".numbers tbody tr").first.locator("td")
    assert "%" in cells.nth(0).inner_text()
    assert "%" in cells.nth(1).inner_text()
    for number, widest in enumerate(("100.0%", "40% – 100%")):
        cells.nth(number).evaluate("(cell, text) => { cell.textContent = text; }", widest)
        assert cells.nth(number).evaluate("cell => cell.scrollWidth <= cell.clientWidth"), widest


SHIFT = """() => new Promise((done) => {
  let sum = 0;
  const seen = new PerformanceObserver((list) => { for (const entry of list.getEntries()) sum += entry.value; });
  seen.observe({ type: "layout-shift", buffered: true });
  setTimeout(() => done(sum), 100);
})"""
