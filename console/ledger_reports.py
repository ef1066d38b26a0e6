"""Reports over a ledger too large to copy: the gateway's own sums, in the frames that the toolkit would make."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import polars as pl

import toolkit as tk
from console.gateway_client import GatewayClient
from console.gateway_views import CapView, Coverage
from console.reports import MOST_GROUPS, Dimensions, no_receipts
from toolkit.core.windows import Window, instant_text, parse_instant, period_at
from toolkit.frames import TOKEN_COLUMNS

_FLAT = {name: kind for name, kind in tk.RECEIPT_SCHEMA.items() if not kind.is_nested()}
_REFERENCE = re.compile(r"[0-9a-f]{16}")
_NOBODY = "0" * 16
"""Stands for a name that the ledger does not know, which has spent nothing."""
_UNPRICED_FIELDS = {"requests": "calls", "first": "first_seen", "last": "last_seen"}


class LedgerReports:
    """One gateway's answers. `references` is shared by all versions of a ledger and learns from what is seen."""

    def __init__(self, gateway: GatewayClient, covered: Coverage, references: dict[str, str]) -> None:
        self._gateway = gateway
        self._covered = covered
        self._references = references
        self._read: pl.DataFrame | None = None

    def coverage(self) -> Coverage:
        """Rows, customers and instants, as they were when the ledger was last looked at."""
        return self._covered

    def periods(self, window: Window) -> list[str]:
        """The periods of a window from the first to the last receipt, newest first."""
        first, last = self._covered.first, self._covered.last
        if first is None or last is None:
            return []
        found = [period_at(window, last)]
        while (start := found[-1].start) is not None and start > first:
            found.append(period_at(window, start - timedelta(microseconds=1)))
        return [period.key for period in found]

    def spend(
        self, by: Dimensions, window: Window, period: str | None = None, customer: str | None = None
    ) -> pl.DataFrame:
        """`tk.spend`, of one period and of one customer where they are given; of many groups the dearest."""
        asked = {} if period is None else {"period": period}
        if customer is not None:
            asked["customer_ref"] = self._reference(customer)
        return self._spend(by, window, asked).sort("period", *by, nulls_last=True)

    def _spend(self, by: Dimensions, window: Window, asked: Mapping[str, str]) -> pl.DataFrame:
        schema = tk.spend(no_receipts(), by=by, window=window).drop("cost_usd").schema
        seen = (*schema, "customer_ref") if "customer" in by else (*schema,)
        asked = {"by": ",".join(by), "window": window, **asked}
        rows = self._gateway.report("/api/spend", seen, asked, most=MOST_GROUPS)
        found = _frame(rows, {**schema, **({"customer_ref": pl.String()} if "customer" in by else {})})
        if "customer" in by:
            named = found.drop_nulls("customer").select("customer", "customer_ref")
            self._references.update(named.iter_rows())
        return found.select(schema.names())

    def customers_in(self, period: str) -> int:
        """How many customers a period names."""
        return self._gateway.customers_in(period)

    def cost_between(self, start: datetime, end: datetime) -> int:
        """What the requests admitted in `[start, end)` are known to cost: whole days and what is left of one."""
        midnight = end.replace(hour=0, minute=0, second=0, microsecond=0)
        parts = [(start, max(start, midnight)), (max(start, midnight), end)]
        return sum(self._cost(*part) for part in parts if part[0] < part[1])

    def _cost(self, start: datetime, end: datetime) -> int:
        asked = {"from": instant_text(start), "to": instant_text(end)}
        return sum(self._spend((), "never", asked)["cost_nano_usd"].drop_nulls())

    def latest(self, customer: str, status: str | None, most: int) -> pl.DataFrame:
        """One customer's latest receipts, newest first, of one status where it is given."""
        asked = {"customer_ref": self._reference(customer), **({} if status is None else {"status": status})}
        rows = self._gateway.report("/api/receipts", tuple(_FLAT), asked, most=most)
        return _frame(rows, _FLAT).sort("admitted_at", "receipt_id", descending=True)

    def unpriced(self) -> pl.DataFrame:
        """`tk.unpriced`."""
        schema = tk.unpriced(no_receipts()).schema
        fields = tuple(_UNPRICED_FIELDS.get(name, name) for name in schema)
        found = _frame(self._gateway.report("/api/unpriced", fields, {}), schema)
        return found.sort("requests", "model", "reason", descending=[True, False, False], nulls_last=True)

    def months(self) -> pl.DataFrame:
        """`tk.months`."""
        columns = tk.months(no_receipts()).drop("cost_usd").columns
        both = [
            _merged(self._outcomes(), by).with_columns(total=pl.lit(value=is_total)).select(columns)
            for by, is_total in ((("period", "price_list"), False), (("period",), True))
        ]
        return pl.concat(both).sort("period", "total", "price_list", nulls_last=True)

    def statuses(self) -> dict[str, int]:
        """How many requests ended in which way."""
        return dict(_merged(self._outcomes(), ("status",)).select("status", "requests").sort("status").rows())

    def _outcomes(self) -> pl.DataFrame:
        """Every month by price list and status: all that is asked of the whole ledger, read once."""
        if self._read is None:
            self._read = self._spend(("price_list", "status"), "month", {})
        return self._read

    def refused_by(self, cap: CapView) -> int:
        """Requests that a cap refused since it was armed."""
        return self._gateway.refusals_of_cap(cap.id)

    def references(self, linked: str | None) -> dict[str, str]:
        """The reference that stands in URLs for each customer that was seen, and for the linked one."""
        is_one = linked is not None and _REFERENCE.fullmatch(linked)
        if is_one and linked not in self._references.values():
            self._references.update(self._gateway.customer_references(linked))
        return dict(self._references)

    def _reference(self, customer: str) -> str:
        if customer not in self._references:
            self._references.update(self._gateway.customer_references())
        return self._references.get(customer, _NOBODY)


def _merged(groups: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Groups of spend put together, by the rules of `tk.spend`."""
    counts = ("requests", "priced_requests", "unpriced_requests", "refused_requests", "counted_nano_usd")
    named = pl.col("price_list").drop_nulls()
    known = (pl.col("priced_requests").sum() > 0) | (pl.col("unpriced_requests").sum() == 0)
    lists = {
        "price_list": pl.when(named.n_unique() == 1).then(named.min()),
        "price_list_count": named.n_unique().cast(pl.Int64),
    }

    def total(name: str) -> pl.Expr:
        # Added 128 bits wide, so that a sum that does not fit fails instead of wrapping.
        return pl.col(name).cast(pl.Int128).sum().cast(pl.Int64).alias(name)

    return groups.group_by(by).agg(
        *(total(name) for name in counts),
        *(pl.when(pl.col(name).is_not_null().any()).then(total(name)) for name in TOKEN_COLUMNS),
        cost_nano_usd=pl.when(known).then(total("cost_nano_usd")),
        **{name: column for name, column in lists.items() if name not in by},
    )


def _frame(rows: Sequence[Sequence[Any]], schema: Mapping[str, Any]) -> pl.DataFrame:
    instants = [name for name, kind in schema.items() if isinstance(kind, pl.Datetime)]
    places = [place for place, name in enumerate(schema) if name in instants]
    read = [
        [
            parse_instant(cell) if place in places and cell is not None else cell
            for place, cell in enumerate(row)
        ]
        for row in rows
    ]
    return pl.DataFrame(read, schema=dict(schema), orient="row")
