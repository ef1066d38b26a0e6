"""How one admitted call enters the ledger: its intent, the one receipt that settles it, and a late end's correction.

A call settles once. One that outlasts CAPLINE_HOLD_TTL_S is recorded as abandoned while its answer is still read; what
that answer says in the end is a correction. docs/ledger.md has the states.
"""

from __future__ import annotations

import asyncio
import logging

from gateway.client import Client
from gateway.outcome import Outcome, outcome_columns
from gateway.pipeline import Candidate, Draft, redraft
from gateway.refusals import Refusal
from gateway.services import Services
from toolkit.core.counters import NOTHING, Counted
from toolkit.core.receipts import Receipt

_log = logging.getLogger("capline.exchange")


class Settlement:
    """The ledger's side of one call. Create it when the call is admitted."""

    def __init__(
        self, services: Services, client: Client, candidate: Candidate, draft: Draft, trace: str | None
    ) -> None:
        self._services = services
        self._client = client
        self._candidate = candidate
        self._draft = draft
        self._trace = trace
        self._loop = asyncio.get_running_loop()
        self._first_byte_at: float | None = None
        self._outlasted: asyncio.Future[None] | None = None
        self.started_at = self._loop.time()
        self.over = False
        """Whether how the call ended has been said, or is left to those who ask for its background run."""
        self.abandoned: Receipt | None = None
        """The receipt of a call that outlasted its time."""

    async def begin(self, *, armed: bool) -> None:
        """Commit the intent; `armed`: under an armed cap. On StoreUnavailable nothing may be sent."""
        await self._services.ledger.begin(self._draft, self._trace, armed=armed)

    def note_first_byte(self) -> None:
        """The answer's body has begun."""
        if self._first_byte_at is None:
            self._first_byte_at = self._loop.time()

    async def finish(self, outcome: Outcome) -> Receipt:
        """Commit how the call ended: its receipt, or the correction that a late end makes of it.

        Raises StoreUnavailable: what the ledger does not know must not leave.
        """
        self.over = True
        if self.abandoned is None or self._outlasted is None:
            receipt, committed = self._settle(outcome)
            await committed
            return receipt
        await self._outlasted
        late = await self._services.late.correct(self.abandoned, self._candidate, outcome, self._times())
        return late or self.abandoned

    def outlast(self, seen: Outcome) -> None:
        """The call is older than CAPLINE_HOLD_TTL_S: its hold is spent, and only a correction changes that."""
        if not self.over and self.abandoned is None:
            self.abandoned, self._outlasted = self._settle(seen)
            self._outlasted.add_done_callback(self._noted)

    def lose(self, seen: Outcome) -> None:
        """Nobody will learn how the call ended, and nobody waits for its receipt."""
        if not self.over:
            self.over = True
            if self.abandoned is None:
                self._settle(seen)[1].add_done_callback(self._noted)

    def refuse(self, refusal: Refusal) -> None:
        """The intent is not on disk, so nothing may be sent: give the hold back."""
        self.over = True
        ledger = self._services.ledger
        ledger.settle(self._draft["receipt_id"], NOTHING)
        draft = redraft(self._draft, refusal)
        receipt = Receipt(**draft, settled_at=max(self._services.clock(), self._candidate.at))
        ledger.record(receipt, self._trace, closes_intent=True).add_done_callback(self._noted)

    def _settle(self, outcome: Outcome) -> tuple[Receipt, asyncio.Future[None]]:
        ledger = self._services.ledger
        columns = outcome_columns(outcome, self._candidate)
        requests = int(outcome.status != "failed")
        counted = Counted(columns["counted_nano_usd"], columns["counted_tokens"], requests)
        columns["settle_seq"] = ledger.settle(self._draft["receipt_id"], counted)
        columns["settled_at"] = max(self._services.clock(), self._candidate.at)
        receipt = Receipt.of(self._draft | columns | self._times())
        self._services.metrics.count("requests", dialect=receipt.dialect, status=outcome.status)
        return receipt, ledger.record(receipt, self._trace, closes_intent=True)

    def _times(self) -> Draft:
        now, first = self._loop.time(), self._first_byte_at
        return {
            "latency_ms": _milliseconds(now - self.started_at),
            "ttft_ms": None if first is None else _milliseconds(first - self.started_at),
            "client_left": self._client.left,
        }

    def _noted(self, committed: asyncio.Future[None]) -> None:
        if not committed.cancelled() and committed.exception() is not None:
            _log.error("receipt %s was not committed", self._draft["receipt_id"])


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)
