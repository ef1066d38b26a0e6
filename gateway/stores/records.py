"""Control records: keys, caps, their audit trail, and facts of the database. Rows in, frozen objects out.

Every function works in the caller's transaction: a change and its audit row are committed together or not.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, RowMapping, delete, insert, select, update

from gateway.policy import Principal, Role
from gateway.stores.rows import cap_from_row, cap_to_row, from_micros, to_micros
from gateway.stores.tables import audit, caps, keys, meta, organizations
from toolkit.core.caps import Cap, CapBook


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRecord:
    """A key as its owner sees it: never its secret, only how that ends."""

    id: str
    organization: str
    name: str
    project: str | None
    role: Role | None
    require_customer: bool
    hint: str
    created_at: datetime
    revoked_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One change: who did what to which object, when and why. `before` and `after` are that object's JSON."""

    id: int = 0
    at: datetime
    organization: str
    actor: str
    action: str
    object: str
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    reason: str | None = None


def load_keys(connection: Connection) -> dict[str, Principal]:
    """Every key in use, by the hash of its secret."""
    rows = connection.execute(select(keys).where(keys.c.revoked_at.is_(None))).mappings()
    return {
        row["secret_hash"]: Principal(
            key_id=row["id"],
            organization=row["organization"],
            name=row["name"],
            project=row["project"],
            role=row["role"],
            require_customer=bool(row["require_customer"]),
        )
        for row in rows
    }


def list_keys(connection: Connection, organization: str) -> list[KeyRecord]:
    """Every key of an organization, revoked ones included, oldest first."""
    query = select(keys).where(keys.c.organization == organization).order_by(keys.c.created_at, keys.c.id)
    return [_key(row) for row in connection.execute(query).mappings()]


def find_key(connection: Connection, organization: str, key_id: str) -> KeyRecord | None:
    """One key of an organization."""
    query = select(keys).where(keys.c.organization == organization, keys.c.id == key_id)
    row = connection.execute(query).mappings().first()
    return None if row is None else _key(row)


def insert_key(connection: Connection, key: KeyRecord, secret_hash: str) -> None:
    """Add a key under the hash of its secret."""
    connection.execute(insert(keys).values(id=key.id, secret_hash=secret_hash, **_key_columns(key)))


def update_key(connection: Connection, key: KeyRecord, secret_hash: str | None = None) -> None:
    """Write a key's fields, and the hash of a new secret where there is one: its id and its spend stay."""
    columns = _key_columns(key)
    if secret_hash is not None:
        columns["secret_hash"] = secret_hash
    connection.execute(update(keys).where(keys.c.id == key.id).values(columns))


def load_books(connection: Connection) -> dict[str, CapBook]:
    """The caps of every organization that has any."""
    found: dict[str, list[Cap]] = {}
    for row in connection.execute(select(caps).order_by(caps.c.id)):
        found.setdefault(row.organization, []).append(cap_from_row(row._asdict()))
    return {organization: CapBook(tuple(book)) for organization, book in found.items()}


def insert_cap(connection: Connection, organization: str, cap: Cap) -> int:
    """Add a cap; the id it was given, which is never used again."""
    row_id = connection.execute(insert(caps).values(cap_to_row(cap, organization)).returning(caps.c.id))
    return int(row_id.scalar_one())


def update_cap(connection: Connection, organization: str, cap: Cap) -> None:
    """Write every field of a cap."""
    mine = (caps.c.id == cap.id, caps.c.organization == organization)
    connection.execute(update(caps).where(*mine).values(cap_to_row(cap, organization)))


def delete_cap(connection: Connection, organization: str, cap_id: int) -> None:
    """Remove a cap; what was spent under it is kept by its counters' keys."""
    connection.execute(delete(caps).where(caps.c.id == cap_id, caps.c.organization == organization))


def append_audit(connection: Connection, entry: AuditEntry) -> None:
    """Add one audit row."""
    connection.execute(
        insert(audit).values(
            at=to_micros(entry.at),
            organization=entry.organization,
            actor=entry.actor,
            action=entry.action,
            object=entry.object,
            before=_json(entry.before),
            after=_json(entry.after),
            reason=entry.reason,
        )
    )


def list_audit(
    connection: Connection, organization: str, *, before_id: int | None = None, limit: int = 100
) -> list[AuditEntry]:
    """An organization's audit rows, newest first, from below `before_id` on."""
    query = select(audit).where(audit.c.organization == organization)
    if before_id is not None:
        query = query.where(audit.c.id < before_id)
    rows = connection.execute(query.order_by(audit.c.id.desc()).limit(limit)).mappings()
    return [_audit_entry(row) for row in rows]


def arming_of(
    connection: Connection, organization: str, cap_ids: Sequence[int]
) -> dict[tuple[int, int], AuditEntry]:
    """Who armed each cap and why, by cap and by the instant of it in microseconds."""
    objects = {cap_object(cap_id): cap_id for cap_id in cap_ids}
    query = select(audit).where(
        audit.c.organization == organization, audit.c.action == "cap.arm", audit.c.object.in_(objects)
    )
    rows = connection.execute(query).mappings()
    return {(objects[row["object"]], row["at"]): _audit_entry(row) for row in rows}


def cap_object(cap_id: int) -> str:
    """How the audit trail names a cap."""
    return f"cap:{cap_id}"


def key_object(key_id: str) -> str:
    """How the audit trail names a key."""
    return f"key:{key_id}"


def get_meta(connection: Connection, name: str) -> str | None:
    """A fact of the database, None when it was never set."""
    return connection.execute(select(meta.c.value).where(meta.c.name == name)).scalar_one_or_none()


def set_meta(connection: Connection, name: str, value: str) -> None:
    """Set a fact of the database."""
    if connection.execute(update(meta).where(meta.c.name == name).values(value=value)).rowcount == 0:
        connection.execute(insert(meta).values(name=name, value=value))


def organization_secret(connection: Connection, organization: str) -> bytes:
    """The secret that an organization's customer references are made with."""
    query = select(organizations.c.secret).where(organizations.c.id == organization)
    return bytes.fromhex(connection.execute(query).scalar_one())


def customer_ref(customer: str, secret: bytes) -> str:
    """How a URL names a customer: 16 hex digits that do not tell the value (contract §12)."""
    return hmac.new(secret, customer.encode(), hashlib.sha256).hexdigest()[:16]


def _key(row: RowMapping) -> KeyRecord:
    return KeyRecord(
        id=row["id"],
        organization=row["organization"],
        name=row["name"],
        project=row["project"],
        role=row["role"],
        require_customer=bool(row["require_customer"]),
        hint=row["hint"],
        created_at=from_micros(row["created_at"]),
        revoked_at=None if row["revoked_at"] is None else from_micros(row["revoked_at"]),
    )


def _key_columns(key: KeyRecord) -> dict[str, Any]:
    return {
        "organization": key.organization,
        "name": key.name,
        "project": key.project,
        "role": key.role,
        "require_customer": key.require_customer,
        "hint": key.hint,
        "created_at": to_micros(key.created_at),
        "revoked_at": None if key.revoked_at is None else to_micros(key.revoked_at),
    }


def _audit_entry(row: RowMapping) -> AuditEntry:
    return AuditEntry(
        id=row["id"],
        at=from_micros(row["at"]),
        organization=row["organization"],
        actor=row["actor"],
        action=row["action"],
        object=row["object"],
        before=None if row["before"] is None else json.loads(row["before"]),
        after=None if row["after"] is None else json.loads(row["after"]),
        reason=row["reason"],
    )


def _json(value: Mapping[str, Any] | None) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
