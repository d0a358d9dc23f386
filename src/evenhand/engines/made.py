"""Judges whose verdicts are made out of those of others: a jury, or levels of which each decides what it may.

They stand in the database beside the judges that they rest on, so that whatever counts verdicts counts theirs. They
cannot be asked; `evenhand jury` and `evenhand judge --escalate` make their verdicts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from evenhand.core.engine import Answer, Engine
from evenhand.core.errors import EngineError, InputError
from evenhand.core.jury import PoolRule
from evenhand.core.pair import COMBINED, digest
from evenhand.core.protocol import Prompt, Protocol
from evenhand.core.verdict import found_on
from evenhand.engines.imported import imported_protocol, is_imported

JURY, ESCALATION = "jury", "escalation"
_SHORT = 8  # characters of a fingerprint that tell judges apart


@dataclass(frozen=True, slots=True)
class Member:
    """A judge that others' verdicts are made of."""

    model: str
    protocol: str
    fingerprint: str
    dimensions: tuple[str, ...]

    @property
    def found(self) -> tuple[str, ...]:
        """All dimensions on which it has outcomes."""
        return found_on(self.dimensions)


class MadeEngine(Engine):
    """Stands for a judge that is made out of others; `about` is all that decides its verdicts.

    >>> MadeEngine("jury", "jury of a, b", {"pool": "mean"}).identity
    {'engine': 'jury', 'model': 'jury of a, b', 'pool': 'mean'}
    """

    def __init__(self, kind: str, name: str, about: Mapping[str, str]) -> None:
        self.kind, self.name, self.about = kind, name, dict(about)

    @property
    def identity(self) -> Mapping[str, str]:
        """The judge's name, and what its verdicts are made of."""
        return {"engine": self.kind, "model": self.name, **self.about}

    async def answer(self, prompt: Prompt) -> Answer:
        """Nobody can be asked."""
        raise EngineError(
            f"{self.name} is made of other judges and cannot be asked",
            reason=self.kind,
            fatal=True,
            hint="ask them",
        )


def jury_engine(members: Sequence[Member], rule: PoolRule, name: str = "") -> MadeEngine:
    """A jury as a judge: the same judges under the same rule are the same jury.

    >>> two = [Member(name, "overall", name * 8, ("overall",)) for name in "ab"]
    >>> jury_engine(two, PoolRule(2)).identity["model"]
    'jury of a, b'
    """
    about = {
        "jurors": " ".join(member.fingerprint for member in members),
        "pool": rule.pool,
        "quorum": str(rule.least),
    }
    if rule.weights:
        about["weights"] = " ".join(f"{weight:g}" for weight in rule.weights)
    if rule.pool == "mean" and any(scale for each in rule.scales.values() for scale in each):
        scales = {name: [scale and list(scale) for scale in each] for name, each in sorted(rule.scales.items())}
        about["calibrations"] = digest(json.dumps(scales))[:16]
    return MadeEngine(JURY, name or f"jury of {', '.join(names_of(members))}", about)


def members_of(identity: Mapping[str, str]) -> list[str]:
    """The fingerprints of the judges that a judge is made of, in their order.

    >>> members_of({"engine": "jury", "jurors": "1f 2e"}), members_of({"engine": "llama.cpp"})
    (['1f', '2e'], [])
    """
    return identity.get("jurors", identity.get("levels", "")).split() if is_made(identity) else []


def is_made(identity: Mapping[str, str]) -> bool:
    """Whether a judge's verdicts are made out of those of others."""
    return identity.get("engine") in (JURY, ESCALATION)


def was_asked_here(identity: Mapping[str, str]) -> bool:
    """Whether a judge's verdicts were read off answers to what its protocol asks.

    >>> was_asked_here({"engine": "llama.cpp"}), was_asked_here({"engine": "jury"})
    (True, False)
    """
    return not is_made(identity) and not is_imported(identity)


def names_of(members: Sequence[Member]) -> list[str]:
    """What to call members: the model, with the protocol or the fingerprint where it takes that to tell them apart.

    >>> names_of([Member("m", p, f, ()) for p, f in (("four", "0123456789"), ("overall", "9876543210"))])
    ['m/four', 'm/overall']
    """
    models = [member.model for member in members]
    both = [f"{member.model}/{member.protocol}" for member in members]
    return [
        model
        if models.count(model) == 1
        else pair
        if both.count(pair) == 1
        else f"{model}/{member.fingerprint[:_SHORT]}"
        for member, model, pair in zip(members, models, both, strict=True)
    ]


def shared_dimensions(members: Sequence[Member]) -> tuple[str, ...]:
    """The dimensions on which all members have outcomes, as the first has them.

    >>> shared_dimensions([Member("a", "", "", ("format", "overall")), Member("b", "", "", ("overall",))])
    ('overall',)
    """
    first, *others = members
    found = tuple(name for name in first.found if all(name in other.found for other in others))
    if not found:
        every = "; ".join(
            f"{name}: {', '.join(m.found)}" for name, m in zip(names_of(members), members, strict=True)
        )
        raise InputError(f"these judges have no dimension in common: {every}", hint="give --protocol NAME for all")
    return found


def made_protocol(members: Sequence[Member], dimensions: Iterable[str]) -> Protocol:
    """A protocol for verdicts that are made: its name is the members' own where all have the same one.

    >>> made_protocol([Member("a", "four", "", ())], ["combined", "overall"]).dimensions
    ('combined', 'overall')
    """
    names = list(dict.fromkeys(member.protocol for member in members))
    asked = tuple(dimensions)
    named = next((name for name in asked if name != COMBINED), "overall")
    parsed = imported_protocol(names[0] if len(names) == 1 else "several", "overall" if "good_" in named else named)
    made = f"Made of the verdicts of other judges, on {', '.join(asked)}"
    text = parsed.text.replace("Verdicts made elsewhere. How the judge was asked is not known", made)
    return replace(parsed, text=text, questions=(replace(parsed.questions[0], dimensions=asked),))
