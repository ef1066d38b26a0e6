"""The two bounds of a call before it runs: a hold that the cost cannot pass, a floor that it cannot miss.

The hold takes every byte of the body for a token, at the dearest rate the request can incur, and the whole
output it may ask for. The floor takes a quarter of the bytes at the cheapest rate of the list. Both follow
contract §7.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import Literal, NamedTuple

from toolkit.core.money import LARGEST_INTEGER, PICO_PER_NANO, nano_down, nano_up
from toolkit.core.pricing import (
    PriceList,
    PriceRow,
    Unpriced,
    dearest_input_rate,
    dearest_output_rate,
    row_for,
)
from toolkit.core.tiers import STANDARD
from toolkit.core.unreported import price_unreported

UndeclaredOutput = Literal["default", "model_max", "refuse"]

_LONGEST_GUESSED_NAME = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class CallBounds:
    """What a request's body says about its size.

    `text_bytes` leaves out inline media, which `media_tokens` bounds. `reaches_out` marks a body that refers
    to content it does not hold, or lets the provider fetch some. `turns` is how often the provider may read
    the prompt again for its own tools. `prompt_meters` are those that the request can incur; the default
    leaves out cache writes and media, which a dialect must add where they can happen.
    """

    body_bytes: int
    text_bytes: int
    media_tokens: int = 0
    reaches_out: bool = False
    turns: int = 1
    output_limit: int | None = None
    choices: int = 1
    prompt_meters: frozenset[str] = frozenset({"input", "cache_read"})
    tier: str = STANDARD
    """What may be asked or served, such as `fast us`: the hold covers the standard row and each part of it."""
    fees: tuple[tuple[str, int], ...] = ()
    """Units of paid tools the request allows: (name, most uses)."""
    prompts: int = 1
    """Prompts of their own in the body, each of which may be as long as the model takes."""
    limits_output: bool = True
    """Whether a request of this route can limit its output. Where none can, `output_limit` is what the route bounds
    it to, and None leaves it at the model's own maximum."""
    units: Mapping[str, int] | None = None
    """What is billed as far as the request tells it, for a route whose answer reports no usage; None where it does."""


class Estimate(NamedTuple):
    """The bounds of one call. Hold and floor are None when its model has no price at admission."""

    hold_nano_usd: int | None
    floor_nano_usd: int | None
    hold_tokens: int
    floor_tokens: int
    input_tokens: int
    output_tokens: int
    choices: int
    input_pico_usd: int = 0
    output_rate_pico_usd: int = 0
    most_output_tokens: int = 0
    limits_output: bool = True
    unpriced: Unpriced | None = None

    def output_that_fits(self, *, nano_usd: int | None, tokens: int | None) -> int | None:
        """The largest output limit whose hold stays within the room given, None when none would fit or be heeded."""
        if not self.limits_output:
            return None
        fits = self.most_output_tokens or self.output_tokens
        if nano_usd is not None:
            room = nano_usd * PICO_PER_NANO - self.input_pico_usd
            each = self.output_rate_pico_usd * self.choices
            fits = min(fits, room // each) if each else (fits if room >= 0 else 0)
        if tokens is not None:
            fits = min(fits, (tokens - self.input_tokens) // self.choices)
        return fits if fits >= 1 else None


def estimate(
    prices: PriceList,
    provider: str,
    model: str,
    bounds: CallBounds,
    at: datetime,
    *,
    default_output: int,
    undeclared: UndeclaredOutput = "default",
) -> Estimate:
    """Hold and floor of a call under the list in force at its admission.

    A bound beyond the largest integer that a receipt carries stands at that integer: more than nine million
    dollars.
    """
    rows = _rows_it_can_incur(prices, provider, model, bounds, at)
    floor_tokens = max(1, bounds.body_bytes // 4)
    output = bounds.output_limit
    if isinstance(rows, Unpriced):
        input_tokens = _input_bound(bounds, None)
        if output is None:
            output = default_output
        return Estimate(
            hold_nano_usd=None,
            floor_nano_usd=None,
            hold_tokens=min(input_tokens + output * bounds.choices, LARGEST_INTEGER),
            floor_tokens=floor_tokens,
            input_tokens=input_tokens,
            output_tokens=output,
            choices=bounds.choices,
            unpriced=rows,
        )
    most = rows[0].max_output_tokens
    input_tokens = _input_bound(bounds, rows[0].max_input_tokens)
    if not bounds.limits_output:
        output = most if output is None else min(output, most or output)
    elif output is None:
        output = most if undeclared == "model_max" else min(default_output, most)
    input_pico = input_tokens * max([dearest_input_rate(row, bounds.prompt_meters) for row in rows])
    output_rate = max([dearest_output_rate(row) for row in rows])
    for name, most_uses in bounds.fees:
        input_pico += ceil(most_uses * max([row.fees.get(name, 0) for row in rows]))
    hold = nano_up(input_pico + output * bounds.choices * output_rate)
    return Estimate(
        hold_nano_usd=min(hold, LARGEST_INTEGER),
        floor_nano_usd=nano_down(floor_tokens * (prices.floor_rate(at) or 0)),
        hold_tokens=min(input_tokens + output * bounds.choices, LARGEST_INTEGER),
        floor_tokens=floor_tokens,
        input_tokens=input_tokens,
        output_tokens=output,
        choices=bounds.choices,
        input_pico_usd=input_pico,
        output_rate_pico_usd=output_rate,
        most_output_tokens=most,
        limits_output=bounds.limits_output,
    )


def _rows_it_can_incur(
    prices: PriceList, provider: str, model: str, bounds: CallBounds, at: datetime
) -> list[PriceRow] | Unpriced:
    """The base row first, then the long-context, peak and asked tiers' rows that the call may be priced by."""
    base = row_for(prices, provider, model, at)
    if isinstance(base, Unpriced):
        base = row_for(prices, provider, model, at, tier=bounds.tier)
        if isinstance(base, Unpriced):
            return base
    if bounds.units is not None:
        known = price_unreported(prices, provider, model, bounds.units, at, tier=base.tier)
        if isinstance(known, Unpriced):
            return known
    prompt = _input_bound(bounds, base.max_input_tokens)
    words = {STANDARD, *bounds.tier.split(" ")}
    others = [
        row
        for row in prices.in_force(provider, model, at)
        if row is not base and prompt > row.above and words.issuperset(row.tier.split(" "))
    ]
    return [base, *others]


def _input_bound(bounds: CallBounds, most: int | None) -> int:
    """Tokens that one reading of the prompt may have, times the turns of the provider's own tools."""
    within = bounds.text_bytes + bounds.media_tokens
    if most is not None and (bounds.reaches_out or within > most * bounds.prompts):
        within = most * bounds.prompts
    return within * bounds.turns


def nearest_names(model: str, names: Iterable[str], *, most: int = 3) -> list[str]:
    """The listed ids that look most like an unlisted one: help for a person, never used to price."""
    return difflib.get_close_matches(model[:_LONGEST_GUESSED_NAME].lower(), list(names), n=most)
