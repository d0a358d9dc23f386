"""Whether a judge deserves trust: the word, the reasons for it, and the margin behind it.

To be trusted in place of a person, a judge must be *shown* to be good enough; that nothing speaks against it is
not enough, or having few labels would be a way to trust. "Good enough" is a margin that is stated beforehand: the
judge's score is above a person's less the margin with the confidence asked for. This is a test of non-inferiority:
Blackwelder (1982), "Proving the null hypothesis in clinical trials", Controlled Clinical Trials 3, 345-353;
Piaggio et al. (2012), "Reporting of noninferiority and equivalence randomized trials", JAMA 308, 2594-2604.
Besides, it must beat the baselines that need no judge (a coin, always the same side, the longer output) and agree
with people beyond chance (Cohen's kappa above 0). A *yes* needs all of these at once, so that the chance of a
false one is at most that of the weakest (an intersection-union test: Berger 1982, "Multiparameter hypothesis
testing and acceptance sampling", Technometrics 24, 295-300).

Where people do not agree with each other, nobody can agree with them, and no word is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from evenhand.core.stats import agreement
from evenhand.core.stats.agreement import CATEGORIES, Ceiling
from evenhand.core.stats.clustered import Estimate, Weights

Word = Literal["yes", "limited", "no", "unknown", "none"]
MARGIN = 0.1  # by how much a trusted judge may score below one person, or below the target
# Fewer decided pairs than this say nothing about a judge; fewer pairs with two votes, nothing about people.
MIN_DECIDED = 30
MIN_SHARED = agreement.MIN_SHARED
LOW_MASS = 0.5
HIGH_INVALID = 0.1


def is_low(mass: float | None) -> bool:
    """Whether a judge puts so little of its probability on the labels that it is answering something else.

    >>> is_low(0.4), is_low(0.5), is_low(None)
    (True, False, False)
    """
    return mass is not None and mass < LOW_MASS


@dataclass(frozen=True, slots=True)
class Measures:
    """All that the word rests on."""

    right: Estimate  # on pairs that people decided; a tie scores one half
    kappa: Estimate  # of verdict and label
    always: Estimate  # what the better constant side scores
    over_always: Estimate  # the judge less that
    longer: Estimate
    over_longer: Estimate
    people: Estimate | None = None  # Krippendorff's alpha among people; None where too few pairs have two votes
    ceiling: Ceiling | None = None
    mass: float | None = None
    invalid: float | None = None


@dataclass(frozen=True, slots=True)
class Trust:
    """The word, the sentences that give it, and what it was measured against.

    `gap` is the judge less one person, or less the target; None where there is neither. `better_than_person` is
    that the gap to a person is above 0 with the confidence asked for.
    """

    word: Word
    reasons: tuple[str, ...]
    margin: float
    target: float | None
    gap: Estimate | None
    better_than_person: bool

    @property
    def text(self) -> str:
        """The reasons in one line."""
        return " ".join(self.reasons)


def measure(
    lean: ArrayLike,
    verdict: ArrayLike,
    truth: ArrayLike,
    longer: ArrayLike,
    clusters: ArrayLike,
    counts: ArrayLike | None = None,
    *,
    mass: float | None = None,
    invalid: float | None = None,
    level: float = 0.95,
    weights: Weights = None,
) -> Measures:
    """What a judge's word rests on, from codes by pair: 0 for side 1, 1 for side 2, 2 for a tie, -1 for none.

    `lean` is the side that the judge favours, `verdict` what it said, `truth` what most people said, `longer` the
    side of the longer output, `counts` how many people gave each answer, `weights` what each label weighs.

    >>> sides = [0, 1] * 30
    >>> found = measure(sides, sides, sides, [0] * 60, range(60), [[2, 0, 0], [0, 2, 0]] * 30)
    >>> found.right.value, found.always.value, found.ceiling.gap.value
    (1.0, 0.5, 0.0)
    """
    true, groups = np.asarray(truth, dtype=np.int64), np.asarray(clusters)
    scores = agreement.score_sides(lean, true)
    by_length = agreement.score_sides(longer, true)
    always, over_always = _constant(scores, true, groups, level, weights)
    alpha, ceiling = (None, None) if counts is None else _people(counts, lean, groups, level, weights)
    return Measures(
        right=agreement.decided(scores, true, groups, level=level, weights=weights),
        kappa=agreement.cohen_kappa(verdict, true, groups, level=level, weights=weights),
        always=always,
        over_always=over_always,
        longer=agreement.decided(by_length, true, groups, level=level, weights=weights),
        over_longer=agreement.compare(scores, by_length, groups, level=level, weights=weights),
        people=alpha,
        ceiling=ceiling,
        mass=mass,
        invalid=invalid,
    )


def _constant(
    scores: ArrayLike, truth: ArrayLike, clusters: ArrayLike, level: float, weights: Weights
) -> tuple[Estimate, Estimate]:
    """What saying always 1, or always 2, would score, and the judge less that; of the two, the harder to beat."""
    found = []
    for side in (0, 1):
        same = agreement.score_sides(np.full(np.size(truth), side), truth)
        same = np.where(np.isnan(np.asarray(scores)), np.nan, same)
        over = agreement.compare(scores, same, clusters, level=level, weights=weights)
        found.append((agreement.decided(same, truth, clusters, level=level, weights=weights), over))
    return min(found, key=lambda pair: (_or(pair[1].low, -1.0), -_or(pair[0].value, 0.0)))


def _people(
    counts: ArrayLike, lean: ArrayLike, clusters: ArrayLike, level: float, weights: Weights
) -> tuple[Estimate | None, Ceiling | None]:
    table = np.asarray(counts).reshape(-1, CATEGORIES)
    if (table.sum(axis=1) >= 2).sum() < MIN_SHARED:
        return None, None
    alpha = agreement.krippendorff_alpha(table, clusters, level=level)
    ceiling = agreement.against_others(table, lean, clusters, decided_only=True, level=level, weights=weights)
    return alpha, ceiling


def weigh(found: Measures, *, margin: float = MARGIN, target: float | None = None) -> Trust:
    """The word that a judge's measures deserve.

    With a `target` (a share of decided pairs on the right side), the judge is compared with it instead of with a
    person.

    >>> sides = [0, 1] * 60
    >>> weigh(measure(sides, sides, sides, [0] * 120, range(120), [[2, 0, 0], [0, 2, 0]] * 60)).word
    'yes'
    """
    gap = _gap(found, target)
    better = target is None and gap is not None and _or(gap.low, -1.0) > 0
    for rule in (_is_a_judge, _people_agree, _enough_labels, _beats_baselines):
        stopped = rule(found)
        if stopped is not None:
            return Trust(stopped[0], stopped[1], margin, target, gap, better)
    word, reasons = _against_bar(found, gap, margin, target)
    if found.invalid is not None and found.invalid > HIGH_INVALID:
        word = "limited"
        reasons += (
            f"{_percent(found.invalid)} of its verdicts are invalid, and those pairs are in no number here.",
        )
    return Trust(word, reasons, margin, target, gap, better)


_Stop = tuple[Word, tuple[str, ...]] | None


def _is_a_judge(found: Measures) -> _Stop:
    if not is_low(found.mass):
        return None
    return "no", (f"Not a judge: only {_percent(found.mass)} of its probability falls on A, B or tie.",)


def _people_agree(found: Measures) -> _Stop:
    alpha = found.people
    if alpha is None or _or(alpha.low, -1.0) > 0:
        return None
    shown = "their votes are all the same" if alpha.value is None else f"alpha {_signed(alpha)}"
    return "none", (
        f"People have not been shown to agree with each other here beyond chance ({shown}, {_pairs(alpha.n)})."
        " There is nothing to measure a judge by. Look at the question that they were asked.",
    )


def _enough_labels(found: Measures) -> _Stop:
    if found.right.value is not None and found.right.low is not None and found.right.n >= MIN_DECIDED:
        return None
    return "unknown", (
        f"Too few labels to say: {_pairs(found.right.n, 'decided pair')} with a verdict; it takes at least"
        f" {MIN_DECIDED}.",
    )


def _beats_baselines(found: Measures) -> _Stop:
    said = _said(found)
    if _or(found.right.high, 1.0) < 0.5:
        return "no", ("Do not trust it here.", f"{said}, fewer than a coin would.")
    if _or(found.right.low, 0.0) <= 0.5:
        return "unknown", (_UNSHOWN, f"{said} ({found.right.n}), which cannot be told from a coin.")
    for name, value, over in (
        ("always saying the same side", found.always, found.over_always),
        ("taking the longer output", found.longer, found.over_longer),
    ):
        compared = f"{name} gives {_percent(value.value)}"
        if _or(over.high, 1.0) < 0:
            return "no", ("Do not trust it here.", f"{said}; {compared}, which is better.")
        if _or(over.low, -1.0) <= 0:
            return "unknown", (
                _UNSHOWN,
                f"{said}, more than a coin would; but {compared}, and the judge has not been shown to do better.",
            )
    if _or(found.kappa.low, -1.0) <= 0:
        return "unknown", (
            _UNSHOWN,
            f"{said}; but its verdicts have not been shown to agree with the labels beyond chance"
            f" (kappa {_signed(found.kappa)}).",
        )
    return None


_UNSHOWN = "Not shown to deserve trust."


def _against_bar(
    found: Measures, gap: Estimate | None, margin: float, target: float | None
) -> tuple[Word, tuple[str, ...]]:
    """Against one person, or the target."""
    longer = f"{_said(found)}; taking the longer output gives {_percent(found.longer.value)}."
    if gap is None or gap.value is None:
        return "limited", (
            "Trust it with care.",
            longer,
            f"Fewer than {MIN_SHARED} pairs have the votes of several people, so it is not known how much of the"
            " rest is the judge's fault.",
        )
    bar = f"the target of {_percent(target)}" if target is not None else "one person"
    level = f"{_points(gap)} points against {bar}"
    if target is None and found.ceiling is not None:
        person, judge = _percent(found.ceiling.person.value), _percent(found.ceiling.judge.value)
        scores = f"one person takes the side of most others on {person} of decided pairs, the judge on {judge}"
        level = f"{scores}: {_points(gap)} points"
    if target is None and _or(gap.low, -1.0) > 0:
        return "yes", ("It deserves trust here, and is better than one person.", longer, f"{_first(level)}.")
    if _or(gap.low, -1.0) > -margin:
        within = f"within the margin of {100 * margin:.0f}"
        return "yes", ("It deserves trust here.", longer, f"{_first(level)}, {within}.")
    if _or(gap.high, 1.0) < -margin:
        below = f"below by more than the margin of {100 * margin:.0f}"
        return "limited", ("Trust it with care, not in place of people.", longer, f"{_first(level)}, {below}.")
    return "limited", (
        "Trust it with care.",
        longer,
        f"{_first(level)}; not shown to be within the margin of {100 * margin:.0f}. More labels would tell.",
    )


def _gap(found: Measures, target: float | None) -> Estimate | None:
    if target is None:
        return None if found.ceiling is None else found.ceiling.gap
    ends = (None if end is None else end - target for end in (found.right.value, found.right.low, found.right.high))
    value, low, high = ends
    right = found.right
    return Estimate(value, low, high, right.n, right.clusters, right.level, right.method)


def _pairs(number: int, what: str = "pair") -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def _said(found: Measures) -> str:
    return f"It sides with people on {_percent(found.right.value)} of the decided pairs"


def _first(words: str) -> str:
    return words[0].upper() + words[1:]


def _or(number: float | None, otherwise: float) -> float:
    return otherwise if number is None else number


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f}%"


def _signed(e: Estimate) -> str:
    ends = "" if e.low is None or e.high is None else f", {e.low:z.2f} to {e.high:z.2f}"
    return f"{e.value:z.2f}{ends}" if e.value is not None else "not defined"


def _points(e: Estimate) -> str:
    ends = "" if e.low is None or e.high is None else f" ({100 * e.low:+z.0f} to {100 * e.high:+z.0f})"
    return f"{100 * _or(e.value, 0.0):+z.0f}{ends}"
