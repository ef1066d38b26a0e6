"""What the receipts of a period say that a cap's counters took: the truth that counters are hydrated from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, and_, case, func, select

from gateway.stores.rows import to_micros
from gateway.stores.tables import receipts
from toolkit.core.caps import EACH, Cap, CapBook
from toolkit.core.decisions import BalanceKey
from toolkit.core.scopes import Attribution
from toolkit.core.windows import period_at, period_of

_SUBJECTS = {
    "organization": receipts.c.organization,
    "project": receipts.c.project,
    "key": receipts.c.key_id,
    "customer": receipts.c.customer,
    "run": receipts.c.run,
}


def last_receipt(connection: Connection) -> int:
    """The sequence of the last row of the ledger."""
    return int(connection.execute(select(func.coalesce(func.max(receipts.c.row_seq), 0))).scalar_one())


def spent_by_key(
    connection: Connection, organization: str, cap: Cap, at: datetime, *, last_row: int | None = None
) -> dict[BalanceKey, int]:
    """Counted amounts of the period that holds `at`, by counter, for every counter that `cap` stands over.

    `last_row` leaves out what was written later.
    """
    period = period_at(cap.window, at)
    query = _query(organization, cap, period.start, period.end)
    if last_row is not None:
        query = query.where(receipts.c.row_seq <= last_row)
    spent: dict[BalanceKey, int] = {}
    for who, counted in _groups(connection, query, cap):
        match = cap.resolved_match(who)
        subject = who.subject(cap.scope)
        if match is None or subject is None:
            continue
        for unit, _ in cap.limits:
            key = BalanceKey(organization, cap.scope, subject, match, period.key, unit)
            spent[key] = spent.get(key, 0) + counted[unit]
    return spent


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


def _query(organization: str, cap: Cap, start: datetime | None, end: datetime | None) -> Select[Any]:
    served = and_(receipts.c.corrects.is_(None), receipts.c.status.in_(("served", "abandoned")))
    tags = [receipts.c.tags] if cap.match.tag is not None else []
    groups = [_SUBJECTS[cap.scope].label("subject"), receipts.c.provider, receipts.c.model_requested, *tags]
    query = (
        select(
            *groups,
            func.sum(receipts.c.counted_nano_usd).label("usd"),
            func.sum(receipts.c.counted_tokens).label("tokens"),
            func.sum(case((served, 1), else_=0)).label("requests"),
        )
        .where(receipts.c.organization == organization, _SUBJECTS[cap.scope].is_not(None))
        .group_by(*groups)
    )
    if cap.subject != EACH:
        query = query.where(_SUBJECTS[cap.scope] == cap.subject)
    if start is not None and end is not None:
        query = query.where(
            receipts.c.admitted_at >= to_micros(start), receipts.c.admitted_at < to_micros(end)
        )
    return query


def _groups(
    connection: Connection, query: Select[Any], cap: Cap
) -> Iterator[tuple[Attribution, dict[str, int]]]:
    for row in connection.execute(query):
        provider, model = row.provider or "", row.model_requested or ""
        who = Attribution(
            **{"organization": row.subject, _FIELDS[cap.scope]: row.subject},
            tags=tuple(json.loads(row.tags)) if cap.match.tag is not None else (),
            provider=provider,
            model=model.removeprefix(f"{provider}/"),
        )
        yield who, {"usd": row.usd, "tokens": row.tokens, "requests": row.requests}


_FIELDS = {
    "organization": "organization",
    "project": "project",
    "key": "key_id",
    "customer": "customer",
    "run": "run",
}
