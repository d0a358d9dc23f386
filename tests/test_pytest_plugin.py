"""The pytest plugin, in test suites of its own: what passes, what fails with which words, what is asked twice."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np  # before a suite inside this process does, and takes it out again: it loads only once
import pytest
import scipy.special  # so does this, with parts of numpy

from evenhand import Pair, Store
from evenhand.engines.heads.head import Head, Weights

pytest_plugins = ["pytester"]

CONFTEST = """
import pytest
import scipy.special  # so does this, with parts of numpy
from evenhand import ScriptedEngine

def script(prompt):
    text = next(turn.text for turn in reversed(prompt.turns) if "Response A" in turn.text)
    with open("asked.txt", "a") as file:
        file.write("x\\n")
    if "broken" in text:
        return "I cannot say."
    if "good" not in text or "bad" not in text:
        return {"A": 0.2, "B": 0.2, "tie": 0.6}
    first = text.index("good") < text.index("bad")
    return {"A": 0.8, "B": 0.1, "tie": 0.1} if first else {"A": 0.1, "B": 0.8, "tie": 0.1}

@pytest.fixture(scope="session")
def evenhand_judge():
    return ScriptedEngine(script, name="scripted judge")
"""


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeconftest(CONFTEST)
    return pytester


assert np.__version__
assert scipy.special


def asked(suite: pytest.Pytester) -> int:
    file = suite.path / "asked.txt"
    return len(file.read_text().splitlines()) if file.exists() else 0


def test_better_passes_and_a_second_run_asks_nothing(suite: pytest.Pytester) -> None:
    suite.makepyfile("""
        def test_one(better):
            outcome = better("good", than="bad", instruction="2 + 2?", on="correctness")
            assert outcome.side == "1"

        def test_other_dimensions_have_their_own_protocol(better, not_worse):
            better("good", than="bad", instruction="2 + 2?")
            not_worse("same", than="alike", instruction="2 + 2?", on="format")
    """)
    first = suite.runpytest()
    first.assert_outcomes(passed=2)
    first.stdout.fnmatch_lines(["evenhand: 3 pairs judged, 6 questions asked"])
    assert asked(suite) == 6
    second = suite.runpytest()
    second.assert_outcomes(passed=2)
    second.stdout.fnmatch_lines(["evenhand: 3 pairs judged, 0 questions asked"])
    assert asked(suite) == 6
    assert (suite.path / ".evenhand-pytest.db").exists()


def test_a_failure_says_what_was_judged_and_how(suite: pytest.Pytester) -> None:
    suite.makepyfile("""
        def test_worse(better):
            better("bad", than="good", instruction="Say hello.", on="overall")

        def test_tie(better):
            better("same", than="alike", instruction="Say hello.")

        def test_tie_will_do(not_worse):
            not_worse("same", than="alike", instruction="Say hello.")

        def test_broken(better):
            better("good", than="bad", instruction="broken")
    """)
    done = suite.runpytest()
    done.assert_outcomes(passed=1, failed=3)
    done.stdout.fnmatch_lines(
        [
            "*the judge does not find that the new response is better than the old one on overall*",
            "*instruction: 'Say hello.'*",
            "*new: 'bad'*",
            "*old: 'good'*",
            "*verdict: the old one is better (new 10%, old 80%, tie 10%)*",
            "*judge: scripted judge under overall; verdicts are kept in *.evenhand-pytest.db*",
            "*verdict: a tie (new 20%, old 20%, tie 60%)*",
            "*the judge gave no verdict: unreadable*",
        ]
    )
    assert "pytest_plugin.py" not in done.stdout.str()  # the traceback ends in the test


def test_an_error_ends_a_test_with_its_sentence_alone(suite: pytest.Pytester) -> None:
    suite.makepyfile("""
        def test_files(gate):
            gate(candidate="missing.jsonl", baseline="old.jsonl")

        def test_dimension(better):
            better("good", than="bad", instruction="2 + 2?", on="wit")
    """)
    done = suite.runpytest()
    done.assert_outcomes(failed=2)
    shown = done.stdout.str()
    assert "InputError: no file of outputs at missing.jsonl" in shown
    assert "InputError: no built-in protocol asks on 'wit'" in shown
    assert ".py:" in shown  # the lines of the test
    assert "join.py" not in shown
    assert "pytest_plugin.py" not in shown


def cases(path: Path, count: int, *, worse: int = 0) -> None:
    rows = [
        {
            "instruction": f"q{n}",
            "output_1": "good" if n < worse else "bad",
            "output_2": "bad" if n < worse else "good",
            "model_1": "old",
            "model_2": "new",
        }
        for n in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_gate_over_a_file_stops_when_it_is_decided(suite: pytest.Pytester) -> None:
    cases(suite.path / "cases.jsonl", 200)
    suite.makepyfile("""
        def test_new(gate):
            result = gate("cases.jsonl", margin=0.05)
            assert result.outcome == "not_worse"
            assert result.judged < 200
    """)
    done = suite.runpytest()
    done.assert_outcomes(passed=1)
    before = asked(suite)
    suite.runpytest().assert_outcomes(passed=1)
    assert asked(suite) == before


@pytest.mark.parametrize(
    "judge",
    [
        'ScriptedEngine(script, name="many at once", concurrency=64)',
        '[ScriptedEngine(script, name=name, concurrency=64) for name in ("one", "two")]',
    ],
)
def test_gate_goes_little_further_than_needed_by_a_judge_that_takes_many_at_once(
    suite: pytest.Pytester, judge: str
) -> None:
    suite.makeconftest(CONFTEST.replace('ScriptedEngine(script, name="scripted judge")', judge))
    cases(suite.path / "cases.jsonl", 200)
    suite.makepyfile("""
        def test_new(gate):
            result = gate("cases.jsonl")
            assert result.standing.pairs + result.beyond == result.judged < 30
    """)
    suite.runpytest().assert_outcomes(passed=1)
    before = asked(suite)
    second = suite.runpytest()
    second.assert_outcomes(passed=1)
    second.stdout.fnmatch_lines(["evenhand: * pairs judged, 0 questions asked"])
    assert asked(suite) == before


def test_gate_fails_with_its_numbers(suite: pytest.Pytester) -> None:
    cases(suite.path / "worse.jsonl", 200, worse=200)
    cases(suite.path / "few.jsonl", 3)
    suite.makepyfile("""
        def test_worse(gate):
            gate("worse.jsonl")

        def test_few(gate):
            gate("few.jsonl")
    """)
    done = suite.runpytest()
    done.assert_outcomes(failed=2)
    done.stdout.fnmatch_lines(
        [
            "*new is worse than old by more than 5 points*",
            "*win rate of new on overall: 0.0%, between 0.0 and *",
            "*judged pairs got worse: the response of old is the better one; the 3 clearest of them*",
            "*- * (80%) q[0-9]*",
            "*the verdicts do not yet show whether new is worse than old by more than 5 points*",
            "*pairs: 3 of 3 judged*",
        ]
    )


def test_a_name_forges_no_line_of_a_gate(suite: pytest.Pytester) -> None:
    suite.makepyfile("""
        from evenhand import Pair

        def test_worse(gate):
            gate(Pair(f"q{n}", "good", "bad", model_1="old", model_2="new\\nPASS: it") for n in range(40))
    """)
    done = suite.runpytest()
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*new PASS: it is worse than old*", "*win rate of new PASS: it on overall*"])
    done.stdout.no_re_match_line(r"^E?\s*PASS")


def test_gate_takes_outputs_and_pairs_in_memory(suite: pytest.Pytester) -> None:
    for name, said in (("new", "good"), ("old", "bad")):
        rows = [json.dumps({"instruction": f"q{n}", "output": said}) + "\n" for n in range(100)]
        (suite.path / f"{name}.jsonl").write_text("".join(rows))
    suite.makepyfile("""
        import pytest
        from evenhand import Pair

        def test_outputs(gate):
            assert gate(candidate="new.jsonl", baseline="old.jsonl").sides == ("old", "new")

        def test_memory(gate):
            gate(Pair(f"q{n}", "bad", "good") for n in range(100))

        def test_half(gate):
            gate(candidate="new.jsonl")
    """)
    done = suite.runpytest()
    done.assert_outcomes(passed=2, failed=1)
    done.stdout.fnmatch_lines(["*gate needs pairs, or a candidate and a baseline*"])


def test_settings_come_from_the_file_and_the_command_line(suite: pytest.Pytester) -> None:
    suite.makeini("[pytest]\nevenhand_protocol = chained\nevenhand_db = kept/verdicts.db\n")
    suite.makepyfile("""
        def test_one(better):
            better("good", than="bad", instruction="q", on="format")
    """)
    suite.runpytest().assert_outcomes(passed=1)
    assert asked(suite) == 8  # a chain of four questions, in both orders
    assert (suite.path / "kept" / "verdicts.db").exists()
    suite.runpytest("--evenhand-protocol", "format", "--evenhand-db", "other.db").assert_outcomes(passed=1)
    assert asked(suite) == 10
    done = suite.runpytest("--evenhand-protocol", "overall")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*overall does not ask on 'format'*"])


def test_an_unknown_dimension_is_named(suite: pytest.Pytester) -> None:
    suite.makepyfile("""
        def test_one(better):
            better("good", than="bad", instruction="q", on="beauty")
    """)
    done = suite.runpytest()
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*no built-in protocol asks on 'beauty'*"])


def test_a_suite_that_does_not_judge_is_left_alone(suite: pytest.Pytester) -> None:
    suite.makepyfile("def test_one(): pass")
    done = suite.runpytest()
    done.assert_outcomes(passed=1)
    assert not re.search(r"evenhand: \d", done.stdout.str())
    assert not (suite.path / ".evenhand-pytest.db").exists()


def test_several_judges_are_a_jury(suite: pytest.Pytester) -> None:
    suite.makeconftest(
        CONFTEST.replace(
            'return ScriptedEngine(script, name="scripted judge")',
            'return [ScriptedEngine(script, name="one"), ScriptedEngine(script, name="two")]',
        )
    )
    suite.makepyfile("""
        def test_one(better):
            assert better("good", than="bad", instruction="2 + 2?", on="correctness").side == "1"
            better("good", than="bad", instruction="2 + 2?")

        def test_worse(better):
            better("bad", than="good", instruction="2 + 2?", on="correctness")
    """)
    first = suite.runpytest()
    first.assert_outcomes(passed=1, failed=1)
    first.stdout.fnmatch_lines(["*judge: jury of one, two under correctness*"])
    first.stdout.fnmatch_lines(["evenhand: 3 pairs judged, 8 questions asked"])
    assert asked(suite) == 8
    suite.runpytest()
    assert asked(suite) == 8


def test_levels_decide_what_the_labels_of_the_database_allow(suite: pytest.Pytester) -> None:
    labelled = [Pair(f"Q{n}", "good", "bad", id=str(n), labels={"correctness": "1"}) for n in range(30)]
    with Store(suite.path / ".evenhand-pytest.db") as store:
        store.add_pairs(labelled)
    suite.makepyfile("""
        def test_one(better):
            better("good", than="bad", instruction="2 + 2?", on="correctness")
    """)
    suite.runpytest("--evenhand-agree", "0.85").assert_outcomes(passed=1)
    assert asked(suite) == 2 * 31
    few = suite.runpytest("--evenhand-agree", "0.99")
    few.stdout.fnmatch_lines(["*with your 30 labels, 99% cannot be promised whatever the judges say*"])


def test_without_a_dimension_the_headline_decides(suite: pytest.Pytester) -> None:
    """As in every command: the parts combined, where the protocol has parts."""
    suite.makepyfile("""
        def test_parts(better):
            assert better("good", than="bad", instruction="2 + 2?").dimension == "combined"

        def test_by_name(not_worse):
            not_worse("good", than="bad", instruction="2 + 2?", on="combined")
    """)
    done = suite.runpytest("--evenhand-protocol", "chained")
    done.assert_outcomes(passed=2)
    done.stdout.fnmatch_lines(["evenhand: 2 pairs judged, 8 questions asked"])


def test_one_pair_is_one_pair(suite: pytest.Pytester) -> None:
    suite.makepyfile("""
        def test_one(better):
            assert better("good", than="bad", instruction="2 + 2?").dimension == "overall"
    """)
    suite.runpytest().stdout.fnmatch_lines(["evenhand: 1 pair judged, 2 questions asked"])


# -- trained heads -----------------------------------------------------------------------------------------

ONE = 'ScriptedEngine(script, name="scripted judge")'
HEAD = """

def states(prompt):
    text = prompt.turns[-1].text
    return [float("good" in text) - float("bad" in text), 1.0]

def head():
    import numpy as np
    from evenhand.engines.heads.engine import HeadEngine
    from evenhand.engines.heads.head import Head, Weights
    weights = {name: Weights(np.array([2.0, 0.0])) for name in ("overall", "format")}
    return HeadEngine(Head("mine", "eyes", "", None, weights), ScriptedEngine(script, name="eyes", states=states))
"""
BOTH = '[head(), ScriptedEngine(script, name="one")]'


def headed(suite: pytest.Pytester, judges: str) -> None:
    """A suite with these judges in place of the scripted one."""
    suite.makeconftest(CONFTEST.replace(ONE, judges) + HEAD)


def test_a_head_sits_in_a_jury_and_each_judge_has_its_own_protocol(suite: pytest.Pytester) -> None:
    headed(suite, BOTH)
    suite.makepyfile("""
        def test_parts(better):
            assert better("good", than="bad", instruction="2 + 2?", on="format").dimension == "format"
            assert better("good", than="bad", instruction="2 + 2?").dimension == "overall"

        def test_worse(better):
            better("bad", than="good", instruction="2 + 2?", on="format")

        def test_what_the_head_has_not_learned(better):
            better("good", than="bad", instruction="2 + 2?", on="correctness")
    """)
    done = suite.runpytest()
    done.assert_outcomes(passed=1, failed=2)
    done.stdout.fnmatch_lines(
        [
            "*judge: jury of head:mine, one under several;*",
            "*head does not ask on 'correctness' (it asks on overall, format)*",
        ]
    )
    assert asked(suite) == 4  # of the model; the worse one shows the same texts as the first


def test_a_head_is_a_level(suite: pytest.Pytester) -> None:
    headed(suite, BOTH)
    keep_labelled(suite, "format")
    suite.makepyfile("""
        def test_one(better):
            better("good", than="bad", instruction="2 + 2?", on="format")
    """)
    suite.runpytest("--evenhand-agree", "0.85").assert_outcomes(passed=1)
    assert asked(suite) == 2 * 30  # the head decides what is not labelled


@pytest.mark.parametrize("judges", ["head()", BOTH, '"head:mine.json"', '"head:mine.json,one"'])
def test_a_head_takes_no_protocol(suite: pytest.Pytester, judges: str) -> None:
    headed(suite, judges)
    Head("mine", "no such model", "", None, {"overall": Weights(np.ones(2))}).save(suite.path / "mine.json")
    suite.makepyfile("""
        def test_one(better):
            better("good", than="bad", instruction="2 + 2?")
    """)
    done = suite.runpytest("--evenhand-protocol", "chained")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*a trained head is not asked anything, so it takes no protocol*evenhand_protocol*"])


# -- levels ------------------------------------------------------------------------------------------------


def keep_labelled(suite: pytest.Pytester, *dimensions: str) -> None:
    """Thirty pairs in the database of which people found the first response better."""
    labels = dict.fromkeys(dimensions, "1")
    labelled = [Pair(f"Q{n}", "good", "bad", id=str(n), labels=labels) for n in range(30)]  # type: ignore[arg-type]
    with Store(suite.path / ".evenhand-pytest.db") as store:
        store.add_pairs(labelled)


def test_levels_decide_on_the_dimension_that_is_asked_for(suite: pytest.Pytester) -> None:
    keep_labelled(suite, "format", "correctness")
    cases(suite.path / "cases.jsonl", 200)
    suite.makepyfile("""
        def test_parts(better):
            for on in ("format", "correctness", "format"):
                assert better("good", than="bad", instruction="2 + 2?", on=on).dimension == on

        def test_gate(gate):
            assert gate("cases.jsonl", on="format").standing.dimension == "format"

        def test_no_labels(better):
            better("good", than="bad", instruction="2 + 2?", on="precision")
    """)
    done = suite.runpytest("--evenhand-protocol", "chained", "--evenhand-agree", "0.85")
    done.assert_outcomes(passed=2, failed=1)
    done.stdout.fnmatch_lines(["*InputError: *precision*"])


# -- what a gate tells -------------------------------------------------------------------------------------


def test_a_gate_leaves_exact_repeats_out_of_its_numbers(suite: pytest.Pytester) -> None:
    rows = [{"id": str(n), "instruction": f"q{n % 4}", "output_1": "bad", "output_2": "good"} for n in range(8)]
    (suite.path / "twice.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    suite.makepyfile("""
        def test_twice(gate):
            gate("twice.jsonl")
    """)
    done = suite.runpytest()
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*pairs: 4 of 4 judged; 4 counted*", "*repeats: 4 exact repeats left out*"])


def test_a_gate_says_that_its_budget_is_used_up(suite: pytest.Pytester) -> None:
    cases(suite.path / "cases.jsonl", 20)
    suite.makepyfile("""
        def test_few(gate):
            gate("cases.jsonl", max_pairs=3)

        def test_all(gate):
            gate("cases.jsonl", max_pairs=20, margin=0.0)
    """)
    done = suite.runpytest()
    done.stdout.fnmatch_lines(
        ["*do not yet show whether new is worse*", "*ended: the budget of 3 pairs is used up*"]
    )
    assert "20 pairs is used up" not in done.stdout.str()


def test_a_gate_warns_of_what_is_left_out(suite: pytest.Pytester) -> None:
    for name, said, first in (("new", "good", 0), ("old", "bad", 7)):
        rows = [json.dumps({"instruction": f"q{n}", "output": said}) + "\n" for n in range(first, 100 + first)]
        (suite.path / f"{name}.jsonl").write_text("".join(rows))
    suite.makepyfile("""
        def test_outputs(gate):
            gate(candidate="new.jsonl", baseline="old.jsonl")
    """)
    done = suite.runpytest("-W", "default")
    done.assert_outcomes(passed=1, warnings=2)
    done.stdout.fnmatch_lines(
        [
            "*_left_out.py:2: CasesWarning: new has no output for 7 instructions, left out:",
            "*q100",
            "*and 2 more",
            "*CasesWarning: old has no output for 7 instructions, left out:",
        ]
    )


def test_a_gate_warns_of_what_is_to_be_said_of_its_files(suite: pytest.Pytester) -> None:
    for name, said in (("new", "good"), ("old", "bad")):
        rows: list[dict[str, object]] = [
            {"doc_id": n, "doc": {}, "arguments": [[f"q{n}", {}]], "resps": [[said]], "filter": which}
            for which in ("none", "flexible")
            for n in range(100)
        ]
        (suite.path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    suite.makepyfile("""
        def test_outputs(gate):
            gate(candidate="new.jsonl", baseline="old.jsonl")
    """)
    done = suite.runpytest("-W", "default")
    done.assert_outcomes(passed=1, warnings=1)
    done.stdout.fnmatch_lines(["*CasesWarning: the rows of filter 'flexible' repeat the answers* (200 rows)"])
