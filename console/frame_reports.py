"""Reports over a copied history, by the toolkit."""

from __future__ import annotations

from datetime import datetime

import polars as pl

import toolkit as tk
from console.gateway_client import GatewayClient
from console.gateway_views import CapView, Coverage
from console.reports import Dimensions
from toolkit.core.windows import Window, period_of


class FrameReports:
    """The receipts of one version of the history. Shared between sessions: what was summed once is kept."""

    def __init__(self, receipts: tk.Receipts, gateway: GatewayClient, references: dict[str, str]) -> None:
        self._receipts = receipts
        self._gateway = gateway
        self._references = references
        self._sums: dict[tuple[Dimensions, Window], pl.DataFrame] = {}

    def coverage(self) -> Coverage:
        """Rows, customers and instants."""
        found = self._receipts.frame.select(
            rows=pl.len(),
            customers=pl.col("customer").drop_nulls().n_unique(),
            first=pl.col("admitted_at").min(),
            last=pl.col("admitted_at").max(),
        )
        return Coverage(**found.collect().row(0, named=True))

    def periods(self, window: Window) -> list[str]:
        """The periods of a window that have data, newest first."""
        return sorted(set(self._summed((), window)["period"]), reverse=True)

    def spend(
        self, by: Dimensions, window: Window, period: str | None = None, customer: str | None = None
    ) -> pl.DataFrame:
        """`tk.spend`, of one period and of one customer where they are given."""
        if customer is None:
            found = self._summed(by, window)
        else:
            named = by if "customer" in by else (*by, "customer")
            found = self._summed(named, window).filter(pl.col("customer") == customer)
            found = found.drop(set(named) - set(by))
        return found if period is None else found.filter(pl.col("period") == period)

    def _summed(self, by: Dimensions, window: Window) -> pl.DataFrame:
        if (by, window) not in self._sums:
            self._sums[by, window] = tk.spend(self._receipts, by=by, window=window).drop("cost_usd")
        return self._sums[by, window]

    def customers_in(self, period: str) -> int:
        """How many customers a period names."""
        return self.spend(("customer",), period_of(period).window, period)["customer"].drop_nulls().len()

    def cost_between(self, start: datetime, end: datetime) -> int:
        """What the requests admitted in `[start, end)` are known to cost."""
        rows = self._receipts.frame.filter(pl.col("admitted_at").is_between(start, end, closed="left"))
        return int(rows.select(pl.col("cost_nano_usd").cast(pl.Int128).sum()).collect().item() or 0)

    def latest(self, customer: str, status: str | None, most: int) -> pl.DataFrame:
        """One customer's latest receipts, newest first, of one status where it is given."""
        rows = self._receipts.frame.filter(pl.col("customer") == customer)
        if status is not None:
            rows = rows.filter(pl.col("status") == status)
        return rows.sort("admitted_at", "receipt_id", descending=True).head(most).collect()

    def unpriced(self) -> pl.DataFrame:
        """`tk.unpriced`."""
        return tk.unpriced(self._receipts)

    def months(self) -> pl.DataFrame:
        """`tk.months`."""
        return tk.months(self._receipts).drop("cost_usd")

    def statuses(self) -> dict[str, int]:
        """How many requests ended in which way."""
        return dict(self._summed(("status",), "never").select("status", "requests").rows())

    def refused_by(self, cap: CapView) -> int:
        """Requests that a cap refused since it was armed."""
        mine = self._receipts.frame.filter(pl.col("status") == "refused", pl.col("cap_id") == cap.id)
        if cap.armed_at is not None:
            mine = mine.filter(pl.col("admitted_at") >= cap.armed_at)
        return int(mine.select(pl.len()).collect().item())

    def references(self, linked: str | None) -> dict[str, str]:
        """The reference that stands in URLs for each customer."""
        named = self._receipts.frame.select(pl.col("customer").drop_nulls().unique()).collect()["customer"]
        if not self._references.keys() >= set(named):
            self._references.update(self._gateway.customer_references())
        return dict(self._references)
