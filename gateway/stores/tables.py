"""Every table of the database, declared once with SQLAlchemy Core.

Instants are integer microseconds UTC, because SQLite returns naive datetimes; money and tokens are integers with a
CHECK, because SQLite would turn an overflow into a REAL without a word.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)
from sqlalchemy.types import TypeEngine

from toolkit.core.receipts import RECEIPT_COLUMNS

SCHEMA_VERSION = 2

metadata = MetaData()

INSTANT_COLUMNS = frozenset({"admitted_at", "settled_at"})
JSON_COLUMNS = frozenset({"tags", "units"})
BOOLEAN_COLUMNS = frozenset({"stream", "client_left", "verified"})
TEXT_COLUMNS = frozenset(
    {
        "receipt_id",
        "operation_id",
        "organization",
        "project",
        "key_id",
        "customer",
        "run",
        "provider",
        "dialect",
        "route",
        "model_requested",
        "model_served",
        "status",
        "refusal_code",
        "cap_scope",
        "cap_window",
        "upstream_id",
        "service_tier",
        "usage_source",
        "unpriced_reason",
        "price_list",
        "price_row",
        "basis",
        "corrects",
        "node",
        "prev_hash",
        "row_hash",
    }
)
_CHECKED = (
    "hold_nano_usd",
    "floor_nano_usd",
    "cost_nano_usd",
    "counted_nano_usd",
    "provider_cost_nano_usd",
    "hold_tokens",
    "counted_tokens",
    "input_tokens",
    "output_tokens",
)

_RowId = BigInteger().with_variant(Integer(), "sqlite")


def _type(column: str) -> TypeEngine[Any]:
    if column in TEXT_COLUMNS or column in JSON_COLUMNS:
        return Text()
    return Boolean(create_constraint=False) if column in BOOLEAN_COLUMNS else BigInteger()


meta = Table("meta", metadata, Column("name", Text, primary_key=True), Column("value", Text, nullable=False))
"""Facts of the database itself: ledger_id, schema, admin token hash."""

organizations = Table(
    "organizations",
    metadata,
    Column("id", Text, primary_key=True),
    Column("secret", Text, nullable=False),
)

keys = Table(
    "keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("organization", Text, nullable=False),
    Column("project", Text),
    Column("name", Text, nullable=False),
    Column("role", Text),
    Column("require_customer", Boolean, nullable=False, default=False),
    Column("secret_hash", Text, nullable=False, unique=True),
    Column("hint", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("revoked_at", BigInteger),
)

caps = Table(
    "caps",
    metadata,
    Column("id", _RowId, primary_key=True, autoincrement=True),
    Column("organization", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("match_provider", Text),
    Column("match_model", Text),
    Column("match_tag", Text),
    Column("window", Text, nullable=False),
    Column("limit_nano_usd", BigInteger),
    Column("token_limit", BigInteger),
    Column("request_limit", BigInteger),
    Column("hard_stop", Boolean, nullable=False),
    Column("admission", Text, nullable=False),
    Column("on_reach", Text, nullable=False),
    Column("unpriced", Text, nullable=False),
    Column("refusal_status", Integer, nullable=False),
    Column("alert_percents", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("updated_by", Text, nullable=False),
    Column("armed_at", BigInteger),
    sqlite_autoincrement=True,
)

audit = Table(
    "audit",
    metadata,
    Column("id", _RowId, primary_key=True, autoincrement=True),
    Column("at", BigInteger, nullable=False),
    Column("organization", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("object", Text, nullable=False),
    Column("before", Text),
    Column("after", Text),
    Column("reason", Text),
    sqlite_autoincrement=True,
)

receipts = Table(
    "receipts",
    metadata,
    Column("row_seq", _RowId, primary_key=True),
    *(Column(name, _type(name)) for name in RECEIPT_COLUMNS),
    Column("trace", Text),
    *(CheckConstraint(f"abs({name}) < 9223372036854775807", name=f"{name}_range") for name in _CHECKED),
    Index("receipts_id", "receipt_id", unique=True),
    Index("receipts_operation", "operation_id"),
    Index("receipts_admitted", "organization", "admitted_at"),
    Index("receipts_customer", "organization", "customer", "admitted_at"),
    Index("receipts_corrects", "corrects", sqlite_where=text("corrects IS NOT NULL")),
)
"""Append-only. `trace` is the decision trace: beside the receipt, outside the chain and the export."""

intents = Table(
    "intents",
    metadata,
    Column("slot", _RowId, primary_key=True),
    Column("receipt_id", Text, nullable=False),
    Column("node", Text, nullable=False),
    Column("admitted_at", BigInteger, nullable=False),
    Column("receipt", Text, nullable=False),
    Column("trace", Text),
)
"""Calls that were admitted; open are those without a receipt, the others' rows are free to be written over.
`receipt` is the JSON of the row as far as it is known."""

chain_heads = Table(
    "chain_heads",
    metadata,
    Column("organization", Text),
    Column("month", Text),
    Column("node", Text),
    Column("chain_seq", BigInteger, nullable=False),
    Column("row_hash", Text, nullable=False),
    PrimaryKeyConstraint("organization", "month", "node"),
)
