"""What a gateway does with a call, on paper: admission at one instant, settlement at another.

Every figure is the kernel's. A call's bounds are `CallBounds(body_bytes=request_bytes,
text_bytes=request_bytes, output_limit=output_limit, prompt_meters=PROMPT[provider], tier=TIER[provider])`: no
media, one choice, every class of prompt token and every geography that the call can incur (an Anthropic call
of this month marks its prompt for an hour of caching, an OpenAI one asks for no long caching). An output
without a declared limit is bounded by the gateway's default, 4,096 tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from toolkit.core.admission import claims_for, verdict
from toolkit.core.caps import Cap, CapBook
from toolkit.core.conventions import anthropic_messages, openai_chat
from toolkit.core.counters import NOTHING, Counted, Counters
from toolkit.core.decisions import CallFacts, Refused
from toolkit.core.estimate import CallBounds, estimate
from toolkit.core.pricing import Priced, PriceList, Unpriced, list_at, price
from toolkit.core.receipts import Receipt, Status, counted_of, usage_columns
from toolkit.core.scopes import Attribution
from toolkit.core.tiers import anthropic_tier, openai_tier
from toolkit.core.usage import Usage, UsageProblem
from toolkit.synth_traffic import MICRO, Answer, Outcome, Request, Session, answer
from toolkit.synth_world import MONTH_START

ORGANIZATION = "default"
NODE = "n1"
DEFAULT_OUTPUT = 4096
_SHORT = frozenset({"input", "cache_read", "cache_write_5m"})
PROMPT = {"openai": _SHORT, "anthropic": _SHORT | {"cache_write_1h"}}
TIER = {"openai": openai_tier(None), "anthropic": anthropic_tier(None, inference_geo="us")}

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ROUTES = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}
_CONVENTIONS = {"openai": openai_chat, "anthropic": anthropic_messages}
_UPSTREAM_IDS = {"openai": "chatcmpl-", "anthropic": "msg_01"}
_STANDARD_TIERS = {"openai": "default", "anthropic": "standard"}
_STATUSES: dict[Outcome, Status] = {
    "whole": "served",
    "broken": "abandoned",
    "unknown": "abandoned",
    "error": "failed",
}

Draft = dict[str, Any]
"""A receipt's columns as far as they are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """An admitted call, and what is going to come of it at `ends`, in microseconds of the month."""

    draft: Draft
    prices: PriceList
    session: Session
    request: Request
    answer: Answer
    ends: int


class Desk:
    """One node's counters and price lists, under caps that change with time."""

    def __init__(
        self, rng: Random, lists: Sequence[PriceList], timeline: Sequence[tuple[datetime, tuple[Cap, ...]]]
    ) -> None:
        self._rng = rng
        self._lists = lists
        self._books = [(start, CapBook(caps)) for start, caps in timeline]
        self._counters = Counters()
        self._calls = 0

    def admit(self, session: Session, request: Request, micros: int) -> Running | Receipt:
        """The running call, or the receipt of its refusal."""
        at = MONTH_START + micros * MICRO
        draft = self._draft(session, request, at)
        if session.flaw is not None:
            return _refused(draft, 400, session.flaw)
        prices = list_at(self._lists, at)
        assert prices is not None, "a month needs at least one price list"
        facts = _facts(session, request, prices, draft)
        book = next(book for start, book in reversed(self._books) if start <= at)
        claims = claims_for(book, facts)
        grant = self._counters.reserve(draft["receipt_id"], facts, claims)
        draft["admit_seq"] = grant.seq
        decision = verdict(claims, grant.balances, grant.granted)
        if isinstance(decision, Refused):
            cap = decision.named.cap
            draft.update(cap_id=cap.id, cap_scope=cap.scope, cap_window=cap.window)
            return _refused(draft, 429 if decision.busy else cap.refusal_status, decision.code)
        came = answer(self._rng, session, request)
        ends = micros + came.latency_ms * 1000 + self._rng.randint(150, 900)
        return Running(draft=draft, prices=prices, session=session, request=request, answer=came, ends=ends)

    def settle(self, call: Running) -> Receipt:
        """The receipt of a call that ended."""
        came, draft, model = call.answer, call.draft, call.session.model
        status = _STATUSES[came.outcome]
        usage = _CONVENTIONS[model.provider](came.usage)
        result = None
        if isinstance(usage, Usage):
            result = price(call.prices, model.provider, model.served, usage, draft["admitted_at"])
            draft.update(usage_columns(usage), price_row=result.price_row)
            draft.update(usage_source="final" if status == "served" else "partial")
        if came.outcome in ("whole", "broken"):
            draft.update(
                model_served=model.served,
                upstream_id=f"{_UPSTREAM_IDS[model.provider]}{self._rng.getrandbits(32):010x}",
                service_tier=_STANDARD_TIERS[model.provider],
            )
        priced = result.cost_nano_usd if isinstance(result, Priced) else None
        counted = _counted(status, draft, usage, priced)
        return Receipt(
            **draft,
            status=status,
            settled_at=MONTH_START + call.ends * MICRO,
            settle_seq=self._counters.settle(draft["receipt_id"], counted),
            client_left=came.client_left,
            http_status=came.http_status,
            response_bytes=came.response_bytes,
            cost_nano_usd=_cost(status, priced),
            counted_nano_usd=counted.nano_usd,
            counted_tokens=counted.tokens,
            unpriced_reason=_reason(status, usage, result),
            basis="estimated" if status == "abandoned" else "measured",
            latency_ms=came.latency_ms,
            ttft_ms=came.ttft_ms,
        )

    def _draft(self, session: Session, request: Request, at: datetime) -> Draft:
        """What is known of a call before its price: all of it but the model, when its body cannot be read."""
        readable = session.flaw != "invalid_request"
        provider = session.model.provider
        self._calls += 1
        milliseconds = (at - _EPOCH) // timedelta(milliseconds=1)
        # As the gateway's own ids, with fewer random bits: 100,000 rows stay a small file.
        new_id = f"{milliseconds:012x}{self._calls:06x}{self._rng.getrandbits(16):014x}"
        return {
            "receipt_id": f"rc_{new_id}",
            "operation_id": f"op_{new_id}",
            "admitted_at": at,
            "organization": ORGANIZATION,
            "project": session.key.project,
            "key_id": session.key.id,
            "customer": session.customer,
            "run": session.run,
            "tags": session.workload.tags,
            "provider": provider if readable else None,
            "dialect": provider,
            "route": _ROUTES[provider],
            "model_requested": session.model.requested if readable else None,
            "stream": request.stream and readable,
            "request_bytes": request.body_bytes,
            "output_limit": request.output_limit if readable else None,
            "node": NODE,
        }


def _facts(session: Session, request: Request, prices: PriceList, draft: Draft) -> CallFacts:
    """What the caps are asked with; hold, floor and price list are noted in the draft."""
    bounds = CallBounds(
        body_bytes=request.body_bytes,
        text_bytes=request.body_bytes,
        output_limit=request.output_limit,
        prompt_meters=PROMPT[session.model.provider],
        tier=TIER[session.model.provider],
    )
    model, at = session.model, draft["admitted_at"]
    found = estimate(prices, model.provider, model.requested, bounds, at, default_output=DEFAULT_OUTPUT)
    draft.update(
        hold_nano_usd=found.hold_nano_usd,
        floor_nano_usd=found.floor_nano_usd,
        hold_tokens=found.hold_tokens,
        price_list=prices.id,
    )
    who = Attribution(
        organization=ORGANIZATION,
        project=session.key.project,
        key_id=session.key.id,
        customer=session.customer,
        run=session.run,
        tags=session.workload.tags,
        provider=model.provider,
        model=model.requested,
    )
    return CallFacts(
        who=who,
        at=at,
        hold_nano_usd=found.hold_nano_usd,
        floor_nano_usd=found.floor_nano_usd,
        hold_tokens=found.hold_tokens,
        floor_tokens=found.floor_tokens,
    )


def _refused(draft: Draft, status: int, code: str) -> Receipt:
    """The receipt of a call that was not sent."""
    settled_at = draft["admitted_at"] + timedelta(microseconds=120 + draft["request_bytes"] % 700)
    return Receipt(**draft, status="refused", settled_at=settled_at, http_status=status, refusal_code=code)


def _counted(status: Status, draft: Draft, usage: Usage | UsageProblem, priced: int | None) -> Counted:
    """What the counters take for a finished call, on each axis."""
    if status == "failed":
        return NOTHING
    nano_usd = counted_of(
        status=status,
        cost_nano_usd=_cost(status, priced),
        hold_nano_usd=draft["hold_nano_usd"],
        seen_nano_usd=priced,
    )
    if status == "served" and isinstance(usage, Usage):
        return Counted(nano_usd, usage.tokens, 1)
    return Counted(nano_usd, draft["hold_tokens"], 1)


def _cost(status: Status, priced: int | None) -> int | None:
    """An abandoned call has no cost, whatever was seen of it; a failed one is known to cost nothing."""
    if status == "failed":
        return 0
    return priced if status == "served" else None


def _reason(status: Status, usage: Usage | UsageProblem, result: Priced | Unpriced | None) -> str | None:
    if status == "failed":
        return None
    if status == "abandoned":
        return "outcome_unknown"
    if isinstance(usage, UsageProblem):
        return usage.reason
    return result.reason if isinstance(result, Unpriced) else None
