"""Receipts that are to be corrected: read whole, and whether another row corrects them already."""

from __future__ import annotations

from sqlalchemy import Connection, select

from gateway.stores.rows import receipt_from_json, row_to_json
from gateway.stores.tables import receipts
from toolkit.core.receipts import Receipt


def find_receipt(connection: Connection, organization: str, receipt_id: str) -> Receipt | None:
    """One receipt of an organization."""
    query = select(receipts).where(receipts.c.receipt_id == receipt_id)
    row = connection.execute(query).first()
    if row is None or row.organization != organization:
        return None
    return receipt_from_json(row_to_json(row._asdict()))


def is_corrected(connection: Connection, receipt_id: str) -> bool:
    """Whether a row corrects this one."""
    query = select(receipts.c.row_seq).where(receipts.c.corrects == receipt_id)
    return connection.execute(query.limit(1)).first() is not None
