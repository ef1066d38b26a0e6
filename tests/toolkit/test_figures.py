"""Figures say their finding, their zone and how fresh they are, and send nothing away."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import plotly.graph_objects as go
import plotly.io as pio
import polars as pl
import pytest

from tests.support.receipt_rows import NOVEMBER, cap, frame, one_by_one
from toolkit import figures
from toolkit.whatif import WhatIf, what_if

DOLLAR = 1_000_000_000


@pytest.fixture
def found() -> WhatIf:
    """Three days; 4 + 4 on each, of which a limit of 5 a day stops the second 4. The last day is not whole."""
    rows = one_by_one(*[4 * DOLLAR] * 6)
    for number, row in enumerate(rows):
        at = NOVEMBER + timedelta(days=number // 2, minutes=number)
        row |= {"admitted_at": at, "settled_at": at + timedelta(seconds=1)}
    return what_if(frame(rows), [cap(5 * DOLLAR, window="day")])


def every_figure(found: WhatIf) -> list[go.Figure]:
    days = pl.DataFrame({"day": [NOVEMBER.date()], "cost_nano_usd": [3 * DOLLAR]})
    return [
        figures.spend_by_day(days, data_through=NOVEMBER),
        found.figure(),
        figures.customer_curve(found.explain("a")),
        figures.sweep_curve(found.sweep([1, 5, 10])),
    ]


def test_the_finding_is_the_title_with_zone_and_data_through_under_it(found: WhatIf) -> None:
    title = found.figure().layout.title
    assert title.text == "$5.00 per day would have stopped $12.00 and refused 1 customer."
    assert title.subtitle.text == "days in UTC · data through 03 Nov 2026 00:05:01 UTC"


def test_bars_add_up_to_the_days_and_partial_days_stand_apart(found: WhatIf) -> None:
    bars = {bar.name: list(bar.y) for bar in found.figure().data}
    assert bars == {
        "Admitted": [4.0, 4.0],
        "Admitted, part of a day": [4.0],
        "Refused": [4.0, 4.0],
        "Refused, part of a day": [4.0],
    }
    hatched = [bar for bar in found.figure().data if "part" in bar.name]
    assert all(bar.marker.pattern.shape == "/" and bar.showlegend is False for bar in hatched)
    assert all(bar.marker.pattern.shape is None for bar in found.figure().data if "part" not in bar.name)
    assert found.figure().layout.barmode == "stack"


def test_what_was_not_judged_is_drawn_only_where_there_is_some() -> None:
    rows = one_by_one(DOLLAR, 2 * DOLLAR)
    rows[1]["admit_seq"] = None
    names = [bar.name for bar in what_if(frame(rows), [cap(DOLLAR)]).figure().data]
    assert names == ["Admitted, part of a day", "Not judged, part of a day", "Refused, part of a day"]


def test_colours_do_not_depend_on_the_page(found: WhatIf) -> None:
    for figure in every_figure(found):
        assert list(figure.layout.colorway) == figures.COLORWAY
        assert figure.layout.template == pio.templates[figures.TEMPLATE]
        assert figure.layout.template.layout.paper_bgcolor == "rgba(0,0,0,0)"


def test_money_axes_are_dollars(found: WhatIf) -> None:
    for figure in every_figure(found):
        assert (figure.layout.yaxis.tickprefix, figure.layout.yaxis.separatethousands) == ("$", True)


def test_nothing_is_offered_to_be_sent_away(found: WhatIf) -> None:
    assert figures.config() == {"showSendToCloud": False, "displaylogo": False, "displayModeBar": False}
    for figure in every_figure(found):
        assert '"showSendToCloud": false' in figure.to_html(include_plotlyjs=False)


def test_a_notebook_shows_a_figure_with_the_same_settings(
    found: WhatIf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pio.renderers, "default", "plotly_mimetype")
    bundle = found.figure()._repr_mimebundle_()
    assert bundle["application/vnd.plotly.v1+json"]["config"]["showSendToCloud"] is False


def test_a_name_is_never_markup_in_a_title() -> None:
    name = '<a href="https://example.org">x</a>'
    found = what_if(frame(one_by_one(1, 1, customer=name)), [cap(1)])
    title = figures.customer_curve(found.explain(name)).layout.title.text
    assert "<a" not in title
    assert "&lt;a href=" in title


def test_the_curve_shows_the_last_period_that_was_stopped(found: WhatIf) -> None:
    figure = figures.customer_curve(found.explain("a"))
    assert figure.layout.title.text == "a: 1 call refused of 2 under $5.00 per day"
    assert figure.layout.title.subtitle.text.startswith("2026-11-03 · days in UTC")
    without, admitted, refused = figure.data
    assert (list(without.y), list(admitted.y), list(refused.y)) == ([0.0, 4.0], [0.0, 4.0], [4.0])
    assert figure.layout.shapes[0].y0 == 5.0
    earlier = figures.customer_curve(found.explain("a"), period="2026-11-01")
    assert earlier.layout.title.subtitle.text.startswith("2026-11-01")


def test_the_sweep_names_its_knee(found: WhatIf) -> None:
    swept = found.sweep([1, 5, 10]).with_columns(knee=pl.Series([False, True, False]))
    figure = figures.sweep_curve(swept)
    assert figure.layout.title.text == "$5.00 stops $12.00 and refuses 1 customer"
    assert list(figure.data[0].y) == [24.0, 12.0, 0.0]
    assert list(figure.data[0].marker.size) == [8, 14, 8]


def test_spend_by_day_sums_a_day_of_several_rows() -> None:
    day = datetime(2026, 11, 1, tzinfo=UTC).date()
    days = pl.DataFrame({"day": [day, day], "cost_nano_usd": [DOLLAR, 2 * DOLLAR]})
    figure = figures.spend_by_day(days, zone="Europe/Berlin")
    assert figure.layout.title.text == "$3.00 spent on 1 day"
    assert figure.layout.title.subtitle.text == "days in Europe/Berlin"
    assert list(figure.data[0].y) == [3.0]


def test_empty_data_has_figures() -> None:
    found = what_if(frame([]), [cap(1)])
    assert len(found.figure().data) == 0
    assert figures.sweep_curve(found.sweep([])).layout.title.text == "No limit was tried"
