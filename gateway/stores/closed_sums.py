"""What a cap's counters took in the days of its period that are over: summed once, and not at every start.

A sum holds until a receipt of one of its days comes late: the transaction that appends such a receipt takes it out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Index,
    PrimaryKeyConstraint,
    Table,
    delete,
    exists,
    insert,
    literal,
    select,
)

from gateway.stores.finals import DAY_US
from gateway.stores.tables import TEXT, metadata, receipts

OPEN_DAYS = 2
"""The last days are summed anew at every start: calls of theirs still end."""

Group = tuple[str, str, str, str]
"""Subject, provider, model and the JSON of the tags, each empty where a cap does not ask for it."""
Sums = dict[Group, tuple[int, int, int]]
"""Nano-USD, tokens and requests."""

closed_sums = Table(
    "closed_sums",
    metadata,
    Column("organization", TEXT, nullable=False),
    Column("kind", TEXT, nullable=False),
    Column("period", TEXT, nullable=False),
    Column("day", BigInteger, nullable=False),
    Column("sums", TEXT, nullable=False),
    PrimaryKeyConstraint("organization", "kind"),
    Index("closed_sums_day", "day"),
)
"""The sums of a period's days before `day`, in days since 1970-01-01; one for each scope, subject, match and window."""

_FORGET = {
    "qmark": "DELETE FROM closed_sums WHERE day > ?",
    "pyformat": "DELETE FROM closed_sums WHERE day > %s",
}


class Closed(NamedTuple):
    """Sums of the days before `day`, read from a ledger whose last row was `row`."""

    organization: str
    kind: str
    period: str
    day: int
    sums: Sums
    row: int


def find(connection: Connection, organization: str, kind: str, period: str) -> tuple[int, Sums] | None:
    """(day, sums of the days before it), where they are known."""
    query = select(closed_sums.c.day, closed_sums.c.sums).where(
        closed_sums.c.organization == organization,
        closed_sums.c.kind == kind,
        closed_sums.c.period == period,
    )
    found = connection.execute(query).first()
    return None if found is None else (found.day, _read(found.sums))


def stored(connection: Connection, organization: str) -> Iterator[tuple[str, str, int, Sums]]:
    """(kind, period, day, sums) of everything that is kept for an organization."""
    query = select(closed_sums).where(closed_sums.c.organization == organization)
    for row in connection.execute(query.order_by(closed_sums.c.kind)).all():
        yield row.kind, row.period, row.day, _read(row.sums)


def keep(connection: Connection, closed: Closed) -> None:
    """Write sums down, unless a receipt of their days has come since they were read."""
    late = select(literal(1)).where(
        receipts.c.row_seq > closed.row, receipts.c.admitted_at + 0 < closed.day * DAY_US
    )
    if connection.execute(select(exists(late))).scalar_one():
        return
    mine = (closed_sums.c.organization == closed.organization, closed_sums.c.kind == closed.kind)
    connection.execute(delete(closed_sums).where(*mine))
    text = json.dumps([[*group, *sums] for group, sums in closed.sums.items()], separators=(",", ":"))
    connection.execute(
        insert(closed_sums).values(
            organization=closed.organization,
            kind=closed.kind,
            period=closed.period,
            day=closed.day,
            sums=text,
        )
    )


def forget(connection: Connection, admitted_at: int) -> None:
    """Take out every sum that a receipt, admitted at this microsecond, would change."""
    statement = _FORGET[connection.dialect.paramstyle]
    connection.exec_driver_sql(statement, (admitted_at // DAY_US,))


def _read(text: str) -> Sums:
    return {
        (subject, provider, model, tags): (nano_usd, tokens, requests)
        for subject, provider, model, tags, nano_usd, tokens, requests in json.loads(text)
    }
