"""Whether what is kept beside the receipts agrees with them: rollups, chain heads, and the counters of caps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from sqlalchemy import Connection, select

from gateway.stores.balances import covers, spent_by_key, wrong_closed_sums
from gateway.stores.finals import DAY_US, admitted_between, within
from gateway.stores.retention import dropped
from gateway.stores.rollups import COLUMNS, day_of, days_of, kept, summed
from gateway.stores.rows import from_micros
from gateway.stores.tables import chain_heads, receipts
from toolkit.core.caps import CapBook
from toolkit.core.decisions import BalanceKey
from toolkit.core.windows import period_key, period_of


class Checked(NamedTuple):
    """What was compared, and the first difference in words; None when everything agrees."""

    difference: str | None
    days: int
    rollups: int
    chains: int
    counters: int


def check_ledger(
    connection: Connection,
    organization: str,
    book: CapBook,
    spent: Mapping[BalanceKey, int],
    at: datetime,
) -> Checked:
    """Compare an organization's ledger with itself, and with what its counters took at the same place in the order.

    One day is held in memory at a time.
    """
    days = _days(connection, organization)
    rollups = 0
    differences: list[str] = []
    for day in days:
        must = {row[1]: row for row in summed(connection, organization, day)}
        found = {row[1]: row for row in kept(connection, organization, day)}
        rollups += len(found)
        differences.extend(_of_day(day, must, found))
        if differences:
            break
    chains = list(_chains(connection, organization))
    differences.extend(words for words in chains if words is not None)
    differences.extend(wrong_closed_sums(connection, organization))
    live = {
        key: amount for key, amount in spent.items() if key.organization == organization and covers(book, key)
    }
    differences.extend(_of_counters(connection, organization, book, live, at))
    first = differences[0] if differences else None
    return Checked(first, len(days), rollups, len(chains), len(live))


def _days(connection: Connection, organization: str) -> list[int]:
    """The days with a rollup or between the first and the last receipt, but those of dropped months."""
    first, last = admitted_between(connection, organization)
    between = set() if first is None or last is None else set(range(day_of(first), day_of(last) + 1))
    found = between.union(days_of(connection, organization))
    gone = dropped(connection, organization)
    return sorted(day for day in found if period_key("month", from_micros(day * DAY_US)) not in gone)


def _of_day(
    day: int, must: Mapping[str, tuple[object, ...]], found: Mapping[str, tuple[object, ...]]
) -> Iterator[str]:
    date = from_micros(day * DAY_US).date().isoformat()
    for digest in sorted(must.keys() - found.keys()):
        yield f"the rollups of {date} lack a row: its receipts sum to {_figures(must[digest])}"
    for digest in sorted(found.keys() - must.keys()):
        yield f"a rollup of {date} has no receipts: {_figures(found[digest])}"
    for digest in sorted(must.keys() & found.keys()):
        for name, right, kept_value in zip(COLUMNS, must[digest], found[digest], strict=True):
            if right != kept_value:
                yield f"a rollup of {date} has {name} {kept_value}; its receipts give {right}"


def _figures(row: tuple[object, ...]) -> str:
    figures = dict(zip(COLUMNS, row, strict=True))
    return f"{figures['requests']} requests, {figures['counted_nano_usd']} nano-USD counted"


def _chains(connection: Connection, organization: str) -> Iterator[str | None]:
    """For each chain what is wrong with its head, None when it is that of its last row."""
    query = select(chain_heads).where(chain_heads.c.organization == organization)
    gone = dropped(connection, organization)
    for head in connection.execute(query.order_by(chain_heads.c.month, chain_heads.c.node)).all():
        if head.month in gone:
            continue
        start = datetime.strptime(head.month, "%Y-%m").replace(tzinfo=UTC)
        month = period_of(period_key("month", start))
        last = connection.execute(
            select(receipts.c.chain_seq, receipts.c.row_hash)
            .where(
                receipts.c.organization == organization,
                receipts.c.node == head.node,
                *within(receipts.c.admitted_at, (month.start, month.end)),
            )
            .order_by(receipts.c.chain_seq.desc())
            .limit(1)
        ).first()
        stated = (head.chain_seq, head.row_hash)
        if last is None or tuple(last) == stated:
            yield None
        else:
            yield f"the chain of {head.node} in {head.month} ends at {last[0]}, its head says {head.chain_seq}"


def _of_counters(
    connection: Connection, organization: str, book: CapBook, live: Mapping[BalanceKey, int], at: datetime
) -> Iterator[str]:
    """Counters of caps against the rollups, over the periods that hold `at`."""
    for cap in book.caps:
        ledger = spent_by_key(connection, organization, cap, at, from_rollups=True).by_key
        period = period_key(cap.window, at)
        mine = {key for key in live if key.period == period and covers(CapBook((cap,)), key)}
        for key in sorted(mine | ledger.keys(), key=str):
            took, must = live.get(key, 0), ledger.get(key, 0)
            if took != must:
                yield f"a counter of cap {cap.id} in {period} took {took} ({key.unit}); the ledger says {must}"
