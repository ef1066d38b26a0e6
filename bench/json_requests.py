"""JSON requests on one core: the gateway beside an nginx hop and a bare proxy of its own parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench import provider, servers
from bench.figures import Figure, below, ratio, share
from bench.load import Load, Measured, interleaved
from bench.servers import Target
from bench.suite import Setting


def benchmark(setting: Setting) -> Sequence[Figure]:
    """Requests per second at 32 connections, and what one call at a time waits."""
    folder, cores = setting.folder, setting.cores
    with (
        provider.mock(folder, cores.load) as (upstream, _),
        provider.hop(folder, cores.server, upstream) as (hop_port, hop_pid),
        servers.bare(folder, cores.server, f"http://127.0.0.1:{upstream}") as bare,
        servers.gateway(folder, cores.server, f"http://127.0.0.1:{upstream}/v1") as gateway,
    ):
        hop = Target("nginx hop", hop_port, hop_pid)
        many = Load(connections=32, body=provider.REQUEST, seconds=setting.seconds)
        at_32 = interleaved((hop, bare, gateway), many, rounds=setting.rounds, folder=folder, cores=cores)
        one = Load(connections=1, body=provider.REQUEST, seconds=setting.seconds)
        direct = Target("direct", upstream, None)
        at_1 = interleaved((direct, bare, gateway), one, rounds=setting.rounds, folder=folder, cores=cores)
    return [*_at_32(at_32), *_at_1(at_1)]


def _at_32(found: Mapping[str, Measured]) -> Sequence[Figure]:
    hop, bare, gateway = (found[name] for name in ("nginx hop", "bare proxy", "gateway"))
    return [
        *(line(f"{name}, 32 connections", measured) for name, measured in found.items()),
        ratio("gateway / nginx hop, requests per second", gateway.per_s, hop.per_s, at_least=1 / 14),
        ratio("gateway / bare proxy, requests per second", gateway.per_s, bare.per_s, at_least=0.7),
        Figure(what="gateway / nginx hop, by CPU per request", figure=share(hop.cpu_us / gateway.cpu_us)),
        Figure(what="gateway / bare proxy, by CPU per request", figure=share(bare.cpu_us / gateway.cpu_us)),
        Figure(
            what="share of its core that the bare proxy got; far below 1 the machine was busy: read no rates",
            figure=share(bare.cpu_us * bare.per_s / 1e6),
        ),
    ]


def _at_1(found: Mapping[str, Measured]) -> Sequence[Figure]:
    added_ms = (found["gateway"].p50_us - found["direct"].p50_us) / 1000
    return [
        *(line(f"{name}, 1 connection", measured) for name, measured in found.items()),
        below("added p50 of one call at a time", added_ms, 1.5, "ms"),
    ]


def line(what: str, measured: Measured) -> Figure:
    """A measured load as one line."""
    cpu = f", {measured.cpu_us:.0f} µs CPU each" if measured.cpu_us else ""
    waits = f"p50 {measured.p50_us / 1000:.2f} ms, p99 {measured.p99_us / 1000:.1f} ms"
    return Figure(what=what, figure=f"{measured.per_s:,.0f}/s, {waits}{cpu}")
