"""Rollups by UTC day. Those of the receipts that are there already are made at the start that adds the table."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")

_DIMENSIONS = (
    "node organization project key_id customer run tags provider dialect route model_requested model_served "
    "status refusal_code service_tier unpriced_reason price_list"
)
_TOKENS = (
    "input_tokens cache_read_tokens cache_write_5m_tokens cache_write_1h_tokens output_tokens "
    "reasoning_tokens audio_input_tokens audio_output_tokens image_tokens"
)
_COUNTS = "requests priced_requests unpriced_requests counted_requests cost_nano_usd counted_nano_usd counted_tokens"


def upgrade() -> None:
    """Add the table."""
    sums = [*_COUNTS.split(), *_TOKENS.split()]
    op.create_table(
        "rollups",
        sa.Column("day", sa.BigInteger, nullable=False),
        sa.Column("digest", _TEXT, nullable=False),
        *(sa.Column(name, _TEXT) for name in _DIMENSIONS.split()),
        *(sa.Column(name, sa.BigInteger, nullable=name in _TOKENS.split()) for name in sums),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("first_at", "last_at")),
        *(
            sa.CheckConstraint(f"abs({name}) < 9223372036854775807", name=f"rollup_{name}_range")
            for name in sums
        ),
        sa.PrimaryKeyConstraint("day", "digest"),
    )
    op.create_index("rollups_day", "rollups", ["organization", "day"])
