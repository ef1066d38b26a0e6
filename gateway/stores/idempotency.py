"""Idempotency keys: which receipt a key of a client stands for. Neither the key nor the body is stored, but HMACs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Index,
    PrimaryKeyConstraint,
    Table,
    delete,
    select,
)

from gateway.stores.rows import to_micros
from gateway.stores.statements import written
from gateway.stores.tables import TEXT, metadata
from toolkit.core.receipts import Status

KEPT_FOR = timedelta(days=30)
_PIECE = 1_000

idempotency = Table(
    "idempotency",
    metadata,
    Column("key_id", TEXT, nullable=False),
    Column("key_hmac", TEXT, nullable=False),
    Column("body_hmac", TEXT, nullable=False),
    Column("receipt_id", TEXT, nullable=False),
    Column("admitted_at", BigInteger, nullable=False),
    PrimaryKeyConstraint("key_id", "key_hmac"),
    Index("idempotency_admitted", "admitted_at"),
)
_WRITE = written(idempotency, ("key_id", "key_hmac"))


@dataclass(slots=True, eq=False)
class Claim:
    """One call's hold on an idempotency key. `status` is its receipt's, once it has one."""

    key_id: str
    key_hmac: str
    body_hmac: str
    receipt_id: str
    admitted_at: datetime
    status: Status | None = None

    @property
    def name(self) -> tuple[str, str]:
        """Whose key, and which."""
        return self.key_id, self.key_hmac

    @property
    def is_free(self) -> bool:
        """Whether the call ended so that the key may be used again: nothing was billed."""
        return self.status in ("refused", "failed")


def write_claims(connection: Connection, claims: Sequence[Claim]) -> None:
    """Hold keys, in the transaction of the intents."""
    _WRITE.run(
        connection,
        [
            (claim.key_id, claim.key_hmac, claim.body_hmac, claim.receipt_id, to_micros(claim.admitted_at))
            for claim in claims
        ],
    )


def free_claims(connection: Connection, claims: Sequence[Claim]) -> None:
    """Let go of keys, in the transaction of the receipts that free them."""
    for claim in claims:
        connection.execute(
            delete(idempotency).where(idempotency.c.receipt_id == claim.receipt_id, *_of(claim.name))
        )


def find_claim(connection: Connection, name: tuple[str, str], at: datetime) -> tuple[str, str] | None:
    """The body's HMAC and the receipt that a key stands for; None for one that is free or older than KEPT_FOR."""
    query = select(idempotency.c.body_hmac, idempotency.c.receipt_id).where(
        *_of(name), idempotency.c.admitted_at > to_micros(at - KEPT_FOR)
    )
    found = connection.execute(query).first()
    return None if found is None else (found.body_hmac, found.receipt_id)


def forget_claims(connection: Connection, at: datetime) -> int:
    """Delete a piece of what is older than KEPT_FOR; how many rows that were."""
    old = select(idempotency.c.receipt_id).where(idempotency.c.admitted_at <= to_micros(at - KEPT_FOR))
    names = connection.execute(old.limit(_PIECE)).scalars().all()
    if names:
        connection.execute(delete(idempotency).where(idempotency.c.receipt_id.in_(names)))
    return len(names)


def _of(name: tuple[str, str]) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return idempotency.c.key_id == name[0], idempotency.c.key_hmac == name[1]
