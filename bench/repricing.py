"""Repricing: ten million receipts derived again from a list, and the most memory that it took."""

from __future__ import annotations

import resource
import time
from collections.abc import Sequence

import polars as pl

import toolkit as tk
from bench.figures import Figure, below
from bench.replay import SAMPLE
from bench.suite import Setting

RECEIPTS = 10_000_000
_MB = 1_024
"""Linux gives the most memory of a process in kibibytes."""


def benchmark(setting: Setting, receipts: int = RECEIPTS) -> Sequence[Figure]:
    """The bundled sample over and over, read from its file as it goes, each receipt priced by its month's list."""
    sample = pl.scan_parquet(SAMPLE)
    copies = -(-receipts // sample.select(pl.len()).collect().item())
    many = pl.concat([sample.with_columns(_renamed(copy)) for copy in range(copies)])
    prices = tk.price_lists()[-1]
    started, worked = time.perf_counter(), time.process_time()
    found = (
        tk.reprice(many, prices)
        .select(
            rows=pl.len(),
            priced=pl.col("recomputed_cost_nano_usd").count(),
            cost=pl.col("recomputed_cost_nano_usd").cast(pl.Int128).sum(),
        )
        .collect(engine="streaming")
    )
    took, worked = time.perf_counter() - started, time.process_time() - worked
    rows, priced, _ = found.row(0)
    what = f"{rows:,} receipts repriced"
    return [
        Figure(what=f"{what}, {priced:,} of them priced", figure=f"{took:.3g} s"),
        below("CPU for a receipt of them", worked / rows * 1e6, 10, "µs"),
        below("the most memory of that process", _most_memory() / _MB, 4_000, "MB"),
    ]


def _renamed(copy: int) -> pl.Expr:
    return pl.concat_str(pl.col("receipt_id"), pl.lit(f"-{copy}")).alias("receipt_id")


def _most_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
