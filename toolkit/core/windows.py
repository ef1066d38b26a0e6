"""A window is a clock, a period one interval of it; all open and close at 00:00 UTC.

The period's key is part of every counter's key, so a new period is a counter that was never written: nothing
has to be reset, and no job can be late.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Literal, get_args

Window = Literal["day", "week", "month", "year", "never"]
WINDOWS: tuple[Window, ...] = get_args(Window)

_ZERO = timedelta(0)
_PERIOD = re.compile(r"(\d{4})(?:-(\d{2})(?:-(\d{2}))?|-W(\d{2}))?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """One interval `[start, end)` of a window in UTC; both are None for `all`, which never ends."""

    window: Window
    key: str
    start: datetime | None
    end: datetime | None


def period_key(window: Window, at: date) -> str:
    """The key of the period that holds the UTC instant, or the day, `at`.

    >>> [period_key(window, datetime(2026, 12, 1, tzinfo=UTC)) for window in WINDOWS]
    ['2026-12-01', '2026-W49', '2026-12', '2026', 'all']
    """
    if window == "month":
        return f"{at.year:04d}-{at.month:02d}"
    if window == "day":
        return f"{at.year:04d}-{at.month:02d}-{at.day:02d}"
    if window == "week":
        year, week, _ = at.isocalendar()
        return f"{year:04d}-W{week:02d}"
    if window == "year":
        return f"{at.year:04d}"
    return "all"


def period_at(window: Window, at: datetime) -> Period:
    """The period of `window` that holds the UTC-aware instant `at`."""
    return period_of(period_key(window, require_utc(at)))


@lru_cache(maxsize=4096)
def period_of(key: str) -> Period:
    """The period that a key names. Raises ValueError for a text that is not one.

    >>> period_of("2026-W49").start
    datetime.datetime(2026, 11, 30, 0, 0, tzinfo=datetime.timezone.utc)
    """
    if key == "all":
        return Period(window="never", key=key, start=None, end=None)
    matched = _PERIOD.fullmatch(key)
    if matched is None:
        raise ValueError(f"{key!r} is not a period; write 2026-12-01, 2026-W49, 2026-12, 2026 or all")
    month, day, week = (int(part) if part else None for part in matched.groups()[1:])
    try:
        window, first, after = _days_of(int(matched[1]), month, day, week)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{key!r} is not a period: {error}") from error
    return Period(window=window, key=key, start=_midnight(first), end=_midnight(after))


def require_utc(at: datetime) -> datetime:
    """`at` itself when it is aware and at offset zero; else ValueError, as a guess would move a period."""
    if at.utcoffset() != _ZERO:
        raise ValueError(f"{at!r} is not in UTC; pass an aware instant at offset zero")
    return at


def instant_text(at: datetime) -> str:
    """An instant as RFC 3339 with microseconds and Z, the form of receipts and chains."""
    return require_utc(at).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


def parse_instant(text: str) -> datetime:
    """RFC 3339 text with an offset, or a bare date (its 00:00 UTC), to an aware UTC instant."""
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        if len(text) != 10:
            raise ValueError(f"{text!r} has no offset; write it with Z")
        return at.replace(tzinfo=UTC)
    try:
        return at.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{text!r} is beyond the years 1 to 9999 in UTC") from error


def seconds_until(end: datetime, at: datetime) -> int:
    """Whole seconds from `at` to `end`, rounded up and never below one: a Retry-After."""
    return max(1, -((at - end) // timedelta(seconds=1)))


def _days_of(year: int, month: int | None, day: int | None, week: int | None) -> tuple[Window, date, date]:
    """The window, its first day and the day after its last; None is a part that the key does not have."""
    if week is not None:
        first = date.fromisocalendar(year, week, 1)
        return "week", first, first + timedelta(days=7)
    if month is None:
        return "year", date(year, 1, 1), date(year + 1, 1, 1)
    if day is None:
        return "month", date(year, month, 1), date(year + month // 12, month % 12 + 1, 1)
    first = date(year, month, day)
    return "day", first, first + timedelta(days=1)


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)
