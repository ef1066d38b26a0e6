"""The toolkit's figures on a page: the same that notebooks draw, in the page's fonts and on its background."""

from __future__ import annotations

import streamlit as st

import toolkit as tk
from console import data, model_wording, wording
from console.modelling import Modelled
from toolkit.core.windows import Window

HEIGHT = 340
FEW_DAYS = 7


def spend_by_day(version: str, window: Window, period: str, *, key: str, customer: str | None = None) -> None:
    """What each UTC day of a period cost, of everybody or of one customer."""
    days = data.days(version, window, period, customer)
    figure = tk.figures.spend_by_day(days)
    _show(_of_days(figure, days.height), key=key, alt=wording.BY_DAY_TITLE)


def what_if_by_day(modelled: Modelled, *, key: str) -> None:
    """Each UTC day's spend, split into what a draft admits and what it refuses."""
    figure = tk.figures.what_if_by_day(modelled.what_if)
    _show(_of_days(figure, modelled.what_if.by_day.height), key=key, alt=model_wording.DAILY_TITLE)


def customer_curve(modelled: Modelled, customer: str, *, key: str) -> None:
    """One customer's spend through a window, up to the limit and beyond it."""
    found = modelled.explained(customer)
    if found is None:
        st.caption(model_wording.NO_CURVE)
        return
    explained, period = found
    _show(tk.figures.customer_curve(explained, period=period), key=key, alt=model_wording.CURVE_TITLE)


def _of_days(figure: tk.figures.Figure, days: int) -> tk.figures.Figure:
    """A time axis through a day or two is marked in fractions of seconds; a few days stand under their names."""
    if days <= FEW_DAYS:
        figure.update_layout(xaxis={"type": "category", "categoryorder": "category ascending"}, bargap=0.6)
    return figure


def _show(figure: tk.figures.Figure, *, key: str, alt: str) -> None:
    """Draw a figure without its title: the panel has one, and a name is no place for Plotly's markup."""
    figure.update_layout(
        title=None,
        height=HEIGHT,
        margin={"l": 8, "r": 8, "t": 36, "b": 8},
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
    )
    figure.update_yaxes(exponentformat="none")
    st.plotly_chart(figure, key=key, config=tk.figures.config(), alt=alt)
