"""`/api/docs`: every route on one page that asks no other host for anything, and the answer to unknown routes."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, JSONResponse

from gateway.api.errors import OperatorRoute, refuse

_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
_HEADERS = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}
_STYLE = (
    "body{font:15px/1.5 system-ui;margin:3rem auto;max-width:60rem}td{padding:.2rem .8rem;vertical-align:top}"
)


def docs_router() -> APIRouter:
    """The page of routes, its OpenAPI source, and the last route of all."""
    router = APIRouter(route_class=OperatorRoute, include_in_schema=False)

    @router.get("/api/openapi.json")
    async def openapi(request: Request) -> JSONResponse:
        return JSONResponse(request.app.openapi())

    @router.get("/api/docs")
    async def docs(request: Request) -> HTMLResponse:
        rows = "".join(_rows(request.app.openapi()))
        page = (
            f"<!doctype html><html lang=en><meta charset=utf-8><title>Capline API</title><style>{_STYLE}</style>"
            "<h1>Capline API</h1><p>Send <code>Authorization: Bearer</code> with the admin token or an operator "
            "key. Shapes: <a href=/api/openapi.json>/api/openapi.json</a>.</p><table>"
            f"{rows}</table></html>"
        )
        return HTMLResponse(page, headers=_HEADERS)

    @router.api_route("/{unknown:path}", methods=_METHODS)
    async def unknown(request: Request) -> JSONResponse:
        known = request.app.openapi()["paths"]
        if any(_same(path, request.url.path) for path in known):
            return refuse("method_not_allowed", f"{request.method} is not a method of this route.")
        return refuse("not_found", "There is no such route; /api/docs lists them.")

    return router


def _rows(openapi: dict[str, Any]) -> Iterator[str]:
    for path, methods in openapi["paths"].items():
        for method, route in methods.items():
            asked = ", ".join(parameter["name"] for parameter in route.get("parameters", ()))
            yield (
                f"<tr><td><b>{escape(method.upper())}</b></td><td><code>{escape(path)}</code></td>"
                f"<td>{escape(route.get('summary', ''))}</td><td>{escape(asked)}</td></tr>"
            )


def _same(template: str, path: str) -> bool:
    """Whether a path could be one of a template such as /api/caps/{cap_id}."""
    wanted, sent = template.split("/"), path.split("/")
    return len(wanted) == len(sent) and all(
        one.startswith("{") or one == other for one, other in zip(wanted, sent, strict=True)
    )
