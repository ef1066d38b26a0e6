"""Responses that run in the background: what is needed to ask for them again, and whose an id is.

A row stands beside the open intent of its call from the moment its id is known. It outlives the intent when the call
is recorded as abandoned, until the provider has said how it ended or nobody asks any more.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Index,
    Table,
    delete,
    exists,
    insert,
    select,
    text,
)
from sqlalchemy.sql.elements import ColumnElement

from gateway.stores.corrections import find_receipt, is_corrected
from gateway.stores.open_calls import open_calls
from gateway.stores.rows import to_micros
from gateway.stores.tables import TEXT, intents, metadata, receipts, where
from toolkit.core.receipts import Receipt
from toolkit.core.windows import parse_instant

backgrounds = Table(
    "backgrounds",
    metadata,
    Column("receipt_id", TEXT, primary_key=True),
    Column("node", TEXT, nullable=False),
    Column("organization", TEXT, nullable=False),
    Column("upstream_id", TEXT, nullable=False, index=True),
    Column("provider", TEXT, nullable=False),
    Column("base_url", TEXT, nullable=False),
    Column("key_digest", TEXT, nullable=False),
    Column("query", TEXT, nullable=False),
    Column("headers", TEXT, nullable=False),
    Column("tier", TEXT, nullable=False),
    Column("admitted_at", BigInteger, nullable=False),
)
"""`key_digest` tells which of the provider's keys made the call; no key is stored."""

Index("receipts_response", receipts.c.upstream_id, **where("route = '/v1/responses'"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Background:
    """How to ask for one response again: where, with which key, query and headers of the first call."""

    receipt_id: str
    node: str
    organization: str
    upstream_id: str
    provider: str
    base_url: str
    key_digest: str
    query: str
    headers: dict[str, str]
    tier: str


@dataclass(frozen=True, slots=True)
class Kept:
    """A response that a stopped process left running. `receipt` is its abandoned row, or what its intent knows."""

    row: Background
    receipt: Receipt
    draft: dict[str, Any] | None
    """The columns of an open intent; None when the call is recorded as abandoned."""
    trace: str | None


def keep(connection: Connection, row: Background, receipt: dict[str, Any]) -> None:
    """Store a run whose first answer is about to leave."""
    stored = {
        **asdict(row),
        "headers": json.dumps(row.headers),
        "admitted_at": to_micros(receipt["admitted_at"]),
    }
    connection.execute(insert(backgrounds).values(stored))


def forget(connection: Connection, receipt_id: str) -> None:
    """Nobody asks for this run any more."""
    connection.execute(delete(backgrounds).where(backgrounds.c.receipt_id == receipt_id))


def load(connection: Connection, node: str) -> list[Kept]:
    """This node's runs, oldest first; those that have their end are forgotten."""
    query = select(backgrounds).where(backgrounds.c.node == node).order_by(backgrounds.c.admitted_at)
    found: list[Kept] = []
    for stored in connection.execute(query).mappings().all():
        names = (name for name in stored if name not in ("headers", "admitted_at"))
        row = Background(**{name: stored[name] for name in names}, headers=json.loads(stored["headers"]))
        kept = _open(connection, row) or _abandoned(connection, row)
        if kept is None:
            forget(connection, row.receipt_id)
        else:
            found.append(kept)
    return found


def provider_of(connection: Connection, organization: str, upstream_id: str) -> str | None:
    """The provider that made a response for this organization; None when it made none of that id."""
    ours = select(receipts.c.provider).where(
        text("route = '/v1/responses'"),
        receipts.c.upstream_id == upstream_id,
        receipts.c.organization == organization,
    )
    provider: str | None = connection.execute(
        ours.order_by(receipts.c.row_seq.desc()).limit(1)
    ).scalar_one_or_none()
    return provider


def is_kept() -> ColumnElement[bool]:
    """Condition on `intents`: its call runs in the background, and is asked for again after a restart."""
    return exists(select(1).where(backgrounds.c.receipt_id == intents.c.receipt_id))


def _open(connection: Connection, row: Background) -> Kept | None:
    intent = next(iter(open_calls(connection, intents.c.receipt_id == row.receipt_id)), None)
    if intent is None:
        return None
    draft = msgspec.json.decode(intent["receipt"])
    draft |= {"admitted_at": parse_instant(draft["admitted_at"]), "tags": tuple(draft["tags"])}
    receipt = Receipt(**draft, settled_at=draft["admitted_at"], status="abandoned")
    return Kept(row, receipt, draft, intent["trace"])


def _abandoned(connection: Connection, row: Background) -> Kept | None:
    receipt = find_receipt(connection, row.organization, row.receipt_id)
    if receipt is None or receipt.status != "abandoned" or is_corrected(connection, row.receipt_id):
        return None
    return Kept(row, receipt, None, None)
