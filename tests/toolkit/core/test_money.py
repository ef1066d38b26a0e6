"""Money: dollars in and out exactly, and the four roundings."""

from __future__ import annotations

from fractions import Fraction

import pytest

from toolkit.core.errors import MoneyError
from toolkit.core.money import (
    LARGEST_INTEGER,
    LARGEST_NANO_USD,
    NANO_PER_USD,
    limit_text,
    nano_down,
    nano_half_even,
    nano_up,
    parse_rate,
    parse_usd,
    usd_down,
    usd_text,
    usd_up,
)


@pytest.mark.parametrize(
    ("text", "nano"),
    [
        ("0", 0),
        ("0.1", 100_000_000),  # R056: 100,000 micro-USD
        ("1.000001", 1_000_001_000),  # R056: 1,000,001 micro-USD
        ("0.000001", 1_000),
        ("20.00", 20 * NANO_PER_USD),
        ("9000000000", LARGEST_NANO_USD),
    ],
)
def test_r056_dollars_are_parsed_with_integers_alone(text: str, nano: int) -> None:
    assert parse_usd(text) == nano


@pytest.mark.parametrize("text", ["0.0000001", "0.0000010", "1.1234567"])
def test_r057_more_than_six_decimals_are_refused_not_rounded(text: str) -> None:
    with pytest.raises(MoneyError, match="7 decimals; at most 6 are kept"):
        parse_usd(text)


def test_more_decimals_are_taken_where_they_are_asked_for() -> None:
    assert parse_usd("0.000000001", decimals=9) == 1
    with pytest.raises(MoneyError):
        parse_usd("0.0000000001", decimals=9)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " 1",
        "1 ",
        "1\n",
        "-7",
        "+1",
        "1e3",
        "1,000",
        "1_000",
        ".5",
        "5.",
        "NaN",
        "inf",
        "Infinity",
        "$1",
        "١",
        "１",
    ],
)
def test_b13_what_is_not_plain_digits_is_not_an_amount(text: str) -> None:
    with pytest.raises(MoneyError, match="is not an amount in US dollars"):
        parse_usd(text)


def test_nine_billion_dollars_are_the_most() -> None:
    assert parse_usd("8999999999.999999") == LARGEST_NANO_USD - 1_000
    assert parse_usd("9000000000.000000") == LARGEST_NANO_USD
    with pytest.raises(MoneyError, match="more than 9,000,000,000"):
        parse_usd("9000000000.000001")
    assert LARGEST_NANO_USD < 2**63


def test_a_rate_becomes_pico_dollars_a_token() -> None:
    assert parse_rate("0.05") == 50_000
    assert parse_rate("0.003625") == 3_625
    assert parse_rate("10", per=1_000) == parse_rate("0.01", per=1) == 10_000_000_000


def test_a_rate_that_is_no_whole_number_of_pico_dollars_is_refused() -> None:
    with pytest.raises(MoneyError, match="not a whole number of pico-USD"):
        parse_rate("1.02", per=3_600)  # an hour's price is no finite price of a second


@pytest.mark.parametrize(
    ("pico", "nano"),
    [
        (0, 0),
        (499, 0),
        (500, 0),  # a tie goes to the even 0
        (501, 1),
        (1_499, 1),
        (1_500, 2),  # a tie goes to the even 2
        (1_501, 2),
        (2_500, 2),
        (3_500, 4),
        (Fraction(4_999, 10), 0),
        (Fraction(5_000, 10), 0),
        (Fraction(5_001, 10), 1),
        (Fraction(3_000, 2), 2),
    ],
)
def test_a_cost_is_rounded_half_to_even(pico: int | Fraction, nano: int) -> None:
    assert nano_half_even(pico) == nano


@pytest.mark.parametrize(
    ("pico", "up", "down"), [(0, 0, 0), (1, 1, 0), (999, 1, 0), (1_000, 1, 1), (1_001, 2, 1)]
)
def test_a_hold_is_rounded_up_and_a_floor_down(pico: int, up: int, down: int) -> None:
    assert (nano_up(pico), nano_down(pico)) == (up, down)


@pytest.mark.parametrize(
    ("nano", "down", "up"),
    [
        (0, "0.000000", "0.000000"),
        (1, "0.000000", "0.000001"),
        (999, "0.000000", "0.000001"),
        (1_000, "0.000001", "0.000001"),
        (1_001, "0.000001", "0.000002"),
        (20 * NANO_PER_USD, "20.000000", "20.000000"),
        (-1, "-0.000001", "0.000000"),
    ],
)
def test_what_remains_is_shown_down_and_what_is_spent_up(nano: int, down: str, up: str) -> None:
    assert (usd_down(nano), usd_up(nano)) == (down, up)


def test_no_digit_is_lost_in_an_exact_text() -> None:
    assert usd_text(44_898_000) == "0.044898000"
    assert usd_text(-1) == "-0.000000001"
    assert usd_text(1_000, places=6) == "0.000001"
    assert usd_text(3 * NANO_PER_USD, places=0) == "3"
    with pytest.raises(MoneyError, match="does not fit 6 decimals"):
        usd_text(1_001, places=6)


def test_a_limit_is_shown_with_two_decimals_or_as_many_as_it_has() -> None:
    shown = [limit_text(nano) for nano in (0, NANO_PER_USD // 2, 1_000, 20 * NANO_PER_USD)]
    assert shown == ["0.00", "0.50", "0.000001", "20.00"]


def test_every_reader_keeps_the_largest_integer_of_a_receipt() -> None:
    assert LARGEST_INTEGER == 2**53 - 1  # 9,007,199.254740991 dollars
