"""The thread of the ledger's writer: it commits what has gathered since its last commit, in order.

The disk is asked once for many calls. A job runs in its own transaction at its place in the order. A database that does
not take a write is away until it answers again; what it did not take is handed back.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from gateway.stores.appending import Appender
from gateway.stores.database import Database, DatabaseGone, DatabaseHeld, failure_of, is_store_failure
from gateway.stores.entries import Entry, Intent, Job, finish
from gateway.stores.idempotency import free_claims, write_claims
from gateway.stores.open_calls import Slots
from gateway.stores.records import get_meta, set_meta
from gateway.stores.statements import written
from gateway.stores.tables import intents
from toolkit.core.errors import StoreUnavailable

_log = logging.getLogger("capline.ledger")

LARGEST_GROUP = 1_000
BUSY_CALLS = 6
"""With that many calls open, a commit waits GATHER_S for more of them: one flush of the disk then serves many."""
GATHER_S = 0.0005
RETRY_S = 1.0
"""How often a database that is away is asked for."""
PING_S = 10.0
"""How often one that has nothing to do is."""
WRITE_INTENTS = written(intents, ("slot",))


class Committer:
    """Owns the write connection, on a thread of its own."""

    def __init__(
        self,
        database: Database,
        loop: asyncio.AbstractEventLoop,
        hand_back: Callable[[Sequence[Intent | Entry]], None],
        *,
        unverifiable_after_s: float,
    ) -> None:
        """`hand_back` is called on the loop with what the database did not take."""
        self._database = database
        self._hand_back = hand_back
        self._unverifiable_after_s = unverifiable_after_s
        self._connection: Connection | None = None
        self._loop = loop
        self._waiting: queue.SimpleQueue[Intent | Entry | Job | None] = queue.SimpleQueue()
        self._appender = Appender()
        self._slots = Slots()
        self._open_calls = 0
        self._trying: tuple[float, Sequence[Intent | Entry]] | None = None
        """Since when the thread waits for the database, and for what."""
        self.failed: str | None = None
        """Why the database did not take the last write, None when it did."""
        self.good_at = time.monotonic()
        """When the database last answered, by the monotonic clock."""
        self.on_recovered: Callable[[], None] = lambda: None
        """Called on the loop once the database answers again."""
        self._thread = threading.Thread(target=self._run, name="ledger-writer", daemon=True)

    def _run(self) -> None:
        while True:
            try:
                item = self._waiting.get(timeout=self._pause())
            except queue.Empty:
                self._probe()
                continue
            if self._open_calls >= BUSY_CALLS:
                time.sleep(GATHER_S)
            group: list[Intent | Entry] = []
            while item is not None and not isinstance(item, Job):
                group.append(item)
                if len(group) >= LARGEST_GROUP or self._waiting.empty():
                    break
                item = self._waiting.get()
            if group:
                self._commit(group)
            if isinstance(item, Job):
                self._do(item)
            elif item is None:
                self._disconnect()
                return

    def _pause(self) -> float:
        if self.failed is not None:
            return RETRY_S
        return min(PING_S, self._unverifiable_after_s / 2)

    def _probe(self) -> None:
        """Nothing to do: see that the database answers, and once it was away, that it can be written."""
        self._trying = (time.monotonic(), ())
        try:
            connection = self._connected()
            if self.failed is None:
                get_meta(connection, "ledger_id")
                connection.rollback()
            else:
                set_meta(connection, "asked", str(time.time_ns()))
                connection.commit()
        except Exception as error:
            self._lost(error)
            return
        finally:
            self._trying = None
        self._answered()

    def _commit(self, group: Sequence[Intent | Entry]) -> None:
        heads = dict(self._appender.heads)
        self._trying = (time.monotonic(), group)
        try:
            connection = self._connected()
            self._write(connection, group)
            connection.commit()
        except Exception as error:
            away = is_store_failure(error)
            if away:
                self._lost(error)
            else:
                self._roll_back()
            # A commit whose answer was lost may have held: the heads are then read anew.
            self._appender.heads = {} if away else heads
            self._give_back(group, Intent)
            if away:
                self._loop.call_soon_threadsafe(self._hand_back, group)
            elif len(group) > 1:
                for entry in group:  # one bad row must not take its neighbours with it
                    self._commit([entry])
            else:
                _log.error("the ledger refused an entry: %s", type(error).__name__)
                refused = StoreUnavailable(f"the ledger refused the entry ({type(error).__name__})")
                self._resolve(group, refused)
            return
        finally:
            self._trying = None
        self._answered()
        self._give_back(group, Entry)
        self._resolve(group, None)

    def _lost(self, error: BaseException) -> None:
        """The database did not take a write."""
        self._roll_back()
        failed = failure_of(error)
        if self.failed != failed:
            _log.error("the ledger is away: %s", failed)
        self.failed = failed

    def _answered(self) -> None:
        self.good_at = time.monotonic()
        if self.failed is not None:
            _log.warning("the ledger is back after: %s", self.failed)
            self.failed = None
            self._loop.call_soon_threadsafe(self.on_recovered)

    def _connected(self) -> Connection:
        """The write connection, a new one where the last was lost."""
        self._database.look()
        if self._connection is None:
            self._connection = self._database.writing()
        return self._connection

    def _roll_back(self) -> None:
        """Undo what was begun; a connection that is no more is let go of."""
        connection = self._connection
        if connection is None:
            return
        try:
            connection.rollback()
        except SQLAlchemyError:
            connection.invalidate()
        if connection.invalidated:
            self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

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
            WRITE_INTENTS.run(connection, begun)
            write_claims(
                connection,
                [item.claim for item in group if isinstance(item, Intent) and item.claim is not None],
            )
        done = [(item.receipt, item.trace) for item in group if isinstance(item, Entry)]
        if done:
            self._appender.append(connection, done)
            free_claims(
                connection,
                [item.frees for item in group if isinstance(item, Entry) and item.frees is not None],
            )

    def _give_back(self, group: Sequence[Intent | Entry], over: type[Intent | Entry]) -> None:
        for item in group:
            if isinstance(item, over):
                self._slots.give_back(item.receipt.receipt_id if isinstance(item, Entry) else item.receipt_id)

    def _do(self, job: Job) -> None:
        heads = dict(self._appender.heads)
        self._trying = (time.monotonic(), ())
        try:
            connection = self._connected()
            result = job.work(connection)
            connection.commit()
        except Exception as error:
            away = is_store_failure(error)
            if away:
                self._lost(error)
            else:
                self._roll_back()
            self._appender.heads = {} if away else heads
            if isinstance(error, DatabaseHeld | DatabaseGone):
                error = StoreUnavailable(str(error))
            self._loop.call_soon_threadsafe(finish, job.done, None, error)
            return
        finally:
            self._trying = None
        self._answered()
        self._loop.call_soon_threadsafe(finish, job.done, result, None)

    def _resolve(self, group: Sequence[Intent | Entry], error: Exception | None) -> None:
        self._loop.call_soon_threadsafe(_finish_all, [item.committed for item in group], error)


def _finish_all(futures: Sequence[asyncio.Future[None]], error: Exception | None) -> None:
    for future in futures:
        finish(future, None, error)
