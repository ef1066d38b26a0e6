"""A client of streams: when the first chunk comes, and that each stream comes whole."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench.machine import Cores, pinned
from bench.provider import EVENTS, STREAM_REQUEST
from bench.servers import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Streamed:
    """One run of streams, or the median of several. `cpu_us` is the server's processor time per event."""

    first_chunk_us: float
    events_per_s: float
    cpu_us: float


def interleaved(
    targets: Sequence[Target], path: str, *, connections: int, streams: int, rounds: int, cores: Cores
) -> dict[str, Streamed]:
    """Every target in turn, over and over; medians by name."""
    runs: dict[str, list[Streamed]] = {target.name: [] for target in targets}
    with pinned(cores.load):
        for number in range(rounds + 1):
            for target in targets if number % 2 == 0 else reversed(targets):
                done = asyncio.run(_run(target, path, connections, streams))
                if number > 0:  # the first round warms up
                    runs[target.name].append(done)
    return {name: _median(streamed) for name, streamed in runs.items()}


async def _run(target: Target, path: str, connections: int, streams: int) -> Streamed:
    before, started = target.cpu_s(), time.perf_counter()
    waits = await asyncio.gather(*(_read_streams(target, path, streams) for _ in range(connections)))
    took, used = time.perf_counter() - started, target.cpu_s() - before
    events = connections * streams * EVENTS
    first = statistics.median([wait for one in waits for wait in one])
    return Streamed(first_chunk_us=first * 1e6, events_per_s=events / took, cpu_us=used / events * 1e6)


async def _read_streams(target: Target, path: str, streams: int) -> list[float]:
    """Seconds from each request to its first chunk, over one connection that is kept."""
    reader, writer = await asyncio.open_connection("127.0.0.1", target.port)
    request = _request(target, path)
    waits: list[float] = []
    for _ in range(streams):
        sent = time.perf_counter()
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if not head.startswith(b"http/1.1 200"):
            raise RuntimeError(f"{target.name} answered {head[:80]!r}")
        first = await reader.read(65_536)
        waits.append(time.perf_counter() - sent)
        await _read_to_the_end(reader, head, first)
    writer.close()
    return waits


async def _read_to_the_end(reader: asyncio.StreamReader, head: bytes, first: bytes) -> None:
    """The rest of a body of known length, or up to the chunk of length 0. Raises RuntimeError when it is cut."""
    whole = bytearray(first)
    length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
    while (len(whole) < int(length)) if length else (not whole.endswith(b"0\r\n\r\n")):
        part = await reader.read(65_536)
        if not part:
            raise RuntimeError("a stream was cut off")
        whole += part
    if whole.count(b"data: ") != EVENTS:
        raise RuntimeError(f"a stream had {whole.count(b'data: ')} events instead of {EVENTS}")


def _request(target: Target, path: str) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer {target.key}\r\nx-capline-tags: customer:1\r\n"
        f"content-length: {len(STREAM_REQUEST)}\r\n\r\n"
    )
    return (head + STREAM_REQUEST).encode()


def _median(runs: Sequence[Streamed]) -> Streamed:
    return Streamed(
        first_chunk_us=statistics.median(run.first_chunk_us for run in runs),
        events_per_s=statistics.median(run.events_per_s for run in runs),
        cpu_us=statistics.median(run.cpu_us for run in runs),
    )
