"""`verify` called rows good that contradict themselves, and a rightly priced fine-tune bad."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import toolkit as tk
from tests.support.exports import NO_USAGE, PRICES, Export, abandoned, chained, refused, served
from toolkit.core.receipts import Receipt
from toolkit.datasets import load_prices

LISTED = {"price_row": "openai/m-large standard"}
UNCOSTED: dict[str, Any] = {"cost_nano_usd": None, "unpriced_reason": "usage_missing"}


def failed(number: int, **changes: Any) -> Receipt:
    known = {"status": "failed", "http_status": 400, "cost_nano_usd": 0, "counted_nano_usd": 0}
    return served(number, **{**NO_USAGE, **known, "counted_tokens": 0, "price_row": None, **changes})


def no_usage(number: int, **changes: Any) -> Receipt:
    known = {**UNCOSTED, "counted_nano_usd": 70, "hold_nano_usd": 70, "counted_tokens": 9, "hold_tokens": 9}
    return served(number, **{**NO_USAGE, **known, "price_row": None, **changes})


def verify(folder: Path, *rows: Receipt) -> tk.Verification:
    path = folder / "export.jsonl"
    path.write_bytes(Export(chained([served(1), *rows])).jsonl())
    return tk.verify(path, price_lists=[PRICES])


def test_honest_rows_of_every_kind_are_good(tmp_path: Path) -> None:
    seen = {"output_tokens": 100_000, "input_tokens": 1_000, "usage_source": "partial", **LISTED}
    known = abandoned(7, **seen)
    more = replace(known, receipt_id="r00008", counted_nano_usd=known.counted_nano_usd)
    rows = [
        refused(3),
        failed(4),
        no_usage(5),
        abandoned(6),
        no_usage(9, hold_nano_usd=None, counted_nano_usd=0),
    ]
    assert verify(tmp_path, *rows).ok is True
    fault = verify(tmp_path, more).first_fault
    assert fault is not None
    assert "should count" in fault, "what was seen costs more than the hold"


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (refused(3, cost_nano_usd=0), "is refused and has a cost"),
        (failed(3, cost_nano_usd=7, counted_nano_usd=7), "is failed and has a cost"),
        (abandoned(3, counted_nano_usd=0), "should count 70000000"),
        (no_usage(3, counted_nano_usd=0), "should count 70"),
        (no_usage(3, hold_nano_usd=None), "should count 0"),
        (no_usage(3, unpriced_reason=None), "neither a cost nor a reason"),
        (served(3, **UNCOSTED), "has no cost; tokens and price list give"),
        (served(3, counted_tokens=0), "counted_tokens is 0 and not"),
        (refused(3, counted_tokens=5), "counted_tokens is 5 and not 0"),
        (no_usage(3, counted_tokens=0), "counted_tokens is 0 and not 9"),
        (served(1), "stands in this file twice"),
    ],
)
def test_a_row_that_contradicts_itself_is_a_fault(tmp_path: Path, row: Receipt, why: str) -> None:
    verdict = verify(tmp_path, row)
    assert verdict.ok is False
    assert verdict.first_fault is not None
    assert f"receipt {row.receipt_id}: " in verdict.first_fault
    assert why in verdict.first_fault


def test_a_fine_tune_is_priced_by_the_row_of_its_base(tmp_path: Path) -> None:
    [prices] = [known for known in load_prices() if known.id.startswith("2026-11-20")]
    usage: dict[str, Any] = {
        "input_tokens": 1_000,
        "cache_read_tokens": 0,
        "output_tokens": 10,
        "reasoning_tokens": None,
    }
    model = "ft:gpt-4o-mini-2024-07-18:acme::abc"
    row = next(row for row in prices.find("openai", model) if row.tier == "standard")
    cost = (1_000 * row.rates["input"] + 10 * row.rates["output"]) // 1_000
    named: dict[str, Any] = {
        "model_requested": model,
        "model_served": model,
        "price_list": prices.id,
        "price_row": row.id,
    }
    tuned = served(2, **usage, **named, cost_nano_usd=cost, counted_nano_usd=cost, counted_tokens=1_010)
    path = tmp_path / "export.jsonl"
    path.write_bytes(Export(chained([tuned])).jsonl())
    verdict = tk.verify(path)
    assert (verdict.first_fault, verdict.priced_rows) == (None, 1)
