"""`capline spend` and `verify`: the toolkit's answers over files."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from console.commands.terminal import (
    CANNOT,
    DONE,
    NO,
    CannotDo,
    Commands,
    Parser,
    add_json,
    command,
    print_fields,
    print_json,
    print_table,
    say,
    working,
)
from console.formatting import exact_usd, total_usd
from toolkit.core.windows import period_of

if TYPE_CHECKING:
    import polars as pl

    from toolkit.frames import Receipts

_TOKENS_IN = ("input_tokens", "cache_read_tokens", "cache_write_5m_tokens", "cache_write_1h_tokens")


def add(commands: Commands) -> None:
    """Add the commands."""
    spend = command(commands, "spend", _spend, "what was spent, by customer or any other dimension")
    add_files(spend)
    spend.add_argument(
        "--by", default="customer", metavar="NAME,NAME", help="such as customer,model or key_id,day"
    )
    spend.add_argument("--month", metavar="MONTH", help="one month alone, such as 2026-11")
    verify = command(commands, "verify", _verify, "check chains, sums, and every cost against its price list")
    verify.add_argument("files", metavar="FILE", nargs="+")
    add_json(spend)
    add_json(verify)


def add_files(parser: Parser) -> None:
    """The files to read."""
    parser.add_argument(
        "files", metavar="FILE", nargs="+", help="exports, folders, or a gateway's export URL"
    )
    parser.add_argument("--partial", action="store_true", help="take what a broken export still holds")


def loaded(chosen: argparse.Namespace) -> Receipts:
    """The receipts of the given files; what was set aside is said."""
    import toolkit as tk

    with working("Reading"):
        receipts = tk.load(*chosen.files, strict=not chosen.partial)
    aside = receipts.rejected
    if aside.height:
        first = aside.row(0, named=True)
        where = first["file"] if first["line"] is None else f"{first['file']}, line {first['line']}"
        say(f"{aside.height:,} rows are set aside; the first is {where}: {first['reason']}.")
    return receipts


def json_rows(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """A frame for a script: money as integers and text, instants as text."""
    return [{name: _plain(value) for name, value in row.items()} for row in frame.iter_rows(named=True)]


def _spend(chosen: argparse.Namespace) -> int:
    import toolkit as tk

    by = tuple(name.strip() for name in chosen.by.split(",") if name.strip())
    receipts = loaded(chosen)
    if chosen.month is not None:
        receipts = _of_month(receipts, chosen.month)
    with working("Adding up"):
        found = tk.spend(receipts, by=by)
    if chosen.json:
        print_json(json_rows(found))
        return DONE
    if found.is_empty():
        say("There are no receipts" + (f" in {chosen.month}." if chosen.month else "."))
        return DONE
    rows = sorted(found.iter_rows(named=True), key=lambda row: (row["period"], -(row["cost_nano_usd"] or 0)))
    headings = (
        "period",
        *by,
        ">requests",
        ">refused",
        ">unpriced",
        ">tokens in",
        ">tokens out",
        ">cost",
        "price list",
    )
    lines = [(row["period"], *(row[name] for name in by), *_figures(row), _lists(row)) for row in rows]
    total = ("total", *("" for _ in by), *_figures(_total(rows)), "")
    print_table(headings, [*lines, total], totals=True)
    return DONE


def _of_month(receipts: Receipts, month: str) -> Receipts:
    import polars as pl

    import toolkit as tk

    try:
        period = period_of(month)
    except ValueError as error:
        raise CannotDo(f"--month: {error}") from error
    if period.window != "month" or period.start is None or period.end is None:
        raise CannotDo(f"--month: {month!r} is a {period.window}; write a month, such as 2026-11")
    inside = (pl.col("admitted_at") >= period.start) & (pl.col("admitted_at") < period.end)
    return tk.Receipts.from_frame(receipts.frame.filter(inside))


def _figures(row: dict[str, Any]) -> Iterator[object]:
    yield row["requests"]
    yield row["refused_requests"]
    yield row["unpriced_requests"]
    yield sum(row[name] or 0 for name in _TOKENS_IN)
    yield row["output_tokens"] or 0
    yield total_usd(row["cost_nano_usd"])


def _total(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The sums of all rows; a cost that is not known adds nothing, and its requests are counted as unpriced."""
    names = (
        "requests",
        "refused_requests",
        "unpriced_requests",
        *_TOKENS_IN,
        "output_tokens",
        "cost_nano_usd",
    )
    return {name: sum(row[name] or 0 for row in rows) for name in names}


def _lists(row: dict[str, Any]) -> str:
    if row["price_list"] is not None:
        return str(row["price_list"])
    return f"{row['price_list_count']} lists" if row["price_list_count"] else "none"


def _verify(chosen: argparse.Namespace) -> int:
    import toolkit as tk

    with working("Verifying"):
        found = tk.verify(chosen.files)
    answer = {True: DONE, False: NO, None: CANNOT}[found.ok]
    if chosen.json:
        print_json(asdict(found))
        return answer
    print_fields(
        (
            ("verdict", {True: "good", False: "bad", None: "cannot tell"}[found.ok]),
            *((("first fault", found.first_fault), ("faults", found.faults)) if found.faults else ()),
            ("receipts", found.rows),
            ("costs derived again", found.priced_rows),
            ("cost", f"${exact_usd(found.cost_nano_usd)}"),
            ("counted by caps", f"${exact_usd(found.counted_nano_usd)}"),
            ("period complete", {True: "yes", False: "no", None: "not said"}[found.complete]),
            *(("note", note) for note in found.notes),
        )
    )
    return answer


def _plain(value: object) -> object:
    if isinstance(value, Decimal):
        return format(value, "f")
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value
