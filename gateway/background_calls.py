"""A background call as it was admitted, made again from its receipt after a restart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gateway.dialects.base import Call
from gateway.pipeline import Candidate
from gateway.policy import digest
from gateway.settings import Provider
from gateway.stores.backgrounds import Background
from gateway.upstream import RawHeaders
from toolkit.core.corrections import attribution_of
from toolkit.core.decisions import CallFacts
from toolkit.core.estimate import CallBounds, Estimate
from toolkit.core.pricing import PriceList
from toolkit.core.receipts import Receipt

_KEPT = frozenset({b"openai-organization", b"openai-project", b"openai-beta"})
"""Headers of a client without which its response would not be found again."""


def kept_headers(headers: RawHeaders) -> dict[str, str]:
    """What of a client's headers a later look at its response must carry."""
    return {name.decode(): value.decode("latin-1") for name, value in headers if name in _KEPT}


def provider_of_run(row: Background, providers: Iterable[Provider]) -> Provider:
    """The provider of a run with the address and the key of its first call.

    Without that key it is the provider as it is configured now; one that is configured no more has no key, and what
    cannot be asked for is abandoned in its time.
    """
    for provider in providers:
        if provider.name == row.provider:
            key = next((key for key in provider.api_keys if digest(key) == row.key_digest), None)
            return provider if key is None else replace(provider, base_url=row.base_url, api_keys=(key,))
    return Provider(name=row.provider, dialect="openai", base_url=row.base_url, prices=row.provider)


def facts_of(receipt: Receipt) -> CallFacts:
    """What the counters knew of a call."""
    return CallFacts(
        who=attribution_of(receipt),
        at=receipt.admitted_at,
        hold_nano_usd=receipt.hold_nano_usd,
        floor_nano_usd=receipt.floor_nano_usd,
        hold_tokens=receipt.hold_tokens or 0,
        floor_tokens=_floor_tokens(receipt),
    )


def candidate_of(
    receipt: Receipt, row: Background, provider: Provider, prices: Sequence[PriceList]
) -> Candidate:
    """The call under the list that it was admitted with; a list that is loaded no more prices nothing."""
    loaded = next((each for each in prices if each.id == receipt.price_list), None)
    who, size = attribution_of(receipt), receipt.request_bytes
    return Candidate(
        call=Call(
            model=receipt.model_requested or "",
            stream=receipt.stream,
            background=True,
            usage_style=provider.usage_style,
            bounds=CallBounds(
                body_bytes=size, text_bytes=size, tier=row.tier, output_limit=receipt.output_limit
            ),
        ),
        who=who,
        provider=provider,
        model=who.model,
        prices=loaded or PriceList(receipt.price_list or "", receipt.admitted_at.date(), ()),
        estimate=Estimate(
            hold_nano_usd=receipt.hold_nano_usd,
            floor_nano_usd=receipt.floor_nano_usd,
            hold_tokens=receipt.hold_tokens or 0,
            floor_tokens=_floor_tokens(receipt),
            input_tokens=0,
            output_tokens=0,
            choices=1,
        ),
        at=receipt.admitted_at,
    )


def _floor_tokens(receipt: Receipt) -> int:
    return max(1, receipt.request_bytes // 4)
