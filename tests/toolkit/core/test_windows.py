"""Windows: five clocks, all of them UTC, and the period of every instant."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from toolkit.core.windows import (
    WINDOWS,
    Window,
    instant_text,
    parse_instant,
    period_at,
    period_key,
    period_of,
    require_utc,
    seconds_until,
)

TICK = timedelta(microseconds=1)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def test_r035_there_are_five_windows() -> None:
    assert WINDOWS == ("day", "week", "month", "year", "never")


@pytest.mark.parametrize(
    ("window", "opens", "before", "after"),
    [
        ("day", "2026-12-01", "2026-11-30", "2026-12-01"),
        ("week", "2026-12-07", "2026-W49", "2026-W50"),  # a Monday
        ("month", "2026-12-01", "2026-11", "2026-12"),
        ("year", "2027-01-01", "2026", "2027"),
        ("day", "2024-02-29", "2024-02-28", "2024-02-29"),  # a leap day
        ("day", "2024-03-01", "2024-02-29", "2024-03-01"),
        ("day", "2026-03-01", "2026-02-28", "2026-03-01"),
        ("month", "2024-03-01", "2024-02", "2024-03"),
        ("week", "2027-01-04", "2026-W53", "2027-W01"),  # 1 to 3 January 2027 are of 2026's last week
        ("week", "2024-12-30", "2024-W52", "2025-W01"),  # 30 and 31 December 2024 are of 2025's first week
        ("week", "2021-01-04", "2020-W53", "2021-W01"),
        ("year", "2025-01-01", "2024", "2025"),
    ],
)
def test_r036_a_period_opens_at_midnight_utc(window: Window, opens: str, before: str, after: str) -> None:
    midnight = utc(opens)
    assert period_key(window, midnight - TICK) == before  # 23:59:59.999999
    assert period_key(window, midnight) == after  # 00:00:00
    assert period_key(window, midnight + TICK) == after
    assert period_of(before).end == midnight == period_of(after).start


@pytest.mark.parametrize(
    "instant", ["2026-12-31T23:59:59.999999", "2027-01-01T00:00:00", "2000-02-29T12:00:00"]
)
def test_r040_a_window_that_never_resets_has_one_period_without_an_end(instant: str) -> None:
    period = period_at("never", utc(instant))
    assert (period.key, period.start, period.end) == ("all", None, None)


@pytest.mark.parametrize(
    ("key", "window", "days"),
    [
        ("2026-12-01", "day", 1),
        ("2026-W53", "week", 7),
        ("2024-02", "month", 29),
        ("2026-02", "month", 28),
        ("2000-02", "month", 29),
        ("2100-02", "month", 28),
        ("2026-12", "month", 31),
        ("2024", "year", 366),
        ("2026", "year", 365),
    ],
)
def test_r041_a_period_says_when_it_opens_and_closes(key: str, window: Window, days: int) -> None:
    period = period_of(key)
    assert (period.key, period.window) == (key, window)
    assert period.start is not None
    assert period.end == period.start + timedelta(days=days)
    assert period_at(window, period.start) == period_at(window, period.end - TICK) == period
    assert period_at(window, period.end) != period


def test_r037_the_month_of_a_cap_made_on_the_17th_still_ends_on_the_first() -> None:
    assert period_at("month", utc("2026-11-17T10:00")).end == utc("2026-12-01")


@pytest.mark.parametrize(
    "key",
    [
        "", "All", "2026-13", "2026-00", "2026-1", "26-01", "2026-W00", "2026-W54", "2025-W53", "2026-02-29",
        "2026-12-00", "2026-12-1", "0000", "2026-W49-1", "2026-12-01T00:00", "٢٠٢٦", "2026\n",
        "9999", "9999-12", "9999-12-31", "9999-W52",
    ],
)  # fmt: skip
def test_a_text_that_names_no_period_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="is not a period"):
        period_of(key)


def test_b26_an_instant_is_never_guessed_into_utc() -> None:
    shanghai = datetime(2026, 3, 1, tzinfo=timezone(timedelta(hours=8)))
    for at in (shanghai, datetime(2026, 3, 1)):  # noqa: DTZ001
        with pytest.raises(ValueError, match="not in UTC"):
            require_utc(at)
        with pytest.raises(ValueError, match="not in UTC"):
            period_at("month", at)
        with pytest.raises(ValueError, match="not in UTC"):
            instant_text(at)


def test_b26_an_offset_is_honoured_when_an_instant_is_read() -> None:
    midnight_in_shanghai = parse_instant("2026-03-01T00:00:00+08:00")
    assert midnight_in_shanghai == utc("2026-02-28T16:00:00")
    assert period_at("month", midnight_in_shanghai).key == "2026-02"


def test_an_instant_is_text_with_microseconds_and_z() -> None:
    assert instant_text(utc("2026-12-01T00:00:00")) == "2026-12-01T00:00:00.000000Z"
    assert instant_text(utc("2026-12-01T00:00:00.000001")) == "2026-12-01T00:00:00.000001Z"
    assert instant_text(datetime(26, 1, 2, tzinfo=UTC)) == "0026-01-02T00:00:00.000000Z"
    assert parse_instant("2026-12-01T00:00:00.000001Z") == utc("2026-12-01T00:00:00.000001")


def test_a_bare_date_is_its_midnight_utc_and_nothing_else_may_lack_an_offset() -> None:
    assert parse_instant("2026-12-01") == utc("2026-12-01")
    with pytest.raises(ValueError, match="has no offset"):
        parse_instant("2026-12-01T00:00:00")


def test_an_instant_that_utc_cannot_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="beyond the years"):
        parse_instant("0001-01-01T00:00:00+01:00")


@pytest.mark.parametrize(
    ("before_the_end", "seconds"),
    [
        (timedelta(milliseconds=1), 1),  # R064
        (TICK, 1),
        (timedelta(0), 1),
        (-TICK, 1),
        (timedelta(seconds=1), 1),
        (timedelta(seconds=1) + TICK, 2),
        (timedelta(seconds=2) - TICK, 2),
        (timedelta(days=31), 31 * 86_400),
    ],
)
def test_r064_retry_after_is_rounded_up_and_at_least_one(before_the_end: timedelta, seconds: int) -> None:
    end = utc("2027-01-01")
    assert seconds_until(end, end - before_the_end) == seconds
