"""What a receipt costs: the gateway beside itself without its two commits, at one, few and many calls at once."""

from __future__ import annotations

from collections.abc import Sequence

from bench import provider, servers
from bench.figures import Figure, share
from bench.load import Load, Measured, interleaved
from bench.suite import Setting

CONNECTIONS = (1, 32, 256)


def benchmark(setting: Setting) -> Sequence[Figure]:
    """Requests per second, waits and processor time, as ratios, interleaved in one run."""
    folder, cores = setting.folder, setting.cores
    found: list[Figure] = []
    with (
        provider.mock(folder, cores.load) as (upstream, _),
        servers.gateway(folder, cores.server, f"http://127.0.0.1:{upstream}/v1") as gateway,
        servers.unwritten(folder, cores.server, f"http://127.0.0.1:{upstream}/v1") as unwritten,
    ):
        for connections in CONNECTIONS:
            load = Load(connections=connections, body=provider.REQUEST, seconds=setting.seconds)
            runs = interleaved((gateway, unwritten), load, rounds=setting.rounds, folder=folder, cores=cores)
            found += _figures(connections, runs[gateway.name], runs[unwritten.name])
    return found


def _figures(connections: int, written: Measured, unwritten: Measured) -> Sequence[Figure]:
    calls = f"{connections} call{'s' * (connections > 1)} at once"
    return [
        _figure(f"{calls}, two commits / none: requests per second", written.per_s, unwritten.per_s, "/s"),
        _figure(f"{calls}, CPU of a call", written.cpu_us, unwritten.cpu_us, " µs"),
        _figure(f"{calls}, p50", written.p50_us / 1000, unwritten.p50_us / 1000, " ms"),
        _figure(f"{calls}, p99", written.p99_us / 1000, unwritten.p99_us / 1000, " ms"),
    ]


def _figure(what: str, written: float, unwritten: float, unit: str) -> Figure:
    digits = 2 if unit == " ms" else 0
    return Figure(
        what=what,
        figure=f"{share(written / unwritten)} ({written:,.{digits}f}{unit} / {unwritten:,.{digits}f}{unit})",
    )
