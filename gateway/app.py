"""The application: everything is wired here, and nothing else owns a clock.

One ASGI callable answers it all. The operator's routes are FastAPI; every other path goes straight to the data plane,
past any framework.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fastapi import FastAPI
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from gateway.api import build_api
from gateway.background_calls import facts_of
from gateway.client import Receive, Send
from gateway.control import Control
from gateway.headers import Names
from gateway.heads import Heads
from gateway.ids import NewId, new_id
from gateway.late import LateEnds
from gateway.ledger import Ledger
from gateway.metrics import Metrics
from gateway.plane import DataPlane
from gateway.policy import Policy, PolicyHolder, digest
from gateway.price_lists import load_price_lists
from gateway.services import Services
from gateway.settings import Settings
from gateway.stores import records
from gateway.stores.backgrounds import load as load_backgrounds
from gateway.stores.database import Database, open_database
from gateway.stores.idempotency import forget_claims
from gateway.stores.spool import Spool
from gateway.stores.writer import LedgerWriter
from gateway.upstream import AiohttpUpstream, Upstream
from toolkit.core.errors import StoreUnavailable

_OPERATOR_PATHS = ("/api", "/health", "/metrics", "/v1/ledger")


_FORGET_EVERY_S = 3_600


def utc_now() -> datetime:
    """The wall clock."""
    return datetime.now(UTC)


@dataclass(slots=True)
class Running:
    """The parts of a started gateway."""

    services: Services
    control: Control
    policy: PolicyHolder
    database: Database
    plane: DataPlane
    heads: Heads


class Gateway:
    """The ASGI callable. Everything it owns is opened by the lifespan and closed in the opposite order."""

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Callable[[], datetime] = utc_now,
        upstream: Upstream | None = None,
        ids: NewId = new_id,
    ) -> None:
        self.settings = settings
        self._clock = clock
        self._upstream = upstream
        self._ids = ids
        self.api = FastAPI(
            title="Capline",
            lifespan=self.lifespan,
            docs_url=None,
            redoc_url=None,
            openapi_url="/api/openapi.json",
        )
        self._running: Running | None = None

    @property
    def running(self) -> Running:
        """The started parts; only within the lifespan."""
        assert self._running is not None, "the gateway has not been started"
        return self._running

    async def __call__(self, scope: dict[str, object], receive: Receive, send: Send) -> None:
        """Route one connection."""
        if scope["type"] == "http" and not str(scope["path"]).startswith(_OPERATOR_PATHS):
            await self.running.plane(scope, receive, send)
        else:
            await self.api(scope, receive, send)

    @contextlib.asynccontextmanager
    async def lifespan(self, api: FastAPI) -> AsyncIterator[None]:
        """Open the ledger, serve, drain, close."""
        settings = self.settings
        database = open_database(settings.database_url)
        loop = asyncio.get_running_loop()
        spool = Spool(settings.spool_dir, f"{settings.node}-{database.ledger_id}", loop)
        writer = LedgerWriter(database, spool, loop, unverifiable_after_s=settings.unverifiable_after_s)
        try:
            heads = await asyncio.to_thread(Heads, settings, database.engine, database.ledger_id, self._clock)
            ledger = await Ledger.open(writer, settings.node, self._clock())
            token_hash = digest(admin_token(settings))
            policy = PolicyHolder(
                await writer.run(
                    lambda connection: _load_policy(connection, settings, token_hash, self._clock())
                )
            )
            kept = await writer.run(lambda connection: load_backgrounds(connection, settings.node))
            for each in kept:
                if each.draft is not None:
                    ledger.take_up(each.row.receipt_id, facts_of(each.receipt))
            for organization, book in policy.current.books.items():
                await ledger.hydrate_book(organization, book, self._clock)
            services = Services(
                settings=settings,
                names=Names(settings.header_prefix),
                ledger=ledger,
                late=LateEnds(ledger, policy, settings.node, self._clock, self._ids),
                upstream=self._upstream or AiohttpUpstream(),
                metrics=Metrics(),
                clock=self._clock,
            )
            plane = DataPlane(services, policy, self._ids)
            plane.backgrounds.resume(kept)
            control = Control(writer, ledger, policy, settings, self._clock, self._ids)
            self._running = Running(services, control, policy, database, plane, heads)
            publishing = loop.create_task(heads.run())
            chores = [loop.create_task(chore) for chore in (_watch(ledger), _forget(writer, self._clock))]
            api.include_router(build_api(self._running))
            try:
                yield
            finally:
                await plane.drain()
                heads.stopping.set()
                await publishing
                for chore in chores:
                    chore.cancel()
                await plane.backgrounds.close()
                await services.upstream.close()
        finally:
            await writer.close()
            if self._running is not None:
                await self._running.heads.publish()
            self._running = None
            database.close()


async def _watch(ledger: Ledger) -> None:
    """See that the ledger answers while calls wait for it, and that nothing stays in the spool once it does."""
    while True:
        await asyncio.sleep(1)
        ledger.writer.watch()
        ledger.take_back()


async def _forget(writer: LedgerWriter, clock: Callable[[], datetime]) -> None:
    """Once an hour, forget what is kept for a while only."""
    while True:
        with contextlib.suppress(StoreUnavailable, SQLAlchemyError):  # it is tried again in an hour
            while await writer.run(lambda connection: forget_claims(connection, clock())):
                pass
        await asyncio.sleep(_FORGET_EVERY_S)


def create_app(settings: Settings) -> Gateway:
    """The gateway in service."""
    return Gateway(settings)


def admin_token(settings: Settings) -> str:
    """The admin token: the setting, else the file under `var`, made at first start with mode 0600."""
    if settings.admin_token is not None:
        return settings.admin_token
    path = settings.var_dir / "admin_token"
    with contextlib.suppress(FileNotFoundError):
        return path.read_text("utf-8").strip()
    return _write_secret(path, f"capline_admin_{secrets.token_urlsafe(32)}")


def _write_secret(path: Path, secret: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(secret + "\n")
    return secret


def _load_policy(connection: Connection, settings: Settings, token_hash: str, at: datetime) -> Policy:
    records.set_meta(connection, "admin_token_hash", token_hash)
    return Policy(
        keys=records.load_keys(connection),
        books=records.load_books(connection),
        prices=load_price_lists(connection, settings, at),
        admin_token_hash=token_hash,
    )
