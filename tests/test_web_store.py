"""What the page asks of the database: findings kept ready, lists, the desk at which people label."""

from __future__ import annotations

import json
import threading
from collections import Counter
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from command import evenhand
from evenhand import Judge, Pair, ScriptedEngine
from evenhand.errors import InputError
from evenhand.pairs import Side
from evenhand.people import People
from evenhand.report import cluster_of
from evenhand.store import Conflict, HumanLabel, Row, Store, View
from evenhand.store.pages import ONLY, SORTS, Only
from evenhand.store.schema import MIGRATIONS
from evenhand.store.words import WordIndex
from evenhand.web.overview import Clusters, overview, win_matrix
from web_server import fill, plain_pairs

DIMENSIONS = ["precision", "correctness", "format", "overall"]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("web") / "evenhand.db"
    alike = [
        replace(pair, instruction=pair.instruction[:17], id=f"{pair.id} alike") for pair in plain_pairs(40)[20:]
    ]
    pairs = [*alike, *plain_pairs(60), Pair("unreadable", "x", "y", id="broken")]
    fill(path, pairs, ("chained", "overall"))
    fill(path, pairs[:20], ("overall",), name="another")
    with Store(path) as store:
        key = pairs[1].key
        sides: tuple[Side, ...] = ("2", "2", "1")
        store.labels.add([HumanLabel(key, "overall", who, side) for who, side in zip("abc", sides, strict=True)])
        store.findings.absorb_all(known=People(store).label)
    return path


@pytest.fixture
def store(filled: Path) -> Any:
    with Store(filled) as store:
        yield store


# -- findings kept ready ---------------------------------------------------------------------------


def test_the_overview_says_what_results_says(filled: Path, store: Store) -> None:
    """To the last figure: intervals, clusters, expected rates, what is left at equal length."""
    shown = {item.judge.fingerprint: item for item in overview(store)}
    told = json.loads(evenhand("results", "--db", str(filled), "--json").stdout)["judges"]
    assert {judge["fingerprint"] for judge in told} == set(shown)
    for judge in told:
        item = shown[judge["fingerprint"]]
        assert item.judge.pairs == judge["pairs"]
        for dimension in item.dimensions:
            theirs = judge["dimensions"].pop(dimension.name)
            theirs.pop("agreement", None)  # with the labels of the file alone; the page knows people's, too
            assert theirs["clusters"] < theirs["n"], "pairs that share an instruction are one cluster"
            mine = json.loads(json.dumps(dimension.facts))
            assert flat(mine) == pytest.approx(flat(theirs)), (judge["protocol"], dimension.name)
        assert not judge["dimensions"]


def test_effects_and_matches_are_those_of_report_and_rank(filled: Path, store: Store) -> None:
    told = {
        judge["fingerprint"]: judge
        for judge in json.loads(evenhand("report", "--db", str(filled), "--json").stdout)["judges"]
    }
    for item in overview(store):
        theirs = told[item.judge.fingerprint]
        for dimension in item.dimensions:
            effects = theirs["effects"][dimension.name]
            assert dimension.facts["position_lift"] == pytest.approx(effects["position_lift"]["value"])
            assert asdict(dimension.longer) == effects["longer"]
        matrix = theirs["ranking"]["win_matrix"]
        models, cells = win_matrix(store.pages.matches(item.judge.id, theirs["decides"]))
        assert set(models) == set(matrix["models"]) == {"alpha", "beta", "gamma"}
        for a, rates, counts in zip(matrix["models"], matrix["rates"], matrix["counts"], strict=True):
            for b, rate, count in zip(matrix["models"], rates, counts, strict=True):
                if a != b:
                    assert cells[a, b].rate.value == pytest.approx(rate)
                    assert cells[a, b].rate.n == count


def flat(facts: Any, name: str = "") -> dict[str, Any]:
    """Facts within facts as one level, which approx can compare."""
    if isinstance(facts, (dict, list)):
        parts = facts.items() if isinstance(facts, dict) else enumerate(facts)
        return {key: value for k, part in parts for key, value in flat(part, f"{name}.{k}").items()}
    return {name: facts}


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


def test_clusters_know_pairs_that_came_later(tmp_path: Path) -> None:
    clusters = Clusters()
    db = tmp_path / "evenhand.db"
    for count in (4, 9):
        fill(db, plain_pairs(count))
        with Store(db) as store:
            store.findings.absorb_all()
            numbers = [number for number, _ in store.pages.instructions()]
            assert list(clusters.of(store, numbers)) == [cluster_of(pair) for pair in plain_pairs(count)]
            assert overview(store, clusters)[0].dimensions[0].rate.clusters == count


def test_every_finding_is_the_pooled_one(store: Store) -> None:
    for judge in store.judges():
        rows = {row.pair: row for row in store.pages.rows(View(judge.id, "overall"), size=1000)}
        assert len(rows) == judge.pairs
        for number, row in rows.items():
            pair = store.pages.pair(number)
            assert pair is not None
            judgment = store.judgment(judge, number, pair)
            assert judgment is not None
            finding = judgment["overall"]
            assert (row.side, row.inconsistent, row.invalid) == (
                finding.side,
                finding.inconsistent,
                finding.invalid,
            )
            assert row.p == (None if finding.p is None else pytest.approx(finding.p))
            assert (row.length_1, row.length_2) == (len(pair.output_1), len(pair.output_2))


def test_what_a_run_writes_comes_into_the_lists(db: Path) -> None:
    fill(db, plain_pairs(3))
    with Store(db) as store:
        assert store.findings.waiting() == 6
        store.findings.absorb_all()
        assert store.pages.count(View(1, "overall")) == 3
        fill(db, plain_pairs(5))
        assert store.findings.waiting() == 4, "pairs that were heard before are not looked at again"
        store.findings.absorb_all()
        assert store.pages.count(View(1, "overall")) == 5


def test_what_people_say_comes_into_the_lists(db: Path) -> None:
    pairs = plain_pairs(2)
    fill(db, pairs)
    with Store(db) as store:
        view = View(1, "overall", only=("with_people",))
        store.findings.absorb_all(known=People(store).label)
        assert [row.name for row in store.pages.rows(view)] == ["pair-0000"], "the label of its file"
        store.labels.add([HumanLabel(pairs[1].key, "overall", "ann", "tie")])
        store.findings.absorb_all(known=People(store).label)
        assert {row.name: row.known for row in store.pages.rows(view)} == {"pair-0000": "1", "pair-0001": "tie"}
        store.labels.remove(pairs[1].key, "ann")
        store.findings.absorb_all(known=People(store).label)
        assert store.pages.count(view) == 1


def test_a_failure_that_is_mended_comes_into_the_lists(db: Path) -> None:
    pairs = [Pair("Say something.", "x", "y", id="p")]
    broken = ScriptedEngine(lambda _: "hm", name="mended")
    with Judge(broken, "overall", db=db) as judge:
        list(judge.judge(pairs))
    with Store(db) as store:
        store.findings.absorb_all()
        assert [row.invalid for row in store.pages.rows(View(1, "overall"))] == ["unreadable"]
        # A better reader reads the same answer: the verdict is replaced, as `evenhand reread` does it.
        store._db.execute("DELETE FROM verdicts")
        store._db.execute(
            "INSERT INTO verdicts SELECT id, 'overall', 'tie', NULL, NULL, NULL, NULL, NULL FROM hearings"
        )
        store.findings.absorb_all()
        assert [row.side for row in store.pages.rows(View(1, "overall"))] == ["tie"]


def test_an_older_file_comes_to_have_its_lists(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database of a run that knew nothing of pages."""
    before = next(i for i, steps in enumerate(MIGRATIONS) if any("TABLE findings" in step for step in steps))
    claims = next(step for steps in MIGRATIONS for step in steps if "TABLE IF NOT EXISTS claims" in step)
    with monkeypatch.context() as patch:
        # What fills it is of today, and claims what it hears.
        patch.setattr(
            "evenhand.store.schema.MIGRATIONS", (*MIGRATIONS[: before - 1], (*MIGRATIONS[before - 1], claims))
        )
        fill(db, plain_pairs(2))
    with Store(db) as store:
        store.findings.absorb_all()
        assert store.pages.count(View(1, "overall")) == 2


# -- lists -----------------------------------------------------------------------------------------


def naive(store: Store, view: View) -> list[Row]:
    """Every row of the judge and dimension, filtered and sorted in plain Python."""

    def fits(row: Row) -> bool:
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

    def doubt(row: Row) -> float:
        return -1.0 if row.doubt is None else row.doubt

    orders: dict[str, Any] = {
        "doubt": lambda row: (-doubt(row), -row.pair),
        "sure": lambda row: (2.0 if row.doubt is None else row.doubt, row.pair),
        "entry": lambda row: row.pair,
        "gap": lambda row: (-abs(row.length_1 - row.length_2), -row.pair),
    }
    whole = store.pages.rows(View(view.judge, view.dimension), size=10_000)
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
    assert [(facts.judge.model, facts.judge.protocol) for facts in overview(store)] == [
        ("another", "overall"),
        ("scripted", "overall"),
        ("scripted", "chained"),
    ]
    assert [d.name for d in overview(store)[-1].dimensions] == [*DIMENSIONS, "combined"]


# -- the desk --------------------------------------------------------------------------------------


@pytest.fixture
def desk(db: Path) -> Any:
    fill(db, plain_pairs(30))
    with Store(db) as store:
        yield store


def seat(store: Store, name: str, *, seed: int = 1, count: int = 10, shared: int = 4, **more: Any) -> None:
    store.desk.invite(name, dimensions=more.pop("dimensions", ["overall"]), seed=seed)
    store.desk.assign(name, count=count, shared=shared, **more)


def keys(store: Store, name: str, *, shared: bool | None = None) -> list[str]:
    who = store.desk.annotator(name)
    assert who is not None
    tasks = [store.desk.task(name, place) for place in range(1, who.tasks + 1)]
    return [task.pair for task in tasks if task and shared in (None, task.shared)]


def test_a_link_is_known_by_its_hash_alone(desk: Store, db: Path) -> None:
    secret = desk.desk.invite("ann", dimensions=["overall"])
    assert desk.desk.who(secret) == desk.desk.annotator("ann")
    assert secret.encode() not in db.read_bytes() + Path(f"{db}-wal").read_bytes()
    assert desk.desk.who(desk.desk.renew("ann")) is not None
    assert desk.desk.who(secret) is None


@pytest.mark.parametrize("name", ["", "  ", "x" * 81])
def test_an_annotator_needs_a_name(desk: Store, name: str) -> None:
    with pytest.raises(InputError, match="name"):
        desk.desk.invite(name, dimensions=["overall"])


def test_two_of_one_name_are_refused(desk: Store) -> None:
    desk.desk.invite("ann", dimensions=["overall"])
    with pytest.raises(InputError, match="already"):
        desk.desk.invite("ann", dimensions=["overall"])


def test_shared_pairs_are_shared_and_the_others_are_not(desk: Store) -> None:
    for seed, name in enumerate(("ann", "ben", "cid")):
        seat(desk, name, seed=seed)
    shared = [set(keys(desk, name, shared=True)) for name in ("ann", "ben", "cid")]
    own = [set(keys(desk, name, shared=False)) for name in ("ann", "ben", "cid")]
    assert shared[0] == shared[1] == shared[2]
    assert len(shared[0]) == 4
    assert not own[0] & own[1]
    assert not own[0] & own[2]
    assert keys(desk, "ann") != sorted(keys(desk, "ann"))


def test_each_has_their_own_order_and_sides(desk: Store) -> None:
    for seed, name in enumerate(("ann", "ben")):
        seat(desk, name, seed=seed, count=30, shared=30)
    assert set(keys(desk, "ann")) == set(keys(desk, "ben"))
    assert keys(desk, "ann") != keys(desk, "ben")
    shown = {
        name: {t.pair: t.order for p in range(1, 31) if (t := desk.desk.task(name, p))} for name in ("ann", "ben")
    }
    assert shown["ann"] != shown["ben"]
    assert 5 < Counter(shown["ann"].values())["forward"] < 25


def test_the_same_seed_gives_the_same_list(desk: Store) -> None:
    seat(desk, "ann", seed=7, count=10, shared=10)
    seat(desk, "ben", seed=7, count=10, shared=10)
    assert keys(desk, "ann") == keys(desk, "ben")


def test_suggested_pairs_come_first(desk: Store) -> None:
    wanted = [pair.key for pair in plain_pairs(30)[10:13]]
    seat(desk, "ann", count=5, shared=0, first=[*wanted, "no such key"])
    assert keys(desk, "ann")[:3] == wanted
    assert len(keys(desk, "ann")) == 5


def test_more_pairs_are_others_than_before(desk: Store) -> None:
    seat(desk, "ann", count=10)
    assert desk.desk.assign("ann", count=50, shared=0) == 20, "there are no more"
    assert len(set(keys(desk, "ann"))) == 30


def test_a_verdict_is_kept_in_sides_with_the_order_in_which_it_was_given(desk: Store) -> None:
    seat(desk, "ann", count=30)
    for _ in range(30):
        task = desk.desk.next("ann")
        assert task is not None
        desk.desk.say("ann", task.place, "overall", "A", note="because", seconds=1.5)
        [label] = desk.labels.of(task.pair)
        assert label.side == ("1" if task.order == "forward" else "2")
        assert (label.order, label.note, label.seconds, label.source) == (task.order, "because", 1.5, "page")
    assert desk.desk.next("ann") is None
    assert {label.side for label in desk.labels.all()} == {"1", "2"}


def test_dimensions_are_asked_in_their_order_and_close_the_pair_together(desk: Store) -> None:
    seat(desk, "ann", dimensions=DIMENSIONS, count=2)
    task = desk.desk.next("ann")
    assert task is not None
    for dimension in DIMENSIONS:
        now = desk.desk.next("ann")
        assert now is not None
        assert now.place == task.place
        desk.desk.say("ann", task.place, dimension, "tie")
    later = desk.desk.next("ann")
    assert later is not None
    assert later.place != task.place


def test_a_question_is_answered_once(desk: Store) -> None:
    seat(desk, "ann")
    task = desk.desk.next("ann")
    assert task is not None
    assert desk.desk.say("ann", task.place, "overall", "A").fresh
    assert not desk.desk.say("ann", task.place, "overall", "A").fresh, "the same again is a repeated request"
    with pytest.raises(Conflict, match="answered already"):
        desk.desk.say("ann", task.place, "overall", "B")
    with pytest.raises(Conflict, match="done already"):
        desk.desk.skip("ann", task.place, "other")
    assert [label.side for label in desk.labels.of(task.pair)] == ["1" if task.order == "forward" else "2"]


def test_only_the_open_pair_takes_a_verdict(desk: Store) -> None:
    seat(desk, "ann")
    for place, dimension in ((2, "overall"), (99, "overall"), (1, "format")):
        with pytest.raises(Conflict):
            desk.desk.say("ann", place, dimension, "A")
    assert not desk.labels.any()


def test_undo_takes_back_one_answer_after_the_other(desk: Store) -> None:
    seat(desk, "ann", dimensions=["format", "overall"], count=3)
    for place in (1, 2):
        desk.desk.say("ann", place, "format", "A")
        desk.desk.say("ann", place, "overall", "B")
    assert desk.desk.last("ann") is not None
    for place, left in ((2, 3), (2, 2), (1, 1), (1, 0)):
        task = desk.desk.undo("ann")
        assert task is not None
        assert task.place == place
        assert not task.done
        assert len(list(desk.labels.all())) == left
    assert desk.desk.undo("ann") is None


def test_undo_takes_back_only_what_the_page_believes_to_be_last(desk: Store) -> None:
    seat(desk, "ann")
    desk.desk.say("ann", 1, "overall", "A")
    desk.desk.say("ann", 2, "overall", "A")
    with pytest.raises(Conflict, match="something else"):
        desk.desk.undo("ann", (1, "overall"))
    assert len(list(desk.labels.all())) == 2


def test_a_skip_closes_what_is_open_and_undo_opens_it(desk: Store) -> None:
    seat(desk, "ann", dimensions=DIMENSIONS)
    desk.desk.say("ann", 1, "precision", "A")
    desk.desk.skip("ann", 1, "cannot tell")
    assert Counter(label.side is None for label in desk.labels.all()) == {True: 3, False: 1}
    assert {label.note for label in desk.labels.all()} == {"", "cannot tell"}
    task = desk.desk.undo("ann")
    assert task is not None
    assert set(task.said) == {"precision"}


def test_a_pair_is_labelled_again_only_when_it_was_opened(desk: Store) -> None:
    seat(desk, "ann")
    for place in (1, 2, 3):
        desk.desk.say("ann", place, "overall", "A")
    desk.desk.again("ann", 1)
    task = desk.desk.next("ann")
    assert task is not None
    assert task.place == 1
    desk.desk.say("ann", 1, "overall", "tie")
    assert [t.place for t in desk.desk.done("ann")] == [1, 3, 2]


def test_two_at_once_label_a_pair_once(desk: Store, db: Path) -> None:
    """Two tabs of one annotator, each with its own connection, both saying A then B as fast as they can."""
    seat(desk, "ann", count=20)
    kept: list[tuple[int, str]] = []
    gate = threading.Barrier(2)

    def tab(label: Any) -> None:
        with Store(db) as store:
            for place in range(1, 21):
                gate.wait()
                try:
                    if store.desk.say("ann", place, "overall", label).fresh:
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
        task = desk.desk.task("ann", place)
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
def test_whatever_comes_the_desk_stays_in_order(steps: list[tuple[Any, ...]]) -> None:
    """A pair is done exactly where all its questions are answered, and the next is the first that is not."""
    with Store(":memory:") as store:
        fill_memory(store, 4)
        store.desk.invite("ann", dimensions=["format", "overall"], seed=3)
        store.desk.assign("ann", count=4, shared=0)
        for name, *args in steps:
            try:
                if name == "say":
                    store.desk.say("ann", *args)
                elif name == "skip":
                    store.desk.skip("ann", args[0], "other")
                elif name == "undo":
                    store.desk.undo("ann")
                else:
                    store.desk.again("ann", args[0])
            except Conflict:
                pass
            tasks = [task for place in range(1, 5) if (task := store.desk.task("ann", place))]
            assert [task.done for task in tasks] == [len(task.said) == 2 for task in tasks]
            now = store.desk.next("ann")
            open_places = [task.place for task in tasks if not task.done]
            assert (now.place if now else None) == (open_places[0] if open_places else None)


def fill_memory(store: Store, count: int) -> None:
    store.add_pairs(plain_pairs(count))
