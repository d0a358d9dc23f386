"""The templates' own language: every text is shown before it is escaped, and escaped always."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from evenhand.core.verdict import headline_first
from evenhand.results.judges import own_digits, title_of
from evenhand.results.separation import judge_options, separation_of
from evenhand.results.wording import percent, signed, sureness_text
from evenhand.views import charts
from evenhand.views.console import clock
from evenhand.views.tables import short_names
from evenhand.views.web.text import visible

_ROOM = 14  # characters of a model's name in a table


def make_environment(*packages: str) -> Environment:
    """The templates of `web/templates`, behind those of other packages, their filters, and the charts."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(name) for name in (*packages, "evenhand.views.web")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    filters: dict[str, Callable[..., Any]] = {
        "percent": percent,
        "signed": signed,
        "clock": clock,
        "date": write_date,
        "count": lambda n: f"{n:,}",
        "json": lambda value: json.dumps(value, ensure_ascii=False, sort_keys=True, default=str),
        "headline_first": headline_first,
        "short": lambda names, room=_ROOM: short_names(list(names), room),
        "plural": lambda n, one, many="": one if n == 1 else many or f"{one}s",
    }
    environment.filters.update(filters)
    drawn = (charts.bar, charts.interval, charts.leaning, charts.span, charts.reliability)
    environment.globals.update({chart.__name__: _as_markup(chart) for chart in drawn})
    named = (separation_of, judge_options, sureness_text, own_digits, title_of)
    environment.globals.update({each.__name__: each for each in named})
    return environment


def _as_markup(draw: Callable[..., str]) -> Callable[..., Markup]:
    """A drawing function whose SVG may stand in a page as it is: it has escaped every name."""
    return lambda *given, **named: Markup(draw(*given, **named))


def _shown(value: Any) -> Any:
    """Every text on its way into a page; it is escaped after this. A false `if` without `else` is nothing."""
    if isinstance(value, StrictUndefined) and "inline if" in (value._undefined_hint or ""):
        return ""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def write_date(when: float | None) -> str:
    """A day and minute, in universal time.

    >>> write_date(0.0), write_date(None)
    ('1970-01-01 00:00', '–')
    """
    return "–" if when is None else datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%d %H:%M")
