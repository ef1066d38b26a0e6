"""Receipts: the columns in the contract's order, and what the counters take for a row."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from toolkit.core.receipts import (
    RECEIPT_COLUMNS,
    USAGE_COLUMNS,
    Receipt,
    Status,
    counted_of,
    usage_columns,
    usage_of_row,
)
from toolkit.core.usage import METERS, Usage
from toolkit.core.windows import parse_instant

EVERY_METER: dict[str, Any] = {meter: place for place, meter in enumerate(METERS)}
CONTRACT_10 = """
receipt_id operation_id attempt admitted_at settled_at admit_seq settle_seq organization project key_id customer run
tags provider dialect route model_requested model_served stream status client_left http_status refusal_code cap_id
cap_scope cap_window upstream_id service_tier input_tokens cache_read_tokens cache_write_5m_tokens
cache_write_1h_tokens output_tokens reasoning_tokens audio_input_tokens audio_output_tokens image_tokens units
request_bytes response_bytes output_limit usage_source hold_nano_usd floor_nano_usd cost_nano_usd counted_nano_usd
hold_tokens counted_tokens unpriced_reason price_list price_row provider_cost_nano_usd basis verified corrects
latency_ms ttft_ms node chain_seq prev_hash row_hash
"""


def receipt(**changed: Any) -> Receipt:
    needed: dict[str, Any] = {
        "receipt_id": "r",
        "operation_id": "o",
        "admitted_at": parse_instant("2026-12-01T09:30:00Z"),
        "settled_at": parse_instant("2026-12-01T09:30:01.000002Z"),
        "organization": "default",
        "dialect": "openai",
        "route": "/v1/chat/completions",
        "status": "served",
        "request_bytes": 2,
        "node": "n1",
    }
    return Receipt(**needed | changed)


def test_a_receipt_of_columns_is_the_one_that_the_constructor_makes() -> None:
    made = receipt(customer="a", units={"web_search": 2}, tags=("agent:x",))
    same = Receipt.of({name: value for name, value in vars(made).items() if value is not None})
    assert same == made
    assert list(vars(same)) == list(vars(made)) == list(RECEIPT_COLUMNS)


@pytest.mark.parametrize("missing", ["node", "receipt_id"])
def test_a_receipt_of_columns_names_what_is_missing_or_unknown(missing: str) -> None:
    columns = vars(receipt())
    with pytest.raises(TypeError, match="'colour'"):
        Receipt.of({**columns, "colour": "red"})
    with pytest.raises(TypeError, match=f"'{missing}'"):
        Receipt.of({name: value for name, value in columns.items() if name != missing})


def test_the_columns_stand_in_the_contracts_order() -> None:
    assert list(RECEIPT_COLUMNS) == CONTRACT_10.split()
    assert list(receipt().row()) == CONTRACT_10.split()


@pytest.mark.parametrize(
    ("status", "cost", "hold", "seen", "counted"),
    [
        ("served", 5, 9, None, 5),  # priced: the cost
        ("served", 0, 9, None, 0),  # 0 is a cost
        ("served", 12, 9, None, 12),  # a cost above the hold is taken in full
        ("served", None, 9, None, 9),  # a listed model whose cost is null: the hold (D09)
        ("served", None, 0, None, 0),
        ("served", None, None, None, 0),  # no price at admission
        ("served", 5, None, None, 5),  # priced later, though nothing was held
        ("abandoned", None, 9, None, 9),  # outcome unknown: the hold (D11)
        ("abandoned", None, 9, 8, 9),  # B38: the greater of the hold and of what was seen
        ("abandoned", None, 9, 10, 10),
        ("abandoned", None, None, None, 0),
        ("abandoned", None, None, 3, 3),
        ("failed", 0, 9, None, 0),  # known not to bill
        ("failed", None, 9, None, 0),
        ("refused", None, 9, None, 0),  # R085
    ],
)
def test_what_the_counters_take_for_a_row(
    status: Status, cost: int | None, hold: int | None, seen: int | None, counted: int
) -> None:
    found = counted_of(status=status, cost_nano_usd=cost, hold_nano_usd=hold, seen_nano_usd=seen)
    assert found == counted


def test_a_row_is_plain_json_and_null_stays_null() -> None:
    row = receipt(tags=("agent:a", "agent:b"), units={"seconds": Decimal("1E+1"), "images": 3}).row()
    assert row["admitted_at"] == "2026-12-01T09:30:00.000000Z"
    assert row["settled_at"] == "2026-12-01T09:30:01.000002Z"
    assert row["tags"] == ["agent:a", "agent:b"]
    assert row["units"] == {"seconds": "10", "images": 3}
    assert (row["cost_nano_usd"], row["counted_nano_usd"], row["input_tokens"]) == (None, 0, None)
    assert (row["stream"], row["verified"], row["corrects"]) == (False, True, None)


def test_every_meter_and_reasoning_has_a_column() -> None:
    assert set(USAGE_COLUMNS) == {*METERS, "reasoning"}
    assert set(USAGE_COLUMNS.values()) <= set(RECEIPT_COLUMNS)


@pytest.mark.parametrize(
    "usage",
    [
        Usage(),
        Usage(input=0, output=0),
        Usage(**EVERY_METER, reasoning=3),
        Usage(input=1, units={"web_search": 0}),
        Usage(units={"seconds": Decimal("1.020")}),
    ],
)
def test_a_usage_comes_back_from_its_row_as_it_was(usage: Usage) -> None:
    columns = usage_columns(usage)
    assert columns["units"] == (dict(usage.units) or None)
    assert usage_of_row(receipt(**columns).row()) == usage
