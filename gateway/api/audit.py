"""`/api/audit`: every change, newest first."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends
from sqlalchemy import Connection

from gateway.api.errors import OperatorRoute
from gateway.api.parts import CURSOR, LIMIT, Operator, position
from gateway.api.schemas import AuditOut, Page
from gateway.api.security import Guard
from gateway.changes import Actor
from gateway.stores import records
from toolkit.core.windows import instant_text


def audit_router(parts: Operator, guard: Guard) -> APIRouter:
    """The route of the audit trail."""
    router = APIRouter(prefix="/api/audit", tags=["audit"], route_class=OperatorRoute)

    @router.get("", response_model=Page[AuditOut])
    async def list_audit(
        actor: Actor = Depends(guard.sees_caps), limit: int = LIMIT, cursor: str | None = CURSOR
    ) -> dict[str, Any]:
        before = position(cursor)

        def read(connection: Connection) -> tuple[list[records.AuditEntry], dict[str, str]]:
            entries = records.list_audit(connection, actor.organization, before_id=before, limit=limit + 1)
            names = {key.id: key.name for key in records.list_keys(connection, actor.organization)}
            return entries, names

        entries, names = await parts.read(read)
        more = str(entries[limit - 1].id) if len(entries) > limit else None
        return {"items": [_shown(entry, names) for entry in entries[:limit]], "next_cursor": more}

    return router


def _shown(entry: records.AuditEntry, names: dict[str, str]) -> dict[str, Any]:
    return {
        "id": entry.id,
        "at": instant_text(entry.at),
        "actor": entry.actor,
        "actor_name": names.get(entry.actor),
        "action": entry.action,
        "object": entry.object,
        "before": entry.before,
        "after": entry.after,
        "reason": entry.reason,
    }
