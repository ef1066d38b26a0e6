"""What pages ask of the past, whoever answers: the frame of a copied history, or the gateway over a large ledger.

Both give the same frames; `tests/console/test_reports.py` holds them to each other over a real gateway.
"""

from __future__ import annotations

from datetime import datetime
from typing import Protocol, TypeAlias

import polars as pl

import toolkit as tk
from console.gateway_views import CapView, Coverage
from toolkit.core.windows import Window

Dimensions: TypeAlias = tuple[str, ...]

MOST_GROUPS = 1_000
"""Groups of one period, the dearest first, that a large ledger is asked for."""


class Reports(Protocol):
    """The questions. Money is nano-USD, tokens are counts, null is "not known"; GatewayError when nobody answers."""

    def coverage(self) -> Coverage:
        """Rows, customers and instants."""
        ...

    def periods(self, window: Window) -> list[str]:
        """The periods of a window from the first to the last one with data, newest first."""
        ...

    def spend(
        self, by: Dimensions, window: Window, period: str | None = None, customer: str | None = None
    ) -> pl.DataFrame:
        """`tk.spend`, of one period and of one customer where they are given."""
        ...

    def customers_in(self, period: str) -> int:
        """How many customers a period names."""
        ...

    def cost_between(self, start: datetime, end: datetime) -> int:
        """What the requests admitted in `[start, end)` are known to cost; `start` is 00:00 UTC."""
        ...

    def latest(self, customer: str, status: str | None, most: int) -> pl.DataFrame:
        """One customer's latest receipts, newest first, of one status where it is given."""
        ...

    def unpriced(self) -> pl.DataFrame:
        """`tk.unpriced`."""
        ...

    def months(self) -> pl.DataFrame:
        """`tk.months`."""
        ...

    def statuses(self) -> dict[str, int]:
        """How many requests ended in which way."""
        ...

    def refused_by(self, cap: CapView) -> int:
        """Requests that a cap refused since it was armed."""
        ...

    def references(self, linked: str | None) -> dict[str, str]:
        """The reference that stands in URLs for each customer that is known here, and for the linked one."""
        ...


def no_receipts() -> tk.Receipts:
    """Receipts, none of them: what a report over nothing looks like."""
    return tk.Receipts.from_frame(pl.DataFrame(schema=tk.RECEIPT_SCHEMA))
