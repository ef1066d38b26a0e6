"""A client at the level of ASGI messages: sees what leaves, in order, as it leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from gateway.app import Gateway


class RawClient:
    """Sends one request and keeps every message of the answer. `on_message` runs before each is kept."""

    def __init__(self, on_message: Callable[[dict[str, Any]], None] | None = None) -> None:
        self.messages: list[dict[str, Any]] = []
        self.gone = asyncio.Event()
        self._on_message = on_message

    async def post(
        self,
        gateway: Gateway,
        path: str,
        body: bytes,
        headers: list[tuple[bytes, bytes]],
        *,
        query: bytes = b"",
    ) -> None:
        """Run the request to its end."""
        waiting = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if waiting:
                return waiting.pop()
            await self.gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if self.gone.is_set():
                raise OSError("gone")
            if self._on_message is not None:
                self._on_message(dict(message))
            self.messages.append(dict(message))

        scope = {"type": "http", "method": "POST", "path": path, "query_string": query, "headers": headers}
        await gateway(scope, receive, send)

    @property
    def body(self) -> bytes:
        """All that came."""
        return b"".join(message.get("body", b"") for message in self.messages)

    @property
    def ended(self) -> bool:
        """Whether the answer was ended properly; False when the connection broke."""
        return bool(self.messages) and not self.messages[-1].get("more_body", True)
