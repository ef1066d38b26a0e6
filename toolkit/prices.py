"""`price`: what one answer costs, from its usage as the API returned it and a named price list.

The kernel has the usage conventions and the price lists; this module knows which of them belongs to which API, and
what an answer without usage means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from toolkit.apis import BROKEN, Answer, api_of
from toolkit.core.errors import QueryError
from toolkit.core.money import NanoUsd
from toolkit.core.pricing import Priced, PriceList, Unpriced, exact_price
from toolkit.core.tiers import BATCH, STANDARD, combined
from toolkit.core.unreported import price_unreported
from toolkit.core.usage import UsageProblem
from toolkit.core.windows import parse_instant, require_utc
from toolkit.datasets import load_prices

_LISTED_AS = {"x-ai": "xai"}
"""Providers whose own name differs from the one in the lists."""
_GOOGLES_PREFIXES = ("models/", "publishers/google/models/")
_FINE_TUNED_BY_AZURE = ".ft-"
_NEVER_BILLS_ERRORS = ("openai", "google", "openrouter")
"""Providers that bill no error at all (facts/pricing §3.3)."""
_SAYS_NO = (503, 529)
"""Errors from 500 on by which any provider says that it did not work."""
_MAY_BILL = {"azure": (400, 408)}
"""Errors below 500 after which a provider may have worked all the same: a content filter, a timeout."""
_WHOLE = ("message_stop", "[DONE]", "response.completed", "response.incomplete", "response.failed")
"""What a context's `terminal` says of a stream that did not break off."""
_UNREPORTED = ("images", "characters")
"""What a context may count of an answer whose route reports no usage."""


def price(
    provider: str,
    api: str,
    model: str | None,
    usage: Any,
    at: datetime | str,
    *,
    context: Mapping[str, Any] | None = None,
    price_list: PriceList | str | None = None,
) -> Priced | Unpriced:
    """The cost of one answer of `model`, or why it has none.

    Args:
        provider: as in the price lists, such as `openai`.
        api: such as `chat.completions`, `messages(stream)` or `batch(responses)`; see `toolkit.apis.APIS`.
        model: the id that was served; found exactly or as a listed alias.
        usage: the usage object, raw. A stream's may be all that came, in order: a list, or an object by event; of
            `messages(stream)` it is `{"message_start": …, "message_delta": …}`. One that broke off (`error`) is
            priced by the counts seen: a lower bound, `priced_partial`.
        at: UTC instant of admission, or its RFC 3339 text.
        context: facts beside the usage: `service_tier`, `speed`, `inference_geo`, `processing`, `trafficType`,
            `deployment_type`, `tool_usage`, `http_status`, `terminal`, `usage` (a provider's way to count).
        price_list: a list or the id of a bundled one; the newest bundled one when left out.

    Raises:
        QueryError: an API, a way to count or a list that is not known, or an instant without an offset.

    >>> usage = {"prompt_tokens": 1, "completion_tokens": 1}
    >>> price("openai", "chat.completions", "gpt-9-omega", usage, "2026-11-15T12:00:00Z").reason
    'model_unknown'
    """
    asked, prices, instant = api_of(api), _list(price_list), _instant(at)
    facts = dict(context or {})
    status = facts.get("http_status")
    if usage is None and isinstance(status, int) and status >= 400:
        return _refused_by_provider(provider, status, prices)
    raw, lower_bound = _exact(usage), None
    if asked.stream:
        raw, lower_bound = asked.api.events(raw)
        if lower_bound is None and facts.get("terminal") not in (None, *_WHOLE):
            lower_bound = BROKEN
    answer = Answer(provider, _model_id(provider, model or ""), raw, facts)
    processed = BATCH if asked.batch else _processed(facts.get("processing"))
    tier = combined(processed, asked.api.tier(answer))
    listed = _LISTED_AS.get(provider, provider)
    known = {unit: facts[unit] for unit in _UNREPORTED if unit in facts}
    if usage is None and (known or api == "moderations"):
        return price_unreported(prices, listed, answer.model, known, instant, tier=tier)
    found = asked.api.usage(answer)
    if isinstance(found, UsageProblem):
        return Unpriced(reason=found.reason, price_list=prices.id)
    priced = exact_price(prices, listed, answer.model, found, instant, tier=tier)
    if lower_bound is None or isinstance(priced, Unpriced):
        return priced
    return replace(priced, status="priced_partial", reason=lower_bound)


def price_lists() -> tuple[PriceList, ...]:
    """The bundled price lists, oldest first."""
    return load_prices()


def _exact(raw: Any) -> Any:
    """A JSON value whose fractions are read by their text: `json.loads` makes floats of them."""
    if isinstance(raw, Mapping):
        return {name: _exact(value) for name, value in raw.items()}
    if isinstance(raw, list):
        return [_exact(value) for value in raw]
    return Decimal(repr(raw)) if isinstance(raw, float) else raw


def _model_id(provider: str, model: str) -> str:
    """The id that a list has: without Google's resource prefix, Azure's fine-tunes spelled as OpenAI's."""
    if provider == "google":
        for prefix in _GOOGLES_PREFIXES:
            if model.startswith(prefix):
                return model.removeprefix(prefix)
    base, tuned, _ = model.partition(_FINE_TUNED_BY_AZURE)
    return f"ft:{base}" if provider == "azure" and tuned else model


def _processed(said: Any) -> str:
    """How an answer was processed, as a price list calls it; a word that is not known is no standard price."""
    word = STANDARD if said is None else str(said).lower()
    return STANDARD if word in ("sync", "online") else word


def _refused_by_provider(provider: str, status: int, prices: PriceList) -> Priced | Unpriced:
    """An error costs nothing where the provider says no before it works; after that nobody knows."""
    if status in _MAY_BILL.get(provider, ()):
        return Unpriced(reason="possibly_billed", price_list=prices.id)
    if status < 500 or status in _SAYS_NO or provider in _NEVER_BILLS_ERRORS:
        return Priced(
            cost_nano_usd=NanoUsd(0), price_list=prices.id, price_row="", lines=(), status="no_charge"
        )
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
