"""`reprice`: every cost derived again from its tokens and a named list, over millions of receipts at once.

The same integers as the kernel's `price`, receipt by receipt, in Polars: each receipt is joined to the row that prices
its situation, its counts are multiplied by that row's rates 128 bits wide, and the sum is rounded once, half to even.
History is never changed by it: what a list gives for a call that had no cost is a what-if, and says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from toolkit.core.errors import QueryError
from toolkit.core.money import LARGEST_INTEGER, PICO_PER_NANO
from toolkit.core.pricing import Priced, PriceList, price
from toolkit.core.receipts import USAGE_COLUMNS, usage_of_row
from toolkit.core.rederive import how_priced
from toolkit.core.usage import METERS
from toolkit.datasets import load_prices
from toolkit.frames import Receipts, conform
from toolkit.repricing_rates import SAID, Situations
from toolkit.repricing_units import Units, units_from

LISTED_AS: Mapping[str, str] = {"x-ai": "xai"}
"""Providers whose own name differs from the one in the lists."""

_COLUMNS = tuple(USAGE_COLUMNS[meter] for meter in METERS)
_KEPT = ("receipt_id", "admitted_at", "status", "price_list", "cost_nano_usd", "unpriced_reason", "usage_source",
         "units", *SAID, *_COLUMNS)  # fmt: skip
_BEYOND = 2**64
"""More pico-USD than the cost of any receipt."""


def reprice(receipts: Receipts | pl.DataFrame | pl.LazyFrame, price_list: PriceList | str) -> pl.LazyFrame:
    """Recorded and recomputed cost of every receipt, in the frame's order; one row each.

    Columns: `receipt_id`, `admitted_at`, `provider`, `model` (served, else asked for), `status`, `price_list` and
    `price_row` (recorded), `repriced_list`, `repriced_row`, `recorded_cost_nano_usd`, `recomputed_cost_nano_usd`,
    `difference_nano_usd` (recomputed less recorded, null when either is not known), `what_if` (the receipt had no
    cost: what the list would have made of it, which changes nothing in the ledger) and `reason`.

    `reason` is null where both agree. Where both are known and differ it is `other_price_list` or, by the receipt's
    own list, `cost_differs`; `unpriced_in_history` for a what-if; else why there is no recomputed cost: the kernel's
    own word (`model_unknown`, `rate_missing`, …), `usage_missing` and its kin as recorded, `outcome_unknown` for an
    abandoned call, `refused`, or `corrected` for a row that another settles.

    Args:
        receipts: loaded receipts, or a frame with `RECEIPT_SCHEMA`. Nothing but small tables is collected here, so
            `.collect(engine="streaming")`, an aggregation or `.sink_parquet()` of the result holds no frame whole.
        price_list: a list, or the id of a bundled one.

    Raises:
        QueryError: a list that is not known.
    """
    prices = _list(price_list)
    frame = receipts.frame if isinstance(receipts, Receipts) else conform(receipts.lazy())
    corrected = frame.filter(pl.col("corrects").is_not_null()).select("corrects").unique()
    rows = frame.select(_KEPT)
    units = Units.of(rows, prices)
    situations = Situations(prices, units)
    situated = rows.with_columns(situations.columns())
    by_situation = situations.table(situated, LISTED_AS)
    priced = situated.join(
        by_situation, on=situations.keys, how="left", nulls_equal=True, maintain_order="left"
    )
    priced = _costs(priced.with_columns(units.columns()), units)
    priced = priced.join(
        _one_by_one(situated, prices, units), on="receipt_id", how="left", maintain_order="left"
    )
    return _verdicts(priced, prices, corrected.collect()["corrects"])


def _costs(priced: pl.LazyFrame, units: Units) -> pl.LazyFrame:
    """`exact`: nano-USD of a row's meters and units; `short`: why one of them has no price."""
    tokens, missing = pl.lit(0, dtype=pl.Int128), pl.lit(value=False)
    for meter, column in zip(METERS, _COLUMNS, strict=True):
        count, rate = pl.col(column).fill_null(0), pl.col(f"rate:{meter}")
        tokens = tokens + count.cast(pl.Int128) * rate.fill_null(0)
        missing = missing | ((count != 0) & rate.is_null())
    too_much = tokens > _BEYOND
    total = pl.min_horizontal(tokens, pl.lit(_BEYOND, dtype=pl.Int128)) * pl.lit(units.scale, dtype=pl.Int128)
    for place in range(len(units.names)):
        product, beyond = units.product(place)
        total, too_much = total + pl.when(beyond).then(0).otherwise(product), too_much | beyond
    exact = _half_even(total, PICO_PER_NANO * units.scale)
    whys = [
        pl.when(pl.col(f"unit:{place}") != 0).then(pl.col(f"why:{place}"))
        for place in sorted(range(len(units.names)), key=lambda place: "/" in units.names[place])
    ]
    too_dear = pl.when(too_much | (exact > LARGEST_INTEGER)).then(pl.lit("usage_invalid"))
    short = pl.coalesce(pl.when(missing).then(pl.lit("rate_missing")), *whys, too_dear)
    return priced.with_columns(exact=exact, short=short)


def _half_even(total: pl.Expr, unit: int) -> pl.Expr:
    """`total` over `unit`, to a whole number, half to even: `nano_half_even` in columns."""
    step = pl.lit(unit, dtype=pl.Int128)
    whole = total // step
    twice_the_rest = 2 * (total - whole * step)
    up = (twice_the_rest > step) | ((twice_the_rest == step) & (whole % 2 == 1))
    return whole + up.cast(pl.Int128)


def _one_by_one(situated: pl.LazyFrame, prices: PriceList, units: Units) -> pl.LazyFrame:
    """The few receipts whose units no column holds exactly, priced by the kernel itself."""
    schema = {"receipt_id": pl.String, "apart": pl.Int64, "apart_row": pl.String, "apart_why": pl.String}
    found: list[dict[str, Any]] = []
    if units.names or not units.held:
        rows = situated.filter(units.beyond()).collect(engine="streaming")
        found = [_by_kernel(row, prices) for row in rows.iter_rows(named=True)]
    return pl.LazyFrame(found, schema=schema)


def _by_kernel(row: Mapping[str, Any], prices: PriceList) -> dict[str, Any]:
    by = how_priced(row, LISTED_AS)
    usage = usage_of_row({**row, "reasoning_tokens": None, "units": units_from(row["units"])})
    again = price(prices, by.provider, by.model, usage, row["admitted_at"], tier=by.tier)
    known: dict[str, Any] = {"receipt_id": row["receipt_id"], "apart_row": again.price_row}
    if isinstance(again, Priced):
        return known | {"apart": again.cost_nano_usd}
    return known | {"apart_why": again.reason}


def _verdicts(priced: pl.LazyFrame, prices: PriceList, corrected: pl.Series) -> pl.LazyFrame:
    """What a row's status, its price and its recorded cost say together."""
    status, recorded = pl.col("status"), pl.col("cost_nano_usd")
    silent = pl.all_horizontal(pl.col(*_COLUMNS).is_null()) & pl.col("units").is_null()
    silent &= (pl.col("usage_source") != "final").fill_null(value=True)
    # An answer that reports no usage is priced only by a row that asks for nothing, as a moderation's.
    untold = silent & (pl.col("price_row").is_null() | pl.col("charges").fill_null(value=True))
    apart = pl.col("apart").is_not_null() | pl.col("apart_why").is_not_null()
    why_not = (
        pl.when(status == "refused")
        .then(pl.lit("refused"))
        .when(pl.col("receipt_id").is_in(corrected.implode()))
        .then(pl.lit("corrected"))
        .when(status == "abandoned")
        .then(pl.lit("outcome_unknown"))
        .when(untold)
        .then(pl.coalesce(pl.when(recorded.is_null()).then("unpriced_reason"), pl.lit("usage_missing")))
        .when(apart)
        .then(pl.col("apart_why"))
        .otherwise(pl.coalesce("why", "short"))
    )
    again = (
        pl.when(status == "failed")
        .then(pl.lit(0, dtype=pl.Int64))
        .when(pl.col("why_not").is_null())
        .then(pl.coalesce("apart", pl.col("exact").cast(pl.Int64, strict=False)))
    )
    recomputed = pl.col("recomputed_cost_nano_usd")
    difference = recomputed - recorded
    own = (pl.col("price_list") == prices.id).fill_null(value=False)
    reason = (
        pl.when(recomputed.is_null())
        .then(pl.col("why_not"))
        .when(recorded.is_null())
        .then(pl.lit("unpriced_in_history"))
        .when(difference != 0)
        .then(pl.when(own).then(pl.lit("cost_differs")).otherwise(pl.lit("other_price_list")))
    )
    return (
        priced.with_columns(why_not=why_not)
        .with_columns(recomputed_cost_nano_usd=again)
        .select(
            "receipt_id",
            "admitted_at",
            "provider",
            pl.coalesce("model_served", "model_requested").alias("model"),
            "status",
            "price_list",
            "price_row",
            pl.lit(prices.id).alias("repriced_list"),
            pl.when(status != "failed").then(pl.coalesce("apart_row", "repriced_row")).alias("repriced_row"),
            recorded.alias("recorded_cost_nano_usd"),
            recomputed,
            difference.alias("difference_nano_usd"),
            (recorded.is_null() & recomputed.is_not_null()).alias("what_if"),
            reason.alias("reason"),
        )
    )


def _list(wanted: PriceList | str) -> PriceList:
    if isinstance(wanted, PriceList):
        return wanted
    bundled = {prices.id: prices for prices in load_prices()}
    if wanted not in bundled:
        raise QueryError(f"price list {wanted!r} is not bundled; {', '.join(bundled)} are")
    return bundled[wanted]
