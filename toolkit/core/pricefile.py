"""Price files: read, checked and hashed; a file whose content does not match its name is not a price list."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from datetime import date, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from toolkit.core.errors import PriceListError
from toolkit.core.money import LARGEST_INTEGER, parse_rate
from toolkit.core.pricing import PriceList, PriceRow
from toolkit.core.usage import METERS
from toolkit.core.windows import parse_instant

SCHEMA = "capline-prices-v1"
_ROW_FIELDS = frozenset(field.name for field in fields(PriceRow) if field.init)
_Item = TypeVar("_Item")
_NAME = re.compile(r"(\d{4}-\d{2}-\d{2})-([0-9a-f]{12})\.json", re.ASCII)


def load_price_file(path: Path) -> PriceList:
    """One list from `<date>-<12 hex>.json`. Raises PriceListError when name, hash or any row is wrong."""
    named = _NAME.fullmatch(path.name)
    if named is None:
        raise PriceListError(f"{path.name}: a price file is named <date>-<12 hex of its hash>.json")
    try:
        content = json.loads(path.read_text("utf-8"), parse_float=_no_float, parse_constant=_no_float)
    except (OSError, ValueError) as error:
        raise PriceListError(f"{path.name}: {error}") from error
    if not isinstance(content, dict):
        raise PriceListError(f"{path.name}: a price file is one JSON object")
    digest = content_hash(content)
    if digest[:12] != named[2]:
        raise PriceListError(
            f"{path.name}: its content hashes to {digest[:12]}; a changed list is a new file"
        )
    if content.get("date") != named[1]:
        raise PriceListError(f"{path.name}: its date field says {content.get('date')!r}")
    return parse_price_list(content, source=path.name)


def load_price_folder(folder: Path) -> tuple[PriceList, ...]:
    """Every list of a folder, oldest first. Two lists of one date do not load together."""
    lists = sorted(
        (load_price_file(path) for path in sorted(folder.glob("*.json")) if _NAME.fullmatch(path.name)),
        key=lambda prices: prices.date,
    )
    for earlier, later in pairwise(lists):
        if earlier.date == later.date:
            raise PriceListError(
                f"two price lists are dated {later.date}: {earlier.id} and {later.id}; keep one"
            )
    return tuple(lists)


def parse_price_list(content: Mapping[str, Any], *, source: str) -> PriceList:
    """The list in an already read file; `source` names it in errors."""
    if content.get("schema") != SCHEMA or content.get("currency") != "USD":
        raise PriceListError(f"{source}: expected schema {SCHEMA} in USD")
    try:
        dated = date.fromisoformat(content["date"])
        rows = [_row(raw) for raw in _list(content, "rows", dict)]
    except (KeyError, TypeError, ValueError) as error:
        raise PriceListError(f"{source}: {_wording(error)}") from error
    _check_overlaps(rows, source)
    return PriceList(f"{dated}+sha256:{content_hash(content)[:12]}", dated, rows)


def content_hash(content: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical JSON of a list: keys sorted, no spaces, UTF-8."""
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _row(raw: Mapping[str, Any]) -> PriceRow:
    name = f"{raw.get('provider')}/{raw.get('model')}"
    try:
        if unknown := raw.keys() - _ROW_FIELDS:
            raise PriceListError(f"{', '.join(sorted(unknown))}: no such field")
        row = PriceRow(
            provider=_text(raw, "provider"),
            model=_text(raw, "model"),
            aliases=_list(raw, "aliases", str),
            kind=_text(raw, "kind"),
            tier=_text(raw, "tier"),
            prompt_above=_whole(raw, "prompt_above") if raw.get("prompt_above") is not None else None,
            effective_from=_instant(raw.get("effective_from")),
            effective_to=_instant(raw.get("effective_to")),
            rates={_meter(meter): parse_rate(text) for meter, text in _table(raw, "rates").items()},
            fees={unit: parse_rate(text, per=1) for unit, text in _table(raw, "fees").items()},
            max_input_tokens=_whole(raw, "max_input_tokens", least=1),
            max_output_tokens=_whole(raw, "max_output_tokens"),
            sources=_list(raw, "sources", str),
        )
        _check_interval(row)
    except (KeyError, TypeError, ValueError) as error:
        raise PriceListError(f"row {name}: {_wording(error)}") from error
    return row


def _check_interval(row: PriceRow) -> None:
    if (
        row.effective_from is not None
        and row.effective_to is not None
        and row.effective_to <= row.effective_from
    ):
        raise PriceListError(
            f"effective_to {row.effective_to} is not after effective_from {row.effective_from}"
        )


def _check_overlaps(rows: Iterable[PriceRow], source: str) -> None:
    """Two rows that answer to one name must never both be in force."""
    taken: dict[tuple[str, str, str, int | None], list[PriceRow]] = {}
    for row in rows:
        for name in {row.model.lower(), *(alias.lower() for alias in row.aliases)}:
            others = taken.setdefault((row.provider, name, row.tier, row.prompt_above), [])
            for other in others:
                if _overlap(row, other):
                    raise PriceListError(
                        f"{source}: {name} has two rows in force at once: {other.id} and {row.id}"
                    )
            others.append(row)


def _overlap(one: PriceRow, other: PriceRow) -> bool:
    def before(a: PriceRow, b: PriceRow) -> bool:
        return (
            a.effective_to is not None and b.effective_from is not None and a.effective_to <= b.effective_from
        )

    return not before(one, other) and not before(other, one)


def _meter(name: str) -> str:
    if name not in METERS:
        raise PriceListError(f"{name!r} is not a token meter; one of {', '.join(METERS)}")
    return name


def _text(raw: Mapping[str, Any], name: str) -> str:
    text = raw[name]
    if not isinstance(text, str) or not text:
        raise PriceListError(f"{name} must be text")
    return text


def _whole(raw: Mapping[str, Any], name: str, *, least: int = 0) -> int:
    number = raw[name]
    if type(number) is not int or not least <= number <= LARGEST_INTEGER:
        raise PriceListError(f"{name} must be a whole number of tokens, {least} or more")
    return number


def _list(raw: Mapping[str, Any], name: str, kind: type[_Item]) -> tuple[_Item, ...]:
    """A list that may be left out, unless it is the rows."""
    items = raw[name] if name == "rows" else raw.get(name, [])
    if not isinstance(items, list) or not all(isinstance(item, kind) for item in items):
        raise PriceListError(f"{name} must be a list")
    return tuple(items)


def _table(raw: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """An object of decimal texts; only fees may be left out."""
    table = raw[name] if name == "rates" else raw.get(name, {})
    if not isinstance(table, dict) or not all(isinstance(text, str) for text in table.values()):
        raise PriceListError(f"{name} must be an object of decimal texts")
    return table


def _wording(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def _instant(text: str | None) -> datetime | None:
    return None if text is None else parse_instant(text)


def _no_float(text: str) -> Any:
    raise ValueError(f"{text} is a JSON number with a fraction; rates are decimal text")
