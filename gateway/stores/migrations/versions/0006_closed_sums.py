"""What counters took in days that are over, summed once."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "closed_sums",
        sa.Column("organization", _TEXT, nullable=False),
        sa.Column("kind", _TEXT, nullable=False),
        sa.Column("period", _TEXT, nullable=False),
        sa.Column("day", sa.BigInteger, nullable=False),
        sa.Column("sums", _TEXT, nullable=False),
        sa.PrimaryKeyConstraint("organization", "kind"),
    )
    op.create_index("closed_sums_day", "closed_sums", ["day"])
