"""The month through a live gateway and through the model, side by side: for the tests and for the bench."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

import toolkit as tk
from gateway.settings import Settings
from tests.support.clock import ManualClock
from tests.support.gateway import running_gateway
from tests.support.month import MonthDriver
from toolkit.core.caps import Cap
from toolkit.core.money import parse_usd

CapFields = dict[str, Any]


def recorded(first: int, calls: int) -> pl.DataFrame:
    """A slice of the month: calls that history let through, in the order the counters saw them.

    What history refused has no cost on record, so it can be judged but not sent again. All calls go out under one key.
    """
    month = tk.datasets.load_sample().frame.collect()
    sent = month.filter(pl.col("admit_seq").is_not_null() & (pl.col("status") != "refused")).sort("admit_seq")
    return sent.slice(first, calls).with_columns(key_id=pl.lit("key_of_the_test"))


async def live(folder: Path, rows: pl.DataFrame, caps: list[CapFields]) -> pl.DataFrame:
    """What a gateway with these armed caps did with each call: one row a receipt."""
    prices, clock = Settings(providers=()).prices_dir, ManualClock(rows["admitted_at"].min())
    async with running_gateway(folder, prices_dir=prices, clock=clock) as gateway:
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


def held_apart(rows: pl.DataFrame, real: pl.DataFrame) -> pl.DataFrame:
    """Calls that the live gateway held or counted otherwise than history did: the traffic was not the same."""
    same = rows.select("receipt_id", recorded_hold="hold_nano_usd", recorded_counted="counted_nano_usd")
    both = real.join(same, on="receipt_id", maintain_order="left")
    counted = pl.col("counted_nano_usd") != pl.col("recorded_counted")
    return both.filter(
        pl.col("hold_nano_usd").ne_missing(pl.col("recorded_hold")) | (~pl.col("refused") & counted)
    )


def judged_apart(rows: pl.DataFrame, real: pl.DataFrame, caps: list[CapFields]) -> pl.DataFrame:
    """Calls on which model and gateway differ in verdict, code or the cap that is named."""
    model = tk.what_if(tk.Receipts.from_frame(rows), draft_caps(caps)).decisions
    compared = real.join(model, on="receipt_id", suffix="_model", maintain_order="left")
    return compared.filter(
        (pl.col("refused") != (pl.col("verdict") == "refused"))
        | pl.col("code").ne_missing(pl.col("code_model"))
        | pl.col("cap_id").ne_missing(pl.col("cap_id_model"))
    )


def draft_caps(caps: list[CapFields]) -> list[Cap]:
    """The same caps as the model takes them, numbered as the gateway numbers them."""
    return [
        Cap(
            id=number,
            scope=cap.get("scope", "customer"),
            subject=cap.get("subject", "*"),
            window=cap.get("window", "month"),
            limit_nano_usd=parse_usd(cap["limit_usd"]),
            admission=cap.get("admission", "reserve"),
            unpriced=cap.get("unpriced", "refuse"),
        )
        for number, cap in enumerate(caps, start=1)
    ]
