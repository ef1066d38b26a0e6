"""Which part of the ledger a question is about: a period by its key, a month for short, or two instants."""

from __future__ import annotations

from datetime import datetime

from gateway.changes import ControlError
from gateway.stores.finals import Part
from toolkit.core.windows import Period, Window, parse_instant, period_of


def part_of(*, period: str | None, start: str | None, end: str | None, name: str = "period") -> Part:
    """`[start, end)` of a period's key, or of `from` and `to`. Raises ControlError naming the parameter."""
    if period is not None:
        if start is not None or end is not None:
            raise ControlError("invalid_request", f"Send {name}, or from and to, not both.", name)
        found = named_period(period, name)
        return found.start, found.end
    part = _instant(start, "from"), _instant(end, "to")
    if part[0] is not None and part[1] is not None and part[0] >= part[1]:
        raise ControlError("invalid_request", "to is later than from.", "to")
    return part


def named_period(key: str, name: str = "period", window: Window | None = None) -> Period:
    """The period that a key names, of `window` where one is wanted."""
    try:
        found = period_of(key)
    except ValueError:
        wanted = "2026-12-01, 2026-W49, 2026-12, 2026 or all"
        raise ControlError("invalid_request", f"{name} is a period such as {wanted}.", name) from None
    if window is not None and found.window != window:
        raise ControlError("invalid_request", f"{name} is a {window}.", name)
    return found


def _instant(text: str | None, name: str) -> datetime | None:
    if text is None:
        return None
    try:
        return parse_instant(text)
    except (ValueError, OverflowError):
        message = (
            f"{name} is a date, or an instant with its offset, such as 2026-11-01 or 2026-11-01T00:00:00Z."
        )
        raise ControlError("invalid_request", message, name) from None
