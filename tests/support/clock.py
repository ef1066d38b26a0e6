"""A clock that stands still until it is told to move."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class ManualClock:
    """Callable like the gateway's clock."""

    def __init__(self, at: datetime = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)) -> None:
        self.at = at

    def __call__(self) -> datetime:
        return self.at

    def advance(self, **parts: float) -> None:
        """Move forward by a timedelta's parts."""
        self.at += timedelta(**parts)
