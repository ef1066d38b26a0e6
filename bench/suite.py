"""The benchmarks: each is a function from a setting to its figures. To add one, write it and name it here."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.figures import Figure
from bench.machine import Cores


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where and how long to measure."""

    folder: Path
    """For configurations, databases and logs; removed afterwards."""
    cores: Cores
    seconds: int
    """Of one run of one load."""
    rounds: int
    """Runs of each load, of which the median counts."""


Benchmark = Callable[[Setting], Sequence[Figure]]


@dataclass(frozen=True, slots=True)
class Entry:
    """A benchmark by name: its module is imported when it is run, the programs it needs are known before."""

    module: str
    title: str
    needs: tuple[str, ...] = ()

    def run(self, setting: Setting) -> Sequence[Figure]:
        """Import it and measure."""
        benchmark: Benchmark = importlib.import_module(f"bench.{self.module}").benchmark
        return benchmark(setting)


BENCHMARKS: dict[str, Entry] = {
    "requests": Entry("json_requests", "Requests", needs=("nginx", "wrk")),
    "streams": Entry("sse_streams", "Streams", needs=("nginx", "wrk")),
    "commits": Entry("commits", "What a receipt costs", needs=("nginx", "wrk")),
    "litellm": Entry("litellm", "Beside LiteLLM's proxy", needs=("nginx", "wrk", "litellm")),
    "memory": Entry("memory", "Memory", needs=("nginx",)),
    "kernel": Entry("kernel", "The kernel alone"),
    "whatif": Entry("replay", "The what-if"),
    "repricing": Entry("repricing", "Ten million receipts repriced"),
    "month": Entry("month", "The model against a live gateway, the whole month"),
}


def measure(name: str, seconds: int, rounds: int, cores: Cores) -> Sequence[Figure]:
    """One benchmark, in a folder that is there only as long."""
    with tempfile.TemporaryDirectory(prefix="capline-bench-") as folder:
        setting = Setting(folder=Path(folder), cores=cores, seconds=seconds, rounds=rounds)
        return BENCHMARKS[name].run(setting)
