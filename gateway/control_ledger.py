"""Dropping the receipts of a closed month, once its export is in somebody else's hands (contract §11)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection

from gateway.changes import Actor, Changes, ControlError
from gateway.stores import records, retention
from gateway.stores.retention import Head
from toolkit.core.windows import period_key

ONLY_OWNERS_AND_ADMINS_DROP = "Only owners and admins can drop a month's receipts."
STEPS = 10
"""Transactions that one request makes; a long drop is asked for again until it is done."""


class Dropped(NamedTuple):
    """How many receipts one request took out, and whether the month is empty now."""

    receipts: int
    done: bool


class LedgerControl(Changes):
    """Gives up what is exported."""

    async def drop_month(self, actor: Actor, month: str, heads: Sequence[Head]) -> Dropped:
        """Drop some receipts of a month that ends at `heads`; ask again until it is done.

        The first request marks the month and writes the audit row; from then on no export of it is made.
        """
        await self._change(actor, ONLY_OWNERS_AND_ADMINS_DROP, lambda: self._begin(actor, month, heads))
        gone = 0
        for _ in range(STEPS):
            step = await self._writer.run(
                lambda connection: retention.drop_step(connection, actor.organization, month, self._clock())
            )
            gone += step
            if not step:
                return Dropped(gone, done=True)
        return Dropped(gone, done=False)

    async def _begin(self, actor: Actor, month: str, heads: Sequence[Head]) -> None:
        self._see_none_running(actor.organization, month)
        now = self._clock()

        def begin(connection: Connection) -> None:
            state = retention.dropped(connection, actor.organization).get(month)
            if state == "dropping":
                return
            if state == "dropped":
                raise ControlError("not_droppable", f"{month} was dropped before.")
            why = retention.why_kept(connection, actor.organization, month, heads, now)
            if why is not None:
                raise ControlError("not_droppable", why)
            retention.begin_drop(connection, actor.organization, month, now)
            after: dict[str, Any] = {"heads": [head._asdict() for head in heads]}
            records.append_audit(
                connection, self._entry(actor, "ledger.drop", f"month:{month}", after=after, at=now)
            )

        await self._writer.run(begin)

    def _see_none_running(self, organization: str, month: str) -> None:
        self._ledger.see_all_imported()
        for _, facts in self._ledger.counters.running():
            if facts.who.organization == organization and period_key("month", facts.at) == month:
                raise ControlError("not_droppable", f"A call of {month} is running.")
