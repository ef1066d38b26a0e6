"""Mixed load from many clients at a steady rate: both dialects, half of it streams, some leave early, some call again.

Arrivals do not wait for answers, so that a slow gateway shows as waiting and not as less load. Every call carries a
number of its own: as a free tag, so that its receipt bears it, and as the name of a header, so that the provider's
journal does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from tests.support.servers import GatewayProcess

KINDS = ("chat", "chat stream", "messages", "messages stream")
FINAL = {"chat stream": b"data: [DONE]\n\n", "messages stream": b"event: message_stop\ndata: "}
MOST_RUNNING = 600
"""Calls at once; an arrival beyond them is left out."""


@dataclass(slots=True)
class Call:
    """One call as its client sends and sees it; instants by the monotonic clock."""

    number: str
    kind: str
    customer: str | None
    secret: str
    headers: dict[str, str]
    body: bytes
    leaves: bool
    key: str | None = None
    """Its idempotency key."""
    began: float = 0.0
    ended: float = 0.0
    operation_id: str | None = None
    status: int | None = None
    code: str | None = None
    whole: bool = False
    replayed: bool = False


@dataclass
class Traffic:
    """What clients may ask for. One of it lives through all kills, so that keys come again after a restart."""

    secrets: list[str]
    customers: list[str | None]
    rate: float
    """Arrivals a second."""
    random: random.Random
    hurried: bool = False
    """The provider never pauses, so that what a client waits is the gateway's."""
    calls: list[Call] = field(default_factory=list)
    _keyed: list[Call] = field(default_factory=list)

    def next(self) -> Call:
        """One more call."""
        number = f"n{len(self.calls)}"
        if self._keyed and self.random.random() < 0.03:
            call = self._again(number, self.random.choice(self._keyed[-400:]))
        else:
            call = self._new(number)
        self.calls.append(call)
        return call

    def _new(self, number: str) -> Call:
        pick = self.random.choice
        kind, customer = pick(KINDS), pick(self.customers)
        tags = [*pick([(), ("run:nightly",), ("run:job 7", "agent:a"), ("agent:b",)])]
        if customer is not None:
            tags.append(f"customer:{customer}")
        body = {
            "model": "gpt-4o-mini" if kind.startswith("chat") else "claude-haiku-4-5",
            "messages": [{"role": "user", "content": "word " * pick((1, 40))}],
            "max_tokens": pick((10, 100, 1_000)),
            "stream": kind in FINAL,
        }
        headers = {
            "content-type": "application/json",
            "x-capline-tags": ",".join(tags),
            "x-demo-output-tokens": str(pick((1, 20, 200))),
        }
        if not self.hurried:
            headers["x-demo-chunk-delay-ms"] = str(pick((0, 0, 15)))
            headers["x-demo-delay-ms"] = str(pick((0, 0, 0, 100)))
        leaves = self.random.random() < 0.03
        call = Call(number, kind, customer, pick(self.secrets), headers, json.dumps(body).encode(), leaves)
        if kind not in FINAL and self.random.random() < 0.1:
            call.key = number
            self._keyed.append(call)
        return call

    def _again(self, number: str, first: Call) -> Call:
        same = (first.kind, first.customer, first.secret, first.headers, first.body)
        return Call(number, *same, leaves=False, key=first.key)


class Load:
    """The clients of one stretch of time."""

    def __init__(self, gateway: GatewayProcess, traffic: Traffic) -> None:
        self.left_out = 0
        self._gateway = gateway
        self._traffic = traffic
        self._running: set[asyncio.Task[None]] = set()

    async def run(self, seconds: float, *, kill: bool) -> list[Call]:
        """The calls of so many seconds; then kill the gateway under them, or let those that run end."""
        first = len(self._traffic.calls)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:
            for pause in self._pauses(seconds):
                await asyncio.sleep(pause)
                self._arrive(session)
            if kill:
                self._gateway.kill()
            await asyncio.gather(*self._running)
        return self._traffic.calls[first:]

    def _pauses(self, seconds: float) -> Iterator[float]:
        """How long to wait before each arrival, so that delays of the loop do not lower the rate."""
        due = began = time.monotonic()
        while due < began + seconds:
            due += self._traffic.random.expovariate(self._traffic.rate)
            yield max(0.0, due - time.monotonic())

    def _arrive(self, session: aiohttp.ClientSession) -> None:
        if len(self._running) >= MOST_RUNNING:
            self.left_out += 1
            return
        task = asyncio.create_task(self._one(session, self._traffic.next()))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _one(self, session: aiohttp.ClientSession, call: Call) -> None:
        call.began = time.monotonic()
        with contextlib.suppress(aiohttp.ClientError, ConnectionError, TimeoutError):
            await self._ask(session, call)
        call.ended = time.monotonic()

    async def _ask(self, session: aiohttp.ClientSession, call: Call) -> None:
        path = "/v1/chat/completions" if call.kind.startswith("chat") else "/v1/messages"
        headers = {**call.headers, "authorization": f"Bearer {call.secret}", f"x-call-{call.number}": "1"}
        headers["x-capline-tags"] = f"call:{call.number},{call.headers['x-capline-tags']}".rstrip(",")
        if call.key is not None:
            headers["idempotency-key"] = call.key
        async with session.post(self._gateway.url + path, data=call.body, headers=headers) as reply:
            call.status = reply.status
            call.operation_id = reply.headers.get("x-capline-request-id")
            call.replayed = "x-capline-idempotent-replayed" in reply.headers
            if reply.status == 200 and call.kind in FINAL:
                await self._listen(reply, call)
                return
            answer: dict[str, Any] = json.loads(await reply.read())
            call.whole = True
            error = answer.get("error") or {}
            call.code = error.get("code") or error.get("details", {}).get("error_code")

    async def _listen(self, reply: aiohttp.ClientResponse, call: Call) -> None:
        seen = b""
        async for part in reply.content.iter_any():
            seen += part
            call.whole = call.whole or FINAL[call.kind] in seen
            if call.leaves:
                return
