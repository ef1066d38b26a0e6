"""One formatter: no false zero, no lost digit, nobody's text able to act."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime

import pytest

from console import formatting

CENT = 10_000_000
MICRO = 1_000


@pytest.mark.parametrize(
    ("nano", "shown"),
    [
        (0, "$0.00"),
        (1, "<$0.000001"),
        (500, "<$0.000001"),  # half a micro-dollar rounds to even, which is none
        (501, "$0.000001"),
        (MICRO, "$0.000001"),
        (1_615_000, "$0.001615"),
        (CENT // 2, "$0.005000"),  # half a cent would round to 0.00
        (CENT // 2 + 1, "$0.01"),
        (CENT, "$0.01"),
        (10 * 100_000_000, "$1.00"),  # ten receipts of $0.10 (B116)
        (1_043_834_000_000, "$1,043.83"),
        (-5 * 1_000_000_000, "−$5.00"),
        (None, "–"),
    ],
)
def test_a_total_has_two_decimals_and_is_never_a_bare_zero_unless_it_is_one(
    nano: int | None, shown: str
) -> None:
    assert formatting.total_usd(nano) == shown


@pytest.mark.parametrize(
    ("nano", "shown"),
    [
        (0, "$0.000000"),
        (20, "<$0.000001"),
        (1_615_000, "$0.001615"),
        (2_000_000_000, "$2.000000"),
        (None, "–"),
    ],
)
def test_a_call_has_six_decimals(nano: int | None, shown: str) -> None:
    assert formatting.call_usd(nano) == shown


def test_a_change_carries_its_sign() -> None:
    assert [formatting.signed_usd(nano) for nano in (CENT, -CENT, 0)] == ["+$0.01", "−$0.01", "$0.00"]


def test_a_column_has_the_decimals_that_its_smallest_amount_needs() -> None:
    assert formatting.column_places([None, 0, CENT]) == 2
    assert formatting.column_places([CENT, MICRO]) == 6
    assert formatting.column_places([CENT, 20]) == 9
    assert formatting.column_places([]) == 2


def test_a_share_is_never_rounded_to_none_or_all() -> None:
    shares = [formatting.percent(part, 10_000) for part in (0, 1, 24, 5_000, 9_999, 10_000, 10_870)]
    assert shares == ["0.0%", "<0.1%", "0.2%", "50.0%", ">99.9%", "100.0%", "108.7%"]


def test_instants_name_their_zone() -> None:
    at = datetime(2026, 11, 30, 14, 42, 42, tzinfo=UTC)
    assert formatting.instant(at) == "30 Nov 2026 14:42:42 UTC"
    assert formatting.day_range(at.replace(day=1), at) == "1 to 30 Nov 2026"
    assert formatting.day_range(datetime(2025, 12, 31, tzinfo=UTC), at) == "31 Dec 2025 to 30 Nov 2026"


@pytest.mark.parametrize("hidden", ["\u202e", "\u200b", "\u2066", "\x07", "\n", "\u2028"])
def test_what_cannot_be_seen_is_spelled_out(hidden: str) -> None:
    assert formatting.inert(f"a{hidden}b") == f"a⟨U+{ord(hidden):04X}⟩b"


def test_letters_from_right_to_left_stay_within_their_name() -> None:
    assert formatting.inert("שלום") == "\u2068שלום\u2069"
    assert formatting.inert("müller-№1 😀") == "müller-№1 😀"


@pytest.mark.parametrize("cell", ["=cmd|' /C calc'!A0", "+1", "-1", "@x", "'quoted", "\tx", "\rx"])
def test_a_spreadsheet_runs_no_cell(cell: str) -> None:
    file = formatting.csv_file(["customer", "calls"], [[cell, -1], [None, 2]]).decode()
    assert list(csv.reader(io.StringIO(file, newline=""))) == [
        ["customer", "calls"],
        [f"'{cell}", "-1"],
        ["", "2"],
    ]


def test_a_file_keeps_every_digit() -> None:
    assert formatting.exact_usd(1) == "0.000000001"
    assert formatting.exact_usd(None) == ""
