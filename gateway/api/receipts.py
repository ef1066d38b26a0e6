"""`/api/receipts` and `/api/refusals`: single rows of the ledger, and why a call was refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Depends, Query
from sqlalchemy import Connection

from gateway.api.errors import OperatorRoute
from gateway.api.parts import CURSOR, CUSTOMER_REF, LIMIT, Operator, position
from gateway.api.periods import part_of
from gateway.api.reports import FROM, PERIOD, TO
from gateway.api.schemas import Correction, Page
from gateway.api.schemas_reports import ReceiptDetail, ReceiptOut
from gateway.api.security import Guard
from gateway.changes import Actor, ControlError
from gateway.policy import SEES_CAPS
from gateway.stores import records, reports
from gateway.stores.customers import CustomerRefs
from gateway.stores.finals import Part
from gateway.stores.rows import to_micros
from toolkit.core.money import usd_text
from toolkit.core.windows import parse_instant

_FIGURES = ("limit", "spent", "held", "held_floor", "hold", "headroom")


def receipts_router(parts: Operator, guard: Guard, refs: CustomerRefs) -> APIRouter:
    """The routes of receipts."""
    router = APIRouter(prefix="/api", tags=["receipts"], route_class=OperatorRoute)

    @router.get("/receipts", response_model=Page[ReceiptOut])
    async def list_receipts(
        actor: Actor = Depends(guard.any_role),
        period: str | None = PERIOD,
        start: str | None = FROM,
        end: str | None = TO,
        customer_ref: str | None = CUSTOMER_REF,
        key_id: str | None = Query(None, max_length=256),
        project: str | None = Query(None, max_length=256),
        run: str | None = Query(None, max_length=256),
        provider: str | None = Query(None, max_length=256),
        model: str | None = Query(None, max_length=256, description="The model that was asked for."),
        status: str | None = Query(None, max_length=256),
        operation_id: str | None = Query(None, max_length=256),
        limit: int = LIMIT,
        cursor: str | None = CURSOR,
    ) -> dict[str, Any]:
        filters = {
            "key_id": key_id,
            "project": project,
            "run": run,
            "provider": provider,
            "model_requested": model,
            "status": status,
            "operation_id": operation_id,
        }
        part = part_of(period=period, start=start, end=end)
        return await _listed(parts, refs, actor, part, filters, customer_ref, limit, cursor)

    @router.get("/refusals", response_model=Page[ReceiptOut])
    async def list_refusals(
        actor: Actor = Depends(guard.any_role),
        period: str | None = PERIOD,
        start: str | None = FROM,
        end: str | None = TO,
        customer_ref: str | None = CUSTOMER_REF,
        key_id: str | None = Query(None, max_length=256),
        code: str | None = Query(None, max_length=64, description="A refusal's code."),
        limit: int = LIMIT,
        cursor: str | None = CURSOR,
    ) -> dict[str, Any]:
        filters = {"status": "refused", "refusal_code": code, "key_id": key_id}
        part = part_of(period=period, start=start, end=end)
        return await _listed(parts, refs, actor, part, filters, customer_ref, limit, cursor)

    @router.get("/receipts/{receipt_id}", response_model=ReceiptDetail, response_model_exclude_unset=True)
    async def read_receipt(receipt_id: str, actor: Actor = Depends(guard.any_role)) -> dict[str, Any]:
        def read(connection: Connection) -> dict[str, Any]:
            found = reports.receipt_with_trace(connection, actor.organization, receipt_id)
            if found is None:
                raise ControlError("not_found", "There is no receipt and no operation of that id.")
            row, trace, operation = found
            if trace is not None:
                armed = records.arming_of(
                    connection, actor.organization, sorted({line["cap_id"] for line in trace})
                )
                trace = [trace_line(line, armed) for line in trace]
            shown = trace if actor.role in SEES_CAPS else None
            return {**_with_text(row, refs, actor.organization), "trace": shown, "operation": operation}

        return await parts.read(read)

    @router.post("/receipts/{receipt_id}/correct", response_model=ReceiptOut, status_code=201)
    async def correct_receipt(
        receipt_id: str, body: Correction, actor: Actor = Depends(guard.corrects)
    ) -> dict[str, Any]:
        usage = None if body.usage is None else body.usage.usage()
        made = await parts.control.correct_receipt(
            actor, receipt_id, usage=usage, price_list=body.price_list, reason=body.reason
        )

        def read(connection: Connection) -> dict[str, Any]:
            found = reports.receipt_with_trace(connection, actor.organization, made)
            assert found is not None, "a correction was committed a moment ago"
            return _with_text(found[0], refs, actor.organization)

        return await parts.read(read)

    return router


async def _listed(
    parts: Operator,
    refs: CustomerRefs,
    actor: Actor,
    part: Part,
    filters: Mapping[str, str | None],
    ref: str | None,
    limit: int,
    cursor: str | None,
) -> dict[str, Any]:
    """One page of receipts, the last written first."""
    sent = {column: value for column, value in filters.items() if value is not None}
    before = position(cursor)

    def read(connection: Connection) -> dict[str, Any]:
        if ref is not None:
            customer = refs.value(actor.organization, ref)
            if customer is None:
                return {"items": [], "next_cursor": None}
            sent["customer"] = customer
        found = reports.receipt_rows(
            connection, actor.organization, part, sent, before_seq=before, limit=limit + 1
        )
        more = str(found[limit - 1][0]) if len(found) > limit else None
        items = [_with_text(row, refs, actor.organization) for _, row in found[:limit]]
        return {"items": items, "next_cursor": more}

    return await parts.read(read)


def trace_line(
    line: Mapping[str, Any], armed: Mapping[tuple[int, int], records.AuditEntry]
) -> dict[str, Any]:
    """A line of a stored trace: its money named as such, and who armed the cap as the audit trail says it."""
    shown = {name: value for name, value in line.items() if name not in _FIGURES}
    shown["armed_reason"] = None
    if line["armed_at"] is not None:
        entry = armed.get((line["cap_id"], to_micros(parse_instant(line["armed_at"]))))
        if entry is not None:
            shown.update(armed_by=entry.actor, armed_reason=entry.reason)
    for name in _FIGURES:
        if line["unit"] == "usd":
            shown[f"{name}_nano_usd"] = line[name]
            shown[f"{name}_usd"] = usd_text(line[name])
        else:
            shown[name] = line[name]
    return shown


def _with_text(row: dict[str, Any], refs: CustomerRefs, organization: str) -> dict[str, Any]:
    cost = row["cost_nano_usd"]
    return {
        **row,
        "customer_ref": refs.ref(organization, row["customer"]),
        "cost_usd": None if cost is None else usd_text(cost),
        "counted_usd": usd_text(row["counted_nano_usd"]),
    }
