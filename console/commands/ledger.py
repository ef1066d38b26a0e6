"""`capline ledger`: whether the ledger agrees with itself, and retention by closed month."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from console.commands.connection import Api, add_gateway, connect
from console.commands.export import write_file
from console.commands.price_lists import at_hand, named
from console.commands.terminal import (
    DONE,
    NO,
    CannotDo,
    Commands,
    add_json,
    command,
    family,
    print_json,
    print_table,
    say,
    working,
)


def add(commands: Commands) -> None:
    """Add the family of commands."""
    ledger = family(commands, "ledger", "the ledger's own state")
    check = command(ledger, "check", _check, "compare receipts with rollups, chain heads and counters")
    months = command(ledger, "months", _months, "list the months: rows, cost, and which were dropped")
    for parser in (check, months):
        add_gateway(parser)
        add_json(parser)
    drop = command(
        ledger, "drop", _drop, "export a closed month, verify the file, then drop the month's receipts"
    )
    drop.add_argument("month", metavar="MONTH", help="such as 2026-09")
    drop.add_argument("--export", required=True, type=Path, metavar="DIR", help="where its export is kept")
    drop.add_argument("--format", choices=("parquet", "jsonl"), default="parquet")
    drop.add_argument(
        "--prices", metavar="FILE", action="append", default=[], help="a price list that is not at hand"
    )
    drop.add_argument("--yes", action="store_true", help="do not ask")
    add_gateway(drop)


def _check(chosen: argparse.Namespace) -> int:
    with connect(chosen) as api:
        found = api.ask("GET", "/api/ledger/check")
    if chosen.json:
        print_json(found)
    elif found["ok"]:
        say(
            f"The ledger agrees with itself: {found['rollups']:,} rollups of {found['days']:,} days, "
            f"{found['chains']:,} chains, {found['counters']:,} counters."
        )
    else:
        say(f"The ledger differs: {found['difference']}.")
    return DONE if found["ok"] else NO


def _months(chosen: argparse.Namespace) -> int:
    with connect(chosen) as api:
        found = list(api.items("/api/ledger/months"))
    if chosen.json:
        print_json(found)
    else:
        names = ("month", "state", "rows", "requests", "unpriced_requests", "cost_usd")
        print_table(
            ("month", "state", "rows", "requests", "unpriced", "cost USD"),
            ([month[name] for name in names] for month in found),
        )
    return DONE


def _drop(chosen: argparse.Namespace) -> int:
    with connect(chosen) as api:
        found = {month["month"]: month for month in api.items("/api/ledger/months")}
    month = found.get(chosen.month)
    if month is None:
        raise CannotDo(f"the ledger has no month {chosen.month}; `capline ledger months` lists them")
    if month["state"] == "dropped":
        raise CannotDo(f"{chosen.month} was dropped before")
    if not month["over"]:
        raise CannotDo(f"{chosen.month} is not over for two days yet; drop it then")
    _ask(chosen, month)
    # One that was cut off while it was dropped has its export already; the gateway makes none of it any more.
    heads = month["heads"] if month["state"] == "dropping" else _exported(chosen)
    gone = 0
    with connect(chosen) as api, working(f"Dropping {chosen.month}"):
        while True:
            answer = _drop_some(api, chosen.month, heads)
            gone += answer["receipts"]
            if answer["done"]:
                break
    say(f"Dropped {chosen.month}: {gone:,} receipts are gone; its heads and sums stay.")
    return DONE


def _ask(chosen: argparse.Namespace, month: dict[str, Any]) -> None:
    unpriced = month["unpriced_requests"]
    if unpriced:
        say(
            f"{unpriced:,} requests of {chosen.month} have no cost; they can no longer be corrected after this."
        )
    if chosen.yes:
        return
    if not sys.stdin.isatty():
        raise CannotDo("this drops receipts for good; say --yes where nobody can be asked")
    if input(f"Drop {month['rows']:,} receipts of {chosen.month}? Type the month: ").strip() != chosen.month:
        raise CannotDo("nothing was dropped")


def _exported(chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """Export the month and verify the file; the ends of its chains, as the file has them."""
    import toolkit as tk

    chosen.export.mkdir(parents=True, exist_ok=True)
    file = chosen.export / f"capline-{chosen.month}.{chosen.format}"
    if file.exists():
        raise CannotDo(f"{file} is there already; name another directory")
    write_file(chosen, {"month": chosen.month, "format": chosen.format}, file)
    with working("Verifying"):
        found = tk.verify(file, price_lists=[*at_hand(), *map(named, chosen.prices)])
    if found.ok is not True or not found.complete:
        why = found.first_fault or "; ".join(found.notes) or "it is not complete"
        raise CannotDo(f"{file} does not verify, so nothing was dropped: {why}")
    return [
        {"node": chain["node"], "rows": chain["rows"], "head": chain["head"]}
        for chain in _header(file)["chains"]
    ]


def _header(file: Path) -> dict[str, Any]:
    if file.suffix == ".parquet":
        import polars as pl

        text = pl.read_parquet_metadata(file)["capline.header"]
    else:
        with file.open(encoding="utf-8") as lines:
            text = lines.readline()
    header: dict[str, Any] = json.loads(text)
    return header


def _drop_some(api: Api, month: str, heads: list[dict[str, Any]]) -> dict[str, Any]:
    return api.ask("POST", f"/api/ledger/months/{month}/drop", {"heads": heads})
