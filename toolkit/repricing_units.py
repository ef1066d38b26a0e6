"""Units of a receipts frame as exact numbers: what is counted by name, in columns that Polars multiplies.

`units` is JSON text. Every name that occurs becomes a column of whole parts: the count times a power of ten that makes
the finest count whole. Fees are fractions; one common denominator makes each a whole number too, so that a sum of
products is exact. The bounds that keep such a sum within 128 bits stand here, and what is beyond them is told apart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

import polars as pl

from toolkit.core.pricing import PriceList
from toolkit.core.usage import PROMPT_METERS, PROMPT_UNITS, turn_of

_MOST_NAMES = 100
_WIDEST_SCALE = 2**56
_WIDEST_PRODUCT = 2**120
"""A cost that a receipt can carry has fewer than 2^64 pico-USD, so scaled it stays below 2^120; one product above that
is no cost. A hundred products below it and the tokens' part add up to less than 2^127."""

_NAME = r'"([^"\\]*)":'
_COUNT = r'"?(\d{1,16})(?:\.(\d+))?"?'
_UNITS = pl.col("units")


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """The unit names of one data set, how fine its counts are, and the common denominator of a list's fees."""

    names: tuple[str, ...]
    decimals: int
    denominator: int
    held: bool
    """Whether columns can hold them; if not there are no names, and every row with units is `beyond`."""

    @classmethod
    def of(cls, frame: pl.LazyFrame, prices: PriceList) -> Units:
        """What occurs in `frame`, whose `units` are JSON text or null."""
        texts = frame.select("units").filter(_UNITS.is_not_null()).unique()
        found = texts.select(
            names=_UNITS.str.extract_all(_NAME), decimals=_UNITS.str.extract_all(r"\.\d+")
        ).collect(engine="streaming")
        names = found["names"].explode().drop_nulls().unique().sort().str.slice(1).str.head(-2)
        finest = found["decimals"].explode().drop_nulls().str.len_chars().max()
        fees = (fee for row in prices.rows for fee in row.fees.values())
        denominator = lcm(*{Fraction(fee).denominator for fee in fees})
        decimals = int(finest) - 1 if isinstance(finest, int) else 0
        while decimals and denominator * 10**decimals > _WIDEST_SCALE:
            decimals -= 1
        held = len(names) <= _MOST_NAMES and denominator <= _WIDEST_SCALE
        return cls(names=tuple(names) if held else (), decimals=decimals, denominator=denominator, held=held)

    @property
    def scale(self) -> int:
        """What a sum of pico-USD is multiplied by, so that every part of it is whole."""
        return self.denominator * 10**self.decimals if self.names else 1

    @property
    def others(self) -> tuple[str, ...]:
        """The other models whose turns are counted."""
        return tuple(sorted({turn[0] for name in self.names if (turn := turn_of(name)) is not None}))

    def columns(self) -> Iterable[pl.Expr]:
        """Each name's count in parts of 10^-decimals, by its place: `unit:0`, null where a row has none."""
        for place, name in enumerate(self.names):
            yield self._count(name).alias(f"unit:{place}")

    def beyond(self) -> pl.Expr:
        """Whether a row's units are written in a way, or so finely, that these columns do not hold them."""
        if not self.held:
            return _UNITS.is_not_null()
        count = r'"?\d{1,16}' + (rf'(?:\.\d{{1,{self.decimals}}})?"?' if self.decimals else '"?')
        plain = rf'^\{{(?:"[^"\\]*":{count},)*"[^"\\]*":{count}\}}$|^\{{\}}$'
        return ~_UNITS.str.contains(plain).fill_null(value=True)

    def prompt(self) -> pl.Expr:
        """Tokens of the prompt that have no meter of their own."""
        known = [name for name in PROMPT_UNITS if name in self.names]
        return pl.sum_horizontal(pl.lit(0), *(self._whole(name) for name in known))

    def prompt_of(self, model: str) -> pl.Expr:
        """The prompt of another model's turns."""
        known = [f"{model}/{meter}" for meter in PROMPT_METERS if f"{model}/{meter}" in self.names]
        return pl.sum_horizontal(pl.lit(0), *(self._whole(name) for name in known))

    def fee(self, exact: int | Fraction) -> int:
        """A fee or rate in pico-USD over the common denominator."""
        return int(exact * self.denominator)

    def product(self, place: int) -> tuple[pl.Expr, pl.Expr]:
        """(the scaled pico-USD of a name, whether it is more than any receipt can carry)."""
        count, fee = pl.col(f"unit:{place}"), pl.col(f"fee:{place}")
        most = pl.lit(_WIDEST_PRODUCT, dtype=pl.Int128) // pl.max_horizontal(fee, pl.lit(1, dtype=pl.Int128))
        return (count * fee).fill_null(0), (count > most).fill_null(value=False)

    def _count(self, name: str) -> pl.Expr:
        parts_of_one: int = 10**self.decimals
        whole = self._whole(name).cast(pl.Int128) * parts_of_one
        if not self.decimals:
            return whole
        rest = _UNITS.str.extract(_pattern(name), 2).str.head(self.decimals)
        parts = rest.str.pad_end(self.decimals, "0").cast(pl.Int64, strict=False)
        return whole + parts.fill_null(0)

    def _whole(self, name: str) -> pl.Expr:
        return _UNITS.str.extract(_pattern(name), 1).cast(pl.Int64, strict=False)


def _pattern(name: str) -> str:
    return rf'[{{,]"{re.escape(name)}":{_COUNT}'


def units_from(text: str | None) -> dict[str, int | str] | None:
    """A row's units as a receipt's JSON has them."""
    return None if text is None else dict(json.loads(text))
