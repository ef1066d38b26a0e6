"""Price files: read, checked and hashed; a file whose content does not match its name is not a price list."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from datetime import date, datetime
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from toolkit.core.errors import PriceListError
from toolkit.core.money import LARGEST_INTEGER, parse_fee, parse_rate
from toolkit.core.pricing import Peak, PriceList, PriceRow
from toolkit.core.tiers import BATCH, STANDARD
from toolkit.core.usage import METERS
from toolkit.core.windows import parse_instant

SCHEMA = "capline-prices-v1"
KINDS = ("chat", "embedding", "image", "moderation", "transcription")
UNITS = ("characters", "images", "requests", "seconds", "web_fetch", "web_search")
"""What is billed by the piece. Any other fee is a class of tokens, and its name ends in `_tokens`."""
DEAREST_RATE = parse_rate("10000")
"""USD per million tokens that no list asks: a row above it is a slip of the decimal point."""
DEAREST_FEE = parse_fee("100")
"""The same for one unit."""

_ROW_FIELDS = frozenset(field.name for field in fields(PriceRow) if field.init)
_Item = TypeVar("_Item")
_TIER = re.compile(r"[a-z0-9-]+(?: [a-z0-9-]+)*", re.ASCII)
_TOKEN_UNIT = re.compile(r"[a-z0-9_]+_tokens", re.ASCII)
_NAME = re.compile(r"(\d{4}-\d{2}-\d{2})-([0-9a-f]{12})\.json", re.ASCII)


def load_price_file(path: Path) -> PriceList:
    """One list from `<date>-<12 hex>.json`. Raises PriceListError when name, hash or any row is wrong."""
    named = _NAME.fullmatch(path.name)
    if named is None:
        raise PriceListError(f"{path.name}: a price file is named <date>-<12 hex of its hash>.json")
    content = read_price_content(path)
    digest = content_hash(content)
    if digest[:12] != named[2]:
        raise PriceListError(
            f"{path.name}: its content hashes to {digest[:12]}; a changed list is a new file"
        )
    if content.get("date") != named[1]:
        raise PriceListError(f"{path.name}: its date field says {content.get('date')!r}")
    return _checked(content, digest, path.name)


def read_price_content(path: Path) -> Mapping[str, Any]:
    """A price file's JSON as it stands, its rows not yet checked. Raises PriceListError when it is no object."""
    try:
        content = json.loads(path.read_text("utf-8"), parse_float=_no_float, parse_constant=_no_float)
    except (OSError, ValueError) as error:
        raise PriceListError(f"{path.name}: {error}") from error
    if not isinstance(content, dict):
        raise PriceListError(f"{path.name}: a price file is one JSON object")
    return content


def load_price_folder(folder: Path) -> tuple[PriceList, ...]:
    """Every list of a folder, oldest first. Two lists of one date do not load together."""
    lists = sorted(map(load_price_file, price_paths(folder)), key=lambda prices: prices.date)
    for earlier, later in pairwise(lists):
        if earlier.date == later.date:
            raise PriceListError(
                f"two price lists are dated {later.date}: {earlier.id} and {later.id}; keep one"
            )
    return tuple(lists)


def price_paths(folder: Path) -> list[Path]:
    """The files of a folder that are named as price files are."""
    return [path for path in sorted(folder.glob("*.json")) if _NAME.fullmatch(path.name)]


def parse_price_list(content: Mapping[str, Any], *, source: str) -> PriceList:
    """The list in an already read file; `source` names it in errors."""
    return _checked(content, content_hash(content), source)


def _checked(content: Mapping[str, Any], digest: str, source: str) -> PriceList:
    if content.get("schema") != SCHEMA or content.get("currency") != "USD":
        raise PriceListError(f"{source}: expected schema {SCHEMA} in USD")
    try:
        dated = date.fromisoformat(content["date"])
        rows = [_row(raw) for raw in _list(content, "rows", dict)]
    except (KeyError, TypeError, ValueError) as error:
        raise PriceListError(f"{source}: {_wording(error)}") from error
    _check_overlaps(rows, source)
    return PriceList(f"{dated}+sha256:{digest[:12]}", dated, rows)


def content_hash(content: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical JSON of a list: keys sorted, no spaces, UTF-8."""
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _row(raw: Mapping[str, Any]) -> PriceRow:
    name = f"{raw.get('provider')}/{raw.get('model')}"
    try:
        if not raw.keys() <= _ROW_FIELDS:
            raise PriceListError(f"{', '.join(sorted(raw.keys() - _ROW_FIELDS))}: no such field")
        row = PriceRow(
            provider=_text(raw, "provider"),
            model=_text(raw, "model"),
            aliases=_list(raw, "aliases", str),
            kind=_kind(raw),
            tier=_tier(raw),
            prompt_above=_whole(raw, "prompt_above") if raw.get("prompt_above") is not None else None,
            prompt_from=_whole(raw, "prompt_from", least=1) if raw.get("prompt_from") is not None else None,
            peak=_peak(raw["peak"]) if raw.get("peak") is not None else None,
            effective_from=_instant(raw.get("effective_from")),
            effective_to=_instant(raw.get("effective_to")),
            rates={meter: _rate(meter, text) for meter, text in _table(raw, "rates").items()},
            fees={unit: _fee(unit, price) for unit, price in _table(raw, "fees").items()},
            max_input_tokens=_whole(raw, "max_input_tokens", least=1),
            max_output_tokens=_whole(raw, "max_output_tokens"),
            sources=_list(raw, "sources", str),
        )
        _check_interval(row)
        _check_prices(row)
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


def _check_prices(row: PriceRow) -> None:
    if row.prompt_above is not None and row.prompt_from is not None:
        raise PriceListError("prompt_above and prompt_from are two thresholds; a row has one")
    if not row.rates and not row.fees:
        raise PriceListError("a row has a rate or a fee; a free model's rate is 0")
    if row.kind == "chat" and "input" not in row.rates and {"output", "audio_output"} & row.rates.keys():
        raise PriceListError("a chat row that prices output prices input too")


def _check_overlaps(rows: Iterable[PriceRow], source: str) -> None:
    """Two rows that answer to one name must never both be in force; a peak row stands beside a plain one."""
    taken: dict[tuple[str, str, str, int, bool], list[PriceRow]] = {}
    for row in rows:
        for name in {row.model.lower(), *(alias.lower() for alias in row.aliases)}:
            key = (row.provider, name, row.tier, row.above, row.peak is not None)
            others = taken.setdefault(key, [])
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


def _rate(meter: str, text: Any) -> int:
    if meter not in METERS:
        raise PriceListError(f"{meter!r} is not a token meter; one of {', '.join(METERS)}")
    if not isinstance(text, str):
        raise PriceListError("rates must be an object of decimal texts")
    rate = _rate_of(text)
    if rate > DEAREST_RATE:
        raise PriceListError(f"{meter} at {text} USD per million tokens is beyond any list price")
    return rate


_rate_of = lru_cache(maxsize=4096)(parse_rate)  # a list writes the same few hundred rates again and again
_instant_of = lru_cache(maxsize=1024)(parse_instant)


def _fee(unit: str, price: Any) -> int | Fraction:
    """A fee's decimal text for one unit, or `{"usd": text, "per": units}`."""
    counts_tokens = _TOKEN_UNIT.fullmatch(unit) is not None
    if unit not in UNITS and not counts_tokens:
        raise PriceListError(f"{unit!r} is not a unit; one of {', '.join(UNITS)}, or a class of tokens")
    text, per = (price.get("usd"), price.get("per")) if isinstance(price, dict) else (price, 1)
    if isinstance(price, dict) and price.keys() != {"usd", "per"}:
        raise PriceListError(f"the fee {unit} has the fields usd and per")
    if not isinstance(text, str) or type(per) is not int or not 0 < per <= LARGEST_INTEGER:
        raise PriceListError(f"the fee {unit} must be decimal text, per a whole number of units")
    fee = parse_fee(text, per=per)
    if fee > (DEAREST_RATE if counts_tokens else DEAREST_FEE):
        raise PriceListError(f"{unit} at {text} USD per {per} is beyond any list price")
    return fee


def _kind(raw: Mapping[str, Any]) -> str:
    kind = _text(raw, "kind")
    if kind not in KINDS:
        raise PriceListError(f"kind {kind!r} is none of {', '.join(KINDS)}")
    return kind


def _tier(raw: Mapping[str, Any]) -> str:
    """A tier in the order batch, speed, geography, so that each combination has one spelling."""
    return _tier_of(_text(raw, "tier"))


@lru_cache(maxsize=256)
def _tier_of(tier: str) -> str:
    words = tier.split(" ")
    if _TIER.fullmatch(tier) is None or (len(words) > 1 and STANDARD in words) or BATCH in words[1:]:
        raise PriceListError(f"tier {tier!r} is not a tier, or not in the order batch, speed, geography")
    return tier


def _peak(raw: Any) -> Peak:
    """`{"hours": [[1, 4]], "weekdays": [1, 2], "except_dates": ["2026-10-01"]}`, all in UTC."""
    if not isinstance(raw, dict) or raw.keys() - {"hours", "weekdays", "except_dates"}:
        raise PriceListError("peak has the fields hours, weekdays and except_dates")
    hours = _list(raw, "hours", list)
    if not hours or not all(map(_is_span, hours)) or any(b[0] < a[1] for a, b in pairwise(hours)):
        raise PriceListError("peak hours are pairs of whole UTC hours, start before end, in their order")
    weekdays = _list(raw, "weekdays", int) or tuple(range(1, 8))
    if not all(1 <= day <= 7 for day in weekdays):
        raise PriceListError("peak weekdays are ISO numbers, 1 for Monday to 7")
    days = frozenset(date.fromisoformat(text) for text in _list(raw, "except_dates", str))
    spans = tuple((start, end) for start, end in hours)
    return Peak(hours=spans, weekdays=frozenset(weekdays), except_dates=days)


def _is_span(pair: list[Any]) -> bool:
    return len(pair) == 2 and all(type(hour) is int for hour in pair) and 0 <= pair[0] < pair[1] <= 24


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
    if not isinstance(items, list) or not all([isinstance(item, kind) for item in items]):
        raise PriceListError(f"{name} must be a list")
    return tuple(items)


def _table(raw: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """An object of prices by name; only fees may be left out."""
    table = raw[name] if name == "rates" else raw.get(name, {})
    if not isinstance(table, dict):
        raise PriceListError(f"{name} must be an object of decimal texts")
    return table


def _wording(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def _instant(text: str | None) -> datetime | None:
    return None if text is None else _instant_of(text)


def _no_float(text: str) -> Any:
    raise ValueError(f"{text} is a JSON number with a fraction; rates are decimal text")
