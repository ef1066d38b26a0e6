"""Receipts at the end of their chains and in their day's rollups, in the caller's transaction.

The head of each chain is kept in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, select

from gateway.stores import rollups
from gateway.stores.linking import linked
from gateway.stores.statements import inserted, written
from gateway.stores.tables import chain_heads, receipts
from toolkit.core.chain import GENESIS
from toolkit.core.receipts import RECEIPT_COLUMNS, Receipt

_INSERT_RECEIPTS = inserted(receipts, (*RECEIPT_COLUMNS, "trace"))
_SET_HEADS = written(chain_heads, ("organization", "month", "node"))


class Appender:
    """Appends receipts to their chains; keeps the head of each chain that it has extended."""

    def __init__(self) -> None:
        self.heads: dict[tuple[str, str, str], tuple[int, str]] = {}

    def append(self, connection: Connection, done: Sequence[tuple[Receipt, str | None]]) -> None:
        """Link and insert receipts, each with its trace, in order, within the caller's transaction."""
        rows: list[Sequence[Any]] = []
        touched: set[tuple[str, str, str]] = set()
        for receipt, trace in done:
            at = receipt.admitted_at
            own = (receipt.organization, f"{at.year:04d}-{at.month:02d}", receipt.node)
            seq, head = self.heads.get(own) or _stored_head(connection, own)
            row_hash, values = linked(receipt, trace, seq + 1, head)
            self.heads[own] = (seq + 1, row_hash)
            touched.add(own)
            rows.append(values)
        _INSERT_RECEIPTS.run(connection, rows)
        rollups.add(connection, [receipt for receipt, _ in done])
        _SET_HEADS.run(connection, [(*own, *self.heads[own]) for own in touched])


def _stored_head(connection: Connection, own: tuple[str, str, str]) -> tuple[int, str]:
    organization, month, node = own
    found = connection.execute(
        select(chain_heads.c.chain_seq, chain_heads.c.row_hash).where(
            chain_heads.c.organization == organization,
            chain_heads.c.month == month,
            chain_heads.c.node == node,
        )
    ).first()
    return (found.chain_seq, found.row_hash) if found is not None else (0, GENESIS)
