"""Idempotency keys, and the receipts that they stand for."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "idempotency",
        *(
            sa.Column(name, _TEXT, nullable=False)
            for name in ("key_id", "key_hmac", "body_hmac", "receipt_id")
        ),
        sa.Column("admitted_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("key_id", "key_hmac"),
    )
    op.create_index("idempotency_admitted", "idempotency", ["admitted_at"])
