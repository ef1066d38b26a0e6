"""One admitted call from its intent to its receipt: the task that owns it, whatever its client does.

The intent is on disk before the provider is called, the receipt before the end of the answer leaves. However the call
ends, it settles its hold exactly once; where nobody can know what the provider billed, the hold stays counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from gateway.client import Client
from gateway.dialects.base import Dialect, Handling, Served, StreamMeter
from gateway.headers import Names, raw
from gateway.ledger import Ledger, trace_text
from gateway.metrics import Metrics
from gateway.pipeline import Candidate, Draft, redraft
from gateway.refusals import Refusal
from gateway.settings import Settings
from gateway.sse import EventSplitter
from gateway.upstream import Answer, BrokenOff, NotReached, RawHeaders, Upstream
from toolkit.core.counters import NOTHING, Counted
from toolkit.core.decisions import Admitted
from toolkit.core.errors import StoreUnavailable
from toolkit.core.pricing import Priced, Unpriced, price
from toolkit.core.receipts import Receipt, Status, counted_of, usage_columns
from toolkit.core.usage import Usage

_log = logging.getLogger("capline.exchange")

_NOT_BILLED = frozenset({503, 529})
"""5xx by which a provider says that it did not take the call; of any other 5xx nobody can know (contract §8)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What every call needs, the same for all of them."""

    settings: Settings
    names: Names
    ledger: Ledger
    upstream: Upstream
    metrics: Metrics
    clock: Callable[[], datetime]


@dataclass(slots=True)
class Outcome:
    """How the provider's part ended."""

    status: Status
    http_status: int
    served: Served = field(default_factory=Served)
    response_bytes: int | None = None


class Exchange:
    """Owns one call. `run()` never leaves a hold behind."""

    def __init__(
        self,
        services: Services,
        client: Client,
        dialect: Dialect,
        candidate: Candidate,
        decision: Admitted,
        draft: Draft,
    ) -> None:
        self._services = services
        self._client = client
        self._dialect = dialect
        self._candidate = candidate
        self._decision = decision
        self._draft = draft
        self._trace = trace_text(decision.looks)
        self._first_byte_at: float | None = None
        self._meter: StreamMeter | None = None
        self._response_bytes: int | None = None
        self._started_at = asyncio.get_running_loop().time()
        self._settled = False

    async def run(self, target: str, headers: RawHeaders, body: bytes) -> None:
        """Intent, call, settlement, receipt, answer. `target` is the route and the query that came with it."""
        try:
            await self._services.ledger.begin(self._draft, self._trace)
        except StoreUnavailable:
            await self._refuse_unverifiable()
            return
        try:
            await self._call(target, headers, body)
        finally:
            if not self._settled:
                _ignore(self._settle(self._broken_off())[1])

    async def _call(self, target: str, headers: RawHeaders, body: bytes) -> None:
        try:
            async with self._time_limit():
                answer = await self._send(target, headers, body)
                try:
                    await self._take(answer)
                finally:
                    await answer.close()
        except NotReached:
            await self._answer_unreachable(Outcome("failed", 502), "The provider could not be reached.")
        except (BrokenOff, TimeoutError):
            lost = "The provider's answer broke off; it may have been billed, so it counts at its hold."
            await self._answer_unreachable(self._broken_off(), lost)

    @asynccontextmanager
    async def _time_limit(self) -> AsyncIterator[None]:
        """CAPLINE_HOLD_TTL_S for the call, CAPLINE_DRAIN_S once its client has left."""
        settings = self._services.settings
        loop = asyncio.get_running_loop()
        ends_at = self._started_at + settings.hold_ttl_s
        async with asyncio.timeout_at(ends_at) as limit:

            def shorten() -> None:
                if not limit.expired():
                    limit.reschedule(min(ends_at, loop.time() + settings.drain_s))

            self._client.on_left = shorten
            if self._client.left:
                shorten()
            try:
                yield
            finally:
                self._client.on_left = None

    async def _send(self, target: str, headers: RawHeaders, body: bytes) -> Answer:
        candidate, provider = self._candidate, self._candidate.provider
        key = provider.api_keys[0] if provider.api_keys else ""
        out = [*self._services.names.to_provider(headers), *self._dialect.authorize(key).items()]
        prepared = self._dialect.prepare(body, candidate.call, candidate.model)
        return await self._services.upstream.send(provider.url(target), out, prepared)

    async def _take(self, answer: Answer) -> None:
        if 200 <= answer.status < 300:
            if _content_type(answer.headers).startswith(b"text/event-stream"):
                await self._take_stream(answer)
            else:
                await self._take_whole(answer)
        else:
            await self._take_error(answer)

    async def _take_whole(self, answer: Answer) -> None:
        body = await self._read(answer)
        outcome = Outcome("served", answer.status, self._dialect.read_answer(body), len(body))
        receipt = await self._finish(outcome)
        if receipt is None:
            return
        figures = self._services.names.cost(receipt.cost_nano_usd)
        await self._client.answer(answer.status, self._headers(answer.headers, figures), body)

    async def _take_error(self, answer: Answer) -> None:
        body = await self._read(answer)
        billed = answer.status >= 500 and answer.status not in _NOT_BILLED
        outcome = Outcome("abandoned" if billed else "failed", answer.status, response_bytes=len(body))
        if await self._finish(outcome) is None:
            return
        final = {"x-should-retry": "false"} if self._dialect.is_spend_limit(answer.status, body) else {}
        kept = [(name, value) for name, value in answer.headers if not final or name != b"x-should-retry"]
        await self._client.answer(answer.status, self._headers(kept, final), body)

    async def _take_stream(self, answer: Answer) -> None:
        await self._client.start(answer.status, self._headers(answer.headers, {}))
        meter = self._meter = self._dialect.stream_meter(self._candidate.call)
        splitter = EventSplitter()
        held = bytearray()
        self._response_bytes = 0
        async for chunk in answer.chunks():
            self._note_first_byte()
            self._response_bytes += len(chunk)
            out = bytearray()
            for event in splitter.feed(chunk):
                handling = meter.event(event.data)
                if held or handling is Handling.FINAL:
                    held += event.raw
                elif handling is Handling.FORWARD:
                    out += event.raw
            if out:
                await self._client.write(bytes(out))
        status: Status = "served" if meter.complete() else "abandoned"
        outcome = Outcome(status, answer.status, meter.served(), self._response_bytes)
        if await self._finish(outcome) is not None and status == "served":
            await self._client.end(bytes(held) + splitter.rest())

    def _broken_off(self) -> Outcome:
        """Nobody knows what was billed; what a stream said before it ended is kept."""
        served = Served() if self._meter is None else self._meter.served()
        return Outcome("abandoned", 502, served, self._response_bytes)

    async def _read(self, answer: Answer) -> bytes:
        parts: list[bytes] = []
        async for chunk in answer.chunks():
            self._note_first_byte()
            parts.append(chunk)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _answer_unreachable(self, outcome: Outcome, message: str) -> None:
        if self._settled or await self._finish(outcome) is None or self._client.started:
            return
        await self._answer_refusal(Refusal(code="provider_unreachable", message=message), budget=True)

    async def _answer_refusal(self, refusal: Refusal, *, budget: bool) -> None:
        """Our own words in the dialect's shape, under the ids that its SDK looks for."""
        operation_id = self._draft["operation_id"]
        own = {**refusal.response_headers(), **request_ids(operation_id)}
        headers = self._headers([(b"content-type", b"application/json")], own, budget=budget)
        await self._client.answer(refusal.status, headers, self._dialect.render(refusal, operation_id))

    async def _finish(self, outcome: Outcome) -> Receipt | None:
        """Settle, then wait for the receipt; None when it was not committed, and the connection breaks."""
        try:
            receipt, committed = self._settle(outcome)
            await committed
        except StoreUnavailable:
            _log.error("receipt %s was not committed; its answer is withheld", self._draft["receipt_id"])
            await self._client.break_off(outcome.http_status)
            return None
        return receipt

    def _settle(self, outcome: Outcome) -> tuple[Receipt, asyncio.Future[None]]:
        self._settled = True
        columns = self._priced_columns(outcome)
        ledger = self._services.ledger
        counted = Counted(
            columns["counted_nano_usd"], columns["counted_tokens"], int(outcome.status != "failed")
        )
        columns["settle_seq"] = ledger.settle(self._draft["receipt_id"], counted)
        receipt = self._receipt(outcome.status, columns)
        self._services.metrics.count("requests", dialect=self._dialect.name, status=outcome.status)
        return receipt, ledger.record(receipt, self._trace, closes_intent=True)

    def _priced_columns(self, outcome: Outcome) -> dict[str, Any]:
        candidate, served = self._candidate, outcome.served
        usage = served.usage
        result = self._price(outcome)
        cost = result.cost_nano_usd if isinstance(result, Priced) and outcome.status == "served" else None
        hold = candidate.estimate.hold_nano_usd
        columns: dict[str, Any] = {
            "http_status": outcome.http_status,
            "response_bytes": outcome.response_bytes,
            "model_served": served.model,
            "upstream_id": served.upstream_id,
            "service_tier": served.service_tier,
            "cost_nano_usd": 0 if outcome.status == "failed" else cost,
            "counted_nano_usd": counted_of(
                status=outcome.status,
                cost_nano_usd=cost,
                hold_nano_usd=hold,
                seen_nano_usd=result.cost_nano_usd if isinstance(result, Priced) else None,
            ),
            "counted_tokens": self._counted_tokens(outcome),
            "unpriced_reason": self._reason(outcome, result),
            "basis": "estimated" if outcome.status == "abandoned" else "measured",
        }
        if result is not None:
            columns["price_row"] = result.price_row
        if isinstance(usage, Usage):
            columns.update(usage_columns(usage))
            columns["usage_source"] = "final" if outcome.status == "served" else "partial"
        return columns

    def _price(self, outcome: Outcome) -> Priced | Unpriced | None:
        candidate, served = self._candidate, outcome.served
        if not isinstance(served.usage, Usage):
            return None
        model = served.model or candidate.model
        return price(
            candidate.prices, candidate.provider.prices, model, served.usage, candidate.at, tier=served.tier
        )

    def _reason(self, outcome: Outcome, result: Priced | Unpriced | None) -> str | None:
        if outcome.status == "failed":
            return None
        if outcome.status == "abandoned":
            return "outcome_unknown"
        if isinstance(result, Unpriced):
            return result.reason
        usage = outcome.served.usage
        return None if isinstance(usage, Usage) else usage.reason

    def _counted_tokens(self, outcome: Outcome) -> int:
        usage = outcome.served.usage
        if outcome.status == "failed":
            return 0
        if outcome.status == "served" and isinstance(usage, Usage):
            return usage.tokens
        return self._candidate.estimate.hold_tokens

    def _receipt(self, status: Status, columns: dict[str, Any]) -> Receipt:
        now = asyncio.get_running_loop().time()
        first = self._first_byte_at
        known = {
            **self._draft,
            "status": status,
            "settled_at": max(self._services.clock(), self._candidate.at),
            "client_left": self._client.left,
            "latency_ms": _milliseconds(now - self._started_at),
            "ttft_ms": None if first is None else _milliseconds(first - self._started_at),
        }
        return Receipt(**{**known, **columns})

    async def _refuse_unverifiable(self) -> None:
        """The intent is not on disk, so nothing may be sent: give the hold back and say so."""
        self._settled = True
        ledger = self._services.ledger
        ledger.settle(self._draft["receipt_id"], NOTHING)
        refusal = Refusal(
            code="budget_unverifiable", message="The ledger cannot be written now; nothing was sent."
        )
        self._services.metrics.count("refusals", code=refusal.code)
        draft = redraft(self._draft, refusal)
        receipt = Receipt(**draft, settled_at=max(self._services.clock(), self._candidate.at))
        _ignore(ledger.record(receipt, self._trace, closes_intent=True))
        await self._answer_refusal(refusal, budget=False)

    def _headers(self, headers: RawHeaders, more: dict[str, str], *, budget: bool = True) -> RawHeaders:
        names = self._services.names
        ours = {names.request_id: self._draft["operation_id"], **more}
        if budget:
            ours.update(names.on_served(self._decision, self._candidate.at))
        return [*names.to_client(headers), *raw(ours.items())]

    def _note_first_byte(self) -> None:
        if self._first_byte_at is None:
            self._first_byte_at = asyncio.get_running_loop().time()


def request_ids(operation_id: str) -> dict[str, str]:
    """The two headers in which official SDKs look for a request's id; set on our own refusals."""
    return {"x-request-id": operation_id, "request-id": operation_id}


def _content_type(headers: RawHeaders) -> bytes:
    return next((value for name, value in headers if name == b"content-type"), b"").lower()


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)


def _ignore(committed: asyncio.Future[None]) -> None:
    """Let a receipt that cannot be waited for fail without a word: its refusal has been answered."""
    committed.add_done_callback(lambda done: done.exception())
