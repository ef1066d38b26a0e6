"""Changes of keys. A secret is shown once and kept as a hash.

Spend belongs to the key's id and never to its secret, so a rotation keeps it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection

from gateway.changes import Actor, Changes, ControlError, instant
from gateway.policy import Principal, Role, digest
from gateway.stores import records
from gateway.stores.records import KeyRecord

_FORBIDDEN = "Only owners and admins can change keys."
_OWNERS_KEY = "Only an owner can make, change, rotate or revoke an owner's key."


class KeyControl(Changes):
    """Makes, changes, rotates and revokes keys."""

    async def create_key(
        self, actor: Actor, *, name: str, project: str | None, role: Role | None, require_customer: bool
    ) -> tuple[KeyRecord, str]:
        """Make a key; its secret is returned this once and kept nowhere."""

        async def change() -> tuple[KeyRecord, str]:
            secret = new_secret()
            key = KeyRecord(
                id=f"key_{secrets.token_hex(8)}",
                organization=actor.organization,
                name=name,
                project=project,
                role=role,
                require_customer=require_customer,
                hint=secret[-4:],
                created_at=self._clock(),
            )
            _check_key(actor, key)
            entry = self._entry(actor, "key.create", records.key_object(key.id), after=public_key(key))

            def store(connection: Connection) -> None:
                records.insert_key(connection, key, digest(secret))
                records.append_audit(connection, entry)

            await self._writer.run(store)
            self._swap_key(key, digest(secret))
            return key, secret

        return await self._change(actor, _FORBIDDEN, change)

    async def patch_key(self, actor: Actor, key_id: str, fields: Mapping[str, Any]) -> KeyRecord:
        """Change some fields of a key in use."""

        async def change() -> KeyRecord:
            before = await self._key_in_use(actor, key_id)
            after = replace(before, **fields)
            if after != before:
                _check_key(actor, after)
                await self._store_key(actor, "key.update", before, after)
            return after

        return await self._change(actor, _FORBIDDEN, change)

    async def rotate_key(self, actor: Actor, key_id: str) -> tuple[KeyRecord, str]:
        """Give a key a new secret; the old one is dead at once, id and spend stay."""

        async def change() -> tuple[KeyRecord, str]:
            before = await self._key_in_use(actor, key_id)
            secret = new_secret()
            after = replace(before, hint=secret[-4:])
            await self._store_key(actor, "key.rotate", before, after, digest(secret))
            return after, secret

        return await self._change(actor, _FORBIDDEN, change)

    async def revoke_key(self, actor: Actor, key_id: str) -> None:
        """End a key; one that has ended stays as it is."""

        async def change() -> None:
            before = await self._key(actor, key_id)
            if before.revoked_at is None:
                await self._store_key(actor, "key.revoke", before, replace(before, revoked_at=self._clock()))

        await self._change(actor, _FORBIDDEN, change)

    async def _key(self, actor: Actor, key_id: str) -> KeyRecord:
        key = await self._writer.run(
            lambda connection: records.find_key(connection, actor.organization, key_id)
        )
        if key is None:
            raise ControlError("not_found", "There is no key of that id.")
        if key.role == "owner" and actor.role != "owner":
            raise ControlError("permission_denied", _OWNERS_KEY)
        return key

    async def _key_in_use(self, actor: Actor, key_id: str) -> KeyRecord:
        key = await self._key(actor, key_id)
        if key.revoked_at is not None:
            raise ControlError("not_found", "The key has been revoked.")
        return key

    async def _store_key(
        self, actor: Actor, action: str, before: KeyRecord, after: KeyRecord, secret_hash: str | None = None
    ) -> None:
        seen = (public_key(before), public_key(after))
        entry = self._entry(actor, action, records.key_object(after.id), *seen)

        def store(connection: Connection) -> None:
            records.update_key(connection, after, secret_hash)
            records.append_audit(connection, entry)

        await self._writer.run(store)
        self._swap_key(after, secret_hash)

    def _swap_key(self, key: KeyRecord, secret_hash: str | None) -> None:
        kept = {
            known: holder for known, holder in self._policy.current.keys.items() if holder.key_id != key.id
        }
        old = next(
            (known for known, holder in self._policy.current.keys.items() if holder.key_id == key.id), None
        )
        known = secret_hash or old
        if known is not None and key.revoked_at is None:
            kept[known] = Principal(
                key_id=key.id,
                organization=key.organization,
                name=key.name,
                project=key.project,
                role=key.role,
                require_customer=key.require_customer,
            )
        self._policy.current = self._policy.current.with_keys(kept)


def new_secret() -> str:
    """A key's secret: 256 random bits."""
    return f"cpl_{secrets.token_urlsafe(32)}"


def public_key(key: KeyRecord) -> dict[str, Any]:
    """A key as the API and the audit trail show it: no secret, and no hash of one."""
    return {
        "id": key.id,
        "name": key.name,
        "project": key.project,
        "role": key.role,
        "require_customer": key.require_customer,
        "hint": key.hint,
        "created_at": instant(key.created_at),
        "revoked_at": instant(key.revoked_at),
    }


def _check_key(actor: Actor, key: KeyRecord) -> None:
    if key.role == "owner" and actor.role != "owner":
        raise ControlError("permission_denied", _OWNERS_KEY)
    for field, given in (("project", key.project is not None), ("require_customer", key.require_customer)):
        if key.role is not None and given:
            message = "A key with a role is an operator key and makes no calls, so this would never bind."
            raise ControlError("invalid_request", message, field)
