"""What an answer without usage costs: what is known to be billed, where its row charges for nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from tests.toolkit.core.builders import AT, prices, row
from toolkit.core.pricing import Priced, Unpriced
from toolkit.core.unreported import price_unreported

LISTED = prices(
    row("free", {"input": "0"}),
    row("text", {"input": "1", "output": "4"}),
    row("drawn", {}, fees={"images": "0.04"}),
    row("both", {"input": "1"}, fees={"images": "0.04"}),
)


@pytest.mark.parametrize(
    ("model", "units", "outcome"),
    [
        ("free", {}, 0),
        ("free", {"images": 3}, 0),
        ("drawn", {"images": 3}, 120_000_000),  # B79
        ("drawn", {"images": 0}, 0),
        ("drawn", {"images": 3, "characters": 10}, 120_000_000),
        ("drawn", {}, "usage_missing"),
        ("both", {"images": 3}, "usage_missing"),
        ("text", {}, "usage_missing"),
        ("none", {}, "model_unknown"),
    ],
)
def test_only_what_is_known_to_be_the_whole_charge_prices_it(
    model: str, units: dict[str, Any], outcome: int | str
) -> None:
    found = price_unreported(LISTED, "openai", model, units, AT)
    if isinstance(outcome, str):
        assert isinstance(found, Unpriced)
        assert found.reason == outcome
    else:
        assert isinstance(found, Priced)
        assert found.cost_nano_usd == outcome
