"""An index of refused calls by the cap that refused them."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add the index."""
    refused = sa.text("status = 'refused'")
    op.create_index(
        "receipts_refused",
        "receipts",
        ["cap_id", "admitted_at"],
        sqlite_where=refused,
        postgresql_where=refused,
    )
