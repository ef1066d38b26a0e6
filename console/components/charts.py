"""Figures on a page, on the page's own background and in its colours.

One helper draws them all, because Plotly's default offers to post a chart to its maker, and Streamlit leaves the
page's palette out of figures of this kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import polars as pl
import streamlit as st
from plotly import graph_objects as go

from console import data, formatting, wording
from console.modelling import Curve, Day
from toolkit.core.windows import Window

CONFIG: dict[str, Any] = {"showSendToCloud": False, "displaylogo": False, "displayModeBar": False}
HEIGHT = 340

ADMITTED, STOPPED, LINE = "#94A3B8", "#D64545", "#748FFC"
"""Grey for what goes through, one red for what is stopped; both stand on a light page and on a dark one."""


def show(figure: go.Figure, *, key: str, alt: str) -> None:
    """Draw a figure. It has no title: its panel has one, and a name is no place for Plotly's markup."""
    figure.update_layout(
        height=HEIGHT,
        margin={"l": 8, "r": 8, "t": 32, "b": 8},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        hovermode="x unified",
        bargap=0.25,
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
    )
    figure.update_yaxes(tickprefix="$", separatethousands=True, rangemode="tozero", tickmode="auto")
    st.plotly_chart(figure, key=key, config=CONFIG, alt=alt)


def spend_by_day(version: str, window: Window, period: str, *, key: str, customer: str | None = None) -> None:
    """What each UTC day of a period cost, of everybody or of one customer."""
    by = ("day",) if customer is None else ("day", "customer")
    days = data.spend(version, by, window).filter(pl.col("period") == period)
    if customer is not None:
        days = days.filter(pl.col("customer") == customer)
    days = days.sort("day")
    cost = days["cost_usd"].fill_null(0).cast(pl.Float64).to_list()
    shown = [formatting.total_usd(nano) for nano in days["cost_nano_usd"]]
    figure = go.Figure(_bars(wording.SPEND_CARD, days["day"].to_list(), cost, shown, LINE))
    show(figure, key=key, alt=wording.BY_DAY_TITLE)


def what_if_by_day(days: tuple[Day, ...], *, key: str) -> None:
    """Each UTC day's spend, split into what a draft admits and what it stops."""
    on = [day.day for day in days]
    series = (
        (wording.ADMITTED, [day.admitted_nano_usd for day in days], ADMITTED),
        (wording.STOPPED, [day.stopped_nano_usd for day in days], STOPPED),
    )
    bars = [
        _bars(name, on, _dollars(amounts), [formatting.total_usd(nano) for nano in amounts], color)
        for name, amounts, color in series
    ]
    figure = go.Figure(bars)
    figure.update_layout(barmode="stack")
    show(figure, key=key, alt=wording.DAILY_TITLE)


def customer_curve(curve: Curve, *, key: str) -> None:
    """One customer's counted spend through a window, up to the cap and beyond it."""
    figure = go.Figure(
        [
            _steps(wording.ADMITTED, curve.at, _dollars(curve.admitted_nano_usd), ADMITTED, "solid"),
            _steps(wording.SPENT_ANYWAY, curve.at, _dollars(curve.recorded_nano_usd), STOPPED, "dot"),
        ]
    )
    if curve.limit_nano_usd is not None:
        cap = formatting.cap_usd(curve.limit_nano_usd)
        (line,) = _dollars([curve.limit_nano_usd])
        figure.add_hline(y=line, line={"dash": "dash", "width": 1.5, "color": LINE}, annotation={"text": cap})
    show(figure, key=key, alt=wording.CURVE_TITLE)


def _bars(name: str, on: list[str], dollars: list[float], shown: list[str], color: str) -> go.Bar:
    return go.Bar(
        name=name, x=on, y=dollars, customdata=shown, hovertemplate="%{customdata}", marker_color=color
    )


def _steps(name: str, at: Sequence[Any], dollars: list[float], color: str, dash: str) -> go.Scatter:
    line = {"shape": "hv", "color": color, "dash": dash, "width": 2}
    return go.Scatter(name=name, x=at, y=dollars, mode="lines", line=line, hovertemplate="$%{y:,.2f}")


def _dollars(nano: Iterable[int]) -> list[float]:
    """Amounts for an axis: a pixel is no money."""
    return [amount / 1_000_000_000 for amount in nano]
