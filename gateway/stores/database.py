"""Opening the database: how its connections are set up, its schema, and the guard of its only writer."""

from __future__ import annotations

import os
import secrets
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, insert
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, ProgrammingError, SQLAlchemyError

from gateway.address import note_address
from gateway.stores.guards import DatabaseHeld, DatabaseTaken, hold_file, hold_session
from gateway.stores.migrations import bring_up_to_date
from gateway.stores.records import get_meta, set_meta
from gateway.stores.tables import organizations
from toolkit.core.errors import CaplineError

__all__ = ["Database", "DatabaseHeld", "is_store_failure", "open_database", "server_holder"]

DEFAULT_ORGANIZATION = "default"
_ADDRESS = "address"
_WRITER = "writer"
"""Which opening of the database was the last one."""

_POSTGRESQL = {
    "connect_timeout": "5",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
    "application_name": "capline",
}
"""A server that vanished is noticed within ten seconds; what the URL says of these goes before."""

# The driver asks around how to bind a None or a boolean, each time, unless it has an answer on record: a receipt has
# twenty of them, and they took a fifth of its insertion.
sqlite3.register_adapter(type(None), lambda nothing: nothing)
sqlite3.register_adapter(bool, int)


class DatabaseGone(CaplineError, RuntimeError):
    """The file at the database's path is not the one that was opened: it was moved, deleted or put in its place."""


@dataclass(slots=True)
class Database:
    """An opened database and its guard. `ledger_id` names this ledger for ever; caches are keyed by it."""

    engine: Engine
    name: str
    """How it is called before people: a file's name, or server and database without a password."""
    path: Path | None
    """The file, of SQLite."""
    ledger_id: str = ""
    _lock: int | None = None
    _inode: int | None = None
    _kept: Connection | None = field(default=None, repr=False)
    _writer: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def kind(self) -> str:
        """`sqlite` or `postgresql`."""
        return self.engine.dialect.name

    def writing(self) -> Connection:
        """A connection that may write: on PostgreSQL its session holds the guard.

        Raises:
            DatabaseHeld: another process has taken the guard since ours was lost, or had it meanwhile.
        """
        kept, self._kept = self._kept, None
        if kept is not None:
            return kept
        connection = self.engine.connect()
        if self.path is None:
            try:
                hold_session(connection, self.name)
                self._see_that_nobody_wrote(connection)
            except BaseException:
                connection.invalidate()  # Its session may have the guard: it must not lie in the pool.
                connection.close()
                raise
        return connection

    def _see_that_nobody_wrote(self, connection: Connection) -> None:
        if not self.ledger_id:
            return  # It is being opened.
        last = get_meta(connection, _WRITER)
        connection.commit()
        if last != self._writer:
            raise DatabaseTaken(self.name)

    def snapshot(self) -> Connection:
        """A connection that goes on reading the database as it is now."""
        connection = self.engine.connect()
        if self.path is not None:
            connection.exec_driver_sql("BEGIN")
        else:
            connection = connection.execution_options(isolation_level="REPEATABLE READ")
        get_meta(connection, "ledger_id")  # A snapshot is taken by the first statement.
        return connection

    def note_address(self, url: str) -> None:
        """Say where this process's API answers, for the command line to read; "" when nowhere any more."""
        if self.path is not None:
            note_address(self.path, url)
            return
        with self.engine.begin() as connection:
            set_meta(connection, _ADDRESS, url)

    def look(self) -> None:
        """See that the file is still the one that was opened: SQLite would go on writing to one that nobody finds.

        Raises:
            DatabaseGone: it is not.
        """
        if self.path is None:
            return
        try:
            inode = self.path.stat().st_ino
        except FileNotFoundError:
            inode = None
        if self._inode is None:
            self._inode = inode
        elif inode != self._inode:
            raise DatabaseGone(f"{self.name} is not the file that was opened; put it back, or start again")

    def close(self) -> None:
        """Close every connection, then give the guard back."""
        if self._kept is not None:
            self._kept.close()
        self.engine.dispose()
        if self._lock is not None:
            os.close(self._lock)


def open_database(url: str) -> Database:
    """The database at a SQLAlchemy URL, held by this process alone, its schema made or brought up to date.

    Raises:
        DatabaseHeld: another process has it.
        CaplineError: it cannot be used: another kind, another release's, or not there.
    """
    parsed = make_url(url)
    kind = parsed.get_backend_name()
    if kind == "sqlite":
        database = _open_file(parsed)
    elif kind == "postgresql":
        database = _open_server(parsed)
    else:
        raise CaplineError(f"{kind} is not supported; use sqlite:///FILE or postgresql+psycopg://…")
    try:
        connection = database.writing()
        try:
            _begin(connection)
            bring_up_to_date(connection)
            ledger_id = _identify(connection)
            set_meta(connection, _WRITER, database._writer)
            connection.commit()
        except BaseException:
            connection.close()
            raise
        database.ledger_id = ledger_id
        database._kept = connection
    except DBAPIError as error:
        database.close()
        raise _cannot_open(database, error) from error
    except BaseException:
        database.close()
        raise
    return database


def server_holder(url: str) -> tuple[str, str | None] | None:
    """The name of a PostgreSQL ledger that another process has, and where it said that it answers; None when free."""
    database = _open_server(make_url(url))
    try:
        with database.engine.connect() as connection:
            try:
                hold_session(connection, database.name)
            except DatabaseHeld:
                return database.name, get_meta(connection, _ADDRESS) or None
            return None
    except SQLAlchemyError as error:
        raise _cannot_open(database, error) from error
    finally:
        database.engine.dispose()


def is_store_failure(error: BaseException) -> bool:
    """Whether the store is at fault, away or full or locked, so that the same write may succeed later.

    Otherwise what was to be written is, and would be refused again.
    """
    if isinstance(error, IntegrityError | DataError | ProgrammingError):
        return False
    return isinstance(error, DBAPIError | DatabaseHeld | DatabaseGone)


def failure_of(error: BaseException) -> str:
    """How the store fails in one word: `full`, `locked`, `corrupt`, `readonly`, `taken`, `gone` or `away`."""
    if isinstance(error, DatabaseHeld):
        return "taken"
    if isinstance(error, DatabaseGone):
        return "gone"
    code = getattr(getattr(error, "orig", None), "sqlite_errorname", "") or ""
    return next((word for prefix, word in _FAILURES.items() if code.startswith(prefix)), "away")


_FAILURES = {
    "SQLITE_FULL": "full",
    "SQLITE_BUSY": "locked",
    "SQLITE_LOCKED": "locked",
    "SQLITE_CORRUPT": "corrupt",
    "SQLITE_NOTADB": "corrupt",
    "SQLITE_READONLY": "readonly",
}


def _open_file(url: URL) -> Database:
    if not url.database:
        raise CaplineError("the ledger needs a file: sqlite:///var/capline.db")
    path = Path(url.database)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = hold_file(path)
    engine = create_engine(url, hide_parameters=True)
    event.listen(engine, "connect", _set_pragmas)
    return Database(engine, path.name, path, _lock=lock)


def _open_server(url: URL) -> Database:
    url = url.set(drivername="postgresql+psycopg")
    name = f"{url.database} on {url.host or 'the local PostgreSQL'}"
    arguments = {setting: value for setting, value in _POSTGRESQL.items() if setting not in url.query}
    try:
        engine = create_engine(url, connect_args=arguments, pool_pre_ping=True, hide_parameters=True)
    except ImportError as error:
        raise CaplineError("PostgreSQL needs the package psycopg: pip install 'capline[postgres]'") from error
    event.listen(engine, "connect", _set_session)
    return Database(engine, name, None)


def _begin(connection: Connection) -> None:
    """SQLite's driver begins no transaction for a change of the schema; half a change must not stay."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def _identify(connection: Connection) -> str:
    ledger_id = get_meta(connection, "ledger_id")
    if ledger_id is None:
        ledger_id = secrets.token_hex(8)
        set_meta(connection, "ledger_id", ledger_id)
        connection.execute(
            insert(organizations), [{"id": DEFAULT_ORGANIZATION, "secret": secrets.token_hex(32)}]
        )
    return ledger_id


def _set_pragmas(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA busy_timeout=1000")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _set_session(connection: Any, _record: Any) -> None:
    """What a receipt's commit promises must not depend on the server's settings."""
    with connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit = on")
        cursor.execute("SET lock_timeout = '5s'")
        # A session whose client vanished must not keep the guard for the two hours of the system's defaults.
        cursor.execute("SET tcp_keepalives_idle = 5")
        cursor.execute("SET tcp_keepalives_interval = 2")
        cursor.execute("SET tcp_keepalives_count = 3")
    connection.commit()


def _cannot_open(database: Database, error: SQLAlchemyError) -> CaplineError:
    said = str(error.orig if isinstance(error, DBAPIError) else error).strip().partition("\n")[0]
    return CaplineError(
        f"the database {database.name} cannot be opened: {said}; see that it is there and may be written"
    )
