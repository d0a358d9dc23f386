"""Formats of verdicts that were made elsewhere, each a function as in `formats.py`.

A row in evenhand's words says of which pair it speaks (texts, or `id`, `topic` and models), who judged it (`judge`,
`protocol`), and holds under `said` what was said in each order, in sides of the pair: a side never means a place.
FastChat's single scores become a row with a `score`; `verdicts.py` compares the scores of two models.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from evenhand.core.faults import RowFault
from evenhand.core.pair import Side, read_label
from evenhand.core.protocol import Order
from evenhand.core.verdict import SIDES, choose
from evenhand.io.files import Row
from evenhand.io.pairs.formats import PAIR_FORMATS, is_number, pair_texts, with_input
from evenhand.io.pairs.messages import SKIP
from evenhand.io.pairs.recognition import Context, Format, reads

_verdicts = partial(reads, "verdicts")
_COMPARISON = re.compile(r"\s*([AB])\s*(>{1,2}|<{1,2}|=)\s*([AB])\s*")
_TEXTS = ("instruction", "output_1", "output_2")
_SAID = ("verdict", "winner", "preference")
# Fields of a row that hold what a judge said of a pair.
VERDICT_FIELDS = ("verdict", "winner", "forward", "swapped")
_NAMES = (("model_1", "model_a"), ("model_2", "model_b"))
# What tools write where their judge gave no verdict.
_NOTHING = ("", "error", "none", "null", "nan", "-1", "invalid")
_SUM = 1e-6  # how far probabilities may be from adding up to one


class SaidVerdict(NamedTuple):
    """What was said in one order: the side that was chosen or None, probabilities of 1, 2 and tie, the words."""

    side: Side | None
    p: tuple[float, float, float] | None = None
    raw: str = ""


def read_comparison(value: Any) -> Side | None:
    """Whom a comparison such as A>>B is for, A being side 1; None where it is none.

    >>> [read_comparison(text) for text in ("A>>B", "B>A", "A<B", "A=B", None, "A>A")]
    ['1', '2', '2', 'tie', None, None]
    """
    match = _COMPARISON.fullmatch(str(value))
    if match is None or match[1] == match[3]:
        return None
    if match[2] == "=":
        return "tie"
    return "1" if (match[1] == "A") == (match[2][0] == ">") else "2"


def _turn(side: Side | None) -> Side | None:
    return {"1": "2", "2": "1"}.get(str(side), side)  # type: ignore[return-value]


# -- the tools ----------------------------------------------------------------------------------------------------


@_verdicts(
    "FastChat pairwise judgments",
    ("question_id", "model_1", "model_2", "g1_winner"),
    uses=(
        *("g2_winner", "judge", "turn", "tstamp", "g1_user_prompt", "g2_user_prompt"),
        *("g1_judgment", "g2_judgment"),
    ),
)
def _fastchat_pair(row: Row, _: Context) -> Row:
    """FastChat's pairwise judgments: the winners of both games are named as models of the row."""
    games: tuple[tuple[Order, str], ...] = (("forward", "g1"), ("swapped", "g2"))
    return {
        **_fastchat_question(row),
        "model_1": row["model_1"],
        "model_2": row["model_2"],
        "said": {
            order: SaidVerdict(_side(row[f"{game}_winner"], row), None, _words(row.get(f"{game}_judgment")))
            for order, game in games
            if f"{game}_winner" in row
        },
    }


@_verdicts(
    "FastChat single scores",
    ("question_id", "model", "score", "judgment"),
    uses=("judge", "turn", "tstamp", "user_prompt"),
)
def _fastchat_single(row: Row, _: Context) -> Row:
    """FastChat's scores of one answer; -1 stands where none could be read."""
    score = float(row["score"])
    return {**_fastchat_question(row), "model": str(row["model"]), "score": None if score < 0 else score}


def _fastchat_question(row: Row) -> Row:
    judge = row.get("judge")
    name, prompt = judge if isinstance(judge, list) and len(judge) == 2 else (judge, None)
    turn = row.get("turn") or 1
    about = {} if prompt is None else {"prompt": prompt}
    return {"topic": f"{row['question_id']}/turn {turn}", "judge": name, "turn": turn, **about}


@_verdicts(
    "Arena-Hard judgments",
    ("question_id|uid", "model", "games"),
    uses=("question_id", "uid", "judge", "baseline", "tstamp", "metadata"),
)
def _arena_hard(row: Row, context: Context) -> Row:
    """Arena-Hard: the baseline stands first in the first game and second in the second."""
    games = row["games"]
    orders: tuple[Order, ...] = ("forward", "swapped")
    said = {}
    for order, game in zip(orders, games, strict=False):
        score = game.get("score") if isinstance(game, Mapping) else None
        side = read_comparison(score)
        if side is None and _meant(score):
            raise RowFault(f"a game's score is {score!r}", hint=f"expected A>>B, A>B, A=B, B>A or B>>A; {SKIP}")
        said[order] = SaidVerdict(side if order == "forward" else _turn(side), None, _words(score))
    return {
        "topic": str(row.get("uid") or row["question_id"]),
        "judge": row.get("judge"),
        "model_1": row.get("baseline") or context.settings.get("baseline") or "baseline",
        "model_2": row["model"],
        "candidate": "2",
        "said": said,
    }


@_verdicts(
    "JudgeBench outputs",
    ("question", "response_A", "response_B", "judgments"),
    uses=("pair_id", "label", "judge_name"),
)
def _judge_bench(row: Row, context: Context) -> Row:
    """JudgeBench: the second judgment saw the responses the other way round, and decides as it saw them.

    A row in which both failed does not name its judge: it is that of the rows before it.
    """
    orders: tuple[Order, ...] = ("forward", "swapped")
    said, names = {}, []
    for order, each in zip(orders, row["judgments"], strict=False):
        decision, judgment = (each.get("decision"), each.get("judgment")) if each else (None, None)
        inner = judgment if isinstance(judgment, Mapping) else {}
        names.append(inner.get("judge_model"))
        side = read_comparison(decision)
        if side is None and _meant(decision):
            raise RowFault(f"a decision is {decision!r}", hint=f"expected A>B, A=B or B>A; {SKIP}")
        raw = _words(inner.get("response")) or _words(decision)
        said[order] = SaidVerdict(side if order == "forward" else _turn(side), None, raw)
    judge = next((name for name in names if name), context.memory.get("judge"))
    context.memory["judge"] = judge
    return {
        "id": row.get("pair_id"),
        **pair_texts(row["question"], row["response_A"], row["response_B"]),
        "label": row.get("label"),
        "judge": judge,
        "protocol": row.get("judge_name"),
        "said": said,
    }


@_verdicts(
    "AlpacaEval annotations",
    ("instruction", "output_1", "output_2", "preference"),
    uses=(
        *("input", "annotator", "generator_1", "generator_2", "raw_completion", "price_per_example"),
        *("time_per_example", "completions", "referenced_models"),
    ),
    test=lambda row: is_number(row["preference"]),
)
def _alpaca_eval(row: Row, _: Context) -> Row:
    """AlpacaEval: a preference of 1.7 is a probability of .7 for output_2, the model; output_1 is the baseline."""
    value = row["preference"]
    number = math.nan if value in (None, "") else float(value)
    number = 1.5 if number == 0 else number
    if not math.isnan(number) and not 1 <= number <= 2:
        raise RowFault(f"field 'preference' is {value!r}, not from 1 to 2", hint=SKIP)
    raw = row.get("raw_completion")
    words = _words(raw) if isinstance(raw, str) else _words(value)
    p = None if math.isnan(number) else (2 - number, number - 1, 0.0)
    names = {"model_1": row.get("generator_1"), "model_2": row.get("generator_2")}
    return {
        **pair_texts(with_input(row), row["output_1"], row["output_2"]),
        **{side: name for side, name in names.items() if name is not None},
        "candidate": "2",
        "judge": row.get("annotator"),
        "said": {"forward": SaidVerdict(None if p is None else choose(dict(zip(SIDES, p, strict=True))), p, words)},
    }


@_verdicts(
    "verdicts",
    ("verdict|winner|forward|swapped|p|p_1|preference",),
    uses=(
        *("id", "judge", "protocol", "dimension", "order", "model_1", "model_2", "model_a", "model_b"),
        *(*VERDICT_FIELDS, "preference", "p", "p_1", "p_2", "p_tie", *_TEXTS),
        *("conversation_a", "conversation_b"),
    ),
    test=lambda row: _is_plain(row),
)
def _plain(row: Row, context: Context) -> Row:
    """Your own rows: an id, texts or two models, and a verdict, one or one for each order, or probabilities."""
    found = dict(_texts_of(row, context))
    for side, other in _NAMES:
        if isinstance(name := row.get(side) or row.get(other), str | int):
            found.setdefault(side, str(name))
    orders: tuple[Order, ...] = ("forward", "swapped")
    said = {
        order: SaidVerdict(_side(row[order], found), None, _words(row[order])) for order in orders if order in row
    }
    if not said:
        said = {_order(row.get("order")): _one_verdict(row, found)}
    about = {name: row[name] for name in ("id", "judge", "protocol", "dimension") if row.get(name) is not None}
    return {**found, **about, "said": said}


def _order(value: Any) -> Order:
    """The order that a row names; forward where it names none."""
    word = str("" if value is None else value).strip().lower()
    if word not in ("", "forward", "swapped"):
        raise RowFault(f"field 'order' is {value!r}, neither forward nor swapped", hint=SKIP)
    return "swapped" if word == "swapped" else "forward"


def _texts_of(row: Row, context: Context) -> Row:
    """The texts of a row, in whichever format of pairs it has them; nothing where it has none."""
    if all(name in row for name in _TEXTS):
        return {name: row[name] for name in _TEXTS}
    fits = next((each for each in PAIR_FORMATS if each.fits(row)), None)
    read = fits.read(row, context) if fits else None
    if not isinstance(read, dict):
        return {}
    return {name: read[name] for name in (*_TEXTS, "id", "model_1", "model_2") if name in read}


def _one_verdict(row: Row, found: Row) -> SaidVerdict:
    field = next((name for name in _SAID if name in row), "")
    words = row.get(field)
    side, p = _side(words, found), _probabilities(row)
    if p is None:
        return SaidVerdict(side, None, _words(words))
    chosen = choose(dict(zip(SIDES, p, strict=True)))
    if side is not None and side != chosen:
        raise RowFault(
            f"field '{field}' is for {side}, the probabilities are for {chosen}", hint="leave one of them out"
        )
    return SaidVerdict(chosen, p, _words(words))


def _probabilities(row: Row) -> tuple[float, float, float] | None:
    """p_1, p_2 and p_tie, or p alone: how likely it is that side 1 is better."""
    if row.get("p") not in (None, ""):
        one = float(row["p"])
        found = one, 1 - one, 0.0
    elif row.get("p_1") not in (None, "") and row.get("p_2") not in (None, ""):
        found = float(row["p_1"]), float(row["p_2"]), float(row.get("p_tie") or 0)
    else:
        return None
    if min(found) < 0 or not abs(sum(found) - 1) < _SUM:
        raise RowFault(f"probabilities {found} are not from 0 to 1 with a sum of 1", hint=SKIP)
    return found


def _side(value: Any, row: Row) -> Side | None:
    """The side that a word names: a label, the name of one of the row's models, a comparison."""
    if not _meant(value):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = re.sub(r"(?i)^(tie \(.*\)|both[_ ]?bad)$", "tie", str(value))
    named = [side for side, _ in _NAMES if text == row.get(side)]
    if len(named) == 1:
        return "1" if named[0] == "model_1" else "2"
    return read_comparison(text) or read_label(text)


def _meant(value: Any) -> bool:
    return value is not None and str(value).strip().lower() not in _NOTHING


def _words(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else str(value)


def _is_plain(row: Row) -> bool:
    """Whether a row says of which pair it speaks."""
    models = all(any(row.get(name) for name in names) for names in _NAMES)
    return models or "id" in row or all(name in row for name in _TEXTS)


VERDICT_FORMATS: tuple[Format, ...] = (
    *(_fastchat_pair, _fastchat_single, _arena_hard, _judge_bench, _alpaca_eval, _plain),
)
