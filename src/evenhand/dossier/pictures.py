"""The plots of a report: drawn by `evenhand.plots` where its extra is there, and by the web page's own small charts
where it is not."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from evenhand import plots
from evenhand.dossier.facts import Dossier, JudgePart
from evenhand.web import charts
from evenhand.web.text import visible

if TYPE_CHECKING:
    from evenhand.card import Card

NONE = Markup("")
_MOST_LINES = 60  # rows that one picture can show legibly


def can_draw() -> bool:
    """Whether the extra for plots is installed."""
    return find_spec("vl_convert") is not None


def win_rates(dossier: Dossier) -> Markup:
    """Every judge and dimension on one scale."""
    rows = [
        {**_interval(facts), "name": f"{short_name(part, dossier)}: {name}", "n": facts["n"]}
        for part in dossier.judges
        for name, facts in part.dimensions.items()
    ]
    sides = dossier.judges[0].sides if len({part.sides for part in dossier.judges}) == 1 else ("1", "2")
    return _draw(plots.winrate_plot(rows, sides=sides), "Win rates") if 0 < len(rows) <= _MOST_LINES else NONE


def _interval(facts: Mapping[str, Any]) -> dict[str, Any]:
    low, high = facts["ci"] or (None, None)
    return {"value": facts["win_rate_1"], "low": low, "high": high}


def place_effects(dossier: Dossier) -> Markup:
    """How far each judge leans to the response shown first."""
    return _effects(
        dossier,
        lambda e: (e.position_lift.value, e.position_lift.low, e.position_lift.high, e.position_lift.n),
        "leaning to the response shown first",
    )


def length_effects(dossier: Dossier) -> Markup:
    """How much oftener than not each judge chooses the longer output."""
    return _effects(
        dossier,
        lambda e: (
            *(None if x is None else 2 * x - 1 for x in (e.longer.value, e.longer.low, e.longer.high)),
            e.longer.n,
        ),
        "leaning to the longer output",
    )


def _effects(dossier: Dossier, read: Any, axis: str) -> Markup:
    rows = [
        dict(zip(("value", "low", "high", "n"), read(effects), strict=True))
        | {"name": f"{short_name(part, dossier)}: {effects.dimension}"}
        for part in dossier.judges
        for effects in part.effects
    ]
    known = [row for row in rows if row["value"] is not None]
    return _draw(plots.effect_plot(known, axis=axis), axis) if 0 < len(known) <= _MOST_LINES else NONE


def reliability(card: Card) -> Markup:
    """How often a judge was right, by how sure it said it was."""
    points = card.curve()
    if not points:
        return NONE
    if can_draw():
        return _draw(plots.reliability_plot(points), f"Reliability on {card.dimension}", "plot small")
    return charts.reliability([(point["predicted"], point["observed"], point["n"]) for point in points])


def ranking(part: JudgePart) -> Markup:
    """Models by strength."""
    models = part.ranking["models"] if part.ranking else []
    rows = [{**model, "name": model["model"], "value": model["strength"]} for model in models]
    picture = plots.ranking_plot(rows, axis="strength (log-odds)")
    return _draw(picture, "Ranking") if 0 < len(rows) <= _MOST_LINES else NONE


def short_name(part: JudgePart, dossier: Dossier) -> str:
    """A judge's protocol, if that is enough to tell it from the others."""
    protocols = [other.row.protocol for other in dossier.judges]
    one_model = len({other.row.model for other in dossier.judges}) == 1
    return part.row.protocol if one_model and protocols.count(part.row.protocol) == 1 else part.name


def _draw(plot: plots.Plot, said: str, kind: str = "plot") -> Markup:
    """A plot as part of a page; its colours are the page's, by the classes of the style sheet."""
    if not can_draw():
        return NONE
    svg = plot.svg().replace(' class="marks"', "", 1)
    head = Markup('<svg class="{}" aria-hidden="true" ').format(kind)
    drawn = Markup(svg.replace("<svg ", head, 1))
    return Markup('<div role="img" aria-label="{}">{}</div>').format(visible(said), drawn)
