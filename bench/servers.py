"""What is measured, each as a process of its own: a bare proxy, and the gateway with keys, caps, prices, ledger."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import httpx

from bench import machine

CHAT = "/v1/chat/completions"
CAPS = (("organization", "month"), ("key", "day"), ("customer", "month"), ("customer", "day"))
"""Four armed caps, none of which is ever reached."""

_ADMIN = "bench-admin-token"


@dataclass(frozen=True, slots=True)
class Target:
    """Where load goes: a name for the table, a port, the process to watch, a key where one is wanted."""

    name: str
    port: int
    pid: int | None
    key: str = "sk-bench"

    def cpu_s(self) -> float:
        """Processor time used so far; 0 for what is not measured."""
        return 0.0 if self.pid is None else machine.cpu_s(self.pid)


@contextlib.contextmanager
def bare(folder: Path, core: int, upstream_url: str) -> Iterator[Target]:
    """The bare proxy."""
    port = machine.free_port()
    command = [sys.executable, "-m", "bench.bare", str(port), upstream_url]
    with machine.process(command, core=core, port=port, folder=folder) as started:
        yield Target("bare proxy", port, started.pid)


def gateway(
    folder: Path, core: int, upstream_url: str, caps: tuple[tuple[str, str], ...] = CAPS
) -> AbstractContextManager[Target]:
    """The gateway as `python -m gateway serve` runs it, over an empty ledger, with a key and armed caps."""
    return _served("gateway", "gateway", folder, core, upstream_url, caps)


def unwritten(folder: Path, core: int, upstream_url: str) -> AbstractContextManager[Target]:
    """The same without its two commits."""
    return _served("gateway without commits", "bench.unwritten", folder, core, upstream_url, CAPS)


@contextlib.contextmanager
def _served(
    name: str, module: str, folder: Path, core: int, upstream_url: str, caps: tuple[tuple[str, str], ...]
) -> Iterator[Target]:
    port = machine.free_port()
    home = folder / f"gateway-{port}"
    home.mkdir()
    environ = {
        "OPENAI_API_KEY": "sk-bench",
        "CAPLINE_OPENAI_BASE_URL": upstream_url,
        "CAPLINE_DATABASE_URL": f"sqlite:///{home}/capline.db",
        "CAPLINE_ADMIN_TOKEN": _ADMIN,
        "CAPLINE_CUSTOMER_BOUND": "0",
    }
    command = [sys.executable, "-m", module, "serve", "--port", str(port)]
    with machine.process(command, core=core, port=port, folder=home, environ=environ) as started:
        yield Target(name, port, started.pid, _set_up(port, caps))


def _set_up(port: int, caps: tuple[tuple[str, str], ...]) -> str:
    """Make a key and arm the caps over the operator's API; the key's secret."""
    with httpx.Client(
        base_url=f"http://127.0.0.1:{port}/api", headers={"authorization": f"Bearer {_ADMIN}"}, timeout=30
    ) as api:
        secret: str = api.post("/keys", json={"name": "bench"}).raise_for_status().json()["key"]
        for scope, window in caps:
            subject = "default" if scope == "organization" else "*"
            fields = {"scope": scope, "subject": subject, "window": window, "limit_usd": "1000000.00"}
            cap = api.post("/caps", json=fields).raise_for_status().json()
            sent = {"if-match": str(cap["version"])}
            api.post(f"/caps/{cap['id']}/arm", json={"reason": "bench"}, headers=sent).raise_for_status()
    return secret
