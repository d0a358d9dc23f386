"""What verdicts come to in groups, beside other verdicts on the same pairs, and beside what people said.

Each function goes once through judgments and keeps a few numbers of each, never the judgments themselves.
"""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from evenhand.errors import InputError
from evenhand.judge import Judgment
from evenhand.pairs import Pair, Side
from evenhand.people import People
from evenhand.report import VALUE_OF, Summary, cluster_of, expected_value, interval
from evenhand.votes import votes_on

if TYPE_CHECKING:
    from evenhand.stats.ppi import Needed, Powered
    from evenhand.stats.winrate import Difference, Rate

NAMES = ("model_1", "model_2")
_MOST_NAMED = 8
READINGS = ("hard", "expected")


# -- groups ------------------------------------------------------------------------------------------------------


def group_by(judgments: Iterable[Judgment], dimensions: Iterable[str], name: str) -> dict[str | None, Summary]:
    """A summary for each value of a field; pairs without the field stand under None, behind all others.

    >>> from evenhand.judge import Hearing
    >>> from evenhand.verdict import Verdict
    >>> heard = {"forward": Hearing({"overall": Verdict("overall", "A")})}
    >>> pairs = [Pair("Hi", "x", "y", metadata={"topic": "talk"}), Pair("2 + 2?", "4", "5")]
    >>> groups = group_by((Judgment.of(pair, heard) for pair in pairs), ["overall"], "topic")
    >>> {value: summary.pairs for value, summary in groups.items()}
    {'talk': 1, None: 1}
    """
    groups: dict[str | None, Summary] = {}
    fields: Counter[str] = Counter()
    asked = list(dimensions)
    for judgment in judgments:
        value = field_of(judgment.pair, name)
        if value is None:
            fields.update(fields_of(judgment.pair))
        groups.setdefault(value, Summary(asked)).add(judgment)
    return in_order(groups, name, fields)


def in_order(groups: Mapping[str | None, Summary], name: str, fields: Counter[str]) -> dict[str | None, Summary]:
    """Groups by their values, those without one last; InputError if no pair has the field, with those they have."""
    if groups and set(groups) == {None}:
        known = ", ".join(field for field, _ in fields.most_common(_MOST_NAMED)) or "none at all"
        raise InputError(f"no pair has a field '{name}'", hint=f"the pairs have {known}")
    return dict(sorted(groups.items(), key=lambda group: (group[0] is None, group[0] or "")))


def field_of(pair: Pair, name: str) -> str | None:
    """What a field of a pair says, as text; None where it says nothing.

    >>> field_of(Pair("Hi", "x", "y", model_1="m", metadata={"hard": True}), "hard")
    'true'
    """
    value = getattr(pair, name) if name in NAMES else pair.metadata.get(name)
    if value is None or value == "":
        return None
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def fields_of(pair: Pair) -> list[str]:
    """The fields that a pair can be grouped by."""
    return [name for name in (*NAMES, *pair.metadata) if field_of(pair, name) is not None]


# -- two readings of the same pairs ------------------------------------------------------------------------------


@dataclass
class Column:
    """The values of one dimension, with the pair and the cluster that each belongs to."""

    keys: array[int] = field(default_factory=lambda: array("Q"))
    clusters: array[int] = field(default_factory=lambda: array("Q"))
    values: Mapping[str, array[float]] = field(default_factory=lambda: {name: array("d") for name in READINGS})

    def add(self, judgment: Judgment, dimension: str) -> None:
        """Take one finding; an invalid one has no value."""
        finding = judgment.findings.get(dimension)
        if finding is None or finding.side is None or finding.p is None:
            return
        self.keys.append(int(judgment.pair.key[:16], 16))
        self.clusters.append(cluster_of(judgment.pair))
        self.values["hard"].append(VALUE_OF[finding.side])
        self.values["expected"].append(expected_value(finding.p))


def columns_of(judgments: Iterable[Judgment]) -> dict[str, Column]:
    """A column for each dimension of a judge."""
    found: dict[str, Column] = {}
    for judgment in judgments:
        for dimension in judgment.findings:
            found.setdefault(dimension, Column()).add(judgment, dimension)
    return found


def compare_columns(first: Column, second: Column, reading: str = "hard") -> Difference:
    """The paired difference over the pairs that both have; pairs are the same where their texts are."""
    import numpy as np

    from evenhand.stats.winrate import paired_difference

    a, b = np.array(first.keys, dtype=np.uint64), np.array(second.keys, dtype=np.uint64)
    _, here, there = np.intersect1d(a, b, return_indices=True)
    return paired_difference(
        np.array(first.values[reading])[here],
        np.array(second.values[reading])[there],
        np.array(first.clusters, dtype=np.uint64)[here],
    )


def difference_facts(first: Column, second: Column) -> dict[str, Any]:
    """A paired difference as plain data, by both readings."""
    found = {reading: compare_columns(first, second, reading) for reading in READINGS}
    hard = found["hard"]
    return {
        "n": hard.n,
        "clusters": hard.clusters,
        **_difference(hard),
        "expected": _difference(found["expected"]),
        "ci_method": hard.method,
        "ci_level": hard.level,
    }


def _difference(found: Difference) -> dict[str, Any]:
    return {
        "win_rate_1": found.first,
        "win_rate_1_other": found.second,
        "difference": found.value,
        "ci": interval(found.low, found.high),
        "decided": found.decided,
    }


# -- what people said --------------------------------------------------------------------------------------------


@dataclass
class Labelled:
    """The verdicts of a judge on all pairs and the labels of people on some, of one dimension."""

    labels: array[float] = field(default_factory=lambda: array("d"))
    verdicts: array[float] = field(default_factory=lambda: array("d"))
    clusters: array[int] = field(default_factory=lambda: array("Q"))
    people: int = 0  # labels of persons, before those on one pair were averaged

    def add(self, judgment: Judgment, dimension: str, votes: Mapping[str, Side]) -> None:
        """Take one pair. Without a verdict it counts as one half: that costs width, and never validity."""
        p = judgment[dimension].p
        self.verdicts.append(0.5 if p is None else expected_value(p))
        sides = [VALUE_OF[side] for side in votes.values()]
        self.labels.append(sum(sides) / len(sides) if sides else float("nan"))
        self.people += len(sides)
        self.clusters.append(cluster_of(judgment.pair))

    def powered(self) -> Powered:
        """The prediction-powered win rate."""
        import numpy as np

        from evenhand.stats.ppi import powered_rate

        return powered_rate(
            np.array(self.labels), np.array(self.verdicts), np.array(self.clusters, dtype=np.uint64)
        )

    def needed(self, width: float) -> Needed | None:
        """How many labels a width takes."""
        import numpy as np

        from evenhand.stats.ppi import labels_needed

        columns = (np.array(self.labels), np.array(self.verdicts), np.array(self.clusters, dtype=np.uint64))
        return labels_needed(*columns, width=width)


def hear_people(judgments: Iterable[Judgment], people: People) -> dict[str, Labelled]:
    """The verdicts and labels of each dimension; a pair's label is the mean over the people who gave one."""
    found: dict[str, Labelled] = {}
    for judgment in judgments:
        votes = people.votes(judgment.pair)
        for dimension in judgment.findings:
            found.setdefault(dimension, Labelled()).add(judgment, dimension, votes_on(votes, dimension))
    return found


def human_facts(labelled: Labelled, width: float | None = None) -> dict[str, Any]:
    """The prediction-powered win rate as plain data."""
    found = labelled.powered()
    needed = labelled.needed(width) if width else None
    return {
        "win_rate_1": found.value,
        "ci": interval(found.low, found.high),
        "labels_alone": _rate(found.labels),
        "judge_alone": _rate(found.judge),
        "narrower": found.narrower,
        "lambda": found.tuning,
        "pairs": found.n,
        "labelled": found.labelled,
        "labels": labelled.people,
        "clusters": found.clusters,
        "ci_method": found.method,
        "ci_level": found.level,
        "reason": found.reason or None,
        "wanted": None
        if needed is None
        else {
            "width": needed.width,
            "labelled": needed.labels,
            "more": needed.more,
            "width_with_all": needed.best_width,
        },
    }


def _rate(rate: Rate) -> dict[str, Any]:
    return {"win_rate_1": rate.value, "ci": interval(rate.low, rate.high), "n": rate.n}
