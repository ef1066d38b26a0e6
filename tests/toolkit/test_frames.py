"""The receipts frame: one schema, no lossy cast."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import polars as pl
import pytest

import toolkit as tk
from tests.support.exports import served
from toolkit.core.receipts import RECEIPT_COLUMNS, Receipt
from toolkit.frames import INSTANT, RECEIPT_SCHEMA, Manifest, Receipts, SourceFile, conform


def frame(**changes: Any) -> pl.DataFrame:
    """One receipt as a frame, with some columns replaced."""
    row = served(1).row()
    row["admitted_at"] = datetime.fromisoformat(row["admitted_at"])
    row["settled_at"] = datetime.fromisoformat(row["settled_at"])
    return pl.DataFrame([row], schema=RECEIPT_SCHEMA).with_columns(**changes)


def test_the_schema_is_the_contracts_columns_in_order() -> None:
    assert tuple(RECEIPT_SCHEMA) == RECEIPT_COLUMNS


@pytest.mark.parametrize("column", RECEIPT_COLUMNS)
def test_each_type_follows_from_the_receipts_own_type(column: str) -> None:
    annotation = Receipt.__annotations__[column].removesuffix(" | None")
    wanted = {"int": pl.Int64, "bool": pl.Boolean, "datetime": INSTANT, "tuple[str, ...]": pl.List(pl.String)}
    assert RECEIPT_SCHEMA[column] == wanted.get(annotation, pl.String)


def test_conform_orders_columns_and_drops_foreign_ones() -> None:
    shuffled = frame(extra=pl.lit(1)).select(pl.all().reverse()).select(sorted([*RECEIPT_COLUMNS, "extra"]))
    assert conform(shuffled.lazy()).collect_schema() == RECEIPT_SCHEMA


def test_a_missing_column_is_named() -> None:
    with pytest.raises(tk.LoadError, match="november, column tags") as caught:
        conform(frame().drop("tags").lazy(), source="november")
    assert caught.value.column == "tags"


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("cost_nano_usd", pl.lit(1.0)),
        ("cost_nano_usd", pl.lit("1")),
        ("cost_nano_usd", pl.lit("1").cast(pl.Decimal(10, 2))),
        ("admitted_at", pl.lit(datetime(2026, 11, 1))),  # noqa: DTZ001
        ("admitted_at", pl.lit("2026-11-01T00:00:00Z")),
        ("customer", pl.lit(7)),
        ("tags", pl.lit("agent:crawler")),
        ("verified", pl.lit(1)),
    ],
)
def test_a_type_that_would_lose_something_is_refused_by_name(column: str, value: pl.Expr) -> None:
    with pytest.raises(tk.LoadError, match=f"column {column}"):
        Receipts.from_frame(frame(**{column: value}))


def test_an_instant_of_another_zone_stays_the_same_instant() -> None:
    berlin = pl.lit(datetime(2026, 11, 1, 1, tzinfo=timezone(timedelta(hours=1)))).dt.convert_time_zone(
        "Europe/Berlin"
    )
    receipts = Receipts.from_frame(frame(admitted_at=berlin))
    assert receipts.frame.collect()["admitted_at"].item() == datetime.fromisoformat("2026-11-01T00:00:00Z")


def test_smaller_integers_and_empty_columns_are_taken() -> None:
    receipts = Receipts.from_frame(
        frame(attempt=pl.lit(1, dtype=pl.UInt8), run=pl.lit(None), tags=pl.lit(None))
    )
    assert receipts.frame.collect_schema() == RECEIPT_SCHEMA


def test_from_frame_refuses_a_repeated_receipt_and_does_not_mutate() -> None:
    one = frame()
    before = one.clone()
    with pytest.raises(tk.LoadError, match="r00001 stands more than once"):
        Receipts.from_frame(pl.concat([one, one]))
    assert one.equals(before)


def test_from_frame_sorts_by_admission_then_id() -> None:
    later = frame(receipt_id=pl.lit("a"), admitted_at=pl.col("admitted_at") + timedelta(days=1))
    tie = frame(receipt_id=pl.lit("b"))
    receipts = Receipts.from_frame(pl.concat([later, tie, frame()]))
    assert receipts.frame.collect()["receipt_id"].to_list() == ["b", "r00001", "a"]
    assert repr(receipts) == "<Receipts: 3 rows from 1 file(s), 0 duplicates, 0 rejected>"


@pytest.mark.parametrize(
    ("claims", "complete"),
    [([True, True], True), ([True, False], False), ([True, None], None), ([None, False], False), ([], None)],
)
def test_a_manifest_is_complete_only_when_every_file_is(
    claims: list[bool | None], complete: bool | None
) -> None:
    files = (
        SourceFile(name="f", kind="receipts", sha256="", read=1, loaded=1, complete=claim) for claim in claims
    )
    assert Manifest(tuple(files)).complete is complete
