"""The three formats of the ledger export (contract §11): header, rows, footer. Each page is let go before the next.

A footer counts the rows, sums their money and hashes what came before it; an export that breaks off has none.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gateway.stores.tables import BOOLEAN_COLUMNS, INSTANT_COLUMNS, JSON_COLUMNS, TEXT_COLUMNS
from toolkit.core.receipts import RECEIPT_COLUMNS
from toolkit.core.windows import parse_instant

Rows = Iterable[list[dict[str, Any]]]

GUARDED = ("=", "+", "-", "@", "'", "\t", "\r")
"""A cell that begins with one of these would be a formula, or lose its sign of not being one."""

_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Footer:
    """What the end of an export says of it."""

    next_seq: str
    rows: int = 0
    cost_nano_usd: int = 0
    counted_nano_usd: int = 0
    hashed: Any = field(default_factory=hashlib.sha256)

    def see(self, page: Iterable[Mapping[str, Any]]) -> None:
        """Count and add rows."""
        for row in page:
            self.rows += 1
            self.cost_nano_usd += row["cost_nano_usd"] or 0
            self.counted_nano_usd += row["counted_nano_usd"]

    def hash(self, content: bytes) -> bytes:
        """`content` itself, now a part of what the hash covers."""
        self.hashed.update(content)
        return content

    def text(self) -> str:
        """The footer as JSON."""
        return json.dumps(
            {
                "rows": self.rows,
                "cost_nano_usd": self.cost_nano_usd,
                "counted_nano_usd": self.counted_nano_usd,
                "next_seq": self.next_seq,
                "sha256": self.hashed.hexdigest(),
            }
        )


def jsonl(header: Mapping[str, Any], pages: Rows, footer: Footer) -> Iterator[bytes]:
    """One JSON object a line: the header, every row, the footer."""
    yield footer.hash(_line(header))
    for page in pages:
        footer.see(page)
        yield footer.hash(b"".join(_encode(row) + b"\n" for row in page))
    yield footer.text().encode() + b"\n"


def csv_text(header: Mapping[str, Any], pages: Rows, footer: Footer) -> Iterator[bytes]:
    """A table between two lines that begin with `# `; an empty cell is null."""
    yield footer.hash(b"# " + _line(header, end=b"\r\n"))
    for part in csv_plain(pages, footer.see):
        yield footer.hash(part)
    yield f"# {footer.text()}\r\n".encode()


def csv_plain(
    pages: Rows, see: Callable[[list[dict[str, Any]]], None] = lambda page: None
) -> Iterator[bytes]:
    """The table alone, for a spreadsheet. It cannot prove that it is whole."""
    yield _table([RECEIPT_COLUMNS])
    for page in pages:
        see(page)
        yield _table([_cell(row[column]) for column in RECEIPT_COLUMNS] for row in page)


def parquet(header: Mapping[str, Any], pages: Rows, footer: Footer) -> Iterator[bytes]:
    """Parquet with header and footer in its metadata; the hash is over the rows' own hashes, one a line."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(column, _arrow_type(pa, column)) for column in RECEIPT_COLUMNS])
    sink = _Sink()
    file = pa.PythonFile(sink, mode="w")
    # Without a stored Arrow schema, readers find header and footer in one place: the file's own metadata.
    with pq.ParquetWriter(file, schema, store_schema=False) as writer:
        writer.add_key_value_metadata({"capline.header": json.dumps(header)})
        for page in pages:
            footer.see(page)
            footer.hash("".join(f"{row['row_hash']}\n" for row in page).encode())
            columns = [[_arrow_value(column, row[column]) for row in page] for column in RECEIPT_COLUMNS]
            arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
            writer.write_batch(pa.record_batch(arrays, schema=schema))
            yield sink.taken()
        writer.add_key_value_metadata({"capline.footer": footer.text()})
    yield sink.taken()


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


def _arrow_value(column: str, value: Any) -> Any:
    if value is None:
        return None
    if column in INSTANT_COLUMNS:
        return parse_instant(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) if column == "units" else value
