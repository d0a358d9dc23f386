"""What a newcomer types in the first minutes: words on the screen, a known exit code, and never a traceback."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from command import Done, evenhand
from evenhand.engines import catalog
from evenhand.views import console
from evenhand.views.cli import load_all
from evenhand.views.cli.help_pages import EXAMPLES, PANELS
from evenhand.views.cli.welcome import FIRST

PAIR = {"instruction": "Name a prime.", "output_1": "7", "output_2": "8"}
NOBODY = "http://127.0.0.1:9/v1#m"  # the port of nobody: refused at once
COMMANDS = sorted(typer.main.get_command(load_all()).commands)  # type: ignore[attr-defined]
NO_ARGUMENT_NEEDED = {"protocols": 0, "models": 0, "help": 0}
# A command line, its exit code, and words that have to be on the screen.
LINES: list[tuple[str, int, str]] = [
    ("", 0, "evenhand compare -i"),
    ("-h", 0, "judge"),
    ("--help", 0, "judge"),
    ("help", 0, "judge"),
    ("--help", 0, "evenhand old.jsonl new.jsonl"),
    ("help judge", 0, "--candidate"),
    ("help jugde", 2, "judge"),
    ("judge -h", 0, "--candidate"),
    ("--version", 0, "evenhand "),
    ("jugde", 2, "Did you mean 'judge'"),
    ("labels imprt x.csv", 2, "import"),
    ("judge missing.jsonl", 2, "no file of pairs at missing.jsonl"),
    ("judge empty.jsonl", 2, "no pairs in this file"),
    ("judge folder", 2, "folder"),
    ("judge wrong.jsonl", 2, "found prompt, response_1, response_2"),
    ("judge a.jsonl", 2, "--candidate"),
    ("judge good.jsonl --nonsense", 2, "--nonsense"),
    ("judge good.jsonl --judge= --dry-run", 2, "--judge is given nothing"),
    ("judge good.jsonl --protocol= --dry-run", 2, "--protocol is given nothing"),
    ("a.jsonl b.jsonl --judge --db x.db", 2, "--judge is given nothing: --db follows it"),
    ("gate good.jsonl --margin 0.1 --judge", 2, "--judge is given nothing"),
    ("judge good.jsonl --orders sideways", 2, "forward"),
    ("judge good.jsonl --limit zero", 2, "--limit"),
    (f"judge good.jsonl --judge {NOBODY} --dry-run", 0, "1 pair: "),
    ("judge good.jsonl --judge gpt-4o", 2, "openai:gpt-4o"),
    ("judge good.jsonl --judge claude-sonnet-4-5", 2, "anthropic:claude-sonnet-4-5"),
    ("judge good.jsonl --judge gemini-2.5-pro", 2, "gemini:gemini-2.5-pro"),
    ("judge good.jsonl --judge Qwen/Qwen3-8B", 2, "vllm:Qwen/Qwen3-8B"),
    ("judge good.jsonl --judge opnai:gpt-4o", 2, "openai"),
    ("judge good.jsonl --judge openai:gpt-4o-mini", 1, "OPENAI_API_KEY"),
    ("judge good.jsonl --judge nope", 2, "no model is called"),
    ("judge good.jsonl --protocol nope", 2, "nope"),
    ("judge --candidate a.jsonl", 2, "--baseline"),
    ("judge --candidate a.jsonl --baseline b.jsonl --join-on uid --judge nope", 2, "found instruction"),
    ("judge --candidate wrong.jsonl --baseline b.jsonl --judge nope", 2, "found prompt"),
    ("compare --instruction x --a 1 --b 2 --judge nope", 2, "no model is called"),
    ("results --db missing.db", 2, "no database at missing.db"),
    ("results --db empty.db", 2, "nothing is judged yet"),
    ("results --db good.jsonl", 1, "good.jsonl"),
    ("results --db folder", 2, "folder"),
    ("results empty.db", 2, "evenhand results --db empty.db"),
    ("rank empty.db", 2, "evenhand rank --db empty.db"),
    ("report a.jsonl", 2, "evenhand look a.jsonl"),
    ("results --by x y", 2, "unexpected extra argument"),
    ("labels import missing.csv", 2, "missing.csv"),
    ("labels import wrong.jsonl", 2, "wrong.jsonl"),
    ("arena a.jsonl", 2, ""),
    ("generate wrong.txt --model nope", 2, ""),
    (f"generate wrong.jsonl --model {NOBODY} --out o.jsonl", 1, "127.0.0.1:9"),
    ("protocols show nope", 2, "nope"),
    ("protocols check good.jsonl", 2, "good.jsonl"),
    ("models pull nope", 2, "no model is called"),
    ("gate --db missing.db", 2, "missing.db"),
]


@pytest.fixture(params=[80, 140])
def desk(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """A folder with what people have lying around, a terminal of some width, and no keys."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", str(request.param))
    for name in [name for name in os.environ if name.endswith("_API_KEY")]:
        monkeypatch.delenv(name)
    for screen in (console.out, console.err):
        monkeypatch.setattr(screen, "width", request.param)
    Path("good.jsonl").write_text(json.dumps(PAIR) + "\n")
    Path("wrong.jsonl").write_text(json.dumps({"prompt": "Hi", "response_1": "x", "response_2": "y"}) + "\n")
    for name, text in (("a", "7"), ("b", "8")):
        Path(f"{name}.jsonl").write_text(json.dumps({"instruction": "Name a prime.", "output": text}) + "\n")
    for name in ("empty.jsonl", "empty.db"):
        Path(name).touch()
    Path("folder").mkdir()
    return int(request.param)


def said(done: Done) -> str:
    """All that is on the screen, without the breaks and frames that a narrow one needs."""
    text = done.stdout + done.stderr
    assert "Traceback" not in text
    assert text.strip()
    return " ".join(text.replace("│", " ").split())


@pytest.mark.parametrize(("line", "code", "words"), LINES, ids=[line for line, _, _ in LINES])
def test_each_first_command_answers(desk: int, line: str, code: int, words: str) -> None:
    assert words in said(evenhand(*line.split(), code=code))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_alone_answers_or_says_what_it_needs(desk: int, name: str) -> None:
    if name in ("attack", "demo"):
        pytest.skip("it judges: tests of their own run it")
    text = said(evenhand(name, code=NO_ARGUMENT_NEEDED.get(name, 2)))
    given = "hint:" in text or "Try 'evenhand" in text or "Commands" in text  # of a group: what it can do
    assert name in NO_ARGUMENT_NEEDED or given


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_refuses_an_unknown_option(desk: int, name: str) -> None:
    assert "Usage" in said(evenhand("help", name))
    assert "--no-such-thing" in said(evenhand(name, "--no-such-thing", code=2))


def test_the_bare_command_shows_five_commands_with_a_line_to_copy(desk: int) -> None:
    shown = evenhand().stdout
    assert len(FIRST) == 5
    for name, _, example in FIRST:
        assert name in COMMANDS
        assert example in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_ctrl_c_while_a_command_is_loaded_ends_without_a_word(desk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["evenhand.views.cli.app"], "load_for", interrupted)
    done = evenhand("results", code=130)
    assert (done.stdout, done.stderr) == ("", "")


def test_a_dry_run_fetches_no_model(desk: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path / "cache"))
    done = evenhand("judge", "good.jsonl", "--dry-run")
    assert "1 pair: " in done.stdout
    assert f"{catalog.DEFAULT_MODEL} is not here yet" in done.stderr
    assert not (tmp_path / "cache").exists()


# -- help --------------------------------------------------------------------------------------------

ROOT = typer.main.get_command(load_all())
EVERY = [(name, line) for name, lines in EXAMPLES.items() for line in lines]


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that words begin with, and the words behind its name."""
    command: Any = ROOT
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    return command, words


def test_every_command_is_in_a_panel_and_has_an_example(desk: int) -> None:
    assert {name for names in PANELS.values() for name in names} == set(COMMANDS)
    shown = evenhand("--help").stdout
    places = [shown.index(f" {panel} ") for panel in PANELS]
    assert places == sorted(places)
    for name in COMMANDS:
        assert f"Examples evenhand {name}" in said(evenhand("help", name))


@pytest.mark.parametrize(("name", "line"), EVERY, ids=[line for _, line in EVERY])
def test_every_example_is_a_command_line_that_is_understood(name: str, line: str) -> None:
    first, *words = shlex.split(line)
    assert first == "evenhand"
    assert words[: len(name.split())] == name.split()
    command, rest = command_of(words)
    assert command is not ROOT
    command.make_context(line, rest).close()  # parses and converts, and runs nothing


def test_flags_have_no_type_and_options_stand_in_their_panels(desk: int) -> None:
    for name in COMMANDS:
        assert not re.search(r"<(bool|int|float|str|list)", evenhand("help", name).stdout), name
    shown = evenhand("help", "judge").stdout
    places = [shown.index(f"─ {panel} ─") for panel in ("Input", "Judge", "Limits", "Output", "Advanced")]
    assert places == sorted(places)
    assert "─ Options ─" not in shown


def test_the_default_dimension_is_told_in_the_same_words() -> None:
    given = {
        option.help.partition("Default: ")[2]
        for name, command in every_command(ROOT)
        for option in command.params
        if option.name in ("on", "dimension") and "Default: " in option.help
        if name != "reasons"  # nobody is asked for a reason on what is combined
    }
    assert given == {"the parts combined, else overall."}


def every_command(command: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    yield name, command
    for sub, below in getattr(command, "commands", {}).items():
        yield from every_command(below, f"{name} {sub}".strip())
