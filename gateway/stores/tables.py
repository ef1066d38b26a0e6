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

metadata = MetaData()

TEXT = Text().with_variant(Text(collation="C"), "postgresql")
"""Ordered by code point, as in SQLite, so that pages and reports of both are the same."""

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


def where(condition: str) -> dict[str, Any]:
    """The arguments of an index over a part of its table, for both databases."""
    return {"sqlite_where": text(condition), "postgresql_where": text(condition)}


def _type(column: str) -> TypeEngine[Any]:
    if column in TEXT_COLUMNS or column in JSON_COLUMNS:
        return TEXT
    return Boolean(create_constraint=False) if column in BOOLEAN_COLUMNS else BigInteger()


meta = Table("meta", metadata, Column("name", TEXT, primary_key=True), Column("value", TEXT, nullable=False))
"""Facts of the database itself: ledger_id, the admin token's hash, where its gateway answers."""

organizations = Table(
    "organizations",
    metadata,
    Column("id", TEXT, primary_key=True),
    Column("secret", TEXT, nullable=False),
)

keys = Table(
    "keys",
    metadata,
    Column("id", TEXT, primary_key=True),
    Column("organization", TEXT, nullable=False),
    Column("project", TEXT),
    Column("name", TEXT, nullable=False),
    Column("role", TEXT),
    Column("require_customer", Boolean, nullable=False, default=False),
    Column("secret_hash", TEXT, nullable=False, unique=True),
    Column("hint", TEXT, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("revoked_at", BigInteger),
)

caps = Table(
    "caps",
    metadata,
    Column("id", _RowId, primary_key=True, autoincrement=True),
    Column("organization", TEXT, nullable=False),
    Column("name", TEXT, nullable=False),
    Column("scope", TEXT, nullable=False),
    Column("subject", TEXT, nullable=False),
    Column("match_provider", TEXT),
    Column("match_model", TEXT),
    Column("match_tag", TEXT),
    Column("window", TEXT, nullable=False),
    Column("limit_nano_usd", BigInteger),
    Column("token_limit", BigInteger),
    Column("request_limit", BigInteger),
    Column("hard_stop", Boolean, nullable=False),
    Column("admission", TEXT, nullable=False),
    Column("on_reach", TEXT, nullable=False),
    Column("unpriced", TEXT, nullable=False),
    Column("refusal_status", Integer, nullable=False),
    Column("alert_percents", TEXT, nullable=False),
    Column("version", Integer, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("updated_by", TEXT, nullable=False),
    Column("armed_at", BigInteger),
    sqlite_autoincrement=True,
)

audit = Table(
    "audit",
    metadata,
    Column("id", _RowId, primary_key=True, autoincrement=True),
    Column("at", BigInteger, nullable=False),
    Column("organization", TEXT, nullable=False),
    Column("actor", TEXT, nullable=False),
    Column("action", TEXT, nullable=False),
    Column("object", TEXT, nullable=False),
    Column("before", TEXT),
    Column("after", TEXT),
    Column("reason", TEXT),
    sqlite_autoincrement=True,
)

receipts = Table(
    "receipts",
    metadata,
    Column("row_seq", _RowId, primary_key=True),
    *(Column(name, _type(name)) for name in RECEIPT_COLUMNS),
    Column("trace", TEXT),
    *(CheckConstraint(f"abs({name}) < 9223372036854775807", name=f"{name}_range") for name in _CHECKED),
    Index("receipts_id", "receipt_id", unique=True),
    Index("receipts_operation", "operation_id"),
    Index("receipts_admitted", "organization", "admitted_at"),
    Index("receipts_customer", "organization", "customer", "admitted_at"),
    Index("receipts_refused", "cap_id", "admitted_at", **where("status = 'refused'")),
    Index("receipts_corrects", "corrects", **where("corrects IS NOT NULL")),
)
"""Append-only. `trace` is the decision trace: beside the receipt, outside the chain and the export."""

intents = Table(
    "intents",
    metadata,
    Column("slot", _RowId, primary_key=True),
    Column("receipt_id", TEXT, nullable=False),
    Column("node", TEXT, nullable=False),
    Column("admitted_at", BigInteger, nullable=False),
    Column("receipt", TEXT, nullable=False),
    Column("trace", TEXT),
)
"""Calls that were admitted; open are those without a receipt, the others' rows are free to be written over.
`receipt` is the JSON of the row as far as it is known."""

chain_heads = Table(
    "chain_heads",
    metadata,
    Column("organization", TEXT),
    Column("month", TEXT),
    Column("node", TEXT),
    Column("chain_seq", BigInteger, nullable=False),
    Column("row_hash", TEXT, nullable=False),
    PrimaryKeyConstraint("organization", "month", "node"),
)
