"""The three formats of the ledger export (contract §11): header, rows, footer. Each page is let go before the next.

A footer counts the rows, sums their money and hashes what came before it; an export that breaks off has none.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

import msgspec

from gateway.stores.ledger_pages import Stored
from gateway.stores.rows import row_to_json
from gateway.stores.tables import BOOLEAN_COLUMNS, INSTANT_COLUMNS, JSON_COLUMNS, TEXT_COLUMNS
from toolkit.core.chain import footer_hash
from toolkit.core.receipts import RECEIPT_COLUMNS

Pages = Iterable[Sequence[Stored]]

GUARDED = ("=", "+", "-", "@", "'", "\t", "\r")
"""A cell that begins with one of these would be a formula, or lose its sign of not being one."""

_PAGES_A_GROUP = 8
_COST, _COUNTED, _HASH = (
    RECEIPT_COLUMNS.index(name) for name in ("cost_nano_usd", "counted_nano_usd", "row_hash")
)
_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Footer:
    """What the end of an export says of it."""

    next_seq: str
    rows: int = 0
    cost_nano_usd: int = 0
    counted_nano_usd: int = 0
    hashed: Any = field(default_factory=hashlib.sha256)

    def see(self, page: Sequence[Stored]) -> None:
        """Count and add rows."""
        self.rows += len(page)
        self.cost_nano_usd += sum(row[_COST] or 0 for row in page)
        self.counted_nano_usd += sum(row[_COUNTED] for row in page)

    def hash(self, content: bytes) -> bytes:
        """`content` itself, now a part of what the hash covers."""
        self.hashed.update(content)
        return content

    def text(self) -> str:
        """The footer as JSON."""
        said = {
            "rows": self.rows,
            "cost_nano_usd": self.cost_nano_usd,
            "counted_nano_usd": self.counted_nano_usd,
            "next_seq": self.next_seq,
            "sha256": self.hashed.hexdigest(),
        }
        return json.dumps({**said, "footer_sha256": footer_hash(said)})


def jsonl(header: Mapping[str, Any], pages: Pages, footer: Footer) -> Iterator[bytes]:
    """One JSON object a line: the header, every row, the footer."""
    yield footer.hash(_line(header))
    for page in pages:
        footer.see(page)
        yield footer.hash(b"".join(_encode(_json(row)) + b"\n" for row in page))
    yield footer.text().encode() + b"\n"


def csv_text(header: Mapping[str, Any], pages: Pages, footer: Footer) -> Iterator[bytes]:
    """A table between two lines that begin with `# `; an empty cell is null."""
    yield footer.hash(b"# " + _line(header, end=b"\r\n"))
    for part in csv_plain(pages, footer.see):
        yield footer.hash(part)
    yield f"# {footer.text()}\r\n".encode()


def csv_plain(pages: Pages, see: Callable[[Sequence[Stored]], None] = lambda page: None) -> Iterator[bytes]:
    """The table alone, for a spreadsheet. It cannot prove that it is whole."""
    yield _table([RECEIPT_COLUMNS])
    for page in pages:
        see(page)
        yield _table([_cell(value) for value in _json(row).values()] for row in page)


def parquet(header: Mapping[str, Any], pages: Pages, footer: Footer) -> Iterator[bytes]:
    """Parquet with header and footer in its metadata; the hash is over the rows' own hashes, one a line."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(column, _arrow_type(pa, column)) for column in RECEIPT_COLUMNS])
    sink = _Sink()
    file = pa.PythonFile(sink, mode="w")
    # Without a stored Arrow schema, readers find header and footer in one place: the file's own metadata.
    with pq.ParquetWriter(file, schema, store_schema=False) as writer:
        writer.add_key_value_metadata({"capline.header": json.dumps(header)})
        for group in _grouped(pages):
            batches = []
            for page in group:
                footer.see(page)
                footer.hash("".join(f"{row[_HASH]}\n" for row in page).encode())
                # zip() stops before the sequence behind the columns.
                columns = zip(schema, zip(*page, strict=True), strict=False)
                arrays = [_arrow(pa, field, values) for field, values in columns]
                batches.append(pa.record_batch(arrays, schema=schema))
            writer.write_table(pa.Table.from_batches(batches))
            yield sink.taken()
        writer.add_key_value_metadata({"capline.footer": footer.text()})
    yield sink.taken()


def _grouped(pages: Pages) -> Iterator[Iterator[Sequence[Stored]]]:
    """Pages by row group: many small ones would make a file slow to read."""
    upcoming = iter(pages)
    for first in upcoming:
        yield chain([first], islice(upcoming, _PAGES_A_GROUP - 1))


class _Sink(io.RawIOBase):
    """A file that can only be written to, whose content is taken away as it comes."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self._parts.append(bytes(content))
        return len(self._parts[-1])

    def taken(self) -> bytes:
        """What was written since the last time."""
        parts, self._parts = self._parts, []
        return b"".join(parts)


def _json(row: Stored) -> dict[str, Any]:
    """A row as the receipt's JSON, in the contract's order: what its hash covers."""
    return row_to_json(dict(zip(RECEIPT_COLUMNS, row, strict=False)))


def _line(value: Mapping[str, Any], end: bytes = b"\n") -> bytes:
    return json.dumps(value, ensure_ascii=False).encode() + end


def _table(rows: Iterable[Iterable[str]]) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerows(rows)
    return out.getvalue().encode()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = (
        json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        if isinstance(value, (dict, list))
        else str(value)
    )
    return f"'{text}" if text.startswith(GUARDED) else text


def _arrow_type(pa: Any, column: str) -> Any:
    if column in INSTANT_COLUMNS:
        return pa.timestamp("us", tz="UTC")
    if column in BOOLEAN_COLUMNS:
        return pa.bool_()
    if column == "tags":
        return pa.list_(pa.string())
    return pa.string() if column in TEXT_COLUMNS | JSON_COLUMNS else pa.int64()


def _arrow(pa: Any, field: Any, values: Sequence[Any]) -> Any:
    """One column of a page, from the values that the table keeps."""
    if field.name in INSTANT_COLUMNS:
        return pa.array(values, pa.int64()).cast(field.type)
    if field.name in BOOLEAN_COLUMNS:
        return pa.array([None if value is None else bool(value) for value in values], field.type)
    if field.name == "tags":
        return pa.array([json.loads(value) for value in values], field.type)
    return pa.array(values, field.type)
