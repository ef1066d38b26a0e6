"""What `verify` asks of a single row: its cost from its tokens and price list, its counts from its cost and status."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from toolkit.core.pricing import Priced, PriceList, PriceRow, price
from toolkit.core.receipts import counted_of, usage_of_row
from toolkit.core.windows import parse_instant


class RowCheck:
    """Checks rows in the form that was hashed, one after the other, and counts what was proven."""

    def __init__(self, lists: Iterable[PriceList]) -> None:
        self._known: dict[str, tuple[PriceList, dict[str, PriceRow]]] = {
            prices.id: (prices, {row.id: row for row in prices.rows}) for prices in lists
        }
        self.absent: dict[str, int] = {}
        """Costs that were not derived again, by the price list that is not at hand."""
        self.priced_rows = 0
        """Rows whose cost follows from their tokens and price list."""

    def faults(self, row: Mapping[str, Any]) -> Iterator[str]:
        """What is wrong with a row by itself."""
        for check in (self._count_fault, self._cost_fault, _token_fault):
            if (fault := check(row)) is not None:
                yield fault

    def _count_fault(self, row: Mapping[str, Any]) -> str | None:
        """Whether cost and status go together, and the counters took what they should have (contract §10)."""
        status, cost, counted = row["status"], row["cost_nano_usd"], row["counted_nano_usd"]
        if row["corrects"] is not None:
            return None if cost is not None else "corrects a row and has no cost itself"
        if cost is not None and (status in ("refused", "abandoned") or (status == "failed" and cost)):
            return f"is {status} and has a cost"
        if status == "served" and cost is None and row["unpriced_reason"] is None:
            return "has neither a cost nor a reason for none"
        seen = self._again(row) if cost is None and status in ("served", "abandoned") else None
        if status == "served" and seen is not None:
            return f"has no cost; tokens and price list give {seen}"
        expected = counted_of(
            status=status, cost_nano_usd=cost, hold_nano_usd=row["hold_nano_usd"], seen_nano_usd=seen
        )
        if counted == expected or (counted > expected and self._is_beyond_reach(row)):
            return None
        why = f"its cost is {cost}" if cost is not None else f"it is {status} and should count {expected}"
        return f"counted_nano_usd is {counted} where {why}"

    def _again(self, row: Mapping[str, Any]) -> int | None:
        """What the reported tokens of a row without a cost would cost by the price that it names."""
        usage = usage_of_row(row)
        known, rows = self._known.get(row["price_list"], (None, {}))
        priced_by = rows.get(row["price_row"])
        if known is None or priced_by is None or not (usage.meters() or usage.units):
            return None
        at = parse_instant(row["admitted_at"])
        again = price(known, priced_by.provider, priced_by.model, usage, at, tier=priced_by.tier)
        return again.cost_nano_usd if isinstance(again, Priced) else None

    def _is_beyond_reach(self, row: Mapping[str, Any]) -> bool:
        """Whether an abandoned call saw usage whose price list is not at hand: it may have counted more."""
        return (
            row["status"] == "abandoned"
            and row["price_row"] is not None
            and row["price_list"] not in self._known
        )

    def _cost_fault(self, row: Mapping[str, Any]) -> str | None:
        """Whether tokens and the named row of the named list give the recorded cost, exactly."""
        if row["status"] != "served" or row["cost_nano_usd"] is None:
            return None
        if row["price_list"] is None or row["price_row"] is None:
            return "has a cost and names no price"
        if row["price_list"] not in self._known:
            self.absent[row["price_list"]] = self.absent.get(row["price_list"], 0) + 1
            return None
        prices, rows = self._known[row["price_list"]]
        priced_by = rows.get(row["price_row"])
        if priced_by is None:
            return f"price list {prices.id} has no row {row['price_row']!r}"
        if row["model_served"] is not None and priced_by not in prices.find(
            priced_by.provider, row["model_served"]
        ):
            return f"row {priced_by.id!r} does not price model {row['model_served']!r}"
        at = parse_instant(row["admitted_at"])
        again = price(prices, priced_by.provider, priced_by.model, usage_of_row(row), at, tier=priced_by.tier)
        if not isinstance(again, Priced):
            return f"its tokens have no price by {priced_by.id!r}: {again.reason}"
        if again.price_row != priced_by.id:
            return f"its tokens are priced by {again.price_row!r}, not by {priced_by.id!r}"
        if again.cost_nano_usd != row["cost_nano_usd"]:
            given = again.cost_nano_usd
            return f"cost_nano_usd is {row['cost_nano_usd']}; tokens and price list give {given}"
        self.priced_rows += 1
        return None


def _token_fault(row: Mapping[str, Any]) -> str | None:
    """Whether a row counts the tokens that it reports, or its hold where nobody knows them (contract §7)."""
    if row["corrects"] is not None:
        return None
    usage = usage_of_row(row)
    if row["status"] in ("refused", "failed"):
        expected = 0
    elif row["status"] == "served" and (usage.meters() or usage.units):
        expected = usage.tokens
    else:
        expected = row["hold_tokens"]
    if row["counted_tokens"] in (expected, None) or expected is None:
        return None
    return f"counted_tokens is {row['counted_tokens']} and not {expected}"
