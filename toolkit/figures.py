"""Figures that the console and the notebooks share: the finding as the title, zone and data-through under it.

Grey for what goes through, one red for what is refused, on the page's own background. Amounts become floats here and
only here, to be drawn; titles and hover texts are written from the integers.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from html import escape
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go
import plotly.io as pio
import polars as pl

from toolkit.captext import cap_words, counted, dollars
from toolkit.core.money import NANO_PER_USD

if TYPE_CHECKING:
    from toolkit.whatif import WhatIf
    from toolkit.whatif_tables import Explained

ADMITTED, REFUSED, LINE, QUIET, INK = "#94A3B8", "#D64545", "#5B7CFA", "#C7CFDA", "#7A828E"
"""Each stands on a light page and on a dark one."""

COLORWAY = [ADMITTED, REFUSED, LINE, "#2F9E8F", "#C98A1B", "#8F6BC9"]
TEMPLATE = "capline"

_GRID = "rgba(122,130,142,0.25)"
_CLEAR = "rgba(0,0,0,0)"

pio.templates[TEMPLATE] = go.layout.Template(
    layout={
        "colorway": COLORWAY,
        "paper_bgcolor": _CLEAR,
        "plot_bgcolor": _CLEAR,
        "font": {"color": INK, "size": 13},
        "title": {"x": 0, "xref": "container", "xanchor": "left", "pad": {"l": 12}, "font": {"size": 17}},
        "margin": {"l": 12, "r": 12, "t": 108, "b": 12},
        "legend": {"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom", "traceorder": "normal"},
        "bargap": 0.25,
        "xaxis": {"showgrid": False, "linecolor": _GRID, "zerolinecolor": _GRID, "automargin": True},
        "yaxis": {"gridcolor": _GRID, "zerolinecolor": _GRID, "rangemode": "tozero", "automargin": True},
    }
)


def config() -> dict[str, Any]:
    """Plotly's settings for every figure: nothing is offered to be sent away, and no bar covers the legend."""
    return {"showSendToCloud": False, "displaylogo": False, "displayModeBar": False}


class Figure(go.Figure):  # type: ignore[misc]
    """A figure that shows and saves itself with `config()`: Plotly's own default can post it to its maker."""

    def show(self, *args: Any, **options: Any) -> Any:
        """Plotly's `show`, with `config()` unless another is given."""
        return super().show(*args, **{"config": config(), **options})

    def to_html(self, *args: Any, **options: Any) -> Any:
        """Plotly's `to_html`, with `config()` unless another is given."""
        return super().to_html(*args, **{"config": config(), **options})

    def write_html(self, *args: Any, **options: Any) -> Any:
        """Plotly's `write_html`, with `config()` unless another is given."""
        return super().write_html(*args, **{"config": config(), **options})

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None, **options: Any) -> Any:
        return super()._repr_mimebundle_(include, exclude, **{"config": config(), **options})

    def _ipython_display_(self) -> None:
        self.show()


def spend_by_day(frame: pl.DataFrame, *, zone: str = "UTC", data_through: datetime | None = None) -> Figure:
    """What each day cost. `frame` has `day` and `cost_nano_usd` (`tk.spend(…, by=("day",))`), perhaps `partial`."""
    days = _with_partial(frame).group_by("day", "partial").agg(pl.col("cost_nano_usd").sum()).sort("day")
    total = sum(days["cost_nano_usd"].drop_nulls().to_list())
    figure = _figure(
        f"{dollars(total)} spent on {counted(days['day'].n_unique(), 'day')}", zone, data_through
    )
    _add_bars(figure, days, "cost_nano_usd", "Spent", LINE)
    return _money_axis(figure.update_layout(barmode="stack"))


def what_if_by_day(what_if: WhatIf) -> Figure:
    """Each UTC day's spend, split into what the draft admits and what it refuses."""
    days = what_if.by_day
    figure = _figure(what_if.sentence(), "UTC", what_if.data_through)
    _add_bars(figure, days, "admitted_nano_usd", "Admitted", ADMITTED)
    if (days["not_judged_nano_usd"] != 0).any():
        _add_bars(figure, days, "not_judged_nano_usd", "Not judged", QUIET)
    _add_bars(figure, days, "refused_nano_usd", "Refused", REFUSED)
    return _money_axis(figure.update_layout(barmode="stack"))


def customer_curve(explained: Explained, *, period: str | None = None) -> Figure:
    """One customer's spend in one period against the limit: as admitted, and as history has it.

    The period is the last one in which the draft refused a call, unless one is given.
    """
    shown = period if period is not None else explained.last_refused_period()
    curve = explained.curve.filter(pl.col("period") == shown)
    refused = curve.filter(pl.col("verdict") == "refused")
    finding = f"{explained.customer}: {counted(refused.height, 'call')} refused of {curve.height:,}"
    figure = _figure(
        f"{finding} under {cap_words(explained.cap)}", "UTC", explained.data_through, shown or ""
    )
    at = curve["admitted_at"].to_list()
    admitted, history = curve["spent_nano_usd"].to_list(), curve["uncapped_nano_usd"].to_list()
    figure.add_trace(_steps(at, history, "Without the cap", REFUSED, dash="dot"))
    figure.add_trace(_steps(at, admitted, "With the cap", ADMITTED))
    figure.add_trace(
        go.Scatter(
            x=refused["admitted_at"].to_list(),
            y=_usd(refused["spent_nano_usd"].to_list()),
            name="Refused",
            mode="markers",
            marker={"color": REFUSED, "size": 5, "symbol": "line-ns-open"},
            hovertemplate="%{x|%d %b %H:%M:%S} refused<extra></extra>",
        )
    )
    limit = _usd([explained.limit_nano_usd])[0]
    figure.add_hline(y=limit, line={"color": INK, "dash": "dash", "width": 1}, annotation_text="limit")
    return _money_axis(figure)


def sweep_curve(sweep: pl.DataFrame) -> Figure:
    """Dollars stopped against customers refused, one point a limit; the knee is marked."""
    title = "No limit was tried"
    if sweep.height:
        knee = sweep.filter("knee")
        told = knee if knee.height else sweep.head(1)
        limit, stopped, touched = told.select("limit_nano_usd", "refused_nano_usd", "customers_refused").row(
            0
        )
        title = f"{dollars(limit)} stops {dollars(stopped)} and refuses {counted(touched, 'customer')}"
    figure = _figure(title, None, None)
    labels = [dollars(limit) for limit in sweep["limit_nano_usd"]]
    stops = sweep["refused_nano_usd"].to_list()
    figure.add_trace(
        go.Scatter(
            x=sweep["customers_refused"].to_list(),
            y=_usd(stops),
            text=labels,
            customdata=[dollars(stop) for stop in stops],
            name="Limit",
            mode="lines+markers+text",
            textposition="top center",
            line={"color": LINE},
            marker={"size": [14 if knee else 8 for knee in sweep["knee"]], "color": LINE},
            hovertemplate="limit %{text}: stops %{customdata}, refuses %{x} customers<extra></extra>",
        )
    )
    figure.update_xaxes(title_text="customers refused", rangemode="tozero")
    return _money_axis(figure)


def _figure(title: str, zone: str | None, data_through: datetime | None, period: str = "") -> Figure:
    zoned = f"days in {zone}" if zone is not None else ""
    through = f"data through {data_through:%d %b %Y %H:%M:%S} UTC" if data_through is not None else ""
    under = " · ".join(part for part in (period, zoned, through) if part)
    # A name may hold anything, and Plotly reads markup in a title.
    return Figure(
        layout={
            "template": TEMPLATE,
            "colorway": COLORWAY,
            "title": {"text": escape(title), "subtitle": {"text": escape(under)}},
        }
    )


def _add_bars(figure: Figure, days: pl.DataFrame, column: str, name: str, colour: str) -> None:
    """Bars of whole days, and hatched ones of days that the data holds only a part of."""
    for partial, label in ((False, name), (True, f"{name}, part of a day")):
        part = days.filter(pl.col("partial") == partial)
        if part.is_empty():
            continue
        amounts = part[column].fill_null(0).to_list()
        hatched = {"shape": "/", "fillmode": "replace", "fgcolor": colour, "size": 6}
        figure.add_trace(
            go.Bar(
                x=part["day"].to_list(),
                y=_usd(amounts),
                customdata=[dollars(amount) for amount in amounts],
                name=label,
                showlegend=not partial,
                marker={"color": colour, "line": {"width": 0}, "pattern": hatched if partial else None},
                hovertemplate=f"%{{x|%d %b}} {label}: %{{customdata}}<extra></extra>",
            )
        )


def _steps(
    at: list[datetime], nano_usd: list[int], name: str, colour: str, dash: str | None = None
) -> go.Scatter:
    return go.Scatter(
        x=at,
        y=_usd(nano_usd),
        customdata=[dollars(amount) for amount in nano_usd],
        name=name,
        mode="lines",
        line={"color": colour, "shape": "hv", "dash": dash, "width": 2},
        hovertemplate=f"%{{x|%d %b %H:%M:%S}} {name}: %{{customdata}}<extra></extra>",
    )


def _money_axis(figure: Figure) -> Figure:
    return figure.update_yaxes(tickprefix="$", separatethousands=True, tickmode="auto")  # type: ignore[no-any-return]


def _usd(nano_usd: Iterable[int]) -> list[float]:
    return [amount / NANO_PER_USD for amount in nano_usd]


def _with_partial(frame: pl.DataFrame) -> pl.DataFrame:
    return frame if "partial" in frame.columns else frame.with_columns(partial=pl.lit(value=False))
