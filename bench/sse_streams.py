"""Streams of 53 events on one core: in one write as fast as they go, and event by event as providers send them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence

from bench import machine, provider, servers, streams
from bench.figures import Figure, below, ratio
from bench.load import Load, Measured, interleaved
from bench.provider import EVENTS
from bench.servers import CHAT, Target
from bench.streams import Streamed
from bench.suite import Setting

PAUSE_MS = 2
"""Between two events of a paced stream."""


def benchmark(setting: Setting) -> Sequence[Figure]:
    """Chunks per second and core, and the wait for the first of them."""
    folder, cores = setting.folder, setting.cores
    with provider.mock(folder, cores.load) as (_, upstream), _targets(setting, upstream) as targets:
        load = Load(connections=16, body=provider.STREAM_REQUEST, seconds=setting.seconds)
        whole = interleaved(targets, load, rounds=setting.rounds, folder=folder, cores=cores)
        direct = Target("direct", upstream, None)
        first = streams.interleaved(
            (direct, *targets), CHAT, connections=1, streams=100, rounds=setting.rounds, cores=cores
        )
    with _paced(setting) as upstream, _targets(setting, upstream) as targets:
        paced = streams.interleaved(
            targets, CHAT, connections=16, streams=10, rounds=setting.rounds, cores=cores
        )
    return [*_whole(whole), *_first(first), *_paced_figures(paced)]


def _whole(found: Mapping[str, Measured]) -> Sequence[Figure]:
    """No bar here: to a hop that only moves bytes a whole stream is one chunk, and measures as a request does."""
    return [
        Figure(
            what=f"{name}, 16 streams at once, each in one write",
            figure=f"{one.per_s * EVENTS:,.0f} events/s, {one.cpu_us / EVENTS:.1f} µs CPU each",
        )
        for name, one in found.items()
    ]


def _first(found: Mapping[str, Streamed]) -> Sequence[Figure]:
    lines = [
        Figure(what=f"{name}, wait for the first chunk", figure=f"{one.first_chunk_us / 1000:.2f} ms")
        for name, one in found.items()
    ]
    added_ms = (found["gateway"].first_chunk_us - found["direct"].first_chunk_us) / 1000
    return [*lines, below("added wait for the first chunk, one stream at a time", added_ms, 3, "ms")]


def _paced_figures(found: Mapping[str, Streamed]) -> Sequence[Figure]:
    lines = [
        Figure(what=f"{name}, 16 streams at once, event by event", figure=f"{one.cpu_us:.1f} µs CPU each")
        for name, one in found.items()
    ]
    gateway, hop = found["gateway"], found["nginx hop"]
    what = "gateway / nginx hop, events per second of CPU, event by event"
    return [*lines, ratio(what, hop.cpu_us, gateway.cpu_us, at_least=1 / 3)]


@contextlib.contextmanager
def _targets(setting: Setting, upstream: int) -> Iterator[tuple[Target, Target, Target]]:
    folder, core = setting.folder, setting.cores.server
    with (
        provider.hop(folder, core, upstream) as (port, pid),
        servers.bare(folder, core, f"http://127.0.0.1:{upstream}") as bare,
        servers.gateway(folder, core, f"http://127.0.0.1:{upstream}/v1") as gateway,
    ):
        yield Target("nginx hop", port, pid), bare, gateway


@contextlib.contextmanager
def _paced(setting: Setting) -> Iterator[int]:
    port = machine.free_port()
    command = [sys.executable, "-m", "bench.paced", str(port), str(PAUSE_MS)]
    with machine.process(command, core=setting.cores.load, port=port, folder=setting.folder):
        yield port
