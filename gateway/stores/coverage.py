"""What a ledger holds, told without reading it: how many receipts, how many customers, from when until when."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, func, select

from gateway.stores.finals import admitted_between, within
from gateway.stores.retention import dropped
from gateway.stores.tables import chain_heads, receipts
from toolkit.core.windows import period_of


class Coverage(NamedTuple):
    """The receipts that are kept, corrections among them. `last_row` changes with every new one."""

    receipts: int
    customers: int
    first: datetime | None
    """The first admission."""
    last: datetime | None
    """The last admission."""
    last_row: int


def coverage(connection: Connection, organization: str) -> Coverage:
    """What an organization's ledger holds, from the ends of its chains and of its indexes."""
    first, last = admitted_between(connection, organization)
    newest = select(func.max(receipts.c.row_seq))
    return Coverage(
        receipts=_receipts(connection, organization),
        customers=_customers(connection, organization),
        first=first,
        last=last,
        last_row=connection.execute(newest).scalar_one() or 0,
    )


def _receipts(connection: Connection, organization: str) -> int:
    given_up = dropped(connection, organization)
    rows = select(func.coalesce(func.sum(chain_heads.c.chain_seq), 0))
    mine = (chain_heads.c.organization == organization, chain_heads.c.month.not_in(list(given_up)))
    kept = int(connection.execute(rows.where(*mine)).scalar_one())
    return kept + sum(
        _left(connection, organization, month) for month, state in given_up.items() if state == "dropping"
    )


def _left(connection: Connection, organization: str, month: str) -> int:
    period = period_of(month)
    mine = (
        receipts.c.organization == organization,
        *within(receipts.c.admitted_at, (period.start, period.end)),
    )
    return int(connection.execute(select(func.count()).select_from(receipts).where(*mine)).scalar_one())


def _customers(connection: Connection, organization: str) -> int:
    """From one customer to the next through the index by customer: it is as long as there are customers."""

    def least(*beyond: ColumnElement[bool]) -> Select[tuple[str]]:
        mine = (receipts.c.organization == organization, *beyond)
        return select(receipts.c.customer).where(*mine).order_by(receipts.c.customer).limit(1)

    first = least(receipts.c.customer.is_not(None)).scalar_subquery()
    named = select(first.label("customer")).cte("named", recursive=True)
    following = least(receipts.c.customer > named.c.customer).correlate(named).scalar_subquery()
    named = named.union_all(select(following).where(named.c.customer.is_not(None)))
    return int(connection.execute(select(func.count(named.c.customer))).scalar_one())
