"""Money is an integer of nano-USD; rates are integers of pico-USD per unit.

One US dollar is 1,000,000,000 nano-USD. A list rate of at most six decimals in USD per million tokens is a
whole number of pico-USD per token, so one call's cost is an exact sum that is rounded once. The four
roundings of the product live here and nowhere else: a hold up, a receipt half to even, spend shown up, what
remains shown down.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NewType

from toolkit.core.errors import MoneyError

NanoUsd = NewType("NanoUsd", int)

NANO_PER_USD = 1_000_000_000
PICO_PER_NANO = 1_000
PICO_PER_USD = NANO_PER_USD * PICO_PER_NANO
LARGEST_NANO_USD = 9_000_000_000 * NANO_PER_USD
"""The largest amount kept anywhere: it leaves room for a sum in a signed 64-bit column."""
LARGEST_INTEGER = 2**53 - 1
"""The largest integer that a receipt carries: every JSON reader keeps it exactly (contract §10)."""

_AMOUNT = re.compile(r"(\d{1,10})(?:\.(\d{1,9}))?", re.ASCII)


def parse_usd(text: str, *, decimals: int = 6) -> NanoUsd:
    """US dollars as decimal text to nano-USD, exactly.

    Raises MoneyError for anything else: a sign, an exponent, a separator, NaN, more than `decimals` places,
    or more than nine billion dollars. Nothing is rounded.

    >>> parse_usd("0.1")
    100000000
    >>> parse_usd("1.000001")
    1000001000
    """
    matched = _AMOUNT.fullmatch(text)
    if matched is None:
        raise MoneyError(
            f"{text!r} is not an amount in US dollars; write digits with at most {decimals} decimals"
        )
    whole, fraction = matched[1], matched[2] or ""
    if len(fraction) > decimals:
        raise MoneyError(
            f"{text!r} has {len(fraction)} decimals; at most {decimals} are kept, and none are rounded"
        )
    nano = int(whole) * NANO_PER_USD + int(fraction.ljust(9, "0"))
    if nano > LARGEST_NANO_USD:
        raise MoneyError(f"{text!r} is more than 9,000,000,000 US dollars, the most that is kept")
    return NanoUsd(nano)


def parse_rate(text: str, *, per: int = 1_000_000) -> int:
    """A list rate in USD per `per` units, as decimal text, to pico-USD per unit.

    >>> parse_rate("0.05")
    50000
    >>> parse_rate("0.01", per=1)
    10000000000
    """
    nano = parse_usd(text)
    pico, rest = divmod(nano * PICO_PER_NANO, per)
    if rest:
        raise MoneyError(f"rate {text!r} per {per} is not a whole number of pico-USD per unit")
    return pico


def parse_fee(text: str, *, per: int = 1) -> int | Fraction:
    """A list fee in USD per `per` units, as decimal text, to pico-USD per unit, exactly.

    >>> parse_fee("0.01")
    10000000000
    >>> parse_fee("1.02", per=3_600)
    Fraction(850000000, 3)
    """
    fee = Fraction(parse_usd(text) * PICO_PER_NANO, per)
    return fee.numerator if fee.denominator == 1 else fee


def nano_half_even(pico: int | Fraction) -> NanoUsd:
    """Pico-USD to nano-USD, half to even: the one rounding of a receipt's cost.

    >>> nano_half_even(2_500), nano_half_even(2_501), nano_half_even(3_500)
    (2, 3, 4)
    """
    whole = pico // PICO_PER_NANO
    twice_the_rest = 2 * (pico - whole * PICO_PER_NANO)
    up = twice_the_rest > PICO_PER_NANO or (twice_the_rest == PICO_PER_NANO and whole % 2 == 1)
    return NanoUsd(whole + up)


def nano_up(pico: int | Fraction) -> NanoUsd:
    """Pico-USD to nano-USD, up: the rounding of a hold."""
    return NanoUsd(-(-pico // PICO_PER_NANO))


def nano_down(pico: int) -> NanoUsd:
    """Pico-USD to nano-USD, down: the rounding of a floor."""
    return NanoUsd(pico // PICO_PER_NANO)


def usd_text(nano: int, *, places: int = 9) -> str:
    """Nano-USD as dollars with `places` decimals; raises MoneyError when digits would be lost.

    >>> usd_text(44_898_000)
    '0.044898000'
    """
    step = 10 ** (9 - places)
    if nano % step:
        raise MoneyError(f"{nano} nano-USD does not fit {places} decimals exactly")
    return _placed(nano // step, places)


def usd_down(nano: int, *, places: int = 6) -> str:
    """Nano-USD as dollars, rounded down: what remains, as shown.

    >>> usd_down(1_999_999)
    '0.001999'
    """
    return _placed(nano // 10 ** (9 - places), places)


def usd_up(nano: int, *, places: int = 6) -> str:
    """Nano-USD as dollars, rounded up: what is spent, as shown."""
    return _placed(-(-nano // 10 ** (9 - places)), places)


def limit_text(nano: int) -> str:
    """A cap's limit as the shortest dollars text with at least two decimals.

    >>> limit_text(20_000_000_000), limit_text(1_500)
    ('20.00', '0.0000015')
    """
    whole, fraction = usd_text(nano).split(".")
    return f"{whole}.{fraction.rstrip('0').ljust(2, '0')}"


def _placed(units: int, places: int) -> str:
    sign, units = ("-", -units) if units < 0 else ("", units)
    whole, fraction = divmod(units, 10**places)
    return f"{sign}{whole}.{fraction:0{places}d}" if places else f"{sign}{whole}"
