"""Receipts and caps that are short to write: whole rows of the published frame, with only what matters spelled out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from toolkit.core.caps import Cap
from toolkit.frames import RECEIPT_SCHEMA

NOVEMBER = datetime(2026, 11, 1, tzinfo=UTC)


def call(
    number: int, admit: int, settle: int | None, at: datetime = NOVEMBER, **columns: Any
) -> dict[str, Any]:
    """One receipt row. Steps are `admit_seq` and `settle_seq`; money in nano-USD; it counts its hold unless told."""
    hold = columns.get("hold_nano_usd", 0)
    counted = columns.get("counted_nano_usd", hold or 0)
    refused = columns.get("status") == "refused"
    row = {
        "receipt_id": f"r{number:06d}",
        "operation_id": f"r{number:06d}",
        "attempt": 1,
        "admitted_at": at,
        "settled_at": at + timedelta(seconds=1),
        "admit_seq": admit,
        "settle_seq": None if refused else settle,
        "organization": "default",
        "customer": "a",
        "tags": [],
        "dialect": "openai",
        "route": "/v1/chat/completions",
        "status": "served",
        "cost_nano_usd": None if refused else counted,
        "hold_nano_usd": hold,
        "floor_nano_usd": 0,
        "counted_nano_usd": 0 if refused else counted,
        "hold_tokens": 0,
        "counted_tokens": 0,
        "request_bytes": 4,
        "node": "n1",
        "basis": "measured",
        "verified": True,
    }
    return row | columns


def frame(rows: Sequence[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame(
        [{name: row.get(name) for name in RECEIPT_SCHEMA} for row in rows], schema=RECEIPT_SCHEMA
    )


def one_by_one(*amounts: int, **columns: Any) -> list[dict[str, Any]]:
    """Calls that never overlap, each holding and counting its amount."""
    return [
        call(n, 2 * n + 1, 2 * n + 2, NOVEMBER + timedelta(minutes=n), hold_nano_usd=amount, **columns)
        for n, amount in enumerate(amounts)
    ]


def cap(limit: int | None = 10, cap_id: int = 1, **columns: Any) -> Cap:
    given = {"scope": "customer", "subject": "*", "window": "month", "limit_nano_usd": limit} | columns
    return Cap(id=cap_id, **given)
