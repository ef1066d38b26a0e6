"""`capline spend`, `what-if` and `verify`: the toolkit's answers over files."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any, get_args

from console.commands.price_lists import at_hand, named
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
    printer,
    say,
    working,
)
from console.formatting import exact_usd, instant, total_usd
from toolkit.captext import GRAMMAR, parse_cap_text
from toolkit.core.caps import Admission
from toolkit.core.windows import period_of

if TYPE_CHECKING:
    import polars as pl

    from toolkit.frames import Receipts
    from toolkit.whatif import Summary

MOST_ON_SCREEN = 30
"""Customers that a terminal shows; a pipe gets them all."""

_TOKENS_IN = ("input_tokens", "cache_read_tokens", "cache_write_5m_tokens", "cache_write_1h_tokens")


def add(commands: Commands) -> None:
    """Add the commands."""
    spend = command(commands, "spend", _spend, "what was spent, by customer or any other dimension")
    add_files(spend)
    spend.add_argument(
        "--by", default="customer", metavar="NAME,NAME", help="such as customer,model or key_id,day"
    )
    spend.add_argument("--month", metavar="MONTH", help="one month alone, such as 2026-11")
    what_if = command(
        commands, "what-if", _what_if, "what a cap would have stopped, judged as the gateway judges"
    )
    add_files(what_if)
    what_if.add_argument(
        "--cap", action="append", required=True, metavar="RULE", help=f"{GRAMMAR}; may be given again"
    )
    what_if.add_argument("--admission", choices=get_args(Admission), default="reserve")
    verify = command(commands, "verify", _verify, "check chains, sums, and every cost against its price list")
    verify.add_argument("files", metavar="FILE", nargs="+")
    verify.add_argument(
        "--prices",
        metavar="FILE",
        action="append",
        default=[],
        help="a price list that is not at hand, such as a merged one",
    )
    verify.add_argument("--heads", metavar="FILE", help="published heads that the exports must contain")
    verify.add_argument(
        "--public-key",
        metavar="HEX|FILE",
        help="the key that must have signed the heads: 64 hex digits or PEM",
    )
    for parser in (spend, what_if, verify):
        add_json(parser)


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


def _what_if(chosen: argparse.Namespace) -> int:
    import toolkit as tk

    caps = [
        parse_cap_text(text, cap_id=number, admission=chosen.admission)
        for number, text in enumerate(chosen.cap, start=1)
    ]
    receipts = loaded(chosen)
    with working("Judging"):
        found = tk.what_if(receipts, caps)
        summary, by_customer = found.summary, found.by_customer
    if chosen.json:
        tables = {name: json_rows(getattr(found, name)) for name in ("by_customer", "by_day")}
        print_json({"caps": chosen.cap, "sentence": found.sentence(), "summary": asdict(summary), **tables})
        return DONE
    printer().print(found.sentence(), style="bold", markup=False, soft_wrap=True)
    print_fields(_findings(summary))
    refused = [row for row in by_customer.iter_rows(named=True) if row["refused_requests"]]
    if refused:
        printer().print()
        print_table(
            ("customer", ">requests", ">refused", ">stopped", "first refused", "over now"), map(_who, refused)
        )
    return DONE


def _findings(summary: Summary) -> Iterator[tuple[str, object]]:
    yield "requests judged", summary.judged
    yield (
        "refused",
        f"{summary.refused:,}, of these {summary.busy:,} busy and {summary.unpriced:,} without a price",
    )
    yield (
        "spend above the cap",
        f"{total_usd(summary.refused_nano_usd)} of {total_usd(summary.total_nano_usd)}",
    )
    yield (
        "customers refused",
        f"{summary.customers_refused:,} of {summary.customers:,}, of these {summary.customers_stopped:,} by the limit",
    )
    yield "customers over now", summary.customers_over_now
    if summary.cost_unknown:
        yield "cost unknown", f"{summary.cost_unknown:,}: refused in history, admitted by this draft"
    if summary.overshoot_nano_usd:
        yield "overshoot", total_usd(summary.overshoot_nano_usd)
    yield "ordered by", summary.ordered_by


def _who(row: dict[str, Any]) -> tuple[object, ...]:
    money, first = total_usd(row["refused_nano_usd"]), instant(row["first_refused_at"])
    return (row["customer"], row["requests"], row["refused_requests"], money, first, row["over_now"])


def _verify(chosen: argparse.Namespace) -> int:
    import toolkit as tk

    if chosen.public_key is not None and chosen.heads is None:
        raise CannotDo("--public-key goes with --heads FILE")
    with working("Verifying"):
        found = tk.verify(
            chosen.files,
            price_lists=[*at_hand(), *map(named, chosen.prices)],
            heads=chosen.heads,
            public_key=chosen.public_key,
        )
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
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, date) else value
