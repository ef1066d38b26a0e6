"""What the ledger says that a cap's counters took in a period: the truth that counters are hydrated from.

It is read from the rollups: every period is made of whole UTC days. Of a long period, the days that are over are summed
once and kept (`closed_sums.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection, func, literal, select

from gateway.stores.closed_sums import OPEN_DAYS, Closed, Sums, find, stored
from gateway.stores.rollups import day_of, rollups
from gateway.stores.tables import receipts
from toolkit.core.caps import EACH, Cap, CapBook
from toolkit.core.decisions import BalanceKey
from toolkit.core.scopes import Attribution, Scope
from toolkit.core.windows import Period, period_at, period_of

_FIELDS: dict[Scope, str] = {
    "organization": "organization",
    "project": "project",
    "key": "key_id",
    "customer": "customer",
    "run": "run",
}

Days = tuple[int | None, int | None]
"""`[first, end)` in days since 1970-01-01; None leaves that side open."""


class Grouping(NamedTuple):
    """By what a cap's requests are told apart, and which of them it stands over."""

    scope: Scope
    subject: str
    by_model: bool
    by_tags: bool

    @classmethod
    def of(cls, cap: Cap) -> Grouping:
        """That of a cap."""
        by_model = cap.match.provider is not None or cap.match.model is not None
        return cls(cap.scope, cap.subject, by_model, cap.match.tag is not None)


class Spent(NamedTuple):
    """Counted amounts by counter, and sums of closed days that are worth keeping."""

    by_key: dict[BalanceKey, int]
    closed: Closed | None


def spent_by_key(
    connection: Connection, organization: str, cap: Cap, at: datetime, *, from_rollups: bool = False
) -> Spent:
    """What the period that holds `at` took, for every counter that `cap` stands over.

    `from_rollups` leaves aside what is kept of closed days.
    """
    period, grouping = period_at(cap.window, at), Grouping.of(cap)
    closed = None
    if from_rollups or cap.window in ("day", "week"):
        sums = _sums(connection, organization, grouping, _days(period))
    else:
        over = day_of(at) - OPEN_DAYS
        sums, closed = _mostly_closed(connection, organization, grouping, period, over)
    spent: dict[BalanceKey, int] = {}
    for who, subject, counted in _attributed(grouping, sums):
        match = cap.resolved_match(who)
        if match is not None:
            for unit, _ in cap.limits:
                key = BalanceKey(organization, cap.scope, subject, match, period.key, unit)
                spent[key] = spent.get(key, 0) + counted[unit]
    return Spent(spent, closed)


def covers(book: CapBook, key: BalanceKey) -> bool:
    """Whether some cap of the book already counts on this counter."""
    window = period_of(key.period).window
    who = Attribution(
        organization=key.organization,
        tags=(key.match.tag,) if key.match.tag else (),
        provider=key.match.provider or "",
        model=key.match.model or "",
    )
    return any(
        cap.scope == key.scope
        and cap.subject in (EACH, key.subject)
        and cap.window == window
        and cap.limit(key.unit) is not None
        and cap.resolved_match(who) == key.match
        for cap in book.caps
    )


def wrong_closed_sums(connection: Connection, organization: str) -> Iterator[str]:
    """What is kept of closed days and is not what their rollups give, in words."""
    for kind, period, day, sums in stored(connection, organization):
        scope, subject, by_model, by_tags, _ = json.loads(kind)
        first, _ = _days(period_of(period))
        if sums != _sums(connection, organization, Grouping(scope, subject, by_model, by_tags), (first, day)):
            yield f"what is kept of the closed days of {period} by {scope} is not what their rollups give"


def _mostly_closed(
    connection: Connection, organization: str, grouping: Grouping, period: Period, over: int
) -> tuple[Sums, Closed | None]:
    """The sums of a period; and those of its days before `over`, where no such are kept yet."""
    last_row = connection.execute(select(func.coalesce(func.max(receipts.c.row_seq), 0))).scalar_one()
    first, end = _days(period)
    kind = json.dumps([*grouping, period.window])
    until, sums = find(connection, organization, kind, period.key) or (first, Sums())
    closed = None
    if until is None or until < over:
        _add(sums, _sums(connection, organization, grouping, (until, over)))
        until = over
        closed = Closed(organization, kind, period.key, over, dict(sums), last_row)
    _add(sums, _sums(connection, organization, grouping, (until, end)))
    return sums, closed


def _add(into: Sums, more: Sums) -> None:
    for group, (nano_usd, tokens, requests) in more.items():
        before = into.get(group, (0, 0, 0))
        into[group] = (before[0] + nano_usd, before[1] + tokens, before[2] + requests)


def _days(period: Period) -> Days:
    if period.start is None or period.end is None:
        return None, None
    return day_of(period.start), day_of(period.end)


def _sums(connection: Connection, organization: str, grouping: Grouping, days: Days) -> Sums:
    """What the rollups of some days come to."""
    subject = rollups.c[_FIELDS[grouping.scope]]
    none = literal("")
    model = (rollups.c.provider, rollups.c.model_requested) if grouping.by_model else (none, none)
    groups = [subject, *model, rollups.c.tags if grouping.by_tags else none]
    query = (
        select(
            *groups,
            func.sum(rollups.c.counted_nano_usd),
            func.sum(rollups.c.counted_tokens),
            func.sum(rollups.c.counted_requests),
        )
        .where(rollups.c.organization == organization, subject.is_not(None))
        .group_by(*(group for group in groups if group is not none))
    )
    if grouping.subject != EACH:
        query = query.where(subject == grouping.subject)
    for edge, condition in zip(days, (rollups.c.day.__ge__, rollups.c.day.__lt__), strict=True):
        if edge is not None:
            query = query.where(condition(edge))
    found = connection.execute(query).all()
    return {
        (row[0], row[1] or "", row[2] or "", row[3]): (int(row[4]), int(row[5]), int(row[6])) for row in found
    }


def _attributed(grouping: Grouping, sums: Sums) -> Iterator[tuple[Attribution, str, dict[str, int]]]:
    field = _FIELDS[grouping.scope]
    for (subject, provider, model, tags), (nano_usd, tokens, requests) in sums.items():
        who = Attribution(
            **{"organization": subject, field: subject},
            tags=tuple(json.loads(tags)) if grouping.by_tags else (),
            provider=provider,
            model=model.removeprefix(f"{provider}/"),
        )
        yield who, subject, {"usd": nano_usd, "tokens": tokens, "requests": requests}
