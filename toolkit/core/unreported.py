"""Answers whose route reports no usage: what is known without one prices them, where nothing else is charged.

Two kinds are known beforehand: the characters of a text to be spoken, and the images that came back. A row that
charges for nothing at all, as a moderation's does, needs no count: its cost is exactly zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from toolkit.core.pricing import Priced, PriceList, Unpriced, price, row_for
from toolkit.core.tiers import STANDARD
from toolkit.core.usage import Quantity, Usage


def price_unreported(
    prices: PriceList,
    provider: str,
    model: str,
    units: Mapping[str, Quantity],
    at: datetime,
    *,
    tier: str = STANDARD,
) -> Priced | Unpriced:
    """The cost of an answer of which only `units` are known; `usage_missing` where its row charges for more."""
    row = row_for(prices, provider, model, at, tier=tier)
    if isinstance(row, Unpriced):
        return row
    charged = {name for name, each in (*row.rates.items(), *row.fees.items()) if each}
    if charged - units.keys():
        return Unpriced(reason="usage_missing", price_list=prices.id, price_row=row.id)
    known = {name: count for name, count in units.items() if name in charged}
    return price(prices, provider, model, Usage(units=known), at, tier=tier)
