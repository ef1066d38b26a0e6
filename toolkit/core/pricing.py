"""Pricing: one immutable list, exact ids only, integer arithmetic, one rounding.

A model is found by its exact id or a listed alias, never by prefix or resemblance. The row in force at
admission prices every meter at its own rate; a meter, tier or instant without a rate makes the answer
unpriced, with the reason.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

from toolkit.core.money import LARGEST_INTEGER, NanoUsd, nano_half_even
from toolkit.core.tiers import STANDARD
from toolkit.core.usage import METERS, PROMPT_METERS, Usage

_FINE_TUNE = "ft:"


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceRow:
    """One model's rates in one tier over one interval. Rates are pico-USD per token, fees pico-USD per unit.

    `prompt_above` is None for the base row; a long-context row prices the whole request when its whole
    prompt has more tokens than that.
    """

    provider: str
    model: str
    aliases: tuple[str, ...] = ()
    kind: str = "chat"
    tier: str = STANDARD
    prompt_above: int | None = None
    effective_from: datetime | None = None
    effective_to: datetime | None = None
    rates: Mapping[str, int]
    fees: Mapping[str, int] = field(default_factory=dict)
    max_input_tokens: int
    max_output_tokens: int
    sources: tuple[str, ...] = ()
    id: str = field(init=False, compare=False)
    """The row's name on receipts: provider/model, tier, threshold and start, unique within a list."""
    above: int = field(init=False, repr=False, compare=False)
    """`prompt_above`, and -1 for the base row: the row prices a prompt of more tokens than this."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "above", -1 if self.prompt_above is None else self.prompt_above)
        parts = [f"{self.provider}/{self.model}", self.tier]
        if self.prompt_above is not None:
            parts.append(f">{self.prompt_above}")
        if self.effective_from is not None:
            parts.append(f"@{self.effective_from.replace(tzinfo=None).isoformat()}Z")
        object.__setattr__(self, "id", " ".join(parts))

    def in_force(self, at: datetime) -> bool:
        """Whether `effective_from <= at < effective_to`; an open side always holds."""
        return (self.effective_from is None or self.effective_from <= at) and (
            self.effective_to is None or at < self.effective_to
        )


class PricedLine(NamedTuple):
    """One meter's part of a cost, exact, in pico-USD."""

    meter: str
    quantity: int | Decimal
    rate_pico_usd: int
    pico_usd: int | Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """A cost in nano-USD, rounded once, half to even, on the exact sum of its lines."""

    cost_nano_usd: NanoUsd
    price_list: str
    price_row: str
    lines: tuple[PricedLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpriced:
    """No cost is known, and why. `price_row` names the row that lacked a rate, where one was found."""

    reason: str
    price_list: str
    price_row: str | None = None


class PriceList:
    """An immutable list of rows with its id; look-ups are exact, case aside."""

    def __init__(self, list_id: str, dated: date, rows: Iterable[PriceRow]) -> None:
        self.id = list_id
        self.date = dated
        # A list prices calls that are admitted from 00:00 UTC of its date on, until a newer one starts.
        self.starts = datetime(dated.year, dated.month, dated.day, tzinfo=UTC)
        self.rows = tuple(rows)
        self._by_name: dict[tuple[str, str], tuple[PriceRow, ...]] = {}
        for row in self.rows:
            for name in {row.model.lower(), *(alias.lower() for alias in row.aliases)}:
                key = (row.provider, name)
                self._by_name[key] = (*self._by_name.get(key, ()), row)
        edges = {edge for row in self.rows for edge in (row.effective_from, row.effective_to)}
        self._steps = sorted(edge for edge in edges if edge is not None)
        self._floors: dict[int, int | None] = {}
        self._in_force: dict[tuple[str, str, int], tuple[PriceRow, ...]] = {}

    def find(self, provider: str, model: str) -> tuple[PriceRow, ...]:
        """Every row of an exact id or listed alias, of any tier and interval; none when it is not listed.

        A fine-tune `ft:base:owner:name:id` that has no row of its own is listed by `ft:base`, never by
        `base`.
        """
        name = model.lower()
        rows = self._by_name.get((provider, name), ())
        if not rows and name.startswith(_FINE_TUNE):
            base = name.removeprefix(_FINE_TUNE).partition(":")[0]
            return self._by_name.get((provider, _FINE_TUNE + base), ())
        return rows

    def in_force(self, provider: str, model: str, at: datetime) -> tuple[PriceRow, ...]:
        """Those of `find` whose interval holds `at`; kept, since between two edges of the list they are the same."""
        key = (provider, model, bisect_right(self._steps, at))
        rows = self._in_force.get(key)
        if rows is None:
            rows = tuple([row for row in self.find(provider, model) if row.in_force(at)])
            if (provider, model) in self._by_name:  # what a client makes up is not worth remembering
                self._in_force[key] = rows
        return rows

    def names(self, provider: str) -> list[str]:
        """Every id and alias listed for a provider, sorted."""
        return sorted({name for kept, name in self._by_name if kept == provider})

    def floor_rate(self, at: datetime) -> int | None:
        """The lowest non-zero input rate, cached reads included, of any row in force: pico-USD per token."""
        step = bisect_right(self._steps, at)
        if step not in self._floors:
            rows = [row for row in self.rows if row.in_force(at)]
            rates = [row.rates.get(meter, 0) for row in rows for meter in ("input", "cache_read")]
            self._floors[step] = min(filter(None, rates), default=None)
        return self._floors[step]


def price(
    prices: PriceList, provider: str, model: str, usage: Usage, at: datetime, *, tier: str = STANDARD
) -> Priced | Unpriced:
    """The cost of one answer. `at` is the instant of admission, `model` and `tier` what was served."""
    row = row_for(prices, provider, model, at, tier=tier, prompt=usage.prompt)
    if isinstance(row, Unpriced):
        return row
    lines: list[PricedLine] = []
    for meter in METERS:
        count = getattr(usage, meter)
        if count:
            rate = row.rates.get(meter)
            if rate is None:
                return Unpriced(reason="rate_missing", price_list=prices.id, price_row=row.id)
            lines.append(PricedLine(meter, count, rate, count * rate))
    for unit, quantity in usage.units.items():
        if quantity:
            fee = row.fees.get(unit)
            if fee is None:
                return Unpriced(reason="rate_missing", price_list=prices.id, price_row=row.id)
            part = quantity * fee if isinstance(quantity, int) else Fraction(quantity) * fee
            lines.append(PricedLine(unit, quantity, fee, part))
    cost = nano_half_even(sum([line.pico_usd for line in lines]))
    if cost > LARGEST_INTEGER:
        return Unpriced(reason="usage_invalid", price_list=prices.id, price_row=row.id)
    return Priced(cost_nano_usd=cost, price_list=prices.id, price_row=row.id, lines=tuple(lines))


def row_for(
    prices: PriceList, provider: str, model: str, at: datetime, *, tier: str = STANDARD, prompt: int = 0
) -> PriceRow | Unpriced:
    """The one row that prices a call, or why there is none."""
    in_force = prices.in_force(provider, model, at)
    if not in_force:
        return Unpriced(reason=_why_not_listed(prices, provider, model), price_list=prices.id)
    reached = [row for row in in_force if row.tier == tier and prompt > row.above]
    if not reached:
        return Unpriced(reason="no_list_price_for_service_tier", price_list=prices.id)
    return reached[0] if len(reached) == 1 else max(reached, key=lambda row: row.above)


def _why_not_listed(prices: PriceList, provider: str, model: str) -> str:
    if prices.find(provider, model):
        return "no_rate_at_that_time"
    return "fine_tune_base_not_listed" if model.lower().startswith(_FINE_TUNE) else "model_unknown"


def list_at(lists: Iterable[PriceList], at: datetime) -> PriceList | None:
    """The list of a call: the newest dated at or before its admission, else the oldest (contract §15)."""
    ordered = sorted(lists, key=lambda prices: prices.date)
    before = [prices for prices in ordered if prices.starts <= at]
    return before[-1] if before else (ordered[0] if ordered else None)


def dearest_input_rate(row: PriceRow, meters: Iterable[str]) -> int:
    """The dearest of the row's rates among the prompt meters that a request can incur: pico-USD per token."""
    return max([row.rates.get(meter, 0) for meter in meters if meter in PROMPT_METERS], default=0)
