"""How a provider's part of a call ended, and what that makes of it: cost, counted amount, and the reason for none.

Pure: an outcome and the call as it was admitted go in, columns of the receipt come out (contract §10).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gateway.dialects.base import Served
from gateway.pipeline import Candidate
from toolkit.core.pricing import Priced, Unpriced, price
from toolkit.core.receipts import Status, counted_of, usage_columns
from toolkit.core.usage import Usage


@dataclass(slots=True)
class Outcome:
    """How the provider's part ended."""

    status: Status
    http_status: int
    served: Served = field(default_factory=Served)
    response_bytes: int | None = None


def outcome_columns(outcome: Outcome, candidate: Candidate) -> dict[str, Any]:
    """What the outcome says of the receipt: what was served, what it cost, and what the counters take for it."""
    served, usage = outcome.served, outcome.served.usage
    result = _price(outcome, candidate)
    seen = result.cost_nano_usd if isinstance(result, Priced) else None
    cost = seen if outcome.status == "served" else None
    columns: dict[str, Any] = {
        "status": outcome.status,
        "http_status": outcome.http_status,
        "response_bytes": outcome.response_bytes,
        "model_served": served.model,
        "upstream_id": served.upstream_id,
        "service_tier": served.service_tier,
        "provider_cost_nano_usd": served.provider_cost_nano_usd,
        "cost_nano_usd": 0 if outcome.status == "failed" else cost,
        "counted_nano_usd": counted_of(
            status=outcome.status,
            cost_nano_usd=cost,
            hold_nano_usd=candidate.estimate.hold_nano_usd,
            seen_nano_usd=seen,
        ),
        "counted_tokens": _counted_tokens(outcome, candidate),
        "unpriced_reason": _reason(outcome, result),
        "basis": "estimated" if outcome.status == "abandoned" else "measured",
    }
    if result is not None:
        columns["price_row"] = result.price_row
    if isinstance(usage, Usage):
        columns.update(usage_columns(usage))
        columns["usage_source"] = "final" if outcome.status == "served" else "partial"
    return columns


def _price(outcome: Outcome, candidate: Candidate) -> Priced | Unpriced | None:
    served = outcome.served
    if not isinstance(served.usage, Usage):
        return None
    model = served.model or candidate.model
    return price(
        candidate.prices, candidate.provider.prices, model, served.usage, candidate.at, tier=served.tier
    )


def _reason(outcome: Outcome, result: Priced | Unpriced | None) -> str | None:
    if outcome.status == "failed":
        return None
    if outcome.status == "abandoned":
        return "outcome_unknown"
    if isinstance(result, Unpriced):
        return result.reason
    usage = outcome.served.usage
    return None if isinstance(usage, Usage) else usage.reason


def _counted_tokens(outcome: Outcome, candidate: Candidate) -> int:
    usage = outcome.served.usage
    if outcome.status == "failed":
        return 0
    if outcome.status == "served" and isinstance(usage, Usage):
        return usage.tokens
    return candidate.estimate.hold_tokens
