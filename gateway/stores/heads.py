"""The heads of all chains, as the last commit left them."""

from __future__ import annotations

from sqlalchemy import Engine, select

from gateway.stores.tables import chain_heads
from toolkit.core.heads import Chain


def stored_heads(engine: Engine) -> dict[Chain, tuple[int, str]]:
    """Sequence number and hash of each chain's last row."""
    with engine.connect() as connection:
        rows = connection.execute(select(chain_heads)).all()
    return {(row.organization, row.month, row.node): (row.chain_seq, row.row_hash) for row in rows}
