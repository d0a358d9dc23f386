"""What the page asks of the database: the overview, lists, one pair, annotation by people."""

from __future__ import annotations

import json
import threading
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from command import evenhand
from evenhand import Judge, Pair, ScriptedEngine
from evenhand.core.errors import InputError
from evenhand.core.pair import Side
from evenhand.core.verdict import found_on
from evenhand.results.pair_outcome import outcomes_from, pick_outcomes
from evenhand.results.plain import plain
from evenhand.results.summary import summarise
from evenhand.store import Conflict, HumanLabel, OutcomeLine, Store, View
from evenhand.store.pages import ONLY, SORTS, Only
from evenhand.store.words import WordIndex
from evenhand.views.web.outcome_view import outcome_views
from evenhand.views.web.overview import models_overview, overview
from web_server import asks_yes_or_no, fill, plain_pairs

DIMENSIONS = ["precision", "correctness", "format", "overall"]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("web") / "evenhand.db"
    alike = [
        replace(pair, instruction=pair.instruction[:17], id=f"{pair.id} alike") for pair in plain_pairs(40)[20:]
    ]
    again = [replace(pair, id=f"{pair.id} again") for pair in plain_pairs(4)]
    pairs = [*alike, *plain_pairs(60), Pair("unreadable", "x", "y", id="broken"), *again]
    fill(path, pairs, ("chained", "overall"))
    fill(path, pairs[:20], ("overall",), name="another")
    with Store(path) as store:
        key = pairs[1].key
        sides: tuple[Side, ...] = ("2", "2", "1")
        store.labels.add([HumanLabel(key, "overall", who, side) for who, side in zip("abc", sides, strict=True)])
    return path


@pytest.fixture
def store(filled: Path) -> Any:
    with Store(filled) as store:
        yield store


# -- the overview ----------------------------------------------------------------------------------


def test_the_overview_is_the_results(store: Store) -> None:
    """To the last figure: intervals, clusters, expected rates, what is left at equal length."""
    for item in overview(store):
        theirs = summarise(store.blocks(item.judge), found_on(item.judge.dimensions))
        assert plain(item.summary) == plain(theirs)
        for name, found in item.summary.dimensions.items():
            assert found.clusters < found.n, "pairs that share an instruction are one cluster"
            assert item.biases[name].position_bias.value == found.position_bias
            assert item.biases[name].flips.value == pytest.approx(found.inconsistent / found.n)


def test_biases_and_matches_are_those_of_the_report(filled: Path, store: Store) -> None:
    given = {
        judge["fingerprint"]: judge
        for judge in json.loads(evenhand("report", "--db", str(filled), "--json").stdout)["judges"]
    }
    for item in overview(store):
        theirs = given[item.judge.fingerprint]
        assert as_json(item.summary.dimensions) == theirs["dimensions"]
        assert as_json(item.biases) == theirs["effects"]
        found = models_overview(store, item.judge, theirs["decides"])
        assert as_json(found.ranking) == theirs["ranking"]
        assert found.ranking is not None
        assert set(found.ranking.win_matrix.models) == {"alpha", "beta", "gamma"}


def as_json(results: Any) -> Any:
    return json.loads(json.dumps(plain(results)))


def test_no_ranking_is_told_with_its_reason(db: Path) -> None:
    fill(db, [Pair("Hi", "x", "y")])
    with Store(db) as store:
        found = models_overview(store, store.judges()[0], "overall")
    assert found.ranking is None
    assert found.why == "none of 1 pair names two different models"


def test_a_judge_that_always_says_yes_has_no_position_bias(db: Path) -> None:
    """Yes/no questions are about one response: there is no place to favour, and nothing that can flip."""
    engine = ScriptedEngine(lambda prompt: "yes" if asks_yes_or_no(prompt) else "A", name="yes")
    with Judge(engine, "weighed", db=db) as judge:
        list(judge.judge(plain_pairs(6)))
    with Store(db) as store:
        [item] = overview(store)
        pair = store.pages.pair(1)
        assert pair is not None
        judgment = store.judgment(item.judge, 1, pair)
        assert judgment is not None
        views = {
            view.dimension: view
            for view in outcome_views(judgment, outcomes_from(store.pages.outcomes(item.judge.id, 1)))
        }
    alone, overall = item.summary.dimensions["good_1"], item.summary.dimensions["overall"]
    assert (alone.position_bias, alone.inconsistent, alone.ties) == (None, 0, 6)
    assert item.biases["good_1"].flips.value is None
    assert (overall.position_bias, overall.inconsistent) == (1.0, 6), "always A"
    outcome = views["good_1"].outcome
    assert outcome is not None
    assert (outcome.side, outcome.inconsistent, outcome.pointwise) == ("tie", False, True)
    assert {said.word for said in views["good_1"].orders.values()} == {"yes"}
    assert views["overall"].outcome is not None
    assert views["overall"].outcome.inconsistent


def test_pairs_that_are_not_finished_are_told(db: Path) -> None:
    fill(db, plain_pairs(3))
    with Store(db) as store:
        [judge] = store.judges()
        pair = Pair("Late", "x", "y", id="late")
        store.enter(judge.id, 1, [(pair, {"forward": "key of the late one"})])
        [item] = overview(store)
        assert (item.summary.pairs, item.summary.unfinished) == (3, 1)
        assert store.pages.outcomes(judge.id, 4) == []


LETTERS = st.text(st.sampled_from("aAbßÉé%_\\\"' \u0130ſ\x00\n漢"), max_size=12)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(LETTERS, LETTERS, LETTERS), min_size=1, max_size=6), st.lists(LETTERS, max_size=8))
def test_an_index_finds_what_reading_everything_finds(texts: list[tuple[str, str, str]], sought: list[str]) -> None:
    """Also while it knows only some of the pairs, and of texts that it cannot tell of."""
    with Store(":memory:") as store, WordIndex() as words:
        store.add_pairs(Pair(*three, id=f"Aab {n}") for n, three in enumerate(texts))
        pieces = [*sought, "aab", texts[0][0][1:5], texts[-1][2][:4]]
        plain = {text: store.pages.all_pairs(text) for text in pieces}
        for _ in range(2):
            store.pages.words, store.pages._sought = words, None
            assert {text: store.pages.all_pairs(text) for text in pieces} == plain
            store.pages.teach(words)
        assert words.last == len(texts)
        store.add_pairs([Pair("aab later", "x", "y", id="later")])
        assert store.pages.all_pairs("aab")[0] == plain["aab"][0] + 1


def test_an_index_that_is_gone_is_not_missed(tmp_path: Path) -> None:
    fill(tmp_path / "evenhand.db", plain_pairs(5))
    with Store(tmp_path / "evenhand.db") as store:
        store.pages.words = words = WordIndex()
        assert store.pages.teach(words) == 5
        folder = Path(words.path).parent
        assert folder.exists()
        assert store.pages.all_pairs("number 3")[0] == 1
        words.close()
        assert not folder.exists()
        assert store.pages.all_pairs("number 4")[0] == 1
        assert store.pages.teach(words) == 0


def test_every_outcome_is_the_pooled_one(store: Store) -> None:
    for judge in store.judges():
        rows = {row.pair: row for row in store.pages.rows(View(judge.id, "overall"), size=1000)}
        assert len(rows) == judge.pairs
        picked = pick_outcomes(store.blocks(judge), rows)
        for number, row in rows.items():
            pair = store.pages.pair(number)
            assert pair is not None
            judgment = store.judgment(judge, number, pair)
            assert judgment is not None
            pooled = judgment["overall"]
            assert (row.side, row.inconsistent, row.invalid) == (pooled.side, pooled.inconsistent, pooled.invalid)
            assert row.p == pooled.p
            assert (row.length_1, row.length_2) == (len(pair.output_1), len(pair.output_2))
            assert picked[number] == outcomes_from(store.pages.outcomes(judge.id, number))
            found = picked[number]["overall"]
            assert (found.side, found.p, found.reason) == (pooled.side, pooled.p, pooled.invalid)
            assert (found.forward, found.swapped) == (pooled.side_in("forward"), pooled.side_in("swapped"))


def test_what_a_run_writes_is_in_the_lists(db: Path) -> None:
    with Store(db) as store:
        before = store.pages.version()
        fill(db, plain_pairs(3))
        assert store.pages.count(View(1, "overall")) == 3
        assert store.pages.version() != before
        between = store.pages.version()
        assert store.pages.version() == between
        fill(db, plain_pairs(5))
        assert store.pages.count(View(1, "overall")) == 5
        assert store.pages.version() != between


def test_what_people_say_is_in_the_lists(db: Path) -> None:
    pairs = plain_pairs(2)
    fill(db, pairs)
    with Store(db) as store:
        view = View(1, "overall", only=("with_people",))
        assert [row.name for row in store.pages.rows(view)] == ["pair-0000"], "the label of its file"
        store.labels.add([HumanLabel(pairs[1].key, "overall", "ann", "tie")])
        assert {row.name: row.known for row in store.pages.rows(view)} == {"pair-0000": "1", "pair-0001": "tie"}
        store.labels.remove(pairs[1].key, "ann")
        assert store.pages.count(view) == 1


# -- lists -----------------------------------------------------------------------------------------


def naive(store: Store, view: View) -> list[OutcomeLine]:
    """Every row of the judge and dimension, filtered and sorted in plain Python."""

    whole = store.pages.rows(View(view.judge, view.dimension), size=10_000)
    first: dict[Any, int] = {}  # of exact repeats: a valid one, and of those the first
    for row in sorted(whole, key=lambda row: (row.side is None, row.pair)):
        pair = store.pages.pair(row.pair)
        assert pair is not None
        first.setdefault((pair.key, pair.model_1, pair.model_2), row.pair)

    def fits(row: OutcomeLine) -> bool:
        pair = store.pages.pair(row.pair)
        assert pair is not None
        gap = row.length_1 - row.length_2
        winner = {"1": gap, "2": -gap}.get(row.side or "", 0)
        checks: dict[Only, bool] = {
            "inconsistent": row.inconsistent,
            "invalid": row.side is None,
            "against_people": row.known is not None and row.side is not None and row.known != row.side,
            "with_people": row.known is not None,
            "against_judges": row.split,
            "once": row.pair in first.values(),
            "as_it_was": "attack_of" not in pair.metadata,
        }
        texts = (pair.id, pair.instruction, pair.output_1, pair.output_2)
        return (
            (view.side is None or row.side == view.side)
            and all(checks[only] for only in view.only)
            and (not view.text or any(view.text.lower() in text.lower() for text in texts))
            and {"": True, "1": gap > 0, "2": gap < 0, "winner": winner > 0, "loser": winner < 0}[view.longer]
            and abs(gap) >= view.gap
            and all(
                str(pair.metadata.get(name)) == value or (name == "model" and value in (pair.model_1, pair.model_2))
                for name, value in view.fields
            )
        )

    def uncertainty(row: OutcomeLine) -> float:
        return -1.0 if row.uncertainty is None else row.uncertainty

    orders: dict[str, Any] = {
        "uncertain": lambda row: (-uncertainty(row), -row.pair),
        "sure": lambda row: (2.0 if row.uncertainty is None else row.uncertainty, row.pair),
        "entry": lambda row: row.pair,
        "gap": lambda row: (-abs(row.length_1 - row.length_2), -row.pair),
    }
    return sorted(filter(fits, whole), key=orders[view.sort])


views = st.builds(
    View,
    judge=st.sampled_from([1, 2, 3]),
    dimension=st.just("overall"),
    side=st.sampled_from([None, None, "1", "2", "tie"]),
    only=st.lists(st.sampled_from(ONLY), max_size=2, unique=True).map(tuple),
    text=st.sampled_from(["", "", "SPIDER", "number 1", "100%", "_", "zz"]),
    longer=st.sampled_from(["", "", "1", "2", "winner", "loser"]),
    gap=st.sampled_from([0, 0, 5, 20]),
    fields=st.sampled_from([(), (("topic", "maths"),), (("model", "beta"), ("level", "1")), (("none", "x"),)]),
    sort=st.sampled_from(SORTS),
)


@given(view=views, size=st.integers(1, 9))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_lists_are_what_plain_python_makes_of_them(store: Store, view: View, size: int) -> None:
    expected = [row.pair for row in naive(store, view)]
    assert store.pages.count(view) == len(expected)
    pages = -(-len(expected) // size)
    listed = [row.pair for page in range(1, pages + 1) for row in store.pages.rows(view, page, size)]
    assert listed == expected
    for before, after in pairwise(expected):
        assert store.pages.place(view, before).after == after
        assert store.pages.place(view, after).before == before
    for number, pair in enumerate(expected[:3], 1):
        assert store.pages.place(view, pair).number == number
    if expected:
        assert store.pages.place(view, expected[0]).before is None
        assert store.pages.place(view, expected[-1]).after is None


def test_a_pair_outside_a_view_has_no_number_in_it(store: Store) -> None:
    outside = store.pages.rows(View(1, "overall", only=("invalid",)))[0].pair
    place = store.pages.place(View(1, "overall", side="1"), outside)
    assert place.number is None
    assert place.of == store.pages.count(View(1, "overall", side="1"))


def test_fields_with_few_values_are_listed(store: Store) -> None:
    assert store.pages.fields()["topic"] == ["maths", "zoology"]
    assert store.pages.fields(most=1)["topic"] == []


def test_the_overview_has_every_judge_the_newest_first(store: Store) -> None:
    assert [(item.judge.model, item.judge.protocol) for item in overview(store)] == [
        ("another", "overall"),
        ("scripted", "overall"),
        ("scripted", "chained"),
    ]
    assert list(overview(store)[-1].summary.dimensions) == [*DIMENSIONS, "combined"]


# -- annotation -----------------------------------------------------------------------------------


@pytest.fixture
def labelled(db: Path) -> Any:
    fill(db, plain_pairs(30))
    with Store(db) as store:
        yield store


def seat(store: Store, name: str, *, seed: int = 1, count: int = 10, shared: int = 4, **more: Any) -> None:
    store.annotation.invite(name, dimensions=more.pop("dimensions", ["overall"]), seed=seed)
    store.annotation.assign(name, count=count, shared=shared, **more)


def keys(store: Store, name: str, *, shared: bool | None = None) -> list[str]:
    who = store.annotation.annotator(name)
    assert who is not None
    tasks = [store.annotation.task(name, place) for place in range(1, who.tasks + 1)]
    return [task.pair for task in tasks if task and shared in (None, task.shared)]


def test_a_link_is_known_by_its_hash_alone(labelled: Store, db: Path) -> None:
    secret = labelled.annotation.invite("ann", dimensions=["overall"])
    assert labelled.annotation.who(secret) == labelled.annotation.annotator("ann")
    assert secret.encode() not in db.read_bytes() + Path(f"{db}-wal").read_bytes()
    assert labelled.annotation.who(labelled.annotation.renew("ann")) is not None
    assert labelled.annotation.who(secret) is None


@pytest.mark.parametrize("name", ["", "  ", "x" * 81])
def test_an_annotator_needs_a_name(labelled: Store, name: str) -> None:
    with pytest.raises(InputError, match="name"):
        labelled.annotation.invite(name, dimensions=["overall"])


def test_two_of_one_name_are_refused(labelled: Store) -> None:
    labelled.annotation.invite("ann", dimensions=["overall"])
    with pytest.raises(InputError, match="already"):
        labelled.annotation.invite("ann", dimensions=["overall"])


def test_shared_pairs_are_shared_and_the_others_are_not(labelled: Store) -> None:
    for seed, name in enumerate(("ann", "ben", "cid")):
        seat(labelled, name, seed=seed)
    shared = [set(keys(labelled, name, shared=True)) for name in ("ann", "ben", "cid")]
    own = [set(keys(labelled, name, shared=False)) for name in ("ann", "ben", "cid")]
    assert shared[0] == shared[1] == shared[2]
    assert len(shared[0]) == 4
    assert not own[0] & own[1]
    assert not own[0] & own[2]
    assert keys(labelled, "ann") != sorted(keys(labelled, "ann"))


def test_each_has_their_own_order_and_sides(labelled: Store) -> None:
    for seed, name in enumerate(("ann", "ben")):
        seat(labelled, name, seed=seed, count=30, shared=30)
    assert set(keys(labelled, "ann")) == set(keys(labelled, "ben"))
    assert keys(labelled, "ann") != keys(labelled, "ben")
    shown = {
        name: {t.pair: t.order for p in range(1, 31) if (t := labelled.annotation.task(name, p))}
        for name in ("ann", "ben")
    }
    assert shown["ann"] != shown["ben"]
    assert 5 < Counter(shown["ann"].values())["forward"] < 25


def test_the_same_seed_gives_the_same_list(labelled: Store) -> None:
    seat(labelled, "ann", seed=7, count=10, shared=10)
    seat(labelled, "ben", seed=7, count=10, shared=10)
    assert keys(labelled, "ann") == keys(labelled, "ben")


def test_suggested_pairs_come_first(labelled: Store) -> None:
    wanted = [pair.key for pair in plain_pairs(30)[10:13]]
    seat(labelled, "ann", count=5, shared=0, first=[*wanted, "no such key"])
    assert keys(labelled, "ann")[:3] == wanted
    assert len(keys(labelled, "ann")) == 5


def test_more_pairs_are_others_than_before(labelled: Store) -> None:
    seat(labelled, "ann", count=10)
    assert labelled.annotation.assign("ann", count=50, shared=0) == 20, "there are no more"
    assert len(set(keys(labelled, "ann"))) == 30


def test_a_verdict_is_kept_in_sides_with_the_order_in_which_it_was_given(labelled: Store) -> None:
    seat(labelled, "ann", count=30)
    for _ in range(30):
        task = labelled.annotation.next("ann")
        assert task is not None
        labelled.annotation.save("ann", task.place, "overall", "A", note="because", seconds=1.5)
        [label] = labelled.labels.of(task.pair)
        assert label.side == ("1" if task.order == "forward" else "2")
        assert (label.order, label.note, label.seconds, label.source) == (task.order, "because", 1.5, "page")
    assert labelled.annotation.next("ann") is None
    assert {label.side for label in labelled.labels.all()} == {"1", "2"}


def test_dimensions_are_asked_in_their_order_and_close_the_pair_together(labelled: Store) -> None:
    seat(labelled, "ann", dimensions=DIMENSIONS, count=2)
    task = labelled.annotation.next("ann")
    assert task is not None
    for dimension in DIMENSIONS:
        now = labelled.annotation.next("ann")
        assert now is not None
        assert now.place == task.place
        labelled.annotation.save("ann", task.place, dimension, "tie")
    later = labelled.annotation.next("ann")
    assert later is not None
    assert later.place != task.place


def test_a_question_is_answered_once(labelled: Store) -> None:
    seat(labelled, "ann")
    task = labelled.annotation.next("ann")
    assert task is not None
    assert labelled.annotation.save("ann", task.place, "overall", "A").fresh
    assert not labelled.annotation.save("ann", task.place, "overall", "A").fresh, (
        "the same again is a repeated request"
    )
    with pytest.raises(Conflict, match="answered already"):
        labelled.annotation.save("ann", task.place, "overall", "B")
    with pytest.raises(Conflict, match="done already"):
        labelled.annotation.skip("ann", task.place, "other")
    assert [label.side for label in labelled.labels.of(task.pair)] == ["1" if task.order == "forward" else "2"]


def test_only_the_open_pair_takes_a_verdict(labelled: Store) -> None:
    seat(labelled, "ann")
    for place, dimension in ((2, "overall"), (99, "overall"), (1, "format")):
        with pytest.raises(Conflict):
            labelled.annotation.save("ann", place, dimension, "A")
    assert not labelled.labels.any()


def test_undo_takes_back_one_answer_after_the_other(labelled: Store) -> None:
    seat(labelled, "ann", dimensions=["format", "overall"], count=3)
    for place in (1, 2):
        labelled.annotation.save("ann", place, "format", "A")
        labelled.annotation.save("ann", place, "overall", "B")
    assert labelled.annotation.last("ann") is not None
    for place, left in ((2, 3), (2, 2), (1, 1), (1, 0)):
        task = labelled.annotation.undo("ann")
        assert task is not None
        assert task.place == place
        assert not task.done
        assert len(list(labelled.labels.all())) == left
    assert labelled.annotation.undo("ann") is None


def test_undo_takes_back_only_what_the_page_believes_to_be_last(labelled: Store) -> None:
    seat(labelled, "ann")
    labelled.annotation.save("ann", 1, "overall", "A")
    labelled.annotation.save("ann", 2, "overall", "A")
    with pytest.raises(Conflict, match="something else"):
        labelled.annotation.undo("ann", (1, "overall"))
    assert len(list(labelled.labels.all())) == 2


def test_a_skip_closes_what_is_open_and_undo_opens_it(labelled: Store) -> None:
    seat(labelled, "ann", dimensions=DIMENSIONS)
    labelled.annotation.save("ann", 1, "precision", "A")
    labelled.annotation.skip("ann", 1, "cannot tell")
    assert Counter(label.side is None for label in labelled.labels.all()) == {True: 3, False: 1}
    assert {label.note for label in labelled.labels.all()} == {"", "cannot tell"}
    task = labelled.annotation.undo("ann")
    assert task is not None
    assert set(task.said) == {"precision"}


def test_a_pair_is_labelled_again_only_when_it_was_opened(labelled: Store) -> None:
    seat(labelled, "ann")
    for place in (1, 2, 3):
        labelled.annotation.save("ann", place, "overall", "A")
    labelled.annotation.again("ann", 1)
    task = labelled.annotation.next("ann")
    assert task is not None
    assert task.place == 1
    labelled.annotation.save("ann", 1, "overall", "tie")
    assert [t.place for t in labelled.annotation.done("ann")] == [1, 3, 2]


def test_two_at_once_label_a_pair_once(labelled: Store, db: Path) -> None:
    """Two tabs of one annotator, each with its own connection, both saying A then B as fast as they can."""
    seat(labelled, "ann", count=20)
    kept: list[tuple[int, str]] = []
    gate = threading.Barrier(2)

    def tab(label: Any) -> None:
        with Store(db) as store:
            for place in range(1, 21):
                gate.wait()
                try:
                    if store.annotation.save("ann", place, "overall", label).fresh:
                        kept.append((place, label))
                except Conflict:
                    pass

    tabs = [threading.Thread(target=tab, args=(label,)) for label in ("A", "B")]
    for thread in tabs:
        thread.start()
    for thread in tabs:
        thread.join()
    assert sorted(place for place, _ in kept) == list(range(1, 21))
    for place, label in kept:
        task = labelled.annotation.task("ann", place)
        assert task is not None
        assert task.shown("overall") == label


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(
                st.just("say"), st.integers(1, 4), st.sampled_from(["format", "overall"]), st.sampled_from("AB")
            ),
            st.tuples(st.just("skip"), st.integers(1, 4)),
            st.tuples(st.just("undo")),
            st.tuples(st.just("again"), st.integers(1, 4)),
        ),
        max_size=30,
    )
)
@settings(max_examples=40, deadline=None)
def test_whatever_comes_the_lists_of_tasks_stay_in_order(steps: list[tuple[Any, ...]]) -> None:
    """A pair is done exactly where all its questions are answered, and the next is the first that is not."""
    with Store(":memory:") as store:
        fill_memory(store, 4)
        store.annotation.invite("ann", dimensions=["format", "overall"], seed=3)
        store.annotation.assign("ann", count=4, shared=0)
        for name, *args in steps:
            try:
                if name == "say":
                    store.annotation.save("ann", *args)
                elif name == "skip":
                    store.annotation.skip("ann", args[0], "other")
                elif name == "undo":
                    store.annotation.undo("ann")
                else:
                    store.annotation.again("ann", args[0])
            except Conflict:
                pass
            tasks = [task for place in range(1, 5) if (task := store.annotation.task("ann", place))]
            assert [task.done for task in tasks] == [len(task.said) == 2 for task in tasks]
            now = store.annotation.next("ann")
            open_places = [task.place for task in tasks if not task.done]
            assert (now.place if now else None) == (open_places[0] if open_places else None)


def fill_memory(store: Store, count: int) -> None:
    store.add_pairs(plain_pairs(count))
