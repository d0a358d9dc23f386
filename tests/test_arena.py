"""Pairs out of models' outputs: every form that is read, what does not match, what stands twice, who meets whom."""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from command import evenhand
from evenhand.core.errors import InputError, PairError
from evenhand.core.pair import Pair
from evenhand.io.pairs import Arena, JoinOptions, join_outputs, read_pairs
from evenhand.results.plain import plain
from misbehaving_server import Server, says

Row = dict[str, Any]
Write = Callable[[str, list[Row]], Path]
PLAIN = [{"instruction": f"q{n}", "output": f"{n}"} for n in range(3)]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def put(name: str, rows: list[Row]) -> Path:
        file = tmp_path / name
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        file.write_text(json.dumps(rows) if name.endswith(".json") else lines, encoding="utf-8")
        return file

    return put


def answer(question: int, model: str, *turns: Any) -> Row:
    choices = [{"index": 0, "turns": list(turns)}]
    return {"question_id": question, "answer_id": "x", "model_id": model, "choices": choices, "tstamp": 1.5}


def texts(pairs: Any) -> list[tuple[str, str, str]]:
    return [(pair.instruction, pair.output_1, pair.output_2) for pair in pairs]


# -- forms -------------------------------------------------------------------------------------------------


def test_outputs_that_are_all_the_same_are_noted(write: Write) -> None:
    new, old = write("new.jsonl", PLAIN), write("old.jsonl", PLAIN)
    assert join_outputs(new, old).notes == {
        "candidate and baseline gave the same outputs, letter for letter": len(PLAIN)
    }
    other = write("other.jsonl", [*PLAIN[:2], {**PLAIN[2], "output": "another"}])
    assert not join_outputs(new, other).notes


def test_alpaca_eval(write: Write) -> None:
    new, old = (
        write(f"{model}.json", [{**row, "output": model, "generator": model, "dataset": "koala"} for row in PLAIN])
        for model in ("gpt", "llama")
    )
    joined = join_outputs(new, old)
    assert (len(joined), joined.unmatched, joined.candidate, joined.baseline) == (3, [], "gpt", "llama")
    first = next(iter(joined))
    assert (first.model_1, first.output_1, first.model_2, first.output_2) == ("gpt", "gpt", "llama", "llama")
    assert first.metadata == {"dataset": "koala"}


@pytest.mark.parametrize("as_content", [False, True], ids=["MT-Bench", "Arena-Hard 0.1"])
def test_answers_with_their_questions(write: Write, as_content: bool) -> None:
    def said(text: str) -> Any:
        return {"content": text, "token_len": 1} if as_content else text

    questions = write(
        "question.jsonl",
        [{"question_id": n, "category": "c", "turns": [said(f"q{n}"), said(f"more{n}")]} for n in (81, 82)],
    )
    new = write("new.jsonl", [answer(n, "new", said(f"a{n}"), said(f"b{n}")) for n in (82, 81)])
    old = write("old.jsonl", [answer(n, "old", said(f"x{n}"), said(f"y{n}")) for n in (81, 82)])
    first, second = join_outputs(new, old, JoinOptions(questions))
    assert texts([first, second]) == [("q82", "a82", "x82"), ("q81", "a81", "x81")]
    assert first.id == "82/new/old"
    later = next(iter(join_outputs(new, old, JoinOptions(questions, turn=2))))
    assert later.instruction == "[Turn 1]\nq82\n\n[Turn 2]\nmore82"
    assert later.output_1 == "[Turn 1]\na82\n\n[Turn 2]\nb82"


def test_arena_hard_2_holds_its_prompts(write: Write) -> None:
    def row(model: str) -> Row:
        turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": {"answer": model}}]
        return {"uid": "u1", "ans_id": "x", "model": model, "messages": turns, "tstamp": 1, "metadata": {}}

    assert texts(join_outputs(write("a.jsonl", [row("a")]), write("b.jsonl", [row("b")]))) == [("q", "a", "b")]


def test_csv_parquet_and_a_folder_of_datasets_meet(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("instruction,output\nq0,0\nq1,1\n")
    pq.write_table(pa.table({"instruction": ["q0", "q1"], "output": ["x", "y"]}), tmp_path / "b.parquet")
    datasets.Dataset.from_list(PLAIN).save_to_disk(str(tmp_path / "c"))
    assert texts(join_outputs(tmp_path / "a.csv", tmp_path / "b.parquet")) == [("q0", "0", "x"), ("q1", "1", "y")]
    assert texts(join_outputs(tmp_path / "b.parquet", tmp_path / "c")) == [("q0", "x", "0"), ("q1", "y", "1")]


def test_an_input_is_part_of_the_instruction(write: Write) -> None:
    rows = [
        {"instruction": "Add.", "input": "2, 2", "output": "4"},
        {"instruction": "Hi", "input": "", "output": "x"},
    ]
    asked = [pair.instruction for pair in join_outputs(write("a.jsonl", rows), write("b.jsonl", rows))]
    assert asked == ["Add.\n\n2, 2", "Hi"]


# -- names -------------------------------------------------------------------------------------------------


def test_names_come_from_the_rows_the_option_or_the_file(write: Write) -> None:
    named = [{**row, "model": "gpt"} for row in PLAIN]
    new, old, other = write("new.jsonl", PLAIN), write("old.jsonl", PLAIN), write("named.jsonl", named)

    def names(candidate: Any, baseline: Any) -> tuple[str, str]:
        joined = join_outputs(candidate, baseline)
        return joined.candidate, joined.baseline

    assert names(new, old) == ("new", "old")
    assert names(other, old) == ("gpt", "old")
    assert names(f"mine={other}", old) == ("mine", "old")
    assert names(other, write("again.jsonl", named)) == ("named", "again")
    assert names(new, new) == ("new (candidate)", "new (baseline)")


def test_several_models_in_one_file_are_for_the_arena(write: Write) -> None:
    both = write("both.jsonl", [{**PLAIN[0], "model": "a"}, {**PLAIN[1], "model": "b"}])
    with pytest.raises(InputError, match=r"outputs of several models: a, b \(evenhand arena"):
        join_outputs(both, write("old.jsonl", PLAIN))


# -- what does not fit -------------------------------------------------------------------------------------


def test_what_does_not_match_is_counted_and_named(write: Write) -> None:
    joined = join_outputs(
        write("new.jsonl", PLAIN[:2]), write("old.jsonl", [*PLAIN[1:], {**PLAIN[0], "instruction": "z"}])
    )
    assert texts(joined) == [("q1", "1", "1")]
    assert plain(joined.unmatched) == [
        {"model": "new", "count": 2, "first": ["q2", "z"]},
        {"model": "old", "count": 1, "first": ["q0"]},
    ]


def test_ten_times_as_many_outputs_take_no_more_memory(tmp_path: Path) -> None:
    def peak(n: int) -> int:
        new, old = tmp_path / f"new{n}.jsonl", tmp_path / f"old{n}.jsonl"
        for file in (new, old):
            rows = ({"instruction": f"Question {i}", "output": f"{file.stem} says {i}"} for i in range(n))
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        gc.collect()  # what other tests left, so that it is not taken away in the middle
        tracemalloc.start()
        joined = join_outputs(new, old)
        assert sum(1 for _ in joined) == n
        assert not joined.unmatched
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(10)  # what is loaded once
    assert peak(10_000) < 1.5 * peak(1_000)


def test_nothing_that_matches_is_an_error(write: Write) -> None:
    other = write("old.jsonl", [{"instruction": "Q0", "output": "x"}])
    with pytest.raises(InputError, match=r"no instruction of .*new\.jsonl is in .*old\.jsonl .*letter for letter"):
        join_outputs(write("new.jsonl", PLAIN), other)


def test_a_duplicate_is_an_error_that_says_which(write: Write) -> None:
    new = write("new.jsonl", [*PLAIN, {"instruction": "q1", "output": "again"}])
    with pytest.raises(PairError, match=r"new\.jsonl:4: new has an output for .* already, at line 2: 'q1'"):
        join_outputs(new, write("old.jsonl", PLAIN))


def test_equal_instructions_can_be_joined_on_another_field(write: Write) -> None:
    rows = [{"id": n, "instruction": "same", "output": str(n)} for n in range(3)]
    files = write("new.jsonl", rows), write("old.jsonl", rows[::-1])
    with pytest.raises(PairError, match="has an output for this instruction already"):
        join_outputs(*files)
    joined = join_outputs(*files, JoinOptions(join_on="id"))
    assert [(pair.id, pair.output_1, pair.output_2) for pair in joined] == [
        (f"{n}/new/old", str(n), str(n)) for n in range(3)
    ]
    with pytest.raises(PairError, match=r"new\.jsonl:1: no field 'uid' to join on"):
        join_outputs(*files, JoinOptions(join_on="uid"))


# what is wrong: rows of the candidate, the line at fault, words of fault and remedy
BAD: dict[str, tuple[list[Row], int, str]] = {
    "a refusal": (
        [PLAIN[0], {"instruction": "q1", "output": None}],
        2,
        "field 'output' is null: the model gave no",
    ),
    "no output": ([{"instruction": "q1"}], 1, "no field 'output' (expected instruction and output"),
    "a list": ([{"instruction": "q1", "output": ["x"]}], 1, "field 'output' is of type list, not text"),
    "mixed": ([PLAIN[0], answer(81, "m", "x")], 2, "this row has 'choices', the rows before it have 'output'"),
    "a pair": (
        [{"instruction": "q", "output_1": "x", "output_2": "y"}],
        1,
        "this is a pair, not one model's output",
    ),
    "a service that failed": (
        [{"instruction": "q", "output": "$ERROR$"}],
        1,
        "$ERROR$: the service gave no answer",
    ),
    "no questions": ([answer(81, "m", "x")], 1, "give the questions' file with --questions"),
    "no choice": ([{"question_id": 1, "choices": []}], 1, "field 'choices' holds no choice"),
    "no turn": ([answer(81, "m")], 1, "field 'choices[0].turns' holds no turns"),
    "a null turn": ([answer(81, "m", None)], 1, "field 'choices[0].turns[0]' is null"),
    "no object": ([["q"]], 1, "the line is not a JSON object"),  # type: ignore[list-item]
}


@pytest.mark.parametrize(("rows", "line", "fault"), BAD.values(), ids=BAD.keys())
def test_a_fault_says_file_row_field_and_remedy(write: Write, rows: list[Row], line: int, fault: str) -> None:
    new, old = write("new.jsonl", rows), write("old.jsonl", PLAIN)
    for sides in ((new, old), (old, new)):
        with pytest.raises(PairError) as caught:
            join_outputs(*sides)
        assert (caught.value.file, caught.value.line) == (str(new), line)
        assert fault in str(caught.value)
    with pytest.raises(PairError):
        Arena([old, new])


def test_bad_rows_can_be_left_out_and_are_counted(write: Write) -> None:
    new = write("new.jsonl", [PLAIN[0], {"instruction": "q1", "output": None}, PLAIN[2]])
    joined = join_outputs(new, write("old.jsonl", PLAIN), JoinOptions(skip_bad=True))
    assert (len(joined), len(joined.bad)) == (2, 1)
    assert plain(joined.unmatched[0]) == {"model": "new", "count": 1, "first": ["q1"]}


@pytest.mark.parametrize("content", [b"", b"\n", b'{"instruction": "caf\xe9", "output": "x"}\n'])
def test_an_empty_file_and_one_that_is_not_utf8(write: Write, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "new.jsonl").write_bytes(content)
    with pytest.raises(
        PairError, match=r"new\.jsonl: no outputs in this file|new\.jsonl:1: not UTF-8 at byte \d+ \(.*iconv"
    ):
        join_outputs(tmp_path / "new.jsonl", write("old.jsonl", PLAIN))


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        (
            [{"question_id": 81, "turns": ["q"]}, {"question_id": 81, "turns": ["r"]}],
            ":2: question '81' appears twice",
        ),
        ([{"question_id": 81}], ":1: field 'turns' holds no turns"),
        ([{"question_id": 80, "turns": ["q"]}], "question '81' is not in"),
        ([], "no questions in this file"),
    ],
)
def test_faults_of_the_questions(write: Write, rows: list[Row], fault: str) -> None:
    new, questions = write("new.jsonl", [answer(81, "m", "x")]), write("question.jsonl", rows)
    with pytest.raises(PairError) as caught:
        join_outputs(new, new, JoinOptions(questions))
    assert fault in str(caught.value)


def test_a_turn_that_is_not_there(write: Write) -> None:
    questions = write("question.jsonl", [{"question_id": 81, "turns": ["q", "r"]}])
    new = write("new.jsonl", [answer(81, "m", "x")])
    with pytest.raises(PairError, match=r"new\.jsonl:1: field 'choices\[0\]\.turns' has 1 turns, not 2"):
        join_outputs(new, new, JoinOptions(questions, turn=2))


# -- many models -------------------------------------------------------------------------------------------


@pytest.fixture
def four(write: Write) -> list[Path]:
    return [
        write(f"{model}.jsonl", [{**row, "output": f"{model}{row['output']}"} for row in PLAIN]) for model in "abcd"
    ]


def meetings(pairs: Any) -> Counter[tuple[str, str]]:
    return Counter((pair.model_1, pair.model_2) for pair in pairs)


def met(pairs: Any) -> Counter[tuple[str, ...]]:
    """Who met whom, on whichever side."""
    return Counter(tuple(sorted((pair.model_1, pair.model_2))) for pair in pairs)


def test_all_against_all(four: list[Path]) -> None:
    arena = Arena(four)
    assert len(arena) == len(list(arena)) == 18
    assert met(arena) == dict.fromkeys(combinations("abcd", 2), 3)
    assert len({pair.id for pair in arena}) == 18


def test_a_side_of_an_arena_is_not_the_later_file(write: Write) -> None:
    """Checkpoints are listed from first to last: if the last one were always side 2, so would be the better."""
    rows = [{"instruction": f"q{number}", "output": "x"} for number in range(40)]
    files = [write(f"step-{step}.jsonl", rows) for step in range(1, 7)]
    arena = list(Arena(files))
    later = sum(pair.model_2 > pair.model_1 for pair in arena)
    assert 0.44 < later / len(arena) < 0.56, "600 pairs: three standard errors of a coin"
    for one, two in combinations([f"step-{step}" for step in range(1, 7)], 2):
        assert {(one, two), (two, one)} <= set(meetings(arena)), "each meets each other on both sides"


def test_the_order_of_the_files_changes_no_pair(four: list[Path]) -> None:
    def pairs(files: list[Path]) -> set[tuple[str, str]]:
        return {(pair.id, pair.key) for pair in Arena(files)}

    assert pairs(four) == pairs(four[::-1])
    assert pairs(four[:3]) < pairs([four[3], *four[:3]]), "nor does another model"


def test_two_models_meet_as_among_many(four: list[Path]) -> None:
    """Else the order of two files, or a third model later, would have their pairs judged and counted again."""
    two = {(pair.id, pair.key) for pair in Arena(four[:2])}
    assert two == {(pair.id, pair.key) for pair in Arena(four[1::-1])}
    assert two < {(pair.id, pair.key) for pair in Arena(four[:3])}


def test_against_a_baseline(four: list[Path]) -> None:
    assert meetings(Arena(four, baseline="b")) == dict.fromkeys([("a", "b"), ("c", "b"), ("d", "b")], 3)
    with pytest.raises(InputError, match=r"no outputs of the baseline 'x' \(the models are a, b, c, d\)"):
        Arena(four, baseline="x")


def test_models_that_answer_alike_are_told_apart(write: Write) -> None:
    arena = Arena([write(f"{model}.jsonl", PLAIN[:1]) for model in "abc"])
    assert len({pair.id for pair in arena}) == 3


def test_several_models_in_one_file(write: Write) -> None:
    rows = [{**row, "model": model} for row in PLAIN for model in ("a", "b")]
    assert met(Arena([write("all.jsonl", rows)])) == {("a", "b"): 3}


def test_one_model_is_no_arena(write: Write) -> None:
    with pytest.raises(InputError, match="only outputs of a were found"):
        Arena([write("a.jsonl", PLAIN)])


def test_two_files_of_one_model_are_named_with_both_places(write: Write) -> None:
    one, two = (write(name, [{**row, "model": "m"} for row in PLAIN]) for name in ("one.jsonl", "two.jsonl"))
    with pytest.raises(PairError, match=r"two\.jsonl:1: m has an output for .* already, at .*one\.jsonl, line 1"):
        Arena([one, two])
    assert Arena([f"x={one}", f"y={two}"]).models == ("x", "y")


def test_missing_outputs_are_counted_by_model(write: Write) -> None:
    arena = Arena([write("a.jsonl", PLAIN), write("b.jsonl", PLAIN[:2]), write("c.jsonl", PLAIN[1:])])
    assert met(arena) == {("a", "b"): 2, ("a", "c"): 2, ("b", "c"): 1}
    assert [(each.model, each.count, each.first) for each in arena.unmatched] == [
        ("b", 1, ("q2",)),
        ("c", 1, ("q0",)),
    ]


def test_joined_on_an_id_the_instructions_must_be_the_same(write: Write) -> None:
    a = write("a.jsonl", [{"id": 1, "instruction": "q", "output": "x"}])
    b = write("b.jsonl", [{"id": 1, "instruction": "other", "output": "x"}])
    with pytest.raises(
        PairError, match=r"b\.jsonl:1: its instruction is not the one under the same id at .*a\.jsonl, line 1"
    ):
        Arena([a, b], reading=JoinOptions(join_on="id"))


def connected(models: Any, pairs: Any) -> bool:
    group = {model: {model} for model in models}
    for pair in pairs:
        one, two = group[pair.model_1], group[pair.model_2]
        for model in two:
            group[model] = one
        one |= two
    return len({id(each) for each in group.values()}) == 1


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 6), st.integers(1, 5), st.data())
def test_what_is_drawn_reaches_every_model(
    tmp_path_factory: pytest.TempPathFactory, models: int, asked: int, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("arena")
    files = []
    for model in range(models):
        rows = [{"instruction": f"q{n}", "output": "x"} for n in range(asked) if n == 0 or data.draw(st.booleans())]
        files.append(folder / f"m{model}.json")
        files[-1].write_text(json.dumps(rows))
    every = {pair.id for pair in Arena(files)}
    size = data.draw(st.integers(models - 1, max(models - 1, len(every))))
    seed = data.draw(st.integers(0, 3))
    drawn = list(Arena(files, size=size, seed=seed))
    assert len(drawn) == len({pair.id for pair in drawn}) == min(size, len(every))
    assert {pair.id for pair in drawn} <= every
    assert connected([file.stem for file in files], drawn)
    assert [pair.id for pair in Arena(files, size=size, seed=seed)] == [pair.id for pair in drawn]


def test_every_pair_is_drawn_sooner_or_later_and_seeds_differ(four: list[Path]) -> None:
    draws = [frozenset(pair.id for pair in Arena(four, size=5, seed=seed)) for seed in range(40)]
    assert len(set(draws)) > 30
    assert frozenset().union(*draws) == {pair.id for pair in Arena(four)}


def test_too_few_pairs_and_islands_are_refused(four: list[Path], write: Write) -> None:
    with pytest.raises(InputError, match=r"2 pairs cannot connect 4 models \(draw at least 3\)"):
        Arena(four, size=2)
    other = [write(f"{m}.jsonl", [{"instruction": f"z{n}", "output": m} for n in range(3)]) for m in "xy"]
    with pytest.raises(InputError, match=r"the models cannot be connected: a, b, c, d; x, y"):
        Arena([*four, *other], size=10)


# -- the commands ------------------------------------------------------------------------------------------


@pytest.fixture
def judge(loop: Any) -> Iterator[str]:
    """A judge on loopback that always prefers what is shown first a little."""
    top = [("A", {"A": 0.6, "B": 0.3, "tie": 0.1})]
    server = Server(says("A", tops=top))
    loop.run(server.__aenter__())
    yield f"{server.url}#judge"
    loop.run(server.__aexit__())


def test_judge_joins_two_models(write: Write, tmp_path: Path, judge: str) -> None:
    new = write("new.jsonl", [{**row, "output": "better"} for row in PLAIN[:2]])
    old = write("old.json", PLAIN[1:])
    words: list[str | Path] = [
        "judge",
        "--candidate",
        new,
        "--baseline",
        old,
        "-j",
        judge,
        "--db",
        tmp_path / "e.db",
        "--json",
    ]
    done = evenhand(*words)
    fields = json.loads(done.stdout)
    assert (fields["pairs"], fields["sides"], fields["asked"]) == (1, {"1": "new", "2": "old"}, 8)
    assert fields["unmatched"][0] == {"model": "new", "count": 1, "first": ["q2"]}
    assert "new has no output for 1 instruction, left out:\n  q2" in done.stderr
    assert json.loads(evenhand(*words).stdout)["asked"] == 0


def test_judge_reads_outputs_from_standard_input(
    write: Write, tmp_path: Path, judge: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenhand.io.files.finding._SPILLED", {})
    lines = "".join(json.dumps(row) + "\n" for row in PLAIN)
    old = write("old.jsonl", PLAIN)
    words: list[str | Path] = [
        "judge",
        "--candidate",
        "-",
        "--baseline",
        old,
        "-j",
        judge,
        "--db",
        tmp_path / "e.db",
        "--json",
    ]
    assert json.loads(evenhand(*words, stdin=lines).stdout)["sides"] == {"1": "stdin", "2": "old"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "nothing to judge"),
        (["--candidate", "a.jsonl"], "no --baseline"),
        (["--baseline", "a.jsonl"], "no --candidate"),
        (["p.jsonl", "--candidate", "a", "--baseline", "b"], "PAIRS and --candidate are two ways"),
        (["--candidate", "a.jsonl", "--baseline", "b.jsonl"], "no file of outputs at a.jsonl"),
    ],
)
def test_judge_refuses_half_a_question(words: list[str], said: str) -> None:
    assert said in evenhand("judge", *words, code=2).stderr


def test_nothing_is_judged_by_half(write: Write, tmp_path: Path, judge: str) -> None:
    new = write("new.jsonl", [*PLAIN[:2], {"instruction": "q2", "output": None}])
    words: list[str | Path] = ["judge", "--candidate", new, "--baseline", write("old.jsonl", PLAIN), "-j", judge]
    done = evenhand(*words, "--db", tmp_path / "e.db", code=2)
    assert f"{new}:3: field 'output' is null" in done.stderr
    assert "hint:" in done.stderr
    assert not (tmp_path / "e.db").exists()


def test_arena_judges_or_writes(four: list[Path], tmp_path: Path, judge: str) -> None:
    out = tmp_path / "pairs.jsonl.gz"
    fields = json.loads(evenhand("arena", *four, "--size", "7", "--seed", "3", "--out", out, "--json").stdout)
    assert (fields["pairs"], fields["possible"], fields["models"]) == (7, 18, list("abcd"))
    written = list(read_pairs(out))
    assert [pair.id for pair in written] == [pair.id for pair in Arena(four, size=7, seed=3)]
    assert all(isinstance(pair, Pair) and pair.model_1 for pair in written)
    parquet = tmp_path / "pairs.parquet"
    evenhand("arena", *four, "--baseline", "d", "--out", parquet)
    assert meetings(read_pairs(parquet)) == dict.fromkeys([("a", "d"), ("b", "d"), ("c", "d")], 3)
    question = ["-j", judge, "--db", str(tmp_path / "e.db"), "--json"]
    judged = evenhand("arena", *four, "--size", "7", "--seed", "3", *question)
    assert json.loads(judged.stdout)["asked"] == 56
    again = evenhand("judge", out, *question)
    assert json.loads(again.stdout)["asked"] == 0


def test_pairs_are_not_written_as_csv(four: list[Path], tmp_path: Path) -> None:
    for name in ("pairs.csv", "pairs.CSV", "pairs.csv.gz"):
        assert "not written as CSV" in evenhand("arena", *four, "--out", tmp_path / name, code=2).stderr
    evenhand("arena", *four, "--out", tmp_path / "pairs.csv.jsonl")
    assert len(list(read_pairs(tmp_path / "pairs.csv.jsonl"))) == 18


def test_parquet_keeps_what_else_the_rows_say(write: Write, tmp_path: Path) -> None:
    rows = [{**row, "topic": "sums", "level": 2, "labels_of": {"a": 1}} for row in PLAIN]
    files = [write(f"{name}.jsonl", [{**row, "output": f"{name}{row['output']}"} for row in rows]) for name in "ab"]
    for name in ("p.jsonl", "p.parquet"):
        evenhand("arena", *files, "--out", tmp_path / name)
    plain, columns = (list(read_pairs(tmp_path / name)) for name in ("p.jsonl", "p.parquet"))
    assert plain[0].metadata == {"topic": "sums", "level": 2, "labels_of": {"a": 1}}
    assert [pair.metadata for pair in columns] == [{**pair.metadata, "labels_of": '{"a":1}'} for pair in plain]
    assert [pair.texts for pair in columns] == [pair.texts for pair in plain]
