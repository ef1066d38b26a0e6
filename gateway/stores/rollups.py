"""Rollups: what the requests of each UTC day come to, per attribution and outcome, kept with the receipts themselves.

A rollup is written in the transaction of the receipts that it sums, so that counters are hydrated and reports answered
from a few rows instead of millions of receipts. `node` is among its dimensions: each node writes rows of its own. A row
sums requests in their final state (`finals.py`); a correction moves its request: the rows it touches are summed anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ColumnElement,
    Connection,
    Index,
    PrimaryKeyConstraint,
    Table,
    and_,
    delete,
    func,
    select,
)

from gateway.stores import closed_sums
from gateway.stores.finals import (
    COST,
    COST_KNOWN,
    COUNTED,
    COUNTED_TOKENS,
    DAY_US,
    REQUEST,
    UNPRICED,
    Part,
    count,
    final,
    final_requests,
    of_period,
)
from gateway.stores.rows import from_micros, to_micros
from gateway.stores.statements import inserted
from gateway.stores.tables import TEXT, metadata, receipts
from toolkit.core.receipts import USAGE_COLUMNS, Receipt

DIMENSIONS = (
    "node",
    "organization",
    "project",
    "key_id",
    "customer",
    "run",
    "tags",
    "provider",
    "dialect",
    "route",
    "model_requested",
    "model_served",
    "status",
    "refusal_code",
    "service_tier",
    "unpriced_reason",
    "price_list",
)
TOKENS = tuple(USAGE_COLUMNS.values())
_COUNTS = ("requests", "priced_requests", "unpriced_requests", "counted_requests")
_MONEY = ("cost_nano_usd", "counted_nano_usd", "counted_tokens")
SUMS = (*_COUNTS, *TOKENS, *_MONEY)
"""`priced_requests` have a known cost, `unpriced_requests` were served or abandoned without one, `counted_requests`
are what request limits count. A meter that no request reported is null."""
_SPAN = ("first_at", "last_at")
COLUMNS = ("day", "digest", *DIMENSIONS, *SUMS, *_SPAN)
"""Every column, in the order in which rows are read and summed."""

rollups = Table(
    "rollups",
    metadata,
    Column("day", BigInteger, nullable=False),
    Column("digest", TEXT, nullable=False),
    *(Column(name, TEXT) for name in DIMENSIONS),
    *(Column(name, BigInteger, nullable=name in TOKENS) for name in SUMS),
    *(Column(name, BigInteger, nullable=False) for name in _SPAN),
    *(CheckConstraint(f"abs({name}) < 9223372036854775807", name=f"rollup_{name}_range") for name in SUMS),
    PrimaryKeyConstraint("day", "digest"),
    Index("rollups_day", "organization", "day"),
)
"""`day` counts days since 1970-01-01; `digest` stands for the dimensions; the span is that of admissions."""


def _added(name: str) -> str:
    old, new = f"rollups.{name}", f"excluded.{name}"
    if name in TOKENS:
        return f"{name} = COALESCE({old} + {new}, {old}, {new})"
    if name in _SPAN:
        sign = "<" if name == "first_at" else ">"
        return f"{name} = CASE WHEN {new} {sign} {old} THEN {new} ELSE {old} END"
    return f"{name} = {old} + {new}"


_ADD = inserted(
    rollups,
    COLUMNS,
    f" ON CONFLICT (day, digest) DO UPDATE SET {', '.join(_added(name) for name in (*SUMS, *_SPAN))}",
)
_encode = msgspec.json.Encoder().encode


def add(connection: Connection, done: Iterable[Receipt]) -> None:
    """Count receipts that are being appended to the ledger, in the same transaction, after their own insertion."""
    sums: dict[tuple[int, str], list[Any]] = {}
    dimensions: dict[tuple[int, str], tuple[Any, ...]] = {}
    corrections: list[Receipt] = []
    earliest: int | None = None
    for receipt in done:
        at = to_micros(receipt.admitted_at)
        earliest = at if earliest is None else min(at, earliest)
        if receipt.corrects is not None:
            corrections.append(receipt)
            continue
        mine = _dimensions(vars(receipt), _encode(receipt.tags).decode() if receipt.tags else "[]")
        key = (at // DAY_US, _digest(mine))
        found = sums.get(key)
        if found is None:
            dimensions[key] = mine
            sums[key] = _figures(receipt, at)
        else:
            _count(found, _figures(receipt, at))
    _ADD.run(connection, [(*key, *dimensions[key], *found) for key, found in sums.items()])
    for receipt in corrections:
        _move(connection, receipt)
    if earliest is not None:
        closed_sums.forget(connection, earliest)


def build(connection: Connection) -> None:
    """Make the rollups of a ledger that has none, day by day."""
    connection.execute(delete(rollups))
    connection.execute(delete(closed_sums.closed_sums))
    first, last = connection.execute(
        select(func.min(receipts.c.admitted_at), func.max(receipts.c.admitted_at))
    ).one()
    if first is None:
        return
    organizations = connection.execute(select(receipts.c.organization).distinct()).scalars().all()
    for day in range(first // DAY_US, last // DAY_US + 1):
        for organization in organizations:
            _ADD.run(connection, list(summed(connection, organization, day)))


def summed(
    connection: Connection, organization: str, day: int, *conditions: Any
) -> Iterator[tuple[Any, ...]]:
    """What the rollups of a day must be, from its receipts, in the order of the table's columns."""
    dimensions = [final.c[name] for name in DIMENSIONS]
    is_counted = final.c.status.in_(("served", "abandoned"))
    query = (
        select(
            *dimensions,
            func.sum(REQUEST),
            count(COST_KNOWN),
            count(UNPRICED),
            count(is_counted),
            *(func.sum(final.c[name]) for name in TOKENS),
            func.sum(COST),
            func.sum(COUNTED),
            func.sum(COUNTED_TOKENS),
            func.min(final.c.admitted_at),
            func.max(final.c.admitted_at),
        )
        .select_from(final_requests())
        .where(of_period(organization, _part(day)), *conditions)
        .group_by(*dimensions)
    )
    for row in connection.execute(query):
        mine = tuple(row[: len(DIMENSIONS)])
        figures = (None if value is None else int(value) for value in row[len(DIMENSIONS) :])
        yield (day, _digest(mine), *mine, *figures)


def kept(connection: Connection, organization: str, day: int) -> Iterator[tuple[Any, ...]]:
    """The rollups of a day as they are, in the order of the table's columns."""
    query = select(*(rollups.c[name] for name in COLUMNS))
    for row in connection.execute(query.where(rollups.c.organization == organization, rollups.c.day == day)):
        yield tuple(row)


def days_of(connection: Connection, organization: str) -> list[int]:
    """The days that have a rollup, oldest first."""
    query = select(rollups.c.day).where(rollups.c.organization == organization).distinct()
    return list(connection.execute(query.order_by(rollups.c.day)).scalars())


def of_days(organization: str, part: Part) -> ColumnElement[bool]:
    """The rollups of an organization in a period of whole UTC days."""
    start, end = part
    found = [rollups.c.organization == organization]
    if start is not None:
        found.append(rollups.c.day >= day_of(start))
    if end is not None:
        found.append(rollups.c.day < day_of(end))
    return and_(*found)


def day_of(at: datetime) -> int:
    """The UTC day of an instant, in days since 1970-01-01."""
    return to_micros(at) // DAY_US


def _part(day: int) -> Part:
    start = from_micros(day * DAY_US)
    return start, start + timedelta(days=1)


def _dimensions(columns: dict[str, Any], tags: str) -> tuple[Any, ...]:
    return tuple([tags if name == "tags" else columns[name] for name in DIMENSIONS])


def _digest(dimensions: Sequence[Any]) -> str:
    return hashlib.blake2b(_encode(dimensions), digest_size=16).hexdigest()


def _figures(receipt: Receipt, at: int) -> list[Any]:
    """One request's part, in the order of SUMS and the span."""
    row = vars(receipt)
    counts = int(receipt.status in ("served", "abandoned"))
    known = int(receipt.cost_nano_usd is not None)
    return [
        1,
        known,
        counts and 1 - known,
        counts,
        *[row[name] for name in TOKENS],
        receipt.cost_nano_usd or 0,
        receipt.counted_nano_usd,
        receipt.counted_tokens or 0,
        at,
        at,
    ]


def _count(into: list[Any], figures: Sequence[Any]) -> None:
    for place, value in enumerate(figures[:-2]):
        if value is not None:
            into[place] = value if into[place] is None else into[place] + value
    into[-2], into[-1] = min(into[-2], figures[-2]), max(into[-1], figures[-1])


def _move(connection: Connection, correction: Receipt) -> None:
    """Sum the two rows anew that a corrected request leaves and comes to."""
    day = day_of(correction.admitted_at)
    both = receipts.c.receipt_id.in_((correction.receipt_id, correction.corrects))
    for row in connection.execute(select(*(receipts.c[name] for name in DIMENSIONS)).where(both)).all():
        mine = and_(
            *(final.c[name].is_not_distinct_from(value) for name, value in zip(DIMENSIONS, row, strict=True))
        )
        connection.execute(
            delete(rollups).where(rollups.c.day == day, rollups.c.digest == _digest(tuple(row)))
        )
        _ADD.run(connection, list(summed(connection, correction.organization, day, mine)))
