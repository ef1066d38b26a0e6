"""`capline prices explain`: which row of which list priced a receipt, line by line, and why that row."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

from console.commands.connection import add_gateway, connect
from console.commands.price_lists import named
from console.commands.terminal import (
    DONE,
    NO,
    Commands,
    add_json,
    command,
    print_fields,
    print_json,
    print_table,
    printer,
    say,
)
from console.formatting import exact_usd
from toolkit.core.pricing import Priced, PriceList, PriceRow, Unpriced, price
from toolkit.core.receipts import usage_of_row
from toolkit.core.rederive import how_priced
from toolkit.core.windows import parse_instant


def add(commands: Commands) -> None:
    """Add the command to the family of prices."""
    explain = command(commands, "explain", _explain, "show which row priced a receipt, and why")
    explain.add_argument("receipt", metavar="RECEIPT", help="a receipt's id, or its operation's")
    explain.add_argument(
        "--list", metavar="LIST", help="what another list would have said: its id, date, or file"
    )
    add_gateway(explain)
    add_json(explain)


def _explain(chosen: argparse.Namespace) -> int:
    other = None if chosen.list is None else named(chosen.list)
    with connect(chosen) as api:
        receipt = api.ask("GET", f"/api/receipts/{chosen.receipt}")
    prices = named(receipt["price_list"]) if other is None and receipt["price_list"] else other
    found = None if prices is None or receipt["price_row"] is None else _derived(prices, receipt)
    row = None if prices is None or found is None else _row(prices, found)
    holds = other is not None or not isinstance(found, Priced) or _agrees(found, receipt)
    if chosen.json:
        print_json(_as_json(receipt, prices, row, found))
        return DONE if holds else NO
    print_fields(_told(receipt, prices, row))
    if isinstance(found, Priced):
        printer().print()
        lines = (
            (line.meter, f"{line.quantity:,}", str(line.rate_pico_usd), str(line.pico_usd))
            for line in found.lines
        )
        print_table(("meter", ">quantity", ">pico-USD each", ">pico-USD"), lines)
        say(f"Together ${exact_usd(found.cost_nano_usd)}, rounded once, half to even.")
    elif isinstance(found, Unpriced):
        say(f"{found.price_list} has no price for it: {found.reason}.")
    if not holds:
        say("That is not the cost on the receipt: run `capline verify` on an export of its month.")
    return DONE if holds else NO


def _derived(prices: PriceList, receipt: Mapping[str, Any]) -> Priced | Unpriced:
    by = how_priced(receipt, {})
    at = parse_instant(receipt["admitted_at"])
    return price(prices, by.provider, by.model, usage_of_row(receipt), at, tier=by.tier)


def _row(prices: PriceList, found: Priced | Unpriced) -> PriceRow | None:
    return next((row for row in prices.rows if row.id == found.price_row), None)


def _agrees(found: Priced, receipt: Mapping[str, Any]) -> bool:
    return receipt["cost_nano_usd"] in (None, found.cost_nano_usd)


def _told(
    receipt: Mapping[str, Any], prices: PriceList | None, row: PriceRow | None
) -> Iterator[tuple[str, object]]:
    yield "receipt", f"{receipt['receipt_id']}, {receipt['status']}, admitted {receipt['admitted_at']}"
    yield "model", f"{receipt['model_served'] or 'not said'} served, {receipt['model_requested']} requested"
    if receipt["service_tier"]:
        yield "tier served", receipt["service_tier"]
    yield "price list", "none" if prices is None else prices.id
    yield "row", "none" if row is None else row.id
    if row is not None:
        yield "because", _why(row, receipt)
        yield "sources", ", ".join(row.sources) or "none named"
    cost = receipt["cost_nano_usd"]
    yield (
        "cost on the receipt",
        f"unpriced: {receipt['unpriced_reason']}" if cost is None else f"${exact_usd(cost)}",
    )


def _why(row: PriceRow, receipt: Mapping[str, Any]) -> str:
    """What made this row the one: the name, the tier, the prompt's length, the hour."""
    name = receipt["model_served"] or receipt["model_requested"]
    exact = str(name).lower() == row.model.lower()
    parts = [f"{name} is {'listed' if exact else f'a listed alias of {row.model}'}", f"served as {row.tier}"]
    if row.above >= 0:
        parts.append(f"the whole prompt has more than {row.above:,} tokens")
    if row.peak is not None:
        parts.append("it was admitted in a peak hour")
    return ", ".join(parts)


def _as_json(
    receipt: Mapping[str, Any],
    prices: PriceList | None,
    row: PriceRow | None,
    found: Priced | Unpriced | None,
) -> dict[str, Any]:
    lines = found.lines if isinstance(found, Priced) else ()
    return {
        "receipt_id": receipt["receipt_id"],
        "price_list": None if prices is None else prices.id,
        "price_row": None if row is None else row.id,
        "because": None if row is None else _why(row, receipt),
        "lines": [
            {"meter": line.meter, "quantity": str(line.quantity), "pico_usd": str(line.pico_usd)}
            for line in lines
        ],
        "cost_nano_usd": found.cost_nano_usd if isinstance(found, Priced) else None,
        "reason": found.reason if isinstance(found, Unpriced) else receipt["unpriced_reason"],
        "recorded_cost_nano_usd": receipt["cost_nano_usd"],
    }
