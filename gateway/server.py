"""uvicorn's HTTP protocol, with the head of an answer and its body in one write.

uvicorn writes them one after the other and the loop sends each at once: two system calls and two packets for most
answers. Here a head waits for what is written next, at most until the loop has run what is ready.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_HEAD = b"HTTP/1.1 "


class OneWriteProtocol(HttpToolsProtocol):
    """For uvicorn's setting `http`."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Put the gathering transport between uvicorn and the connection."""
        super().connection_made(OneWriteTransport(transport, self.loop))


class OneWriteTransport(asyncio.Transport):
    """A transport that keeps a head back until the next write, or the loop's next turn; order is kept."""

    def __init__(self, to: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._to = to
        self._loop = loop
        self._head = b""

    def write(self, data: Any) -> None:
        """Send `data` after a head that waits; keep it when it is one."""
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(_HEAD):
            self._head = data
            self._loop.call_soon(self._flush)
            return
        self._to.write(data)

    def close(self) -> None:
        """Close once everything is sent."""
        self._flush()
        self._to.close()

    def abort(self) -> None:
        """Close at once."""
        self._head = b""
        self._to.abort()

    def is_closing(self) -> bool:
        """Whether it is closed or closing."""
        return self._to.is_closing()

    def pause_reading(self) -> None:
        """Take nothing more from the client for now."""
        self._to.pause_reading()

    def resume_reading(self) -> None:
        """Take from the client again."""
        self._to.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What is known about the connection."""
        return self._to.get_extra_info(name, default)

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._to.write(head)
