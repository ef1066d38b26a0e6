"""`/health` and `/metrics`: how the process is, without a customer's value, a key or a secret."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel

from gateway.api.errors import OperatorRoute
from gateway.api.parts import Operator
from toolkit.core.money import usd_text
from toolkit.core.pricing import list_at


class StoreHealth(BaseModel):
    """The ledger's database; `failed` names the error of the last commit, null when it held."""

    state: str
    failed: str | None
    backlog: int


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


class Health(BaseModel):
    """Liveness: it is answered as long as the process serves; `status` is `ok` or `degraded`."""

    status: str
    node: str
    ledger_id: str
    closed_at_start: int
    store: StoreHealth
    counters: CountersHealth
    price_lists: list[PriceListAge]
    peers: list[str]


def health_router(parts: Operator) -> APIRouter:
    """The routes of liveness and metrics; they want no token."""
    router = APIRouter(tags=["health"], route_class=OperatorRoute)

    @router.get("/health", response_model=Health)
    async def health() -> dict[str, Any]:
        writer = parts.ledger.writer
        held = _held(parts)
        today = parts.clock().date()
        return {
            "status": "ok" if writer.failed is None else "degraded",
            "node": parts.settings.node,
            "ledger_id": parts.ledger_id,
            "closed_at_start": parts.ledger.closed_at_start,
            "store": {
                "state": "ok" if writer.failed is None else "failing",
                "failed": writer.failed,
                "backlog": writer.backlog,
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
        }

    @router.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> PlainTextResponse:
        writer = parts.ledger.writer
        gauges = {
            "in_flight": ("Admitted calls that have not ended yet.", _running(parts)),
            "held_nano_usd": ("What running calls hold, in nano-USD.", _held(parts)),
            "ledger_backlog": ("Ledger entries that wait for the disk.", writer.backlog),
            "ledger_failing": ("1 when the last ledger commit failed.", int(writer.failed is not None)),
            "closed_at_start": ("Calls that the last stop cut off.", parts.ledger.closed_at_start),
            "price_list_age_days": ("Days since the date of the price list in use.", _list_age(parts)),
        }
        text = parts.metrics.text(gauges)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    return router


def _running(parts: Operator) -> int:
    return sum(1 for _ in parts.ledger.counters.running())


def _held(parts: Operator) -> int:
    return sum(facts.hold_nano_usd or 0 for _, facts in parts.ledger.counters.running())


def _list_age(parts: Operator) -> int:
    at = parts.clock()
    used = list_at(parts.policy.current.prices, at)
    assert used is not None, "a gateway starts with at least one price list"
    return (at.date() - used.date).days
