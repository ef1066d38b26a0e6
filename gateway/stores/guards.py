"""The guard that makes one process the only writer of a ledger: two with memory counters would each spend a whole cap.

Beside a SQLite file it is a file lock, on PostgreSQL an advisory lock of the session that writes. Either is freed when
its process dies, so a killed gateway never blocks the next.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError

from toolkit.core.errors import CaplineError

_LEDGERS = 1_128_353_868
"""The class of our advisory locks: the letters CAPL; the lock itself is named by the schema."""
_ENDED_SESSION = "2s"
_LOCK_NOT_AVAILABLE = "55P03"


class DatabaseHeld(CaplineError, RuntimeError):
    """Another gateway holds this database's lock."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"another gateway is using {name}; with memory counters only one may, or two would each spend the "
            "whole cap. Stop it, or give this one its own CAPLINE_DATABASE_URL."
        )


class DatabaseTaken(DatabaseHeld):
    """Another process had this database while ours was cut off from it: it may have written, and closed our calls."""

    def __init__(self, name: str) -> None:
        CaplineError.__init__(
            self,
            f"another process has opened {name} since this gateway lost it, so its counters may not know all that was "
            "spent. Start it again.",
        )


def hold_file(path: Path) -> int:
    """Take the exclusive lock beside a SQLite file until this process dies; its descriptor.

    It lies beside the file itself: a link to a database is the same database.

    Raises:
        DatabaseHeld: another process has it.
    """
    descriptor = os.open(f"{path.resolve()}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise DatabaseHeld(path.name) from error
    return descriptor


def hold_session(connection: Connection, name: str) -> None:
    """Take the ledger's advisory lock for as long as this PostgreSQL session lasts.

    The server takes a moment to notice that a session before this one has ended: the lock is waited for that long.

    Raises:
        DatabaseHeld: another session has it.
    """
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{_ENDED_SESSION}'")
    lock = text("SELECT pg_advisory_lock(:class, hashtext(current_schema()))")
    try:
        connection.execute(lock, {"class": _LEDGERS})
        connection.commit()
    except OperationalError as error:
        if getattr(error.orig, "sqlstate", None) != _LOCK_NOT_AVAILABLE:
            raise
        connection.rollback()
        raise DatabaseHeld(name) from error
