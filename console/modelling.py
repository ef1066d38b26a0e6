"""A draft cap against the past: `tk.what_if` put into the figures that the pages show.

The verdicts are the gateway's own decision function's; here they are only counted and added up. Also here: who is
over a draft in the running window, which is what the next call meets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

import polars as pl

import toolkit as tk
from console.state import CapDraft
from toolkit.core.caps import EACH
from toolkit.core.scopes import Scope
from toolkit.core.windows import Window, period_at, period_of
from toolkit.draft import timeline_of
from toolkit.replay import Replay

SUBJECT_COLUMNS: dict[Scope, str] = {
    "organization": "organization",
    "project": "project",
    "key": "key_id",
    "customer": "customer",
    "run": "run",
}


@dataclass(frozen=True, slots=True)
class Standing:
    """One counter under the draft: its subject and how much of the limit is spent, in the limit's unit."""

    subject: str
    spent: int
    limit: int

    @property
    def is_over(self) -> bool:
        """Whether nothing is left: the next call is refused for good."""
        return self.spent >= self.limit


PERIOD_FORMATS: dict[Window, str] = {
    "day": "%Y-%m-%d",
    "week": "%G-W%V",
    "month": "%Y-%m",
    "year": "%Y",
    "never": "all",
}
NEAREST = 30
CURVE_POINTS = 600


@dataclass(frozen=True, slots=True)
class Curve:
    """Counted spend over one window, call by call: under the draft, and as history has it."""

    at: tuple[datetime, ...]
    admitted_nano_usd: tuple[int, ...]
    recorded_nano_usd: tuple[int, ...]
    limit_nano_usd: int | None


@dataclass(frozen=True, slots=True)
class Day:
    """One UTC day of the replay."""

    day: str
    admitted_nano_usd: int
    stopped_nano_usd: int
    calls_refused: int
    customers_refused: int


@dataclass(frozen=True, kw_only=True)
class Modelled:
    """What a draft would have done to one history."""

    draft: CapDraft
    refused: pl.DataFrame = field(repr=False)
    """The refused calls: `row` in the replay's history, and the `code` of the refusal."""
    calls: int
    customers: int
    spend_nano_usd: int
    stopped_nano_usd: int
    calls_refused: int
    customers_refused: int
    unpriced_refused: int
    """Of the refused calls, those to a model without a price: no limit would let them through."""
    cost_unknown: int
    days: tuple[Day, ...]
    who: pl.DataFrame
    """By customer, the most stopped first: customer, first_refusal, calls, stopped_nano_usd (null where no refused
    call has a known cost), share of the customer's spend."""
    over: tuple[Standing, ...]
    """Over the limit in the running period, the furthest over first."""
    over_period: str
    over_period_has_data: bool
    ended_period: str | None
    """The newest period with data, when it is not the running one."""
    ended_over: tuple[Standing, ...]
    nearest: tuple[Standing, ...]
    """The counters nearest to the limit or over it, in the running period, else in the newest with data."""

    @cached_property
    def over_count(self) -> int:
        """How many are refused on their next call once the draft is armed."""
        return len(self.over)

    def first_refusal(self, customer: str | None) -> datetime | None:
        """When the draft would first have refused a customer."""
        found = self.who.filter(pl.col("customer").eq_missing(pl.lit(customer, dtype=pl.String)))[
            "first_refusal"
        ]
        return found[0] if found.len() else None


def modelled(replay: Replay, receipts: tk.Receipts, draft: CapDraft, period: str) -> Modelled:
    """The draft over one history, in figures; `period` is the one that runs now."""
    rows = _judged(replay, draft)
    standing = standing_in(receipts, draft, period)
    ended_period = None if standing else _newest_period(rows, draft)
    ended = standing_in(receipts, draft, ended_period) if ended_period is not None else ()
    total = _sums(rows)
    return Modelled(
        draft=draft,
        refused=rows.filter("refused").select("row", "code"),
        calls=total["calls"],
        customers=total["customers"],
        spend_nano_usd=total["spend"],
        stopped_nano_usd=total["stopped"],
        calls_refused=total["refused"],
        customers_refused=total["customers_refused"],
        unpriced_refused=total["unpriced_refused"],
        cost_unknown=total["cost_unknown"],
        days=_days(rows),
        who=_who(rows),
        over=tuple(row for row in standing if row.is_over),
        over_period=period,
        over_period_has_data=bool(standing),
        ended_period=ended_period,
        ended_over=tuple(row for row in ended if row.is_over),
        nearest=(standing or ended)[:NEAREST],
    )


def _judged(replay: Replay, draft: CapDraft) -> pl.DataFrame:
    judged = replay.judge(timeline_of([draft.cap()]))
    rows = replay.history.rows.with_row_index("row").join(
        judged.refused.select("row", "code"), on="row", how="left", maintain_order="left"
    )
    return rows.select(
        "row",
        "customer",
        "admitted_at",
        "cost",
        "judged",
        "refused_before",
        "code",
        refused=pl.col("code").is_not_null(),
    )


_REFUSED = pl.col("refused")
_COUNTED = [
    pl.len().alias("calls"),
    pl.col("cost").cast(pl.Int128).sum().alias("spend"),
    pl.col("cost").filter(_REFUSED).cast(pl.Int128).sum().alias("stopped"),
    _REFUSED.sum().alias("refused"),
    (_REFUSED & pl.col("cost").is_not_null()).sum().alias("refused_known"),
    pl.col("customer").drop_nulls().n_unique().alias("customers"),
    pl.col("customer").filter(_REFUSED).drop_nulls().n_unique().alias("customers_refused"),
    (pl.col("code") == "model_unpriced").sum().alias("unpriced_refused"),
    (pl.col("refused_before") & ~_REFUSED).sum().alias("cost_unknown"),
]


def _sums(rows: pl.DataFrame) -> dict[str, int]:
    return {name: int(value or 0) for name, value in rows.select(_COUNTED).row(0, named=True).items()}


def _days(rows: pl.DataFrame) -> tuple[Day, ...]:
    by_day = (
        rows.group_by(pl.col("admitted_at").dt.strftime("%Y-%m-%d").alias("day")).agg(_COUNTED).sort("day")
    )
    return tuple(
        Day(
            row["day"],
            int(row["spend"] - row["stopped"]),
            int(row["stopped"]),
            row["refused"],
            row["customers_refused"],
        )
        for row in by_day.iter_rows(named=True)
    )


def _who(rows: pl.DataFrame) -> pl.DataFrame:
    first = pl.col("admitted_at").filter(_REFUSED).min().alias("first_refusal")
    by_customer = rows.group_by("customer").agg(first, *_COUNTED).filter(pl.col("refused") > 0)
    known = pl.col("refused_known") > 0
    return by_customer.select(
        "customer",
        "first_refusal",
        calls=pl.col("refused").cast(pl.Int64),
        stopped_nano_usd=pl.when(known).then(pl.col("stopped").cast(pl.Int64)),
        share=pl.when(known & (pl.col("spend") > 0)).then(pl.col("stopped") / pl.col("spend")),
    ).sort("stopped_nano_usd", "calls", "customer", descending=[True, True, False], nulls_last=True)


def curve_of(replay: Replay, modelled: Modelled, customer: str | None) -> Curve | None:
    """How spend ran into the cap in the window in which the draft stopped most: the customer's spend, or that of the
    cap's subject. None when the draft's limit stopped nothing there."""
    rows = _under_one_counter(replay, modelled, customer)
    stopped = rows.filter(pl.col("code").is_not_null() & (pl.col("code") != "model_unpriced"))
    if stopped.is_empty():
        return None
    by_window = stopped.group_by("window").agg(pl.col("cost").cast(pl.Int128).sum()).sort("cost", "window")
    taken = pl.when(pl.col("code").is_null()).then(pl.col("counted")).otherwise(0)
    rows = rows.filter(pl.col("window") == by_window["window"][-1]).select(
        "admitted_at", admitted=taken.cum_sum(), recorded=pl.col("counted").cum_sum()
    )
    rows = rows.gather_every(max(1, rows.height // CURVE_POINTS))
    return Curve(
        at=tuple(rows["admitted_at"]),
        admitted_nano_usd=tuple(rows["admitted"]),
        recorded_nano_usd=tuple(rows["recorded"]),
        limit_nano_usd=modelled.draft.limit_nano_usd,
    )


def _under_one_counter(replay: Replay, modelled: Modelled, customer: str | None) -> pl.DataFrame:
    """The calls of one customer or of the cap's subject, in order, with their refusal and their window's key."""
    draft = modelled.draft
    rows = replay.history.rows.with_row_index("row")
    if draft.scope == "customer":
        rows = rows.filter(pl.col("customer").eq_missing(pl.lit(customer, dtype=pl.String)))
    elif draft.subject != EACH:
        rows = rows.filter(pl.col(SUBJECT_COLUMNS[draft.scope]) == draft.subject)
    rows = rows.join(modelled.refused, on="row", how="left", maintain_order="left")
    key = pl.col("admitted_at").dt.strftime(PERIOD_FORMATS[draft.window])
    return rows.sort("admitted_at", "receipt_id").with_columns(window=key)


def _newest_period(rows: pl.DataFrame, draft: CapDraft) -> str | None:
    last = rows["admitted_at"].max()
    return period_at(draft.window, last).key if isinstance(last, datetime) else None


def standing_in(receipts: tk.Receipts, draft: CapDraft, period: str) -> tuple[Standing, ...]:
    """Every counter that the draft stands over in one period, the nearest to its limit or furthest over it first."""
    span = period_of(period)
    rows = receipts.frame
    if span.start is not None:
        rows = rows.filter(pl.col("admitted_at").is_between(span.start, span.end, closed="left"))
    column = SUBJECT_COLUMNS[draft.scope]
    rows = rows.filter(pl.col(column).is_not_null())
    if draft.subject != EACH:
        rows = rows.filter(pl.col(column) == draft.subject)
    counted = (
        _matching(rows, draft)
        .group_by("subject", "split")
        .agg(
            usd=pl.col("counted_nano_usd").cast(pl.Int128).sum(),
            tokens=pl.col("counted_tokens").cast(pl.Int128).sum(),
            requests=(pl.col("status").is_in(("served", "abandoned")) & pl.col("corrects").is_null()).sum(),
        )
    )
    limits = (draft.limit_nano_usd, draft.token_limit, draft.request_limit)
    found = [
        Standing(name, int(spent or 0), limit)
        for name, *spents in counted.select("subject", "usd", "tokens", "requests").collect().rows()
        for spent, limit in zip(spents, limits, strict=True)
        if limit is not None
    ]
    worst = {row.subject: row for row in sorted(found, key=_share)}
    return tuple(sorted(worst.values(), key=_share, reverse=True))


def _share(row: Standing) -> tuple[int, str]:
    # Thousandths are enough to order a list; a limit of zero is passed by everybody alike.
    return (row.spent * 1000 // row.limit if row.limit else row.spent, row.subject)


def _matching(rows: pl.LazyFrame, draft: CapDraft) -> pl.LazyFrame:
    """The rows inside the draft's match, with their subject and the values that split its counters."""
    match = draft.match
    splits: list[pl.Expr] = []
    bare = pl.col("model_requested").str.strip_prefix(pl.concat_str("provider", pl.lit("/")))
    for wanted, value in ((match.provider, pl.col("provider")), (match.model, bare)):
        if wanted is not None:
            rows = rows.filter(value.is_not_null() if wanted == EACH else value == wanted)
            splits.append(value)
    if match.tag is not None:
        namespace, _, wanted = match.tag.partition(":")
        prefix = f"{namespace}:"
        value = (
            pl.col("tags").list.eval(pl.element().filter(pl.element().str.starts_with(prefix))).list.first()
        )
        rows = rows.filter(value.is_not_null() if wanted == EACH else value == prefix + wanted)
        splits.append(value)
    split = pl.concat_str(splits, separator="\0") if splits else pl.lit("")
    return rows.with_columns(subject=pl.col(SUBJECT_COLUMNS[draft.scope]), split=split)
