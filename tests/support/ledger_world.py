"""A gateway in a world that is moved by hand, one step at a time: its clocks, disk, provider and clients."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import RowMapping, event, select
from sqlalchemy.exc import OperationalError

from gateway.app import Gateway
from gateway.stores.open_calls import open_calls
from gateway.stores.rows import row_to_json
from gateway.stores.tables import receipts
from tests.support.clock import ManualClock
from tests.support.gateway import Harness, running_gateway
from tests.support.provider import Reply, ScriptedProvider, Seen, chat_answer
from tests.support.raw_client import RawClient

T = TypeVar("T")
SSE = [(b"content-type", b"text/event-stream")]
DONE = b"data: [DONE]\n\n"
HOLD_TTL_S, DRAIN_S = 900, 300


class SkewedLoop(asyncio.SelectorEventLoop):
    """A loop whose own clock can be put forward, with every timer on it."""

    skew = 0.0

    def time(self) -> float:
        """Seconds, as the timers see them."""
        return super().time() + self.skew


@dataclass(eq=False)
class Call:
    """One call as its client and its provider know it. `output` is what the provider will say that it wrote."""

    number: int
    customer: str
    stream: bool
    output: int
    admitted_at: datetime
    reply: Reply
    client: RawClient
    gate: asyncio.Event
    task: asyncio.Task[None] | None = None
    end: str | None = None
    """How its provider's part ended, once it has."""
    killed: bool = False

    @property
    def cost(self) -> int:
        """What it costs in nano-USD: 10 tokens in at 1 USD a million, the output at 4."""
        return 10 * 1_000 + self.output * 4_000

    @property
    def runs(self) -> bool:
        """Whether the gateway still works on it."""
        return self.task is not None and not self.task.done()

    @property
    def whole(self) -> bool:
        """Whether its client has the whole answer of a provider that served it."""
        return self.client.ended and self.client.messages[0]["status"] == 200


@dataclass
class World:
    """Runs a gateway; `kill` and `restart` leave the database as it is."""

    folder: Path
    clock: ManualClock = field(default_factory=lambda: ManualClock(datetime(2026, 11, 30, 22, tzinfo=UTC)))
    calls: list[Call] = field(default_factory=list)
    broken: bool = False
    running: bool = False

    def __post_init__(self) -> None:
        self.loop = SkewedLoop()
        self.provider = ScriptedProvider(self._script)
        self._stack = contextlib.AsyncExitStack()
        self.run(self._start())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """One step."""
        return self.loop.run_until_complete(work)

    @property
    def gateway(self) -> Gateway:
        """The one that runs."""
        return self.harness.gateway

    async def _start(self) -> None:
        self.harness: Harness = await self._stack.enter_async_context(
            running_gateway(
                self.folder,
                provider=self.provider,
                clock=self.clock,
                hold_ttl_s=HOLD_TTL_S,
                drain_s=DRAIN_S,
            )
        )
        self.engine = self.gateway.running.database.engine
        self.running = True
        event.listen(self.engine, "before_cursor_execute", self._fail)

    def _fail(self, _c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if self.broken and statement.lstrip().upper().startswith(("INSERT", "UPDATE", "DELETE")):
            raise OperationalError("the disk", {}, Exception("is full"))

    def _script(self, seen: Seen) -> Reply:
        return self.calls[int(json.loads(seen.body)["user"])].reply

    async def admit(self, customer: str, output: int, *, stream: bool) -> Call:
        """Send a call; it is refused, or waits for its provider."""
        gate = asyncio.Event()
        reply = Reply(gate=gate)
        if stream:
            reply = Reply(chunks=[_event(delta={"content": "a"}), gate], headers=SSE)
        call = Call(len(self.calls), customer, stream, output, self.clock(), reply, RawClient(), gate)
        self.calls.append(call)
        body = {"model": "m-small", "max_tokens": 50, "messages": [], "user": str(call.number)}
        headers = [
            (b"authorization", b"Bearer " + self.harness.secret.encode()),
            (b"x-capline-tags", f"customer:{customer}, call:{call.number}".encode()),
        ]
        sent = json.dumps(body | ({"stream": True} if stream else {})).encode()
        seen = len(self.provider.seen)
        call.task = self.loop.create_task(
            call.client.post(self.gateway, "/v1/chat/completions", sent, headers)
        )
        called = self.loop.create_task(self.provider.until_called(seen + 1))
        await asyncio.wait((call.task, called), return_when=asyncio.FIRST_COMPLETED)
        called.cancel()
        return call

    async def finish(self, call: Call, how: str) -> None:
        """Let the provider's part of a call end, and wait until the gateway is done with it."""
        call.end, reply = how, call.reply
        if how in ("served", "unknown usage"):
            if call.stream:
                usage = {"prompt_tokens": 10, "completion_tokens": call.output}
                told = [_event(usage=usage)] if how == "served" else []
                reply.chunks.extend([*told, DONE])
            else:
                body = json.loads(chat_answer(prompt=10, output=call.output))
                reply.body = json.dumps(body if how == "served" else body | {"usage": None}).encode()
        elif call.stream or how == "broken":
            reply.fault = "cut" if call.stream else "broken"
        else:
            reply.status, reply.body = int(how), b"{}"
        call.gate.set()
        await self.settled(call)

    async def settled(self, *calls: Call) -> None:
        """Wait until the gateway is done with calls."""
        tasks = [call.task for call in calls if call.task is not None]
        if tasks:
            await asyncio.wait(tasks)
        for task in tasks:
            task.result()

    async def leave(self, call: Call) -> None:
        """The client goes away."""
        call.client.gone.set()
        self.loop.skew += 1  # a client is watched once its call has run for a moment
        await self.turn()

    async def pass_time(self, seconds: float) -> None:
        """Time passes: on the wall, and for every timer."""
        self.loop.skew += seconds
        self.clock.advance(seconds=seconds)
        await self.turn()

    async def turn(self) -> None:
        """Let everything that is due happen, and wait for the disk."""
        for _ in range(20):
            await asyncio.sleep(0)
        await self.gateway.running.services.ledger.writer.run(lambda _: None)
        for _ in range(5):
            await asyncio.sleep(0)

    async def mend(self) -> None:
        """The disk takes what is written again; wait until all that was kept elsewhere is in the ledger."""
        self.broken = False
        writer = self.gateway.running.services.ledger.writer
        async with asyncio.timeout(10):
            while writer.failed is not None or not writer.spool.is_empty:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        await self.turn()

    async def stop(self, *, kill: bool) -> None:
        """End the gateway: after its calls have been cut off in order, or with nothing more written."""
        self.broken = self.broken or kill
        if kill:
            spool = self.gateway.running.services.ledger.writer.spool
            spool._append = _dead  # type: ignore[method-assign]
        for call in self.calls:
            call.killed = call.killed or call.runs
        await self.gateway.running.plane.cut_off()
        await self._stack.aclose()
        self.running = False
        event.remove(self.engine, "before_cursor_execute", self._fail)
        self.broken = False

    async def restart(self, *, kill: bool) -> None:
        """End it and start it again on what it left."""
        await self.stop(kill=kill)
        await self._start()

    def close(self) -> None:
        """End the world."""
        if self.running:
            self.run(self.stop(kill=False))
        self.loop.close()

    async def rows(self) -> list[dict[str, Any]]:
        """Every receipt as the export has it, in the order of the ledger."""
        query = select(receipts).order_by(receipts.c.row_seq)
        found = await self.gateway.running.services.ledger.writer.run(
            lambda connection: connection.execute(query).all()
        )
        return [row_to_json(row._asdict()) for row in found]

    async def intents(self) -> Sequence[RowMapping]:
        """The open intents."""
        return await self.gateway.running.services.ledger.writer.run(open_calls)


def _dead(_lines: bytes) -> None:
    raise OSError(errno.EIO, "a killed process writes nothing")


def _event(**fields: Any) -> bytes:
    """One chunk of a chat stream."""
    choices = [] if "usage" in fields else [{"index": 0, "finish_reason": None, "delta": fields.pop("delta")}]
    data = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "m-small", "choices": choices}
    return b"data: " + json.dumps(data | fields).encode() + b"\n\n"
