"""`/api/customers`: what each end customer cost in a period. URLs name a customer by reference only."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends
from sqlalchemy import Connection

from gateway.api.errors import OperatorRoute
from gateway.api.parts import CURSOR, CUSTOMER_REF, LIMIT, Operator
from gateway.api.periods import named_period
from gateway.api.reports import PERIOD, page, paged, with_dollars
from gateway.api.schemas import Page
from gateway.api.schemas_reports import CustomerOut, CustomersSummary
from gateway.api.security import Guard
from gateway.changes import Actor
from gateway.stores import reports
from gateway.stores.customers import CustomerRefs
from gateway.stores.finals import admitted_between
from toolkit.core.money import usd_text
from toolkit.core.windows import Period, Window, period_at


def customers_router(parts: Operator, guard: Guard, refs: CustomerRefs) -> APIRouter:
    """The routes of customers."""
    router = APIRouter(prefix="/api", tags=["reports"], route_class=OperatorRoute)

    @router.get("/customers", response_model=Page[CustomerOut])
    async def customers(
        actor: Actor = Depends(guard.any_role),
        window: Window = "month",
        period: str | None = PERIOD,
        customer_ref: str | None = CUSTOMER_REF,
        limit: int = LIMIT,
        cursor: str | None = CURSOR,
    ) -> dict[str, Any]:
        rows = page(limit, cursor)

        def read(connection: Connection) -> list[dict[str, Any]]:
            chosen = _chosen(parts, connection, actor, window, period)
            named = None
            if customer_ref is not None:
                named = refs.value(actor.organization, customer_ref)
                if named is None:
                    return []
            part = (chosen.start, chosen.end)
            found = reports.customers(connection, actor.organization, part, rows, named)
            return [
                with_dollars(
                    {
                        **row,
                        "period": chosen.key,
                        "customer_ref": refs.ref(actor.organization, row["customer"]),
                    }
                )
                for row in found
            ]

        return paged(await parts.read(read), rows)

    @router.get("/customers/summary", response_model=CustomersSummary)
    async def customers_summary(
        actor: Actor = Depends(guard.any_role), window: Window = "month", period: str | None = PERIOD
    ) -> dict[str, Any]:
        def read(connection: Connection) -> dict[str, Any]:
            chosen = _chosen(parts, connection, actor, window, period)
            named, cost = reports.customers_total(connection, actor.organization, (chosen.start, chosen.end))
            return {
                "period": chosen.key,
                "customers": named,
                "cost_nano_usd": cost,
                "cost_usd": usd_text(cost),
            }

        return await parts.read(read)

    return router


def _chosen(
    parts: Operator, connection: Connection, actor: Actor, window: Window, period: str | None
) -> Period:
    """The asked period; else the newest one of the window that has receipts."""
    if period is not None:
        return named_period(period)
    last = admitted_between(connection, actor.organization)[1]
    return period_at(window, last or parts.clock())
