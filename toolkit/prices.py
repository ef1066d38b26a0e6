"""`price`: what one answer costs, from its usage as the API returned it and a named price list.

The convention is the API's, the rates are the list's, and the tier is what the provider says it served. What
cannot be told is `Unpriced` with its reason; nothing is guessed from a neighbouring model, tier or meter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from toolkit.core.conventions import anthropic_messages, openai_chat
from toolkit.core.errors import QueryError
from toolkit.core.money import NanoUsd
from toolkit.core.pricing import Priced, PriceList, Unpriced
from toolkit.core.pricing import price as price_usage
from toolkit.core.tiers import STANDARD, anthropic_tier, openai_tier
from toolkit.core.usage import Usage, UsageProblem
from toolkit.core.windows import parse_instant, require_utc
from toolkit.datasets import load_prices

_TIER_FACTS = ("service_tier", "speed", "inference_geo")
_LISTED_AS = {"x-ai": "xai"}
"""Providers whose own name differs from the one in the lists."""


def price(
    provider: str,
    api: str,
    model: str,
    usage: Mapping[str, Any] | None,
    at: datetime | str,
    *,
    context: Mapping[str, Any] | None = None,
    price_list: PriceList | str | None = None,
) -> Priced | Unpriced:
    """The cost of one answer of `model`, or why it has none.

    Args:
        provider: as in the price lists, such as `openai`.
        api: one of `APIS`, such as `chat.completions` or `messages(stream)`.
        model: the id that was served; found exactly or as a listed alias.
        usage: the usage object, raw. A stream's is `{"message_start": …, "message_delta": …}`; one that broke
            off before its delta is priced by the counts seen, a lower bound.
        at: UTC instant of admission, or its RFC 3339 text.
        context: facts beside the usage: `service_tier`, `speed`, `inference_geo`, `http_status`.
        price_list: a list or the id of a bundled one; the newest bundled one when left out.

    Raises:
        QueryError: an API or list that is not known, or an instant without an offset.

    >>> usage = {"prompt_tokens": 1, "completion_tokens": 1}
    >>> price("openai", "chat.completions", "gpt-9-omega", usage, "2026-11-15T12:00:00Z").reason
    'model_unknown'
    """
    if api not in APIS:
        raise QueryError(f"api {api!r} is not supported yet; it is one of {', '.join(APIS)}")
    prices = _list(price_list)
    facts = dict(context or {})
    status = facts.get("http_status")
    if isinstance(status, int) and status >= 400:
        return _refused_by_provider(provider, status, prices)
    meter, tier_of, batch = APIS[api]
    raw = _last_of_stream(usage) if api.endswith("(stream)") else usage
    found = meter(raw)
    if isinstance(found, UsageProblem):
        return Unpriced(reason=found.reason, price_list=prices.id)
    inside = raw if isinstance(raw, Mapping) else {}
    tier = tier_of({name: _word(inside.get(name, facts.get(name))) for name in _TIER_FACTS})
    if batch:
        tier = "batch" if tier in (STANDARD, "batch") else f"batch {tier}"
    return price_usage(prices, _LISTED_AS.get(provider, provider), model, found, _instant(at), tier=tier)


def price_lists() -> tuple[PriceList, ...]:
    """The bundled price lists, oldest first."""
    return load_prices()


def _word(said: Any) -> str | None:
    return None if said is None else str(said)


def _chat_tier(said: Mapping[str, str | None]) -> str:
    return openai_tier(said["service_tier"])


def _messages_tier(said: Mapping[str, str | None]) -> str:
    return anthropic_tier(said["service_tier"], speed=said["speed"], inference_geo=said["inference_geo"])


_Meter = Callable[[Any], Usage | UsageProblem]
_Tier = Callable[[Mapping[str, str | None]], str]
APIS: Mapping[str, tuple[_Meter, _Tier, bool]] = {
    "chat.completions": (openai_chat, _chat_tier, False),
    "chat.completions(stream)": (openai_chat, _chat_tier, False),
    "batch(chat.completions)": (openai_chat, _chat_tier, True),
    "embeddings": (openai_chat, _chat_tier, False),
    "messages": (anthropic_messages, _messages_tier, False),
    "messages(stream)": (anthropic_messages, _messages_tier, False),
    "messages(batch)": (anthropic_messages, _messages_tier, True),
}
"""API name to (usage convention, how its tier is told, whether it is a batch)."""


def _last_of_stream(usage: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """A stream's usage: counts are cumulative, so the last one that is not null stands, field by field."""
    if not isinstance(usage, Mapping) or not {"message_start", "message_delta"} & usage.keys():
        return usage
    merged: dict[str, Any] = {}
    for event in ("message_start", "message_delta"):
        merged |= {name: count for name, count in (usage.get(event) or {}).items() if count is not None}
    return merged


def _refused_by_provider(provider: str, status: int, prices: PriceList) -> Priced | Unpriced:
    """An error costs nothing where the provider says no before it works; after that nobody knows."""
    said_no = status in (503, 529) or (status < 500 and not (provider == "azure" and status in (400, 408)))
    if said_no:
        return Priced(cost_nano_usd=NanoUsd(0), price_list=prices.id, price_row="", lines=())
    return Unpriced(reason="outcome_unknown", price_list=prices.id)


def _list(wanted: PriceList | str | None) -> PriceList:
    if isinstance(wanted, PriceList):
        return wanted
    bundled = load_prices()
    if wanted is None:
        return bundled[-1]
    for prices in bundled:
        if prices.id == wanted:
            return prices
    raise QueryError(
        f"price list {wanted!r} is not bundled; {', '.join(prices.id for prices in bundled)} are"
    )


def _instant(at: datetime | str) -> datetime:
    try:
        return parse_instant(at) if isinstance(at, str) else require_utc(at)
    except ValueError as error:
        raise QueryError(str(error)) from error
