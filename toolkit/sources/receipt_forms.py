"""The three forms of a ledger export (contract §11), read batch by batch in steady memory.

Each form knows its header from the start, and its footer and the hash of what stood before it after the last batch.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import polars as pl

from toolkit.core.errors import LoadError
from toolkit.core.receipts import RECEIPT_COLUMNS
from toolkit.frames import RECEIPT_SCHEMA, conform
from toolkit.sources.common import Rejected, json_object, typed, typed_parquet
from toolkit.sources.files import Blob, bare

HEADER_KEY = "capline.header"
FOOTER_KEY = "capline.footer"
GUARDED = ("=", "+", "-", "@", "'", "\t", "\r")
"""A CSV cell that begins with one of these has a `'` before it, so that no spreadsheet runs it."""
BATCH_ROWS = 20_000

Batch = tuple[pl.DataFrame, Sequence[Rejected]]
"""Some rows in file order as a frame of PART_SCHEMA, and those that had to be left out."""

_T = TypeVar("_T")
_COLUMNS = frozenset(RECEIPT_COLUMNS)
_in_order = itemgetter(*RECEIPT_COLUMNS)
_WORDS = {"true": True, "false": False}


class Form(Protocol):
    """What every form tells of its file."""

    header: Mapping[str, Any] | None
    footer: Mapping[str, Any] | None

    def batches(self) -> Iterator[Batch]:
        """All rows, in file order; at least one batch."""

    @property
    def digest(self) -> str:
        """The hash that the footer must state."""


class _Text:
    """Lines between a header and a footer, each of which may be missing."""

    mark: ClassVar[bytes]
    """What header and footer lines begin with."""

    def __init__(self, blob: Blob) -> None:
        self.blob = blob
        number, first = next(blob.lines(), (1, b""))
        self.header = _header(self._said(first))
        self.footer: Mapping[str, Any] | None = None
        self._taken = number if self.header is not None else 0
        """The number of the last line that was given out."""
        self._is_ended = False
        self._before = hashlib.sha256()

    @property
    def digest(self) -> str:
        """The hash of all bytes before the last line that is not empty."""
        return self._before.hexdigest()

    def _rows(self) -> Iterator[tuple[int, bytes]]:
        """What stands between header and footer, empty lines too."""
        hashed = hashlib.sha256()
        filled = 0
        held: list[tuple[int, bytes]] = []
        for number, line in self.blob.raw_lines():
            self._is_ended = line.endswith(b"\n")
            if bare(number, line):
                self._before = hashed.copy()
                filled += 1
                yield from self._given(held)
                held = []
            hashed.update(line)
            if filled != 1 or self.header is None:
                held.append((number, line))
        if held and filled > 1:
            self.footer = _footer(self._said(bare(*held[0])))
        if self.footer is None:
            yield from self._given(held)

    def _given(self, held: Sequence[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
        for number, line in held:
            self._taken = number
            yield number, line

    def _said(self, line: bytes) -> bytes:
        return line.removeprefix(self.mark) if line.startswith(self.mark) else b""


class JsonLines(_Text):
    """An export as JSON lines: header, one row a line, footer."""

    mark = b""

    def batches(self) -> Iterator[Batch]:
        """See `Form`."""
        lines = ((number, bare(number, line)) for number, line in self._rows())
        rows = ((number, line) for number, line in lines if line)
        yield _read_json(list(islice(rows, BATCH_ROWS)))
        while group := list(islice(rows, BATCH_ROWS)):
            yield _read_json(group)


def _read_json(lines: Sequence[tuple[int, bytes]]) -> Batch:
    numbers: list[int] = []
    rows: list[tuple[Any, ...]] = []
    rejected: list[Rejected] = []
    for number, line in lines:
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
    return frame, (*rejected, *mistyped)


class Csv(_Text):
    """An export as CSV: header and footer stand in lines that begin with `# `; an empty cell is null."""

    mark = b"# "
    _cut_off: int | None = None
    """The line of a last row that nothing ends."""

    def batches(self) -> Iterator[Batch]:
        """See `Form`."""
        records = self._records()
        line, names = next(records, (self._taken + 1, []))
        if wrong := _wrong_columns(names):
            raise LoadError(wrong[1], file=self.blob.name, line=line, column=wrong[0])
        yield self._read(names, list(islice(records, BATCH_ROWS)))
        while group := list(islice(records, BATCH_ROWS)):
            yield self._read(names, group)

    def _read(self, names: Sequence[str], records: Sequence[tuple[int, list[str]]]) -> Batch:
        numbers: list[int] = []
        rows: list[list[str]] = []
        rejected: list[Rejected] = []
        for line, cells in records:
            if line == self._cut_off:
                rejected.append(Rejected(line, None, "has no line end; it may be cut off"))
            elif len(cells) == len(names):
                numbers.append(line)
                rows.append(cells)
            else:
                rejected.append(
                    Rejected(line, None, f"has {len(cells)} cells where the head has {len(names)}")
                )
        columns = {column: _values(column, cells) for column, cells in _columns(names, rows).items()}
        frame, mistyped = typed(columns, numbers)
        return frame, (*rejected, *mistyped)

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """Records with the line each starts on. LoadError when they are broken."""
        reader = csv.reader(self._texts(), strict=True)
        held: tuple[int, list[str]] | None = None
        starts = self._taken + 1
        try:
            for cells in reader:
                if cells:
                    if held is not None:
                        yield held
                    held = (starts, cells)
                starts = self._taken + 1
        except csv.Error as error:
            raise LoadError(f"not CSV: {error}", file=self.blob.name, line=starts) from error
        if held is not None:
            if self.footer is None and not self._is_ended:
                self._cut_off = held[0]
            yield held

    def _texts(self) -> Iterator[str]:
        for number, line in self._rows():
            text = bare(number, line) + line[len(line.rstrip(b"\r\n")) :]
            try:
                yield text.decode("utf-8")
            except UnicodeDecodeError as error:
                reason = f"not UTF-8 at byte {error.start + 1} of the line"
                raise LoadError(reason, file=self.blob.name, line=number) from error


class Parquet:
    """An export as Parquet, header and footer in its metadata; the hash is over the rows' own hashes, one a line."""

    def __init__(self, blob: Blob) -> None:
        if not blob.is_as_promised:
            raise LoadError(blob.broken_promise, file=blob.name)
        self.blob = blob
        self._hashed = hashlib.sha256()
        is_plain = isinstance(blob.source, Path) and not blob.is_packed
        source: Any = blob.source if is_plain else io.BytesIO(blob.content())
        metadata = self._sound(lambda: pl.read_parquet_metadata(source))
        self.header, self.footer = (
            _json(metadata[key].encode()) if key in metadata else None for key in (HEADER_KEY, FOOTER_KEY)
        )
        raw = pl.scan_parquet(source)
        self._sound(raw.collect_schema)
        self._rows = conform(raw, source=blob.name)
        self._height = int(self._sound(self._rows.select(pl.len()).collect).item())

    @property
    def is_sample(self) -> bool:
        """Whether it proves nothing and does not pretend to: no header, no footer, no hash."""
        chained = self._rows.select(pl.col("row_hash").is_not_null().any())
        return self.header is None and self.footer is None and not self._sound(chained.collect).item()

    @property
    def digest(self) -> str:
        """See `Form`."""
        return self._hashed.hexdigest()

    def batches(self) -> Iterator[Batch]:
        """See `Form`."""
        for first in range(0, max(self._height, 1), BATCH_ROWS):
            raw = self._sound(self._rows.slice(first, BATCH_ROWS).collect)
            frame, rejected = typed_parquet(raw, first_line=first + 1)
            text = "".join(f"{row_hash}\n" for row_hash in frame["row_hash"])
            self._hashed.update(text.encode())
            yield frame, rejected

    def _sound(self, read: Callable[[], _T]) -> _T:
        try:
            return read()
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
            reason = "is no Parquet file that can be read whole, cut off?"
            raise LoadError(reason, file=self.blob.name) from error


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
