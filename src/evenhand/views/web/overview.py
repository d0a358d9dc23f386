"""The results of a database, judge by judge, as `evenhand results` prints them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from evenhand.core.engine import measured_length
from evenhand.core.errors import InputError
from evenhand.core.verdict import found_on, headline
from evenhand.results.answer import AnswerSentence, answer_of, ranking_answer
from evenhand.results.bias import BiasSummary, biases_of
from evenhand.results.made import made_notes
from evenhand.results.noise import NoiseSummary, noise_of
from evenhand.results.ranking import RankingSummary, matches_of
from evenhand.results.reasons import ReasonSummary, reasons_on
from evenhand.results.roles import Roles, in_roles
from evenhand.results.run import blocks_of_judge, with_the_rest
from evenhand.results.summary import Summary, summarise
from evenhand.store import JudgeRow, Records


@dataclass(frozen=True, slots=True)
class JudgeOverview:
    """One judge with all its dimensions."""

    judge: JudgeRow
    summary: Summary
    biases: Mapping[str, BiasSummary]
    noise: Mapping[str, NoiseSummary]
    made: tuple[str, ...] = ()  # of a judge that is made of others: who spoke, or who decided
    turned: bool = False  # whether some pairs are counted with their sides exchanged: lists have them as they are

    @property
    def answer(self) -> AnswerSentence:
        """What it says, in one sentence."""
        return answer_of(self.summary)


@dataclass(frozen=True, slots=True)
class ModelsOverview:
    """The models of a judge on one dimension: their ranking, or the sentence that says why there is none."""

    ranking: RankingSummary | None
    why: str = ""
    answer: AnswerSentence | None = None

    @property
    def scale(self) -> tuple[float, float]:
        """Where the strengths and their intervals begin and end."""
        models = self.ranking.models if self.ranking else ()
        ends = [x for model in models for x in (model.low, model.high, model.strength) if x is not None]
        return min(ends, default=0.0), max(ends, default=1.0)


def overview(store: Records) -> list[JudgeOverview]:
    """Every judge that has outcomes, the newest first."""
    found = [judge_overview(store, judge) for judge in reversed(store.judges())]
    return [item for item in found if item.summary.pairs]


def judge_overview(store: Records, judge: JudgeRow) -> JudgeOverview:
    """One judge; what was needed to count its biases is let go of."""
    roles = Roles()
    blocks = in_roles(store.blocks(judge), roles)
    summary = summarise(blocks, found_on(judge.dimensions), measured=measured_length(judge.identity))
    biases = {name: biases_of(found) for name, found in summary.dimensions.items()}
    kept = {name: replace(found, rows=None) for name, found in summary.dimensions.items()}
    counted = with_the_rest(store, judge, replace(summary, dimensions=kept), blocks_of_judge(store, judge))
    made, noise = made_notes(store, judge), noise_of(store, judge)
    return JudgeOverview(judge, counted, biases, noise, made, roles.turned > 0)


def judges_reasons(store: Records) -> dict[int, ReasonSummary]:
    """What the losing side is blamed for, by the judges that give reasons."""
    found = {
        judge.id: reasons_on(store, judge, headline(judge.dimensions)) for judge in store.judges(counted=False)
    }
    return {number: reasons for number, reasons in found.items() if reasons is not None}


def models_overview(
    store: Records, judge: JudgeRow, dimension: str, summary: Summary | None = None
) -> ModelsOverview:
    """The models that a judge has compared; with its summary, whether it deserves to be believed."""
    try:
        found = matches_of(store.blocks(judge), dimension).ranking()
        return ModelsOverview(found, answer=ranking_answer(found, summary))
    except InputError as fault:
        return ModelsOverview(None, fault.message)
