"""The published shape of receipts as frames, and what a load hands back.

Every reader ends here and every analysis starts here, so a column has one name, one unit and one type
wherever it is seen. Money is nano-USD in Int64, instants are UTC with microseconds, null is "not known" and
never zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from toolkit.core.errors import LoadError
from toolkit.core.receipts import RECEIPT_COLUMNS, USAGE_COLUMNS

INSTANT = pl.Datetime("us", "UTC")

_INSTANTS = ("admitted_at", "settled_at")
_FLAGS = ("stream", "client_left", "verified")
_NUMBERS = (
    "attempt",
    "admit_seq",
    "settle_seq",
    "http_status",
    "cap_id",
    "input_tokens",
    "cache_read_tokens",
    "cache_write_5m_tokens",
    "cache_write_1h_tokens",
    "output_tokens",
    "reasoning_tokens",
    "audio_input_tokens",
    "audio_output_tokens",
    "image_tokens",
    "request_bytes",
    "response_bytes",
    "output_limit",
    "hold_nano_usd",
    "floor_nano_usd",
    "cost_nano_usd",
    "counted_nano_usd",
    "hold_tokens",
    "counted_tokens",
    "provider_cost_nano_usd",
    "latency_ms",
    "ttft_ms",
    "chain_seq",
)


def _dtype(column: str) -> pl.DataType:
    if column in _INSTANTS:
        return INSTANT
    if column in _NUMBERS:
        return pl.Int64()
    if column in _FLAGS:
        return pl.Boolean()
    return pl.List(pl.String) if column == "tags" else pl.String()


RECEIPT_SCHEMA = pl.Schema({column: _dtype(column) for column in RECEIPT_COLUMNS})
"""Every receipt column in the contract's order. `units` holds JSON text, such as `{"web_search":2}`; whatever
is no instant, number, flag or list of tags is text."""

TOKEN_COLUMNS = tuple(USAGE_COLUMNS.values())
"""The disjoint token meters, and `reasoning_tokens`, which is a part of output."""

REJECTED_SCHEMA = pl.Schema(
    {"file": pl.String(), "line": pl.Int64(), "column": pl.String(), "reason": pl.String()}
)
"""Rows that were left out: where they stand and why."""


def conform(frame: pl.LazyFrame, *, source: str | None = None) -> pl.LazyFrame:
    """`frame` with exactly the columns of `RECEIPT_SCHEMA`, in order and type; other columns are dropped.

    Only casts that lose nothing are made. Raises LoadError naming the column that is missing or of another
    type: a float never becomes money, an instant without a zone never becomes UTC.
    """
    have = frame.collect_schema()
    for column, wanted in RECEIPT_SCHEMA.items():
        if column not in have:
            raise LoadError("a receipts frame needs this column", file=source, column=column)
        if not _castable(have[column], wanted):
            raise LoadError(f"{have[column]} cannot become {wanted} without loss", file=source, column=column)
    return frame.select(pl.col(column).cast(wanted) for column, wanted in RECEIPT_SCHEMA.items())


def _castable(have: pl.DataType, wanted: pl.DataType) -> bool:
    if have == wanted or have == pl.Null:
        return True
    if wanted == pl.Int64:
        return have.is_integer()
    if wanted == pl.String:
        return have in (pl.Categorical, pl.Enum)
    if isinstance(have, pl.Datetime):
        return isinstance(wanted, pl.Datetime) and have.time_zone is not None and have.time_unit != "ns"
    return isinstance(have, pl.List) and isinstance(wanted, pl.List) and have.inner == pl.Null


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """One file as it was read. Rows: `read = loaded + rejected + duplicates`.

    `sha256` is over the bytes as they lie on disk. `header` and `footer` are an export's own, null where it
    has none. `complete` is what the file claims of its period, null where it claims nothing.
    """

    name: str
    kind: str
    sha256: str
    read: int
    loaded: int
    rejected: int = 0
    duplicates: int = 0
    header: Mapping[str, Any] | None = None
    footer: Mapping[str, Any] | None = None
    complete: bool | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """Where a frame's rows came from, file by file."""

    files: tuple[SourceFile, ...] = ()

    @property
    def read(self) -> int:
        """Rows read: loaded + rejected + duplicates."""
        return sum(file.read for file in self.files)

    @property
    def loaded(self) -> int:
        """Rows in the frame."""
        return sum(file.loaded for file in self.files)

    @property
    def rejected(self) -> int:
        """Rows left out, each with its reason in `Receipts.rejected`."""
        return sum(file.rejected for file in self.files)

    @property
    def duplicates(self) -> int:
        """Rows that repeat one already loaded from this or another file."""
        return sum(file.duplicates for file in self.files)

    @property
    def complete(self) -> bool | None:
        """True when every file says its period is complete, False when one says it is not, else null."""
        said = {file.complete for file in self.files}
        if False in said:
            return False
        return True if said == {True} else None


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Receipts:
    """Receipts ready for analysis: `.frame` has `RECEIPT_SCHEMA`, in `in_order`."""

    frame: pl.LazyFrame
    rejected: pl.DataFrame
    manifest: Manifest

    @classmethod
    def from_frame(cls, frame: pl.DataFrame | pl.LazyFrame) -> Receipts:
        """Receipts from a frame that has the columns; LoadError where `conform` says so, or for a repeat.

        >>> Receipts.from_frame(pl.DataFrame(schema=RECEIPT_SCHEMA)).manifest.loaded
        0
        """
        rows = in_order(conform(frame.lazy())).collect()
        repeated = rows.filter(pl.col("receipt_id").is_duplicated())
        if repeated.height:
            raise LoadError(f"receipt {repeated['receipt_id'][0]} stands more than once", column="receipt_id")
        file = SourceFile(name="frame", kind="frame", sha256="", read=rows.height, loaded=rows.height)
        return cls(rows.lazy(), rejected_frame(()), Manifest((file,)))

    def __repr__(self) -> str:
        manifest = self.manifest
        return (
            f"<Receipts: {manifest.loaded:,} rows from {len(manifest.files)} file(s), "
            f"{manifest.duplicates:,} duplicates, {manifest.rejected:,} rejected>"
        )


def in_order(frame: pl.LazyFrame) -> pl.LazyFrame:
    """The one order of a receipts frame: by admission, ties by id."""
    return frame.sort("admitted_at", "receipt_id", nulls_last=True)


def rejected_frame(rows: Iterable[tuple[str, int | None, str | None, str]]) -> pl.DataFrame:
    """(file, line, column, reason) tuples as a frame, in their order."""
    return pl.DataFrame(list(rows), schema=REJECTED_SCHEMA, orient="row")
