"""What pages know about the past, cached by the version of the history.

No cached function takes a frame: Streamlit hashes a Polars frame by its first and last rows, and would hand one
history's answer to another. A version, words and numbers are the whole key; `tests/console/test_lint.py` holds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias

import polars as pl
import streamlit as st

import toolkit as tk
from console import modelling
from console.bootstrap import services
from console.gateway_client import GatewayError
from console.gateway_views import CapView
from console.history import HistoryState
from console.modelling import Modelled
from console.state import CapDraft
from toolkit.core.windows import Period, Window, period_at, period_of

Dimensions: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """What the history holds."""

    rows: int
    customers: int
    first: datetime | None
    last: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """One period in four numbers, and the cost of the period before: of its same part while this one runs."""

    spend_nano_usd: int
    requests: int
    customers: int
    refused: int
    unpriced: int
    before_nano_usd: int | None
    before_key: str
    before_is_part: bool


def current(*, now: bool = False) -> HistoryState:
    """The history as it is; the gateway is asked again at once with `now`, else every few seconds."""
    return services().history.sync(now=now)


@st.cache_resource(show_spinner=False, max_entries=2)
def receipts(version: str) -> tk.Receipts:
    """The receipts of a version. Shared between sessions: read-only."""
    return services().history.receipts(version)


@st.cache_data(show_spinner=False, max_entries=4)
def coverage(version: str) -> Coverage:
    """Rows, customers and instants of a version."""
    found = receipts(version).frame.select(
        rows=pl.len(),
        customers=pl.col("customer").n_unique() - pl.col("customer").is_null().any().cast(pl.UInt32),
        first=pl.col("admitted_at").min(),
        last=pl.col("settled_at").max(),
    )
    return Coverage(**found.collect().row(0, named=True))


@st.cache_data(show_spinner=False, max_entries=64)
def spend(version: str, by: Dimensions, window: Window) -> pl.DataFrame:
    """`tk.spend` of a version."""
    return tk.spend(receipts(version), by=by, window=window)


@st.cache_data(show_spinner=False, max_entries=4)
def unpriced(version: str) -> pl.DataFrame:
    """`tk.unpriced` of a version."""
    return tk.unpriced(receipts(version))


@st.cache_data(show_spinner=False, max_entries=4)
def months(version: str) -> pl.DataFrame:
    """`tk.months` of a version."""
    return tk.months(receipts(version))


def periods(version: str, window: Window) -> list[str]:
    """The periods of a window that have data, newest first."""
    return sorted(set(spend(version, (), window)["period"]), reverse=True)


def totals(version: str, window: Window, period: str, now: datetime) -> Totals:
    """One period's totals beside the one before it."""
    row = spend(version, (), window).filter(pl.col("period") == period).row(0, named=True)
    this = period_of(period)
    before, is_part = _before(this, now)
    known = coverage(version).first
    comparable = before is not None and known is not None and known < before.end
    return Totals(
        spend_nano_usd=row["cost_nano_usd"] or 0,
        requests=row["requests"],
        customers=spend(version, ("customer",), window)
        .filter(pl.col("period") == period, pl.col("customer").is_not_null())
        .height,
        refused=row["refused_requests"],
        unpriced=row["unpriced_requests"],
        before_nano_usd=_cost_between(version, before.start, before.end) if comparable and before else None,
        before_key=before.key if before else "",
        before_is_part=is_part,
    )


@dataclass(frozen=True, slots=True)
class _Span:
    key: str
    start: datetime
    end: datetime


def _before(this: Period, now: datetime) -> tuple[_Span | None, bool]:
    """The period before, cut to as much of it as has passed of this one."""
    if this.start is None or this.end is None:
        return None, False
    whole = period_at(this.window, this.start - timedelta(microseconds=1))
    assert whole.start is not None
    assert whole.end is not None
    if now >= this.end:
        return _Span(whole.key, whole.start, whole.end), False
    cut = min(whole.start + (now - this.start), whole.end)
    return _Span(whole.key, whole.start, cut), True


def _cost_between(version: str, start: datetime, end: datetime) -> int:
    rows = receipts(version).frame.filter(pl.col("admitted_at").is_between(start, end, closed="left"))
    return int(rows.select(pl.col("cost_nano_usd").cast(pl.Int128).sum()).collect().item() or 0)


def of_customer(version: str, customer: str | None, most: int) -> pl.DataFrame:
    """One customer's latest receipts, newest first."""
    rows = receipts(version).frame.filter(pl.col("customer").eq_missing(pl.lit(customer, dtype=pl.String)))
    return rows.sort("admitted_at", "receipt_id", descending=True).head(most).collect()


def refusals_of(version: str, customer: str | None, most: int) -> pl.DataFrame:
    """One customer's latest refused calls, newest first."""
    rows = receipts(version).frame.filter(
        pl.col("customer").eq_missing(pl.lit(customer, dtype=pl.String)), pl.col("status") == "refused"
    )
    return rows.sort("admitted_at", "receipt_id", descending=True).head(most).collect()


@st.cache_data(show_spinner=False, max_entries=4)
def statuses(version: str) -> dict[str, int]:
    """How many requests ended in which way."""
    found = spend(version, ("status",), "never")
    return dict(found.select("status", "requests").rows())


def refused_by(version: str, cap: CapView) -> int:
    """Calls that one cap refused since it was armed."""
    mine = receipts(version).frame.filter(pl.col("status") == "refused", pl.col("cap_id") == cap.id)
    if cap.armed_at is not None:
        mine = mine.filter(pl.col("admitted_at") >= cap.armed_at)
    return int(mine.select(pl.len()).collect().item())


def subjects(version: str, column: str) -> list[str]:
    """The values of a scope in the history, the ones that spent most first."""
    found = spend(version, (column,), "never").drop_nulls(column)
    return found.sort("counted_nano_usd", column, descending=[True, False])[column].to_list()


def model(version: str, draft: CapDraft, now: datetime) -> Modelled:
    """What a draft would have done, and who is over it in the window that runs at `now`."""
    return _modelled(version, draft, period_at(draft.window, now).key)


@st.cache_resource(show_spinner=False, max_entries=64)
def _modelled(version: str, draft: CapDraft, period: str) -> Modelled:
    return modelling.modelled(_past(version), draft, period)


@st.cache_resource(show_spinner=False, max_entries=2)
def _past(version: str) -> tk.WhatIf:
    """The history prepared for any number of drafts: itself under no cap at all."""
    return tk.what_if(receipts(version), [])


def standings(version: str, draft: CapDraft, most: int) -> list[int]:
    """What the counters nearest to a draft's limit took in the newest period with data, the largest first."""
    column = modelling.SUBJECT_COLUMNS[draft.scope]
    found = spend(version, (column,), draft.window).drop_nulls(column)
    newest = found.filter(pl.col("period") == pl.col("period").max())
    return newest.sort("counted_nano_usd", descending=True)["counted_nano_usd"].head(most).to_list()


def days(version: str, window: Window, period: str, customer: str | None) -> pl.DataFrame:
    """What each day of a period cost, of everybody or of one customer; the day that runs is `partial`."""
    found = spend(version, ("day",) if customer is None else ("day", "customer"), window)
    found = found.filter(pl.col("period") == period)
    if customer is not None:
        found = found.filter(pl.col("customer") == customer)
    today = f"{services().clock():%Y-%m-%d}"
    return found.select("day", "cost_nano_usd", partial=pl.col("day") == today)


def references(version: str) -> dict[str, str]:
    """The reference that stands for each customer in URLs; empty while the gateway cannot be asked."""
    try:
        return _references(version)
    except GatewayError:
        return {}


@st.cache_data(show_spinner=False, ttl=300, max_entries=4)
def _references(version: str) -> dict[str, str]:
    # The version is in the key because a new row may bring a new customer.
    return services().gateway.customer_references()
