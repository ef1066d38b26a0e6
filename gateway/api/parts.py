"""What the operator's routes are built from, and how a list is cut into pages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, TypeVar

from fastapi import Query
from sqlalchemy import Connection, Engine

from gateway.changes import ControlError
from gateway.control import Control
from gateway.heads import Heads
from gateway.ledger import Ledger
from gateway.metrics import Metrics
from gateway.policy import PolicyHolder
from gateway.settings import Settings
from gateway.stores.database import Database

_T = TypeVar("_T")

MOST_PER_PAGE = 1_000
LIMIT: Any = Query(100, ge=1, le=MOST_PER_PAGE, description="Items a page.")
CUSTOMER_REF: Any = Query(
    None, pattern="^[0-9a-f]{16}$", description="A customer's reference, never the value."
)
CURSOR: Any = Query(None, max_length=64, description="next_cursor of the page before.")


class Wiring(Protocol):
    """What every call shares, as far as the operator's plane reads it."""

    @property
    def settings(self) -> Settings:
        """The settings in effect."""

    @property
    def ledger(self) -> Ledger:
        """The counters over the receipts."""

    @property
    def metrics(self) -> Metrics:
        """The counts of this process."""

    @property
    def clock(self) -> Callable[[], datetime]:
        """The one clock."""


class Started(Protocol):
    """A started gateway, as far as the operator's plane reads it."""

    @property
    def services(self) -> Wiring:
        """What every call shares."""

    @property
    def control(self) -> Control:
        """Who makes changes."""

    @property
    def policy(self) -> PolicyHolder:
        """The snapshot in force."""

    @property
    def database(self) -> Database:
        """The opened database."""

    @property
    def heads(self) -> Heads:
        """What was published of the chains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """The parts that the operator's routes work with."""

    settings: Settings
    control: Control
    policy: PolicyHolder
    ledger: Ledger
    metrics: Metrics
    engine: Engine
    ledger_id: str
    heads: Heads
    clock: Callable[[], datetime]

    @classmethod
    def of(cls, started: Started) -> Operator:
        """The parts of a started gateway."""
        services = started.services
        return cls(
            settings=services.settings,
            control=started.control,
            policy=started.policy,
            ledger=services.ledger,
            metrics=services.metrics,
            engine=started.database.engine,
            ledger_id=started.database.ledger_id,
            heads=started.heads,
            clock=services.clock,
        )

    async def read(self, work: Callable[[Connection], _T]) -> _T:
        """Run a query in a thread, on a connection of its own: the event loop has calls to serve."""

        def run() -> _T:
            with self.engine.connect() as connection:
                return work(connection)

        return await asyncio.to_thread(run)


def position(cursor: str | None) -> int | None:
    """A cursor of ours as the number that it is."""
    if cursor is None:
        return None
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) <= 18):
        raise ControlError("invalid_request", "cursor is the next_cursor of an earlier page.", "cursor")
    return int(cursor)
