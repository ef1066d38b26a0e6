"""The late end of a call that was recorded as abandoned: the correction that its answer makes (contract §10)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from gateway.ids import NewId
from gateway.ledger import Ledger
from gateway.outcome import Outcome, outcome_columns, priced_usage
from gateway.pipeline import Candidate
from gateway.policy import PolicyHolder
from toolkit.core.corrections import correction
from toolkit.core.errors import CorrectionError, StoreUnavailable
from toolkit.core.pricing import Priced
from toolkit.core.receipts import Receipt
from toolkit.core.usage import Usage

_log = logging.getLogger("capline.late")

LONGEST = timedelta(hours=24)
"""How long after its admission the end of a call is waited for."""

_TOLD = (
    "model_served",
    "upstream_id",
    "service_tier",
    "provider_cost_nano_usd",
    "http_status",
    "response_bytes",
)
"""Columns that a late answer tells beside its usage; what it leaves open stays as the first row has it."""


class LateEnds:
    """Corrects abandoned receipts by what their providers said in the end."""

    def __init__(
        self, ledger: Ledger, policy: PolicyHolder, node: str, clock: Callable[[], datetime], new_id: NewId
    ) -> None:
        self._ledger = ledger
        self._policy = policy
        self._node = node
        self._clock = clock
        self._new_id = new_id

    async def correct(
        self,
        before: Receipt,
        candidate: Candidate,
        outcome: Outcome,
        times: Mapping[str, Any] | None = None,
    ) -> Receipt | None:
        """Commit what a late end makes of an abandoned receipt, and return that correction.

        None leaves `before` as it stands: its end tells no cost, or another row has corrected it. A provider's no
        that is known not to bill is a correction to 0. `times` are columns that the caller measured.

        Raises:
            StoreUnavailable: the ledger did not take the correction.
        """
        usage, priced = priced_usage(outcome, candidate)
        if outcome.status == "failed":
            usage, priced = Usage(), None
        elif outcome.status != "served" or not isinstance(usage, Usage) or not isinstance(priced, Priced):
            return None
        columns = outcome_columns(outcome, candidate)
        facts = {name: columns[name] for name in _TOLD if columns[name] is not None}
        now = self._clock()

        def made(settle_seq: int) -> Receipt:
            return correction(
                before,
                receipt_id=f"rc_{self._new_id(now)}",
                settled_at=now,
                settle_seq=settle_seq,
                node=self._node,
                usage=usage,
                priced=priced,
                facts={**facts, **(times or {})},
            )

        try:
            return await self._ledger.correct(self._policy.current.book(before.organization), made)
        except CorrectionError:
            _log.info("receipt %s was corrected before its late end", before.receipt_id)
            return None
        except Exception as error:
            reason = type(error).__name__
            _log.error("the late end of %s was not committed: %s", before.receipt_id, reason)
            raise StoreUnavailable(f"a late end was not committed ({reason})") from error
