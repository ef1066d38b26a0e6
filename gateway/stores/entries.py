"""What waits for the ledger: intents, receipts and jobs. Each carries the future that its caller waits on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from gateway.stores.idempotency import Claim
from toolkit.core.receipts import Receipt


@dataclass(slots=True)
class Intent:
    """A call that was admitted: the JSON of its receipt as far as it is known, and its decision trace.

    `armed`: nothing but the ledger may take it, for an armed cap stands over the call, or an idempotency key is held.
    """

    receipt_id: str
    node: str
    admitted_at: int
    draft: str
    trace: str | None
    armed: bool
    committed: asyncio.Future[None]
    claim: Claim | None = None
    spooled: bool = False


@dataclass(slots=True)
class Entry:
    """A finished receipt."""

    receipt: Receipt
    trace: str | None
    armed: bool
    committed: asyncio.Future[None]
    frees: Claim | None = None
    spooled: bool = False


@dataclass(slots=True)
class Job:
    """Work with the database in a transaction of its own; its result goes to `done`."""

    work: Callable[[Connection], Any]
    done: asyncio.Future[Any]


def finish(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    """Resolve a future that may have been resolved already."""
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
