"""The first schema: control records, receipts, intents, chain heads."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

_RECEIPT = (
    "receipt_id operation_id attempt# admitted_at# settled_at# admit_seq# settle_seq# organization "
    "project key_id customer run tags provider dialect route model_requested model_served stream? status "
    "client_left? http_status# refusal_code cap_id# cap_scope cap_window upstream_id service_tier "
    "input_tokens# cache_read_tokens# cache_write_5m_tokens# cache_write_1h_tokens# output_tokens# "
    "reasoning_tokens# audio_input_tokens# audio_output_tokens# image_tokens# units request_bytes# "
    "response_bytes# output_limit# usage_source hold_nano_usd# floor_nano_usd# cost_nano_usd# "
    "counted_nano_usd# hold_tokens# counted_tokens# unpriced_reason price_list price_row "
    "provider_cost_nano_usd# basis verified? corrects latency_ms# ttft_ms# node chain_seq# prev_hash "
    "row_hash"
)
"""Columns of a receipt: `#` is an integer, `?` a boolean, the others are texts."""

_CHECKED = (
    "hold_nano_usd floor_nano_usd cost_nano_usd counted_nano_usd provider_cost_nano_usd hold_tokens "
    "counted_tokens input_tokens output_tokens"
)


def upgrade() -> None:
    """Create every table."""
    _control_records()
    op.create_table(
        "receipts",
        sa.Column("row_seq", _ROW_ID, primary_key=True),
        *(_column(name) for name in _RECEIPT.split()),
        sa.Column("trace", _TEXT),
        *(
            sa.CheckConstraint(f"abs({name}) < 9223372036854775807", name=f"{name}_range")
            for name in _CHECKED.split()
        ),
        sqlite_autoincrement=True,
    )
    op.create_index("receipts_id", "receipts", ["receipt_id"], unique=True)
    op.create_index("receipts_operation", "receipts", ["operation_id"])
    op.create_index("receipts_admitted", "receipts", ["organization", "admitted_at"])
    op.create_index("receipts_customer", "receipts", ["organization", "customer", "admitted_at"])
    op.create_table(
        "intents",
        sa.Column("receipt_id", _TEXT, primary_key=True),
        sa.Column("node", _TEXT, nullable=False),
        sa.Column("admitted_at", sa.BigInteger, nullable=False),
        sa.Column("receipt", _TEXT, nullable=False),
        sa.Column("trace", _TEXT),
    )
    op.create_table(
        "chain_heads",
        *(sa.Column(name, _TEXT, primary_key=True) for name in ("organization", "month", "node")),
        sa.Column("chain_seq", sa.BigInteger, nullable=False),
        sa.Column("row_hash", _TEXT, nullable=False),
    )


def _control_records() -> None:
    op.create_table(
        "meta", sa.Column("name", _TEXT, primary_key=True), sa.Column("value", _TEXT, nullable=False)
    )
    op.create_table(
        "organizations",
        sa.Column("id", _TEXT, primary_key=True),
        sa.Column("secret", _TEXT, nullable=False),
    )
    op.create_table(
        "keys",
        sa.Column("id", _TEXT, primary_key=True),
        sa.Column("organization", _TEXT, nullable=False),
        sa.Column("project", _TEXT),
        sa.Column("name", _TEXT, nullable=False),
        sa.Column("role", _TEXT),
        sa.Column("require_customer", sa.Boolean, nullable=False),
        sa.Column("secret_hash", _TEXT, nullable=False, unique=True),
        sa.Column("hint", _TEXT, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("revoked_at", sa.BigInteger),
    )
    op.create_table(
        "caps",
        sa.Column("id", _ROW_ID, primary_key=True, autoincrement=True),
        *(_wanted(name) for name in ("organization", "name", "scope", "subject")),
        *(sa.Column(name, _TEXT) for name in ("match_provider", "match_model", "match_tag")),
        _wanted("window"),
        *(sa.Column(name, sa.BigInteger) for name in ("limit_nano_usd", "token_limit", "request_limit")),
        sa.Column("hard_stop", sa.Boolean, nullable=False),
        *(_wanted(name) for name in ("admission", "on_reach", "unpriced")),
        sa.Column("refusal_status", sa.Integer, nullable=False),
        _wanted("alert_percents"),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        _wanted("updated_by"),
        sa.Column("armed_at", sa.BigInteger),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "audit",
        sa.Column("id", _ROW_ID, primary_key=True, autoincrement=True),
        sa.Column("at", sa.BigInteger, nullable=False),
        *(_wanted(name) for name in ("organization", "actor", "action", "object")),
        *(sa.Column(name, _TEXT) for name in ("before", "after", "reason")),
        sqlite_autoincrement=True,
    )


def _wanted(name: str) -> sa.Column[str]:
    return sa.Column(name, _TEXT, nullable=False)


def _column(name: str) -> sa.Column[object]:
    if name.endswith("#"):
        return sa.Column(name[:-1], sa.BigInteger)
    return sa.Column(name[:-1], sa.Boolean) if name.endswith("?") else sa.Column(name, _TEXT)
