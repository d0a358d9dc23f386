"""What tokens cost, where it is known. No price means no guess."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evenhand.core.engine import Usage
from evenhand.core.errors import InputError
from evenhand.engines.presets import PRESETS
from evenhand.io.files.reading import parse_slowly
from evenhand.io.files.small import read_small

SHIPPED = Path(__file__).parent / "prices.json"


@dataclass(frozen=True, slots=True)
class Price:
    """The price of one token of each kind, and the day on which it was looked up."""

    input: float
    cached: float
    output: float
    currency: str
    date: str
    batch: float = 0.5  # what a token costs in a batch, as a share of this

    def in_batch(self) -> Price:
        """The price of the same tokens in a batch.

        >>> Price(2e-6, 1e-6, 8e-6, "USD", "2025-06-01").in_batch().output
        4e-06
        """
        share = self.batch
        return replace(
            self, input=self.input * share, cached=self.cached * share, output=self.output * share, batch=1.0
        )

    def of(self, usage: Usage) -> float:
        """What these tokens cost.

        >>> Price(2e-6, 1e-6, 8e-6, "USD", "2025-06-01").of(Usage(1000, 1000, 500))
        0.007
        """
        return usage.computed * self.input + usage.reused * self.cached + usage.generated * self.output


def find_price(spec: str, table: Path | None = None) -> Price | None:
    """The price of a judge by its name, in the user's own table or the shipped one; None where it has none.

    >>> find_price("openai:gpt-4o-mini").date
    '2026-03-21'
    >>> find_price("openai:some-other-model") is None
    True
    """
    file = table or SHIPPED
    try:
        data = parse_slowly(read_small(file))
        row = data["models"].get(spec)
        return None if row is None else _price(row, data)
    except OSError as fault:
        raise InputError(f"no table of prices at {file}: {fault.strerror}") from None
    except (ValueError, TypeError, KeyError, AttributeError) as fault:
        raise InputError(
            f"{file} is not a table of prices: {fault!r}", hint="see docs/endpoints.md for its form"
        ) from None


def _price(row: Mapping[str, Any], data: Mapping[str, object]) -> Price:
    per = float(str(data.get("per", 1_000_000)))
    full = float(row["input"])
    cached, output = float(row.get("cached", full)), float(row["output"])
    return Price(
        *(full / per, cached / per, output / per, str(data.get("currency", "USD"))),
        str(row.get("date") or data.get("date", "unknown")),
        float(row.get("batch", 0.5)),
    )


def price_of(identity: Mapping[str, str]) -> Price | None:
    """The shipped price of a judge by its identity, where it is known which service it was.

    >>> price_of({"base_url": "https://api.openai.com/v1", "model": "gpt-4o-mini"}).currency
    'USD'
    """
    address = identity.get("base_url")
    named = [preset.name for preset in PRESETS.values() if preset.base_url and preset.base_url == address]
    return find_price(f"{named[0]}:{identity['model']}") if named else None
