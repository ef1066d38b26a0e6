"""The client's end of a call: what leaves through ASGI, and whether anybody is still there to read it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from gateway.upstream import RawHeaders

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class BodyTooLarge(Exception):
    """More bytes than CAPLINE_MAX_BODY_BYTES."""


class ClientLeft(Exception):
    """The client went away before its request was read."""


class Client:
    """Sends until the client has left; from then on everything is dropped, and the call goes on without it."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self.left = False
        self.started = False
        self._on_left: Callable[[], None] | None = None

    async def body(self, most: int) -> bytes:
        """The whole request body. Raises BodyTooLarge or ClientLeft."""
        parts: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientLeft
            part = message.get("body", b"")
            size += len(part)
            if size > most:
                raise BodyTooLarge
            if not message.get("more_body", False):
                return part if not parts else b"".join((*parts, part))
            parts.append(part)

    async def watch(self) -> None:
        """Return when the client has gone."""
        while (await self._receive())["type"] != "http.disconnect":
            continue
        self.leave()

    def leave(self) -> None:
        """Note that nobody reads any more."""
        if not self.left:
            self.left = True
            if self._on_left is not None:
                self._on_left()

    def when_left(self, act: Callable[[], None]) -> None:
        """Have `act` called once nobody reads any more: now, when that is so already."""
        self._on_left = act
        if self.left:
            act()

    async def start(self, status: int, headers: RawHeaders) -> None:
        """Status and headers."""
        self.started = True
        await self._out({"type": "http.response.start", "status": status, "headers": list(headers)})

    async def write(self, body: bytes) -> None:
        """A part of the body."""
        await self._out({"type": "http.response.body", "body": body, "more_body": True})

    async def end(self, body: bytes = b"") -> None:
        """The last part of the body."""
        await self._out({"type": "http.response.body", "body": body, "more_body": False})

    async def answer(self, status: int, headers: RawHeaders, body: bytes) -> None:
        """A whole answer of known length."""
        await self.start(status, [*headers, (b"content-length", b"%d" % len(body))])
        await self.end(body)

    async def break_off(self, status: int) -> None:
        """Leave an answer unended, begun or not: the server breaks the connection when the call returns."""
        if not self.started:
            await self.start(status, [(b"content-length", b"1")])

    async def _out(self, message: Message) -> None:
        if self.left:
            return
        try:
            await self._send(message)
        except OSError:
            self.leave()
