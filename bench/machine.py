"""The machine under the bench: which cores and tools there are, what a process has used, where a port is free."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {"nginx": "nginx-light", "wrk": "wrk"}
"""Programs that the bench wants, and the system packages that bring them."""
LITELLM = ROOT / ".bench" / "litellm" / "bin" / "litellm"
"""Where the comparison looks for LiteLLM; `bench/litellm.py` says how to put it there."""

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_START_S = 30


@dataclass(frozen=True, slots=True)
class Cores:
    """`server` runs what is measured, `load` everything else; one and the same where there is only one core."""

    server: int
    load: int

    @property
    def apart(self) -> bool:
        """Whether the load leaves the measured core alone."""
        return self.server != self.load


def cores() -> Cores:
    """The first and the last core that this process may use."""
    usable = sorted(_affinity())
    return Cores(usable[0], usable[-1])


def missing() -> list[str]:
    """The programs that are not installed, each with the package that brings it."""
    absent = [
        f"{name} (package {package})" for name, package in PACKAGES.items() if shutil.which(name) is None
    ]
    return absent if LITELLM.exists() else [*absent, "litellm (see bench/litellm.py)"]


def cpu_s(pid: int) -> float:
    """Seconds of processor time that a process has used, in user and in system mode."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def resident_mb(pid: int) -> float:
    """Megabytes of memory that a process holds."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise LookupError(f"process {pid} has no memory")


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def process(
    command: Sequence[str], *, core: int, port: int, folder: Path, environ: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A server on one core, from when it listens on `port` to the end of the block."""
    with (folder / f"{port}.log").open("wb") as log:
        started = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), **(environ or {})},
            stdout=log,
            stderr=subprocess.STDOUT,
            preexec_fn=lambda: _pin(core),
        )
    try:
        _wait_until_it_listens(started, port, folder / f"{port}.log")
        yield started
    finally:
        started.send_signal(signal.SIGTERM)
        try:
            started.wait(_START_S)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


@contextlib.contextmanager
def pinned(core: int) -> Iterator[None]:
    """This process on one core for the length of the block."""
    before = _affinity()
    _pin(core)
    try:
        yield
    finally:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, before)


def _pin(core: int) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})


def _affinity() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return {0}


def _wait_until_it_listens(started: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and started.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise RuntimeError(f"{started.args!r} did not start: {log.read_text(errors='replace')[-2000:]}")
