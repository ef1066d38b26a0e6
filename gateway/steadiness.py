"""What a clock that jumps may not do: drop the counters of a live period, or read those of one that nobody filled."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta

CLOSED_GRACE = timedelta(days=2)
"""How long the counters of a closed period are kept (R042): longer than any call runs or clock errs."""
_TOLERANCE = timedelta(hours=1)
"""How far wall clock and monotonic clock may drift apart in a day without one of them having been set."""


class Steadiness:
    """The wall clock against the monotonic one. Instants are those of calls, in the order in which they came."""

    def __init__(self, at: datetime, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._since = (at, monotonic())
        self._day = at.date()
        self._known_from = _midnight(at)
        self.stepped: timedelta = timedelta(0)
        """How far the clock was set at its last jump."""

    def filled(self, at: datetime) -> None:
        """Counters were filled for the periods that hold `at`; of earlier days they may know nothing."""
        self._known_from = max(self._known_from, _midnight(at))

    def knows(self, at: datetime) -> bool:
        """Whether the counters of the periods that hold `at` are complete."""
        return at >= self._known_from

    def closed_before(self, at: datetime) -> datetime | None:
        """On a new day, before when closed periods may be forgotten; None while the clock has not run long enough."""
        if at.date() == self._day:
            return None
        self._day = at.date()
        since, started = self._since
        passed = timedelta(seconds=self._monotonic() - started)
        drift = at - since - passed
        if abs(drift) > _TOLERANCE:
            self.stepped = drift
            self._since = (at, self._monotonic())
            return None
        if passed < CLOSED_GRACE:
            return None
        before = at - CLOSED_GRACE
        self._known_from = max(self._known_from, before)
        return before


def _midnight(at: datetime) -> datetime:
    return at.replace(hour=0, minute=0, second=0, microsecond=0)
