"""The one writer of the ledger, as the loop sees it: intents, receipts and jobs are queued, and waited for.

An intent is committed before its provider is called and a receipt before the end of its answer leaves. While the
database is away, the spool takes what no armed cap stands over.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import queue
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from sqlalchemy import Connection

from gateway.stores.committing import WRITE_INTENTS, Committer
from gateway.stores.database import Database
from gateway.stores.entries import Entry, Intent, Job, finish
from gateway.stores.idempotency import Claim
from gateway.stores.rows import to_micros
from gateway.stores.spool import Spool
from toolkit.core.errors import StoreUnavailable
from toolkit.core.receipts import Receipt
from toolkit.core.windows import parse_instant

_T = TypeVar("_T")
_log = logging.getLogger("capline.ledger")

MOST_WAITING = 20_000
"""Entries that may wait for the database; beyond it the spool takes them."""
CLOSE_S = 20.0
"""How long a stop waits for a database that does not answer; its calls are in the spool by then."""
PATIENCE_S = 5.0
"""How long a commit may take before its calls go on without it: clients give up soon after."""


class LedgerWriter(Committer):
    """Owns the write connection. Create it inside a running loop; `close()` commits what waits and stops.

    While the database is away, calls under no armed cap go to the spool, and nothing waits for the database but the
    writer, which asks for it every RETRY_S.
    """

    def __init__(
        self,
        database: Database,
        spool: Spool,
        loop: asyncio.AbstractEventLoop,
        *,
        unverifiable_after_s: float,
    ) -> None:
        super().__init__(database, loop, self._all_to_spool, unverifiable_after_s=unverifiable_after_s)
        self.spool = spool
        self.claims: dict[str, Claim] = {}
        """Idempotency keys of calls without a receipt, by its id; put there before their intents."""
        self._armed: set[str] = set()
        self._unverified: set[str] = set()
        """Calls whose intents the spool took: their receipts say so."""
        self._thread.start()

    def begin(
        self, receipt_id: str, node: str, admitted_at: int, draft: str, trace: str | None, *, armed: bool
    ) -> asyncio.Future[None]:
        """Queue an intent; the future is done when it is on disk.

        Raises:
            StoreUnavailable: also by the future: the ledger is away and an armed cap stands over the call, or the spool
                cannot be written either. Nothing may be sent.
        """
        self._open_calls += 1
        claim = self.claims.get(receipt_id)
        armed = armed or claim is not None
        if armed:
            if self.failed is not None or time.monotonic() - self.good_at > self._unverifiable_after_s:
                raise StoreUnavailable(f"the ledger is away ({self.failed or 'silent'})")
            self._armed.add(receipt_id)
        intent = Intent(receipt_id, node, admitted_at, draft, trace, armed, self._loop.create_future(), claim)
        self._put(intent)
        return intent.committed

    def record(self, receipt: Receipt, trace: str | None, *, closes_intent: bool) -> asyncio.Future[None]:
        """Queue a receipt; the future is done when it is on disk, or fails with StoreUnavailable.

        `closes_intent` is False for what was refused before any intent.
        """
        name = receipt.receipt_id
        armed = name in self._armed
        self._armed.discard(name)
        if name in self._unverified:
            self._unverified.discard(name)
            receipt = replace(receipt, verified=False)
        entry = Entry(receipt, trace, armed, self._loop.create_future(), self._freed(receipt))
        self._open_calls -= closes_intent
        self._put(entry)
        return entry.committed

    def _freed(self, receipt: Receipt) -> Claim | None:
        """The idempotency key that a receipt frees."""
        claim = self.claims.pop(receipt.receipt_id, None)
        if claim is None:
            return None
        claim.status = receipt.status
        return claim if claim.is_free else None

    def _put(self, item: Intent | Entry) -> None:
        if self.failed is not None or self._waiting.qsize() > MOST_WAITING:
            self._to_spool(item)
        else:
            self._waiting.put(item)

    def _to_spool(self, item: Intent | Entry) -> None:
        """What the database does not take. An armed call's intent is refused, its receipt is kept."""
        if item.spooled:
            return
        item.spooled = True
        if not isinstance(item, Intent):
            self.spool.put(item)
        elif item.armed:
            finish(item.committed, None, StoreUnavailable("the ledger did not take the write"))
        else:
            self._unverified.add(item.receipt_id)
            self.spool.put(item)

    def watch(self) -> None:
        """Called about once a second on the loop: a database that does not answer is away, whatever it may do later."""
        trying = self._trying
        if trying is None or time.monotonic() - trying[0] < PATIENCE_S:
            return
        if self.failed is None:
            self.failed = "slow"
            _log.error("the ledger has not answered for %d s", PATIENCE_S)
        waiting: list[Intent | Entry] = [*trying[1]]
        self._trying = (trying[0], ())
        with contextlib.suppress(queue.Empty):
            while True:
                item = self._waiting.get_nowait()
                if isinstance(item, Job):
                    finish(item.done, None, StoreUnavailable("the ledger does not answer"))
                elif item is None:
                    self._waiting.put(None)
                    break
                else:
                    waiting.append(item)
        for item in waiting:
            self._to_spool(item)

    def run(self, work: Callable[[Connection], _T]) -> asyncio.Future[_T]:
        """Run `work` in a transaction of its own, after all that was queued before it; await its result or error."""
        done: asyncio.Future[_T] = self._loop.create_future()
        if self.failed == "slow":
            done.set_exception(StoreUnavailable("the ledger does not answer"))
        else:
            self._waiting.put(Job(work, done))
        return done

    async def read(self, work: Callable[[Connection], _T]) -> _T:
        """Run a query beside the writer, in a thread and on a connection of its own."""

        def run() -> _T:
            with self._database.engine.connect() as connection:
                return work(connection)

        return await asyncio.to_thread(run)

    async def read_here(self, work: Callable[[Connection], _T]) -> _T:
        """The same on the ledger as it is at this place in the order: after all that was queued, before what comes."""
        connection = await self.run(lambda _: self._database.snapshot())

        def run() -> _T:
            with connection:
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

    def reopen_in_job(self, connection: Connection, draft: Mapping[str, Any], trace: str | None) -> None:
        """Write the intent of a call that the spool took, inside a job."""
        name = str(draft["receipt_id"])
        admitted_at = to_micros(parse_instant(draft["admitted_at"]))
        slot = self._slots.take(connection, name)
        row = (slot, name, draft["node"], admitted_at, json.dumps(draft), trace)
        WRITE_INTENTS.run(connection, [row])

    async def close(self) -> None:
        """Commit what waits, or spool it, then stop both threads."""
        self._waiting.put(None)
        await asyncio.to_thread(self._thread.join, CLOSE_S)
        await self.spool.close()

    @property
    def backlog(self) -> int:
        """Entries that wait for the disk."""
        return self._waiting.qsize()

    def _all_to_spool(self, group: Sequence[Intent | Entry]) -> None:
        for item in group:
            self._to_spool(item)
