"""Load by wrk, and what it and the measured process say about it."""

from __future__ import annotations

import re
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.machine import Cores
from bench.servers import CHAT, Target

_UNITS_US = {"us": 1.0, "ms": 1_000.0, "s": 1_000_000.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One kind of load: how many connections, what they send, for how long."""

    connections: int
    body: str
    seconds: int
    path: str = CHAT
    customers: int = 1
    """Requests go round this many customers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run of a load, or the median of several. `cpu_us` is the server's processor time per request."""

    per_s: float
    p50_us: float
    p99_us: float
    cpu_us: float


def interleaved(
    targets: Sequence[Target], load: Load, *, rounds: int, folder: Path, cores: Cores
) -> dict[str, Measured]:
    """Every target in turn, over and over, so that a busy moment of the machine hits all alike; medians by name."""
    runs: dict[str, list[Measured]] = {target.name: [] for target in targets}
    for target in targets:
        run(target, load, folder=folder, cores=cores, seconds=1)
    for number in range(rounds):
        for target in targets if number % 2 == 0 else reversed(targets):
            runs[target.name].append(run(target, load, folder=folder, cores=cores))
    return {name: _median(measured) for name, measured in runs.items()}


def run(target: Target, load: Load, *, folder: Path, cores: Cores, seconds: int | None = None) -> Measured:
    """Load one target. Raises RuntimeError when any answer is not a success."""
    script = folder / f"load-{target.port}.lua"
    script.write_text(_script(target, load))
    url = f"http://127.0.0.1:{target.port}{load.path}"
    command = ["taskset", "-c", str(cores.load), "wrk", "-t1", f"-c{load.connections}", "--latency"]
    command += ["--timeout", "10s"]  # a slow answer is a figure, not an error
    command += [f"-d{seconds or load.seconds}s", "-s", str(script), url]
    before = target.cpu_s()
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    used = target.cpu_s() - before
    if "Non-2xx" in said or "Socket errors" in said:
        raise RuntimeError(f"{target.name} did not answer every request:\n{said}")
    requests = int(_found(r"(\d+) requests in", said))
    return Measured(
        per_s=float(_found(r"Requests/sec:\s+([\d.]+)", said)),
        p50_us=_latency_us(said, 50),
        p99_us=_latency_us(said, 99),
        cpu_us=used / max(requests, 1) * 1e6,
    )


def _script(target: Target, load: Load) -> str:
    return f"""
        wrk.method = "POST"
        wrk.body = [==[{load.body}]==]
        wrk.headers["content-type"] = "application/json"
        wrk.headers["authorization"] = "Bearer {target.key}"
        local number = 0
        request = function()
            number = number + 1
            wrk.headers["x-capline-tags"] = "customer:" .. (number % {load.customers})
            return wrk.format()
        end
    """


def _latency_us(said: str, percent: int) -> float:
    matched = re.search(rf"{percent}%\s+([\d.]+)(us|ms|s)\b", said)
    assert matched is not None, said
    return float(matched[1]) * _UNITS_US[matched[2]]


def _found(pattern: str, said: str) -> str:
    matched = re.search(pattern, said)
    assert matched is not None, said
    return matched[1]


def _median(runs: Sequence[Measured]) -> Measured:
    return Measured(
        per_s=statistics.median(run.per_s for run in runs),
        p50_us=statistics.median(run.p50_us for run in runs),
        p99_us=statistics.median(run.p99_us for run in runs),
        cpu_us=statistics.median(run.cpu_us for run in runs),
    )
