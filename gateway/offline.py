"""The operator's routes without a network, for the command line while no gateway holds the database's lock.

Requests come as JSON lines on standard input and go through the very routes that a running gateway answers, under the
lock that it would hold, so no rule is written twice. An answer is a JSON line with status and headers, then the body in
counted pieces: a length, a newline, that many bytes; 0 ends it and -1 says that it broke off.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple
from urllib.parse import unquote

from gateway.address import is_held, noted_address
from gateway.settings import Settings
from toolkit.core.errors import CaplineError

if TYPE_CHECKING:
    from gateway.app import Gateway

PATHS = ("/api/", "/health", "/v1/ledger/")
"""What is answered here: the operator's plane. Calls to providers need a gateway."""

PATIENCE_S = 5.0
"""How long another command may hold the lock; a gateway holds it for good, and says where it is."""


async def answer_requests(settings: Settings, *, may_create: bool) -> int:
    """Greet with `{"ready": true}` and answer until standard input ends; or say who holds the lock, or why not."""
    out = sys.stdout.buffer
    is_file = settings.database_url.startswith("sqlite:")
    if is_file and not may_create and not (path := _path_of(settings.database_url)).is_file():
        _line(
            out,
            {"error": f"there is no ledger at {path}; start the gateway once, or set CAPLINE_DATABASE_URL"},
        )
        return 2
    holder = _file_holder if is_file else _server_holder
    until = time.monotonic() + PATIENCE_S
    while (held := holder(settings.database_url)) is not None:
        if held.address is not None or time.monotonic() > until:
            _line(out, {"held": held.address, "error": f"another process is using {held.name}"})
            return 2
        await asyncio.sleep(0.1)
    try:
        await _answer_under_lock(settings, out)
    except CaplineError as error:
        _line(out, {"error": str(error)})
        return 2
    return 0


class _Holder(NamedTuple):
    """Who has the database: its name, and where that process answers."""

    name: str
    address: str | None


def _file_holder(url: str) -> _Holder | None:
    path = _path_of(url)
    return _Holder(str(path), noted_address(path)) if is_held(path) else None


def _server_holder(url: str) -> _Holder | None:
    from gateway.stores import database

    return _Holder(*held) if (held := database.server_holder(url)) is not None else None


def _path_of(url: str) -> Path:
    return Path(url.partition("?")[0].partition(":///")[2])


async def _answer_under_lock(settings: Settings, out: BinaryIO) -> None:
    # A gateway that holds the lock is found without this; it takes most of a second to import.
    from gateway.app import Gateway, admin_token

    gateway = Gateway(settings)
    async with gateway.lifespan(gateway.api):
        gateway.running.database.note_address("")
        token = admin_token(settings)
        _line(out, {"ready": True})
        while line := await asyncio.to_thread(sys.stdin.buffer.readline):
            await _answer(gateway, json.loads(line), token, out)


async def _answer(gateway: Gateway, request: Mapping[str, Any], token: str, out: BinaryIO) -> None:
    """One request through the application. Whoever may open the database is its owner, so the token is ours."""
    path, _, query = str(request["path"]).partition("?")
    if not path.startswith(PATHS):
        _line(out, {"status": 404, "headers": {}})
        out.write(b"0\n")
        out.flush()
        return
    headers = {**request.get("headers", {}), "authorization": f"Bearer {token}", "host": "offline"}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "scheme": "http",
        "method": request["method"],
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        "client": None,
        "server": None,
    }
    body = str(request.get("body") or "").encode()
    sent = False

    async def receive() -> dict[str, Any]:
        nonlocal sent
        if sent:
            await asyncio.Event().wait()  # The command line does not leave before its answer.
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            names = {name.decode(): value.decode() for name, value in message["headers"]}
            _line(out, {"status": message["status"], "headers": names})
        elif message.get("body"):
            _piece(out, message["body"])

    end = b"-1\n"
    with contextlib.suppress(
        Exception
    ):  # The application has logged it; the end of the answer tells of it here.
        await gateway(scope, receive, send)
        end = b"0\n"
    out.write(end)
    out.flush()


def _piece(out: BinaryIO, body: bytes) -> None:
    out.write(b"%d\n" % len(body) + body)
    out.flush()


def _line(out: BinaryIO, message: Mapping[str, Any]) -> None:
    out.write(json.dumps(message).encode() + b"\n")
    out.flush()
