"""Juries and levels in a real browser: each juror's outcome, who decided a pair, and what each level took."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import expect

from browsing import PATIENCE, chromium
from command import evenhand
from evenhand import Pair, ScriptedEngine, Store
from evenhand.core.protocol import Prompt
from evenhand.views.jury import Escalation, Jury
from web_server import WebServer


def juror(name: str, sure: float) -> ScriptedEngine:
    """For the response that says good; sure of pairs that are easy, and of nothing else."""

    def script(prompt: Prompt) -> dict[str, float]:
        text = prompt.turns[-1].text
        p = sure if "hard" not in text else 0.5
        a = p if text.rindex("good") < text.rindex("bad") else 1 - p
        return {"A": a, "B": 1 - a, "tie": 0.01}

    return ScriptedEngine(script, name=name)


def filled(path: Path) -> None:
    tasks = [f"{'hard' if n % 10 == 9 else 'easy'} {n}" for n in range(56)]
    pairs = [
        Pair(task, "good", "bad", id=str(n), labels={"overall": "1"} if n < 45 else {})
        for n, task in enumerate(tasks)
    ]
    judges = [juror("small", 0.9), juror("large", 0.8)]
    with Jury(judges, "overall", db=path) as jury:
        list(jury.judge(pairs))
    with Escalation(judges, "overall", agree=0.85, db=path) as levels:
        levels.prepare(pairs)
        list(levels.judge(pairs))


def test_the_pages_say_who_spoke_and_who_decided(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    filled(path)
    with Store(path) as store:
        numbers = {name: store.made.numbers([pair])[0] for name, pair in _pairs(store).items()}
    with chromium() as browser, WebServer(path) as server:
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(server.base + server.link)
        expect(page.locator("body")).to_contain_text("Level 1, small: decided 51 of 56 pairs (91%)")
        expect(page.locator("body")).to_contain_text("at least 85% are decided as people would")
        expect(page.locator("body")).to_contain_text("2 of 2 judges spoke on 56 pairs.")
        page.goto(f"{server.base}/pair/{numbers['3']}")
        for judge in ("small", "large", "jury of small, large", "escalation of small, large, people"):
            section = page.get_by_role("region", name=f"Verdicts of {judge} under overall", exact=True)
            expect(section).to_be_visible()
            expect(section.locator("table")).to_contain_text("1")
        expect(page.locator(".decided-by").first).to_contain_text(
            "Decided by small, level 1, at a confidence of 0."
        )
        expect(page.locator(".decided-by").last).to_have_text("2 of 2 judges spoke.")
        page.goto(f"{server.base}/pair/{numbers['49']}")
        expect(page.locator(".decided-by").first).to_have_text(
            "No judge may decide this pair; it waits for people."
        )
        report = tmp_path / "report.html"
        evenhand("report", "--db", path, "--out", report)
        page.goto(report.as_uri())
        expect(page.locator("body")).to_contain_text("Level 2, large: decided 0 of 56 pairs")
        browser.close()


def _pairs(store: Store) -> dict[str, Pair]:
    return {pair.id: pair for some in store.made.pairs([row.id for row in store.judges()]) for pair in some}
