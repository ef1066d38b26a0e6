"""Changes of caps: one transaction and one audit row each, one after the other.

A change is committed first and swaps the policy snapshot at once, so the next request sees it. The
counters of a cap that is made or moved are right before it is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection

from gateway.changes import Actor, ControlError, instant
from gateway.control_keys import KeyControl
from gateway.control_ledger import LedgerControl
from gateway.control_receipts import ReceiptControl
from gateway.stores import records
from toolkit.core.caps import EACH, Cap, CapBook, validate_cap
from toolkit.core.errors import InvalidCap
from toolkit.core.money import limit_text

ONLY_OWNERS_AND_ADMINS = "Only owners and admins can change customer spending caps."


class Control(KeyControl, ReceiptControl, LedgerControl):
    """Makes every change, of caps here, of keys, receipts and months in its bases, one after the other."""

    def caps(self, organization: str) -> tuple[Cap, ...]:
        """The caps in force, oldest first."""
        return tuple(sorted(self._book(organization).caps, key=lambda cap: cap.id))

    def cap(self, organization: str, cap_id: int) -> Cap:
        """One cap. Raises ControlError when there is none of that id."""
        found = next((cap for cap in self._book(organization).caps if cap.id == cap_id), None)
        if found is None:
            raise ControlError("not_found", f"There is no cap {cap_id}.")
        return found

    async def create_cap(self, actor: Actor, fields: Mapping[str, Any]) -> Cap:
        """Make a watching cap; its counters start from what the receipts of the period say."""

        async def change() -> Cap:
            now = self._clock()
            subject = fields.get("subject")
            draft = Cap(
                **{
                    **fields,
                    "id": 0,
                    "subject": _subject(actor, fields["scope"], subject),
                    "created_at": now,
                    "updated_at": now,
                    "updated_by": actor.name,
                }
            )
            self._check(actor, draft)
            return await self._hydrated(actor, None, draft)

        return await self._change(actor, ONLY_OWNERS_AND_ADMINS, change)

    async def patch_cap(
        self, actor: Actor, cap_id: int, version: int | None, fields: Mapping[str, Any]
    ) -> Cap:
        """Change some fields of a cap; what was spent is kept."""

        async def change() -> Cap:
            before = self._guarded(actor, cap_id, version)
            after = replace(before, **fields)
            if "scope" in fields and "subject" not in fields and after.scope != before.scope:
                after = replace(after, subject=_subject(actor, after.scope, None))
            if after == before:
                return before
            self._check(actor, after, before)
            after = self._stamped(actor, after)
            if _counts_elsewhere(before, after):
                return await self._hydrated(actor, before, after)
            return await self._replaced(actor, "cap.update", before, after)

        return await self._change(actor, ONLY_OWNERS_AND_ADMINS, change)

    async def delete_cap(self, actor: Actor, cap_id: int, version: int | None) -> None:
        """Lift a cap."""

        async def change() -> None:
            before = self._guarded(actor, cap_id, version)
            entry = self._entry(actor, "cap.delete", records.cap_object(cap_id), before=public_cap(before))

            def store(connection: Connection) -> None:
                records.delete_cap(connection, actor.organization, cap_id)
                records.append_audit(connection, entry)

            await self._writer.run(store)
            self._swap(actor, self._book(actor.organization).without(cap_id))

        await self._change(actor, ONLY_OWNERS_AND_ADMINS, change)

    async def arm(self, actor: Actor, cap_id: int, version: int | None, reason: str) -> Cap:
        """Turn a cap's hard stop on; an armed one stays as it is."""

        async def change() -> Cap:
            before = self._guarded(actor, cap_id, version)
            if not reason.strip():
                raise ControlError("invalid_request", "Arming a cap needs a reason.", "reason")
            if before.hard_stop:
                return before
            after = self._stamped(actor, replace(before, hard_stop=True))
            after = replace(after, armed_at=after.updated_at)
            return await self._replaced(actor, "cap.arm", before, after, reason.strip())

        return await self._change(actor, ONLY_OWNERS_AND_ADMINS, change)

    async def disarm(self, actor: Actor, cap_id: int, reason: str | None = None) -> Cap:
        """Turn a cap's hard stop off; a watching one stays as it is and leaves no audit row."""

        async def change() -> Cap:
            before = self.cap(actor.organization, cap_id)
            if not before.hard_stop:
                return before
            after = self._stamped(actor, replace(before, hard_stop=False, armed_at=None))
            return await self._replaced(actor, "cap.disarm", before, after, reason)

        return await self._change(actor, ONLY_OWNERS_AND_ADMINS, change)

    def _book(self, organization: str) -> CapBook:
        return self._policy.current.book(organization)

    def _swap(self, actor: Actor, book: CapBook) -> None:
        self._policy.current = self._policy.current.with_book(actor.organization, book)

    def _guarded(self, actor: Actor, cap_id: int, version: int | None) -> Cap:
        """The cap, when `version` is the one it has."""
        cap = self.cap(actor.organization, cap_id)
        if version is None:
            raise ControlError(
                "version_required", "Send If-Match with the version of the cap that you have seen."
            )
        if version != cap.version:
            message = f"The cap is at version {cap.version}, not {version}: read it again before changing it."
            raise ControlError("version_conflict", message)
        return cap

    def _check(self, actor: Actor, cap: Cap, before: Cap | None = None) -> None:
        """That every part of the cap can bind."""
        validate_cap(cap)
        if before is not None and (before.scope, before.subject) == (cap.scope, cap.subject):
            return
        if cap.scope == "organization" and cap.subject not in (actor.organization, EACH):
            raise InvalidCap("subject", f"the subject of an organization cap is {actor.organization}")
        if (
            cap.scope == "key"
            and cap.subject != EACH
            and cap.subject not in self._key_ids(actor.organization)
        ):
            raise InvalidCap("subject", "there is no key of that id; a cap on it would never bind")

    def _key_ids(self, organization: str) -> frozenset[str]:
        keys = self._policy.current.keys.values()
        return frozenset(key.key_id for key in keys if key.organization == organization)

    def _stamped(self, actor: Actor, cap: Cap) -> Cap:
        return replace(cap, version=cap.version + 1, updated_at=self._clock(), updated_by=actor.name)

    async def _replaced(
        self, actor: Actor, action: str, before: Cap, after: Cap, reason: str | None = None
    ) -> Cap:
        """Store a changed cap that counts on the same counters as before."""
        seen = (public_cap(before), public_cap(after))
        entry = self._entry(
            actor, action, records.cap_object(after.id), *seen, reason=reason, at=after.updated_at
        )

        def store(connection: Connection) -> None:
            records.update_cap(connection, actor.organization, after)
            records.append_audit(connection, entry)

        await self._writer.run(store)
        self._swap(actor, self._book(actor.organization).with_cap(after))
        return after

    async def _hydrated(self, actor: Actor, before: Cap | None, after: Cap) -> Cap:
        """Read what the counters of a cap start from that is new or counts elsewhere, then store it."""
        stored: list[Cap] = []

        def store(connection: Connection) -> None:
            if before is None:
                cap = replace(after, id=records.insert_cap(connection, actor.organization, after))
            else:
                cap = after
                records.update_cap(connection, actor.organization, after)
            action = "cap.create" if before is None else "cap.update"
            seen = (None if before is None else public_cap(before), public_cap(cap))
            records.append_audit(connection, self._entry(actor, action, records.cap_object(cap.id), *seen))
            stored.append(cap)

        book = self._book(actor.organization)
        await self._ledger.hydrate(actor.organization, after, book, self._clock, store)
        self._swap(actor, book.with_cap(stored[0]))
        return stored[0]


def public_cap(cap: Cap) -> dict[str, Any]:
    """A cap as the API and the audit trail show it (contract §7)."""
    limit = cap.limit_nano_usd
    return {
        "id": cap.id,
        "name": cap.name,
        "scope": cap.scope,
        "subject": cap.subject,
        "match": cap.match._asdict(),
        "window": cap.window,
        "limit_usd": None if limit is None else limit_text(limit),
        "limit_nano_usd": limit,
        "token_limit": cap.token_limit,
        "request_limit": cap.request_limit,
        "hard_stop": cap.hard_stop,
        "admission": cap.admission,
        "on_reach": cap.on_reach,
        "unpriced": cap.unpriced,
        "refusal_status": cap.refusal_status,
        "alert_percents": list(cap.alert_percents),
        "version": cap.version,
        "created_at": instant(cap.created_at),
        "updated_at": instant(cap.updated_at),
        "updated_by": cap.updated_by,
        "armed_at": instant(cap.armed_at),
    }


def _subject(actor: Actor, scope: str, subject: str | None) -> str:
    """The given subject; an organization's cap may leave it out."""
    if subject is not None:
        return subject
    if scope != "organization":
        raise InvalidCap("subject", f"a {scope} cap needs a subject: an id, or * for each one separately")
    return actor.organization


def _counts_elsewhere(before: Cap, after: Cap) -> bool:
    """Whether a changed cap stands over counters that its old form did not."""
    moved = any(
        getattr(before, name) != getattr(after, name) for name in ("scope", "subject", "match", "window")
    )
    return moved or not {unit for unit, _ in after.limits} <= {unit for unit, _ in before.limits}
