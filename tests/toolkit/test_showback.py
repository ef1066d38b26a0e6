"""Spend by scope: sums that tie, corrections, what is unpriced, and no sum that wraps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import toolkit as tk
from tests.support.exports import abandoned, correction, instant, refused, served
from toolkit.core.receipts import Receipt
from toolkit.frames import RECEIPT_SCHEMA, TOKEN_COLUMNS


def receipts_of(rows: Sequence[Receipt]) -> tk.Receipts:
    """Receipts as a load would give them."""
    return tk.Receipts.from_frame(frame_of(rows))


def frame_of(rows: Sequence[Receipt]) -> pl.DataFrame:
    columns = [row.row() | {"admitted_at": row.admitted_at, "settled_at": row.settled_at} for row in rows]
    return pl.DataFrame(columns, schema=RECEIPT_SCHEMA)


def one(frame: pl.DataFrame) -> dict[str, Any]:
    """The only row of a frame."""
    assert frame.height == 1
    return frame.row(0, named=True)


UNPRICED = served(90, cost_nano_usd=None, counted_nano_usd=7, unpriced_reason="rate_missing", price_row=None)


def test_one_group_by_hand() -> None:
    # m-large: 4 USD input, 0.4 cached, 20 output per million.
    # served(1): 1001 × 4 + 10 × 0.4 + 101 × 20 = 6028 micro-USD; served(4): 1004 × 4 + 40 × 0.4 + 104 × 20 = 6112.
    rows = [served(1), served(4), refused(7), UNPRICED]
    found = one(tk.spend(receipts_of([replace(row, customer="c") for row in rows])))
    assert found["period"] == "2026-11"
    assert found["customer"] == "c"
    assert [found[f"{kind}requests"] for kind in ("", "priced_", "unpriced_", "refused_")] == [4, 2, 1, 1]
    assert found["cost_nano_usd"] == 12_140_000
    assert found["cost_usd"] == Decimal("0.012140000")
    assert found["counted_nano_usd"] == 12_140_000 + 7
    assert found["input_tokens"] == 1001 + 1004 + 1090
    assert found["cache_write_1h_tokens"] is None, "no request reported it"
    assert found["price_list_count"] == 1


def test_the_frame_has_documented_columns_and_types() -> None:
    found = tk.spend(receipts_of([served(1)]), by=("project", "tag:agent"))
    assert found.schema == pl.Schema(
        {
            "period": pl.String(),
            "project": pl.String(),
            "tag:agent": pl.String(),
            **dict.fromkeys(
                ("requests", "priced_requests", "unpriced_requests", "refused_requests"), pl.Int64()
            ),
            **dict.fromkeys(TOKEN_COLUMNS, pl.Int64()),
            "cost_nano_usd": pl.Int64(),
            "cost_usd": pl.Decimal(38, 9),
            "counted_nano_usd": pl.Int64(),
            "price_list": pl.String(),
            "price_list_count": pl.Int64(),
        }
    )


def test_an_empty_history_has_the_same_columns() -> None:
    empty = receipts_of([])
    assert tk.spend(empty).schema == tk.spend(receipts_of([served(1)])).schema
    assert tk.months(empty).height == tk.unpriced(empty).height == 0


def test_zero_is_a_cost_and_null_is_none() -> None:
    """Null is never zero: an unpriced group costs null, a group of refusals and a free one cost 0."""
    free = served(2, customer="free", cost_nano_usd=0, counted_nano_usd=0)
    rows = [replace(UNPRICED, customer="unpriced"), refused(1, customer="refused"), free]
    found = tk.spend(receipts_of(rows))
    assert found.select("customer", "cost_nano_usd", "priced_requests", "unpriced_requests").rows() == [
        ("free", 0, 1, 0),
        ("refused", 0, 0, 0),
        ("unpriced", None, 0, 1),
    ]
    assert found["cost_usd"].to_list() == [Decimal(0), Decimal(0), None]


def test_a_known_cost_stands_beside_the_count_of_unknown_ones() -> None:
    found = one(tk.spend(receipts_of([served(1, customer="c"), replace(UNPRICED, customer="c")])))
    assert (found["cost_nano_usd"], found["unpriced_requests"]) == (served(1).cost_nano_usd, 1)


def test_a_correction_settles_its_request_once() -> None:
    """Contract §10: money over all rows, tokens without the corrected row, one request in its final state."""
    lost = abandoned(5, input_tokens=9, output_tokens=9)
    settled = correction(6, lost)
    before = one(tk.spend(receipts_of([lost])))
    assert (before["requests"], before["unpriced_requests"], before["counted_nano_usd"]) == (1, 1, 70_000_000)
    after = one(tk.spend(receipts_of([lost, settled])))
    assert (after["requests"], after["priced_requests"], after["unpriced_requests"]) == (1, 1, 0)
    assert after["cost_nano_usd"] == after["counted_nano_usd"] == settled.cost_nano_usd
    assert after["input_tokens"] == settled.input_tokens
    assert tk.unpriced(receipts_of([lost, settled])).height == 0
    assert tk.spend(receipts_of([lost, settled]), by=("status",))["status"].to_list() == ["served"]


def test_a_correction_without_its_row_adds_its_money_and_no_request() -> None:
    settled = correction(6, abandoned(5))
    found = one(tk.spend(receipts_of([settled])))
    assert (found["requests"], found["priced_requests"]) == (0, 0)
    assert (found["cost_nano_usd"], found["counted_nano_usd"]) == (
        settled.cost_nano_usd,
        settled.counted_nano_usd,
    )


def test_failed_requests_are_neither_refused_nor_unpriced() -> None:
    failed = served(1, status="failed", cost_nano_usd=0, counted_nano_usd=0)
    found = one(tk.spend(receipts_of([failed])))
    assert (found["requests"], found["refused_requests"], found["unpriced_requests"]) == (1, 0, 0)


@pytest.mark.parametrize(
    ("window", "zone", "periods"),
    [
        ("day", "UTC", ["2026-10-31", "2026-11-01"]),
        ("week", "UTC", ["2026-W44"]),
        ("month", "UTC", ["2026-10", "2026-11"]),
        ("year", "UTC", ["2026"]),
        ("never", "UTC", ["all"]),
        ("month", "Europe/Berlin", ["2026-11"]),
        ("month", "America/New_York", ["2026-10"]),
        ("day", "America/New_York", ["2026-10-31"]),
    ],
)
def test_periods_open_in_the_asked_zone(window: Any, zone: str, periods: list[str]) -> None:
    """23:30 UTC of the last of October and 00:00 UTC of the first of November."""
    edge = [datetime(2026, 10, 31, 23, 30, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC)]
    rows = [served(number, at) for number, at in enumerate(edge)]
    assert tk.spend(receipts_of(rows), by=(), window=window, zone=zone)["period"].to_list() == periods


def test_days_are_of_the_asked_zone_too() -> None:
    late = served(1, datetime(2026, 11, 1, 23, 30, tzinfo=UTC))
    found = one(tk.spend(receipts_of([late]), by=("day",), zone="Asia/Tokyo"))
    assert (found["period"], found["day"]) == ("2026-11", "2026-11-02")


def test_the_hour_that_happens_twice_is_counted_once_each() -> None:
    """00:30 UTC and 01:30 UTC are both 02:30 in Berlin on 25 October."""
    rows = [served(hour, datetime(2026, 10, 25, hour, 30, tzinfo=UTC)) for hour in (0, 1)]
    found = one(tk.spend(receipts_of(rows), by=(), window="day", zone="Europe/Berlin"))
    assert (found["period"], found["requests"]) == ("2026-10-25", 2)


@pytest.mark.parametrize(
    ("dimension", "value"),
    [
        ("organization", "default"), ("project", None), ("key_id", "k1"), ("customer", "cust-1"), ("run", None),
        ("provider", "openai"), ("model", "m-large"), ("model_requested", "m-large"), ("dialect", "openai"),
        ("route", "/v1/chat/completions"), ("status", "served"), ("refusal_code", None), ("service_tier", None),
        ("node", "n1"), ("day", "2026-11-02"), ("tag:agent", "crawler"), ("tag:team", None),
    ],
)  # fmt: skip
def test_every_dimension(dimension: str, value: str | None) -> None:
    assert one(tk.spend(receipts_of([served(1)]), by=(dimension,)))[dimension] == value


def test_the_served_model_counts_and_the_asked_one_where_none_was_served() -> None:
    rows = [served(1, model_requested="alias"), refused(2, model_requested="alias")]
    assert tk.spend(receipts_of(rows), by=("model",))["model"].to_list() == ["alias", "m-large"]


def test_the_first_tag_of_a_namespace_decides_and_a_longer_namespace_is_another() -> None:
    row = served(1, tags=("agents:x", "agent:a:b", "agent:c"))
    assert one(tk.spend(receipts_of([row]), by=("tag:agent",)))["tag:agent"] == "a:b"


def test_two_price_lists_have_no_name_in_one_row() -> None:
    rows = [served(1, customer="c"), served(2, customer="c", price_list="other"), refused(3, customer="c")]
    found = one(tk.spend(receipts_of(rows)))
    assert (found["price_list"], found["price_list_count"]) == (None, 2)
    by_list = tk.spend(receipts_of(rows), by=("price_list",))
    assert by_list["requests"].sum() == 3
    assert by_list.columns.count("price_list") == 1


def test_months_shows_each_list_and_a_total() -> None:
    old = [served(number, instant(3), price_list="old") for number in (1, 2)]
    new = [served(number, instant(20), price_list="new") for number in (3,)]
    rows = [*old, *new, refused(4, price_list=None), served(5, instant(1, month=12), price_list="new")]
    found = tk.months(receipts_of(rows))
    assert found.select("period", "price_list", "total", "requests", "price_list_count").rows() == [
        ("2026-11", "new", False, 1, 1),
        ("2026-11", "old", False, 2, 1),
        ("2026-11", None, False, 1, 0),
        ("2026-11", None, True, 4, 2),
        ("2026-12", "new", False, 1, 1),
        ("2026-12", "new", True, 1, 1),
    ]
    parts, totals = found.filter(~pl.col("total")), found.filter("total")
    assert parts["cost_nano_usd"].sum() == totals["cost_nano_usd"].sum()
    assert tk.months(receipts_of([])).schema == found.schema


def test_unpriced_by_model_and_reason() -> None:
    rows = [
        replace(UNPRICED, receipt_id="a", admitted_at=instant(9)),
        replace(UNPRICED, receipt_id="b", admitted_at=instant(2)),
        abandoned(1, model_served=None, model_requested="m-small"),
        served(2),
        refused(3),
    ]
    found = tk.unpriced(receipts_of(rows))
    assert found.columns == ["model", "reason", "requests", "tokens", "first", "last", "what_to_do"]
    # 1090 uncached + 900 cached + 190 out, twice; the abandoned one reported nothing.
    assert found.drop("what_to_do").rows() == [
        ("m-large", "rate_missing", 2, 2 * (1090 + 900 + 190), instant(2), instant(9)),
        ("m-small", "outcome_unknown", 1, None, instant(2), instant(2)),
    ]


def test_reasoning_is_inside_output_and_not_added_again() -> None:
    row = replace(UNPRICED, reasoning_tokens=150)
    assert one(tk.unpriced(receipts_of([row])))["tokens"] == 1090 + 900 + 190


def test_a_sum_that_would_wrap_is_an_error_and_the_largest_that_fits_is_exact() -> None:
    half = 2**62
    rows = [served(1, cost_nano_usd=half), served(4, cost_nano_usd=half - 1)]
    assert one(tk.spend(receipts_of(rows)))["cost_nano_usd"] == 2**63 - 1
    with pytest.raises(tk.QueryError, match=f"a sum of cost_nano_usd is {2**63}"):
        tk.spend(receipts_of([served(1, cost_nano_usd=half), served(4, cost_nano_usd=half)]))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"by": ("custmer",)}, r"'custmer' is none of .*did you mean customer\?"),
        ({"by": "customer"}, r"write by=\('customer',\)"),
        ({"by": ("day", "day")}, "stands twice"),
        ({"by": ("tag:",)}, "'tag:' is none of"),
        ({"by": ("tag:Agent",)}, "'tag:Agent' is none of"),
        ({"window": "hour"}, "window 'hour' is none of day, week"),
        ({"zone": "CEST"}, "no time zone"),
    ],
)
def test_a_word_that_is_not_known_is_named(options: dict[str, Any], why: str) -> None:
    with pytest.raises(tk.QueryError, match=why):
        tk.spend(receipts_of([served(1)]), **options)


def test_spend_does_not_mutate_its_receipts() -> None:
    receipts = receipts_of([served(1), refused(2)])
    before = receipts.frame.collect()
    tk.spend(receipts)
    tk.months(receipts)
    assert receipts.frame.collect().equals(before)


MODELS = ("m-large", "m-small")
HISTORIES = st.lists(
    st.tuples(
        st.sampled_from(["served", "refused", "abandoned", "corrected", "unpriced"]),
        st.integers(1, 61),
        st.sampled_from(MODELS),
        st.integers(0, 2**50),
    ),
    max_size=30,
)


def history(drawn: list[tuple[str, int, str, int]]) -> list[Receipt]:
    """Receipts of two months, with amounts up to a million dollars each."""
    rows: list[Receipt] = []
    for number, (kind, day, model, cost) in enumerate(drawn):
        at = instant(1 + (day - 1) % 30, month=10 + day // 31)
        if kind == "served":
            rows.append(served(number, at, model=model, cost_nano_usd=cost, counted_nano_usd=cost))
        elif kind == "refused":
            rows.append(refused(number, admitted_at=at, model_requested=model))
        elif kind == "unpriced":
            rows.append(replace(UNPRICED, receipt_id=f"u{number}", admitted_at=at))
        else:
            lost = abandoned(number, admitted_at=at)
            rows.append(lost)
            if kind == "corrected":
                rows.append(replace(correction(number, lost), receipt_id=f"c{number}"))
    return rows


@given(HISTORIES)
def test_every_cut_of_a_history_adds_up_to_the_same(drawn: list[tuple[str, int, str, int]]) -> None:
    rows = history(drawn)
    receipts = receipts_of(rows)
    wanted = (
        sum(row.cost_nano_usd or 0 for row in rows),
        sum(row.counted_nano_usd for row in rows),
        sum(row.corrects is None for row in rows),
    )
    cuts = (((), "day"), ((), "month"), ((), "never"), (("model",), "month"), (("customer", "day"), "week"))
    for by, window in cuts:
        found = tk.spend(receipts, by=by, window=window)  # type: ignore[arg-type]
        figures = tuple(
            sum(found[name].drop_nulls()) for name in ("cost_nano_usd", "counted_nano_usd", "requests")
        )
        assert figures == wanted, (by, window)
        kinds = found.select("priced_requests", "unpriced_requests", "refused_requests").sum_horizontal()
        assert kinds.to_list() == found["requests"].to_list()
    assert sum(tk.unpriced(receipts)["requests"]) == sum(tk.spend(receipts)["unpriced_requests"])


@given(HISTORIES, st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_nothing(drawn: list[tuple[str, int, str, int]], random: Any) -> None:
    rows = history(drawn)
    shuffled = random.sample(rows, len(rows))
    one_way, other = receipts_of(rows), receipts_of(shuffled)
    assert tk.spend(one_way, by=("model", "tag:agent")).equals(tk.spend(other, by=("model", "tag:agent")))
    assert tk.months(one_way).equals(tk.months(other))
