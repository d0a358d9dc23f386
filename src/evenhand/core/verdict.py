"""What an answer says: verdicts read off it, and the two orders of a pair pooled into one outcome.

An answer is read strictly. What cannot be read is invalid with a reason and its text; it is never a tie.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Literal, TypeVar

from evenhand.core.answer_forms import AnswerForm, FormMatch
from evenhand.core.engine import Answer, Token
from evenhand.core.pair import COMBINED, GOOD_1, GOOD_2, POINTWISE_DIMENSIONS, Side
from evenhand.core.protocol import Order

Label = Literal["A", "B", "tie"]
LABELS: tuple[Label, ...] = ("A", "B", "tie")
SIDES: tuple[Side, ...] = ("1", "2", "tie")
# A response is shown as A or B; which side of the pair that is depends on the order.
SIDE_OF: dict[Order, dict[Label, Side]] = {
    "forward": {"A": "1", "B": "2", "tie": "tie"},
    "swapped": {"A": "2", "B": "1", "tie": "tie"},
}
# The same, the other way round: the labels that stand for SIDES.
_LABELS_OF: dict[Order, tuple[Label, ...]] = {"forward": ("A", "B", "tie"), "swapped": ("B", "A", "tie")}
# The words that a dimension is answered with, in lower case, and whom they speak for.
_COMPARED: Mapping[str, Label] = {label.lower(): label for label in LABELS}
_OF_ONE: Mapping[str, Mapping[str, Label]] = {
    GOOD_1: {"yes": "A", "no": "B"},
    GOOD_2: {"yes": "B", "no": "A"},
}
# A question without a tie among its answers says nothing about ties: it leaves them a third.
_UNASKED_TIE = 1 / 3
# Marks that people and models put around a label without meaning anything by them.
_DRESS = " \t\r\n*_`\"'.()[]"
_TINY = 1e-9
SHARES_OFF = 1e-3  # probabilities that add up to one but for this were rounded; others were never probabilities
SAMPLE_BREAK = "\n---\n"  # between several answers to one question, where they are kept as one text
_Found = TypeVar("_Found")
_Choice = TypeVar("_Choice", bound=str)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One label on one dimension, as shown (A, B, tie), or the reason why there is none.

    `p` sums to one over the three labels; `mass` is what fell on any of them before that. `counted` says that `p`
    are shares of answers, not probabilities of tokens: a share of 0 then means that a label was not drawn, and no
    more.
    """

    dimension: str
    label: Label | None
    p: Mapping[Label, float] | None = None
    mass: float | None = None
    invalid: str | None = None
    raw: str = ""
    counted: bool = False

    @property
    def word(self) -> str:
        """What the judge said, in the words of the question; the reason where it said nothing of use.

        >>> Verdict("overall", "A").word, Verdict("good_2", "A").word
        ('A', 'no')
        """
        if self.label is None:
            return str(self.invalid)
        words = _OF_ONE.get(self.dimension, {})
        return next((word for word, label in words.items() if label == self.label), self.label)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one dimension of a pair comes to, in sides (1, 2, tie), over the orders that were judged.

    `side` is None where an order is invalid; `inconsistent` means that one order chose 1 and the other 2.
    """

    dimension: str
    side: Side | None
    p: Mapping[Side, float] | None
    inconsistent: bool
    orders: Mapping[Order, Verdict]

    @property
    def invalid(self) -> str | None:
        """Why there is no verdict: the reason of the first order that has one."""
        return next((v.invalid for v in self.orders.values() if v.invalid), None)

    def side_in(self, order: Order) -> Side | None:
        """The side that one order chose."""
        verdict = self.orders.get(order)
        return SIDE_OF[order][verdict.label] if verdict and verdict.label else None

    def p_in(self, order: Order) -> Mapping[Side, float] | None:
        """The probabilities of one order, by side; None where the engine gave none."""
        verdict = self.orders.get(order)
        if not verdict or not verdict.p:
            return None
        return dict(zip(SIDES, _shares(verdict, _LABELS_OF[order]), strict=True))


# Reasons that lie in an answer, which is kept and not asked for again; and those that go with another verdict.
OF_ANSWERS = frozenset({"unreadable", "empty", "echo", "truncated"})
OF_OTHERS = frozenset({"not_asked", "for_people", "incomplete"})


def invalid(dimensions: Iterable[str], reason: str, raw: str = "") -> tuple[Verdict, ...]:
    """The same failure on every dimension that was asked.

    >>> invalid(["format"], "too_long")[0].invalid
    'too_long'
    """
    return tuple(Verdict(dimension, None, invalid=reason, raw=raw) for dimension in dimensions)


def read_answer(
    answer: Answer, dimensions: Sequence[str], shown: Sequence[str] = (), form: AnswerForm | None = None
) -> tuple[Verdict, ...]:
    """One verdict for each dimension that was asked.

    The whole answer, its last line, or what follows a last "verdict:" must be the labels; nothing else counts.
    `shown` are the texts of the pair: an answer that ends by repeating one of them says nothing about it. `form` is
    another form of answers that the protocol names; then nothing but that form counts.

    >>> [v.label for v in read_answer(Answer("A,tie"), ["format", "overall"])]
    ['A', 'tie']
    >>> read_answer(Answer("Both have merit."), ["overall"])[0].invalid
    'unreadable'
    >>> read_answer(Answer("I say: B.\\nVerdict: B"), ["overall"], ["I say: B.\\nVerdict: B"])[0].invalid
    'echo'
    """
    if form is not None:
        return _read_form(answer, dimensions, shown, form)
    if answer.samples:
        return _read_samples(answer.samples, dimensions, shown)
    if answer.finish == "length":
        return invalid(dimensions, "truncated", answer.text)
    places = _find_labels(answer.text, dimensions)
    if places is None:
        reason = "unreadable" if answer.text.strip() else "empty"
        return invalid(dimensions, reason, answer.text)
    if _echoes(answer.text, places, dimensions, shown):
        return invalid(dimensions, "echo", answer.text)
    return tuple(
        _weigh(dimension, label, _token_at(answer.tokens, start), answer.text)
        for dimension, (label, start) in zip(dimensions, places, strict=True)
    )


def _read_form(
    answer: Answer, dimensions: Sequence[str], shown: Sequence[str], form: AnswerForm
) -> tuple[Verdict, ...]:
    """The verdict of an answer in a form of its own; the shares of several answers, where there are such."""
    [dimension] = dimensions
    if answer.samples:
        found = [form.read(sample, shown) for sample in answer.samples]
        raw, said = (
            SAMPLE_BREAK.join(answer.samples),
            [match.label for match in found if isinstance(match, FormMatch)],
        )
        if not said:
            return invalid(dimensions, "unreadable", raw)
        shares: dict[Label, float] = {label: said.count(label) / len(said) for label in LABELS}
        return (replace(_verdict(dimension, said[0], shares, len(said) / len(found), raw), counted=True),)
    if answer.finish == "length":
        return invalid(dimensions, "truncated", answer.text)
    match = form.read(answer.text, shown)
    if not isinstance(match, FormMatch):
        return invalid(dimensions, match if answer.text.strip() else "empty", answer.text)
    token = _token_at(answer.tokens, match.start)
    if token is None or form.tokens is None or form.tokens.get(token.text.strip(_DRESS)) != match.label:
        return (Verdict(dimension, match.label, raw=answer.text),)  # a piece of more than the label weighs nothing
    return (_weigh(dimension, match.label, token, answer.text, form.tokens),)


def _read_samples(samples: Sequence[str], dimensions: Sequence[str], shown: Sequence[str]) -> tuple[Verdict, ...]:
    """Shares of the samples that can be read stand for probabilities; the share of those is the label mass."""
    places = ((sample, _find_labels(sample, dimensions)) for sample in samples)
    read = [found for text, found in places if found and not _echoes(text, found, dimensions, shown)]
    raw = SAMPLE_BREAK.join(samples)
    if not read:
        return invalid(dimensions, "unreadable", raw)
    verdicts = []
    for place, dimension in enumerate(dimensions):
        said = [found[place][0] for found in read]
        p: dict[Label, float] = {label: said.count(label) / len(said) for label in LABELS}
        verdict = _verdict(dimension, said[0], p, len(read) / len(samples), raw)
        verdicts.append(replace(verdict, counted=True))
    return tuple(verdicts)


def pool(dimension: str, orders: Mapping[Order, Verdict]) -> Outcome:
    """Bring the orders of a pair together.

    With probabilities, by their geometric mean: a leaning to the first or second place that is additive in
    log-odds cancels exactly. Shares of answers by their plain mean, so that the result is what was said most often.
    Without either, by agreement: two orders that do not say the same make a tie, as in
    Zheng et al. (2023), "Judging LLM-as-a-Judge", section 3.4. One invalid order makes the outcome invalid:
    half a conversation would be tilted by the place in which each response stood.

    >>> forward = Verdict("overall", "A", {"A": 0.8, "B": 0.1, "tie": 0.1}, 1.0)
    >>> swapped = Verdict("overall", "A", {"A": 0.5, "B": 0.4, "tie": 0.1}, 1.0)
    >>> outcome = pool("overall", {"forward": forward, "swapped": swapped})
    >>> outcome.side, outcome.inconsistent, round(outcome.p["1"], 2)
    ('1', True, 0.64)
    """
    sides = set()
    for order, verdict in orders.items():
        if verdict.label is None:
            return Outcome(dimension, None, None, False, orders)
        sides.add(SIDE_OF[order][verdict.label])
    p = _pooled(orders)
    # To say the same of each response by itself is no contradiction.
    inconsistent = "1" in sides and "2" in sides and dimension not in POINTWISE_DIMENSIONS
    return Outcome(dimension, choose(p), p, inconsistent, orders)


def pool_combined(orders: Mapping[Order, Mapping[str, Verdict]]) -> Outcome:
    """The parts of each order together, and the orders: the outcome "combined".

    A question about one response is not answered about the pair before both orders are there. So it has its share
    in the outcome, and none in what a single order says: a judge that says yes to everything has no position bias.

    >>> same = {"good_1": Verdict("good_1", "A"), "format": Verdict("format", "tie")}
    >>> found = pool_combined({"forward": same, "swapped": same})
    >>> found.side, found.inconsistent, found.side_in("forward"), found.side_in("swapped")
    ('tie', False, 'tie', 'tie')
    """
    whole = {order: combine(verdicts, both_orders=len(orders) > 1) for order, verdicts in orders.items()}
    outcome = pool(COMBINED, whole)
    pointwise = any(name in POINTWISE_DIMENSIONS for verdicts in orders.values() for name in verdicts)
    if len(orders) < 2 or outcome.invalid or not pointwise:
        return outcome
    compared = {order: combine(verdicts, both_orders=False) for order, verdicts in orders.items()}
    shown = {order: replace(verdict, mass=whole[order].mass) for order, verdict in compared.items()}
    return replace(outcome, inconsistent=pool(COMBINED, compared).inconsistent, orders=shown)


def combine(verdicts: Mapping[str, Verdict], *, both_orders: bool = True) -> Verdict:
    """What the parts of a conversation say together: the geometric mean of the probabilities of all but "overall".

    Each part is a noisy view of the same pair, and the mean of their log-odds is steadier than any of them.
    Overall is left out: asked last, it repeats what was said before it (docs/quality.md has the figures). One
    invalid part makes the whole invalid.

    >>> half = {"A": 0.5, "B": 0.25, "tie": 0.25}
    >>> combine({name: Verdict(name, "A", half, 0.9) for name in ("format", "precision")}).p["A"]
    0.5
    """
    parts = [verdicts[name] for name in parts_of(verdicts, both_orders=both_orders)]
    broken = next((part for part in parts if part.label is None), None)
    if broken is not None:
        return Verdict(COMBINED, None, invalid=broken.invalid, raw=broken.raw)
    shares = [_shares(part, LABELS) for part in parts]
    geometric = _have_probabilities(parts)
    p = dict(zip(LABELS, _mean(shares, geometric=geometric), strict=True))
    masses = [part.mass for part in parts if part.mass is not None]
    return Verdict(COMBINED, choose(p), p, min(masses, default=None), counted=not geometric)


def parts_of(dimensions: Iterable[str], *, both_orders: bool = True) -> list[str]:
    """The dimensions that "combined" is made of.

    What was said of a response by itself counts where both orders are judged: in one of them it is about one
    response only, and is taken where there is nothing else.

    >>> parts_of(["good_1", "format", "overall"]), parts_of(["good_1", "format", "overall"], both_orders=False)
    (['good_1', 'format'], ['format'])
    """
    parts = [name for name in dimensions if name not in ("overall", COMBINED)]
    compared = [name for name in parts if name not in POINTWISE_DIMENSIONS]
    return parts if both_orders else compared or parts


def found_on(dimensions: Collection[str]) -> tuple[str, ...]:
    """All that there are outcomes on where these dimensions are asked: they, and what several parts say together.

    A judge that answers overall first does not repeat the parts there, so overall stands for the whole.

    >>> found_on(["precision", "format", "overall"]), found_on(["overall"])
    (('precision', 'format', 'overall', 'combined'), ('overall',))
    >>> found_on(["overall", "precision", "format"])
    ('overall', 'precision', 'format')
    """
    if COMBINED in dimensions:  # a jury pools what each of its judges came to
        return tuple(dimensions)
    whole_first = next(iter(dimensions), "") == "overall"
    return tuple(dimensions) if whole_first or len(parts_of(dimensions)) < 2 else (*dimensions, COMBINED)


def headline(dimensions: Sequence[str]) -> str:
    """The outcome to look at where a user names none: the parts together, else overall, else the last asked.

    >>> headline(["precision", "format", "overall"]), headline(["format", "overall"]), headline(["format"])
    ('combined', 'overall', 'format')
    """
    found = found_on(dimensions)
    return next((name for name in (COMBINED, "overall") if name in found), found[-1])


def headline_first(dimensions: Mapping[str, _Found]) -> list[tuple[str, _Found]]:
    """Dimensions as a table has them: the headline, then the others as they were asked.

    >>> headline_first({"format": 1, "overall": 2, "combined": 3})
    [('combined', 3), ('format', 1), ('overall', 2)]
    """
    first = headline([*dimensions]) if dimensions else ""
    return sorted(dimensions.items(), key=lambda item: item[0] != first)


def known_label(labels: Mapping[str, Side], dimension: str) -> Side | None:
    """What people said on a dimension; the parts together are compared with their overall label.

    >>> known_label({"overall": "1"}, "combined"), known_label({"overall": "1"}, "format")
    ('1', None)
    """
    return labels.get("overall" if dimension == COMBINED else dimension)


def log_odds(p: Mapping[Side, float]) -> float:
    """How far side 1 stands above side 2.

    >>> log_odds({"1": 0.5, "2": 0.5, "tie": 0.0})
    0.0
    """
    return math.log(max(p["1"], _TINY) / max(p["2"], _TINY))


def _pooled(orders: Mapping[Order, Verdict]) -> dict[Side, float]:
    each = [_shares(verdict, _LABELS_OF[order]) for order, verdict in orders.items()]
    means = _mean(each, geometric=_have_probabilities(orders.values()))
    return dict(zip(SIDES, means, strict=True))


def _have_probabilities(verdicts: Iterable[Verdict]) -> bool:
    """Whether all verdicts come with probabilities of tokens."""
    return all(verdict.p is not None and not verdict.counted for verdict in verdicts)


def _mean(each: Sequence[Sequence[float]], *, geometric: bool) -> list[float]:
    """The mean of distributions; hard verdicts have zeros in them, and so no geometric one."""
    n = len(each)
    if geometric:
        log = math.log
        logs = [[log(x if x > _TINY else _TINY) for x in shares] for shares in each]
        means = [math.exp(sum(column) / n) for column in zip(*logs, strict=True)]
    else:
        means = [sum(shares) / n for shares in zip(*each, strict=True)]
    total = sum(means)
    return [mean / total for mean in means]


def _shares(verdict: Verdict, labels: tuple[Label, ...]) -> tuple[float, float, float]:
    """The probabilities of labels, in their order; a hard verdict has all of it on one."""
    one, two, three = labels
    if (p := verdict.p) is not None:
        return p[one], p[two], p[three]
    return float(verdict.label == one), float(verdict.label == two), float(verdict.label == three)


def are_shares(values: Iterable[float]) -> bool:
    """Whether numbers can be the probabilities of all that there is.

    >>> are_shares([0.7, 0.2, 0.1]), are_shares([1.2, -0.2, 0.0]), are_shares([0.7, 0.2, math.nan])
    (True, False, False)
    """
    shares = list(values)
    return min(shares) >= 0.0 and abs(math.fsum(shares) - 1.0) <= SHARES_OFF


def choose(p: Mapping[_Choice, float]) -> _Choice | Literal["tie"]:
    """The likeliest side or label; two that are equally likely are a tie.

    >>> choose({"1": 0.7, "2": 0.3, "tie": 0.0}), choose({"1": 0.5, "2": 0.5, "tie": 0.0})
    ('1', 'tie')
    """
    best = max(p.values())
    likeliest = [choice for choice, share in p.items() if best - share <= 1e-9 * best]
    return likeliest[0] if len(likeliest) == 1 else "tie"


def _find_labels(text: str, dimensions: Sequence[str]) -> list[tuple[Label, int]] | None:
    """The labels and where they stand; the widest reading that is nothing but labels wins."""
    if (
        len(dimensions) == 1 and text in LABELS and dimensions[0] not in POINTWISE_DIMENSIONS
    ):  # as most judges answer
        return [(text, 0)]
    body = text.rstrip()
    for start in _readings(body):
        found = _only_labels(body, start, dimensions)
        if found:
            return found
    return None


def text_before_labels(text: str, dimensions: Sequence[str]) -> str:
    """What an answer says before its labels; empty where it is labels alone, or has none.

    >>> text_before_labels("B is wrong.\\nVerdict: A", ["overall"]), text_before_labels("A", ["overall"])
    ('B is wrong.', '')
    """
    body = text.rstrip()
    starts = _readings(body) if len(body) > len("tie") else []
    start = next((start for start in starts if _only_labels(body, start, dimensions)), 0)
    return re.sub(r"[^\n.!?]{0,40}\bverdicts?\W*$", "", body[:start], flags=re.IGNORECASE).strip()


def _readings(body: str) -> list[int]:
    """Where the labels of an answer may begin: at its beginning, in its last line, behind a last "verdict:"."""
    said = [match.end() for match in re.finditer(r"verdicts?\W{0,3}:", body, re.IGNORECASE)]
    return sorted({0, body.rfind("\n") + 1, *said[-1:]})


def _echoes(
    text: str, places: Sequence[tuple[Label, int]], dimensions: Sequence[str], shown: Sequence[str]
) -> bool:
    """Whether the labels stand in a text of the pair that the judge repeats; one that is a label itself is none."""
    if not shown or (len(dimensions) == 1 and len(text) <= len("tie")):
        return False
    body = text.rstrip()
    texts = [other for other in map(str.strip, shown) if other and body.endswith(other)]
    return any(
        len(body) - len(other) <= places[0][1] and _only_labels(other, 0, dimensions) is None for other in texts
    )


def _only_labels(text: str, start: int, dimensions: Sequence[str]) -> list[tuple[Label, int]] | None:
    pattern = r"[^,;\n]+" if len(dimensions) > 1 else r"(?s:.+)"
    said = (part for part in re.finditer(pattern, text[start:]) if part[0].strip(_DRESS))
    parts = list(islice(said, len(dimensions) + 1))  # one too many is enough to know
    if len(parts) != len(dimensions):
        return None
    found = []
    for part, dimension in zip(parts, dimensions, strict=True):
        item = _one_label(part[0], dimension)
        if item is None:
            return None
        found.append((item[0], start + part.start() + item[1]))
    return found


def _one_label(part: str, dimension: str) -> tuple[Label, int] | None:
    """A label by itself, or behind the name of its dimension: "Format: A"."""
    named = re.match(rf"\W*{re.escape(dimension)}\W*:", part, re.IGNORECASE)
    begin = named.end() if named else 0
    word = part[begin:].strip(_DRESS)
    label = _OF_ONE.get(dimension, _COMPARED).get(word.lower())
    return (label, part.index(word, begin)) if label else None


def _token_at(tokens: Sequence[Token], position: int) -> Token | None:
    """The token in which the character at this position stands."""
    end = 0
    for token in tokens:
        end += len(token.text)
        if position < end:
            return token
    return None


def _weigh(
    dimension: str, said: Label, token: Token | None, raw: str, tokens: Mapping[str, Label] | None = None
) -> Verdict:
    """A verdict with the probabilities of all three labels, if the engine told them; `tokens` are a form's."""
    if token is None or not token.top:
        return Verdict(dimension, said, raw=raw)
    mass = dict.fromkeys(LABELS, 0.0)
    words = _OF_ONE.get(dimension)
    read_token = label_of if words is None else lambda text: words.get(text.strip(_DRESS).lower())
    if tokens is not None:
        read_token = lambda text: tokens.get(text.strip(_DRESS))  # noqa: E731
    own, listed = token.text, []
    for text, logprob in token.top:
        listed.append(share := math.exp(logprob) if logprob < 0.0 else _certain(logprob))
        found = said if text == own else read_token(text)
        if found is not None:
            mass[found] += share
    total = min(sum(mass.values()), 1.0)
    if not total:
        return Verdict(dimension, said, mass=0.0, raw=raw)
    floor = _unlisted(listed)
    floored = {label: max(x, floor) for label, x in mass.items()}
    return _verdict(dimension, said, floored, total, raw)


def _certain(logprob: float) -> float:
    """The probability that a logarithm of 0 or more stands for: not more than 1, whatever a server sends."""
    return 0.0 if math.isnan(logprob) else 1.0


def _verdict(dimension: str, said: Label, weights: Mapping[Label, float], mass: float, raw: str) -> Verdict:
    """A verdict whose probabilities stand to each other as these weights do."""
    if dimension in POINTWISE_DIMENSIONS:
        both = (weights["A"] + weights["B"]) / (1 - _UNASKED_TIE)
        a, b = weights["A"] / both, weights["B"] / both
        likelier: Label = said if a == b else "A" if a > b else "B"
        return Verdict(dimension, likelier, {"A": a, "B": b, "tie": _UNASKED_TIE}, mass, raw=raw)
    whole = sum(weights.values())
    p = {label: x / whole for label, x in weights.items()}
    return Verdict(dimension, choose(p), p, mass, raw=raw)


@lru_cache(maxsize=4096)  # a judge's likeliest tokens are the same few each time
def label_of(token: str) -> Label | None:
    """The label that a token begins: "A", " A" and "tie", "Tie", "t" count; "a" may be a word and does not.

    In an answer of several labels a token may hold the comma before its label.

    >>> [label_of(token) for token in (" A", "Tie", "t", "a", "The", "**B", ",B")]
    ['A', 'tie', 'tie', None, None, 'B', 'B']
    """
    word = token.strip(_DRESS + ",;")
    if word in ("A", "B"):
        return "A" if word == "A" else "B"
    return "tie" if word and "tie".startswith(word.lower()) else None


def _unlisted(listed: Sequence[float]) -> float:
    """The most that a label can have which is not among the listed tokens."""
    return max(min(min(listed), 1.0 - sum(listed)), _TINY)
