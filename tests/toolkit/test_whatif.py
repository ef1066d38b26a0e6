"""A what-if's figures: each is a sum that can be done by hand, and they add up to the ledger."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

import toolkit as tk
from tests.support.receipt_rows import NOVEMBER, call, cap, frame, one_by_one
from toolkit.captext import parse_cap_text
from toolkit.core.caps import Match
from toolkit.core.errors import QueryError
from toolkit.frames import Manifest, Receipts, SourceFile
from toolkit.replay import Replay
from toolkit.whatif import WhatIf, what_if

DOLLAR = 1_000_000_000


def two_customers() -> list[dict[str, Any]]:
    """Customer a spends 4 + 4 + 4 dollars on the 1st, b 3 on the 1st and 3 on the 2nd; one call names nobody."""
    rows = one_by_one(*[4 * DOLLAR] * 3, *[3 * DOLLAR] * 2, DOLLAR)
    for row, who in zip(rows, ("a", "a", "a", "b", "b", None), strict=True):
        row["customer"] = who
    rows[4]["admitted_at"] = rows[4]["settled_at"] = NOVEMBER + timedelta(days=1)
    return rows


@pytest.fixture
def found() -> WhatIf:
    return what_if(frame(two_customers()), [cap(10 * DOLLAR, window="day")])


def test_the_summary_adds_up(found: WhatIf) -> None:
    """Limit 10 a day: a's 4 + 4 fit, its third 4 makes 12. Spent 19, stopped 4."""
    said = found.summary
    assert (said.receipts, said.judged, said.admitted, said.refused) == (6, 6, 5, 1)
    assert (said.refused_nano_usd, said.total_nano_usd, said.admitted_nano_usd) == (
        4 * DOLLAR,
        19 * DOLLAR,
        15 * DOLLAR,
    )
    assert (said.customers, said.customers_refused, said.customers_over_now) == (2, 1, 0)
    assert (said.busy, said.unpriced, said.cost_unknown, said.false_stops) == (0, 0, 0, 0)
    assert said.ordered_by == "sequence"


def test_customers_are_listed_with_the_most_refused_first(found: WhatIf) -> None:
    rows = found.by_customer.drop("first_refused_at", "refused_share").rows()
    assert rows == [
        ("a", 3, 1, 4 * DOLLAR, 8 * DOLLAR, False),
        ("b", 2, 0, 0, 6 * DOLLAR, False),
        (None, 1, 0, 0, DOLLAR, False),
    ]
    assert found.by_customer["first_refused_at"].to_list() == [NOVEMBER + timedelta(minutes=2), None, None]
    assert found.by_customer["refused_share"].to_list() == [4 / 12, 0.0, 0.0]


def test_days_and_customers_add_up_to_the_ledger(found: WhatIf) -> None:
    days = found.by_day
    assert days["day"].to_list() == [date(2026, 11, 1), date(2026, 11, 2)]
    assert days.select("refused_requests", "customers_refused", "refused_nano_usd").rows() == [
        (1, 1, 4 * DOLLAR),
        (0, 0, 0),
    ]
    parts = ("admitted_nano_usd", "refused_nano_usd", "not_judged_nano_usd")
    assert sum(days[part].sum() for part in parts) == found.summary.total_nano_usd
    by_customer = found.by_customer
    assert by_customer["admitted_nano_usd"].sum() == found.summary.admitted_nano_usd
    assert by_customer["refused_nano_usd"].sum() == found.summary.refused_nano_usd


def test_there_is_one_decision_for_each_receipt(found: WhatIf) -> None:
    """a's third call: 10 - 8 spent - 4 held by it = -2 of headroom."""
    decisions = found.decisions
    in_time = sorted(two_customers(), key=lambda row: row["admitted_at"])
    assert decisions["receipt_id"].to_list() == [row["receipt_id"] for row in in_time]
    refused = decisions.filter(pl.col("verdict") == "refused").drop("receipt_id", "admitted_at")
    assert refused.rows() == [("a", "refused", "budget_exceeded", 1, "usd", -2 * DOLLAR, False, 4 * DOLLAR)]


def test_a_day_that_the_data_holds_in_part_is_marked() -> None:
    """From 08:00 on the 1st to 20:00 on the 3rd: the middle day is whole."""
    hours = (8, 30, 47.5, 68)
    rows = [row | {"admitted_at": NOVEMBER + timedelta(hours=h), "settled_at": NOVEMBER + timedelta(hours=h)}
            for h, row in zip(hours, one_by_one(1, 1, 1, 1), strict=True)]  # fmt: skip
    assert what_if(frame(rows), [cap(9)]).by_day["partial"].to_list() == [True, False, True]


def test_a_complete_export_has_no_partial_last_day() -> None:
    rows = [
        row | {"admitted_at": NOVEMBER + timedelta(hours=n * 20)} for n, row in enumerate(one_by_one(1, 1))
    ]
    header = {"from": "2026-11-01T00:00:00.000000Z", "to": "2026-11-02T00:00:00.000000Z"}
    file = SourceFile(name="f", kind="capline", sha256="", read=2, loaded=2, header=header, complete=True)
    loaded = Receipts.from_frame(frame(rows))
    exported = Receipts(loaded.frame, loaded.rejected, Manifest((file,)))
    assert what_if(exported, [cap(9)]).by_day["partial"].to_list() == [False]
    assert what_if(loaded, [cap(9)]).by_day["partial"].to_list() == [True]


def test_over_now_is_what_the_receipts_of_the_newest_period_say() -> None:
    """A cap armed now starts from recorded spend: 12 of 10, though the draft would have stopped at 8."""
    rows = two_customers()[:3]
    found = what_if(frame(rows), [cap(10 * DOLLAR)])
    assert found.over_now.select("subject", "period", "spent", "limit").rows() == [
        ("a", "2026-11", 12 * DOLLAR, 10 * DOLLAR)
    ]
    assert found.by_customer["over_now"].to_list() == [True]
    assert what_if(frame(rows), [cap(12 * DOLLAR)]).summary.customers_over_now == 1
    assert what_if(frame(rows), [cap(12 * DOLLAR + 1)]).summary.customers_over_now == 0


def test_over_now_forgets_older_periods_and_counts_corrections() -> None:
    """October's 20 is over; November's 9, corrected by +1, reaches 10."""
    rows = [
        call(0, 1, 2, NOVEMBER - timedelta(days=2), hold_nano_usd=20),
        call(1, 3, 4, hold_nano_usd=9, status="abandoned", cost_nano_usd=None),
        call(2, 5, 6, corrects="r000001", hold_nano_usd=9, counted_nano_usd=1, cost_nano_usd=10),
    ]
    assert what_if(frame(rows), [cap(10)]).over_now["spent"].to_list() == [10]
    assert what_if(frame(rows), [cap(11)]).over_now.is_empty()


def test_over_now_respects_an_override() -> None:
    assert what_if(frame(one_by_one(6)), [cap(5), cap(7, 2, subject="a")]).over_now.is_empty()


def test_a_corrected_call_costs_what_its_correction_says() -> None:
    """Refused by the draft, its 7 are stopped, once."""
    rows = [
        call(0, 1, 2, hold_nano_usd=9, status="abandoned", cost_nano_usd=None),
        call(1, 3, 4, corrects="r000000", hold_nano_usd=9, counted_nano_usd=-2, cost_nano_usd=7),
    ]
    said = what_if(frame(rows), [cap(8)]).summary
    assert (said.refused, said.refused_nano_usd, said.total_nano_usd, said.refused_without_cost) == (
        1,
        7,
        7,
        0,
    )


def test_a_stop_on_the_hold_alone_is_told() -> None:
    """Limit 10, spent 8: a hold of 5 is refused though its 2 would have fit; a cost of 3 would not."""
    rows = one_by_one(8, 5, 5)
    rows[1] |= {"counted_nano_usd": 2, "cost_nano_usd": 2}
    rows[2] |= {"counted_nano_usd": 3, "cost_nano_usd": 3}
    assert what_if(frame(rows), [cap(10)]).summary.false_stops == 1


def test_a_cost_above_its_hold_shows_as_overshoot() -> None:
    """Limit 10: holds 9, costs 13."""
    rows = [call(0, 1, 2, hold_nano_usd=9, counted_nano_usd=13), call(1, 3, 4, hold_nano_usd=1)]
    said = what_if(frame(rows), [cap(10)]).summary
    assert (said.overshoot_nano_usd, said.refused) == (3, 1)


def test_busy_refusals_are_counted_apart() -> None:
    rows = [call(0, 1, 3, hold_nano_usd=6), call(1, 2, 4, hold_nano_usd=4), call(2, 5, 6, hold_nano_usd=9)]
    rows[1]["hold_nano_usd"] = 5
    said = what_if(frame(rows), [cap(10)]).summary
    assert (said.refused, said.busy) == (2, 1)


# ---- one customer, many limits, two drafts


def test_explain_shows_the_balance_before_every_call() -> None:
    """Limit 10: 4 and 4 are spent, the third 4 is refused; history goes on to 12, then December starts at 0."""
    rows = one_by_one(4, 4, 4, 4)
    rows[3]["admitted_at"] = NOVEMBER + timedelta(days=30)
    explained = what_if(frame(rows), [cap(10)]).explain("a")
    shown = explained.curve.select(
        "period", "verdict", "spent_nano_usd", "held_nano_usd", "uncapped_nano_usd"
    )
    assert shown.rows() == [
        ("2026-11", "admitted", 0, 0, 0),
        ("2026-11", "admitted", 4, 0, 4),
        ("2026-11", "refused", 8, 0, 8),
        ("2026-12", "admitted", 0, 0, 0),
    ]
    assert explained.last_refused_period() == "2026-11"
    assert (explained.cap.id, explained.limit_nano_usd) == (1, 10)


def test_explain_agrees_with_the_headroom_of_the_verdict() -> None:
    """limit - spent - held - hold is the headroom that the decision named, also while holds run."""
    rows = [call(n, 2 * n + 1, 2 * n + 8, hold_nano_usd=4, counted_nano_usd=2) for n in range(12)]
    found = what_if(frame(rows), [cap(11)])
    both = (
        found.explain("a").curve.join(found.decisions, on="receipt_id").filter(pl.col("verdict") == "refused")
    )
    left = (
        pl.col("limit_nano_usd")
        - pl.col("spent_nano_usd")
        - pl.col("held_nano_usd")
        - pl.col("hold_nano_usd")
    )
    assert both.height > 3
    assert both.filter(left != pl.col("headroom")).is_empty()


def test_explain_takes_the_cap_that_binds_the_customer() -> None:
    draft = [cap(10), cap(20, 2, subject="a"), cap(15, 3, window="never")]
    found = what_if(frame(one_by_one(4)), draft)
    assert found.explain("a").cap.id == 3
    assert found.explain("a", cap_id=2).cap.id == 2
    with pytest.raises(QueryError, match="id 1"):
        found.explain("a", cap_id=1)
    with pytest.raises(QueryError, match="'nobody'"):
        found.explain("nobody")


def test_sweep_tries_limits_in_order_and_marks_the_knee() -> None:
    """Three customers spend 10, 3 and 1 in dollars of 1: a limit of 1 stops 9 + 2, 3 stops 7, 10 stops nothing."""
    rows = one_by_one(*[DOLLAR] * 14)
    for number, row in enumerate(rows):
        row["customer"] = "a" if number < 10 else "b" if number < 13 else "c"
    swept = what_if(frame(rows), [cap(DOLLAR)]).sweep([10, "3", Decimal("1.0")])
    assert swept.select("limit_nano_usd", "refused_nano_usd", "customers_refused").rows() == [
        (DOLLAR, 11 * DOLLAR, 2),
        (3 * DOLLAR, 7 * DOLLAR, 1),
        (10 * DOLLAR, 0, 0),
    ]
    assert swept["knee"].to_list() == [False, True, False]


def test_sweep_takes_no_float_and_no_guess() -> None:
    found = what_if(frame(one_by_one(1)), [cap(1), cap(2, 2, window="day")])
    with pytest.raises(QueryError, match="float"):
        found.sweep([2.5], cap_id=1)  # type: ignore[list-item]
    with pytest.raises(QueryError, match="it has 1, 2"):
        found.sweep(["2.50"])


def test_diff_names_what_changes() -> None:
    tight = what_if(frame(one_by_one(4, 4, 4)), [cap(5)])
    loose = tight.with_caps([cap(9)])
    assert tight.diff(loose).select("receipt_id", "change").rows() == [("r000001", "no_longer_refused")]
    assert loose.diff(tight).select("receipt_id", "change").rows() == [("r000001", "newly_refused")]
    with pytest.raises(QueryError, match="same receipts"):
        tight.diff(what_if(frame(one_by_one(4)), [cap(5)]))


def test_another_draft_does_not_change_the_first() -> None:
    first = what_if(frame(one_by_one(4, 4, 4)), [cap(5)])
    before = first.decisions.clone()
    assert first.with_caps([cap(100)]).summary.refused == 0
    assert first.decisions.equals(before)
    with pytest.raises(FrozenInstanceError):
        first.timeline = ()  # type: ignore[misc]


# ---- words


@pytest.mark.parametrize(
    ("draft", "sentence"),
    [
        (["customer:* day 10"], "$10.00 per day would have stopped $4.00 and refused 1 customer."),
        (["customer:* day 100"], "$100.00 per day would have stopped nothing."),
        (
            ["customer:a day 3"],
            "$3.00 per day for customer a would have stopped $12.00 and refused 1 customer.",
        ),
        (
            ["customer:* day 10", "customer:* month 4"],
            "These 2 caps would have stopped $11.00 and refused 2 customers.",
        ),
        ([], "No cap is armed, so nothing would have been refused."),
    ],
)
def test_the_sentence_reads_aloud(draft: list[str], sentence: str) -> None:
    caps = [parse_cap_text(text, cap_id=number) for number, text in enumerate(draft, start=1)]
    assert what_if(frame(two_customers()), caps).sentence() == sentence


def test_the_sentence_counts_requests_where_no_customer_is_named() -> None:
    found = what_if(frame(one_by_one(1, 1, customer=None)), [cap(1, scope="key", subject="*"), cap(1, 2)])
    assert found.sentence() == "These 2 caps would have stopped nothing."
    found = what_if(frame(one_by_one(1, 1, customer=None)), [cap(1, scope="organization")])
    assert (
        found.sentence()
        == "$0.000000001 per month for each organization would have stopped <$0.01 and refused 1 request."
    )


def test_the_sentence_tells_calls_without_a_price() -> None:
    unpriced = one_by_one(None)  # type: ignore[arg-type]
    alone = "would have stopped nothing; 1 call would be refused because its model has no price."
    assert what_if(frame(unpriced), [cap(DOLLAR)]).sentence().endswith(alone)


def test_whom_a_limit_stops_is_told_apart_from_whom_a_missing_price_does() -> None:
    unpriced = {"customer": "b", "hold_nano_usd": None, "cost_nano_usd": None, "counted_nano_usd": 0}
    rows = [*one_by_one(DOLLAR, DOLLAR), call(101, 101, 102, **unpriced), call(102, 103, 104, **unpriced)]
    found = what_if(frame(rows), [cap(DOLLAR)])
    assert (found.summary.customers_refused, found.summary.customers_stopped) == (2, 1)
    told = "refused 1 customer; 2 more calls would be refused because their model has no price."
    assert found.sentence().endswith(told)


def test_dollars_stopped_are_unknown_where_no_refused_call_has_a_cost() -> None:
    unpriced = {"hold_nano_usd": None, "cost_nano_usd": None, "counted_nano_usd": 0}
    rows = [call(1, 1, 2, **unpriced), call(2, 3, 4, **unpriced)]
    table = what_if(frame(rows), [cap(10 * DOLLAR)]).by_customer
    assert table.select("refused_requests", "refused_nano_usd", "refused_share").rows() == [(2, None, None)]


def test_shown_as_text_and_as_html_without_markup_from_names() -> None:
    rows = one_by_one(4 * DOLLAR, 4 * DOLLAR, customer="<script>alert(1)</script>")
    found = what_if(frame(rows), [cap(5 * DOLLAR, match=Match(model="<b>"))]).with_caps([cap(5 * DOLLAR)])
    assert "dollars stopped: $4.00 of $8.00" in repr(found)
    page = found._repr_html_()
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_it_is_reached_from_the_package() -> None:
    found = tk.what_if(Replay(frame(one_by_one(1))), [cap(1)])
    assert isinstance(found, tk.WhatIf)


def test_an_empty_history_has_an_answer() -> None:
    found = what_if(frame([]), [cap(1)])
    assert found.summary.judged == 0
    assert [table.height for table in (found.by_customer, found.by_day, found.decisions, found.over_now)] == [
        0
    ] * 4
    assert found.data_through is None
