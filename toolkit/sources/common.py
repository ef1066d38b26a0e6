"""Strict reading: bytes to rows, rows to a typed frame; what cannot be read exactly is set aside by name.

Polars readers infer, round and null-fill; a ledger must not. Rows are therefore split and decoded here, money
is text or an integer until it is nano-USD, and a frame is built only from values of their column's type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

import polars as pl

from toolkit.core.errors import LoadError
from toolkit.frames import INSTANT, RECEIPT_SCHEMA

LARGEST_INTEGER = 2**53 - 1
PART_SCHEMA = pl.Schema({**RECEIPT_SCHEMA, "line": pl.Int64(), "snapshot": INSTANT})
"""Receipt columns, the line a row stood on, when its source last wrote it (null where rows never change)."""

_REQUIRED = ("receipt_id", "admitted_at", "settled_at", "organization", "status", "counted_nano_usd")
_STATUSES = ("served", "refused", "failed", "abandoned")
_SIGNED = ("counted_nano_usd", "counted_tokens")
_INSTANT_TEXT = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{6}Z", re.ASCII)


class Rejected(NamedTuple):
    """A row that was left out: the line it starts on, the column at fault where there is one, and why."""

    line: int | None
    column: str | None
    reason: str


class Unproven(LoadError):
    """An export without its header or footer: nothing in it is wrong, and nothing says that it is whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What a reader made of one file: a frame of `PART_SCHEMA` in file order, and what it left out.

    `faults` say why an export is not the whole it claims to be; a strict load raises the first.
    """

    kind: str
    frame: pl.DataFrame
    rejected: tuple[Rejected, ...] = ()
    faults: tuple[LoadError, ...] = ()
    header: Mapping[str, Any] | None = None
    footer: Mapping[str, Any] | None = None
    complete: bool | None = None


def json_object(line: bytes) -> dict[str, Any]:
    """One JSON object with exact numbers: a fraction becomes a Decimal. Raises ValueError with a reason."""
    try:
        value = json.loads(line.decode("utf-8"), parse_float=Decimal, parse_constant=_no_constant)
        if b"\\u" in line:
            json.dumps(value, ensure_ascii=False, default=str).encode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start + 1} of the line") from error
    except UnicodeEncodeError as error:
        raise ValueError("holds half a surrogate pair, which is no text") from error
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON at character {error.pos + 1}: {error.msg}; cut off?") from error
    if not isinstance(value, dict):
        raise ValueError("is no JSON object")
    return value


def typed(
    columns: Mapping[str, Sequence[Any]], lines: Sequence[int], snapshots: Sequence[str | None] | None = None
) -> tuple[pl.DataFrame, tuple[Rejected, ...]]:
    """A frame of `PART_SCHEMA` from plain values per receipt column, and the rows that had to be left out.

    Instants are text as on receipts, tags lists, units mappings. A row is left out for the first column whose
    value has another type, is beyond 2^53, negative, or a null or a word that no receipt has there.
    """
    bad: dict[int, Rejected] = {}
    for column in RECEIPT_SCHEMA:
        for index, reason in _wrong(column, columns[column]):
            bad.setdefault(index, Rejected(lines[index], column, reason))
    times = [None] * len(lines) if snapshots is None else snapshots
    every = {**columns, "line": lines, "snapshot": times}
    if bad:
        kept = [index for index in range(len(lines)) if index not in bad]
        every = {column: [values[index] for index in kept] for column, values in every.items()}
    series = [_series(column, every[column], dtype) for column, dtype in PART_SCHEMA.items()]
    return pl.DataFrame(series), tuple(bad[index] for index in sorted(bad))


def typed_parquet(frame: pl.DataFrame, *, first_line: int = 1) -> tuple[pl.DataFrame, tuple[Rejected, ...]]:
    """The same checks for a frame that has `RECEIPT_SCHEMA` already; `line` is the row number."""
    numbered = frame.with_row_index("line", offset=first_line).with_columns(
        pl.col("line").cast(pl.Int64), pl.lit(None, dtype=INSTANT).alias("snapshot")
    )
    bad: dict[int, Rejected] = {}
    for column in RECEIPT_SCHEMA:
        if _is_suspect(frame[column]):
            for index, reason in _wrong_value(column, frame[column].to_list()):
                bad.setdefault(index, Rejected(first_line + index, column, reason))
    kept = numbered.filter(~pl.col("line").is_in([first_line + index for index in bad])) if bad else numbered
    return kept.select(PART_SCHEMA.names()), tuple(bad[index] for index in sorted(bad))


def _is_suspect(values: pl.Series) -> bool:
    """Whether a column may hold a value that no receipt can; tells in one pass that most cannot."""
    if isinstance(values.dtype, pl.Int64) and values.null_count() < len(values):
        least, largest = values.min(), values.max()
        assert isinstance(least, int)
        assert isinstance(largest, int)
        if least < _least(values.name) or largest > LARGEST_INTEGER:
            return True
    return values.name == "status" or (values.name in _REQUIRED and values.null_count() > 0)


def _least(column: str) -> int:
    return -LARGEST_INTEGER if column in _SIGNED else 0


def _series(column: str, values: Sequence[Any], dtype: pl.DataType) -> pl.Series:
    if isinstance(dtype, pl.Datetime):
        text = pl.Series(column, values, dtype=pl.String)
        return text.str.to_datetime("%Y-%m-%dT%H:%M:%S%.6fZ", time_unit="us", time_zone="UTC", strict=True)
    if column == "units":
        values = [None if units is None else units_text(units) for units in values]
    return pl.Series(column, values, dtype=dtype, strict=True)


def units_text(units: Mapping[str, Any]) -> str:
    """Units as the JSON text that a frame carries: keys sorted, no spaces."""
    return json.dumps(units, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _wrong(column: str, values: Sequence[Any]) -> list[tuple[int, str]]:
    dtype = RECEIPT_SCHEMA[column]
    if isinstance(dtype, pl.Datetime):
        return _failing(values, _is_instant, "is no instant like 2026-11-01T00:00:00.000000Z")
    if column == "tags":
        return _failing(values, _is_tags, "is no list of texts")
    if column == "units":
        return _failing(values, _is_units, "is no object of counts; fractions stand as decimal text")
    wanted: type = int if isinstance(dtype, pl.Int64) else bool if isinstance(dtype, pl.Boolean) else str
    if not set(map(type, values)) <= {wanted, type(None)}:
        word = {int: "whole number", bool: "true or false", str: "text"}[wanted]
        return _failing(values, lambda value: value is None or type(value) is wanted, f"is no {word}")
    return _wrong_value(column, values)


def _wrong_value(column: str, values: Sequence[Any]) -> list[tuple[int, str]]:
    """Values that have their column's type, but that no receipt can hold there."""
    if isinstance(RECEIPT_SCHEMA[column], pl.Int64):
        numbers = [value for value in values if value is not None]
        least = _least(column)
        if numbers and (min(numbers) < least or max(numbers) > LARGEST_INTEGER):
            return _failing(
                values,
                lambda value: value is None or least <= value <= LARGEST_INTEGER,
                f"is not between {least} and {LARGEST_INTEGER}",
            )
    if column == "status":
        return _failing(values, lambda value: value in _STATUSES, f"is none of {', '.join(_STATUSES)}")
    return _failing(values, lambda value: value is not None, "is missing") if column in _REQUIRED else []


def _failing(values: Sequence[Any], good: Callable[[Any], bool], reason: str) -> list[tuple[int, str]]:
    return [(index, f"{_shown(value)} {reason}") for index, value in enumerate(values) if not good(value)]


def _shown(value: Any) -> str:
    text = "null" if value is None else repr(str(value)) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _is_instant(value: Any) -> bool:
    if type(value) is not str or _INSTANT_TEXT.fullmatch(value) is None:
        return False
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


def _is_tags(value: Any) -> bool:
    return type(value) is list and all(type(tag) is str for tag in value)


def _is_units(value: Any) -> bool:
    return value is None or (type(value) is dict and all(map(_is_quantity, value.values())))


def _is_quantity(value: Any) -> bool:
    if type(value) is int:
        return 0 <= value <= LARGEST_INTEGER
    return type(value) is str and re.fullmatch(r"\d{1,16}(\.\d{1,12})?", value, re.ASCII) is not None


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no number")
