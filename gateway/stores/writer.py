"""The one writer of the ledger: a thread that commits what has gathered since its last commit, in order.

An intent is committed before its provider is called and a receipt before the end of its answer leaves; both wait for a
group commit here, so the disk is asked once for many calls. A job (a change of the control plane) runs in its own
transaction at its place in the order.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, Table, select
from sqlalchemy.exc import IntegrityError, OperationalError

from gateway.stores.linking import linked
from gateway.stores.open_calls import Slots
from gateway.stores.tables import chain_heads, intents, receipts
from toolkit.core.chain import GENESIS
from toolkit.core.errors import StoreUnavailable
from toolkit.core.receipts import RECEIPT_COLUMNS, Receipt

_T = TypeVar("_T")
_log = logging.getLogger("capline.ledger")

MOST_WAITING = 20_000
"""Entries that may wait for the disk; beyond it a call is told that the ledger cannot be trusted now."""
LARGEST_GROUP = 1_000
BUSY_CALLS = 6
"""With that many calls open, a commit waits GATHER_S for more of them: one flush of the disk then serves many."""
GATHER_S = 0.0005
RETRY_S = 1.0
"""How often receipts that the disk did not take are offered to it again while nothing else happens."""


@dataclass(slots=True)
class Intent:
    """A call that was admitted: the JSON of its receipt as far as it is known, and its decision trace."""

    receipt_id: str
    node: str
    admitted_at: int
    draft: str
    trace: str | None
    committed: asyncio.Future[None]


@dataclass(slots=True)
class Entry:
    """A finished receipt."""

    receipt: Receipt
    trace: str | None
    committed: asyncio.Future[None]


@dataclass(slots=True)
class _Job:
    """Work with the database in a transaction of its own; its result goes to `done`."""

    work: Callable[[Connection], Any]
    done: asyncio.Future[Any]


class LedgerWriter:
    """Owns the write connection. Create it inside a running loop; `close()` commits what waits and stops."""

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
        self._engine = engine
        self._loop = loop
        self._waiting: queue.SimpleQueue[Intent | Entry | _Job | None] = queue.SimpleQueue()
        self._appender = Appender()
        self._slots = Slots()
        self._open_calls = 0
        self._owed: list[Entry] = []
        """Receipts of calls that were made and that the disk did not take: the counters have, so they wait for it.
        There are never more of them than calls that ran when it failed, for none can begin meanwhile."""
        self.failed: str | None = None
        """Why the last commit failed, None when it held."""
        self._thread = threading.Thread(target=self._run, name="ledger-writer", daemon=True)
        self._thread.start()

    def begin(
        self, receipt_id: str, node: str, admitted_at: int, draft: str, trace: str | None
    ) -> asyncio.Future[None]:
        """Queue an intent; the future is done when it is on disk, or fails with StoreUnavailable."""
        intent = Intent(receipt_id, node, admitted_at, draft, trace, self._future())
        self._open_calls += 1
        self._waiting.put(intent)
        return intent.committed

    def record(self, receipt: Receipt, trace: str | None, *, closes_intent: bool) -> asyncio.Future[None]:
        """Queue a receipt; the future is done when it is on disk, or fails with StoreUnavailable.

        `closes_intent` is False for what was refused before any intent.
        """
        entry = Entry(receipt, trace, self._future())
        self._open_calls -= closes_intent
        self._waiting.put(entry)
        return entry.committed

    async def run(self, work: Callable[[Connection], _T]) -> _T:
        """Run `work` in a transaction of its own, after all that was queued before it. Its errors are raised here."""
        done: asyncio.Future[_T] = self._loop.create_future()
        self._waiting.put(_Job(work, done))
        return await done

    async def read(self, work: Callable[[Connection], _T]) -> _T:
        """Run a query beside the writer, in a thread and on a connection of its own."""

        def run() -> _T:
            with self._engine.connect() as connection:
                return work(connection)

        return await asyncio.to_thread(run)

    def append_in_job(
        self,
        connection: Connection,
        done: Sequence[Receipt],
        *,
        traces: Sequence[str | None] | None = None,
    ) -> None:
        """Chain and insert receipts inside a job: a start's abandoned calls, a loaded demo month."""
        why = traces if traces is not None else [None] * len(done)
        self._appender.append(connection, list(zip(done, why, strict=True)))

    async def close(self) -> None:
        """Commit what waits, then stop the thread."""
        self._waiting.put(None)
        await asyncio.to_thread(self._thread.join)

    @property
    def backlog(self) -> int:
        """Entries that wait for the disk."""
        return self._waiting.qsize() + len(self._owed)

    def _future(self) -> asyncio.Future[None]:
        if self._waiting.qsize() > MOST_WAITING:
            raise StoreUnavailable(f"{MOST_WAITING} ledger entries wait for the disk already")
        return self._loop.create_future()

    def _run(self) -> None:
        with self._engine.connect() as connection:
            while True:
                try:
                    item = self._waiting.get(timeout=RETRY_S if self._owed else None)
                except queue.Empty:
                    self._commit(connection, ())
                    continue
                if self._open_calls >= BUSY_CALLS:
                    time.sleep(GATHER_S)
                group: list[Intent | Entry] = []
                while item is not None and not isinstance(item, _Job):
                    group.append(item)
                    if len(group) >= LARGEST_GROUP or self._waiting.empty():
                        break
                    item = self._waiting.get()
                if group or self._owed:
                    self._commit(connection, group)
                if isinstance(item, _Job):
                    self._do(connection, item)
                elif item is None:
                    return

    def _commit(self, connection: Connection, group: Sequence[Intent | Entry]) -> None:
        owed, self._owed = self._owed, []
        self._try(connection, [*owed, *group])

    def _try(self, connection: Connection, group: Sequence[Intent | Entry]) -> None:
        heads = dict(self._appender.heads)
        try:
            self._write(connection, group)
            connection.commit()
        except Exception as error:
            connection.rollback()
            self._appender.heads = heads
            self._give_back(group, Intent)
            if isinstance(error, IntegrityError | ValueError | ArithmeticError) and len(group) > 1:
                for entry in group:  # one bad row must not take its neighbours with it
                    self._try(connection, [entry])
                return
            if isinstance(error, OperationalError):
                self._owed += [
                    item for item in group if isinstance(item, Entry) and item.receipt.status != "refused"
                ]
            self.failed = type(error).__name__
            _log.error("ledger commit of %d entries failed: %s", len(group), self.failed)
            self._resolve(group, StoreUnavailable(f"the ledger did not take the write ({self.failed})"))
            return
        self.failed = None
        self._give_back(group, Entry)
        self._resolve(group, None)

    def _write(self, connection: Connection, group: Sequence[Intent | Entry]) -> None:
        begun = [
            (
                self._slots.take(connection, item.receipt_id),
                item.receipt_id,
                item.node,
                item.admitted_at,
                item.draft,
                item.trace,
            )
            for item in group
            if isinstance(item, Intent)
        ]
        if begun:
            _WRITE_INTENTS.run(connection, begun)
        done = [(item.receipt, item.trace) for item in group if isinstance(item, Entry)]
        if done:
            self._appender.append(connection, done)

    def _give_back(self, group: Sequence[Intent | Entry], over: type[Intent | Entry]) -> None:
        for item in group:
            if isinstance(item, over):
                self._slots.give_back(item.receipt.receipt_id if isinstance(item, Entry) else item.receipt_id)

    def _do(self, connection: Connection, job: _Job) -> None:
        heads = dict(self._appender.heads)
        try:
            result = job.work(connection)
            connection.commit()
        except Exception as error:
            connection.rollback()
            self._appender.heads = heads
            self._loop.call_soon_threadsafe(_finish, job.done, None, error)
            return
        self._loop.call_soon_threadsafe(_finish, job.done, result, None)

    def _resolve(self, group: Sequence[Intent | Entry], error: Exception | None) -> None:
        self._loop.call_soon_threadsafe(_finish_all, [item.committed for item in group], error)


class Appender:
    """Appends receipts to their chains; keeps the head of each chain that it has extended."""

    def __init__(self) -> None:
        self.heads: dict[tuple[str, str, str], tuple[int, str]] = {}

    def append(self, connection: Connection, done: Sequence[tuple[Receipt, str | None]]) -> None:
        """Link and insert receipts, each with its trace, in order, within the caller's transaction."""
        rows: list[Sequence[Any]] = []
        touched: set[tuple[str, str, str]] = set()
        for receipt, trace in done:
            at = receipt.admitted_at
            own = (receipt.organization, f"{at.year:04d}-{at.month:02d}", receipt.node)
            seq, head = self.heads.get(own) or _stored_head(connection, own)
            row_hash, values = linked(receipt, trace, seq + 1, head)
            self.heads[own] = (seq + 1, row_hash)
            touched.add(own)
            rows.append(values)
        _INSERT_RECEIPTS.run(connection, rows)
        _SET_HEADS.run(connection, [(*own, *self.heads[own]) for own in touched])


def _finish_all(futures: Sequence[asyncio.Future[None]], error: Exception | None) -> None:
    for future in futures:
        _finish(future, None, error)


def _finish(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


def _stored_head(connection: Connection, own: tuple[str, str, str]) -> tuple[int, str]:
    organization, month, node = own
    found = connection.execute(
        select(chain_heads.c.chain_seq, chain_heads.c.row_hash).where(
            chain_heads.c.organization == organization,
            chain_heads.c.month == month,
            chain_heads.c.node == node,
        )
    ).first()
    return (found.chain_seq, found.row_hash) if found is not None else (0, GENESIS)


class _ManyRows:
    """One statement for many rows, its text made once per count.

    The driver lets go of the interpreter at every step of a statement and must win it back from the event loop, so a
    group is a handful of steps, not one for each row.
    """

    def __init__(self, head: str, row: str, tail: str = "") -> None:
        self._head, self._row, self._tail = head, row, tail
        self._texts: dict[int, str] = {}

    def run(self, connection: Connection, rows: Sequence[Sequence[Any]]) -> None:
        """Execute for all rows, MOST_ROWS at a time."""
        for start in range(0, len(rows), MOST_ROWS):
            part = rows[start : start + MOST_ROWS]
            text = self._texts.get(len(part))
            if text is None:
                text = self._texts[len(part)] = self._head + ",".join([self._row] * len(part)) + self._tail
            connection.exec_driver_sql(text, tuple(chain.from_iterable(part)))


def _inserted(table: Table, names: Sequence[str], tail: str = "", verb: str = "INSERT") -> _ManyRows:
    head = f"{verb} INTO {table.name} ({', '.join(names)}) VALUES "
    return _ManyRows(head, f"({','.join('?' * len(names))})", tail)


MOST_ROWS = 64
_WRITE_INTENTS = _inserted(intents, intents.columns.keys(), verb="INSERT OR REPLACE")
_INSERT_RECEIPTS = _inserted(receipts, (*RECEIPT_COLUMNS, "trace"))
_SET_HEADS = _inserted(
    chain_heads,
    chain_heads.columns.keys(),
    " ON CONFLICT (organization, month, node)"
    " DO UPDATE SET chain_seq = excluded.chain_seq, row_hash = excluded.row_hash",
)
