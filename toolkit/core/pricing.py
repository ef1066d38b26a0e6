"""Pricing: one immutable list, exact ids only, integer arithmetic, one rounding.

A model is found by its exact id or a listed alias, never by prefix or resemblance. The row in force at
admission prices every meter at its own rate; a meter, tier or instant without a rate makes the answer
unpriced, with the reason. Turns of another model inside one answer are units named `<model>/<meter>`, and
that model's own row prices them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from fractions import Fraction
from math import ceil
from operator import attrgetter
from typing import Literal, NamedTuple

from toolkit.core.money import LARGEST_INTEGER, NanoUsd, nano_half_even
from toolkit.core.tiers import STANDARD
from toolkit.core.usage import METERS, PROMPT_METERS, Quantity, Usage, turn_of

_FINE_TUNE = "ft:"
_counts = attrgetter(*METERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """Hours of a day in which a dearer row holds, all in UTC: `[start, end)` pairs of whole hours.

    `weekdays` are ISO numbers, Monday is 1; on `except_dates` there is no peak.
    """

    hours: tuple[tuple[int, int], ...]
    weekdays: frozenset[int] = frozenset(range(1, 8))
    except_dates: frozenset[date] = frozenset()

    def holds(self, at: datetime) -> bool:
        """Whether the UTC instant `at` is in a peak hour of a day that has one."""
        return (
            any(start <= at.hour < end for start, end in self.hours)
            and at.isoweekday() in self.weekdays
            and at.date() not in self.except_dates
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceRow:
    """One model's rates in one tier over one interval. Rates are pico-USD per token, fees pico-USD per unit.

    The base row has no threshold; a long-context row prices the whole request when its whole prompt has more
    tokens than `prompt_above`, or at least `prompt_from`. A row with a `peak` goes before the row beside it
    while its hours hold. `tier` is one text, such as `standard` or `batch us` (`toolkit.core.tiers`).
    """

    provider: str
    model: str
    aliases: tuple[str, ...] = ()
    kind: str = "chat"
    tier: str = STANDARD
    prompt_above: int | None = None
    prompt_from: int | None = None
    peak: Peak | None = None
    effective_from: datetime | None = None
    effective_to: datetime | None = None
    rates: Mapping[str, int]
    fees: Mapping[str, int | Fraction] = field(default_factory=dict)
    max_input_tokens: int
    max_output_tokens: int
    sources: tuple[str, ...] = ()
    id: str = field(init=False, compare=False)
    """The row's name on receipts: provider/model, tier, threshold, peak and start, unique within a list."""
    above: int = field(init=False, repr=False, compare=False)
    """The threshold, and -1 for the base row: the row prices a prompt of more tokens than this."""

    def __post_init__(self) -> None:
        parts = [f"{self.provider}/{self.model}", self.tier]
        above = -1
        if self.prompt_above is not None:
            above = self.prompt_above
            parts.append(f">{above}")
        elif self.prompt_from is not None:
            above = self.prompt_from - 1
            parts.append(f">={self.prompt_from}")
        object.__setattr__(self, "above", above)
        if self.peak is not None:
            parts.append("peak")
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
    quantity: Quantity
    rate_pico_usd: int | Fraction
    pico_usd: int | Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """A cost in nano-USD, rounded once, half to even, on the exact sum of its lines.

    `priced_partial` is a lower bound, for the `reason` given; `no_charge` an error that the provider does not
    bill.
    """

    cost_nano_usd: NanoUsd
    price_list: str
    price_row: str
    lines: tuple[PricedLine, ...]
    status: Literal["priced", "priced_partial", "no_charge"] = "priced"
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpriced:
    """No cost is known, and why. `price_row` names the row that lacked a rate, where one was found."""

    reason: str
    price_list: str
    price_row: str | None = None
    status: Literal["unpriced"] = field(default="unpriced", init=False)


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
        """Those of `find` whose interval holds `at`, peak rows at any hour.

        They are kept, since between two edges of the list they are the same.
        """
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
    """The cost of one answer. `at` is the instant of admission, `model` and `tier` what was served.

    A cost that no receipt can carry is `usage_invalid`; `exact_price` has no such limit.
    """
    found = exact_price(prices, provider, model, usage, at, tier=tier)
    if isinstance(found, Priced) and found.cost_nano_usd > LARGEST_INTEGER:
        return Unpriced(reason="usage_invalid", price_list=prices.id, price_row=found.price_row)
    return found


def exact_price(
    prices: PriceList, provider: str, model: str, usage: Usage, at: datetime, *, tier: str = STANDARD
) -> Priced | Unpriced:
    """The cost of one answer, however large it is."""
    row = row_for(prices, provider, model, at, tier=tier, prompt=usage.prompt)
    if isinstance(row, Unpriced):
        return row
    lines: list[PricedLine] = []
    for meter, count in zip(METERS, _counts(usage), strict=True):
        if count:
            rate = row.rates.get(meter)
            if rate is None:
                return Unpriced(reason="rate_missing", price_list=prices.id, price_row=row.id)
            lines.append(PricedLine(meter, count, rate, count * rate))
    if usage.units:
        counted = _unit_lines(prices, row, usage.units, at, tier)
        if isinstance(counted, Unpriced):
            return counted
        lines += counted
    cost = nano_half_even(sum([line.pico_usd for line in lines]))
    return Priced(cost_nano_usd=cost, price_list=prices.id, price_row=row.id, lines=tuple(lines))


def _unit_lines(
    prices: PriceList, row: PriceRow, units: Mapping[str, Quantity], at: datetime, tier: str
) -> list[PricedLine] | Unpriced:
    """What is counted by name: at the row's fees, or at the row of the other model that the name says."""
    lines: list[PricedLine] = []
    others: dict[str, dict[str, Quantity]] = {}
    for unit, quantity in units.items():
        fee = row.fees.get(unit)
        if not quantity:
            continue
        if fee is not None:
            lines.append(_line(unit, quantity, fee))
        elif (turn := turn_of(unit)) is not None:
            others.setdefault(turn[0], {})[turn[1]] = quantity
        else:
            return Unpriced(reason="rate_missing", price_list=prices.id, price_row=row.id)
    for other, counts in others.items():
        turns = _other_models_lines(prices, row.provider, other, counts, at, tier)
        if isinstance(turns, Unpriced):
            return turns
        lines += turns
    return lines


def _other_models_lines(
    prices: PriceList, provider: str, model: str, counts: Mapping[str, Quantity], at: datetime, tier: str
) -> list[PricedLine] | Unpriced:
    """The turns that another model of the provider took inside the answer, at that model's own row."""
    prompt = sum([int(count) for meter, count in counts.items() if meter in PROMPT_METERS])
    row = row_for(prices, provider, model, at, tier=tier, prompt=prompt)
    if isinstance(row, Unpriced):
        return row
    if counts.keys() - row.rates.keys():
        return Unpriced(reason="rate_missing", price_list=prices.id, price_row=row.id)
    return [_line(f"{model}/{meter}", count, row.rates[meter]) for meter, count in counts.items()]


def _line(unit: str, quantity: Quantity, fee: int | Fraction) -> PricedLine:
    if isinstance(quantity, int):
        return PricedLine(unit, quantity, fee, quantity * fee)
    parts, of = quantity.as_integer_ratio()
    whole, rest = divmod(parts * fee, of)
    return PricedLine(unit, quantity, fee, whole if not rest else Fraction(parts, of) * fee)


def row_for(
    prices: PriceList, provider: str, model: str, at: datetime, *, tier: str = STANDARD, prompt: int = 0
) -> PriceRow | Unpriced:
    """The one row that prices a call: of the highest threshold passed, in its peak if `at` is in one.

    Where there is none, why.
    """
    in_force = prices.in_force(provider, model, at)
    if not in_force:
        return Unpriced(reason=_why_not_listed(prices, provider, model), price_list=prices.id)
    reached = [
        row
        for row in in_force
        if row.tier == tier and prompt > row.above and (row.peak is None or row.peak.holds(at))
    ]
    if not reached:
        return Unpriced(reason="no_list_price_for_service_tier", price_list=prices.id)
    return reached[0] if len(reached) == 1 else max(reached, key=_precedence)


def _precedence(row: PriceRow) -> tuple[int, bool]:
    return row.above, row.peak is not None


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
    """The dearest of the row's rates among the prompt meters that a request can incur: pico-USD per token.

    A class of prompt tokens that has a fee of its own counts too.
    """
    rates = [row.rates.get(meter, 0) for meter in meters if meter in PROMPT_METERS]
    return max(rates + _token_fees(row, output=False), default=0)


def dearest_output_rate(row: PriceRow) -> int:
    """The dearest of the row's rates for output of any class: pico-USD per token."""
    rates = [row.rates.get("output", 0), row.rates.get("audio_output", 0)]
    return max(rates + _token_fees(row, output=True))


def _token_fees(row: PriceRow, *, output: bool) -> list[int]:
    """Fees of token classes, rounded up: `image_output_tokens` is of the output, any other of the prompt."""
    return [
        ceil(fee)
        for unit, fee in row.fees.items()
        if unit.endswith("_tokens") and ("output" in unit) == output
    ]
