"""How an answer leaves: headers, pieces and pauses, or the way in which it fails to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, Final, NamedTuple

from gateway.demo.answers import Answer, Piece
from gateway.demo.controls import LONGEST_WAIT_MS, Controls
from gateway.demo.journal import Entry, Journal

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
RawHeaders = Sequence[tuple[bytes, bytes]]

SLOW_HEADERS_MS: Final = 250
"""How long `slow-headers` holds them back when no delay is set."""

_JSON: Final = b"application/json"
_EVENTS: Final = b"text/event-stream; charset=utf-8"


class Dropped(ConnectionResetError):
    """The connection breaks here. Raised where there is none to close: in an in-process transport."""


class Channel(NamedTuple):
    """The two ends that ASGI gives."""

    receive: Receive
    send: Send


async def deliver(
    answer: Answer, controls: Controls, headers: RawHeaders, entry: Entry, journal: Journal, channel: Channel
) -> None:
    """Send `answer` as ordered. The entry is closed before the last byte leaves, or before the connection breaks."""
    early_headers = answer.stream and controls.fault != "slow-headers"
    if not early_headers:
        await _pause(_delay_ms(controls))
    if controls.fault in ("hang", "drop-before"):
        await _send_nothing(answer, controls, entry, journal, channel)
        return
    entry.status = answer.status
    await start(answer, headers, channel.send)
    if early_headers:
        await _pause(_delay_ms(controls))
    if controls.fault == "drop-mid":
        await _send_half(answer, controls, entry, journal, channel)
        return
    *before, last = answer.pieces
    await _send_pieces(before, controls, entry, channel.send)
    entry.output_tokens += last.tokens
    journal.end(entry, completed=True)
    await channel.send({"type": "http.response.body", "body": last.raw, "more_body": False})


async def start(answer: Answer, headers: RawHeaders, send: Send) -> None:
    """Send the status line and the headers; a stream's length is not told."""
    own = [(b"content-type", _EVENTS if answer.stream else _JSON), *headers]
    if answer.stream:
        own.append((b"cache-control", b"no-cache"))
    else:
        own.append((b"content-length", str(len(answer.pieces[0].raw)).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": own})


async def _send_nothing(
    answer: Answer, controls: Controls, entry: Entry, journal: Journal, channel: Channel
) -> None:
    if controls.fault == "hang":
        await _gone(channel.receive)
    else:
        # The work was done and would be billed; only the answer is lost.
        entry.output_tokens = answer.meters.output_tokens
    journal.end(entry, completed=False)
    await _cut(channel)


async def _send_half(
    answer: Answer, controls: Controls, entry: Entry, journal: Journal, channel: Channel
) -> None:
    await _send_pieces(_first_half(answer), controls, entry, channel.send)
    if not answer.stream:
        entry.output_tokens = answer.meters.output_tokens
    journal.end(entry, completed=False)
    await _cut(channel)


async def _send_pieces(pieces: Sequence[Piece], controls: Controls, entry: Entry, send: Send) -> None:
    for piece in pieces:
        if piece.tokens:
            await _pause(controls.chunk_delay_ms)
        await send({"type": "http.response.body", "body": piece.raw, "more_body": True})
        entry.output_tokens += piece.tokens


def _first_half(answer: Answer) -> Sequence[Piece]:
    """Half of a stream's events, rounded up, or half of a body."""
    if answer.stream:
        return answer.pieces[: -(-len(answer.pieces) // 2)]
    raw = answer.pieces[0].raw
    return [Piece(raw[: len(raw) // 2])]


def _delay_ms(controls: Controls) -> int:
    return controls.delay_ms or (SLOW_HEADERS_MS if controls.fault == "slow-headers" else 0)


async def _pause(milliseconds: int) -> None:
    if milliseconds:
        await asyncio.sleep(milliseconds / 1000)


async def _gone(receive: Receive) -> None:
    """Wait until the client left, ten minutes at most."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LONGEST_WAIT_MS // 1000):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return
                # A simple transport repeats the end of the request without ever waiting.
                await asyncio.sleep(0.05)


async def _cut(channel: Channel) -> None:
    """Break the connection off. ASGI has no word for that, so uvicorn's transport is closed under its hands."""
    transport = getattr(getattr(channel.send, "__self__", None), "transport", None)
    if transport is None:
        raise Dropped("the demo provider was told to drop the connection")
    transport.close()
    await _gone(channel.receive)
