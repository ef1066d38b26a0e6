"""`/api/caps`: read by all who may see caps, changed by owners and admins, armed with a reason."""

from __future__ import annotations

import re
from typing import Any

from fastapi import APIRouter, Depends, Header, Response

from gateway.api.errors import OperatorRoute
from gateway.api.parts import CURSOR, LIMIT, Operator, position
from gateway.api.schemas import Arming, CapCreate, CapOut, CapPatch, CapRefusals, Disarming, Page
from gateway.api.security import Guard
from gateway.changes import Actor, ControlError
from gateway.control import public_cap
from gateway.stores.reports import refused_by
from toolkit.core.caps import Cap
from toolkit.core.windows import instant_text

_IF_MATCH: Any = Header(None, description="The cap's version, as last read.")


def caps_router(parts: Operator, guard: Guard) -> APIRouter:
    """The routes of caps."""
    router = APIRouter(prefix="/api/caps", tags=["caps"], route_class=OperatorRoute)
    control = parts.control

    @router.get("", response_model=Page[CapOut])
    async def list_caps(
        actor: Actor = Depends(guard.sees_caps), limit: int = LIMIT, cursor: str | None = CURSOR
    ) -> dict[str, Any]:
        after = position(cursor) or 0
        found = [cap for cap in control.caps(actor.organization) if cap.id > after]
        more = str(found[limit - 1].id) if len(found) > limit else None
        return {"items": [public_cap(cap) for cap in found[:limit]], "next_cursor": more}

    @router.post("", response_model=CapOut, status_code=201)
    async def create_cap(
        body: CapCreate, response: Response, actor: Actor = Depends(guard.changes_caps)
    ) -> dict[str, Any]:
        return _shown(await control.create_cap(actor, body.fields()), response)

    @router.get("/{cap_id}", response_model=CapOut)
    async def read_cap(
        cap_id: int, response: Response, actor: Actor = Depends(guard.sees_caps)
    ) -> dict[str, Any]:
        return _shown(control.cap(actor.organization, cap_id), response)

    @router.get("/{cap_id}/refusals", response_model=CapRefusals)
    async def count_refusals(cap_id: int, actor: Actor = Depends(guard.sees_caps)) -> dict[str, Any]:
        cap = control.cap(actor.organization, cap_id)
        requests = await parts.read(lambda connection: refused_by(connection, cap_id, cap.armed_at))
        since = None if cap.armed_at is None else instant_text(cap.armed_at)
        return {"cap_id": cap_id, "since": since, "requests": requests}

    @router.patch("/{cap_id}", response_model=CapOut)
    async def patch_cap(
        cap_id: int,
        body: CapPatch,
        response: Response,
        actor: Actor = Depends(guard.changes_caps),
        if_match: str | None = _IF_MATCH,
    ) -> dict[str, Any]:
        return _shown(await control.patch_cap(actor, cap_id, version(if_match), body.fields()), response)

    @router.delete("/{cap_id}", status_code=204)
    async def delete_cap(
        cap_id: int, actor: Actor = Depends(guard.changes_caps), if_match: str | None = _IF_MATCH
    ) -> None:
        await control.delete_cap(actor, cap_id, version(if_match))

    @router.post("/{cap_id}/arm", response_model=CapOut)
    async def arm(
        cap_id: int,
        body: Arming,
        response: Response,
        actor: Actor = Depends(guard.changes_caps),
        if_match: str | None = _IF_MATCH,
    ) -> dict[str, Any]:
        return _shown(await control.arm(actor, cap_id, version(if_match), body.reason), response)

    @router.post("/{cap_id}/disarm", response_model=CapOut)
    async def disarm(
        cap_id: int,
        response: Response,
        body: Disarming | None = None,
        actor: Actor = Depends(guard.changes_caps),
    ) -> dict[str, Any]:
        return _shown(await control.disarm(actor, cap_id, body.reason if body else None), response)

    return router


def version(if_match: str | None) -> int | None:
    """The version in an If-Match header, with or without the quotes of an entity tag."""
    if if_match is None:
        return None
    found = re.fullmatch(r'(?:W/)?("?)(\d{1,9})\1', if_match.strip(), re.ASCII)
    if found is None:
        raise ControlError("invalid_request", "If-Match is the version of the cap, such as 3.", "If-Match")
    return int(found[2])


def _shown(cap: Cap, response: Response) -> dict[str, Any]:
    response.headers["etag"] = f'"{cap.version}"'
    return public_cap(cap)
