"""A dossier as Markdown, for a pull request: the numbers, a few pairs of each kind, where it all came from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import IO, Any

from evenhand.console import clock, percent
from evenhand.dossier.draws import Example, Kind
from evenhand.dossier.facts import Dossier, JudgePart
from evenhand.dossier.passages import code, fenced, table
from evenhand.pairs import Pair
from evenhand.store import Records
from evenhand.verdict import Finding
from evenhand.web.templating import write_date

_TEMPLATE_LIMIT = 20_000
_TEXT_LIMIT = 2_000  # characters of one text; GitHub takes 65,536 in all
KINDS: dict[Kind, str] = {
    "inconsistent": "orders contradict",
    "invalid": "invalid",
    "against_people": "judge and people differ",
    "near_tie": "near tie",
    "clear": "clear win",
}


def write_markdown(dossier: Dossier, store: Records, to: IO[str]) -> None:
    """Write the Markdown, paragraph by paragraph."""
    for paragraph in _paragraphs(dossier, store):
        to.write(f"{paragraph}\n\n")


def _paragraphs(dossier: Dossier, store: Records) -> Iterator[str]:
    yield f"# {code(dossier.wishes.title) if dossier.wishes.title else 'evenhand report'}"
    yield _lead(dossier)
    for part in dossier.judges:
        yield f"## {code(part.name)}"
        yield _rates(part)
        yield from _invalid(part)
        yield from _people(part)
        yield from _models(part)
        yield from _examples(part)
    yield from _pairs(dossier, store)
    yield "## Provenance"
    yield "\n".join(_provenance(dossier))
    yield from _templates(dossier)


def _lead(dossier: Dossier) -> str:
    parts = [
        _many(dossier.pairs, "pair"),
        _many(len(dossier.judges), "judge"),
        f"{dossier.labelled:,} labelled by people",
    ]
    when = f" Judged {write_date(dossier.started)} to {write_date(dossier.ended)} UTC."
    return ", ".join(parts) + "." + (when if dossier.started is not None else "")


def _many(n: int, what: str) -> str:
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"


def _rates(part: JudgePart) -> str:
    one, two = (code(name, 40) for name in part.sides)
    head = [
        "dimension",
        f"{one} wins",
        "tie",
        f"{two} wins",
        f"win rate of {one}",
        "95%",
        "inconsistent",
        "invalid",
    ]
    head += ["label mass", "leaning to the first", "longer is chosen"]
    effects = {e.dimension: e for e in part.effects}
    rows = []
    for name, f in part.dimensions.items():
        counts = [f"{f[key]:,}" for key in ("wins_1", "ties", "wins_2")]
        interval = f"{percent(f['ci'][0], 0)} – {percent(f['ci'][1], 0)}" if f["ci"] else "–"
        lift, longer = effects[name].position_lift.value, effects[name].longer.value
        rows.append(
            [
                *(code(name), *counts, f"**{percent(f['win_rate_1'])}**", interval),
                *(f"{f['inconsistent']:,}", f"{f['invalid']:,}", percent(f["label_mass"], 0)),
                *("–" if lift is None else f"{lift:+.2f}", percent(longer, 0)),
            ]
        )
    return table(head, rows, right=range(1, len(head)))


def _invalid(part: JudgePart) -> Iterator[str]:
    for name, facts in part.dimensions.items():
        reasons = ", ".join(f"{code(reason)} {n:,}" for reason, n in sorted(facts["invalid_reasons"].items()))
        if reasons and name != "combined":
            yield f"Invalid on {code(name)}: {reasons}. They are in no rate."


def _people(part: JudgePart) -> Iterator[str]:
    if not part.cards:
        return
    head = [
        "against people",
        "labelled",
        "decided",
        "right side",
        "same verdict",
        "kappa",
        "longer output",
        "trust",
    ]
    rows = []
    for card in part.cards:
        pooled = card.readings["pooled"]
        kappa = "–" if pooled.kappa.value is None else f"{pooled.kappa.value:.2f}"
        numbers = [_estimate(pooled.decided), _estimate(pooled.three_way), kappa, percent(card.longer.value, 0)]
        rows.append(
            [
                code(card.dimension),
                f"{card.labelled:,}",
                f"{card.decided:,}",
                *numbers,
                "" if card.trust == "none" else card.trust,
            ]
        )
    yield table(head, rows, right=range(1, 7))
    yield "\n".join(f"- {code(card.dimension)}: {card.verdict}" for card in part.cards)


def _estimate(e: Any) -> str:
    if e.value is None or e.low is None or e.high is None:
        return percent(e.value, 0)
    return f"{percent(e.value, 0)} ({percent(e.low, 0)} – {percent(e.high, 0)})"


def _models(part: JudgePart) -> Iterator[str]:
    if part.why_unranked:
        yield f"No ranking: {code(part.why_unranked, 400)}"
    if part.ranking is None:
        return
    head = [f"rank by {code(part.on)}", "model", "strength", "95%", "group", "won", "tied", "lost"]
    rows = [[*_standing(model)] for model in part.ranking["models"]]
    yield table(head, rows, right=(0, 2, 5, 6, 7))
    for warning in part.ranking["warnings"]:
        yield f"Note: {code(warning, 400)}"


def _standing(model: Mapping[str, Any]) -> Iterator[str]:
    best, worst = model["best_rank"], model["worst_rank"]
    yield f"{best}" if best == worst else f"{best}–{worst}"
    yield code(model["model"], 60)
    yield "–" if model["strength"] is None else f"{model['strength']:.2f}"
    ends = ["" if model[end] is None else f"{model[end]:.2f}" for end in ("low", "high")]
    yield (
        " to ".join(ends)
        if all(ends)
        else f"at least {ends[0]}"
        if ends[0]
        else f"at most {ends[1]}"
        if ends[1]
        else "–"
    )
    yield model["group"]
    yield from (f"{model[name]:.0f}" for name in ("wins", "ties", "losses"))


def _examples(part: JudgePart) -> Iterator[str]:
    rows = [
        [KINDS[kind], code(e.name[0], 60), code(e.excerpt), *_verdict(e), e.known or "–"]
        for kind, few in part.examples.items()
        for e in few
    ]
    if rows:
        yield f"Examples, by {code(part.on)}:"
        yield table(["kind", "pair", "instruction", "verdict", "1 · tie · 2", "people"], rows)


def _verdict(e: Example) -> tuple[str, str]:
    p = e.p
    shares = "–" if p is None else " · ".join(percent(p[side], 0) for side in ("1", "tie", "2"))
    return e.side or f"invalid: {code(e.invalid or 'unknown')}", shares


def _pairs(dossier: Dossier, store: Records) -> Iterator[str]:
    if not dossier.wishes.pairs:
        return
    yield "## Pairs"
    if len(dossier.drawn) < dossier.pairs:
        yield f"{len(dossier.drawn):,} of {dossier.pairs:,}, drawn by the seed {dossier.wishes.seed}."
    for number in dossier.drawn:
        pair = store.pages.pair(number)
        if pair is None:
            continue
        yield f"### {code(pair.id)}"
        yield "\n".join(f"- {said}" for said in _said(dossier, store, number, pair))
        for name, text in (
            ("Instruction", pair.instruction),
            ("Output 1", pair.output_1),
            ("Output 2", pair.output_2),
        ):
            model = {"Output 1": pair.model_1, "Output 2": pair.model_2}.get(name, "")
            yield f"{name}{f', by {code(model, 60)}' if model else ''}:"
            yield fenced(text, _TEXT_LIMIT)


def _said(dossier: Dossier, store: Records, number: int, pair: Pair) -> Iterator[str]:
    for part in dossier.judges:
        judgment = store.judgment(part.row, number, pair)
        if judgment is not None:
            found = ", ".join(f"{code(name)} {_finding(f)}" for name, f in judgment.findings.items())
            yield f"{code(part.name)}: {found}"
            for order, answers in store.archive.said(part.row.id, number).items():
                first = "1" if order == "forward" else "2"
                yield f"{code(part.name)} answered, {first} shown first: " + ", ".join(code(a) for a in answers)


def _finding(f: Finding) -> str:
    """A finding with what each order said, and the least label mass of the two."""
    orders = " and ".join(f.heard(order) or "invalid" for order in f.orders)
    masses = [verdict.mass for verdict in f.orders.values() if verdict.mass is not None]
    mass = f", mass {percent(min(masses), 0)}" if masses else ""
    return f"**{f.side or 'invalid'}** ({orders}{mass}{', orders differ' if f.inconsistent else ''})"


def _templates(dossier: Dossier) -> Iterator[str]:
    """The templates word for word, folded away."""
    yield "<details><summary>The templates, word for word</summary>"
    for name, text in dict.fromkeys((part.row.protocol, part.row.template) for part in dossier.judges):
        yield f"{code(name)}:"
        yield fenced(text, _TEMPLATE_LIMIT)
    yield "</details>"


def _provenance(dossier: Dossier) -> Iterator[str]:
    date = f", {code(dossier.wishes.date)}" if dossier.wishes.date else ""
    made = f"Written by evenhand {dossier.version}{date} from {code(dossier.database)}"
    yield f"- {made}, seed {dossier.wishes.seed}."
    for part in dossier.judges:
        yield f"- {code(part.name)}"
        yield f"  - judge {code(part.row.fingerprint)}"
        yield from (f"  - {code(key)}: {code(str(value))}" for key, value in sorted(part.row.identity.items()))
        yield f"  - template {code(part.row.protocol)}, sha256 {code(part.template_hash)}"
        tokens = part.tokens
        yield (
            f"  - {tokens['computed']:,} tokens computed, {tokens['reused']:,} reused,"
            f" {tokens['generated']:,} generated in {clock(part.seconds)}"
        )
        for group in part.runs:
            settings = json.dumps(dict(group.settings), ensure_ascii=False, sort_keys=True)
            when = f"{write_date(group.started)} to {write_date(group.ended)} UTC"
            yield f"  - {_many(group.runs, 'run')}, {when}, {code(settings)}, {_many(group.asked, 'answer')}"
