"""Every answer of no under /api in one shape: `{"error": {"code", "message", "field"}}`.

A route class catches them, because an application's own handlers are fixed before its lifespan adds these routes.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Coroutine, Mapping, Set
from typing import Any

from fastapi import HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from sqlalchemy.exc import SQLAlchemyError

from gateway.changes import ControlError, ErrorCode
from toolkit.core.errors import InvalidCap, StoreUnavailable

_log = logging.getLogger("capline.api")

MOST_BODY_BYTES = 262_144

STATUSES: Mapping[ErrorCode, int] = {
    "invalid_request": 422,
    "invalid_api_key": 401,
    "permission_denied": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "version_conflict": 409,
    "not_correctable": 409,
    "not_droppable": 409,
    "month_dropped": 409,
    "version_required": 428,
    "store_unavailable": 503,
    "internal_error": 500,
}
READ_ONLY = frozenset(
    {
        "id",
        "limit_nano_usd",
        "hard_stop",
        "version",
        "created_at",
        "updated_at",
        "updated_by",
        "armed_at",
        "hint",
        "revoked_at",
    }
)


class OperatorRoute(APIRoute):
    """A route whose errors are all of one shape."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The route's handler, guarded."""
        handle = super().get_route_handler()
        known = {field.alias for field in self.dependant.query_params} if self.include_in_schema else None

        async def guarded(request: Request) -> Response:
            try:
                _refuse_large(request)
                _refuse_nul(request)
                if known is not None:
                    _refuse_unknown(request, known)
                return await handle(request)
            except Exception as error:
                return answer_to(error)

        return guarded


def _refuse_large(request: Request) -> None:
    """Bodies here are small and say their length, so that none has to be read to be refused."""
    if "transfer-encoding" in request.headers:
        raise HTTPException(411, "Send the request's body with a Content-Length.")
    declared = request.headers.get("content-length", "0")
    if not declared.isdecimal() or int(declared) > MOST_BODY_BYTES:
        raise HTTPException(413, f"The request body is larger than {MOST_BODY_BYTES} bytes.")


def _refuse_nul(request: Request) -> None:
    """Nothing that is stored has one, and PostgreSQL would take the question for an error."""
    if "\0" in request.scope["path"]:
        raise ControlError("not_found", "There is nothing of that id.")
    for name, value in request.query_params.items():
        if "\0" in value:
            raise ControlError("invalid_request", f"{name} holds a NUL.", name)


def _refuse_unknown(request: Request, known: Set[str]) -> None:
    """A misspelt filter would answer with everything."""
    for name in request.query_params:
        if name not in known:
            raise ControlError("invalid_request", f"{name} is not a parameter of this route.", name)


def answer_to(error: Exception) -> Response:
    """The answer to whatever a route raised. Its text is shown only where we wrote it ourselves."""
    match error:
        case ControlError():
            return refuse(error.code, str(error), error.field)
        case InvalidCap():
            return refuse("invalid_request", str(error), error.field)
        case RequestValidationError():
            return _invalid(error)
        case StoreUnavailable() | SQLAlchemyError():
            _log.error("the database did not answer: %s", type(error).__name__)
            return refuse("store_unavailable", "The database did not answer; nothing was changed.")
        case HTTPException():
            return refuse("invalid_request", str(error.detail), status=error.status_code)
    # The error's own text may hold a customer's value; where it happened does not.
    where = "".join(traceback.format_tb(error.__traceback__)[-3:])
    _log.error("an operator request failed: %s\n%s", type(error).__name__, where)
    return refuse("internal_error", "The request failed; the gateway's log says where.")


def refuse(
    code: ErrorCode, message: str, field: str | None = None, *, status: int | None = None
) -> JSONResponse:
    """One answer of no."""
    body = {"code": code, "message": message} | ({} if field is None else {"field": field})
    headers = {"www-authenticate": "Bearer"} if code == "invalid_api_key" else None
    return JSONResponse({"error": body}, status or STATUSES[code], headers)


def _invalid(error: RequestValidationError) -> JSONResponse:
    first = error.errors()[0]
    where = [str(part) for part in first["loc"]]
    if first["type"] == "json_invalid":
        return refuse("invalid_request", "The body is not JSON.", status=400)
    if where[0] == "path":
        return refuse("not_found", "There is nothing of that id.")
    field = ".".join(part for part in where[1:] if not part.isdecimal()) or None
    name = where[-1]
    if first["type"] == "extra_forbidden":
        read_only = (
            f"{name} is read-only." if name in READ_ONLY else f"{name} is not a field of this request."
        )
        return refuse("invalid_request", read_only, field)
    if first["type"] == "missing":
        return refuse(
            "invalid_request",
            "The request has no JSON body." if field is None else f"{field} is missing.",
            field,
        )
    words = str(first["msg"]).removeprefix("Value error, ")
    return refuse("invalid_request", words if field is None else f"{field}: {words}", field)
