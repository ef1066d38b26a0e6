"""What every OpenAI route shares: how it refuses, how it is authorized, and what it says of its own cost."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

import msgspec

from gateway.refusals import Refusal
from toolkit.core.money import LARGEST_INTEGER, PICO_PER_USD, nano_half_even

XAI_TICKS_PER_USD = 10_000_000_000

_SPEND_LIMITS = (
    b"organization_spend_limit_exceeded",
    b"project_spend_limit_exceeded",
    b"credit_balance_exhausted",
    b"insufficient_quota",
)
_MOST_DIGITS = 40
"""Before and after the point of a number that may be an amount of money."""


def render(refusal: Refusal, request_id: str) -> bytes:
    """`{"error": {"message", "type", "param", "code", "details"}}`."""
    error = {
        "message": refusal.message,
        "type": refusal.openai_type,
        "param": None,
        "code": refusal.code,
        "details": {**refusal.details, "request_id": request_id},
    }
    return msgspec.json.encode({"error": error})


def authorize(api_key: str) -> Mapping[str, str]:
    """OpenAI's bearer token."""
    return {"authorization": f"Bearer {api_key}"}


def is_spend_limit(status: int, body: bytes) -> bool:
    """OpenAI answers 429 when its own spend limit or credit is used up (facts/clients)."""
    return status == 429 and any(code in body for code in _SPEND_LIMITS)


def provider_cost(usage: Any) -> int | None:
    """What the provider itself says an answer cost, in nano-USD, rounded half to even; None where it says nothing.

    OpenRouter's `cost` is in credits of one dollar, xAI's `cost_in_usd_ticks` in ten-billionths of one. `usage` has
    its fractions as Decimal. What is no amount of money (negative, text, beyond all prices) is not kept.
    """
    if not isinstance(usage, Mapping):
        return None
    dollars = _amount(usage.get("cost"))
    if dollars is None:
        ticks = _amount(usage.get("cost_in_usd_ticks"))
        if ticks is None:
            return None
        dollars = ticks / XAI_TICKS_PER_USD
    nano = nano_half_even(dollars * PICO_PER_USD)
    return nano if nano <= LARGEST_INTEGER else None


def _amount(number: Any) -> Fraction | None:
    """A JSON number of zero or more, exact; None for one too long to be made so, as its exponent may be of any size."""
    if isinstance(number, bool) or not isinstance(number, int | Decimal) or number < 0:
        return None
    if isinstance(number, Decimal):
        exponent = number.as_tuple().exponent
        if not isinstance(exponent, int) or exponent < -_MOST_DIGITS or number.adjusted() > _MOST_DIGITS:
            return None
    return Fraction(number)
