"""Which models a ranking cannot tell apart yet, and about how many more games would do it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from evenhand.core.stats.ranking import Contrast
from evenhand.engines.heads import PREFIX, SHIPPED_HEAD, is_head
from evenhand.engines.imported import IMPORTED
from evenhand.engines.made import ESCALATION
from evenhand.results.ranking import RankingSummary
from evenhand.results.wording import about

POWER = 0.8
MOST = 100_000  # beyond which a number of games is of no use to anyone
_ALPHA = 0.05
_POINTS = 400 / math.log(10)  # of Elo to one of log-odds


@dataclass(frozen=True, slots=True)
class Separation:
    """Two neighbours in a ranking that cannot be told apart, and about how many more games between them would do.

    `games` is None where they are more than `MOST`, or where the difference is not known.
    """

    model_1: str
    model_2: str
    games: int | None
    known: bool  # whether their difference has an interval: that of a model that won or lost everything has none


def separation_of(ranking: RankingSummary) -> Separation | None:
    """The best two neighbours that cannot be told apart; None where all can, and where no two are the best."""
    if ranking.all_tied:
        return None
    found = {frozenset((each.model_1, each.model_2)): each for each in ranking.contrasts}
    tests = max(1, len(ranking.contrasts))
    for one, two in _neighbours(ranking):
        contrast = found.get(frozenset((one, two)))
        if contrast is not None and contrast.p_holm >= _ALPHA:
            unit = 1.0 if ranking.scale == "log-odds" else _POINTS
            games = games_to_separate(contrast, tests=tests, unit=unit)
            rounded = None if games is None else about(games)
            return Separation(one, two, rounded, known=contrast.low is not None)
    return None


def judge_options(judge: str, protocol: str, engine: str = "") -> tuple[str, ...]:
    """The options that name the judge of a ranking again; JUDGE stands for its spec, which no ranking knows.

    There are none for an imported judge, which cannot be asked.

    >>> judge_options("gpt-4o", "overall")
    ('--judge', 'JUDGE', '--protocol', 'overall')
    >>> judge_options("head:general", "head")
    ('--judge', 'head:general')
    >>> judge_options("escalation of a, b", "overall", "escalation")
    ('--escalate', 'JUDGES', '--agree', 'SHARE', '--protocol', 'overall')
    """
    if engine == IMPORTED:
        return ()
    if engine == ESCALATION:
        return ("--escalate", "JUDGES", "--agree", "SHARE", "--protocol", protocol)
    if is_head(judge):
        return ("--judge", judge if judge == f"{PREFIX}{SHIPPED_HEAD}" else "JUDGE")
    return ("--judge", "JUDGE", "--protocol", protocol)


def _neighbours(ranking: RankingSummary) -> Iterable[tuple[str, str]]:
    names = [standing.model for standing in ranking.models]
    return pairwise(names)


def games_to_separate(contrast: Contrast, *, tests: int = 1, unit: float = 1.0) -> int | None:
    """About how many more games between two models would tell them apart, if their difference is what it seems.

    A game between two models whose log-odds differ by d has the Fisher information p (1 - p), p = 1 / (1 + exp(-d))
    (R. A. Bradley and M. E. Terry, "Rank analysis of incomplete block designs", Biometrika 39 (1952), 324-345);
    what is known already is one over the variance. A test at the level 5% / `tests` finds the difference with a
    power of 80% once the information is ((z of the level + z of the power) / d) squared. Games on one instruction
    count as independent, and a tie as a game that says half: the number is a guide, not a promise.

    >>> games_to_separate(Contrast("a", "b", 0.5, -0.5, 1.5, 0.3, 0.3))
    118
    """
    from scipy.special import ndtri  # a third of the time that importing scipy.stats takes

    if contrast.difference is None or contrast.low is None or contrast.high is None or not contrast.difference:
        return None
    d = abs(contrast.difference) / unit
    error = (contrast.high - contrast.low) / unit / (2 * ndtri(0.975))
    p = 1 / (1 + math.exp(-d))
    wanted = ((ndtri(1 - _ALPHA / tests / 2) + ndtri(POWER)) / d) ** 2
    games = (wanted - (1 / error**2 if error else 0.0)) / (p * (1 - p))
    return max(1, math.ceil(games)) if games <= MOST else None
