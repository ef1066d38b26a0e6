"""Operator prices: a second file of the same schema, laid over the published lists.

While an operator's row is in force it stands for every published row of its names in its tier, long-context and peak
rows included; outside its interval, for the published row's other names and in other tiers the published price
stays. Each merged list is a list of its own, with its own id, dated the later of the two: published and contract
price stay two numbers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from toolkit.core.errors import PriceListError
from toolkit.core.pricefile import content_hash, parse_price_list, read_price_content
from toolkit.core.windows import instant_text, parse_instant

Content = Mapping[str, Any]
"""A price file as its JSON reads: rates are text, instants are text."""


def operator_content(path: Path) -> Content:
    """A file of operator prices, checked. Raises PriceListError for a row or a field that is wrong or missing."""
    content = read_price_content(path)
    reason = content.get("reason")
    if not isinstance(reason, str) or not reason.strip():
        raise PriceListError(f'{path.name}: say why these prices hold: "reason": "…"')
    parse_price_list(content, source=path.name)
    for row in content["rows"]:
        if row.get("effective_from") is None:
            name = f"{row['provider']}/{row['model']}"
            raise PriceListError(
                f"{path.name}: row {name}: effective_from is missing; say from when it holds"
            )
    return content


def merged_contents(published: Iterable[Content], operator: Content) -> list[Content]:
    """The published lists, oldest first, with the operator's rows in those that price calls from its date on.

    A call before the operator's date keeps its published list; the list in force on that date, and every later
    one, is merged.
    """
    ordered = sorted(published, key=lambda content: str(content["date"]))
    starts = operator["date"]
    before = [content for content in ordered if content["date"] <= starts]
    later = [content for content in ordered if content["date"] > starts]
    based = before[-1:] if before else []
    kept = [content for content in before if content["date"] < starts]
    return [*kept, *(merged(content, operator) for content in (*based, *later))]


def merged(published: Content, operator: Content) -> Content:
    """One published list with the operator's rows laid over it, as the content of a price file."""
    rows = [part for row in published["rows"] for part in _uncovered(row, operator["rows"])]
    return {
        **published,
        "date": max(str(published["date"]), str(operator["date"])),
        "rows": [*operator["rows"], *rows],
        "operator": {
            "date": operator["date"],
            "reason": operator["reason"],
            "sha256": content_hash(operator),
            "published": list_id(published),
        },
    }


def list_id(content: Content) -> str:
    """The id of a list by its content: `<date>+sha256:<12 hex>`."""
    return f"{content['date']}+sha256:{content_hash(content)[:12]}"


def file_name(content: Content) -> str:
    """The name under which a list's content loads as a price file."""
    return f"{content['date']}-{content_hash(content)[:12]}.json"


def file_text(content: Content) -> str:
    """A price file's text: a row a line, so that two lists can be compared by eye."""
    rows = ",\n".join(json.dumps(row, sort_keys=True, ensure_ascii=False) for row in content["rows"])
    rest = {name: value for name, value in content.items() if name != "rows"}
    head = json.dumps(rest, sort_keys=True, ensure_ascii=False, indent=1)
    return f'{head.removesuffix("}").rstrip()},\n "rows": [\n{rows}\n]}}\n'


def _uncovered(row: Content, operator_rows: Iterable[Content]) -> list[Content]:
    """What is left of a published row beside the operator's: other names, other instants."""
    parts = [row]
    for over in operator_rows:
        if _place(over) == _place(row):
            parts = [left for part in parts for left in _minus(part, over)]
    return parts


def _minus(row: Content, over: Content) -> list[Content]:
    """`row` without the names and instants for which `over` holds."""
    taken = {name.lower() for name in _names(over)}
    shared = [name for name in _names(row) if name.lower() in taken]
    if not shared:
        return [row]
    rest = [name for name in _names(row) if name.lower() not in taken]
    parts = [_named(row, rest)] if rest else []
    start, end = _edge(row, "effective_from"), _edge(row, "effective_to")
    over_start, over_end = _edge(over, "effective_from"), _edge(over, "effective_to")
    if over_start is not None and (start is None or start < over_start):
        parts.append(_during(_named(row, shared), start, over_start if end is None else min(end, over_start)))
    if over_end is not None and (end is None or over_end < end):
        parts.append(_during(_named(row, shared), over_end if start is None else max(start, over_end), end))
    return parts


def _place(row: Content) -> tuple[object, ...]:
    """What two rows must have in common for one to go before the other, names and instants aside."""
    return row["provider"], row["tier"]


def _names(row: Content) -> list[str]:
    return [row["model"], *row.get("aliases", ())]


def _named(row: Content, names: Sequence[str]) -> Content:
    return {**row, "model": names[0], "aliases": list(names[1:])}


def _during(row: Content, start: datetime | None, end: datetime | None) -> Content:
    return {**row, "effective_from": _text(start), "effective_to": _text(end)}


def _edge(row: Content, name: str) -> datetime | None:
    text = row.get(name)
    return None if text is None else parse_instant(text)


def _text(at: datetime | None) -> str | None:
    return None if at is None else instant_text(at)
