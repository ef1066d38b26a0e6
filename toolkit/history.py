"""Receipts as the counters saw them: which rows are judged, what each asked and took, and the order of events.

A judged row is two events, its admission and its settlement. A ledger's own receipts carry the step of each
(`admit_seq`, `settle_seq`); foreign rows are ordered by instant, settlements before admissions.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import polars as pl

from toolkit.core.errors import LoadError, MoneyError
from toolkit.core.windows import parse_instant
from toolkit.frames import TOKEN_COLUMNS, Receipts, conform

CAP_REFUSALS = ("budget_exceeded", "budget_busy")
"""The refusal codes that a cap gave; a row refused for any other reason tells nothing about caps."""

OrderedBy = Literal["sequence", "instant"]

AMOUNTS = ("hold", "floor", "hold_tokens", "floor_tokens", "counted", "counted_tokens")
_PRICED_ANYWAY = ("outcome_unknown", "usage_missing", "usage_inconsistent")
"""Reasons for a null cost that do not mean that the model had no price."""
_LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """One data set, ready to be judged. Row numbers are positions in `rows`.

    `rows`: one per receipt by `admitted_at`, then `receipt_id`: identity, `judged`, `refused_before` (a cap of its time
    refused it), `priced` (it had a price at admission), the six AMOUNTS in nano-USD or tokens, `requests` (what
    it counted), `cost` (recorded, a later correction's included), `admit` and `settle` (positions in `events`).
    `events`: `row`, `settles`, in the order of the counters.
    """

    rows: pl.DataFrame
    events: pl.DataFrame
    ordered_by: OrderedBy
    data_from: datetime | None
    data_through: datetime | None
    complete_through: datetime | None
    """The end of the period that the files say they hold in full, where they do."""

    @classmethod
    def of(cls, receipts: Receipts | pl.DataFrame | pl.LazyFrame) -> History:
        """Prepare receipts; raises LoadError for amounts below zero and MoneyError for sums beyond 64 bits."""
        frame = receipts.frame if isinstance(receipts, Receipts) else conform(receipts.lazy())
        raw = frame.collect().sort("admitted_at", "receipt_id", nulls_last=True)
        own = raw["admit_seq"].null_count() < raw.height
        rows = _rows(raw, own=own)
        _check(rows)
        events = _events(rows)
        rows = rows.drop("first", "last").hstack(_positions(rows, events))
        return cls(
            rows,
            events,
            "sequence" if own else "instant",
            _instant(raw["admitted_at"].min()),
            _instant(
                max((at for at in (raw["admitted_at"].max(), raw["settled_at"].max()) if at), default=None)
            ),
            _complete_through(receipts) if isinstance(receipts, Receipts) else None,
        )


def _rows(raw: pl.DataFrame, *, own: bool) -> pl.DataFrame:
    capped = pl.col("refusal_code").is_in(CAP_REFUSALS)
    judged = pl.col("corrects").is_null() & ((pl.col("status") != "refused") | capped)
    if own:
        judged &= pl.col("admit_seq").is_not_null()
    provider, model = pl.col("provider").fill_null(""), pl.col("model_requested").fill_null("")
    named = (provider != "") & model.str.starts_with(pl.concat_str(provider, pl.lit("/")))
    took = pl.col("status") != "refused"
    counted = pl.when(took).then(pl.col("counted_nano_usd").fill_null(0)).otherwise(0)
    hold, hold_tokens = pl.col("hold_nano_usd"), pl.col("hold_tokens")
    if not own:
        # What a foreign row would have held nobody recorded; its cost is the least that it must have held.
        had_price = pl.col("cost_nano_usd").is_not_null() | pl.col("unpriced_reason").is_in(_PRICED_ANYWAY)
        hold = pl.coalesce(hold, pl.when(had_price).then(counted))
        hold_tokens = pl.coalesce(hold_tokens, "counted_tokens")
    bytes_sent = pl.col("request_bytes").fill_null(0)
    final = pl.col("status").is_in(("served", "abandoned"))
    first, last = ("admit_seq", "settle_seq") if own else ("admitted_at", "settled_at")
    return raw.select(
        "receipt_id",
        "admitted_at",
        "organization",
        "project",
        "key_id",
        "customer",
        "run",
        "tags",
        provider.alias("provider"),
        pl.when(named).then(model.str.slice(provider.str.len_chars() + 1)).otherwise(model).alias("model"),
        judged.alias("judged"),
        (judged & (pl.col("status") == "refused")).alias("refused_before"),
        hold.is_not_null().alias("priced"),
        hold.fill_null(0).alias("hold"),
        pl.col("floor_nano_usd").fill_null(0).alias("floor"),
        hold_tokens.fill_null(0).alias("hold_tokens"),
        pl.max_horizontal(bytes_sent // 4, 1).alias("floor_tokens"),
        counted.alias("counted"),
        pl.when(took).then(pl.coalesce("counted_tokens", _tokens())).otherwise(0).alias("counted_tokens"),
        (final & pl.col("corrects").is_null()).cast(pl.Int64).alias("requests"),
        _recorded_cost(raw).alias("cost"),
        pl.col("corrects").is_not_null().alias("correction"),
        pl.col(first).to_physical().alias("first"),
        pl.max_horizontal(first, pl.col(last).fill_null(pl.col(first))).to_physical().alias("last"),
    )


def _recorded_cost(raw: pl.DataFrame) -> pl.Series:
    """A row's own cost, else that of the row that corrects it; a correction whose row is here has none left."""
    corrections = raw.filter(pl.col("corrects").is_not_null()).select("corrects", corrected="cost_nano_usd")
    if corrections.is_empty():
        return raw["cost_nano_usd"]
    known = raw.select("receipt_id", "corrects", "cost_nano_usd").join(
        corrections, left_on="receipt_id", right_on="corrects", how="left", maintain_order="left"
    )
    moved = pl.col("corrects").is_in(raw["receipt_id"].implode())
    return known.select(
        pl.when(moved.fill_null(value=False)).then(None).otherwise(pl.coalesce("cost_nano_usd", "corrected"))
    ).to_series()


def _tokens() -> pl.Expr:
    meters = [pl.col(column).fill_null(0) for column in TOKEN_COLUMNS if column != "reasoning_tokens"]
    return pl.sum_horizontal(meters)


def _check(rows: pl.DataFrame) -> None:
    judged = rows.filter("judged")
    below = judged.filter(pl.any_horizontal(pl.col(AMOUNTS) < 0))
    if below.height:
        raise LoadError(
            f"receipt {below['receipt_id'][0]} holds or counted less than nothing", column="counted_nano_usd"
        )
    for names in (("hold", "counted", "floor"), ("hold_tokens", "counted_tokens", "floor_tokens")):
        if sum(exact_sum(judged[name]) for name in names) > _LARGEST:
            raise MoneyError(f"the sums of {', '.join(names)} pass 64 bits; judge a shorter history")
    if exact_sum(rows["cost"].abs()) > _LARGEST:
        raise MoneyError("the sum of all costs passes 64 bits; judge a shorter history")


def exact_sum(amounts: pl.Series) -> int:
    """The sum of an integer column, which Polars' own sum would wrap beyond 64 bits."""
    return int(amounts.cast(pl.Int128).sum() or 0)


def _events(rows: pl.DataFrame) -> pl.DataFrame:
    """Both events of every judged row, in order.

    Of one instant settlements come first by themselves: rows stand by admission, and who settles then came before. A
    call that took no time settles right after its own admission.
    """
    judged = rows.with_row_index("row").filter("judged")
    admissions = judged.select("row", settles=pl.lit(value=False), at="first")
    settlements = judged.filter(~pl.col("refused_before")).select(
        "row", settles=pl.lit(value=True), at="last"
    )
    return pl.concat((admissions, settlements)).sort("at", "row", "settles").select("row", "settles")


def _positions(rows: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Each row's place among the events, null when it is not judged; a refused row settles as it comes."""
    placed = events.with_row_index("place")
    admits = placed.filter(~pl.col("settles")).select("row", admit="place")
    settles = placed.filter("settles").select("row", settle="place")
    index = rows.select(row=pl.int_range(pl.len(), dtype=pl.UInt32))
    return (
        index.join(admits, on="row", how="left", maintain_order="left")
        .join(settles, on="row", how="left", maintain_order="left")
        .select("admit", pl.coalesce("settle", "admit"))
    )


def _complete_through(receipts: Receipts) -> datetime | None:
    ends = [
        file.header.get("to") if file.header is not None and file.complete else None
        for file in receipts.manifest.files
    ]
    if not ends or not all(isinstance(end, str) for end in ends):
        return None
    return max(parse_instant(str(end)) for end in ends)


def _instant(found: object) -> datetime | None:
    return found if isinstance(found, datetime) else None
