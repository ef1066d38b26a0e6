"""From bytes to a decision, step by step and without I/O: parse, attribute, estimate, ask the caps.

The order is the contract's: tags before price, price before caps, caps in one atomic step. Each step either adds to
the draft of the receipt or returns the refusal that ends the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import Any

from gateway.dialects.base import Arrival, BadRequest, Call, Dialect
from gateway.headers import Names, reset_text
from gateway.ledger import Ledger
from gateway.policy import Policy, Principal
from gateway.refusals import INVALID_CUSTOMER_TAG, Refusal
from gateway.settings import Provider, Settings
from toolkit.core.admission import claims_for, refusing_unpriced, verdict
from toolkit.core.caps import CapBook
from toolkit.core.decisions import Admitted, CallFacts, CapLook, Claim, Refused
from toolkit.core.errors import InvalidTags
from toolkit.core.estimate import Estimate, estimate, nearest_names
from toolkit.core.money import usd_up
from toolkit.core.pricing import PriceList, list_at
from toolkit.core.scopes import Attribution, Tags, parse_tags, project_of
from toolkit.core.windows import period_at, seconds_until

Draft = dict[str, Any]
"""A receipt's columns as far as they are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A call that is understood: whose it is, where it goes, and what it may cost."""

    call: Call
    who: Attribution
    provider: Provider
    model: str
    prices: PriceList
    estimate: Estimate
    at: datetime

    @property
    def facts(self) -> CallFacts:
        """What the decision reads of it."""
        return CallFacts(
            who=self.who,
            at=self.at,
            hold_nano_usd=self.estimate.hold_nano_usd,
            floor_nano_usd=self.estimate.floor_nano_usd,
            hold_tokens=self.estimate.hold_tokens,
            floor_tokens=self.estimate.floor_tokens,
        )


class Pipeline:
    """The steps, with the settings they need."""

    def __init__(self, settings: Settings, names: Names) -> None:
        self._settings = settings
        self._names = names

    def understand(
        self,
        policy: Policy,
        principal: Principal,
        dialect: Dialect,
        tag_lines: Sequence[bytes],
        arrival: Arrival,
        body: bytes,
        at: datetime,
        draft: Draft,
    ) -> Candidate | Refusal:
        """Parse, attribute and estimate a call, or say what is wrong with it."""
        tags = _tags(tuple(tag_lines))
        draft.update(customer=tags.customer, run=tags.run, tags=tags.free, project=principal.project)
        try:
            project = draft["project"] = project_of(tags, principal.project)
            call = dialect.parse(body, arrival)
        except (BadRequest, InvalidTags) as error:
            return Refusal(code="invalid_request", message=str(error))
        if "\0" in call.model:
            return Refusal(
                code="invalid_request", message="The model's name holds a NUL, which no model has."
            )
        limit = call.bounds.output_limit if call.bounds.limits_output else None
        draft.update(model_requested=call.model, stream=call.stream, output_limit=limit)
        chosen = choose(self._settings.providers, dialect, call.model)
        if chosen is None:
            return Refusal(
                code="unknown_provider", message=f"No provider is configured for the {dialect.name} dialect."
            )
        provider, model = chosen
        if call.usage_style != provider.usage_style:
            call = replace(call, usage_style=provider.usage_style)
        draft["provider"] = provider.name
        if tags.customer_invalid and "customer" in policy.book(principal.organization).armed_scopes:
            return Refusal(code="invalid_customer_tag", message=INVALID_CUSTOMER_TAG)
        if principal.require_customer and tags.customer is None:
            tag = f"{self._names.prefix}tags: customer:<id>"
            return Refusal(code="customer_required", message=f"This key requires a customer: send {tag}.")
        who = _attribution(principal.organization, project, principal.key_id, tags, provider.name, model)
        return self._estimated(call, who, provider, model, policy, at, draft)

    def decide(
        self, ledger: Ledger, book: CapBook, candidate: Candidate, receipt_id: str, draft: Draft
    ) -> Admitted | tuple[Refusal, tuple[CapLook, ...]]:
        """Ask the caps in one atomic step; a refusal comes with the caps that were looked at."""
        facts = candidate.facts
        claims = claims_for(book, facts)
        early = self._without_price(candidate, claims, draft) or self._without_limit(candidate, claims)
        if early is not None:
            return early, ()
        if not ledger.steadiness.knows(candidate.at) and any(claim.is_armed for claim in claims):
            message = "The clock was set back to before what the counters know; they cannot be trusted."
            return Refusal(code="budget_unverifiable", message=message), ()
        grant = ledger.reserve(receipt_id, facts, claims)
        draft["admit_seq"] = grant.seq
        decision = verdict(claims, grant.balances, grant.granted)
        if isinstance(decision, Admitted):
            return decision
        _name_cap(draft, decision.named)
        return self._refusal(candidate, decision), decision.looks

    def _estimated(
        self,
        call: Call,
        who: Attribution,
        provider: Provider,
        model: str,
        policy: Policy,
        at: datetime,
        draft: Draft,
    ) -> Candidate:
        prices = list_at(policy.prices, at)
        assert prices is not None, "a gateway starts with at least one price list"
        bounds = estimate(
            prices,
            provider.prices,
            model,
            call.bounds,
            at,
            default_output=self._settings.default_max_output_tokens,
            undeclared=self._settings.undeclared_output,
        )
        draft.update(
            hold_nano_usd=bounds.hold_nano_usd,
            floor_nano_usd=bounds.floor_nano_usd,
            hold_tokens=bounds.hold_tokens,
            price_list=prices.id,
        )
        return Candidate(
            call=call, who=who, provider=provider, model=model, prices=prices, estimate=bounds, at=at
        )

    def _without_price(self, candidate: Candidate, claims: Sequence[Claim], draft: Draft) -> Refusal | None:
        """An armed dollar cap that refuses what it cannot count."""
        if candidate.estimate.unpriced is None:
            return None
        cap = refusing_unpriced(claims)
        if cap is None:
            return None
        draft.update(cap_id=cap.id, cap_scope=cap.scope, cap_window=cap.window)
        reason = candidate.estimate.unpriced.reason
        if reason == "usage_missing":
            silent = "this route reports no usage, and a cap counts this call."
            return Refusal(
                code="model_unpriced",
                message=f"The cost of {candidate.model!r} cannot be known: {silent}",
                details={"model": candidate.model, "nearest": [], "reason": reason},
            )
        near = nearest_names(candidate.model, candidate.prices.names(candidate.provider.prices))
        listed = f" The nearest listed ids are {', '.join(near)}." if near else ""
        return Refusal(
            code="model_unpriced",
            message=f"The price list has no price for {candidate.model!r}, and a cap counts this call.{listed}",
            details={"model": candidate.model, "nearest": near, "reason": reason},
        )

    def _without_limit(self, candidate: Candidate, claims: Sequence[Claim]) -> Refusal | None:
        """CAPLINE_UNDECLARED_OUTPUT=refuse: an armed reserve cap wants the output limit declared."""
        bounds = candidate.call.bounds
        declared = bounds.output_limit is not None or not bounds.limits_output
        if declared or self._settings.undeclared_output != "refuse":
            return None
        if all(claim.reserve_limit is None for claim in claims):
            return None
        return Refusal(
            code="output_limit_required",
            message="A cap counts this call at its worst case: declare an output limit (max_tokens).",
        )

    def _refusal(self, candidate: Candidate, decision: Refused) -> Refusal:
        look = decision.named
        cap = look.cap
        if decision.busy:
            return Refusal(
                code="budget_busy",
                message=f"The {cap.scope} spending cap has no room beside the calls that are running; try again.",
                headers=self._names.pair(cap.scope, cap.window),
            )
        end = period_at(cap.window, candidate.at).end
        fits = _output_that_fits(candidate.estimate, decision)
        pauses = cap.on_reach == "pause"
        return Refusal(
            code="budget_exceeded",
            message=_reached(look, candidate.estimate, fits),
            details={
                "scope": cap.scope,
                "window": cap.window,
                "resets_at": None if end is None else reset_text(end),
                "fits_max_tokens": fits,
            },
            headers=self._names.on_refused(cap, candidate.at),
            status_override=429 if pauses else cap.refusal_status,
            retry_after=seconds_until(end, candidate.at) if pauses and end is not None else None,
        )


def _tags(lines: tuple[bytes, ...]) -> Tags:
    """What the tag header says; short ones come again and are kept."""
    return _short_tags(lines) if sum(map(len, lines)) <= _SHORT_TAGS_BYTES else parse_tags(lines)


_SHORT_TAGS_BYTES = 256
_short_tags = lru_cache(maxsize=2048)(parse_tags)


@lru_cache(maxsize=2048)
def _attribution(
    organization: str, project: str | None, key_id: str, tags: Tags, provider: str, model: str
) -> Attribution:
    """Of one caller and model the same object every time: what is kept by it is found at once."""
    return Attribution(
        organization=organization,
        project=project,
        key_id=key_id,
        customer=tags.customer,
        run=tags.run,
        tags=tags.free,
        provider=provider,
        model=model,
    )


def choose(providers: Sequence[Provider], dialect: Dialect, model: str) -> tuple[Provider, str] | None:
    """`NAME/model` picks that provider and is stripped; any other id goes whole to the dialect's first one."""
    providers = [provider for provider in providers if provider.dialect == dialect.name]
    name, slash, rest = model.partition("/")
    if slash and rest:
        named = next((provider for provider in providers if provider.name == name), None)
        if named is not None:
            return named, rest
    return (providers[0], model) if providers else None


def _name_cap(draft: Draft, look: CapLook) -> None:
    draft.update(cap_id=look.cap.id, cap_scope=look.cap.scope, cap_window=look.cap.window)


def _output_that_fits(bounds: Estimate, decision: Refused) -> int | None:
    """The largest output limit that every armed cap would admit now, None when none would."""
    nano_usd: list[int] = []
    tokens: list[int] = []
    for look in decision.looks:
        if not look.binds or (look.room == "fits" and look.cap.admission != "reserve"):
            continue
        room = look.limit - look.balance.spent - look.balance.held
        exhausted = look.unit == "requests" and look.room != "fits"
        if look.cap.admission != "reserve" or room <= 0 or exhausted:
            return None
        if look.unit != "requests":
            (nano_usd if look.unit == "usd" else tokens).append(room)
    return bounds.output_that_fits(nano_usd=min(nano_usd, default=None), tokens=min(tokens, default=None))


_SPANS = {
    "day": "today",
    "week": "this week",
    "month": "this month",
    "year": "this year",
    "never": "overall",
}


def _reached(look: CapLook, bounds: Estimate, fits: int | None) -> str:
    """What a person reads: figures only where a lower output limit would help (D22)."""
    cap = look.cap
    span = _SPANS[cap.window]
    if fits is None or look.unit != "usd" or bounds.hold_nano_usd is None:
        return f"The {cap.scope} spending cap {span} is reached."
    room = max(0, look.limit - look.balance.spent - look.balance.held)
    return (
        f"This call may cost up to ${usd_up(bounds.hold_nano_usd)}, more than the ${usd_up(room)} left under the "
        f"{cap.scope} spending cap {span}; it fits with an output limit of {fits} tokens."
    )


def redraft(draft: Draft, refusal: Refusal) -> Draft:
    """The draft as the receipt of a refusal: no cost, nothing counted."""
    return {
        **draft,
        "status": "refused",
        "http_status": refusal.status,
        "refusal_code": refusal.code,
        "cost_nano_usd": None,
        "counted_nano_usd": 0,
        "counted_tokens": 0,
    }
