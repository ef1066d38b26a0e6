"""One admitted call from its intent to its receipt: the task that owns it, whatever its client does.

The intent is on disk before the provider is called, the receipt before the end of the answer leaves. However the call
ends, it settles its hold exactly once; where nobody can know what the provider billed, the hold stays counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gateway.client import Client
from gateway.deadline import Deadline
from gateway.dialects.base import Dialect, Handling, Served, StreamMeter
from gateway.headers import raw
from gateway.json_array import ArraySplitter
from gateway.late import LONGEST
from gateway.outcome import Outcome
from gateway.pipeline import Candidate, Draft
from gateway.refusals import Refusal
from gateway.services import Services
from gateway.settings import Provider
from gateway.settlement import Settlement
from gateway.sse import EventSplitter
from gateway.stores.traces import trace_text
from gateway.upstream import Answer, BrokenOff, NotReached, RawHeaders
from toolkit.core.decisions import Admitted
from toolkit.core.errors import StoreUnavailable
from toolkit.core.receipts import Receipt, Status

if TYPE_CHECKING:
    from gateway.backgrounds import Backgrounds, Run

_log = logging.getLogger("capline.exchange")

_NOT_BILLED = frozenset({503, 529})
"""5xx by which a provider says that it did not take the call; of any other 5xx nobody can know (contract §8)."""
_BILLED_BY_SOME = frozenset({400, 408})
"""4xx that say that a prompt was filtered or timed out, after work that Azure bills."""


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
        backgrounds: Backgrounds,
    ) -> None:
        self._services = services
        self._backgrounds = backgrounds
        self._run: Run | None = None
        self._client = client
        self._dialect = dialect
        self._candidate = candidate
        self._decision = decision
        self._draft = draft
        self._trace = trace_text(decision.looks)
        self._settlement = Settlement(services, client, candidate, draft, self._trace)
        self._status: int | None = None
        self._meter: StreamMeter | None = None
        self._response_bytes: int | None = None

    async def run(self, target: str, headers: RawHeaders, body: bytes) -> None:
        """Intent, call, settlement, receipt, answer. `target` is the route and the query that came with it."""
        try:
            await self._settlement.begin(armed=self._decision.named is not None)
        except StoreUnavailable:
            await self._refuse_unverifiable()
            return
        try:
            await self._call(target, headers, body)
        finally:
            if not self._settlement.over and not self._runs_on():
                self._settlement.lose(self._broken_off())

    async def _call(self, target: str, headers: RawHeaders, body: bytes) -> None:
        self._asked = target, headers
        deadline = Deadline()
        self._client.when_left(lambda: deadline.bring_forward(self._services.settings.drain_s))
        ttl_at = self._settlement.started_at + self._services.settings.hold_ttl_s
        ttl = asyncio.get_running_loop().call_at(ttl_at, self._outlast, deadline)
        try:
            with deadline:
                answer = await self._send(target, headers, body)
                self._status = answer.status
                try:
                    await self._take(answer)
                finally:
                    await answer.close()
        except NotReached:
            await self._answer_unreachable(Outcome("failed", 502), "The provider could not be reached.")
        except (BrokenOff, TimeoutError):
            if self._runs_on():
                return
            lost = "The provider's answer broke off; it may have been billed, so it counts at its hold."
            await self._answer_unreachable(self._broken_off(), lost)
        finally:
            ttl.cancel()

    def _outlast(self, deadline: Deadline) -> None:
        """The call is older than CAPLINE_HOLD_TTL_S: it is abandoned in the ledger, and its answer is read on."""
        self._settlement.outlast(self._seen(self._status))
        deadline.bring_forward(max(0, LONGEST.total_seconds() - self._services.settings.hold_ttl_s))

    async def _send(self, target: str, headers: RawHeaders, body: bytes) -> Answer:
        candidate, provider = self._candidate, self._candidate.provider
        out = self._services.names.to_provider(headers)
        out.extend(key_headers(self._dialect, provider).items())
        prepared = self._dialect.prepare(body, candidate.call, candidate.model)
        url = provider.url(self._dialect.target(target, candidate.call, candidate.model))
        return await self._services.upstream.send(url, out, prepared)

    async def _take(self, answer: Answer) -> None:
        if 200 <= answer.status < 300:
            if _content_type(answer.headers).startswith(b"text/event-stream"):
                await self._take_stream(answer, EventSplitter())
            elif self._dialect.array_streams:
                await self._take_stream(answer, ArraySplitter())
            elif self._dialect.passes_through and b"json" not in _content_type(answer.headers):
                await self._pass_through(answer)
            else:
                await self._take_whole(answer)
        else:
            await self._take_error(answer)

    async def _take_whole(self, answer: Answer) -> None:
        body = await self._read(answer)
        served = self._dialect.read_answer(body, self._candidate.call)
        if served.running and served.upstream_id is not None:
            await self._leave_running(served.upstream_id, answer, body)
            return
        outcome = Outcome("served", answer.status, served, len(body))
        receipt = await self._finish(outcome)
        if receipt is None:
            return
        headers = self._headers(answer.headers, cost_nano_usd=receipt.cost_nano_usd)
        await self._client.answer(answer.status, headers, body)

    async def _take_error(self, answer: Answer) -> None:
        body = await self._read(answer)
        outcome = self._refused(answer.status, body)
        if await self._finish(outcome) is None:
            return
        final = {"x-should-retry": "false"} if self._dialect.is_spend_limit(answer.status, body) else {}
        kept = [(name, value) for name, value in answer.headers if not final or name != b"x-should-retry"]
        await self._client.answer(answer.status, [*self._headers(kept), *raw(final.items())], body)

    def _refused(self, status: int, body: bytes) -> Outcome:
        """What a provider's error means: that nothing was billed, or that nobody can know."""
        if status >= 500 and status not in _NOT_BILLED:
            return Outcome("abandoned", status, response_bytes=len(body))
        if status in _BILLED_BY_SOME and self._candidate.provider.bills_refused_work:
            served = self._dialect.read_answer(body, self._candidate.call)
            return Outcome("abandoned", status, served, len(body), "possibly_billed")
        return Outcome("failed", status, response_bytes=len(body))

    async def _take_stream(self, answer: Answer, splitter: EventSplitter | ArraySplitter) -> None:
        await self._client.start(answer.status, self._headers(answer.headers))
        meter = self._meter = self._dialect.stream_meter(self._candidate.call)
        held = b""
        self._response_bytes = 0
        async for chunk in answer.chunks():
            self._settlement.note_first_byte()
            self._response_bytes += len(chunk)
            out: list[bytes] = []
            for piece, data in splitter.feed(chunk):
                handling = meter.event(data)
                if held or handling is Handling.FINAL:
                    held += piece
                elif handling is Handling.FORWARD:
                    out.append(piece)
            if self._candidate.call.background and self._run is None:
                with contextlib.suppress(StoreUnavailable):  # the stream tells its own end
                    await self._keep(meter.served().upstream_id)
            if out:
                await self._client.write(b"".join(out))
        tail = splitter.last()
        meter.event(tail.data)
        if not meter.complete() and self._runs_on():
            return
        status: Status = "served" if meter.complete() else "abandoned"
        outcome = Outcome(status, answer.status, meter.served(), self._response_bytes)
        if await self._finish(outcome) is not None and status == "served":
            await self._client.end(held + tail.raw)

    async def _leave_running(self, upstream_id: str, answer: Answer, body: bytes) -> None:
        """The first answer of a background run leaves on its intent, once what is needed to ask again is stored."""
        try:
            await self._keep(upstream_id)
        except StoreUnavailable:
            await self._client.break_off(answer.status)
            return
        self._runs_on()
        await self._client.answer(answer.status, self._headers(answer.headers), body)

    async def _keep(self, upstream_id: str | None) -> None:
        if upstream_id is not None:
            target, headers = self._asked
            self._run = await self._backgrounds.keep(
                upstream_id, self._candidate, self._draft, self._trace, target, headers
            )

    def _runs_on(self) -> bool:
        """Leave a background run to those who ask for it until it ends; False where there is none."""
        if self._run is None or self._settlement.over:
            return False
        self._settlement.over = True
        self._run.receipt = self._settlement.abandoned
        self._backgrounds.follow(self._run)
        return True

    async def _pass_through(self, answer: Answer) -> None:
        """Forward a body that says nothing of its usage, and hold its last byte back until the receipt is there."""
        await self._client.start(answer.status, self._headers(answer.headers))
        held = b""
        self._response_bytes = 0
        async for chunk in answer.chunks():
            self._settlement.note_first_byte()
            self._response_bytes += len(chunk)
            out = held + chunk
            held = out[-1:]
            await self._client.write(out[:-1])
        outcome = Outcome("served", answer.status, response_bytes=self._response_bytes)
        if await self._finish(outcome) is not None:
            await self._client.end(held)

    def _broken_off(self) -> Outcome:
        """Nobody knows what was billed; what a stream said before it ended is kept."""
        return self._seen(502)

    def _seen(self, status: int | None) -> Outcome:
        served = Served() if self._meter is None else self._meter.served()
        return Outcome("abandoned", status, served, self._response_bytes)

    async def _read(self, answer: Answer) -> bytes:
        parts: list[bytes] = []
        async for chunk in answer.chunks():
            self._settlement.note_first_byte()
            parts.append(chunk)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _answer_unreachable(self, outcome: Outcome, message: str) -> None:
        if self._settlement.over or await self._finish(outcome) is None or self._client.started:
            return
        await self._answer_refusal(Refusal(code="provider_unreachable", message=message), budget=True)

    async def _answer_refusal(self, refusal: Refusal, *, budget: bool) -> None:
        """Our own words in the dialect's shape, under the ids that its SDK looks for."""
        operation_id = self._draft["operation_id"]
        own = {**refusal.response_headers(), **request_ids(operation_id)}
        headers = [*self._headers([(b"content-type", b"application/json")], budget=budget), *raw(own.items())]
        await self._client.answer(refusal.status, headers, self._dialect.render(refusal, operation_id))

    async def _finish(self, outcome: Outcome) -> Receipt | None:
        """Settle, then wait for the receipt; None when it was not committed, and the connection breaks."""
        try:
            receipt = await self._settlement.finish(outcome)
        except StoreUnavailable:
            _log.error("receipt %s was not committed; its answer is withheld", self._draft["receipt_id"])
            await self._client.break_off(outcome.http_status or 502)
            return None
        if self._run is not None:
            await self._backgrounds.forget(self._run)
        return receipt

    async def _refuse_unverifiable(self) -> None:
        refusal = Refusal(
            code="budget_unverifiable", message="The ledger cannot be written now; nothing was sent."
        )
        self._settlement.refuse(refusal)
        self._services.metrics.count("refusals", code=refusal.code)
        await self._answer_refusal(refusal, budget=False)

    def _headers(
        self, headers: RawHeaders, *, cost_nano_usd: int | None = None, budget: bool = True
    ) -> list[tuple[bytes, bytes]]:
        """An answer's headers: those given, and ours."""
        names = self._services.names
        out = names.to_client(headers)
        out += names.on_answer(self._draft["operation_id"], cost_nano_usd)
        if budget:
            out += names.on_served(self._decision, self._candidate.at)
        return out


def key_headers(dialect: Dialect, provider: Provider) -> Mapping[str, str]:
    """The headers that carry a provider's key: its dialect's, or Azure's own."""
    key = provider.api_keys[0] if provider.api_keys else ""
    return {"api-key": key} if provider.usage == "azure" else dialect.authorize(key)


def request_ids(operation_id: str) -> dict[str, str]:
    """The two headers in which official SDKs look for a request's id; set on our own refusals."""
    return {"x-request-id": operation_id, "request-id": operation_id}


def _content_type(headers: RawHeaders) -> bytes:
    return next((value for name, value in headers if name == b"content-type"), b"").lower()
