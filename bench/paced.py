"""A provider that writes a stream event by event, as real ones do: what each chunk costs a hop, whole streams hide.

python -m bench.paced PORT PAUSE_MS
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import uvloop

from bench.provider import events

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_LAST = b"0\r\n\r\n"


class PacedProvider(asyncio.Protocol):
    """One connection: each request is answered with the whole stream, one event at a time."""

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s
        self._chunks = [b"%x\r\n%b\r\n" % (len(event), event) for event in map(str.encode, events())]
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way back."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Answer once the request's body is whole."""
        self._received += data
        head, blank, body = bytes(self._received).partition(b"\r\n\r\n")
        if not blank:
            return
        length = next(
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length:")
        )
        if len(body) >= length:
            self._received.clear()
            self._transport.write(_HEAD)
            self._write(0)

    def _write(self, number: int) -> None:
        if self._transport.is_closing():
            return
        if number == len(self._chunks):
            self._transport.write(_LAST)
            return
        self._transport.write(self._chunks[number])
        asyncio.get_running_loop().call_later(self._pause_s, self._write, number + 1)


async def _serve(port: int, pause_s: float) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: PacedProvider(pause_s), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1]), int(sys.argv[2]) / 1000))
