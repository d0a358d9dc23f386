"""The command line by its real entry point: what it prints, what it refuses, and with which exit code."""

from __future__ import annotations

import csv
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import typer.main

import warm
from evenhand import __version__
from evenhand.core.protocol import built_in_names, form_names, variant_names
from evenhand.engines.catalog import ModelFile
from evenhand.views.cli import load_all, main

EVENHAND = [sys.executable, "-m", "evenhand"]
TIME_LIMIT = 300.0
DIMENSION_FACTS = {"n", "wins_1", "wins_2", "ties", "inconsistent", "invalid", "win_rate_1", "ci"}
SHORT = "<|im_start|>user\n{instruction}\nA: {output_1}\nB: {output_2}\nWhich is best, A, B, or tie?<|im_end|>\n"
ROWS: list[dict[str, str]] = [
    {"id": "one", "instruction": "What is 2 + 2?", "output_1": "4", "output_2": "5", "label": "1"},
    {"id": "two", "instruction": "Name a colour.", "output_1": "Red.", "output_2": "Seven.", "label": "A"},
    {"id": "three", "instruction": "Say hi.", "output_1": "Hi, “you”\nthere", "output_2": "Hi", "label": "tie"},
]


def evenhand(
    *arguments: str | Path, code: int = 0, stdin: str | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a command and check its exit code; whatever happens, nobody is shown a traceback."""
    done = warm.run(*arguments, stdin=stdin, env=os.environ | {"COLUMNS": "160"} | env)
    assert "Traceback" not in done.stderr + done.stdout
    assert done.returncode == code, done.stderr
    return done


def fields_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Standard output is JSON and nothing else."""
    fields: dict[str, Any] = json.loads(done.stdout)
    return fields


def write_jsonl(file: Path, rows: Sequence[dict[str, str]]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def count(db: Path, table: str) -> int:
    with closing(sqlite3.connect(f"file:{db}?mode=ro", uri=True, timeout=30)) as base:
        return int(base.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


# -- without a model --------------------------------------------------------------------------------------


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))


COMMANDS = list(commands(typer.main.get_command(load_all())))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(
    path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["evenhand", *path, "--help"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 0
    said = capsys.readouterr()
    assert "Usage: " in said.out
    assert " ".join(path) in said.out
    assert said.err == ""


def test_the_commands_are_all_there() -> None:
    names = {" ".join(path) for path in COMMANDS}
    assert {"judge", "compare", "results", "demo", "protocols show", "protocols check", "models pull"} <= names


def test_version() -> None:
    assert evenhand("--version").stdout == f"evenhand {__version__}\n"


def test_nothing_heavy_is_loaded_before_it_is_needed() -> None:
    heavy = ("numpy", "scipy", "pyarrow", "polars", "xllamacpp", "altair", "huggingface_hub", "starlette")
    script = f"import sys, evenhand.views.cli; print([name for name in {heavy} if name in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"
    )


def test_no_such_command_or_option() -> None:
    assert "No such command" in evenhand("jugde", code=2).stderr
    assert "--protcol" in evenhand("judge", "x.jsonl", "--protcol", "four", code=2).stderr


def test_the_installed_script_is_the_same_program() -> None:
    script = Path(sys.executable).with_name("evenhand")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, timeout=TIME_LIMIT, check=True)
    assert done.stdout == f"evenhand {__version__}\n"


def test_protocols_are_listed() -> None:
    said = evenhand("protocols").stdout
    assert all(name in said for name in built_in_names())
    listed = fields_of(evenhand("protocols", "--json"))["protocols"]
    assert [protocol["name"] for protocol in listed] == [*built_in_names(), *form_names(), *variant_names()]
    assert {"questions", "dialect", "fingerprint"} <= listed[0].keys()


def test_a_protocol_is_shown_as_the_judge_sees_it() -> None:
    said = evenhand("protocols", "show", "chained").stdout
    assert "<|im_start|>system" in said
    assert "{output_1}" not in said
    assert "<|judgement_1|>" not in said
    assert "{output_1}" in evenhand("protocols", "show", "chained", "--template").stdout


def test_a_good_template_is_described(tmp_path: Path) -> None:
    file = tmp_path / "short.txt"
    file.write_text(SHORT)
    assert "1 question" in evenhand("protocols", "check", file).stdout
    fields = fields_of(evenhand("protocols", "check", file, "--json"))
    assert (fields["questions"], fields["dialect"], fields["turns"]) == ([["overall"]], "ChatML", 1)


@pytest.mark.parametrize(
    ("text", "line", "fault"),
    [
        (SHORT.replace("{output_2}", "{output_3}"), 4, "{output_3}"),
        (SHORT.replace("<|im_end|>", ""), 1, "the end of the file"),
        (SHORT.replace("tie?", "tie"), 5, "no question"),
        ("", 1, "an empty file"),
        (SHORT + "<|eot_id|>", 6, "Llama 3"),
    ],
)
def test_a_bad_template_is_refused_with_file_and_line(tmp_path: Path, text: str, line: int, fault: str) -> None:
    file = tmp_path / "bad.txt"
    file.write_text(text)
    said = evenhand("protocols", "check", file, code=2).stderr
    assert f"{file}:" in said
    assert fault in said
    assert "expected" in said
    if fault != "the end of the file":
        assert f"{file}:{line}:" in said


def test_models_are_listed() -> None:
    said = evenhand("models").stdout
    assert "qwen2.5-coder-1.5b" in said
    assert "smollm2-135m" in said
    models = fields_of(evenhand("models", "--json"))["models"]
    assert {"name", "size", "licence", "source", "sha256", "on_disk"} <= models[0].keys()
    assert [model["name"] for model in models if model["default"]] == ["qwen2.5-coder-1.5b"]


def test_a_closed_pipe_is_no_fault() -> None:
    process = subprocess.Popen(
        [*EVENHAND, "protocols", "show", "chained"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.close()  # as `| head` does once it has enough
    assert process.stderr is not None
    with process.stderr as stderr:
        said = stderr.read()
    process.wait(timeout=TIME_LIMIT)
    assert said == ""


# -- what is refused --------------------------------------------------------------------------------------


@pytest.fixture
def no_models(tmp_path: Path) -> dict[str, str]:
    """A machine on which no model lies and none can be fetched: who asks for one fails."""
    return {"EVENHAND_CACHE": str(tmp_path / "empty"), "PIP_NO_INDEX": "1"}


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "pairs.jsonl", ROWS)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--protocol", "overal"], "did you mean 'overall'?"),
        (["--protocol", "/no/such/file.txt"], "/no/such/file.txt"),
        (["--judge", "no-such-model"], "no-such-model"),
        (["--orders", "sideways"], "sideways"),
        (["--limit", "0"], "--limit"),
        (["--context", "1"], "--context"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_wrong_use_is_refused_before_anything_is_fetched_or_written(
    pairs: Path, db: Path, no_models: dict[str, str], arguments: list[str], said: str
) -> None:
    done = evenhand("judge", pairs, "--db", db, *arguments, code=2, **no_models)
    assert said in done.stderr
    assert "fetching" not in done.stderr
    assert done.stdout == ""
    assert not db.exists()


@pytest.mark.parametrize("arguments", [["--protocol", "overal"], ["--orders", "sideways"]], ids=" ".join)
def test_wrong_use_of_compare_is_refused_before_anything_is_fetched(
    no_models: dict[str, str], arguments: list[str]
) -> None:
    done = evenhand("compare", "--instruction", "x", "--a", "y", "--b", "z", *arguments, code=2, **no_models)
    assert "fetching" not in done.stderr


def test_a_missing_file_of_pairs(db: Path, no_models: dict[str, str]) -> None:
    assert "nowhere.jsonl" in evenhand("judge", "nowhere.jsonl", "--db", db, code=2, **no_models).stderr
    assert not db.exists()


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ('{"instruction": "x", "output_1": "y"}', "output_2"),
        ('{"instruction": "x", "output_1": "y", "output_2": 7}', "output_2"),
        ('{"instruction": ', "not JSON"),
        ("[1, 2]", "not a JSON object"),
        (json.dumps(ROWS[0]), "one"),  # an id that stands twice
        (json.dumps(ROWS[0] | {"id": "four", "label": "left"}), "left"),
    ],
    ids=["no field", "no text", "no JSON", "no object", "twin", "label"],
)
def test_a_broken_line_is_named_and_nothing_is_judged(
    tmp_path: Path, db: Path, no_models: dict[str, str], line: str, fault: str
) -> None:
    file = write_jsonl(tmp_path / "pairs.jsonl", ROWS)
    file.write_text(file.read_text() + line + "\n")
    done = evenhand("judge", file, "--db", db, code=2, **no_models)
    assert f"{file}:4: " in done.stderr
    assert fault in done.stderr
    assert done.stdout == ""
    assert not db.exists()


def test_an_empty_file_of_pairs(tmp_path: Path, no_models: dict[str, str]) -> None:
    file = tmp_path / "pairs.jsonl"
    file.touch()
    assert "no pairs" in evenhand("judge", file, code=2, **no_models).stderr


def test_a_path_that_is_no_gguf(pairs: Path, db: Path, tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    model.write_text("not a model")
    done = evenhand("judge", pairs, "--db", db, "--judge", model, code=1)
    assert f"{model} is no GGUF file" in done.stderr
    assert not db.exists()


def test_results_of_a_missing_database(db: Path) -> None:
    assert str(db) in evenhand("results", "--db", db, code=2).stderr
    assert not db.exists()


def test_results_of_what_is_no_database(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("my notes\n" * 500)
    assert "not a database" in evenhand("results", "--db", file, code=1).stderr


def test_a_database_that_cannot_be_made(pairs: Path, smollm: ModelFile) -> None:
    assert smollm.path.exists()
    done = evenhand("judge", pairs, "--db", "/no/such/folder/x.db", "--judge", "smollm2-135m", code=1)
    assert "does the folder exist" in done.stderr


# -- with a model -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The options of every run below: a tiny model, a tiny template."""
    template = tmp_path_factory.mktemp("template") / "short.txt"
    template.write_text(SHORT)
    return ["--judge", "smollm2-135m", "--protocol", str(template), "--context", "512", "--threads", "1"]


class Judged:
    """A database in which ROWS were judged, and what the command printed."""

    def __init__(self, folder: Path, options: list[str]) -> None:
        self.folder, self.db = folder, folder / "judged.db"
        self.options = [*options, "--db", str(self.db)]
        self.pairs = write_jsonl(folder / "pairs.jsonl", ROWS)
        self.done = evenhand("judge", self.pairs, *self.options, "--json")
        self.fields = fields_of(self.done)


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory, short: list[str], smollm: ModelFile) -> Judged:
    assert smollm.path.exists()
    return Judged(tmp_path_factory.mktemp("judged"), short)


def check_dimension(fields: dict[str, Any], n: int) -> None:
    assert fields.keys() >= DIMENSION_FACTS
    assert fields["n"] == n == fields["wins_1"] + fields["wins_2"] + fields["ties"]
    assert fields["ci"][0] <= fields["win_rate_1"] <= fields["ci"][1]


@pytest.mark.engine
def test_judge_tells_its_facts_as_json(judged: Judged) -> None:
    fields = judged.fields
    assert (fields["pairs"], fields["asked"], fields["skipped"], fields["judge"]) == (3, 6, 0, "smollm2-135m")
    assert set(fields["dimensions"]) == {"overall"}
    check_dimension(fields["dimensions"]["overall"], 3)
    assert fields["dimensions"]["overall"]["agreement"]["n"] == 3
    assert fields["tokens"]["computed"] > 0
    assert fields["tokens"]["generated"] >= 6
    assert count(judged.db, "answers") == count(judged.db, "verdicts") == 6


@pytest.mark.engine
def test_a_run_repeated_asks_nothing_and_prints_the_table(judged: Judged) -> None:
    again = fields_of(evenhand("judge", judged.pairs, *judged.options, "--json"))
    assert again["asked"] == 0
    assert again["tokens"] == {"computed": 0, "reused": 0, "generated": 0}
    assert again["dimensions"] == judged.fields["dimensions"]
    said = evenhand("judge", judged.pairs, *judged.options).stdout
    for word in (
        "overall",
        "win rate",
        "95%",
        "interval",
        "label",
        "mass",
        "posi-",
        "incon",
        "valid",
    ):  # may be wrapped
        assert word in said
    assert "no new answers, in" in said


@pytest.mark.engine
def test_the_same_pairs_from_csv_json_and_standard_input(judged: Judged, tmp_path: Path) -> None:
    table, whole = tmp_path / "pairs.csv", tmp_path / "pairs.json"
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, ROWS[0])
        writer.writeheader()
        writer.writerows(ROWS)
    whole.write_text(json.dumps(ROWS))
    for source, stdin in ((table, None), (whole, None), ("-", judged.pairs.read_text())):
        fields = fields_of(evenhand("judge", source, *judged.options, "--json", stdin=stdin))
        assert fields["asked"] == 0
        assert fields["dimensions"] == judged.fields["dimensions"]


@pytest.mark.engine
def test_results_tell_the_same_again(judged: Judged) -> None:
    fields = fields_of(evenhand("results", "--db", judged.db, "--json"))
    check_dimension(fields["dimensions"]["overall"], 3)
    assert fields["dimensions"] == judged.fields["dimensions"]
    assert fields["fingerprint"] == judged.fields["fingerprint"]
    assert fields["tokens"] == judged.fields["tokens"]
    assert "win rate" in evenhand("results", "--db", judged.db).stdout
    assert "no verdicts" in evenhand("results", "--db", judged.db, "--protocol", "four", code=2).stderr


@pytest.mark.engine
def test_broken_rows_are_skipped_and_counted_when_told_to(judged: Judged, tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "pairs.jsonl", ROWS)
    file.write_text("{}\n" + file.read_text() + "nonsense\n")
    done = evenhand("judge", file, *judged.options, "--skip-bad", "--json", code=3)
    fields = fields_of(done)
    assert (fields["skipped"], fields["pairs"], fields["asked"]) == (2, 3, 0)
    assert f"{file}:1:" in done.stderr
    assert f"{file}:5:" in done.stderr
    assert "2 broken rows" in evenhand("judge", file, *judged.options, "--skip-bad", code=3).stdout


@pytest.mark.engine
def test_limit_takes_the_first_pairs(judged: Judged) -> None:
    fields = fields_of(evenhand("judge", judged.pairs, *judged.options, "--limit", "2", "--json"))
    assert (fields["pairs"], fields["asked"]) == (2, 0)


@pytest.mark.engine
def test_compare_tells_every_order_as_json(judged: Judged) -> None:
    row = ROWS[0]
    texts = ["--instruction", row["instruction"], "--a", row["output_1"], "--b", row["output_2"]]
    fields = fields_of(evenhand("compare", *texts, *judged.options, "--json"))
    overall = fields["dimensions"]["overall"]
    assert overall["verdict"] in ("1", "2", "tie")
    assert set(overall["p"]) == {"1", "2", "tie"}
    assert sum(overall["p"].values()) == pytest.approx(1)
    assert isinstance(overall["inconsistent"], bool)
    assert set(overall["orders"]) == {"forward", "swapped"}
    for order in overall["orders"].values():
        assert {"verdict", "p", "mass"} <= order.keys()
        assert 0 < order["mass"] <= 1
    table = evenhand("compare", *texts, *judged.options).stdout
    assert "overall" in table
    assert "is better" in table or "tie" in table
    assert "no new answers, in" in table


@pytest.mark.engine
def test_a_pair_that_does_not_fit_is_a_failure_and_exit_code_3(short: list[str], tmp_path: Path, db: Path) -> None:
    long = {"instruction": "Go on.", "output_1": "again and " * 200, "output_2": "Enough."}
    file = write_jsonl(tmp_path / "pairs.jsonl", [long, ROWS[0]])
    done = evenhand("judge", file, *short, "--context", "256", "--db", db, "--json", code=3)
    overall = fields_of(done)["dimensions"]["overall"]
    assert (overall["n"], overall["invalid"], overall["invalid_reasons"]) == (1, 1, {"too_long": 1})
    shown = evenhand("results", "--db", db).stdout
    assert "too_long" in shown


@pytest.mark.engine
def test_an_interrupted_run_says_how_to_go_on_and_does(short: list[str], tmp_path: Path, db: Path) -> None:
    rows = [{"instruction": f"What is {n} + {n}?", "output_1": str(2 * n), "output_2": "0"} for n in range(1, 13)]
    file = write_jsonl(tmp_path / "pairs.jsonl", rows)
    command = ["judge", str(file), *short, "--db", str(db), "--json"]
    process = warm.start(*command)
    wait_for_answers(db, 5, process)
    process.send_signal(signal.SIGINT)
    said, explained = process.communicate(timeout=TIME_LIMIT)
    assert (process.returncode, said) == (130, "")
    assert "the same command goes on" in " ".join(explained.split())
    assert "Traceback" not in explained
    answered = count(db, "answers")
    assert 5 <= answered < 24
    fields = fields_of(evenhand(*command))
    assert fields["asked"] == 24 - answered
    assert fields["dimensions"]["overall"]["n"] == 12


def wait_for_answers(db: Path, wanted: int, process: warm.Warm) -> None:
    deadline = time.monotonic() + TIME_LIMIT
    while process.poll() is None:
        assert time.monotonic() < deadline, "nothing is answered"
        try:
            if db.exists() and count(db, "answers") >= wanted:
                return
        except sqlite3.OperationalError:  # it is being created at this moment
            pass
        time.sleep(0.02)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("arguments", [["protocols", "show", "chained"], ["protocols", "--json"]])
def test_output_that_cannot_be_written_is_said_in_a_sentence(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "evenhand", *arguments]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
