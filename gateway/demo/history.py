"""A month of demo history in a new ledger: keys, caps with their audit trail, and chained receipts.

All of it is one transaction, marked in the database, so it is there whole or not at all, and only once. The gateway
must not be running: this takes the lock that a gateway would hold.

    python -m gateway.demo.history --database-url sqlite:///var/demo/capline.db --key-file var/demo/key
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import Connection, func, select

import toolkit.core
from gateway.control import public_cap
from gateway.control_keys import new_secret, public_key
from gateway.demo import month, traces
from gateway.policy import digest
from gateway.stores import records
from gateway.stores.appending import Appender
from gateway.stores.database import DEFAULT_ORGANIZATION, open_database
from gateway.stores.records import AuditEntry, KeyRecord
from gateway.stores.rows import from_micros
from gateway.stores.tables import INSTANT_COLUMNS, caps, keys, receipts
from toolkit.core.caps import Cap
from toolkit.core.errors import CaplineError
from toolkit.core.receipts import RECEIPT_COLUMNS, Receipt

_MARK = "demo_history"
_BATCH = 4_000


def load(database_url: str, key_file: Path, sample: Path | None = None) -> int:
    """Load the month unless the database has it; the receipts loaded. The reader's secret goes to `key_file`.

    Raises CaplineError for a ledger that holds something else.
    """
    database = open_database(database_url)
    try:
        with database.engine.begin() as connection, _without_garbage_collection():
            loaded = 0
            if records.get_meta(connection, _MARK) is None:
                loaded = _load_month(connection, sample_file() if sample is None else sample)
            _hand_out_key(connection, key_file)
        return loaded
    finally:
        database.close()


def sample_file() -> Path:
    """The bundled month: inside the package of a wheel, in `data/` of a checkout."""
    package = Path(toolkit.core.__file__).parents[1]
    for folder in (package / "_data", package.parent / "data"):
        if (found := folder / "sample" / "receipts.parquet").is_file():
            return found
    raise CaplineError("this installation came without data/sample/receipts.parquet; reinstall it")


def _load_month(connection: Connection, sample: Path) -> int:
    for table in (receipts, caps, keys):
        if connection.execute(select(func.count()).select_from(table)).scalar_one():
            raise CaplineError(
                f"this ledger has {table.name} of its own; the demo history is loaded into a new one only"
            )
    for key in (*month.KEYS, month.READERS_KEY):
        _add_key(connection, key)
    _add_caps(connection)
    loaded = _add_receipts(connection, sample)
    records.set_meta(connection, _MARK, sample.name)
    return loaded


def _add_key(connection: Connection, key: month.DemoKey) -> None:
    """A key of which nobody has the secret; an owner may rotate it, the reader's is handed out."""
    secret = new_secret()
    record = KeyRecord(
        **key._asdict(),
        organization=DEFAULT_ORGANIZATION,
        role=None,
        hint=secret[-4:],
        created_at=month.CREATED_AT,
    )
    records.insert_key(connection, record, digest(secret))
    entry = AuditEntry(
        at=month.CREATED_AT,
        organization=DEFAULT_ORGANIZATION,
        actor="admin",
        action="key.create",
        object=records.key_object(key.id),
        after=public_key(record),
    )
    records.append_audit(connection, entry)


def _add_caps(connection: Connection) -> None:
    """Both caps as they stand now, and the changes that led there."""
    for cap in (month.WHOLE_ORGANIZATION, month.EACH_CUSTOMER_NOW):
        given = records.insert_cap(connection, DEFAULT_ORGANIZATION, cap)
        assert given == cap.id, "receipts name the caps of a new ledger by these ids"
    watching, armed, now = month.EACH_CUSTOMER, month.EACH_CUSTOMER_ARMED, month.EACH_CUSTOMER_NOW
    _audit_cap(connection, "cap.create", None, month.WHOLE_ORGANIZATION)
    _audit_cap(connection, "cap.create", None, watching)
    _audit_cap(connection, "cap.arm", watching, armed, month.ARMED_BECAUSE)
    _audit_cap(connection, "cap.disarm", armed, now, month.DISARMED_BECAUSE)


def _audit_cap(
    connection: Connection, action: str, before: Cap | None, after: Cap, reason: str | None = None
) -> None:
    assert after.updated_at is not None
    entry = AuditEntry(
        at=after.updated_at,
        organization=DEFAULT_ORGANIZATION,
        actor="admin",
        action=action,
        object=records.cap_object(after.id),
        before=None if before is None else public_cap(before),
        after=public_cap(after),
        reason=reason,
    )
    records.append_audit(connection, entry)


def _add_receipts(connection: Connection, sample: Path) -> int:
    file = pq.ParquetFile(sample)
    seen = _columns(file.read(columns=list(traces.COLUMNS)))
    why = traces.cap_traces(seen, month.CAPS_BY_INSTANT)
    appender, loaded = Appender(), 0
    for batch in file.iter_batches(_BATCH):
        columns = _columns(batch)
        # Units hold JSON text in a file and an object in a receipt; the sample's calls used none.
        assert not any(columns["units"]), "the sample has units, which this loader does not read"
        columns["tags"] = [tuple(tags) for tags in columns["tags"]]
        rows = zip(*(columns[name] for name in RECEIPT_COLUMNS), strict=True)
        made = [Receipt.of(dict(zip(RECEIPT_COLUMNS, row, strict=True))) for row in rows]
        appender.append(connection, [(receipt, why.get(receipt.receipt_id)) for receipt in made])
        loaded += batch.num_rows
    return loaded


def _columns(table: pa.Table | pa.RecordBatch) -> dict[str, list[Any]]:
    return {name: _values(name, table[name]) for name in table.schema.names}


def _values(name: str, column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """A column's values; instants by their microseconds, which is quicker and keeps one zone object."""
    if name in INSTANT_COLUMNS:
        return [from_micros(micros) for micros in column.cast(pa.int64()).to_pylist()]
    values: list[Any] = column.to_pylist()
    return values


def _hand_out_key(connection: Connection, key_file: Path) -> None:
    """See that `key_file` holds the secret of the reader's key; a lost one is replaced by a new one."""
    known = records.load_keys(connection)
    with contextlib.suppress(FileNotFoundError):
        principal = known.get(digest(key_file.read_text("utf-8").strip()))
        if principal is not None and principal.key_id == month.READERS_KEY.id:
            return
    key = records.find_key(connection, DEFAULT_ORGANIZATION, month.READERS_KEY.id)
    if key is None or key.revoked_at is not None:
        return  # Its owner has ended it, and a start is no reason to bring it back.
    secret = new_secret()
    records.update_key(connection, key, digest(secret))
    key_file.parent.mkdir(parents=True, exist_ok=True)
    fresh = key_file.with_name(f".{key_file.name}")
    fresh.unlink(missing_ok=True)
    with os.fdopen(
        os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8"
    ) as file:
        file.write(secret + "\n")
    fresh.replace(key_file)


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Millions of values are made and none in a circle; looking for circles would take a third of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def main(arguments: Sequence[str] | None = None) -> int:
    """Load the month from the command line."""
    parser = argparse.ArgumentParser(prog="python -m gateway.demo.history", description=main.__doc__)
    parser.add_argument("--database-url", required=True)
    parser.add_argument("--key-file", type=Path, required=True)
    chosen = parser.parse_args(arguments)
    try:
        load(chosen.database_url, chosen.key_file)
    except CaplineError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
