"""The model equals reality: `tk.what_if` over the bundled month gives a live gateway's verdict, receipt by receipt."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import toolkit as tk
from gateway.settings import Settings
from tests.support.gateway import running_gateway
from tests.support.month import MonthDriver
from toolkit.core.caps import Cap

SLICE = 20_000
"""Calls of the month that are sent in CI; `make bench` sends all of them."""


def recorded(first: int, calls: int) -> pl.DataFrame:
    """A slice of the month: calls that history let through, in the order the counters saw them.

    What history refused has no cost on record, so it can be judged but not sent again. All calls go out under one key.
    """
    month = tk.datasets.load_sample().frame.collect()
    sent = month.filter(pl.col("admit_seq").is_not_null() & (pl.col("status") != "refused")).sort("admit_seq")
    return sent.slice(first, calls).with_columns(key_id=pl.lit("key_of_the_test"))


async def live(folder: Path, rows: pl.DataFrame, caps: list[dict[str, Any]]) -> pl.DataFrame:
    """What a gateway with these armed caps did with each call: one row a receipt."""
    async with running_gateway(folder, prices_dir=Settings(providers=()).prices_dir) as gateway:
        gateway.clock.at = rows["admitted_at"].min()
        for cap in caps:
            await gateway.make_cap(**cap)
        driver = MonthDriver(gateway.gateway, gateway.clock, gateway.provider, gateway.secret)
        await driver.run(rows.to_dicts())
        left = {receipt["operation_id"]: receipt for receipt in await gateway.receipts()}
    return pl.DataFrame(
        [
            {
                "receipt_id": name,
                "refused": outcome.code is not None,
                "code": outcome.code,
                "cap_id": left[outcome.operation_id]["cap_id"],
                "hold_nano_usd": left[outcome.operation_id]["hold_nano_usd"],
                "counted_nano_usd": left[outcome.operation_id]["counted_nano_usd"],
            }
            for name, outcome in driver.outcomes.items()
        ],
        infer_schema_length=None,
    )


CASES = [
    pytest.param(0, SLICE, [{"limit_usd": "3", "window": "day", "unpriced": "serve"}], id="reserve"),
    pytest.param(
        50_000,
        3_000,
        [
            {"limit_usd": "1.50", "window": "day", "admission": "floor"},
            {
                "scope": "organization",
                "subject": "default",
                "limit_usd": "60",
                "admission": "after",
                "unpriced": "serve",
            },
        ],
        id="floor-and-after",
    ),
    pytest.param(
        70_000,
        3_000,
        [
            {"limit_usd": "2", "window": "day"},
            {"subject": "initech-042", "limit_usd": "9", "window": "day"},
            {"scope": "key", "limit_usd": "40", "window": "week", "unpriced": "serve"},
        ],
        id="override-and-key",
    ),
]


@pytest.fixture
def memory_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: thousands of calls one after the other would wait for a disk."""
    shared = Path("/dev/shm")
    if not shared.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        yield Path(folder)


@pytest.mark.parametrize(("first", "calls", "caps"), CASES)
async def test_the_model_gives_the_gateways_verdict(
    memory_folder: Path, first: int, calls: int, caps: list[dict[str, Any]]
) -> None:
    rows = recorded(first, calls)
    real = await live(memory_folder, rows, caps)
    assert real.height == calls
    same = rows.select("receipt_id", recorded_hold="hold_nano_usd", recorded_counted="counted_nano_usd")
    both = real.join(same, on="receipt_id", maintain_order="left")
    assert both.filter(pl.col("hold_nano_usd").ne_missing(pl.col("recorded_hold"))).is_empty()
    admitted = both.filter(~pl.col("refused"))
    assert admitted.filter(pl.col("counted_nano_usd") != pl.col("recorded_counted")).is_empty()

    model = tk.what_if(tk.Receipts.from_frame(rows), draft_caps(caps)).decisions
    compared = real.join(model, on="receipt_id", suffix="_model", maintain_order="left")
    refused = pl.col("verdict").is_in(["refused", "model_unpriced"])
    differing = compared.filter(
        (pl.col("refused") != refused)
        | pl.col("code").ne_missing(pl.col("code_model"))
        | pl.col("cap_id").ne_missing(pl.col("cap_id_model"))
    )
    assert differing.is_empty(), differing.head(5)
    assert 0 < real["refused"].sum() < calls, "a cap that refuses nothing, or everything, proves nothing"


def draft_caps(caps: list[dict[str, Any]]) -> list[Cap]:
    """The same caps as the model takes them, numbered as the gateway numbers them."""
    return [
        Cap(
            id=number,
            scope=cap.get("scope", "customer"),
            subject=cap.get("subject", "*"),
            window=cap.get("window", "month"),
            limit_nano_usd=tk.core.money.parse_usd(cap["limit_usd"]),
            admission=cap.get("admission", "reserve"),
            unpriced=cap.get("unpriced", "refuse"),
        )
        for number, cap in enumerate(caps, start=1)
    ]
