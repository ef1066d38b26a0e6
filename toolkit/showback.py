"""Spend by scope: what requests cost, by any dimension, window and zone, and what could not be priced.

A correction settles an earlier row without a cost. Sums of money run over all rows, sums of tokens leave out
a corrected row, and a request is counted once, under its final state (contract §10). No sum wraps: money and
tokens are added 128 bits wide and must then fit the 64 of their column.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import get_args
from zoneinfo import available_timezones

import polars as pl

from toolkit.core.errors import QueryError
from toolkit.core.unpriced import what_to_do
from toolkit.core.windows import Window
from toolkit.frames import TOKEN_COLUMNS, Receipts

DIMENSIONS = (
    "organization", "project", "key_id", "customer", "run", "provider", "model", "model_requested", "dialect",
    "route", "status", "refusal_code", "service_tier", "price_list", "node", "day",
)  # fmt: skip
"""What `spend` groups by, beside `tag:<namespace>`, whose first value decides. `model` is the one that was
served, else the one that was asked for; `day` is of the asked zone."""

_PERIODS = {"day": "%Y-%m-%d", "week": "%G-W%V", "month": "%Y-%m", "year": "%Y"}
_LARGEST = 2**63 - 1
_TAG = re.compile(r"tag:[a-z][a-z0-9_-]{0,31}", re.ASCII)
_NANO = pl.lit("0.000000001").cast(pl.Decimal(38, 9))
_BILLED = tuple(column for column in TOKEN_COLUMNS if column != "reasoning_tokens")


def spend(
    receipts: Receipts, by: Sequence[str] = ("customer",), window: Window = "month", zone: str = "UTC"
) -> pl.DataFrame:
    """What was spent: one row per period and group, sorted by them, nulls last.

    Columns: `period` (a key such as `2026-11` in `zone`), the columns of `by`, `requests`,
    `priced_requests`, `unpriced_requests` (served or abandoned, no cost known), `refused_requests`, the token
    meters, `cost_nano_usd`, `cost_usd` (the same in dollars, Decimal), `counted_nano_usd` (what the caps'
    counters took), `price_list` (null when none or several) and `price_list_count`. A group in which no cost
    is known, though something was served, costs null; a meter that no request reported is null. Caps count in
    UTC: another zone moves the edges of the periods here, not there.

    Raises:
        QueryError: an unknown dimension, window or zone, or a sum beyond 64 bits.

    >>> from toolkit.frames import RECEIPT_SCHEMA
    >>> spend(Receipts.from_frame(pl.DataFrame(schema=RECEIPT_SCHEMA)), by=("customer", "day")).height
    0
    """
    _check_words(by, window, zone)
    local = pl.col("admitted_at").dt.convert_time_zone(zone)
    period = local.dt.strftime(_PERIODS[window]) if window in _PERIODS else pl.lit("all")
    keys = {"period": period} | {name: _dimension(name, local) for name in by}
    return _grouped(final_requests(receipts.frame), keys)


def unpriced(receipts: Receipts) -> pl.DataFrame:
    """Served or abandoned requests whose final cost is not known, most frequent first.

    Columns: `model`, `reason`, `requests`, `tokens` (all billed meters; null when none was reported), `first`
    and `last` (UTC instants of admission), `what_to_do` (one sentence on what the operator can do about it).
    """
    tokens = pl.sum_horizontal(*(pl.col(column).cast(pl.Int128) for column in _BILLED))
    reported = pl.any_horizontal(*(pl.col(column).is_not_null() for column in _BILLED))
    found = (
        final_requests(receipts.frame)
        .filter(_UNPRICED)
        .group_by(model=_dimension("model", pl.col("admitted_at")), reason=pl.col("unpriced_reason"))
        .agg(
            requests=pl.col("request").sum().cast(pl.Int64),
            tokens=pl.when(reported.any()).then(tokens.sum()),
            first=pl.col("admitted_at").min(),
            last=pl.col("admitted_at").max(),
        )
        .sort("requests", "model", "reason", descending=[True, False, False], nulls_last=True)
        .collect()
    )
    advice = [what_to_do(reason) for reason in found["reason"]]
    return _narrowed(found, ("tokens",)).with_columns(pl.Series("what_to_do", advice, pl.String))


def months(receipts: Receipts) -> pl.DataFrame:
    """One row per UTC month and price list, and per month one with `total` true.

    The total's `price_list` is null when there were two. Columns are those of `spend`, after `period`,
    `price_list` and `total`. A row without a list holds refusals, unpriced requests and costs that another
    system recorded.
    """
    requests = final_requests(receipts.frame)
    period = {"period": pl.col("admitted_at").dt.strftime(_PERIODS["month"])}
    lists = _grouped(requests, period | {"price_list": pl.col("price_list")})
    totals = _grouped(requests, period)
    head = ["period", "price_list", "total"]
    both = [
        frame.with_columns(total=pl.lit(value=is_total)).select(*head, pl.exclude(head))
        for frame, is_total in ((lists, False), (totals, True))
    ]
    return pl.concat(both).sort("period", "total", "price_list", nulls_last=True)


def final_requests(frame: pl.LazyFrame) -> pl.LazyFrame:
    """One row per request in its final state, from all receipts.

    A corrected row gives way to its correction, which takes over its money: `cost_nano_usd` and
    `counted_nano_usd` are sums over both. `request` is 1, or 0 for a correction whose request is not
    among the receipts, so that its cost counts and no request is made up.
    """
    corrections = pl.col("corrects").is_not_null()
    settled = frame.filter(corrections).select("corrects").unique()
    before = frame.filter(~corrections).select(
        "receipt_id", cost_before="cost_nano_usd", counted_before="counted_nano_usd"
    )
    untouched = frame.join(settled, left_on="receipt_id", right_on="corrects", how="anti").filter(
        ~corrections
    )
    corrected = (
        frame.filter(corrections)
        .join(before, left_on="corrects", right_on="receipt_id", how="left")
        .with_columns(
            request=pl.col("counted_before").is_not_null().cast(pl.Int64),
            cost_nano_usd=_added("cost_nano_usd", "cost_before"),
            counted_nano_usd=_added("counted_nano_usd", "counted_before"),
        )
        .drop("cost_before", "counted_before")
    )
    return pl.concat([untouched.with_columns(request=pl.lit(1, dtype=pl.Int64)), corrected])


_UNPRICED = pl.col("status").is_in(["served", "abandoned"]) & pl.col("cost_nano_usd").is_null()


def _added(column: str, before: str) -> pl.Expr:
    """The sum of two columns, null only when both are."""
    both = pl.col(column).cast(pl.Int128).fill_null(0) + pl.col(before).fill_null(0)
    known = pl.col(column).is_not_null() | pl.col(before).is_not_null()
    return pl.when(known).then(both).cast(pl.Int64)


def _grouped(requests: pl.LazyFrame, keys: dict[str, pl.Expr]) -> pl.DataFrame:
    def count(condition: pl.Expr) -> pl.Expr:
        return pl.col("request").filter(condition).sum().cast(pl.Int64)

    def total(column: str) -> pl.Expr:
        return pl.col(column).cast(pl.Int128).sum()

    named = pl.col("price_list").drop_nulls()
    known = pl.col("cost_nano_usd").is_not_null().any() | ~_UNPRICED.any()
    found = (
        requests.with_columns(**{f"by:{name}": key for name, key in keys.items()})
        .group_by([f"by:{name}" for name in keys])
        .agg(
            requests=pl.col("request").sum().cast(pl.Int64),
            priced_requests=count(pl.col("cost_nano_usd").is_not_null()),
            unpriced_requests=count(_UNPRICED),
            refused_requests=count(pl.col("status") == "refused"),
            **{name: pl.when(pl.col(name).is_not_null().any()).then(total(name)) for name in TOKEN_COLUMNS},
            cost_nano_usd=pl.when(known).then(total("cost_nano_usd")),
            counted_nano_usd=total("counted_nano_usd"),
            price_list=pl.when(named.n_unique() == 1).then(named.min()),
            price_list_count=named.n_unique().cast(pl.Int64),
        )
        .rename({f"by:{name}": f"key {name}" for name in keys})
        .collect()
    )
    found = _narrowed(found, (*TOKEN_COLUMNS, "cost_nano_usd", "counted_nano_usd"))
    cost_usd = (pl.col("cost_nano_usd").cast(pl.Decimal(38, 0)) * _NANO).alias("cost_usd")
    figures = [name for name in found.columns if not name.startswith("key ") and name not in keys]
    figures.insert(figures.index("cost_nano_usd") + 1, "cost_usd")
    return (
        found.with_columns(cost_usd)
        .select(*(pl.col(f"key {name}").alias(name) for name in keys), *figures)
        .sort(list(keys), nulls_last=True)
    )


def _narrowed(frame: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """128-bit sums as Int64. Raises QueryError for one that does not fit."""
    for column in columns:
        largest = frame[column].abs().max()
        if isinstance(largest, int) and largest > _LARGEST:
            raise QueryError(
                f"a sum of {column} is {largest}, beyond the {_LARGEST} that fit; ask for a shorter window"
            )
    return frame.with_columns(pl.col(column).cast(pl.Int64) for column in columns)


def _dimension(name: str, local: pl.Expr) -> pl.Expr:
    if name == "model":
        return pl.coalesce("model_served", "model_requested")
    if name == "day":
        return local.dt.strftime(_PERIODS["day"])
    if name.startswith("tag:"):
        prefix = f"{name.removeprefix('tag:')}:"
        of_namespace = pl.element().filter(pl.element().str.starts_with(prefix))
        return pl.col("tags").list.eval(of_namespace).list.first().str.strip_prefix(prefix)
    return pl.col(name)


def _check_words(by: Sequence[str], window: str, zone: str) -> None:
    if isinstance(by, str):
        raise QueryError(f"by is a list of dimensions; write by=({by!r},)")
    for name in by:
        if name not in DIMENSIONS and _TAG.fullmatch(name) is None:
            nearest = get_close_matches(name, DIMENSIONS, n=1)
            hint = f"; did you mean {nearest[0]}?" if nearest else ""
            raise QueryError(f"{name!r} is none of {', '.join(DIMENSIONS)} or tag:<namespace>{hint}")
    if len(set(by)) != len(by):
        raise QueryError("a dimension stands twice in by")
    if window not in get_args(Window):
        raise QueryError(f"window {window!r} is none of {', '.join(get_args(Window))}")
    if zone not in available_timezones():
        raise QueryError(f"{zone!r} is no time zone of the IANA list, such as UTC or Europe/Berlin")
