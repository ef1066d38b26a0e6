"""The model against reality: the whole bundled month through a live gateway, and through `tk.what_if`.

Not a race but a proof, too long for the tests: every call of the month is sent, and every verdict compared.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from bench.figures import Figure
from bench.suite import Setting
from tests.support.month_model import held_apart, judged_apart, live, recorded

CAPS = [{"limit_usd": "10", "window": "day", "unpriced": "serve"}]


def benchmark(setting: Setting) -> Sequence[Figure]:
    """Each customer's $10 a day, `reserve`, over every call that history let through."""
    rows = recorded(0, 1_000_000)
    started = time.perf_counter()
    real = asyncio.run(live(setting.folder, rows, CAPS))
    took = time.perf_counter() - started
    if not held_apart(rows, real).is_empty():
        raise RuntimeError("the live gateway held or counted a call otherwise than history did")
    apart = judged_apart(rows, real, CAPS).height
    refused = int(real["refused"].sum())
    return [
        Figure(
            what=f"verdicts of the model that differ from a live gateway's, {rows.height:,} calls, {refused:,} refused",
            figure=f"{apart:,}",
            bar="none",
            met=apart == 0,
        ),
        Figure(what="the same month sent to the gateway, one event after the other", figure=f"{took:.0f} s"),
    ]
