"""What a receipt says of its price: the provider's name in the lists, the model and the tier that were served.

A receipt names the row that priced it; one without a price says what its provider said. Both are enough to derive its
cost again from a list.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from toolkit.core.tiers import receipt_tier


class PricedBy(NamedTuple):
    """Where a receipt's price is looked up."""

    provider: str
    model: str
    tier: str


def how_priced(row: Mapping[str, Any], listed_as: Mapping[str, str]) -> PricedBy:
    """Where the price of a receipt's row is looked up, in any list.

    `row` has `provider`, `dialect`, `model_requested`, `model_served`, `service_tier` and `price_row`; `listed_as` maps
    the names of configured providers to those in the price lists.
    """
    provider = row["provider"] or ""
    asked = (row["model_requested"] or "").removeprefix(f"{provider}/")
    if row["price_row"]:
        known = row_named(row["price_row"])
        return known._replace(model=row["model_served"] or known.model)
    tier = receipt_tier(row["dialect"], row["service_tier"])
    return PricedBy(listed_as.get(provider, provider), row["model_served"] or asked, tier)


def row_named(price_row: str) -> PricedBy:
    """The provider, model and tier in a price row's id.

    >>> row_named("openai/gpt-5.4 batch us >272000 @2026-03-05T00:00:00Z")
    PricedBy(provider='openai', model='gpt-5.4', tier='batch us')
    """
    provider, _, rest = price_row.partition("/")
    model, *words = rest.split(" ")
    tier = [word for word in words if word != "peak" and not word.startswith((">", "@"))]
    return PricedBy(provider, model, " ".join(tier))
