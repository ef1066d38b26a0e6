"""Intents lie in rows that are written over; corrections and background responses are found by an index."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

_BACKGROUND = "node organization upstream_id provider base_url key_digest query headers tier"


def upgrade() -> None:
    """The calls that were open stay open."""
    op.rename_table("intents", "intents_before")
    op.create_table(
        "intents",
        sa.Column("slot", _ROW_ID, primary_key=True),
        sa.Column("receipt_id", _TEXT, nullable=False),
        sa.Column("node", _TEXT, nullable=False),
        sa.Column("admitted_at", sa.BigInteger, nullable=False),
        sa.Column("receipt", _TEXT, nullable=False),
        sa.Column("trace", _TEXT),
    )
    columns = "receipt_id, node, admitted_at, receipt, trace"
    op.execute(f"INSERT INTO intents ({columns}) SELECT {columns} FROM intents_before")
    op.drop_table("intents_before")
    corrects, response = sa.text("corrects IS NOT NULL"), sa.text("route = '/v1/responses'")
    op.create_index(
        "receipts_corrects",
        "receipts",
        ["corrects"],
        if_not_exists=True,
        sqlite_where=corrects,
        postgresql_where=corrects,
    )
    op.create_index(
        "receipts_response",
        "receipts",
        ["upstream_id"],
        if_not_exists=True,
        sqlite_where=response,
        postgresql_where=response,
    )
    op.create_table(
        "backgrounds",
        sa.Column("receipt_id", _TEXT, primary_key=True),
        *(sa.Column(name, _TEXT, nullable=False) for name in _BACKGROUND.split()),
        sa.Column("admitted_at", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_backgrounds_upstream_id", "backgrounds", ["upstream_id"])
