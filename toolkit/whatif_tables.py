"""The tables behind a `WhatIf`. Each starts from what no draft changes and takes away what this one refuses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import polars as pl

from toolkit.core.caps import Cap
from toolkit.core.errors import QueryError
from toolkit.core.windows import period_at
from toolkit.draft import Timeline
from toolkit.history import History, exact_sum
from toolkit.lanes import COUNTER, SPENT, Lane, Limits, shape_of
from toolkit.replay import Judged, Replay

_DAY = timedelta(days=1)
_SLACK = timedelta(hours=1)
"""A day is whole when the data comes within this of its ends: nobody calls at midnight sharp."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Explained:
    """One customer against one cap.

    `curve`: one row per judged call: `receipt_id, admitted_at, period, verdict, code, cost_nano_usd, hold_nano_usd,
    spent_nano_usd` and `held_nano_usd` on the counter before it under the draft, `uncapped_nano_usd` spent before it
    in history, `limit_nano_usd`.
    """

    customer: str
    cap: Cap
    limit_nano_usd: int
    curve: pl.DataFrame
    data_through: datetime | None

    def last_refused_period(self) -> str | None:
        """The newest period in which the draft refused a call, else the newest with one."""
        refused = self.curve.filter(pl.col("verdict") == "refused")
        rows = refused if refused.height else self.curve
        return rows["period"][-1] if rows.height else None


def refused_rows(replay: Replay, judged: Judged) -> pl.DataFrame:
    """The refused receipts as rows of history."""
    return replay.history.rows[judged.refused["row"]]


def by_customer(replay: Replay, judged: Judged) -> pl.DataFrame:
    """See `WhatIf.by_customer`, without `over_now`."""
    refused = (
        refused_rows(replay, judged)
        .group_by("customer")
        .agg(
            pl.len().cast(pl.Int64).alias("refused_requests"),
            pl.col("cost").sum().alias("stopped"),
            pl.col("cost").count().alias("with_cost"),
            pl.col("admitted_at").min().alias("first_refused_at"),
        )
    )
    joined = replay.totals("customer").join(refused, on="customer", how="left", nulls_equal=True)
    cost = pl.col("judged_nano_usd") + pl.col("not_judged_nano_usd")
    stopped = pl.col("stopped").fill_null(0)
    told = pl.when(pl.col("with_cost").is_null() | (pl.col("with_cost") > 0))
    return joined.select(
        "customer",
        "requests",
        pl.col("refused_requests").fill_null(0),
        told.then(stopped).alias("refused_nano_usd"),
        "first_refused_at",
        refused_share=told.then(pl.when(cost > 0).then(stopped / cost)),
        admitted_nano_usd=pl.col("judged_nano_usd") - stopped,
    ).sort(
        "refused_nano_usd", "refused_requests", "customer", descending=[True, True, False], nulls_last=True
    )


def by_day(replay: Replay, judged: Judged) -> pl.DataFrame:
    """See `WhatIf.by_day`."""
    rows = refused_rows(replay, judged).with_columns(day=pl.col("admitted_at").dt.date())
    refused = rows.group_by("day").agg(
        pl.len().cast(pl.Int64).alias("refused_requests"),
        pl.col("customer").drop_nulls().n_unique().cast(pl.Int64).alias("customers_refused"),
        pl.col("cost").sum().alias("refused_nano_usd"),
    )
    joined = replay.totals("day").join(refused, on="day", how="left")
    stopped = pl.col("refused_nano_usd").fill_null(0)
    return joined.select(
        "day",
        "requests",
        pl.col("refused_requests", "customers_refused").fill_null(0),
        stopped,
        "not_judged_nano_usd",
        admitted_nano_usd=pl.col("judged_nano_usd") - stopped,
        partial=partial_day(replay.history),
    ).sort("day")


def partial_day(history: History) -> pl.Expr:
    """Whether the data leaves out a part of the column `day`."""
    if history.data_from is None or history.data_through is None:
        return pl.lit(value=False)
    start = pl.col("day").cast(pl.Datetime("us", "UTC"))
    through = max(history.data_through, history.complete_through or history.data_through)
    return (start + _SLACK < history.data_from) | (start + (_DAY - _SLACK) > through)


def decisions(replay: Replay, judged: Judged) -> pl.DataFrame:
    """See `WhatIf.decisions`."""
    rows = replay.history.rows.with_row_index("row")
    return rows.join(judged.refused, on="row", how="left", maintain_order="left").select(
        "receipt_id",
        "admitted_at",
        "customer",
        _VERDICT.alias("verdict"),
        "code",
        "cap_id",
        "unit",
        "headroom",
        pl.col("false_stop").fill_null(value=False),
        cost_nano_usd="cost",
    )


_VERDICT = (
    pl.when(pl.col("code").is_not_null())
    .then(pl.lit("refused"))
    .when(~pl.col("judged"))
    .then(pl.lit("not_judged"))
    .when("refused_before")
    .then(pl.lit("cost_unknown"))
    .otherwise(pl.lit("admitted"))
)


def overshoot(replay: Replay, timeline: Timeline, judged: Judged) -> int:
    """Nano-USD by which dollar counters ended above the last caps' limits, in the lane where that is most."""
    most = 0
    for shape in {shape_of(cap) for cap in timeline[-1].caps if cap.limit_nano_usd is not None}:
        lane = replay.lane(shape)
        spent = lane.sums(SPENT["usd"]) - lane.sums(SPENT["usd"], judged.refused["row"])
        above = spent - Limits(lane, timeline[-1].caps).least("usd")
        most = max(most, exact_sum(above.filter(above > 0)))
    return most


def over_now(replay: Replay, timeline: Timeline) -> pl.DataFrame:
    """See `WhatIf.over_now`."""
    rows = replay.history.rows
    newest = rows["admitted_at"].max()
    if not isinstance(newest, datetime):
        return _NOBODY
    found = [_NOBODY]
    for cap in timeline[-1].caps:
        lane = replay.lane(shape_of(cap))
        period = period_at(cap.window, newest)
        current = rows.filter(pl.col("admitted_at") >= period.start) if period.start is not None else rows
        taken = lane.taken(current).filter(Limits(lane, timeline[-1].caps).binds(cap))
        for unit, limit in cap.limits:
            over = taken.filter(pl.col(SPENT[unit]) >= limit)
            found.append(
                over.select(
                    pl.lit(cap.id, dtype=pl.Int64).alias("cap_id"),
                    pl.lit(cap.scope).alias("scope"),
                    *COUNTER[1:-1],
                    pl.lit(period.key).alias("period"),
                    pl.lit(unit).alias("unit"),
                    pl.col(SPENT[unit]).alias("spent"),
                    pl.lit(limit, dtype=pl.Int64).alias("limit"),
                )
            )
    return pl.concat(found).sort("cap_id", "unit", "spent", "subject", descending=[False, False, True, False])


_NOBODY = pl.DataFrame(
    schema={
        "cap_id": pl.Int64(),
        "scope": pl.String(),
        "subject": pl.String(),
        "provider": pl.String(),
        "model": pl.String(),
        "tag": pl.String(),
        "period": pl.String(),
        "unit": pl.String(),
        "spent": pl.Int64(),
        "limit": pl.Int64(),
    }
)


def explain(
    replay: Replay, timeline: Timeline, judged: Judged, customer: str, cap_id: int | None
) -> Explained:
    """See `WhatIf.explain`."""
    cap = _cap_over(replay, timeline, customer, cap_id)
    assert cap.limit_nano_usd is not None
    lane = replay.lane(shape_of(cap))
    mine = lane.keys.filter(pl.col("subject") == customer, Limits(lane, timeline[-1].caps).binds(cap))["key"]
    places = lane.rows.filter(pl.col("key").is_in(mine.implode()))
    codes = judged.refused.select("row", "code")
    places = places.join(codes, on="row", how="left", maintain_order="left").select("row", "key", "code")
    calls = _with_balances(replay.history.rows[places["row"]].hstack(places.get_columns()))
    period = (
        pl.col("admitted_at").dt.strftime(_PERIODS[cap.window]) if cap.window in _PERIODS else pl.lit("all")
    )
    curve = calls.select(
        "receipt_id",
        "admitted_at",
        period.alias("period"),
        _VERDICT.alias("verdict"),
        "code",
        cost_nano_usd="cost",
        hold_nano_usd=pl.when("priced").then("hold"),
        spent_nano_usd="spent",
        held_nano_usd="held",
        uncapped_nano_usd="uncapped",
        limit_nano_usd=pl.lit(cap.limit_nano_usd, dtype=pl.Int64),
    )
    return Explained(
        customer=customer,
        cap=cap,
        limit_nano_usd=cap.limit_nano_usd,
        curve=curve,
        data_through=replay.history.data_through,
    )


_PERIODS = {"day": "%Y-%m-%d", "week": "%G-W%V", "month": "%Y-%m", "year": "%Y"}
"""The keys of `core.windows`, for a whole column."""


def _with_balances(calls: pl.DataFrame) -> pl.DataFrame:
    """Judged calls, by admission, with what their counter `key` had before each: spent and held, and spent uncapped."""
    takes = ~pl.col("refused_before")
    stays = takes & pl.col("code").is_null()
    hold, counted = pl.when(stays).then("hold").otherwise(0), pl.when(stays).then("counted").otherwise(0)
    nothing = pl.lit(0, dtype=pl.Int64)
    admits = calls.select("row", "key", place="admit", spent=nothing, held=hold, uncapped=nothing)
    settles = calls.filter(takes).select(
        "row", "key", place="settle", spent=counted, held=-hold, uncapped="counted"
    )
    running = ("spent", "held", "uncapped")
    before = (
        pl.concat((admits, settles))
        .sort("place")
        .with_columns((pl.col(name).cum_sum() - pl.col(name)).over("key") for name in running)
    )
    return calls.sort("admit").join(
        before.drop("row", "key"), left_on="admit", right_on="place", how="left", maintain_order="left"
    )


def sweep(replay: Replay, points: Sequence[tuple[int, Judged]]) -> pl.DataFrame:
    """See `WhatIf.sweep`."""
    found = []
    for limit, judged in points:
        refused = refused_rows(replay, judged)
        stopped = exact_sum(refused["cost"])
        customers = refused["customer"].drop_nulls().n_unique()
        found.append((limit, refused.height, stopped, customers, int(judged.refused["false_stop"].sum())))
    names = ("limit_nano_usd", "refused_requests", "refused_nano_usd", "customers_refused", "false_stops")
    frame = pl.DataFrame(found, schema=dict.fromkeys(names, pl.Int64), orient="row")
    knee = _knee([(row[3], row[2]) for row in found])
    return frame.with_columns(knee=pl.int_range(pl.len()) == (-1 if knee is None else knee))


def diff(before: pl.DataFrame, after: pl.DataFrame) -> pl.DataFrame:
    """See `WhatIf.diff`."""
    if not before["receipt_id"].equals(after["receipt_id"]):
        raise QueryError("the two what-ifs are not over the same receipts; judge both on one Replay")
    change = (
        pl.when(pl.col("after") == "refused")
        .then(pl.lit("newly_refused"))
        .when(pl.col("before") == "refused")
        .then(pl.lit("no_longer_refused"))
    )
    both = before.select("receipt_id", "admitted_at", "customer", "cost_nano_usd", before="verdict")
    both = both.hstack([after["verdict"].alias("after")])
    return both.filter(pl.col("before") != pl.col("after")).with_columns(change=change)


def _cap_over(replay: Replay, timeline: Timeline, customer: str, cap_id: int | None) -> Cap:
    """The named customer cap, else the one with the least dollar limit that binds the customer."""
    caps = timeline[-1].caps
    binding = [
        cap
        for cap in caps
        if cap.scope == "customer"
        and cap.limit_nano_usd is not None
        and cap_id in (None, cap.id)
        and _binds(replay.lane(shape_of(cap)), caps, cap, customer)
    ]
    if not binding:
        which = (
            "no customer cap with a dollar limit"
            if cap_id is None
            else f"no customer dollar cap with id {cap_id}"
        )
        raise QueryError(f"{which} of this draft binds a call of {customer!r} in these receipts")
    return min(binding, key=lambda cap: (cap.limit_nano_usd or 0, cap.id))


def _binds(lane: Lane, caps: Sequence[Cap], cap: Cap, customer: str) -> bool:
    return not lane.keys.filter(pl.col("subject") == customer, Limits(lane, caps).binds(cap)).is_empty()


def _knee(points: Sequence[tuple[int, int]]) -> int | None:
    """The point farthest from the line between the ends, in whole numbers; None when all lie on it."""
    if len(points) < 3:
        return None
    (x0, y0), (x1, y1) = points[0], points[-1]
    away = [abs((x - x0) * (y1 - y0) - (y - y0) * (x1 - x0)) for x, y in points]
    return away.index(max(away)) if max(away) > 0 else None
