"""Opening the database: pragmas, schema, and the lock that makes one process its only writer."""

from __future__ import annotations

import fcntl
import os
import secrets
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event, insert, select
from sqlalchemy.engine import make_url

from gateway.stores.tables import SCHEMA_VERSION, meta, metadata, organizations, receipts
from toolkit.core.errors import CaplineError

DEFAULT_ORGANIZATION = "default"

# The driver asks around how to bind a None or a boolean, each time, unless it has an answer on record: a receipt has
# twenty of them, and they took a fifth of its insertion.
sqlite3.register_adapter(type(None), lambda nothing: nothing)
sqlite3.register_adapter(bool, int)


class DatabaseHeld(CaplineError, RuntimeError):
    """Another gateway holds this database's lock."""


@dataclass(frozen=True, slots=True)
class Database:
    """An opened database and its lock. `ledger_id` names this ledger for ever; caches are keyed by it."""

    engine: Engine
    ledger_id: str
    path: Path
    lock: int

    def close(self) -> None:
        """Close every connection, then give the lock back."""
        self.engine.dispose()
        os.close(self.lock)


def open_database(url: str) -> Database:
    """The database at a SQLAlchemy URL, held by this process alone, its schema created when new.

    Raises DatabaseHeld when another process has it, CaplineError for one that another release wrote.
    """
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite":
        raise CaplineError(
            f"{parsed.get_backend_name()} is not supported by this release; use sqlite:///FILE"
        )
    if not parsed.database:
        raise CaplineError("the ledger needs a file: sqlite:///var/capline.db")
    path = Path(parsed.database)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = _hold_lock(path)
    try:
        engine = create_engine(url, hide_parameters=True)
        event.listen(engine, "connect", _set_pragmas)
        metadata.create_all(engine)
        for index in receipts.indexes:  # one that an older release did not make
            index.create(engine, checkfirst=True)
        return Database(engine, _identify(engine), path, lock)
    except BaseException:
        os.close(lock)
        raise


def _hold_lock(path: Path) -> int:
    """Take the exclusive lock beside a SQLite file until this process dies; raises DatabaseHeld when taken.

    The kernel frees it at death, so a killed gateway never blocks the next one. It lies beside the file itself: a
    link to a database is the same database.
    """
    descriptor = os.open(f"{path.resolve()}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise DatabaseHeld(
            f"another gateway is using {path.name}; with memory counters only one may, or two would each spend the "
            "whole cap. Stop it, or give this one its own CAPLINE_DATABASE_URL."
        ) from error
    return descriptor


def _identify(engine: Engine) -> str:
    with engine.begin() as connection:
        known: dict[str, str] = {row.name: row.value for row in connection.execute(select(meta))}
        schema = int(known.get("schema", SCHEMA_VERSION))
        if schema > SCHEMA_VERSION:
            raise CaplineError("a newer release of Capline wrote this database; upgrade before opening it")
        if schema < SCHEMA_VERSION:
            raise CaplineError(
                "a preview of Capline wrote this database; export it there, and start a new one"
            )
        if "ledger_id" not in known:
            known["ledger_id"] = secrets.token_hex(8)
            connection.execute(
                insert(meta),
                [
                    {"name": "ledger_id", "value": known["ledger_id"]},
                    {"name": "schema", "value": str(SCHEMA_VERSION)},
                ],
            )
            connection.execute(
                insert(organizations), [{"id": DEFAULT_ORGANIZATION, "secret": secrets.token_hex(32)}]
            )
        return known["ledger_id"]


def _set_pragmas(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA busy_timeout=1000")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()
