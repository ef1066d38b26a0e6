"""What every OpenAI route shares: how it refuses, how it is authorized, and what it says of its own cost."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

import msgspec

from gateway.dialects.base import Call, Dialect, Handling, Served
from gateway.refusals import Refusal
from toolkit.core.money import LARGEST_INTEGER, PICO_PER_USD, nano_half_even
from toolkit.core.tiers import openai_tier
from toolkit.core.usage import PROMPT_METERS, Usage, UsageProblem

XAI_TICKS_PER_USD = 10_000_000_000

_SPEND_LIMITS = (
    b"organization_spend_limit_exceeded",
    b"project_spend_limit_exceeded",
    b"credit_balance_exhausted",
    b"insufficient_quota",
)
_LONG_CACHE = re.compile(rb'"prompt_cache_(?:retention|options)"|"ttl"|"(?:12|24)h"|\\u')
"""Whatever may ask for a long-lived cache write; an escape may spell any of it."""
_ANY_METER = frozenset(PROMPT_METERS)
_NO_LONG_WRITES = _ANY_METER - {"cache_write_1h"}
_MOST_DIGITS = 40
"""Before and after the point of a number that may be an amount of money."""


def prompt_meters(body: bytes) -> frozenset[str]:
    """The classes of prompt tokens that a request can incur: long-lived cache writes only where it says so.

    OpenAI's 12-hour writes cost twice its 30-minute ones, which it makes unasked (facts/pricing §1).
    """
    return _NO_LONG_WRITES if _LONG_CACHE.search(body) is None else _ANY_METER


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


openai_dialect = partial(
    Dialect, name="openai", render=render, authorize=authorize, is_spend_limit=is_spend_limit
)
"""A dialect object of one route, with what all of OpenAI's routes share."""


def asked_tier(service_tier: str | None) -> str:
    """The tier whose price a request may incur: `fast` is served, and answered, as `priority`."""
    return "priority" if service_tier == "fast" else openai_tier(service_tier)


def prompts_in(prompt: msgspec.Raw) -> int:
    """How many prompts a field holds: one text, one list of tokens, or a list of either. Raises BadRequest."""
    if not bytes(prompt).lstrip().startswith(b"["):
        return 1
    items = msgspec.json.decode(prompt, type=list[msgspec.Raw])
    tokens = all(bytes(item).lstrip()[:1].isdigit() for item in items)
    return 1 if tokens else len(items)


class Answer(msgspec.Struct):
    """What most answers, and the events that end a stream, say of themselves."""

    id: str | None = None
    model: str | None = None
    usage: Any = None
    type: Any = None
    error: Any = None


_answer = msgspec.json.Decoder(Answer, float_hook=Decimal)


def facts_of(body: bytes, convention: Callable[[Any], Usage | UsageProblem]) -> Served:
    """The facts of a whole JSON answer whose usage is counted by `convention`; unreadable JSON has no usage."""
    try:
        return facts(_answer.decode(body), convention)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return Served()


def facts(answer: Answer, convention: Callable[[Any], Usage | UsageProblem]) -> Served:
    """What an answer says that was read."""
    return Served(
        model=answer.model,
        upstream_id=answer.id,
        usage=convention(answer.usage),
        provider_cost_nano_usd=provider_cost(answer.usage),
    )


class UsageEventMeter:
    """Events of which one kind is the last and carries the usage."""

    def __init__(self, last: str, convention: Callable[[Any], Usage | UsageProblem]) -> None:
        self._last = last
        self._convention = convention
        self._end: Answer | None = None
        self._failed = False

    def event(self, data: bytes | None) -> Handling:
        """Note the last event, and hold it back."""
        if data is None or (b'"error"' not in data and self._last.encode() not in data):
            return Handling.FORWARD
        try:
            event = _answer.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return Handling.FORWARD
        self._failed |= event.type == "error" or event.error is not None
        if event.type != self._last:
            return Handling.FORWARD
        self._end = event
        return Handling.FINAL

    def complete(self) -> bool:
        """The last event came, and no error."""
        return self._end is not None and not self._failed

    def served(self) -> Served:
        """What the last event says."""
        return Served() if self._end is None else facts(self._end, self._convention)


class NoEvents:
    """The meter of a route that never streams: events that come all the same are passed on, and nothing is known."""

    def __init__(self, _call: Call) -> None:
        pass

    def event(self, _data: bytes | None) -> Handling:
        """Pass it on."""
        return Handling.FORWARD

    def complete(self) -> bool:
        """Nobody can tell."""
        return False

    def served(self) -> Served:
        """Nothing."""
        return Served()


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
