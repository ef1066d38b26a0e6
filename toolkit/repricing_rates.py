"""Which row of a price list prices each receipt, as a table to join.

Between two edges of a list, on one side of each threshold and within or without a peak, the same row prices every call
of a model and tier. A receipt's situation is all of that; a month of millions of receipts has a few hundred of them.
Each is asked of the kernel once, so no rule of pricing is written a second time.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import polars as pl

from toolkit.core.pricing import Peak, PriceList, PriceRow, Unpriced, row_for
from toolkit.core.receipts import USAGE_COLUMNS
from toolkit.core.rederive import how_priced, row_named
from toolkit.core.usage import METERS, PROMPT_METERS, turn_of
from toolkit.repricing_units import Units

SAID = ("provider", "dialect", "model_requested", "model_served", "service_tier", "price_row")
"""The columns of a receipt that tell provider, model and tier."""


class Situations:
    """The situation of each receipt as key columns, and the table of what prices each situation."""

    def __init__(self, prices: PriceList, units: Units) -> None:
        self._prices = prices
        self._units = units
        edges = {edge for row in prices.rows for edge in (row.effective_from, row.effective_to) if edge}
        self._edges = sorted(edges)
        self._thresholds = sorted({row.above for row in prices.rows if row.above >= 0})
        self._peaks = sorted({row.peak for row in prices.rows if row.peak is not None}, key=repr)
        self._others = units.others
        self.keys = (
            *SAID,
            "step",
            "reach",
            "peaks",
            *(f"reach:{place}" for place in range(len(self._others))),
        )

    def columns(self) -> list[pl.Expr]:
        """The key columns that a receipt does not have itself."""
        at = pl.col("admitted_at")
        steps = [(at >= edge).cast(pl.UInt16) for edge in self._edges]
        others = [self._reach(self._units.prompt_of(model)) for model in self._others]
        return [
            pl.sum_horizontal(pl.lit(0, dtype=pl.UInt16), *steps).alias("step"),
            self._reach(prompt(self._units)).alias("reach"),
            _bits([_in_peak(peak) for peak in self._peaks]).alias("peaks"),
            *(reach.alias(f"reach:{place}") for place, reach in enumerate(others)),
        ]

    def table(self, situated: pl.LazyFrame, listed_as: Mapping[str, str]) -> pl.LazyFrame:
        """One row per situation in `situated`: the row that prices it or why none does, its rates and its fees.

        Columns: the keys, `repriced_row`, `why`, `charges` (whether the row asks for anything), `rate:<meter>` in
        pico-USD a token, and `fee:<place>`, `why:<place>` for each name of the units.
        """
        # Any instant and any prompts of a situation stand for all of it: they are what the kernel is asked.
        examples = [pl.col("admitted_at").min(), prompt(self._units).min().alias("prompt")]
        examples += [
            self._units.prompt_of(model).min().alias(f"prompt:{place}")
            for place, model in enumerate(self._others)
        ]
        found = situated.group_by(self.keys).agg(examples).collect(engine="streaming")
        names = {**listed_as, **_configured(found)}
        rows = [self._priced(row, names) for row in found.iter_rows(named=True)]
        schema: dict[str, Any] = {"repriced_row": pl.String, "why": pl.String, "charges": pl.Boolean}
        schema |= {f"rate:{meter}": pl.Int64 for meter in METERS}
        for place in range(len(self._units.names)):
            schema |= {f"fee:{place}": pl.Int128, f"why:{place}": pl.String}
        return pl.concat(
            [found.select(self.keys), pl.DataFrame(rows, schema=schema)], how="horizontal"
        ).lazy()

    def _reach(self, tokens: pl.Expr) -> pl.Expr:
        passed = [(tokens > above).cast(pl.UInt8) for above in self._thresholds]
        return pl.sum_horizontal(pl.lit(0, dtype=pl.UInt8), *passed)

    def _priced(self, situation: Mapping[str, Any], listed_as: Mapping[str, str]) -> dict[str, Any]:
        by = how_priced(situation, listed_as)
        at = situation["admitted_at"]
        if at is None:
            return {"why": "no_rate_at_that_time"}
        row = row_for(self._prices, by.provider, by.model, at, tier=by.tier, prompt=situation["prompt"])
        if isinstance(row, Unpriced):
            return {"why": row.reason}
        others = {
            model: row_for(
                self._prices, row.provider, model, at, tier=by.tier, prompt=situation[f"prompt:{place}"]
            )
            for place, model in enumerate(self._others)
        }
        known: dict[str, Any] = {f"rate:{meter}": rate for meter, rate in row.rates.items()}
        known |= {"repriced_row": row.id, "charges": any((*row.rates.values(), *row.fees.values()))}
        for place, name in enumerate(self._units.names):
            fee = _fee(row, name, others)
            known |= {f"why:{place}": fee} if isinstance(fee, str) else {f"fee:{place}": self._units.fee(fee)}
        return known


def prompt(units: Units) -> pl.Expr:
    """The whole prompt of a receipt, as the kernel counts it."""
    meters = [pl.col(USAGE_COLUMNS[meter]).fill_null(0) for meter in PROMPT_METERS]
    return pl.sum_horizontal(*meters, units.prompt().fill_null(0))


def _fee(row: PriceRow, name: str, others: Mapping[str, PriceRow | Unpriced]) -> int | Fraction | str:
    """What a unit costs in pico-USD, or why it has no price."""
    if name in row.fees:
        return row.fees[name]
    turn = turn_of(name)
    if turn is None:
        return "rate_missing"
    other = others[turn[0]]
    return other.reason if isinstance(other, Unpriced) else other.rates.get(turn[1], "rate_missing")


def _configured(found: pl.DataFrame) -> dict[str, str]:
    """The list's name of each provider that some receipt of it names by the row that priced it."""
    pairs = found.select("provider", "price_row").drop_nulls().unique().sort("provider", "price_row")
    return {provider: row_named(price_row).provider for provider, price_row in pairs.iter_rows()}


def _bits(flags: list[pl.Expr]) -> pl.Expr:
    bits = [flag.cast(pl.UInt32) * 2**place for place, flag in enumerate(flags)]
    return pl.sum_horizontal(pl.lit(0, dtype=pl.UInt32), *bits)


def _in_peak(peak: Peak) -> pl.Expr:
    """`Peak.holds` of each admission."""
    at = pl.col("admitted_at").dt
    hours = [(at.hour() >= start) & (at.hour() < end) for start, end in peak.hours]
    days = at.weekday().is_in(sorted(peak.weekdays)) & ~at.date().is_in(sorted(peak.except_dates))
    return (pl.any_horizontal(pl.lit(value=False), *hours) & days).fill_null(value=False)
