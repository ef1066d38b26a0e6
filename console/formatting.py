"""One way to write money, counts, shares, instants and other people's text, on every page and in every file.

Amounts come in as integers of nano-USD and leave as text; no float is ever in between. A zero is only shown for a
zero, and an unknown amount is never shown as one.
"""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Literal

from toolkit.core.money import limit_text, usd_text
from toolkit.core.windows import period_of

UNKNOWN = "–"
"""What stands where a figure is not known."""

Places = Literal[2, 6, 9]

_GUARDED = ("=", "+", "-", "@", "'", "\t", "\r")


def total_usd(nano: int | None) -> str:
    """A total: two decimals, as many as it needs (up to six) when it is less than a cent.

    >>> total_usd(1_043_834_000_000), total_usd(1_615_000), total_usd(0), total_usd(None)
    ('$1,043.83', '$0.001615', '$0.00', '–')
    """
    if nano is None:
        return UNKNOWN
    return _dollars(nano, 2 if nano == 0 or _rounded(nano, 2) else 6)


def call_usd(nano: int | None) -> str:
    """One call: six decimals always, so that a column of them lines up.

    >>> call_usd(1_615_000), call_usd(20), call_usd(None)
    ('$0.001615', '<$0.000001', '–')
    """
    return UNKNOWN if nano is None else _dollars(nano, 6)


def cap_usd(nano: int) -> str:
    """A cap's limit: exact, two decimals or as many as it has.

    >>> cap_usd(20_000_000_000), cap_usd(1_500_000), cap_usd(12_345_000_000_000)
    ('$20.00', '$0.0015', '$12,345.00')
    """
    whole, fraction = limit_text(nano).split(".")
    return f"${int(whole):,}.{fraction}"


def signed_usd(nano: int) -> str:
    """A change: a total with its sign.

    >>> signed_usd(5_000_000_000), signed_usd(-5_000_000_000), signed_usd(0)
    ('+$5.00', '−$5.00', '$0.00')
    """
    sign = "+" if nano > 0 else "−" if nano < 0 else ""
    return sign + total_usd(abs(nano))


def exact_usd(nano: int | None) -> str:
    """An amount for a file: nine decimals, nothing rounded, empty when unknown."""
    return "" if nano is None else usd_text(nano)


def column_places(amounts: Iterable[int | None]) -> Places:
    """The decimals that a column of amounts needs so that no amount but zero looks like zero.

    >>> column_places([0, 5_000_000_000]), column_places([5_000_000_000, 1_000_000]), column_places([20])
    (2, 6, 9)
    """
    smallest = min((abs(nano) for nano in amounts if nano), default=None)
    if smallest is None or _rounded(smallest, 2):
        return 2
    return 6 if _rounded(smallest, 6) else 9


def count(number: int) -> str:
    """A whole number with thousands separators."""
    return f"{number:,}"


def plural(number: int, word: str, many: str | None = None) -> str:
    """A number with its word.

    >>> plural(1, "call"), plural(4_081, "call")
    ('1 call', '4,081 calls')
    """
    return f"{count(number)} {word if number == 1 else many or f'{word}s'}"


def md_dollars(dollars: str) -> str:
    """Dollar text for Markdown: two bare dollar signs could be taken for a formula."""
    return dollars.replace("$", r"\$")


def percent(part: int, whole: int) -> str:
    """A share with one decimal; tiny and nearly whole shares never look like none or all.

    >>> percent(1, 3), percent(1, 100_000), percent(99_999, 100_000), percent(0, 0)
    ('33.3%', '<0.1%', '>99.9%', '–')
    """
    if whole <= 0:
        return UNKNOWN
    tenths = (part * 2000 + whole) // (whole * 2)
    if tenths == 0 and part > 0:
        return "<0.1%"
    if tenths == 1000 and part < whole:
        return ">99.9%"
    return f"{tenths // 10}.{tenths % 10}%"


def instant(at: datetime | None) -> str:
    """An instant as `30 Nov 2026 14:42:42 UTC`."""
    return UNKNOWN if at is None else f"{at:%d %b %Y %H:%M:%S} UTC"


def day(at: datetime) -> str:
    """A date as `30 Nov 2026`."""
    return f"{at:%d %b %Y}"


def day_range(first: datetime, last: datetime) -> str:
    """The dates that two instants lie on: `1 to 30 Nov 2026`, `31 Oct to 30 Nov 2026`."""
    if first.date() == last.date():
        return day(last)
    if (first.year, first.month) == (last.year, last.month):
        return f"{first.day} to {last.day} {last:%b %Y}"
    return f"{first.day} {first:%b}{f' {first:%Y}' if first.year != last.year else ''} to {last.day} {last:%b %Y}"


def period(key: str) -> str:
    """A period's key for people: the key itself, with a week's first and last day.

    >>> period("2026-11"), period("2026-11-30"), period("2026-W48"), period("all")
    ('Nov 2026', '30 Nov 2026', '2026-W48, 23 to 29 Nov 2026', 'All time')
    """
    span = period_of(key)
    if span.start is None or span.end is None:
        return "All time"
    match span.window:
        case "day":
            return day(span.start)
        case "week":
            return f"{key}, {day_range(span.start, span.end - timedelta(days=1))}"
        case "month":
            return f"{span.start:%b %Y}"
    return key


def short_period(key: str) -> str:
    """A period near now, where a year and a week's days have no room.

    >>> [short_period(key) for key in ("2026-11", "2026-11-30", "2026-W48", "2026", "all")]
    ['Nov', '30 Nov', 'W48', '2026', 'All time']
    """
    span = period_of(key)
    if span.start is None:
        return "All time"
    match span.window:
        case "day":
            return f"{span.start:%d %b}"
        case "week":
            return key.partition("-")[2]
        case "month":
            return f"{span.start:%b}"
    return key


def inert(text: str | None) -> str:
    """Somebody else's text with everything invisible spelled out, so that it cannot reorder or hide what is near it.

    Letters that run from right to left are set apart, so that the figures beside them stay where they are.

    >>> inert("cust\\u202e131"), inert("a\\nb"), inert(None)
    ('cust⟨U+202E⟩131', 'a⟨U+000A⟩b', '–')
    """
    if text is None:
        return UNKNOWN
    shown = "".join(
        f"⟨U+{ord(char):04X}⟩" if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp") else char
        for char in text
    )
    if any(unicodedata.bidirectional(char) in ("R", "AL", "AN") for char in shown):
        return f"\u2068{shown}\u2069"
    return shown


def csv_file(header: Sequence[str], rows: Iterable[Sequence[str | int | None]]) -> bytes:
    """A CSV file in UTF-8. A text cell that a spreadsheet could take for a formula gets one leading `'`."""
    out = io.StringIO()
    # The terminator with CR in it makes the writer quote a cell that holds one.
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(header)
    for row in rows:
        writer.writerow(["" if cell is None else guarded(cell) for cell in row])
    return out.getvalue().encode("utf-8")


def guarded(cell: str | int) -> str | int:
    """A CSV cell that no spreadsheet runs.

    >>> guarded("=cmd|' /C calc'!A0"), guarded("plain"), guarded(-3)
    ("'=cmd|' /C calc'!A0", 'plain', -3)
    """
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_GUARDED) else cell


def _rounded(nano: int, places: Places) -> int:
    """Units of the last shown decimal, half to even: the rounding of every report."""
    step: int = 10 ** (9 - places)
    whole, rest = divmod(nano, step)
    return whole + (rest * 2 > step or (rest * 2 == step and whole % 2 == 1))


def _dollars(nano: int, places: Places) -> str:
    sign, size = ("−", -nano) if nano < 0 else ("", nano)
    units = _rounded(size, places)
    if size and not units:
        return f"{'>−' if sign else '<'}$0.{'1'.zfill(places)}"
    whole, fraction = divmod(units, 10**places)
    return f"{sign}${whole:,}.{fraction:0{places}d}"
