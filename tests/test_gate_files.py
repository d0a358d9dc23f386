"""What a gate tells others: the pairs that got worse, JUnit XML, annotations, a fall since the last gate."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml  # type: ignore[import-untyped]
from aiohttp import web

from command import Done, evenhand
from conftest import LoopThread
from evenhand.engines import presets
from evenhand.results.losses import since_last
from misbehaving_server import Body, Server, says
from test_cli import SHORT

GATE_PAGE = Path(__file__).resolve().parents[1] / "docs" / "gate.md"


async def prefers_good(request: web.Request, body: Body) -> web.StreamResponse:
    """Says which response is GOOD, where one is; as a model, it answers GOOD."""
    text = "\n".join(message["content"] for message in body["messages"])
    if "Response" not in text and "GOOD" not in text and "POOR" not in text:
        return await says("GOOD")(request, body)
    one, two = text.rfind("GOOD"), text.rfind("POOR")
    said = "tie" if -1 in (one, two) else "A" if one < two else "B"
    return await says(said)(request, body)


@pytest.fixture
def server(loop: LoopThread) -> Iterator[Server]:
    server = Server(prefers_good)
    loop.run(server.__aenter__())
    yield server
    loop.run(server.__aexit__())


@pytest.fixture
def gate(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """Runs a gate in which the new model is GOOD on so many of 40 instructions; the old one is the other."""
    monkeypatch.chdir(tmp_path)
    Path("short.txt").write_text(SHORT)

    def run(good: int, *words: str, code: int, name: str = "new", old: str = "old") -> Done:
        for file, bare in (("new", True), ("old", False)):
            rows = [
                {"instruction": f"Question {n}?\n::error::no", "output": "GOOD" if (n < good) == bare else "POOR"}
                for n in range(40)
            ]
            Path(f"{file}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        sides = ["--candidate", f"{name}=new.jsonl", "--baseline", f"{old}=old.jsonl"]
        judge = ["--judge", f"{server.url}#judge", "--protocol", "short.txt"]
        return evenhand("gate", *sides, *judge, *words, code=code)

    return run


def test_pairs_that_got_worse_are_listed_and_the_rest_is_a_command_away(gate: Callable[..., Done]) -> None:
    done = gate(5, "--worst", "3", "--max-pairs", "40", "--against", "last", code=1)
    assert done.stdout.startswith("FAIL: new is worse than old by more than 5 points")
    assert (
        "35 of 40 judged pairs got worse: the response of old is the better one; the 3 clearest of them"
        in done.stdout
    )
    listed = [line for line in done.stdout.splitlines() if line.startswith("  - ")]
    assert len(listed) == 3
    assert all("Question" in line for line in listed)
    assert "evenhand export judgments --db evenhand.db --texts" in done.stdout
    # Words of a file stand at the beginning of no line, where GitHub would obey them.
    assert not [line for line in done.stdout.splitlines() if line.strip().startswith("::")]
    again = json.loads(evenhand("gate", "--db", "evenhand.db", "--json", "--worst", "50", code=1).stdout)
    assert again["got_worse"] == len(again["worst"]) == 35


def test_pairs_that_got_worse_are_some_of_the_judged_ones_whether_or_not_they_count(
    gate: Callable[..., Done],
) -> None:
    gate(5, "--against", "last", code=1)  # all of them are judged
    fields = json.loads(evenhand("gate", "--db", "evenhand.db", "--json", code=1).stdout)
    assert fields["counted"] < fields["got_worse"] == 35
    shown = evenhand("gate", "--db", "evenhand.db", "--markdown", "gate.md", "--junit", "gate.xml", code=1).stdout
    for text in (shown, Path("gate.md").read_text(), Path("gate.xml").read_text()):
        assert "35 of 40 judged pairs got worse: the response of old" in text
        assert re.search(r"- \S+ \(\d+%\) Question|\| \S+ \| \d+% \| Question", text)


def test_no_name_forges_a_heading_calls_anybody_or_orders_a_service_about(gate: Callable[..., Done]) -> None:
    name = "o**\n\n# PASS\n::error::@all\n##vso[task.complete]##[error] www.evil.test"
    done = gate(5, "--max-pairs", "40", "--markdown", "gate.md", code=1, old=name)
    written = Path("gate.md").read_text()
    assert [line[:9] for line in written.splitlines() if line.startswith("#")] == ["### FAIL:"]
    assert not re.findall(r"@|PASS\W*\n|www\.|[^&]#\w|\n::", written)
    shown = done.stdout + done.stderr
    assert "task.complete" in shown
    assert not re.findall(r"(?m)^\s*::|##(?:vso|teamcity)?\[", shown)


def test_a_name_forges_no_line(gate: Callable[..., Done]) -> None:
    """Ids are made of the models' names, so they break lines too."""
    files = ("--annotations", "github", "--junit", "gate.xml")
    shown = gate(5, *files, code=1, name="new\n\tPASS: all is well\x85PASS", old="old\r\nPASS").stdout
    assert shown.startswith("FAIL: new PASS: all is well PASS is worse than old PASS by more than 5 points\n")
    assert re.search(r"(?m)^  - pair-\w+/old PASS/new PASS: all is well PASS \(100%\) Question", shown)
    failure = ElementTree.parse("gate.xml").find(".//failure")
    assert failure is not None
    for text in (shown.replace("%0A", "\n"), str(failure.text), failure.get("message", "")):
        assert not re.search(r"(?m)^\s*PASS", text)


def test_the_first_line_stays_one_line_in_a_log(gate: Callable[..., Done]) -> None:
    name = " ".join(["a model with a long name"] * 9)
    first = gate(40, code=0, name=name).stdout.splitlines()[0]
    assert first == f"PASS: {name} is not worse than old by more than 5 points"


def test_a_gate_without_losses_lists_none(gate: Callable[..., Done]) -> None:
    done = gate(40, code=0)
    assert done.stdout.startswith("PASS: new is not worse than old")
    assert "got worse" not in done.stdout


@pytest.mark.parametrize(
    ("good", "code", "tag", "kind"), [(5, 1, "failure", "worse"), (20, 3, "failure", "undecided"), (40, 0, "", "")]
)
def test_junit(gate: Callable[..., Done], good: int, code: int, tag: str, kind: str) -> None:
    gate(good, "--junit", "gate.xml", code=code, name='new <&\x01"')
    suites = ElementTree.parse("gate.xml").getroot()
    [suite] = suites
    [case] = suite
    assert suite.get("tests") == "1"
    assert suite.get("failures") == str(int(bool(tag)))
    assert case.get("name", "").startswith('new <&\ufffd" is not worse than old on ')
    [child] = case
    assert child.tag == (tag or "system-out")
    assert child.get("type", "") == kind
    assert "has to be at least: 45%" in str(child.text)


def test_a_judge_that_fails_is_an_error_in_junit(gate: Callable[..., Done], server: Server) -> None:
    async def refuse(request: web.Request, body: Body) -> web.StreamResponse:
        return web.json_response({"error": {"message": "no"}}, status=401)

    server.behave = refuse
    gate(5, "--junit", "gate.xml", code=4)
    suites = ElementTree.parse("gate.xml").getroot()
    assert (suites.get("errors"), suites.get("failures")) == ("1", "0")
    assert suites.find(".//error") is not None


def test_annotations_are_lines_that_nothing_in_a_file_can_break(gate: Callable[..., Done]) -> None:
    done = gate(5, "--annotations", "github", code=1, name="n,e:w%\n")
    lines = [line for line in done.stdout.splitlines() if line.startswith("::")]
    assert len(lines) == 10
    assert lines[0].startswith("::error title=evenhand gate%3A FAIL::n,e:w%25")
    assert all(re.match(r"::warning title=got worse%3A [^:,\n]+::Question", line) for line in lines[1:])
    as_json = gate(5, "--annotations", "github", "--json", code=1, name="n,e:w%\n")
    assert json.loads(as_json.stdout)["decision"] == "worse"
    assert "::error" in as_json.stderr
    assert "::notice title=evenhand gate%3A PASS::" in gate(40, "--annotations", "github", code=0).stdout


def test_unknown_annotations_and_comparisons_are_refused(gate: Callable[..., Done]) -> None:
    assert "github" in gate(5, "--annotations", "gitlab", code=2).stderr
    assert "last, passed" in gate(5, "--against", "yesterday", code=2).stderr
    Path("empty.db").touch()
    assert "PAIRS" in evenhand("gate", "--db", "empty.db", "--against", "last", code=2).stderr


# -- against the last gate ---------------------------------------------------------------------------


def test_a_fall_since_the_last_gate_fails_though_the_bar_is_met(gate: Callable[..., Done]) -> None:
    first = gate(40, "--against", "last", code=0, name="v1")
    assert "no gate to compare with yet" in first.stderr
    second = gate(28, "--against", "last", "--json", code=1, name="v2")
    fields = json.loads(second.stdout)
    assert fields["decision"] == "fallen"
    assert fields["win_rate_2"] == pytest.approx(0.7)
    since = fields["since_last"]
    assert (since["candidate"], since["instructions"]) == ("v1", 40)
    assert since["difference"] == pytest.approx(-0.3)
    assert since["ci"][1] < 0
    # What failed is the last one, and no standard for --against passed.
    assert "has fallen since the last gate" in gate(28, "--against", "passed", code=1, name="v3").stdout
    third = json.loads(gate(28, "--against", "last", "--json", "--margin", "0.3", code=0, name="v4").stdout)
    assert third["since_last"]["difference"] == 0


def test_a_fall_names_the_gate_that_it_is_a_fall_from(gate: Callable[..., Done]) -> None:
    """Between the one that passed and this one stands another, which was worse than both."""
    gate(40, "--against", "passed", code=0, name="v1")
    gate(4, "--against", "passed", code=1, name="v2")
    files = ("--markdown", "gate.md", "--junit", "gate.xml", "--annotations", "github")
    shown = gate(20, "--against", "passed", *files, code=1, name="v3").stdout
    for text in (shown, Path("gate.md").read_text(), Path("gate.xml").read_text()):
        assert "FAIL: the win rate of v3 has fallen since the last gate that passed" in text
        assert re.search(r"since the last gate that passed(: | \| )-50.0 points", text)
        assert not re.search(r"since the last gate(?! that passed)", text)
    again = gate(20, "--against", "passed", "--json", code=1, name="v4")
    assert json.loads(again.stdout)["since_last"]["against"] == "passed"


def test_a_first_gate_that_failed_is_no_standard_for_those_that_passed(gate: Callable[..., Done]) -> None:
    said = "no gate to compare with yet; "
    assert f"{said}this one has not passed" in gate(4, "--against", "passed", code=1).stderr
    assert f"{said}the next --against passed has this one" in gate(40, "--against", "passed", code=0).stderr


def test_all_pairs_are_judged_where_gates_are_compared(gate: Callable[..., Done]) -> None:
    assert json.loads(gate(40, "--json", code=0).stdout)["judged"] < 40
    assert json.loads(gate(40, "--json", "--against", "last", code=0).stdout)["judged"] == 40


def test_an_undecided_gate_has_not_passed(gate: Callable[..., Done]) -> None:
    assert json.loads(gate(20, "--against", "passed", "--json", code=3).stdout)["decision"] == "undecided"
    again = gate(20, "--against", "passed", code=3)
    assert "no gate to compare with yet" in again.stderr
    assert "since_last" in json.loads(gate(20, "--against", "last", "--json", code=3).stdout)


def test_another_judge_has_no_gate_to_compare_with(gate: Callable[..., Done]) -> None:
    gate(40, "--against", "last", code=0)
    done = gate(40, "--against", "last", "--set", "temperature=0.5", code=0)
    assert "no gate to compare with yet" in done.stderr


def test_gates_without_an_instruction_in_common_say_so() -> None:
    found = since_last({1: 1.0}, {2: 1.0}, "v1")
    assert (found.difference, found.fell) == (None, False)
    assert found.sentence() == "the last gate shares no instruction with this one"
    found = since_last({1: 1.0}, {2: 1.0}, "v1", against="passed")
    assert found.sentence() == "the last gate that passed shares no instruction with this one"


# -- the workflow on the page ------------------------------------------------------------------------


def workflow() -> dict[str, Any]:
    [text] = re.findall(r"<!-- workflow -->\n```yaml\n(.*?)```", GATE_PAGE.read_text(encoding="utf-8"), re.DOTALL)
    found = yaml.safe_load(text)
    assert isinstance(found, dict)
    return found


def words_of(line: str, environment: Mapping[str, str]) -> list[str]:
    """A line of a step as a shell would cut it."""
    for name, value in environment.items():
        line = line.replace(f"${name}", value)
    assert "$" not in line
    return shlex.split(line)


@pytest.mark.parametrize(("old", "code"), [("POOR", 0), ("GOOD GOOD", 3)])
def test_the_workflow_on_the_page_runs(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, code: int
) -> None:
    job = workflow()["jobs"]["gate"]
    assert {key for step in job["steps"] for key in step} <= {"name", "uses", "run", "with", "if"}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "test")
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.setitem(presets.PRESETS, "openai", replace(presets.PRESETS["openai"], base_url=server.url))
    prompts = [f"Question {n}?" for n in range(12)]
    Path("prompts.txt").write_text("\n".join(prompts))
    Path("prompt.txt").write_text("Be good.")
    outputs = ["POOR", *[old] * 11]  # a judge that decides no pair at all would pass nobody
    rows = [{"instruction": prompt, "output": said} for prompt, said in zip(prompts, outputs, strict=True)]
    Path("old.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    environment = {**job["env"], "GITHUB_STEP_SUMMARY": str(summary)}
    lines = [line for step in job["steps"] for line in step.get("run", "").strip().splitlines()]
    ours = [words_of(line, environment) for line in lines if line.startswith("evenhand ")]
    assert [words[1] for words in ours] == ["generate", "gate"]
    evenhand(*ours[0][1:])
    done = evenhand(*ours[1][1:], code=code)
    assert ("::notice" if code == 0 else "::warning") in done.stdout
    assert summary.read_text().startswith("before\n### ")
    kept = next(step["with"]["path"] for step in job["steps"] if "artifact" in step.get("uses", ""))
    assert all(Path(name).is_file() for name in kept.split())
    assert Path(next(step["with"]["path"] for step in job["steps"] if "cache" in step.get("uses", ""))).is_file()
