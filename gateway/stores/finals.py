"""Requests in their final state, in SQL: what every report sums over (contract §10).

A corrected row gives way to its correction, which takes over its money; a request is counted once. Times are
cut at 00:00 UTC. The same rules hold for frames in the toolkit; a test compares both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    FromClause,
    and_,
    case,
    exists,
    func,
    literal_column,
    or_,
    select,
)

from gateway.stores.rows import from_micros, to_micros
from gateway.stores.tables import receipts
from toolkit.core.windows import Window, period_at, period_key


def _number(value: int) -> ColumnElement[int]:
    """A number in the statement itself: PostgreSQL does not see that two parameters of a grouping are the same."""
    return literal_column(str(value), BigInteger)


DAY_US = 86_400_000_000
_DAY = _number(DAY_US)

final = receipts.alias("final")
_before = receipts.alias("corrected")
_later = receipts.alias("correction")

Part = tuple[datetime | None, datetime | None]
"""`[start, end)` by admission; None leaves that side open."""


class Dimension(NamedTuple):
    """What a report groups by: an SQL expression, and its values as people read them."""

    column: ColumnElement[Any]
    shown: Callable[[Any], str | None]


def final_requests() -> FromClause:
    """Receipts that no other corrects, each beside the one that it corrects."""
    return final.outerjoin(_before, _before.c.receipt_id == final.c.corrects)


def of_period(organization: str, part: Part) -> ColumnElement[bool]:
    """The final requests of an organization that were admitted in a period."""
    corrected = exists(select(1).where(_later.c.corrects == final.c.receipt_id))
    return and_(final.c.organization == organization, ~corrected, *within(final.c.admitted_at, part))


def within(admitted: ColumnElement[int], part: Part) -> list[ColumnElement[bool]]:
    """Conditions that an admission lies in a period."""
    start, end = part
    found: list[ColumnElement[bool]] = []
    if start is not None:
        found.append(admitted >= to_micros(start))
    if end is not None:
        found.append(admitted < to_micros(end))
    return found


def walked(organization: str, part: Part) -> list[ColumnElement[bool]]:
    """Receipts of a period for a query that walks them as they were written.

    The conditions name no bare column: SQLite would else read an index's range and sort it for every page.
    """
    mine = receipts.c.organization.concat("") == organization
    return [mine, *within(receipts.c.admitted_at + 0, part)]


REQUEST: ColumnElement[int] = case(
    (or_(final.c.corrects.is_(None), _before.c.receipt_id.is_not(None)), 1), else_=0
)
"""1, or 0 for a correction whose request is not there."""

UNPRICED = and_(final.c.status.in_(("served", "abandoned")), final.c.cost_nano_usd.is_(None))
MODEL = func.coalesce(final.c.model_served, final.c.model_requested)
COST_KNOWN = or_(final.c.cost_nano_usd.is_not(None), _before.c.cost_nano_usd.is_not(None))
COST = func.coalesce(final.c.cost_nano_usd, 0) + func.coalesce(_before.c.cost_nano_usd, 0)
COUNTED = final.c.counted_nano_usd + func.coalesce(_before.c.counted_nano_usd, 0)
COUNTED_TOKENS = func.coalesce(final.c.counted_tokens, 0) + func.coalesce(_before.c.counted_tokens, 0)


def count(condition: ColumnElement[bool]) -> ColumnElement[int]:
    """How many requests meet a condition."""
    return func.coalesce(func.sum(case((condition, REQUEST), else_=0)), 0)


def admitted_between(connection: Connection, organization: str, part: Part = (None, None)) -> Part:
    """The first and the last admission within a period; both None when there is none."""
    mine = (receipts.c.organization == organization, *within(receipts.c.admitted_at, part))
    # One at a time, an index answers each at once; together they would read all of it.
    ends = (
        select(edge(receipts.c.admitted_at)).where(*mine).scalar_subquery() for edge in (func.min, func.max)
    )
    first, last = connection.execute(select(*ends)).one()
    return (None, None) if first is None else (from_micros(first), from_micros(last))


def bucket(
    window: Window, first: datetime | None, last: datetime | None, admitted: ColumnElement[int]
) -> Dimension:
    """The period of `window` that an admission lies in; all lie between `first` and `last`."""
    if window == "day":
        return Dimension(admitted // _DAY, lambda days: period_key("day", _midday(days)))
    if window == "week":
        # 1970-01-01 was a Thursday: Monday weeks count from three days earlier.
        return Dimension(
            (admitted // _DAY + _number(3)) // _number(7),
            lambda weeks: period_key("week", _midday(weeks * 7 - 3)),
        )
    if window == "never" or first is None or last is None:
        return Dimension(admitted * _number(0), lambda _: "all")
    ends, keys = _periods(window, first, last)
    steps = (
        case(
            *((admitted < _number(end), _number(index)) for index, end in enumerate(ends)),
            else_=_number(len(ends)),
        )
        if ends
        else admitted * _number(0)
    )
    return Dimension(steps, lambda index: keys[index])


def _periods(window: Window, first: datetime, last: datetime) -> tuple[Sequence[int], Sequence[str]]:
    """The keys of all periods from `first` to `last`, and where all but the last end."""
    ends: list[int] = []
    keys: list[str] = []
    at = first
    while True:
        period = period_at(window, at)
        keys.append(period.key)
        if period.end is None or period.end > last:
            return ends, keys
        ends.append(to_micros(period.end))
        at = period.end


def _midday(days: int) -> datetime:
    return from_micros(0) + timedelta(days=days, hours=12)
