"""A scripted provider behind the gateway's upstream seam, with its own count of what it served."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from gateway.upstream import BrokenOff, NotReached


@dataclass
class Reply:
    """What the provider does with one call. `gate` holds the answer back until it is set, one among the chunks the
    rest of it."""

    body: bytes = b""
    chunks: list[bytes | asyncio.Event] = field(default_factory=list)
    status: int = 200
    headers: list[tuple[bytes, bytes]] = field(
        default_factory=lambda: [(b"content-type", b"application/json")]
    )
    gate: asyncio.Event | None = None
    fault: str | None = None
    """`unreached`, `broken` (before any byte), `cut` (after the chunks)."""


@dataclass
class Seen:
    """One call as the provider saw it."""

    url: str
    headers: list[tuple[str, str]]
    body: bytes
    method: str = "POST"

    def header(self, name: str) -> str | None:
        """The first header of a name."""
        return next((value for key, value in self.headers if key.lower() == name), None)


class ScriptedAnswer:
    """An answer of the script."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self.status = reply.status
        self.headers = reply.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body in the script's pieces."""
        if self._reply.chunks:
            for chunk in self._reply.chunks:
                await asyncio.sleep(0)
                if isinstance(chunk, asyncio.Event):
                    await chunk.wait()
                else:
                    yield chunk
        elif self._reply.body:
            yield self._reply.body
        if self._reply.fault == "cut":
            raise BrokenOff("cut")

    async def close(self) -> None:
        """Nothing to let go."""


class ScriptedProvider:
    """Implements the gateway's `Upstream`; `script` turns a call into a reply, `seen` keeps every call."""

    def __init__(self, script: Callable[[Seen], Reply] | None = None) -> None:
        self.script = script or (lambda seen: Reply(body=chat_answer()))
        self.seen: list[Seen] = []
        self._called = asyncio.Event()

    async def send(
        self, url: str, headers: Iterable[tuple[str, str]], body: bytes, method: str = "POST"
    ) -> ScriptedAnswer:
        """One call."""
        seen = Seen(url, list(headers), body, method)
        self.seen.append(seen)
        self._called.set()
        reply = self.script(seen)
        if reply.gate is not None:
            await reply.gate.wait()
        if reply.fault == "unreached":
            raise NotReached("unreached")
        if reply.fault == "broken":
            raise BrokenOff("broken")
        return ScriptedAnswer(reply)

    async def until_called(self, times: int = 1) -> None:
        """Wait until that many calls have come in."""
        while len(self.seen) < times:
            self._called.clear()
            await self._called.wait()

    async def close(self) -> None:
        """Nothing to let go."""


def chat_answer(model: str = "m-small", prompt: int = 10, output: int = 5, **usage: Any) -> bytes:
    """A chat completion with usage."""
    return json.dumps(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": model,
            "choices": [
                {"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}
            ],
            "usage": {
                "prompt_tokens": prompt,
                "completion_tokens": output,
                "total_tokens": prompt + output,
                **usage,
            },
        }
    ).encode()
