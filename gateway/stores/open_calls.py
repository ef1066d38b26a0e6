"""Where the intents of running calls lie: few rows, written over and over.

A call is open while it has an intent and no receipt, so committing the receipt is all that closes it. Its row of the
table stays as it is until the next call takes it, which saves the ledger a deletion per call, and an index to find it.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, RowMapping, delete, exists, func, select
from sqlalchemy.sql.elements import ColumnElement

from gateway.stores.tables import intents, receipts


class Slots:
    """Which row each open call has. Owned by the writer's thread."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}
        self._free: list[int] = []
        self._next: int | None = None

    def take(self, connection: Connection, receipt_id: str) -> int:
        """A row for a call that begins; the ones that another node's calls lie in are left alone."""
        if self._next is None:
            self._next = (
                1 + connection.execute(select(func.coalesce(func.max(intents.c.slot), 0))).scalar_one()
            )
        if self._free:
            slot = self._free.pop()
        else:
            slot, self._next = self._next, self._next + 1
        self._taken[receipt_id] = slot
        return slot

    def give_back(self, receipt_id: str) -> None:
        """The call is over and on disk, or it never began: its row may be written over."""
        slot = self._taken.pop(receipt_id, None)
        if slot is not None:
            self._free.append(slot)


def open_calls(connection: Connection, *conditions: ColumnElement[bool]) -> Sequence[RowMapping]:
    """Intents without a receipt, in the order of their admission."""
    query = (
        select(intents)
        .where(~exists(select(1).where(receipts.c.receipt_id == intents.c.receipt_id)), *conditions)
        .order_by(intents.c.admitted_at, intents.c.receipt_id)
    )
    return connection.execute(query).mappings().all()


def forget_calls(connection: Connection, *conditions: ColumnElement[bool]) -> None:
    """Empty the rows of calls of which none is open."""
    connection.execute(delete(intents).where(*conditions))
