"""What pages know about the past, cached by the version of the history.

No cached function takes a frame: Streamlit hashes a Polars frame by its first and last rows, and would hand one
history's answer to another. A version, words and numbers are the whole key; `tests/console/test_lint.py` holds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import polars as pl
import streamlit as st

import toolkit as tk
from console import model_wording, modelling
from console.bootstrap import services
from console.gateway_client import GatewayError
from console.gateway_views import CapView, Coverage
from console.history import HistoryState
from console.modelling import Modelled
from console.reports import Dimensions, Reports
from console.state import CapDraft, Mistake
from toolkit.core.windows import Period, Window, period_at, period_of


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
    return services().ledger.sync(now=now)


def copied(*, now: bool = False) -> HistoryState:
    """The history that can be replayed: all of it, or the newest part of a large ledger."""
    return services().ledger.copy(now=now)


@st.cache_resource(show_spinner=False, max_entries=2)
def receipts(version: str) -> tk.Receipts:
    """The receipts of a copy's version. Shared between sessions: read-only."""
    return services().ledger.receipts(version)


@st.cache_resource(show_spinner=False, max_entries=4)
def reports(version: str) -> Reports:
    """Who answers for a version. Shared between sessions."""
    return services().ledger.reports(version)


@st.cache_data(show_spinner=False, max_entries=4)
def coverage(version: str) -> Coverage:
    """Rows, customers and instants of a version."""
    return reports(version).coverage()


@st.cache_data(show_spinner=False, max_entries=64)
def spend(
    version: str, by: Dimensions, window: Window, period: str | None = None, customer: str | None = None
) -> pl.DataFrame:
    """`tk.spend` of a version, of one period and one customer where they are given."""
    return reports(version).spend(by, window, period, customer)


@st.cache_data(show_spinner=False, max_entries=4)
def unpriced(version: str) -> pl.DataFrame:
    """`tk.unpriced` of a version."""
    return reports(version).unpriced()


@st.cache_data(show_spinner=False, max_entries=4)
def months(version: str) -> pl.DataFrame:
    """`tk.months` of a version."""
    return reports(version).months()


def periods(version: str, window: Window) -> list[str]:
    """The periods of a window, newest first."""
    return reports(version).periods(window)


@st.cache_data(show_spinner=False, max_entries=16)
def customers_in(version: str, period: str) -> int:
    """How many customers a period names."""
    return reports(version).customers_in(period)


def totals(version: str, window: Window, period: str, now: datetime) -> Totals:
    """One period's totals beside the one before it."""
    # Asked in the very words of `days`, so that both are one question.
    days = spend(version, ("day",), window, period, None)
    this = period_of(period)
    before, is_part = _before(this, now)
    known = coverage(version).first
    comparable = before is not None and known is not None and known < before.end
    return Totals(
        spend_nano_usd=_total(days["cost_nano_usd"]),
        requests=_total(days["requests"]),
        customers=customers_in(version, period),
        refused=_total(days["refused_requests"]),
        unpriced=_total(days["unpriced_requests"]),
        before_nano_usd=_cost_between(version, before.start, before.end) if comparable and before else None,
        before_key=before.key if before else "",
        before_is_part=is_part,
    )


def _total(values: pl.Series) -> int:
    # Python's sum does not wrap.
    return sum(values.drop_nulls().to_list())


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


@st.cache_data(show_spinner=False, max_entries=16)
def _cost_between(version: str, start: datetime, end: datetime) -> int:
    return reports(version).cost_between(start, end)


@st.cache_data(show_spinner=False, max_entries=16)
def latest(version: str, customer: str, status: str | None, most: int) -> pl.DataFrame:
    """One customer's latest receipts, newest first, of one status where it is given."""
    return reports(version).latest(customer, status, most)


@st.cache_data(show_spinner=False, max_entries=4)
def statuses(version: str) -> dict[str, int]:
    """How many requests ended in which way."""
    return reports(version).statuses()


def refused_by(version: str, cap: CapView) -> int:
    """Calls that one cap refused since it was armed."""
    return reports(version).refused_by(cap)


def subjects(version: str, column: str) -> list[str]:
    """The values of a scope in a copy, the ones that spent most first."""
    found = spend(version, (column,), "never").drop_nulls(column)
    return found.sort("counted_nano_usd", column, descending=[True, False])[column].to_list()


def modelled(history: HistoryState, draft: CapDraft, now: datetime) -> Modelled | Mistake:
    """`model`, unless the draft counts from before the part that was copied."""
    start = period_at(draft.window, now).start
    if history.since is not None and (start is None or start < history.since):
        return Mistake(model_wording.counts_from_earlier(history.since, draft.window))
    return model(history.version, draft, now)


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
    found = spend(version, ("day",), window, period, customer)
    today = f"{services().clock():%Y-%m-%d}"
    return found.select("day", "cost_nano_usd", partial=pl.col("day") == today)


def references(version: str, linked: str | None = None) -> dict[str, str]:
    """The reference that stands for each customer in URLs, and for the linked one; empty while nobody can tell."""
    try:
        return reports(version).references(linked)
    except GatewayError:
        return {}
