"""The gateway as a bare proxy: its server, client and upstream code, and nothing that a gateway is for.

No keys, tags, caps, prices, counters or ledger, and no task of its own that outlives the client. What it costs is
what a hop in this language costs; what the gateway costs more is the price of the product.

    python -m bench.bare PORT UPSTREAM_URL
"""

from __future__ import annotations

import gc
import sys

import uvicorn

from gateway.client import Client, Receive, Send
from gateway.headers import Names
from gateway.server import OneWriteProtocol
from gateway.upstream import AiohttpUpstream, Answer

_LARGEST_BODY = 32 * 1024 * 1024


class BareProxy:
    """One ASGI callable that passes requests on and answers back."""

    def __init__(self, upstream_url: str) -> None:
        self._upstream_url = upstream_url
        self._upstream: AiohttpUpstream | None = None
        self._names = Names("x-capline")

    async def __call__(self, scope: dict[str, object], receive: Receive, send: Send) -> None:
        """One request."""
        if self._upstream is None:
            self._upstream = AiohttpUpstream()
        client = Client(receive, send)
        body = await client.body(_LARGEST_BODY)
        headers = self._names.to_provider(scope["headers"])  # type: ignore[arg-type]
        out = [*headers, ("authorization", "Bearer sk-bench")]
        answer = await self._upstream.send(f"{self._upstream_url}{scope['path']}", out, body)
        try:
            await self._pass_on(answer, client)
        finally:
            await answer.close()

    async def _pass_on(self, answer: Answer, client: Client) -> None:
        headers = self._names.to_client(answer.headers)
        if (b"content-type", b"text/event-stream") in headers:
            await client.start(answer.status, headers)
            async for chunk in answer.chunks():
                await client.write(chunk)
            await client.end()
        else:
            body = b"".join([chunk async for chunk in answer.chunks()])
            await client.answer(answer.status, headers, body)


def main() -> None:
    """Serve on a port until stopped, with the gateway's own server settings."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000)
    uvicorn.run(
        BareProxy(sys.argv[2]),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http=OneWriteProtocol,
        ws="none",
        lifespan="off",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        log_level="error",
    )


if __name__ == "__main__":
    main()
