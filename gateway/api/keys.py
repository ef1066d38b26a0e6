"""`/api/keys`: a secret is shown once, when a key is made or rotated."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends

from gateway.api.errors import OperatorRoute
from gateway.api.parts import CURSOR, LIMIT, Operator, position
from gateway.api.schemas import KeyCreate, KeyCreated, KeyOut, KeyPatch, Page
from gateway.api.security import Guard
from gateway.changes import Actor
from gateway.control_keys import public_key
from gateway.stores import records


def keys_router(parts: Operator, guard: Guard) -> APIRouter:
    """The routes of keys."""
    router = APIRouter(prefix="/api/keys", tags=["keys"], route_class=OperatorRoute)
    control = parts.control

    @router.get("", response_model=Page[KeyOut])
    async def list_keys(
        actor: Actor = Depends(guard.sees_caps), limit: int = LIMIT, cursor: str | None = CURSOR
    ) -> dict[str, Any]:
        start = position(cursor) or 0
        found = await parts.read(lambda connection: records.list_keys(connection, actor.organization))
        more = str(start + limit) if len(found) > start + limit else None
        return {"items": [public_key(key) for key in found[start : start + limit]], "next_cursor": more}

    @router.post("", response_model=KeyCreated, status_code=201)
    async def create_key(body: KeyCreate, actor: Actor = Depends(guard.changes_keys)) -> dict[str, Any]:
        key, secret = await control.create_key(
            actor,
            name=body.name,
            project=body.project,
            role=body.role,
            require_customer=body.require_customer,
        )
        return {**public_key(key), "key": secret}

    @router.patch("/{key_id}", response_model=KeyOut)
    async def patch_key(
        key_id: str, body: KeyPatch, actor: Actor = Depends(guard.changes_keys)
    ) -> dict[str, Any]:
        return public_key(await control.patch_key(actor, key_id, body.fields()))

    @router.post("/{key_id}/rotate", response_model=KeyCreated)
    async def rotate_key(key_id: str, actor: Actor = Depends(guard.changes_keys)) -> dict[str, Any]:
        key, secret = await control.rotate_key(actor, key_id)
        return {**public_key(key), "key": secret}

    @router.delete("/{key_id}", status_code=204)
    async def revoke_key(key_id: str, actor: Actor = Depends(guard.changes_keys)) -> None:
        await control.revoke_key(actor, key_id)

    return router
