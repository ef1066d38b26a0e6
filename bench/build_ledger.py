"""A ledger of many receipts, made of the bundled month through the ledger's own appender: chains, heads and rollups.

    python -m bench.build_ledger --rows 10000000 sqlite:///big.db

The receipts lie in the twelve months that end now, the same number in each; every copy of the bundled month has its
own customers. SQLite does not flush to the disk while this builds, so a ledger that was cut off is to be deleted.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import pyarrow.parquet as pq
from sqlalchemy import Connection, text

from bench.replay import SAMPLE
from gateway.stores.appending import Appender
from gateway.stores.database import Database, open_database
from gateway.stores.rows import from_micros, to_micros
from toolkit.core.errors import CaplineError
from toolkit.core.receipts import RECEIPT_COLUMNS, Receipt

MONTHS = 12
_BATCH = 10_000


def build(url: str, rows: int, now: datetime) -> int:
    """Fill a new ledger; its size in bytes. Raises CaplineError when it holds receipts already."""
    database = open_database(url)
    try:
        with database.writing() as connection:
            if connection.execute(text("SELECT 1 FROM receipts LIMIT 1")).first():
                raise CaplineError(f"{database.name} holds receipts already; give a new one")
            connection.rollback()
            _fill(connection, rows, now)
            return _size(connection, database)
    finally:
        database.close()


def _fill(connection: Connection, rows: int, now: datetime) -> None:
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("PRAGMA synchronous=OFF")
        connection.exec_driver_sql("PRAGMA cache_size=-2000000")
        connection.commit()
    appender = Appender()
    gc.disable()
    try:
        made = _receipts(rows, now)
        while batch := [(receipt, None) for receipt in islice(made, _BATCH)]:
            appender.append(connection, batch)
            connection.commit()
    finally:
        gc.enable()


def _receipts(rows: int, now: datetime) -> Iterator[Receipt]:
    """So many receipts, month by month, in the order of time; the copies of one month are interleaved."""
    sample = [_plain(row) for row in pq.read_table(SAMPLE).to_pylist()]
    span = to_micros(datetime(2026, 12, 1, tzinfo=UTC)) - to_micros(datetime(2026, 11, 1, tzinfo=UTC))
    for index, (start, end) in enumerate(_months(now)):
        wanted = rows * (index + 1) // MONTHS - rows * index // MONTHS
        copies = -(-wanted // len(sample))
        every = (
            _moved(row, index, copy, copies, start, (end - start) / span)
            for row in sample[: -(-wanted // copies)]
            for copy in range(copies)
        )
        yield from islice(every, wanted)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    first = to_micros(datetime(2026, 11, 1, tzinfo=UTC))
    row["after_us"] = to_micros(row.pop("admitted_at")) - first
    row["took_us"] = to_micros(row.pop("settled_at")) - first - row["after_us"]
    row["tags"] = tuple(row["tags"])
    if row["units"] is not None or row["corrects"] is not None:
        raise RuntimeError("the sample has units or corrections, which this builder does not copy")
    return row


def _moved(row: dict[str, Any], index: int, copy: int, copies: int, start: int, squeezed: float) -> Receipt:
    """A receipt of the sample as one of its copies in another month, whose length squeezes its instants."""
    made = {name: row[name] for name in RECEIPT_COLUMNS if name in row}
    admitted = start + int(row["after_us"] * squeezed) + copy
    made["admitted_at"], made["settled_at"] = from_micros(admitted), from_micros(admitted + row["took_us"])
    mark = f"{index:02d}{copy:04d}"
    for name in ("receipt_id", "operation_id"):
        made[name] = f"{row[name][:3]}{admitted // 1000:012x}{row[name][-14:]}{mark}"
    if row["customer"] is not None:
        made["customer"] = f"{row['customer']}-{copy}"
    for name in ("admit_seq", "settle_seq"):
        if row[name] is not None:
            made[name] = (index * 200_000 + row[name]) * copies + copy
    return Receipt.of(made)


def _months(now: datetime) -> list[tuple[int, int]]:
    """The first and the last microsecond of each month, oldest first; the last one ends now."""
    count = now.year * 12 + now.month - 1
    starts = [
        to_micros(datetime(month // 12, month % 12 + 1, 1, tzinfo=UTC))
        for month in range(count - MONTHS + 1, count + 1)
    ]
    return list(zip(starts, [*starts[1:], to_micros(now)], strict=True))


def _size(connection: Connection, database: Database) -> int:
    if database.path is not None:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        return database.path.stat().st_size
    return int(connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one())


def main() -> None:
    """Build from the command line, and say what came of it."""
    parser = argparse.ArgumentParser(prog="python -m bench.build_ledger", description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("url", help="sqlite:///FILE or postgresql+psycopg://…")
    chosen = parser.parse_args()
    started = time.perf_counter()
    size = build(chosen.url, chosen.rows, datetime.now(UTC))
    took = time.perf_counter() - started
    print(f"{chosen.rows:,} receipts in {MONTHS} months, {size / 1e9:.2f} GB, built in {took:.0f} s")


if __name__ == "__main__":
    main()
