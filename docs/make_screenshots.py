"""Writes docs/images/ from the pages themselves: make screenshots.

The pairs are those that come with the package. The judge is a script that mostly knows their answers, wavers, and
leans to the response shown first; two made-up annotators have labelled. So the pictures show pages, and no
judge's quality.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

import uvicorn
from playwright.sync_api import Browser, sync_playwright

from evenhand import Judge, Pair, ScriptedEngine
from evenhand.core.protocol import Prompt, Protocol
from evenhand.core.verdict import LABELS, SIDE_OF, Label
from evenhand.io.pairs import sample_pairs
from evenhand.store import Store
from evenhand.views.report import compile_report
from evenhand.views.report.page import write_page
from evenhand.views.web.app import make_app
from evenhand.views.web.people_pages import rubric_of
from evenhand.views.web.serving import ServerAddress, listen, open_site

IMAGES = Path(__file__).parent / "images"
FLAGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync")
WIDTH, HEIGHT = 1280, 860
PAGES = {
    "overview": "/",
    "pairs": "/pairs?judge=1&dimension=overall",
    "pair": "/pair/3?judge=1&dimension=overall",
    "people": "/people",
    "card": "/card",
    "annotate": "/annotate",
}


def main() -> None:
    """Make a database, serve it, and take a picture of each page, light and dark."""
    chromium = os.environ.get("EVENHAND_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("no Chromium is here: apt-get install chromium, or name one in EVENHAND_CHROMIUM")
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        db = Path(folder) / "example.db"
        secret = fill(db)
        listening = listen(ServerAddress(port=0))
        port = listening.getsockname()[1]
        site = open_site(db, ServerAddress(port=port), port)
        site.patience = 60.0
        server = uvicorn.Server(uvicorn.Config(make_app(site), log_level="warning", access_log=False))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=chromium, args=[*FLAGS])
                report = write_report(db, Path(folder) / "report.html")
                take(browser, site.base, f"/enter/{site.door.link}", f"/a/{secret}", report)
                browser.close()
        finally:
            server.should_exit = True
            thread.join()
            listening.close()


def write_report(db: Path, file: Path) -> Path:
    """The report of the same database."""
    with Store(db) as store, file.open("w", encoding="utf-8") as to:
        write_page(compile_report(store, store.judges()), store, to)
    return file


def take(browser: Browser, base: str, owner: str, annotator: str, report: Path) -> None:
    """The pictures."""
    first = browser.new_context()
    page = first.new_page()
    page.goto(base + annotator)
    page.goto(base + owner)
    for scheme in ("light", "dark"):
        context = browser.new_context(
            storage_state=first.storage_state(),
            viewport={"width": WIDTH, "height": HEIGHT},
            color_scheme="dark" if scheme == "dark" else "light",
        )
        page = context.new_page()
        for name, address in {**PAGES, "report": report.as_uri()}.items():
            page.goto(address if "://" in address else base + address, wait_until="networkidle")
            file = IMAGES / f"{name}-{scheme}.png"
            page.screenshot(path=str(file))
            print(file.relative_to(IMAGES.parents[1]), f"{file.stat().st_size / 1000:.0f} kB")


def fill(db: Path) -> str:
    """Judge the sample under two protocols and label some of it; the link of an annotator who is not done."""
    pairs = list(sample_pairs())
    known = {pair.instruction: pair for pair in pairs}
    for protocol in ("overall", "chained"):
        engine = ScriptedEngine(lambda prompt: waver(prompt, known), name="example-judge")
        with Judge(engine, protocol, db=db) as judge:
            list(judge.judge(pairs))
    with Store(db) as store:
        for seed, name in enumerate(("annotator-1", "annotator-2"), 1):
            rubric = json.dumps(rubric_of(Protocol.load("overall")))
            store.annotation.invite(name, dimensions=["overall"], seed=seed, rubric=rubric)
            store.annotation.assign(name, count=24, shared=24)
            label(store, name, {pair.key: pair for pair in pairs}, random.Random(seed))
        secret = store.annotation.renew("annotator-2")
        store.annotation.assign("annotator-2", count=4, shared=0)
    return secret


def label(store: Store, name: str, pairs: Mapping[str, Pair], draw: random.Random) -> None:
    """Label a list: mostly as the file says."""
    while task := store.annotation.next(name):
        side = pairs[task.pair].labels["overall"] if draw.random() < 0.85 else "tie"
        shown: Label = next(letter for letter in LABELS if SIDE_OF[task.order][letter] == side)
        store.annotation.save(name, task.place, "overall", shown, seconds=round(draw.uniform(4, 40), 1))


def waver(prompt: Prompt, known: Mapping[str, Pair]) -> dict[str, float]:
    """Probabilities that favour what is known, with noise that the text decides, and a leaning to A."""
    text = "\n".join(turn.text for turn in prompt.turns)
    pair = known[max(known, key=text.rfind)]  # whose instruction stands last in the conversation
    question = prompt.turns[-1].text.rsplit("\n", 1)[-1]
    dimension = next((name for name in pair.labels if name in question), "overall")
    swapped = text.rfind(pair.output_2) < text.rfind(pair.output_1)
    right = {"1": "B", "2": "A"} if swapped else {"1": "A", "2": "B"}
    noise = hashlib.sha256(text.encode()).digest()
    weights = {name: 0.15 + noise[i] / 400 for i, name in enumerate(LABELS)}
    weights["A"] += 0.2
    weights[right.get(pair.labels[dimension], "tie")] += 0.4  # type: ignore[index]
    return {name: weight / sum(weights.values()) for name, weight in weights.items()}


if __name__ == "__main__":
    main()
