"""Retention by closed month: which months there are, which may be dropped, and their receipts taken out in steps.

A dropped month keeps its chain heads and its rollups, so reports and counters stay right and a later chain goes on. The
month is marked before its first receipt goes: a drop that was cut off is seen, and goes on where it stopped.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    PrimaryKeyConstraint,
    Table,
    delete,
    func,
    insert,
    select,
    update,
)

from gateway.stores.backgrounds import backgrounds
from gateway.stores.finals import DAY_US, Part, within
from gateway.stores.open_calls import forget_calls, open_calls
from gateway.stores.rollups import rollups
from gateway.stores.rows import from_micros, to_micros
from gateway.stores.tables import TEXT, chain_heads, intents, metadata, receipts
from toolkit.core.windows import Period, period_at, period_key, period_of

GRACE = timedelta(days=2)
"""How long a month is over before it may be dropped: longer than any call runs or clock errs."""
STEP_ROWS = 5_000
"""Receipts that go in one transaction: calls that are running wait for it."""

dropped_months = Table(
    "dropped_months",
    metadata,
    Column("organization", TEXT, nullable=False),
    Column("month", TEXT, nullable=False),
    Column("begun_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    PrimaryKeyConstraint("organization", "month"),
)
"""Months whose receipts were given up; `ended_at` is null while some are still there."""


class Head(NamedTuple):
    """The end of one chain: its node, its number of rows, and the hash of the last one."""

    node: str
    rows: int
    head: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Month:
    """A month of the ledger. `state` is `kept`, `dropping` or `dropped`."""

    month: str
    state: str
    over: bool
    heads: tuple[Head, ...]
    requests: int
    unpriced_requests: int
    cost_nano_usd: int


def months(connection: Connection, organization: str, now: datetime) -> list[Month]:
    """Every month that has a chain, oldest first."""
    states = dropped(connection, organization)
    sums = _sums(connection, organization)
    return [
        Month(
            month=month,
            state=states.get(month, "kept"),
            over=_ended(period_of(month), now),
            heads=heads,
            requests=sums.get(month, _NOTHING)[0],
            unpriced_requests=sums.get(month, _NOTHING)[1],
            cost_nano_usd=sums.get(month, _NOTHING)[2],
        )
        for month, heads in _heads(connection, organization).items()
    ]


def dropped(connection: Connection, organization: str) -> dict[str, str]:
    """`dropping` or `dropped` for each month whose receipts were given up."""
    query = select(dropped_months.c.month, dropped_months.c.ended_at)
    found = connection.execute(query.where(dropped_months.c.organization == organization))
    return {row.month: "dropping" if row.ended_at is None else "dropped" for row in found}


def gone_from(connection: Connection, organization: str, part: Part) -> list[str]:
    """The months of a period whose receipts were given up, oldest first."""
    start, end = part
    return sorted(
        month for month in dropped(connection, organization) if _overlaps(period_of(month), start, end)
    )


def lies_in(part: Part, gone: Collection[str]) -> bool:
    """Whether a period has no day outside the given months."""
    start, end = part
    if start is None or end is None or not gone:
        return False
    at: datetime | None = start
    while at is not None and at < end:
        period = period_at("month", at)
        if period.key not in gone:
            return False
        at = period.end
    return True


def why_kept(
    connection: Connection, organization: str, month: str, heads: Sequence[Head], now: datetime
) -> str | None:
    """Why a month's receipts must stay, as a sentence; None when they may go. `heads` are those of its export."""
    period = period_of(month)
    mine = _heads(connection, organization).get(month)
    if mine is None:
        return f"{month} has no receipts."
    if not _ended(period, now):
        return f"{month} is not over for {GRACE.days} days yet; a call of it may still end."
    part = (period.start, period.end)
    running = open_calls(connection, *within(intents.c.admitted_at, part))
    if any(json.loads(call["receipt"])["organization"] == organization for call in running):
        return f"A call of {month} is open still."
    followed = select(func.count()).where(
        backgrounds.c.organization == organization, *within(backgrounds.c.admitted_at, part)
    )
    if connection.execute(followed).scalar_one():
        return f"A background response of {month} is followed still."
    if sorted(heads) != sorted(mine):
        return f"The chains of {month} end elsewhere than those that were sent; export the month again."
    newest = connection.execute(
        select(receipts.c.organization, receipts.c.admitted_at).order_by(receipts.c.row_seq.desc()).limit(1)
    ).first()
    if newest is None or (
        newest.organization == organization and period_key("month", from_micros(newest.admitted_at)) == month
    ):
        return f"{month} holds the newest receipt of the ledger, from which the next start goes on."
    return None


def begin_drop(connection: Connection, organization: str, month: str, now: datetime) -> None:
    """Mark a month, in the transaction that found that it may go.

    The intents of its calls go too: without their receipts they would look like open calls.
    """
    connection.execute(
        insert(dropped_months).values(organization=organization, month=month, begun_at=to_micros(now))
    )
    period = period_of(month)
    ended = connection.execute(
        select(intents.c.receipt_id, intents.c.receipt).where(
            *within(intents.c.admitted_at, (period.start, period.end))
        )
    ).all()
    for call in ended:
        if json.loads(call.receipt)["organization"] == organization:
            forget_calls(connection, intents.c.receipt_id == call.receipt_id)


def drop_step(connection: Connection, organization: str, month: str, now: datetime) -> int:
    """Take out some of a marked month's receipts; how many. None left: the month is marked as dropped."""
    period = period_of(month)
    mine = (
        receipts.c.organization == organization,
        *within(receipts.c.admitted_at, (period.start, period.end)),
    )
    some = select(receipts.c.row_seq).where(*mine).limit(STEP_ROWS)
    gone = connection.execute(delete(receipts).where(receipts.c.row_seq.in_(some))).rowcount
    if not gone:
        connection.execute(
            update(dropped_months)
            .where(dropped_months.c.organization == organization, dropped_months.c.month == month)
            .values(ended_at=to_micros(now))
        )
    return gone


_NOTHING = (0, 0, 0)


def _heads(connection: Connection, organization: str) -> Mapping[str, tuple[Head, ...]]:
    query = select(chain_heads).where(chain_heads.c.organization == organization)
    found: dict[str, tuple[Head, ...]] = {}
    for row in connection.execute(query.order_by(chain_heads.c.month, chain_heads.c.node)):
        found[row.month] = (*found.get(row.month, ()), Head(row.node, row.chain_seq, row.row_hash))
    return found


def _sums(connection: Connection, organization: str) -> Mapping[str, tuple[int, int, int]]:
    """Requests, unpriced requests and cost of each month, from the rollups."""
    names = ("requests", "unpriced_requests", "cost_nano_usd")
    query = select(rollups.c.day, *(func.sum(rollups.c[name]) for name in names))
    found: dict[str, tuple[int, int, int]] = {}
    for day, *sums in _rows(connection, query.where(rollups.c.organization == organization)):
        month = period_key("month", from_micros(day * DAY_US))
        before = found.get(month, _NOTHING)
        found[month] = (before[0] + sums[0], before[1] + sums[1], before[2] + sums[2])
    return found


def _rows(connection: Connection, query: Any) -> Iterator[tuple[int, ...]]:
    for row in connection.execute(query.group_by(rollups.c.day)):
        yield tuple(int(value) for value in row)


def _ended(period: Period, now: datetime) -> bool:
    return period.end is not None and period.end + GRACE <= now


def _overlaps(period: Period, start: datetime | None, end: datetime | None) -> bool:
    assert period.start is not None, "a month has two ends"
    assert period.end is not None, "a month has two ends"
    return (start is None or period.end > start) and (end is None or period.start < end)
