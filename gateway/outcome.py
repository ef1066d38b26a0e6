"""How a provider's part of a call ended, and what that makes of it: cost, counted amount, and the reason for none.

Pure: an outcome and the call as it was admitted go in, columns of the receipt come out (contract §10).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.dialects.base import Served
from gateway.pipeline import Candidate
from toolkit.core.pricing import Priced, Unpriced, price
from toolkit.core.receipts import Status, counted_of, usage_columns
from toolkit.core.tiers import said_of
from toolkit.core.unreported import price_unreported
from toolkit.core.usage import Quantity, Usage, UsageProblem


@dataclass(slots=True)
class Outcome:
    """How the provider's part ended."""

    status: Status
    http_status: int | None
    """None while no head of an answer has come."""
    served: Served = field(default_factory=Served)
    response_bytes: int | None = None
    unknown: str = "outcome_unknown"
    """Why nobody knows what an abandoned call was billed."""


def outcome_columns(outcome: Outcome, candidate: Candidate) -> dict[str, Any]:
    """What the outcome says of the receipt: what was served, what it cost, and what the counters take for it."""
    served = outcome.served
    usage, result = priced_usage(outcome, candidate)
    seen = result.cost_nano_usd if isinstance(result, Priced) else None
    cost = seen if outcome.status == "served" else None
    columns: dict[str, Any] = {
        "status": outcome.status,
        "http_status": outcome.http_status,
        "response_bytes": outcome.response_bytes,
        "model_served": served.model,
        "upstream_id": served.upstream_id,
        "service_tier": said_of(candidate.provider.dialect, served.service_tier, served.tier),
        "provider_cost_nano_usd": served.provider_cost_nano_usd,
        "cost_nano_usd": 0 if outcome.status == "failed" else cost,
        "counted_nano_usd": counted_of(
            status=outcome.status,
            cost_nano_usd=cost,
            hold_nano_usd=candidate.estimate.hold_nano_usd,
            seen_nano_usd=seen,
        ),
        "counted_tokens": _counted_tokens(outcome.status, usage, candidate),
        "unpriced_reason": _reason(outcome, result),
        "basis": "estimated" if outcome.status == "abandoned" else "measured",
    }
    if result is not None:
        columns["price_row"] = result.price_row
    if isinstance(usage, Usage):
        columns.update(usage_columns(usage))
        columns["usage_source"] = "final" if outcome.status == "served" else "partial"
    return columns


def priced_usage(
    outcome: Outcome, candidate: Candidate
) -> tuple[Usage | UsageProblem, Priced | Unpriced | None]:
    """What was used and what that costs, by the call's own price list; None where only usage would tell."""
    usage = outcome.served.usage
    known = _known_units(outcome, candidate)
    result = _price(outcome, candidate, known)
    if known and isinstance(result, Priced):
        usage = Usage(units={line.meter: line.quantity for line in result.lines})
    return usage, result


def _known_units(outcome: Outcome, candidate: Candidate) -> Mapping[str, Quantity] | None:
    """What is known to be billed by an answer that came whole and reports no usage; None where only usage tells."""
    problem = outcome.served.usage
    if isinstance(problem, Usage) or problem.reason != "usage_missing" or outcome.status != "served":
        return None
    seen = outcome.served.units
    return seen if seen is not None else candidate.call.bounds.units


def _price(
    outcome: Outcome, candidate: Candidate, known: Mapping[str, Quantity] | None
) -> Priced | Unpriced | None:
    served, provider = outcome.served, candidate.provider.prices
    model = served.model or candidate.model
    if isinstance(served.usage, Usage):
        return price(candidate.prices, provider, model, served.usage, candidate.at, tier=served.tier)
    if known is None:
        return None
    return price_unreported(candidate.prices, provider, model, known, candidate.at, tier=served.tier)


def _reason(outcome: Outcome, result: Priced | Unpriced | None) -> str | None:
    if outcome.status == "failed":
        return None
    if outcome.status == "abandoned":
        return outcome.unknown
    if isinstance(result, Unpriced):
        return result.reason
    usage = outcome.served.usage
    return None if isinstance(result, Priced) or isinstance(usage, Usage) else usage.reason


def _counted_tokens(status: Status, usage: Usage | UsageProblem, candidate: Candidate) -> int:
    if status == "failed":
        return 0
    if status == "served" and isinstance(usage, Usage):
        return usage.tokens
    return candidate.estimate.hold_tokens
