"""The what-if on the bundled month and on ten copies of it: the first answer, and a new limit after it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial

import polars as pl

import toolkit as tk
from bench.figures import Figure, below
from bench.machine import ROOT
from bench.suite import Setting
from toolkit.core.caps import Cap
from toolkit.core.money import parse_usd
from toolkit.replay import Replay

SAMPLE = ROOT / "data" / "sample" / "receipts.parquet"
COPIES = 10
_LIMITS = ("9", "10", "11", "12", "15")


def benchmark(setting: Setting) -> Sequence[Figure]:
    """Daily caps for every customer: a hundred thousand receipts, then a million."""
    month = pl.read_parquet(SAMPLE)
    tiled = _tiled(month)
    return [*_figures(month, 1.0, 0.25), *_figures(tiled, 8.0, 2.0), _by_customer(tiled)]


def _figures(receipts: pl.DataFrame, first_bar_s: float, again_bar_s: float) -> Sequence[Figure]:
    rows = f"{receipts.height:,} receipts"
    started = time.perf_counter()
    replay = Replay(receipts)
    tk.what_if(replay, [_cap("10")])
    first = time.perf_counter() - started
    again = statistics.median([_seconds(partial(tk.what_if, replay, [_cap(limit)])) for limit in _LIMITS])
    return [
        below(f"what-if, {rows}, first answer", first, first_bar_s, "s"),
        below(f"what-if, {rows}, a new limit", again, again_bar_s, "s"),
    ]


def _by_customer(receipts: pl.DataFrame) -> Figure:
    loaded = tk.Receipts.from_frame(receipts)
    took = _seconds(lambda: tk.spend(loaded, by=("customer",), window="month"))
    return Figure(what=f"spend by customer and month, {receipts.height:,} receipts", figure=f"{took:.3g} s")


def _tiled(month: pl.DataFrame) -> pl.DataFrame:
    """The month several times over, each copy with its own customers, side by side in time."""
    steps = int(month.select(pl.max_horizontal(pl.col("admit_seq").max(), pl.col("settle_seq").max())).item())
    return pl.concat(
        [
            month.with_columns(
                pl.concat_str(pl.col("receipt_id"), pl.lit(f"-{copy}")).alias("receipt_id"),
                pl.concat_str(pl.col("customer"), pl.lit(f"-{copy}")).alias("customer"),
                pl.col("admit_seq") + copy * steps,
                pl.col("settle_seq") + copy * steps,
            )
            for copy in range(COPIES)
        ]
    )


def _cap(limit_usd: str) -> Cap:
    return Cap(id=1, scope="customer", subject="*", window="day", limit_nano_usd=parse_usd(limit_usd))


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
