"""Every field that a stranger fills, all hostile, in a coloured terminal: only our own colours get through."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.color import ColorSystem

from command import Done, evenhand_any
from evenhand import Judge, Pair, ScriptedEngine
from evenhand.core import protocol
from evenhand.core.engine import Answer, Sampling
from evenhand.core.errors import EngineError
from evenhand.core.protocol import Prompt
from evenhand.running.batches.run import BatchProgress
from evenhand.store import HumanLabel, Store
from evenhand.views import console
from evenhand.views.cli.batching import _BatchWatch
from evenhand.views.pytest_plugin import Referee
from web_server import script

# What a name, an id, a text, a note or a file's name may try: to steer the terminal, or rich itself.
PAYLOADS = (
    "\x1b[31mred",
    "\x1b[2J\x1b[H",
    "\x1b]0;title\x07",
    "\x1b]8;;http://evil.test\x1b\\click\x1b]8;;\x1b\\",
    "\x1b]52;c;ZXZpbA==\x07",
    "\x1bP+q544e\x1b\\",
    "\x9b2J\x9d0;t\x9c",
    "\x08\x08\x7f\r over",
    "\x00nul\x85",
    "a\u202egnp.exe",
    "\u2066apart\u2069",
    "[link=http://evil.test]click[/link]",
    "[@click=app.bell]x[/]",
    "[/]",
    "[/bold]",
    "[red]x",
    "\\[b]",
    "::error::x",
    "##vso[task.x]",
    "%s %(a)s {0!r} {{7*7}} {% raw %}",
    "<script>fired()</script>",
    "line\nline",
)
ALL = " ".join(PAYLOADS)
JUDGE = PAYLOADS[2] + PAYLOADS[11] + PAYLOADS[9]
OTHER = PAYLOADS[13] + PAYLOADS[6]
TEMPLATE = Path(protocol.__file__).parent / "protocols" / "overall.txt"
# Colours, and how a bar hides the cursor and goes back to its beginning.
_COLOUR = re.compile(r"\x1b\[(?:[0-9;]*m|\?25[lh]|1A|2K)|\r(?=\x1b\[2K)")
_STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def hostile_pairs() -> list[Pair]:
    return [
        Pair(
            f"{text} {turn}",
            f"one {text}",
            f"two {text} {turn}",
            id=f"{text} {turn}",
            model_1=ALL,
            model_2=f"new {ALL}",
            labels={"overall": "1" if turn % 2 else "2"},
            metadata={"topic": text, text: text, "human": {text: "AB"[turn % 2], f"b {text}": "AB"[turn % 2]}},
        )
        for turn in range(4)
        for text in PAYLOADS
    ]


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two judges; the file's own name is markup, too."""
    path = tmp_path_factory.mktemp("hostile") / "[link=http:evil.test]a[bold].db"
    pairs = hostile_pairs()
    for name in (JUDGE, OTHER):
        with Judge(ScriptedEngine(script, name=name), "overall", db=path) as judge:
            list(judge.judge(pairs))
    with Store(path) as store:
        store.labels.add(
            [
                HumanLabel(pair.key, "overall", text, "1", note=text)
                for pair, text in zip(pairs, PAYLOADS, strict=False)
            ]
        )
    return path


@pytest.fixture(autouse=True)
def coloured(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a terminal: what rich makes of its markup is in the output."""
    for screen in (console.out, console.err):
        monkeypatch.setattr(screen, "_force_terminal", True)
        monkeypatch.setattr(screen, "_color_system", ColorSystem.TRUECOLOR)


def calm(*words: str | Path) -> Done:
    """Run a command of which every output can be shown to a terminal."""
    done = evenhand_any(*words)
    assert "Traceback" not in done.stderr
    for text in (done.stdout, done.stderr):
        assert "\x1b[31mred" not in text
        found = _STEERS.search(_COLOUR.sub("", text))
        assert not found, ascii(text[max(0, found.start() - 80) : found.end() + 40])
    return done


ONE = ("--judge", OTHER, "--protocol", "overall")
COMMANDS: tuple[tuple[str, ...], ...] = (
    *(("results",), ("results", "--by", "topic"), ("results", "--human"), ("results", *ONE), ("card",), ("rank",)),
    *(("rank", *ONE), ("judges",), ("labels",), ("suggest", *ONE), ("reasons",), ("reasons", "--search", "x")),
    *(("calibrate",), ("gate", *ONE, "--margin", "0.01"), ("gate", *ONE, "--annotations", "github")),
    *(("jury", f"{JUDGE},{OTHER}"), ("judges", "remove", "nobody"), ("batches",)),
)


@pytest.mark.parametrize("as_json", [False, True], ids=["table", "json"])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: ascii(" ".join(command[:3]))[:30])
def test_no_command_lets_anything_through(db: Path, command: tuple[str, ...], as_json: bool) -> None:
    if as_json and command[:2] == ("judges", "remove"):
        pytest.skip("an error either way")
    done = calm(*command, "--db", db, *(["--json"] if as_json else []))
    if as_json and done.returncode in (0, 3):
        json.loads(done.stdout)


FORGED = "\nPASS: forged"
NAMING: tuple[tuple[str, ...], ...] = (
    *(("results",), ("results", "--by", "model_1"), ("results", "--by", "topic"), ("results", "--judge", "x")),
    *(("rank",), ("rank", "--anchor", "x"), ("card",), ("card", f"one{FORGED}", f"two{FORGED}"), ("labels",)),
    *(("suggest", "--judge", f"one{FORGED}"), ("judges",)),
    ("results", "--against", f"two{FORGED}", "--judge", f"one{FORGED}"),
)


@pytest.fixture(scope="module")
def forged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every name ends with a line that could be one of ours."""
    path = tmp_path_factory.mktemp("forged") / "forged.db"
    pairs = [
        Pair(
            f"Task {n}",
            f"one {n}",
            f"two {n}",
            id=f"{n}{FORGED}",
            model_1=f"ant{n % 3}{FORGED}",
            model_2=f"bee{FORGED}",
            metadata={"topic": f"topic{n % 2}{FORGED}"},
        )
        for n in range(12)
    ]
    for name in ("one", "two"):
        with Judge(ScriptedEngine(lambda _: "A", name=f"{name}{FORGED}"), "overall", db=path) as judge:
            list(judge.judge(pairs))
    with Store(path) as store:
        store.labels.add([HumanLabel(pair.key, "overall", f"ann{FORGED}", "1") for pair in pairs[:8]])
    return path


@pytest.mark.parametrize("command", NAMING, ids=lambda command: ascii(" ".join(command[:2])))
def test_no_name_makes_a_line_of_its_own(
    forged: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for screen in (console.out, console.err):
        monkeypatch.setattr(screen, "_force_terminal", False)  # which writes each sentence on one line
    done = evenhand_any(*command, "--db", forged)
    assert "PASS: forged" in done.stdout + done.stderr
    assert not re.search(r"^\W*PASS", done.stdout + done.stderr, re.MULTILINE), done.stdout + done.stderr


# -- while a judge is asked ------------------------------------------------------------------------------------


def test_names_of_files_are_no_markup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bracket in a name was read as one of rich's own: [/] ended the command, and [link=...] made a link."""
    monkeypatch.setattr("evenhand.views.cli.groups.open_judge", lambda *_: ScriptedEngine(script, name=ALL))
    monkeypatch.chdir(tmp_path)
    row = dict.fromkeys(("instruction", "output_1", "output_2", "model_1", "model_2", "id"), ALL)
    for name in ("[", "[bold]", "[link=http:x]a[", "\x1b]0;t\x07"):
        file, base = Path(f"{name}.jsonl"), Path(f"{name}.db")
        file.write_text(json.dumps(row | {"output_2": name}), encoding="utf-8")
        done = calm("judge", file, "--judge", "script", "--protocol", "overall", "--db", base)
        assert done.returncode == 0
        assert console.visible(f"kept in {base};") in _COLOUR.sub("", done.stdout)
        calm("judge", file, "--judge", "script", "--protocol", "overall", "--db", base, "--dry-run")
        calm("attack", file, "--judge", "script", "--protocol", "overall", "--db", base)
        calm("report", "--db", base, "--out", f"{name}.md")
        calm("look", file)
        Path(f"{name}.txt").write_text(TEMPLATE.read_text("utf-8"), encoding="utf-8")
        assert console.visible(f"{name}.txt") in calm("protocols", "check", f"{name}.txt").stdout


def test_what_a_server_says_is_no_markup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refuses(ScriptedEngine):
        async def answer(self, prompt: Prompt) -> Answer:
            raise EngineError(f"no: {ALL}", reason="refused", fatal=True, hint=ALL)

        async def write(self, prompt: Prompt, sampling: Sampling) -> Answer:
            raise EngineError(f"no: {ALL}", reason="refused", fatal=True, hint=ALL)

    monkeypatch.setattr("evenhand.views.cli.groups.open_judge", lambda *_: Refuses(script))
    monkeypatch.setattr("evenhand.views.cli.generate.open_judge", lambda *_: Refuses(script))
    file = tmp_path / "a.jsonl"
    file.write_text(json.dumps({"instruction": "Hi", "output_1": "x", "output_2": "y"}), encoding="utf-8")
    where = ("--db", tmp_path / "a.db")
    assert "no: " in calm("judge", file, "--judge", "script", "--protocol", "overall", *where).stderr
    assert "no: " in calm("attack", "--judge", "script", "--protocol", "overall", "--pairs", "1", *where).stderr
    out = tmp_path / "made.jsonl"
    assert "no: " in calm("generate", file, "--model", "script", "--out", out).stderr


@pytest.mark.parametrize("said", PAYLOADS)
def test_what_a_service_says_of_a_batch_is_no_markup(said: str, capsys: pytest.CaptureFixture[str]) -> None:
    live = console.err.status("")
    _BatchWatch(live).progress(BatchProgress(1, 2, 1, (said,)))
    console.err.print(live.renderable)
    shown = _COLOUR.sub("", capsys.readouterr().err)
    assert not _STEERS.search(shown), ascii(shown)
    assert " ".join(console.no_order(console.visible(said), begins=False).split()) in " ".join(shown.split())


# -- what goes elsewhere ---------------------------------------------------------------------------------------


def test_a_gate_tells_others_nothing_that_steers(db: Path, tmp_path: Path) -> None:
    files = (tmp_path / "gate.md", tmp_path / "gate.xml")
    calm("gate", *ONE, "--margin", "0.01", "--db", db, "--markdown", files[0], "--junit", files[1])
    for file in files:
        text = file.read_text("utf-8")
        assert "evil.test" in text, "the names are there"
        found = _STEERS.search(text)
        assert not found, ascii(text[max(0, found.start() - 80) : found.end() + 40])


def test_a_test_that_fails_shows_nothing_that_steers(tmp_path: Path) -> None:
    with_all = [replace(pair, labels={}, metadata={}) for pair in hostile_pairs()]
    referee = Referee(ScriptedEngine(script, name=JUDGE), "overall", tmp_path / f"{PAYLOADS[2]}.db")
    with pytest.raises(AssertionError) as gate:
        referee.gate(with_all, margin=0.01)
    with pytest.raises(AssertionError) as better:
        referee.better(ALL, than=ALL, instruction=ALL)
    referee.close()
    for said in (str(gate.value), str(better.value)):
        assert "evil.test" in said
        assert not _STEERS.search(said), ascii(said)
