"""The table of prices: what is shipped, and what a user gives instead."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest

from evenhand.core.engine import Usage
from evenhand.core.errors import InputError
from evenhand.engines.presets import find_address
from evenhand.running.prices import SHIPPED, find_price

MODELS = json.loads(SHIPPED.read_bytes())["models"]


@pytest.mark.parametrize("spec", MODELS)
def test_a_shipped_price_is_one_of_a_judge_with_a_date(spec: str) -> None:
    price = find_price(spec)
    assert price is not None
    assert find_address(spec) is not None
    assert 0 < price.cached <= price.input < price.output
    assert date(2026, 1, 1) < date.fromisoformat(price.date) <= date.today()
    assert price.currency == "USD"


def test_services_of_every_kind_have_a_price() -> None:
    assert {spec.partition(":")[0] for spec in MODELS} >= {"openai", "anthropic", "gemini", "groq"}


def test_a_row_may_have_a_date_and_a_share_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "prices.json"
    models = {"a": {"input": 1, "output": 2}, "b": {"input": 1, "output": 2, "date": "2026-02-02", "batch": 0.8}}
    file.write_text(json.dumps({"date": "2026-01-01", "models": models}))
    one, two = find_price("a", file), find_price("b", file)
    assert one is not None
    assert two is not None
    assert (one.date, two.date) == ("2026-01-01", "2026-02-02")
    usage = Usage(1_000_000, 0, 1_000_000)
    assert (one.of(usage), one.in_batch().of(usage), two.in_batch().of(usage)) == pytest.approx((3.0, 1.5, 2.4))


def test_a_table_that_is_none_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "prices.json"
    file.write_text('{"models": {"a": {"input": "much"}}}')
    with pytest.raises(InputError, match="is not a table of prices"):
        find_price("a", file)
