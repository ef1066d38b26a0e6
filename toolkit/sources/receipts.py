"""Our own ledger export (contract §11) in JSONL, CSV and Parquet, and plain receipts such as the sample.

An export proves itself: its footer counts the rows, sums the money and hashes every byte before it. What does
not match is collected as faults, first fault first; whether to refuse the file or to take the part is the
caller's word.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import polars as pl

from toolkit.core.chain import RECIPE
from toolkit.core.errors import LoadError
from toolkit.core.receipts import RECEIPT_COLUMNS
from toolkit.frames import RECEIPT_SCHEMA, conform
from toolkit.sources.common import (
    Blob,
    Part,
    Rejected,
    Unproven,
    csv_rows,
    json_object,
    lines_of,
    typed,
    typed_parquet,
)

KIND = "receipts"
SAMPLE_KIND = "sample"
HEADER_KEY = "capline.header"
FOOTER_KEY = "capline.footer"
GUARDED = ("=", "+", "-", "@", "'", "\t", "\r")
"""A CSV cell that begins with one of these has a `'` before it, so that no spreadsheet runs it."""

_COLUMNS = frozenset(RECEIPT_COLUMNS)
_in_order = itemgetter(*RECEIPT_COLUMNS)
_WORDS = {"true": True, "false": False}
_NO_FOOTER = "has no footer: it is cut off or plain; export it again, or pass strict=False to take the part"


def read_jsonl(blob: Blob) -> Part:
    """An export as JSON lines: header, one row a line, footer."""
    lines = list(lines_of(blob.content))
    header = _header(lines[0][1]) if lines else None
    footer = _footer(lines[-1][1]) if len(lines) > 1 else None
    body = lines[header is not None : len(lines) - (footer is not None)]
    numbers: list[int] = []
    rows: list[tuple[Any, ...]] = []
    rejected: list[Rejected] = []
    for number, line in body:
        try:
            row = json_object(line)
        except ValueError as error:
            rejected.append(Rejected(number, None, str(error)))
            continue
        if wrong := _wrong_columns(row):
            rejected.append(Rejected(number, *wrong))
        else:
            numbers.append(number)
            rows.append(_in_order(row))
    frame, mistyped = typed(_columns(RECEIPT_COLUMNS, rows), numbers)
    return _part(blob, frame, (*rejected, *mistyped), header, footer, _hash_before_last_line(blob.content))


def read_csv(blob: Blob) -> Part:
    """An export as CSV: header and footer stand in lines that begin with `# `; an empty cell is null."""
    content = blob.content.removeprefix(b"\xef\xbb\xbf")
    first, _, rest = content.partition(b"\n")
    header = _header(first.removeprefix(b"# ")) if first.startswith(b"# ") else None
    table, number = (rest, 2) if header is not None else (content, 1)
    start = _last_line(table)
    last = table[start:].strip(b"\r\n")
    footer = _footer(last.removeprefix(b"# ")) if last.startswith(b"# ") else None
    records = csv_rows(blob.name, table[:start] if footer is not None else table, first_line=number)
    names = next(records, (number, []))[1]
    if wrong := _wrong_columns(names):
        raise LoadError(wrong[1], file=blob.name, line=number, column=wrong[0])
    numbers: list[int] = []
    rows: list[list[str]] = []
    rejected: list[Rejected] = []
    for line, cells in records:
        if len(cells) == len(names):
            numbers.append(line)
            rows.append(cells)
        else:
            rejected.append(Rejected(line, None, f"has {len(cells)} cells where the head has {len(names)}"))
    if rows and footer is None and not content.endswith(b"\n"):
        rows.pop()
        rejected.append(Rejected(numbers.pop(), None, "has no line end; it may be cut off"))
    columns = {column: _values(column, cells) for column, cells in _columns(names, rows).items()}
    frame, mistyped = typed(columns, numbers)
    return _part(blob, frame, (*rejected, *mistyped), header, footer, _hash_before_last_line(blob.content))


def read_parquet(blob: Blob) -> Part:
    """An export as Parquet with our metadata; without any it is a sample, whose hashes must be null."""
    try:
        metadata = pl.read_parquet_metadata(io.BytesIO(blob.content))
        raw = pl.read_parquet(io.BytesIO(blob.content))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise LoadError("is no Parquet file that can be read whole, cut off?", file=blob.name) from error
    frame, rejected = typed_parquet(conform(raw.lazy(), source=blob.name).collect())
    header, footer = (
        _json(metadata[key].encode()) if key in metadata else None for key in (HEADER_KEY, FOOTER_KEY)
    )
    hashes = frame["row_hash"]
    if header is None and footer is None and hashes.null_count() == frame.height:
        return Part(kind=SAMPLE_KIND, frame=frame, rejected=rejected)
    text = "".join(f"{row_hash}\n" for row_hash in hashes)
    return _part(blob, frame, rejected, header, footer, hashlib.sha256(text.encode()).hexdigest())


def _part(
    blob: Blob,
    frame: pl.DataFrame,
    rejected: tuple[Rejected, ...],
    header: Mapping[str, Any] | None,
    footer: Mapping[str, Any] | None,
    digest: str,
) -> Part:
    rejected = tuple(sorted(rejected, key=lambda row: row.line or 0))
    return Part(
        kind=KIND,
        frame=frame,
        rejected=rejected,
        faults=tuple(_faults(blob, frame, rejected, header, footer, digest)),
        header=header,
        footer=footer,
        complete=header.get("complete") is True if header is not None and footer is not None else False,
    )


def _faults(
    blob: Blob,
    frame: pl.DataFrame,
    rejected: tuple[Rejected, ...],
    header: Mapping[str, Any] | None,
    footer: Mapping[str, Any] | None,
    digest: str,
) -> Iterable[LoadError]:
    """Why the file is not the whole export it claims to be."""
    if blob.promised is not None and blob.promised != blob.sha256:
        yield LoadError(
            f"hashes to {blob.sha256}; the .sha256 beside it says {blob.promised}", file=blob.name
        )
    for line, column, reason in rejected:
        yield LoadError(reason, file=blob.name, line=line, column=column)
    if header is None:
        yield Unproven("has no header line; a plain export cannot prove itself", file=blob.name)
    elif header.get("recipe") != RECIPE:
        yield LoadError(f"has recipe {header.get('recipe')!r}; this version knows {RECIPE}", file=blob.name)
    if footer is None:
        yield Unproven(_NO_FOOTER, file=blob.name)
        return
    read = frame.height + len(rejected)
    if footer.get("rows") != read:
        yield LoadError(f"holds {read} rows; its footer says {footer.get('rows')}", file=blob.name)
    for column in ("cost_nano_usd", "counted_nano_usd"):
        total = exact_sum(frame[column])
        if footer.get(column) != total:
            reason = f"adds up to {total}; the footer says {footer.get(column)}"
            yield LoadError(reason, file=blob.name, column=column)
    if footer.get("sha256") != digest:
        reason = f"hashes to {digest}; its footer says {footer.get('sha256')}"
        yield LoadError(f"{reason}: a byte was changed after the export", file=blob.name)


def exact_sum(series: pl.Series) -> int:
    """The sum of an Int64 column; 128 bits wide, because an Int64 sum wraps without a word."""
    return int(series.cast(pl.Int128).sum())


def _header(line: bytes) -> Mapping[str, Any] | None:
    found = _json(line)
    return found if found is not None and "recipe" in found else None


def _footer(line: bytes) -> Mapping[str, Any] | None:
    found = _json(line)
    return found if found is not None and "sha256" in found and "rows" in found else None


def _json(line: bytes) -> Mapping[str, Any] | None:
    try:
        return json_object(line)
    except ValueError:
        return None


def _last_line(content: bytes) -> int:
    """Where the last non-empty line starts."""
    return content.rstrip(b"\r\n").rfind(b"\n") + 1


def _hash_before_last_line(content: bytes) -> str:
    return hashlib.sha256(content[: _last_line(content)]).hexdigest()


def _wrong_columns(names: Collection[str]) -> tuple[str | None, str] | None:
    """The column that is missing or foreign, and which of both; None when all are there, once."""
    if set(names) == _COLUMNS:
        return None if len(names) == len(_COLUMNS) else (None, "a column stands twice")
    for column in RECEIPT_COLUMNS:
        if column not in names:
            return column, "this column of a receipt is missing"
    return min(set(names) - _COLUMNS), "a receipt has no such column"


def _columns(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, Sequence[Any]]:
    """Rows turned into columns; every row has one value per name."""
    return dict(zip(names, zip(*rows, strict=True), strict=True)) if rows else {name: () for name in names}


def _values(column: str, cells: Sequence[str]) -> list[Any]:
    """CSV cells as the values they stand for; text that is none stays, so that the type check names it."""
    texts = [None if not cell else cell[1:] if cell[0] == "'" else cell for cell in cells]
    dtype = RECEIPT_SCHEMA[column]
    if isinstance(dtype, pl.Int64):
        return [None if text is None else _whole(text) for text in texts]
    if isinstance(dtype, pl.Boolean):
        return [None if text is None else _WORDS.get(text, text) for text in texts]
    if column == "tags":
        return [[] if text is None else _decoded(text) for text in texts]
    return [None if text is None else _decoded(text) for text in texts] if column == "units" else texts


def _whole(text: str) -> int | str:
    return int(text) if text.removeprefix("-").isdecimal() and text.isascii() and len(text) < 20 else text


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
