"""Repricing is the kernel's `price`, receipt by receipt, at the speed of columns."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toolkit as tk
from tests.support.exports import PRICES, abandoned, correction, refused, served
from toolkit.core.pricing import Peak, Priced, PriceList, PriceRow, price
from toolkit.core.receipts import USAGE_COLUMNS, Receipt, usage_of_row
from toolkit.core.rederive import how_priced
from toolkit.core.usage import METERS, Usage
from toolkit.frames import RECEIPT_SCHEMA, Receipts, conform

NOVEMBER = datetime(2026, 11, 1, tzinfo=UTC)
EDGES = (None, NOVEMBER + timedelta(days=5, hours=7), NOVEMBER + timedelta(days=20))
INTERVALS = [(None, None), (None, EDGES[1]), (EDGES[1], EDGES[2]), (EDGES[2], None)]
MODELS = ("m-a", "M-B", "m-c")
UNITS = ("web_search", "seconds", "image_output_tokens", "cache_read_audio_tokens", "m-a/input", "m-b/output",
         "m-zzz/input", "odd.name+(x)")  # fmt: skip
TIERS = ("standard", "standard", "standard", "flex", "batch us")


NO_METERS: dict[str, Any] = dict.fromkeys(USAGE_COLUMNS.values())


def frame_of(rows: list[dict[str, Any]]) -> pl.DataFrame:
    blank = dict.fromkeys(RECEIPT_SCHEMA)
    return pl.DataFrame([blank | row for row in rows], schema=RECEIPT_SCHEMA)


every_rate = st.fixed_dictionaries({meter: st.integers(0, 10**9) for meter in METERS})
some_rates = st.dictionaries(st.sampled_from(METERS), st.integers(0, 10**9), min_size=1)
rates = st.one_of(every_rate, every_rate, every_rate, some_rates)
fees = st.dictionaries(
    st.sampled_from(
        ("web_search", "seconds", "image_output_tokens", "cache_read_audio_tokens", "odd.name+(x)")
    ),
    st.builds(Fraction, st.integers(0, 10**11), st.sampled_from([1, 1, 1, 60, 1_000, 3_600, 7])),
)
peaks = st.sampled_from(
    [Peak(hours=((1, 4), (6, 10))), Peak(hours=((0, 24),), weekdays=frozenset({1, 2}),
                                         except_dates=frozenset({date(2026, 11, 3)}))]
)  # fmt: skip


@st.composite
def price_lists(draw: st.DrawFn) -> PriceList:
    """Any list: models, tiers, intervals, thresholds and peaks, none of which overlap."""
    places = st.tuples(
        st.sampled_from(MODELS),
        st.sampled_from(TIERS),
        st.sampled_from(INTERVALS[1:] * 2),
        st.sampled_from([(None, None), (None, None), (1_000, None), (None, 1_000), (5_000, None)]),
        st.booleans(),
    )
    drawn = draw(st.lists(places, max_size=24, unique_by=repr))
    always = [(model, "standard", (None, None), (None, None), False) for model in MODELS]
    rows = []
    for model, tier, (start, end), (above, least), peak in [*drawn, *always]:
        rows.append(
            PriceRow(
                provider="openai",
                model=model,
                aliases=(f"{model}-alias",),
                tier=tier,
                effective_from=start,
                effective_to=end,
                prompt_above=above,
                prompt_from=least,
                peak=draw(peaks) if peak else None,
                rates=draw(rates),
                fees=draw(fees),
                max_input_tokens=1,
                max_output_tokens=1,
            )
        )
    return PriceList("2026-11-01+sha256:000000000000", date(2026, 11, 1), rows)


counts = st.one_of(*[st.none(), st.integers(0, 3), st.integers(0, 7_000)] * 4, st.integers(0, 2**53 - 1))
quantities = st.one_of(
    st.integers(0, 5_000),
    st.integers(0, 2**53 - 1),
    st.decimals(0, 10**6, places=3),
    st.decimals(0, 100, places=17),
)


@st.composite
def receipt_rows(draw: st.DrawFn) -> dict[str, Any]:
    """Any served receipt of these models, at any instant of the month."""
    counted = {
        name: draw(quantities) for name in draw(st.lists(st.sampled_from(UNITS), unique=True, max_size=3))
    }
    whole = {
        name: int(count) if name.endswith(("tokens", "put")) else count for name, count in counted.items()
    }
    text = {
        name: format(count, "f") if isinstance(count, Decimal) else count for name, count in whole.items()
    }
    at = NOVEMBER + timedelta(seconds=draw(st.integers(0, 30 * 86_400)))
    model = draw(st.sampled_from([*MODELS, *MODELS, "m-a-alias", "m-none", "ft:m-a:o:n:1", None]))
    return {
        "admitted_at": draw(st.sampled_from([at, *(edge for edge in EDGES if edge)])),
        "provider": "openai",
        "dialect": "openai",
        "model_requested": draw(st.sampled_from(["m-c", "openai/m-c"])),
        "model_served": model,
        "service_tier": draw(st.sampled_from([None, "default", "default", "flex", "batch us", "scale"])),
        "status": "served",
        "usage_source": "final",
        "units": json.dumps(text, separators=(",", ":"), sort_keys=True) if text else None,
        **{column: draw(counts) for column in USAGE_COLUMNS.values() if column != "reasoning_tokens"},
    }


def by_kernel(prices: PriceList, row: dict[str, Any]) -> tuple[int | None, str | None]:
    by = how_priced(row, {})
    usage = usage_of_row({**row, "units": None if row["units"] is None else json.loads(row["units"])})
    found = price(prices, by.provider, by.model, usage, row["admitted_at"], tier=by.tier)
    return (found.cost_nano_usd, None) if isinstance(found, Priced) else (None, found.reason)


@settings(max_examples=120, deadline=None)
@given(price_lists(), st.lists(receipt_rows(), min_size=1, max_size=25))
def test_it_is_the_kernel_receipt_by_receipt(prices: PriceList, rows: list[dict[str, Any]]) -> None:
    named = [row | {"receipt_id": f"r{place:03d}"} for place, row in enumerate(rows)]
    frame = frame_of(named)
    found = tk.reprice(frame, prices).collect()
    assert found["receipt_id"].to_list() == frame["receipt_id"].to_list()
    why = pl.when(pl.col("recomputed_cost_nano_usd").is_null()).then("reason")
    mine = found.select("recomputed_cost_nano_usd", why).rows()
    assert mine == [by_kernel(prices, row) for row in frame.iter_rows(named=True)]
    streamed = tk.reprice(frame, prices).collect(engine="streaming")
    assert streamed.equals(found)


@pytest.mark.parametrize("prices", tk.price_lists(), ids=lambda prices: prices.id[:10])
def test_over_the_bundled_sample_it_is_the_kernel_too(prices: PriceList) -> None:
    rows = tk.datasets.load_sample().frame.collect()
    found = tk.reprice(rows, prices).collect()
    told = (pl.col("status") == "served") & (pl.col("usage_source") == "final")
    picked = rows.with_row_index("place").filter(told).gather_every(7)
    costs, reasons = found["recomputed_cost_nano_usd"], found["reason"]
    for row in picked.iter_rows(named=True):
        cost, reason = by_kernel(prices, row)
        assert costs[row["place"]] == cost
        assert cost is not None or reasons[row["place"]] == reason
    own = found.filter(pl.col("price_list") == prices.id, pl.col("recorded_cost_nano_usd").is_not_null())
    assert own.height > 30_000
    assert own["reason"].null_count() == own.height, "its own list gives each receipt its own cost"


def test_what_a_row_says_of_a_receipt() -> None:
    lost = abandoned(4)
    rows = [
        served(1),
        refused(2),
        served(3, status="failed", cost_nano_usd=0, counted_nano_usd=0),
        lost,
        correction(5, lost),
        abandoned(6),
        served(7, cost_nano_usd=None, unpriced_reason="model_unknown", price_row=None),
        served(8, cost_nano_usd=5),
        served(9, cost_nano_usd=5, price_list="2020-01-01+sha256:000000000000"),
        unknown(10),
        silent(11),
    ]
    found = tk.reprice(frame_from(rows), PRICES).collect()
    reasons = dict(found.select("receipt_id", "reason").rows())
    assert {name: reason for name, reason in reasons.items() if reason is not None} == {
        "r00002": "refused",
        "r00004": "corrected",
        "r00006": "outcome_unknown",
        "r00007": "unpriced_in_history",
        "r00008": "cost_differs",
        "r00009": "other_price_list",
        "r00010": "model_unknown",
        "r00011": "usage_missing",
    }
    assert found.filter("what_if")["receipt_id"].to_list() == ["r00007"]
    by_id = {row["receipt_id"]: row for row in found.iter_rows(named=True)}
    assert by_id["r00003"]["recomputed_cost_nano_usd"] == 0
    eighth = by_id["r00008"]
    assert eighth["difference_nano_usd"] == eighth["recomputed_cost_nano_usd"] - 5
    assert by_id["r00007"]["difference_nano_usd"] is None


def unknown(number: int) -> Receipt:
    return served(
        number, model_served="m-gone", price_row=None, cost_nano_usd=None, unpriced_reason="model_unknown"
    )


def silent(number: int) -> Receipt:
    nothing: dict[str, Any] = dict.fromkeys(USAGE_COLUMNS.values())
    return served(number, **nothing, cost_nano_usd=None, usage_source="none", unpriced_reason="usage_missing")


def frame_from(receipts: list[Receipt]) -> pl.DataFrame:
    rows = [receipt.row() for receipt in receipts]
    for row in rows:
        row["units"] = None if row["units"] is None else json.dumps(row["units"])
        for name in ("admitted_at", "settled_at"):
            row[name] = datetime.fromisoformat(row[name])
    return frame_of(rows)


def test_a_provider_of_another_name_is_found_by_the_receipts_that_name_their_row() -> None:
    rows = [
        served(1, provider="azure-eu"),
        served(2, provider="azure-eu", price_row=None, cost_nano_usd=None),
    ]
    found = tk.reprice(frame_from(rows), PRICES).collect()
    assert found["repriced_row"].to_list() == ["openai/m-large standard"] * 2


def test_an_answer_without_usage_costs_nothing_only_where_its_row_asks_for_nothing() -> None:
    def listed(rate: int) -> PriceList:
        row = PriceRow(
            provider="openai", model="omni-moderation", rates={"input": rate}, max_input_tokens=1,
            max_output_tokens=0,
        )  # fmt: skip
        return PriceList("2026-11-01+sha256:111111111111", date(2026, 11, 1), [row])

    free = served(1, price_row="openai/omni-moderation standard", model_served="omni-moderation", cost_nano_usd=0,
                  usage_source="none", **NO_METERS)  # fmt: skip
    frame = frame_from([free])
    assert tk.reprice(frame, listed(0)).collect()["recomputed_cost_nano_usd"].to_list() == [0]
    assert tk.reprice(frame, listed(1)).collect()["reason"].to_list() == ["usage_missing"]


def test_it_is_lazy_and_streams_to_a_file(tmp_path: Any) -> None:
    sample = tk.datasets.load_sample()
    result = tk.reprice(sample, tk.price_lists()[-1].id)
    assert isinstance(result, pl.LazyFrame)
    result.sink_parquet(tmp_path / "repriced.parquet")
    assert pl.read_parquet(tmp_path / "repriced.parquet").height == sample.manifest.loaded


def test_a_list_that_is_not_bundled_is_named() -> None:
    with pytest.raises(tk.QueryError, match="not bundled"):
        tk.reprice(frame_of([]), "2020-01-01+sha256:000000000000")


def test_units_are_priced_in_fractions_of_their_fee() -> None:
    fees = {"seconds": Fraction(1_020_000_000_000, 3600)}
    row = PriceRow(
        provider="openai", model="w", rates={"input": 0}, fees=fees, max_input_tokens=1, max_output_tokens=1
    )
    prices = PriceList("2026-11-01+sha256:222222222222", date(2026, 11, 1), [row])
    usage = Usage(units={"seconds": Decimal("12.34")})
    expected = price(prices, "openai", "w", usage, NOVEMBER)
    assert isinstance(expected, Priced)
    receipt = served(1, model_served="w", price_row=None, units={"seconds": Decimal("12.34")},
                     **NO_METERS)  # fmt: skip
    found = tk.reprice(frame_from([receipt]), prices).collect()
    assert found["recomputed_cost_nano_usd"].to_list() == [expected.cost_nano_usd]


def test_foreign_frames_work_without_any_of_our_own_columns() -> None:
    rows = [
        {"receipt_id": f"f{n}", "admitted_at": NOVEMBER, "provider": "openai", "model_requested": "m-small",
         "status": "served", "input_tokens": 1_000, "output_tokens": n, "cost_nano_usd": 1_000_000, "dialect": "openai"}
        for n in range(3)
    ]  # fmt: skip
    found = tk.reprice(Receipts.from_frame(conform(frame_of(rows).lazy())), PRICES).collect()
    assert found["recomputed_cost_nano_usd"].to_list() == [1_000_000, 1_004_000, 1_008_000]
    assert Counter(found["reason"]) == {None: 1, "other_price_list": 2}
