"""What all changes of the control plane share: who asks, one at a time, one audit row, how it is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from gateway.ids import NewId
from gateway.ledger import Ledger
from gateway.policy import CHANGES_CAPS, PolicyHolder, Role
from gateway.settings import Settings
from gateway.stores.records import AuditEntry
from gateway.stores.writer import LedgerWriter
from toolkit.core.errors import CaplineError, StoreUnavailable
from toolkit.core.windows import instant_text

_T = TypeVar("_T")
ErrorCode = Literal[
    "not_found",
    "method_not_allowed",
    "version_required",
    "version_conflict",
    "invalid_request",
    "not_correctable",
    "not_droppable",
    "month_dropped",
    "permission_denied",
    "invalid_api_key",
    "store_unavailable",
    "internal_error",
]


class ControlError(CaplineError):
    """A change or a question that is answered with no; `field` names what to change where there is one."""

    def __init__(self, code: ErrorCode, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.code, self.field = code, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who is at the operator's plane: a key with a role, or the admin token, which is an owner."""

    name: str
    organization: str
    role: Role


class Changes:
    """The lock, the transaction and the audit row of every change. Runs on the event loop's thread."""

    def __init__(
        self,
        writer: LedgerWriter,
        ledger: Ledger,
        policy: PolicyHolder,
        settings: Settings,
        clock: Callable[[], datetime],
        new_id: NewId,
    ) -> None:
        self._writer = writer
        self._ledger = ledger
        self._policy = policy
        self._settings = settings
        self._clock = clock
        self._new_id = new_id
        self._lock = asyncio.Lock()

    async def settled(self) -> None:
        """Return when everything that was queued for the ledger before is committed, or has failed."""
        await self._writer.run(lambda connection: None)

    async def _change(self, actor: Actor, forbidden: str, work: Callable[[], Awaitable[_T]]) -> _T:
        """Run a change to its end, even if its client leaves: what is committed must reach the snapshot.

        `forbidden` is what someone hears who is neither owner nor admin.
        """
        if actor.role not in CHANGES_CAPS:
            raise ControlError("permission_denied", forbidden)

        async def run() -> _T:
            async with self._lock:
                return await work()

        try:
            return await asyncio.shield(asyncio.ensure_future(run()))
        except SQLAlchemyError as error:
            raise StoreUnavailable(f"the change was not stored ({type(error).__name__})") from None

    def _entry(
        self,
        actor: Actor,
        action: str,
        changed: str,
        before: Mapping[str, Any] | None = None,
        after: Mapping[str, Any] | None = None,
        reason: str | None = None,
        at: datetime | None = None,
    ) -> AuditEntry:
        return AuditEntry(
            at=self._clock() if at is None else at,
            organization=actor.organization,
            actor=actor.name,
            action=action,
            object=changed,
            before=before,
            after=after,
            reason=reason,
        )


def instant(at: datetime | None) -> str | None:
    """An instant as text, where there is one."""
    return None if at is None else instant_text(at)
