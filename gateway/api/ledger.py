"""`/api/ledger`: whether what is kept beside the receipts agrees with them, and retention by closed month."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict

from gateway.api.errors import OperatorRoute
from gateway.api.parts import Operator
from gateway.api.periods import named_period
from gateway.api.schemas import Page
from gateway.api.security import Guard
from gateway.changes import Actor
from gateway.stores.coverage import coverage
from gateway.stores.retention import Head, Month, months
from toolkit.core.money import usd_text
from toolkit.core.windows import instant_text


class CoverageOut(BaseModel):
    """What the ledger holds; `first` and `last` are admissions, `last_row` changes with every new receipt."""

    receipts: int
    customers: int
    first: str | None
    last: str | None
    last_row: int


class LedgerCheck(BaseModel):
    """What was compared. `difference` is the first one in words, null when all agree."""

    ok: bool
    difference: str | None
    days: int
    rollups: int
    chains: int
    counters: int


class HeadOf(BaseModel):
    """The end of one chain of a month."""

    model_config = ConfigDict(extra="forbid", strict=True)

    node: str
    rows: int
    head: str


class MonthOut(BaseModel):
    """A month of the ledger; `state` is kept, dropping or dropped."""

    month: str
    state: str
    over: bool
    rows: int
    heads: list[HeadOf]
    requests: int
    unpriced_requests: int
    cost_nano_usd: int
    cost_usd: str


class DropMonth(BaseModel):
    """The ends of the month's chains, as its export has them."""

    model_config = ConfigDict(extra="forbid", strict=True)

    heads: list[HeadOf]


class DroppedOut(BaseModel):
    """How many receipts this request took out, and whether the month is empty now; else send it again."""

    receipts: int
    done: bool


def ledger_router(parts: Operator, guard: Guard) -> APIRouter:
    """The routes of the ledger's own state."""
    router = APIRouter(prefix="/api/ledger", tags=["ledger"], route_class=OperatorRoute)

    @router.get("/coverage", response_model=CoverageOut)
    async def read_coverage(actor: Actor = Depends(guard.any_role)) -> dict[str, Any]:
        found = await parts.read(lambda connection: coverage(connection, actor.organization))
        first, last = (None if at is None else instant_text(at) for at in (found.first, found.last))
        return {**found._asdict(), "first": first, "last": last}

    @router.get("/check", response_model=LedgerCheck)
    async def check(actor: Actor = Depends(guard.sees_caps)) -> dict[str, Any]:
        book = parts.policy.current.book(actor.organization)
        found = await parts.ledger.check(actor.organization, book, parts.clock())
        return {"ok": found.difference is None, **found._asdict()}

    @router.get("/months", response_model=Page[MonthOut])
    async def list_months(actor: Actor = Depends(guard.any_role)) -> dict[str, Any]:
        found = await parts.read(lambda connection: months(connection, actor.organization, parts.clock()))
        return {"items": [_shown(month) for month in found], "next_cursor": None}

    @router.post("/months/{month}/drop", response_model=DroppedOut)
    async def drop_month(month: str, body: DropMonth, actor: Actor = Depends(guard.drops)) -> dict[str, Any]:
        named_period(month, "month", "month")
        heads = [Head(head.node, head.rows, head.head) for head in body.heads]
        return (await parts.control.drop_month(actor, month, heads))._asdict()

    return router


def _shown(month: Month) -> dict[str, Any]:
    return {
        "month": month.month,
        "state": month.state,
        "over": month.over,
        "rows": sum(head.rows for head in month.heads),
        "heads": [head._asdict() for head in month.heads],
        "requests": month.requests,
        "unpriced_requests": month.unpriced_requests,
        "cost_nano_usd": month.cost_nano_usd,
        "cost_usd": usd_text(month.cost_nano_usd),
    }
