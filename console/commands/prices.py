"""`capline prices`: what a model costs, which price lists there are, and how two of them differ."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import UTC, date, datetime
from difflib import get_close_matches
from fractions import Fraction
from pathlib import Path
from typing import Any

from console.commands import explain
from console.commands.price_lists import at_hand, bundled, named
from console.commands.terminal import (
    DONE,
    NO,
    CannotDo,
    Commands,
    add_json,
    command,
    family,
    print_fields,
    print_json,
    print_table,
    printer,
    say,
)
from toolkit.core.errors import PriceListError
from toolkit.core.money import PICO_PER_NANO, limit_text
from toolkit.core.overlay import operator_content
from toolkit.core.pricefile import load_price_file, parse_price_list, read_price_content
from toolkit.core.pricing import Peak, PriceList, PriceRow, list_at
from toolkit.core.windows import parse_instant

_MILLION = 1_000_000
_DAYS = ("", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def add(commands: Commands) -> None:
    """Add the family of commands."""
    prices = family(commands, "prices", "price lists")
    show = command(prices, "show", _show, "show what prices a model")
    show.add_argument("model", metavar="MODEL", help="an id or listed alias, or PROVIDER/MODEL")
    show.add_argument("--at", metavar="INSTANT", type=_instant, help="when, such as 2026-11-15; else now")
    show.add_argument(
        "--list", metavar="LIST", help="a list's id, its date, or a file; else the one of that time"
    )
    lists = command(prices, "lists", _lists, "show the price lists at hand")
    diff = command(prices, "diff", _diff, "show how two lists differ")
    diff.add_argument("one", metavar="A", help="a list's id, its date, or a file")
    diff.add_argument("other", metavar="B")
    explain.add(prices)
    check = command(prices, "check", _check, "check a price file: its name, its hash and its rows")
    check.add_argument("file", metavar="FILE", type=Path)
    for parser in (show, lists, diff, check):
        add_json(parser)


def _show(chosen: argparse.Namespace) -> int:
    now = datetime.now(UTC)
    at = chosen.at or now
    prices = list_at(bundled(), at) if chosen.list is None else named(chosen.list)
    if prices is None:
        raise CannotDo("there is no price list at hand; reinstall capline")
    found = list(_rows_of(prices, chosen.model))
    in_force = [row for row in found if row.in_force(at)]
    if chosen.json:
        print_json({"price_list": prices.id, "rows": [_as_json(row) for row in in_force]})
        return DONE if in_force else NO
    if not found:
        say(
            f"{prices.id} lists no {chosen.model!r}: its calls have no cost. {_nearest(prices, chosen.model)}"
        )
        return NO
    if not in_force:
        say(f"{prices.id} has no price of {chosen.model!r} in force at {at:%Y-%m-%d %H:%M} UTC.")
        return NO
    print_fields(
        (("price list", prices.id), ("age", _age(prices, now.date())), ("at", f"{at:%Y-%m-%d %H:%M} UTC"))
    )
    for row in in_force:
        printer().print()
        print_fields(_described(row))
    return DONE


def _lists(chosen: argparse.Namespace) -> int:
    lists, today = at_hand(), datetime.now(UTC).date()
    if chosen.json:
        print_json(
            [{"id": prices.id, "date": f"{prices.date}", "rows": len(prices.rows)} for prices in lists]
        )
        return DONE
    rows = ((prices.id, _age(prices, today), len(prices.rows), _providers(prices)) for prices in lists)
    print_table(("id", "age", ">rows", "providers"), rows)
    return DONE


def _diff(chosen: argparse.Namespace) -> int:
    one, other = named(chosen.one), named(chosen.other)
    before, after = ({row.id: row for row in prices.rows} for prices in (one, other))
    added = sorted(after.keys() - before.keys())
    gone = sorted(before.keys() - after.keys())
    changed = {
        row_id: list(_changes(before[row_id], after[row_id]))
        for row_id in sorted(before.keys() & after.keys())
        if before[row_id] != after[row_id]
    }
    if chosen.json:
        words = {
            row_id: [_change_as_json(*change) for change in changes] for row_id, changes in changed.items()
        }
        print_json({"a": one.id, "b": other.id, "added": added, "gone": gone, "changed": words})
        return DONE
    rows = [
        *(("only in B", row_id, "", "", "") for row_id in added),
        *(("only in A", row_id, "", "", "") for row_id in gone),
        *(("differs", row_id, *change) for row_id, changes in changed.items() for change in changes),
    ]
    say(f"A is {one.id}, B is {other.id}; rates are USD per million tokens, fees USD each.")
    if rows:
        print_table(("", "row", "field", ">A", ">B"), rows)
    else:
        say("They do not differ.")
    return DONE


def _check(chosen: argparse.Namespace) -> int:
    if not chosen.file.is_file():
        raise CannotDo(f"{chosen.file} is no file")
    try:
        content = read_price_content(chosen.file)
        if "reason" in content:
            prices = parse_price_list(operator_content(chosen.file), source=chosen.file.name)
        else:
            prices = load_price_file(chosen.file)
    except PriceListError as error:
        if chosen.json:
            print_json({"file": str(chosen.file), "ok": False, "reason": str(error)})
        else:
            say(f"{chosen.file} must not be used: {error}")
        return NO
    if chosen.json:
        print_json({"file": str(chosen.file), "ok": True, "id": prices.id, "rows": len(prices.rows)})
    else:
        said = "own prices, laid over the lists" if "reason" in content else "content and name agree"
        say(f"{prices.id}: {len(prices.rows)} rows, {said}.")
    return DONE


def _rows_of(prices: PriceList, model: str) -> Iterator[PriceRow]:
    """The rows of a model of any provider, or of the one that is named before a slash."""
    providers = sorted({row.provider for row in prices.rows})
    for provider in providers:
        yield from prices.find(provider, model)
    provider, slash, name = model.partition("/")
    if slash and provider in providers:
        yield from prices.find(provider, name)


def _nearest(prices: PriceList, model: str) -> str:
    names = {name for provider in {row.provider for row in prices.rows} for name in prices.names(provider)}
    near = get_close_matches(model.lower(), sorted(names), n=3)
    return f"The nearest listed are {', '.join(near)}." if near else ""


def _described(row: PriceRow) -> Iterator[tuple[str, object]]:
    yield "row", row.id
    if row.aliases:
        yield "also called", ", ".join(row.aliases)
    if row.above >= 0:
        yield "applies", f"to prompts of more than {row.above:,} tokens"
    if row.peak is not None:
        yield "at", _peak(row.peak)
    yield "in force", f"from {_edge(row.effective_from)} to {_edge(row.effective_to)}"
    for meter, rate in row.rates.items():
        yield meter, f"${_rate(rate)} per million tokens"
    for unit, fee in row.fees.items():
        usd, per = _fee(unit, fee)
        yield unit, f"${usd} each" if per == 1 else f"${usd} per {per:,}"
    yield "at most", f"{row.max_input_tokens:,} tokens in, {row.max_output_tokens:,} out"
    yield "sources", ", ".join(row.sources)


def _as_json(row: PriceRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "provider": row.provider,
        "model": row.model,
        "aliases": list(row.aliases),
        "kind": row.kind,
        "tier": row.tier,
        "prompt_above": row.above if row.above >= 0 else None,
        "peak": None if row.peak is None else _peak(row.peak),
        "effective_from": None if row.effective_from is None else _edge(row.effective_from),
        "effective_to": None if row.effective_to is None else _edge(row.effective_to),
        "usd_per_million_tokens": {meter: _rate(rate) for meter, rate in row.rates.items()},
        "fees": {
            unit: dict(zip(("usd", "per"), _fee(unit, fee), strict=True)) for unit, fee in row.fees.items()
        },
        "max_input_tokens": row.max_input_tokens,
        "max_output_tokens": row.max_output_tokens,
        "sources": list(row.sources),
    }


def _changes(before: PriceRow, after: PriceRow) -> Iterator[tuple[str, str, str]]:
    """(field, in A, in B) of every field of a row that differs."""
    one, other = _as_json(before), _as_json(after)
    for name, value in one.items():
        if isinstance(value, dict):
            for part in sorted(value.keys() | other[name].keys()):
                if value.get(part) != other[name].get(part):
                    yield part, str(value.get(part, "–")), str(other[name].get(part, "–"))
        elif value != other[name]:
            yield name, str(value), str(other[name])


def _change_as_json(field: str, one: str, other: str) -> dict[str, str]:
    return {"field": field, "a": one, "b": other}


def _rate(pico_per_token: int) -> str:
    return limit_text(pico_per_token * _MILLION // PICO_PER_NANO)


def _fee(unit: str, pico: int | Fraction) -> tuple[str, int]:
    """(USD, per how many): a class of tokens by the million, anything else by as many as make it exact."""
    if unit.endswith("_tokens"):
        return _rate(int(pico)), _MILLION
    per = Fraction(pico, PICO_PER_NANO).denominator
    return limit_text(int(pico * per) // PICO_PER_NANO), per


def _peak(peak: Peak) -> str:
    """The hours of a peak row in words."""
    hours = ", ".join(f"{start:02}:00-{end:02}:00" for start, end in peak.hours)
    days = ", ".join(_DAYS[day] for day in sorted(peak.weekdays))
    but = f", not on {len(peak.except_dates)} listed dates" if peak.except_dates else ""
    return f"{hours} UTC on {days}{but}"


def _edge(at: datetime | None) -> str:
    return "open" if at is None else f"{at:%Y-%m-%d %H:%M} UTC"


def _age(prices: PriceList, today: date) -> str:
    days = (today - prices.date).days
    return "today" if days == 0 else f"{days} day{'s' if days != 1 else ''}"


def _providers(prices: PriceList) -> str:
    return ", ".join(sorted({row.provider for row in prices.rows}))


def _instant(text: str) -> datetime:
    try:
        return parse_instant(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
