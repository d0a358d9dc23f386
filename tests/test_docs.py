"""The pages cannot drift: their code runs, their commands run, their links lead somewhere, their facts are these.

Marks in the Markdown, each an HTML comment on the line before a block:

    judge: NAME    the Python block asks the default judge; here the small model takes its place
    transcript     a console block that is shown, not run
    output         a text block: what the Python block before it printed
    template       a text block that is a template
    fails          a template that is refused
    layers         a text block: layers in the order in which they may import each other
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import importlib.util
import inspect
import io
import json
import re
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer

import warm
from conftest import SMOLLM
from evenhand import Judge, Pair, Protocol, ScriptedEngine
from evenhand.core.errors import TemplateError
from evenhand.engines.catalog import DEFAULT_MODEL
from evenhand.results.judgments import judged_pair
from evenhand.results.plain import plain
from evenhand.views.cli import load_all
from test_layers import LAYERS

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
DONE, WITH_FAILURES, NOT_JUDGED = 0, 3, 4  # by the small model no gate is passed

PAIRS = [
    {"id": "prime", "instruction": "Name a prime number.", "output_1": "7", "output_2": "8", "label": "1"},
    {"id": "greeting", "instruction": "Say hello.", "output_1": "Hello!", "output_2": "Good day!", "label": "tie"},
]


# -- reading Markdown ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """A fenced block, and the comment on the line before it."""

    page: Path
    line: int
    language: str
    mark: str
    text: str


_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"<!-- (.+?) -->\n$")


def blocks(page: Path, language: str, mark: str | None = None) -> list[Block]:
    text = page.read_text("utf-8")
    found = []
    for fence in _FENCE.finditer(text):
        before = _MARK.search(text[: fence.start()])
        line = text[: fence.start()].count("\n") + 1
        found.append(Block(page, line, fence[1], before[1] if before else "", fence[2]))
    return [b for b in found if b.language == language and mark in (None, b.mark)]


def prose(page: Path) -> str:
    return _FENCE.sub("", page.read_text("utf-8"))


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def pages_with(language: str, mark: str | None = None) -> list[Path]:
    return [page for page in PAGES if blocks(page, language, mark)]


def as_params(pages: list[Path], needs_model: Callable[[Path], bool]) -> list[Any]:
    """Pages as parameters of a test; those that need a real model are marked so."""
    return [
        pytest.param(page, id=name_of(page), marks=[pytest.mark.engine] if needs_model(page) else [])
        for page in pages
    ]


QUICK = ["--protocol", "quick.txt"]


def quick_template() -> str:
    """The default protocol without its long preface, which the small model takes half a minute to read."""
    text = Protocol.load("chained").text
    turn = text.rindex("<|im_start|>user", 0, text.index("{instruction}"))
    return f"---\nname: chained\n---\n{text[turn:]}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty place with the files that the examples read."""
    lines = "".join(json.dumps(pair) + "\n" for pair in PAIRS)
    (tmp_path / "pairs.jsonl").write_text(lines, encoding="utf-8")
    for name, side in (("new", "output_1"), ("old", "output_2")):
        outputs = [json.dumps({"instruction": pair["instruction"], "output": pair[side]}) + "\n" for pair in PAIRS]
        (tmp_path / f"{name}.jsonl").write_text("".join(outputs), encoding="utf-8")
    (tmp_path / "instructions.txt").write_text("".join(pair["instruction"] + "\n" for pair in PAIRS))
    (tmp_path / "brief.txt").write_text("Be brief.\n")
    (tmp_path / QUICK[1]).write_text(quick_template(), encoding="utf-8")
    template = blocks(ROOT / "docs" / "templates.md", "text", "template")[0]
    (tmp_path / "template.txt").write_text(template.text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


# -- Python ----------------------------------------------------------------------------------------


def asks_a_model(page: Path) -> bool:
    return any(block.mark.startswith("judge:") for block in blocks(page, "python"))


def with_small_judge(code: str) -> str:
    """Let the small model judge, by a short template where none is named: Judge() -> Judge("...", "quick.txt")."""
    named = code.replace(f'Judge("{DEFAULT_MODEL}"', f'Judge("{SMOLLM}"')
    named = re.sub(r"\bJudge\((?=\)|\w+=)", lambda call: f'Judge("{SMOLLM}", ', named).replace(", )", ")")
    return named.replace(f'Judge("{SMOLLM}")', f'Judge("{SMOLLM}", "{QUICK[1]}")')


def run(block: Block, namespace: dict[str, Any]) -> str:
    """Execute a block as a notebook would, with await allowed anywhere; what it printed."""
    source = with_small_judge(block.text) if block.mark.startswith("judge:") else block.text
    place = "\n" * block.line  # so that a traceback names the line of the page
    code = compile(place + source, block.page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        waiting = eval(code, namespace)
        if inspect.iscoroutine(waiting):
            asyncio.run(waiting)
    return printed.getvalue()


@pytest.mark.parametrize("page", as_params(pages_with("python"), asks_a_model))
@pytest.mark.usefixtures("folder")
def test_python_examples_run(page: Path, request: pytest.FixtureRequest) -> None:
    if asks_a_model(page):
        request.getfixturevalue("smollm")
    namespace: dict[str, Any] = {"__name__": "example"}
    printed = [(block.line, run(block, namespace)) for block in blocks(page, "python")]
    for shown in blocks(page, "text", "output"):
        before = [text for line, text in printed if line < shown.line]
        assert before[-1] == shown.text, f"{name_of(page)}:{shown.line}"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("Judge()", f'Judge("{SMOLLM}", "quick.txt")'),
        (f'Judge("{DEFAULT_MODEL}")', f'Judge("{SMOLLM}", "quick.txt")'),
        (f'Judge("{DEFAULT_MODEL}", "four")', f'Judge("{SMOLLM}", "four")'),
        ('Judge(protocol="four")', f'Judge("{SMOLLM}", protocol="four")'),
        ("Judge(engine)", "Judge(engine)"),
        ("import Judge", "import Judge"),
    ],
)
def test_the_small_judge_takes_the_place_of_the_default_one(code: str, expected: str) -> None:
    assert with_small_judge(code) == expected


# -- the command line ------------------------------------------------------------------------------


def maker_of(name: str) -> ModuleType:
    """A program in docs/ that writes a page."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CLI_PAGE = maker_of("make_cli_page")
OPTIONS: dict[str, list[str]] = {
    name: CLI_PAGE.options(command) for name, command in CLI_PAGE.commands(typer.main.get_command(load_all()))
}
JUDGING = ("evenhand judge", "evenhand arena", "evenhand compare", "evenhand gate")
SMALL_JUDGE = ["--judge", SMOLLM, "--threads", "1"]  # several threads only wait for each other where all is busy
SMALL_WRITER = ["--model", SMOLLM, "--threads", "1", "--max-tokens", "8"]
SMALL = {**dict.fromkeys(JUDGING, SMALL_JUDGE), "evenhand generate": SMALL_WRITER}
# What serves for ever, takes minutes, fetches a gigabyte or deletes a model is looked at, not run.
NOT_RUN = ("evenhand serve", "evenhand demo", "evenhand models pull", "evenhand models remove")


def command_lines(page: Path) -> Iterator[list[str]]:
    """The words of each `$ evenhand ...` of a page, without what the shell would do behind them."""
    for block in blocks(page, "console"):
        if block.mark == "transcript":
            continue
        for line in block.text.replace("\\\n", " ").splitlines():
            if line.startswith("$ evenhand"):
                words = shlex.split(line.removeprefix("$ "), comments=True)
                ends = [words.index(sign) for sign in ("|", ">", "<", "&&") if sign in words]
                yield words[: min(ends, default=len(words))]


def command_of(words: list[str]) -> str:
    """The longest beginning of a line that is a command; two files without one are judged."""
    if len(words) > 2 and all(word.endswith(".jsonl") for word in words[1:3]):
        return "evenhand judge"
    known = [" ".join(words[:count]) for count in (3, 2, 1) if " ".join(words[:count]) in OPTIONS]
    return known[0]


def runs_a_model(page: Path) -> bool:
    return any(command_of(words) in SMALL for words in command_lines(page))


PAGES_WITH_COMMANDS = [page for page in PAGES if list(command_lines(page))]


@pytest.mark.parametrize("page", as_params(PAGES_WITH_COMMANDS, lambda _: False))
def test_every_option_that_is_named_exists(page: Path) -> None:
    for words in command_lines(page):
        named = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
        assert set(named) <= set(OPTIONS[command_of(words)]), f"{name_of(page)}: {shlex.join(words)}"


@pytest.mark.parametrize("page", as_params(PAGES_WITH_COMMANDS, runs_a_model))
def test_command_examples_run(page: Path, folder: Path, request: pytest.FixtureRequest) -> None:
    if runs_a_model(page):
        request.getfixturevalue("smollm")
    for words in command_lines(page):
        if command_of(words) in NOT_RUN:
            continue
        done = evenhand(*words[1:], *instead(words, page), cwd=folder)
        fine = {DONE, WITH_FAILURES, *([NOT_JUDGED] if command_of(words) == "evenhand gate" else [])}
        assert done.returncode in fine, f"{shlex.join(words)}\n{done.stderr}"


def instead(words: list[str], page: Path) -> list[str]:
    """What makes a command quick: the small model, and a short template; one page does without the latter."""
    command = command_of(words)
    kept = command == "evenhand gate" and "--db" in words  # nobody is asked
    whole = command not in JUDGING or kept or "--protocol" in words or page.name == "README.md"
    return SMALL.get(command, []) + ([] if whole else QUICK)


def evenhand(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return warm.run(*words, cwd=cwd)


def test_the_page_of_commands_is_current() -> None:
    page = ROOT / "docs" / "cli.md"
    assert page.read_text("utf-8") == CLI_PAGE.page(), "run: python docs/make_cli_page.py"


def test_the_page_of_json_is_current() -> None:
    page = ROOT / "docs" / "json.md"
    assert page.read_text("utf-8") == maker_of("make_json_page").page(), "run: python docs/make_json_page.py"


def test_options_that_are_named_in_prose_exist() -> None:
    known = {option for options in OPTIONS.values() for option in options}
    foreign = {"--no-deps", "--engine", "--embeddings", "--runner"}  # pip's, llama-server's, vLLM's
    foreign |= {f"--evenhand-{name}" for name in ("judge", "agree", "protocol", "db")}  # of the pytest plugin
    serving = (ROOT / "docs" / "serving.md").read_text("utf-8")
    foreign |= set(re.findall(r"`(--[a-z][a-z-]*)", serving))  # vLLM's
    for benchmark in (ROOT / "benchmarks").glob("*.py"):
        foreign |= set(re.findall(r"\"(--[a-z][a-z-]*)\"", benchmark.read_text("utf-8")))
    for page in PAGES:
        named = set(re.findall(r"`(--[a-z][a-z-]*)", prose(page)))
        assert named <= known | foreign, name_of(page)


# -- templates, SQL, JSON ----------------------------------------------------------------------------

TEMPLATES = [block for page in PAGES for block in blocks(page, "text", "template")]
REFUSED = [block for page in PAGES for block in blocks(page, "text", "fails")]


def place(block: Block) -> str:
    return f"{name_of(block.page)}:{block.line}"


@pytest.mark.parametrize("block", TEMPLATES, ids=place)
def test_templates_parse(block: Block) -> None:
    protocol = Protocol.parse(block.text)
    pair = Pair("Name a prime number.", "7", "8")
    for number in range(len(protocol.questions)):
        assert "7" in protocol.prompt(pair, "forward", number, ["A"] * number).turns[-1].text or number


@pytest.mark.parametrize("block", REFUSED, ids=place)
def test_templates_that_should_not_parse_do_not(block: Block) -> None:
    with pytest.raises(TemplateError):
        Protocol.parse(block.text)


def test_there_are_at_least_two_templates() -> None:
    assert len(TEMPLATES) >= 2


@pytest.fixture(scope="module")
def scripted_db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database as a judge with a leaning would leave it: one pair right, one with orders that disagree."""
    path = tmp_path_factory.mktemp("docs") / "evenhand.db"

    def script(prompt: Any) -> dict[str, float] | str:
        text = prompt.turns[-1].text
        if "broken" in text:
            return "I cannot say."
        return {"A": 0.7, "B": 0.2, "tie": 0.1} if "Say hello" in text else {"A": 0.5, "B": 0.3, "tie": 0.2}

    pairs = [
        *(Pair(p["instruction"], p["output_1"], p["output_2"], id=p["id"], labels={"overall": "1"}) for p in PAIRS),
        Pair("Be broken.", "x", "y", id="broken"),
    ]
    with Judge(ScriptedEngine(script), "overall", db=path) as judge:
        list(judge.judge(pairs))
    return path


@pytest.mark.parametrize(
    "block", [block for page in PAGES for block in blocks(page, "sql")], ids=lambda block: place(block)
)
def test_sql_examples_find_something(block: Block, scripted_db: Path) -> None:
    with contextlib.closing(sqlite3.connect(scripted_db)) as db:
        assert db.execute(block.text).fetchall()


def shape(value: Any) -> Any:
    """What JSON is made of, its values left out; of a list the first item."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [shape(value[0])]
    return None


def json_blocks(page: str, mark: str) -> list[Any]:
    return [json.loads(block.text) for block in blocks(ROOT / "docs" / page, "json", mark)]


def test_the_facts_of_a_comparison_are_those_on_the_page() -> None:
    engine = ScriptedEngine(lambda _: {"A": 0.5, "B": 0.3, "tie": 0.2})
    with Judge(engine, "overall") as judge:
        fields = plain(judged_pair(judge.compare("Name a prime number.", "7", "8")))
    [shown] = json_blocks("judging.md", "compare --json")
    assert shape(shown) == shape(fields)


def test_the_facts_of_a_database_are_those_on_the_page(scripted_db: Path) -> None:
    done = evenhand("results", "--db", str(scripted_db), "--json", cwd=scripted_db.parent)
    fields = json.loads(done.stdout)
    for entry in (fields, *fields["judges"]):  # which reasons there are is not part of the form
        entry["dimensions"]["overall"]["invalid_reasons"] = {}
    fields["judges"] = []  # the same again
    [shown] = json_blocks("judging.md", "results --json")
    assert shape(shown) == shape(fields)


def test_the_facts_of_a_gate_are_those_on_the_page(scripted_db: Path) -> None:
    done = evenhand("gate", "--db", str(scripted_db), "--json", cwd=scripted_db.parent)
    [shown] = json_blocks("gate.md", "gate --json")
    fields = json.loads(done.stdout)
    assert shape(shown) == shape(fields)
    assert shown["interval"] == pytest.approx(fields["interval"])


def test_every_other_json_block_is_json() -> None:
    for page in PAGES:
        for block in blocks(page, "json"):
            json.loads(block.text)
        for block in blocks(page, "jsonl"):
            assert all(json.loads(line) for line in block.text.splitlines())


# -- links -----------------------------------------------------------------------------------------

_LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to a page's headings."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.+?)\s*$", prose(page), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        again = sum(other == slug or re.fullmatch(rf"{re.escape(slug)}-\d+", other) is not None for other in found)
        found.add(f"{slug}-{again}" if again else slug)
    return found


@pytest.mark.parametrize("page", as_params(PAGES, lambda _: False))
def test_links_lead_somewhere(page: Path) -> None:
    for target in _LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{name_of(page)}: {target}"
        assert there.is_relative_to(ROOT), f"{name_of(page)}: {target}"
        assert not anchor or anchor in anchors(there), f"{name_of(page)}: {target}"


@pytest.mark.parametrize("page", as_params(PAGES, lambda _: False))
def test_files_that_are_named_exist(page: Path) -> None:
    for name in re.findall(r"`((?:src|tests|docs|benchmarks)/[\w./-]+)`", prose(page)):
        assert (ROOT / name).exists(), f"{name_of(page)}: {name}"


@pytest.mark.parametrize("page", as_params(PAGES, lambda _: False))
def test_tests_that_are_named_exist(page: Path) -> None:
    written = "".join(file.read_text("utf-8") for file in (ROOT / "tests").glob("test_*.py"))
    for name in re.findall(r"`(test_\w+)`", prose(page)):
        assert f"def {name}(" in written or (ROOT / "tests" / f"{name}.py").exists(), f"{name_of(page)}: {name}"


def test_the_layers_are_in_their_order() -> None:
    [block] = blocks(ROOT / "docs" / "architecture.md", "text", "layers")
    assert block.text.split() == [layer for layer in LAYERS if layer in block.text.split()]


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    assert {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"} <= set(_LINK.findall(index))


_TO_BE_FILLED = re.compile(r"@@\w+@@|\b(?:TODO|FIXME|XXX|TBD)\b")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_place_is_left_to_be_filled(page: Path) -> None:
    prose = re.sub(r"`[^`\n]*`", "", page.read_text("utf-8"))
    assert not _TO_BE_FILLED.findall(prose)


@pytest.mark.parametrize("page", as_params(PAGES, lambda _: False))
def test_no_path_of_a_machine(page: Path) -> None:
    assert not re.search(r"/(?:root|home|work|Users)/", page.read_text("utf-8"))
