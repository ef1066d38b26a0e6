"""Memory of a gateway that idles, and what ten thousand customers on three windows add to it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from bench import machine, provider, servers
from bench.figures import Figure, below
from bench.servers import CHAT, Target
from bench.suite import Setting

CUSTOMERS = 10_000
_CAPS = (("customer", "day"), ("customer", "week"), ("customer", "month"))
_CONNECTIONS = 32


def benchmark(setting: Setting) -> Sequence[Figure]:
    """As many calls of one customer come first, so that only counters can make the difference."""
    folder, cores = setting.folder, setting.cores
    with (
        provider.mock(folder, cores.load) as (upstream, _),
        servers.gateway(folder, cores.server, f"http://127.0.0.1:{upstream}/v1", _CAPS) as gateway,
    ):
        assert gateway.pid is not None
        idle = machine.resident_mb(gateway.pid)
        asyncio.run(_call(gateway, customers=1))
        before = machine.resident_mb(gateway.pid)
        asyncio.run(_call(gateway, customers=CUSTOMERS))
        after = machine.resident_mb(gateway.pid)
    return [
        below("memory of an idle gateway", idle, 120, "MB"),
        Figure(what=f"after {CUSTOMERS:,} calls", figure=f"{before:.3g} MB"),
        below(f"more for {CUSTOMERS:,} customers on three windows", max(0.0, after - before), 20, "MB"),
    ]


async def _call(target: Target, *, customers: int) -> None:
    each = CUSTOMERS // _CONNECTIONS + 1
    await asyncio.gather(
        *(
            _calls(target, range(start, start + each), customers)
            for start in range(0, each * _CONNECTIONS, each)
        )
    )


async def _calls(target: Target, numbers: range, customers: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", target.port)
    body = provider.REQUEST.encode()
    for number in numbers:
        writer.write(
            f"POST {CHAT} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
            f"authorization: Bearer {target.key}\r\nx-capline-tags: customer:c{number % customers}\r\n"
            f"content-length: {len(body)}\r\n\r\n".encode()
            + body
        )
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if not head.startswith(b"http/1.1 200"):
            raise RuntimeError(f"{target.name} answered {head[:80]!r}")
        await reader.readexactly(int(head.partition(b"content-length:")[2].partition(b"\r\n")[0]))
    writer.close()
