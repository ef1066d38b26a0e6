"""`/health` and `/metrics`: how the process is, without a customer's value, a key or a secret."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel

from gateway.api.errors import OperatorRoute
from gateway.api.parts import Operator
from toolkit.core.money import usd_text
from toolkit.core.pricing import list_at


class StoreHealth(BaseModel):
    """The ledger's database: `ok`, or how it fails; when it last answered, and what waits for it."""

    kind: str
    state: str
    good_s_ago: int
    backlog: int
    spooled: int
    spool_failed: str | None


class CountersHealth(BaseModel):
    """The counters and what runs on them."""

    state: str
    running: int
    held_nano_usd: int
    held_usd: str


class PriceListAge(BaseModel):
    """A loaded price list and its age."""

    id: str
    age_days: int


class BehindHead(BaseModel):
    """A chain that ends before a head that was published of it: the database was cut off or restored."""

    month: str
    node: str
    published_seq: int
    stored_seq: int


class Health(BaseModel):
    """Liveness: it is answered as long as the process serves; `status` is `ok` or `degraded`."""

    status: str
    node: str
    ledger_id: str
    closed_at_start: int
    clock_stepped_s: int
    store: StoreHealth
    counters: CountersHealth
    price_lists: list[PriceListAge]
    peers: list[str]
    ledger_behind_head: list[BehindHead]
    heads_failed: int


_SECOND = timedelta(seconds=1)


def health_router(parts: Operator) -> APIRouter:
    """The routes of liveness and metrics; they want no token."""
    router = APIRouter(tags=["health"], route_class=OperatorRoute)

    @router.get("/health", response_model=Health)
    async def health() -> dict[str, Any]:
        writer = parts.ledger.writer
        held = _held(parts)
        today = parts.clock().date()
        return {
            "status": "ok" if _is_well(parts) else "degraded",
            "node": parts.settings.node,
            "ledger_id": parts.ledger_id,
            "closed_at_start": parts.ledger.closed_at_start,
            "clock_stepped_s": parts.ledger.steadiness.stepped // _SECOND,
            "store": {
                "kind": parts.engine.dialect.name,
                "state": "ok" if writer.failed is None else writer.failed,
                "good_s_ago": int(time.monotonic() - writer.good_at),
                "backlog": writer.backlog,
                "spooled": writer.spool.not_imported,
                "spool_failed": writer.spool.failed,
            },
            "counters": {
                "state": "memory",
                "running": _running(parts),
                "held_nano_usd": held,
                "held_usd": usd_text(held),
            },
            "price_lists": [
                {"id": prices.id, "age_days": (today - prices.date).days}
                for prices in parts.policy.current.prices
            ],
            "peers": [],
            "ledger_behind_head": [
                {name: value for name, value in behind._asdict().items() if name != "organization"}
                for behind in parts.heads.behind
            ],
            "heads_failed": parts.heads.failed,
        }

    @router.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> PlainTextResponse:
        writer = parts.ledger.writer
        gauges = {
            "in_flight": ("Admitted calls that have not ended yet.", _running(parts)),
            "held_nano_usd": ("What running calls hold, in nano-USD.", _held(parts)),
            "ledger_backlog": ("Ledger entries that wait for the disk.", writer.backlog),
            "ledger_spooled": (
                "Entries of the spool that are not in the ledger yet.",
                writer.spool.not_imported,
            ),
            "ledger_failing": ("1 when the last ledger commit failed.", int(writer.failed is not None)),
            "heads_failed": ("Heads of chains that could not be published.", parts.heads.failed),
            "closed_at_start": ("Calls that the last stop cut off.", parts.ledger.closed_at_start),
            "price_list_age_days": ("Days since the date of the price list in use.", _list_age(parts)),
        }
        text = parts.metrics.text(gauges)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    return router


def _is_well(parts: Operator) -> bool:
    writer = parts.ledger.writer
    return writer.failed is None and writer.spool.is_empty and not parts.heads.behind


def _running(parts: Operator) -> int:
    return sum(1 for _ in parts.ledger.counters.running())


def _held(parts: Operator) -> int:
    return sum(facts.hold_nano_usd or 0 for _, facts in parts.ledger.counters.running())


def _list_age(parts: Operator) -> int:
    at = parts.clock()
    used = list_at(parts.policy.current.prices, at)
    assert used is not None, "a gateway starts with at least one price list"
    return (at.date() - used.date).days
