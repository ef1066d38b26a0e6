"""Spend, and what has no price: sums over the ledger, computed in SQL with exact integers."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends, Query
from sqlalchemy import Connection

from gateway.api.errors import OperatorRoute
from gateway.api.parts import CURSOR, CUSTOMER_REF, LIMIT, Operator, position
from gateway.api.periods import part_of
from gateway.api.schemas import Page
from gateway.api.schemas_reports import PriceListOut, SpendRow, UnpricedOut
from gateway.api.security import Guard
from gateway.changes import Actor, ControlError
from gateway.stores import reports
from gateway.stores.customers import CustomerRefs
from toolkit.core.money import usd_text
from toolkit.core.pricing import list_at
from toolkit.core.windows import Window

PERIOD: Any = Query(
    None, max_length=16, description="A period's key: 2026-12-01, 2026-W49, 2026-12, 2026 or all."
)
FROM: Any = Query(None, alias="from", max_length=40, description="First instant of admission.")
TO: Any = Query(None, alias="to", max_length=40, description="First instant after the period.")
STALE_AFTER_DAYS = 30
"""A list older than that may miss new prices; it goes on pricing."""
_BY: Any = Query(
    "", max_length=300, description=f"Dimensions, comma-separated: {', '.join(reports.DIMENSIONS)}."
)


def reports_router(parts: Operator, guard: Guard, refs: CustomerRefs) -> APIRouter:
    """The routes of sums over receipts."""
    router = APIRouter(prefix="/api", tags=["reports"], route_class=OperatorRoute)

    @router.get("/spend", response_model=Page[SpendRow], response_model_exclude_unset=True)
    async def spend(
        actor: Actor = Depends(guard.any_role),
        by: str = _BY,
        window: Window = "month",
        period: str | None = PERIOD,
        start: str | None = FROM,
        end: str | None = TO,
        customer_ref: str | None = CUSTOMER_REF,
        limit: int = LIMIT,
        cursor: str | None = CURSOR,
    ) -> dict[str, Any]:
        groups = _dimensions(by)
        part = part_of(period=period, start=start, end=end)
        rows = page(limit, cursor)

        def read(connection: Connection) -> list[dict[str, Any]]:
            named = None
            if customer_ref is not None:
                named = refs.value(actor.organization, customer_ref)
                if named is None:
                    return []
            found = reports.spend(connection, actor.organization, groups, window, part, rows, named)
            if "customer" in groups:
                for row in found:
                    row["customer_ref"] = refs.ref(actor.organization, row["customer"])
            return [with_dollars(row) for row in found]

        return paged(await parts.read(read), rows)

    @router.get("/unpriced", response_model=Page[UnpricedOut])
    async def unpriced(
        actor: Actor = Depends(guard.any_role),
        period: str | None = PERIOD,
        start: str | None = FROM,
        end: str | None = TO,
        limit: int = LIMIT,
        cursor: str | None = CURSOR,
    ) -> dict[str, Any]:
        part = part_of(period=period, start=start, end=end)
        rows = page(limit, cursor)
        found = await parts.read(
            lambda connection: reports.unpriced(connection, actor.organization, part, rows)
        )
        return paged(found, rows)

    @router.get("/price-lists", response_model=Page[PriceListOut])
    async def price_lists(_actor: Actor = Depends(guard.any_role)) -> dict[str, Any]:
        lists = parts.policy.current.prices
        now = parts.clock()
        used, today = list_at(lists, now), now.date()
        items = [
            {
                "id": prices.id,
                "date": prices.date.isoformat(),
                "rows": len(prices.rows),
                "providers": sorted({row.provider for row in prices.rows}),
                "in_use": prices is used,
                "age_days": (today - prices.date).days,
                "stale": (today - prices.date).days > STALE_AFTER_DAYS,
            }
            for prices in sorted(lists, key=lambda prices: prices.date, reverse=True)
        ]
        return {"items": items, "next_cursor": None}

    return router


def _dimensions(by: str) -> list[str]:
    groups = [name for name in by.split(",") if name]
    for name in groups:
        if name not in reports.DIMENSIONS:
            raise ControlError("invalid_request", f"by is made of {', '.join(reports.DIMENSIONS)}.", "by")
    if len(set(groups)) != len(groups):
        raise ControlError("invalid_request", "A dimension stands twice in by.", "by")
    return groups


def page(limit: int, cursor: str | None) -> reports.Page:
    """Which rows to read for a page of `limit`: one more, which tells whether there is a next one."""
    return reports.Page(limit=limit + 1, offset=position(cursor) or 0)


def paged(found: list[dict[str, Any]], rows: reports.Page) -> dict[str, Any]:
    """A page out of what was read for it."""
    limit = rows.limit - 1
    more = str(rows.offset + limit) if len(found) > limit else None
    return {"items": found[:limit], "next_cursor": more}


def with_dollars(row: dict[str, Any]) -> dict[str, Any]:
    """A row of sums with its money as text too."""
    cost = row["cost_nano_usd"]
    row["cost_usd"] = None if cost is None else usd_text(cost)
    row["counted_usd"] = usd_text(row["counted_nano_usd"])
    return row
