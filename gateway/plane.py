"""The data plane: one raw ASGI callable. The envelope first, then the body, then the caps, then the exchange."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any

from gateway.backgrounds import Backgrounds
from gateway.client import BodyTooLarge, Client, ClientLeft, Receive, Send
from gateway.dialects import dialect_of, openai_responses, shape_of
from gateway.dialects.base import Arrival, Dialect
from gateway.exchange import Exchange, request_ids
from gateway.free_routes import FreeCall, FreeRoutes, free_dialect
from gateway.headers import raw
from gateway.idempotency import HEADER as IDEMPOTENCY_KEY
from gateway.idempotency import Answer, Idempotency, Keeping
from gateway.ids import NewId
from gateway.pipeline import Draft, Pipeline, redraft
from gateway.policy import PolicyHolder, Principal, digest
from gateway.refusals import Refusal
from gateway.services import Services
from gateway.stores.idempotency import Claim
from gateway.stores.traces import trace_text
from gateway.upstream import RawHeaders
from gateway.visits import Visit, Visits
from toolkit.core.decisions import CapLook
from toolkit.core.errors import StoreUnavailable
from toolkit.core.receipts import Receipt

_log = logging.getLogger("capline.plane")

WATCH_AFTER_S = 0.05
"""Calls that end sooner are not watched for a client that leaves: the watch would cost more than it could save."""


class DataPlane:
    """Answers every path that is not the operator's. `drain()` waits for the calls that run."""

    def __init__(self, services: Services, policy: PolicyHolder, new_id: NewId) -> None:
        self._services = services
        self._policy = policy
        self._new_id = new_id
        self._pipeline = Pipeline(services.settings, services.names)
        self._free = FreeRoutes(services, lambda: policy.current)
        self._running: set[asyncio.Task[None]] = set()
        self.backgrounds = Backgrounds(services, policy)
        self._visits = Visits(services, self.backgrounds)
        self._idempotency = Idempotency(services.ledger)

    async def __call__(self, scope: dict[str, object], receive: Receive, send: Send) -> None:
        """One HTTP request."""
        client = Client(receive, send)
        path = str(scope["path"])
        headers: RawHeaders = scope["headers"]  # type: ignore[assignment]
        operation_id = f"op_{self._new_id(self._services.clock())}"
        dialect = dialect_of(path)
        visit = None if dialect is not None else openai_responses.visited(str(scope["method"]), path)
        if visit is not None:
            await self._visit(client, scope, visit, operation_id)
            return
        free = free_dialect(str(scope["method"]), path, headers)
        if free is not None:
            await self._answer_free(client, scope, free, operation_id)
            return
        if dialect is None or scope["method"] != "POST":
            unsupported = "This route cannot be metered, so it is not forwarded."
            await self._answer(
                client, shape_of(path), Refusal(code="unsupported_route", message=unsupported), operation_id
            )
            return
        target = _target(scope)
        if dialect.has_key_in_query(target):
            message = "An API key in the query string is refused; send it in a header."
            await self._answer(
                client, dialect, Refusal(code="invalid_api_key", message=message), operation_id
            )
            return
        principal = self._authenticate(headers)
        if principal is None:
            message = "The API key is missing or unknown."
            await self._answer(
                client, dialect, Refusal(code="invalid_api_key", message=message), operation_id
            )
            return
        try:
            await self._serve(client, dialect, principal, target, headers, operation_id)
        except ClientLeft:
            self._services.metrics.count("left_early")

    async def _visit(
        self, client: Client, scope: dict[str, object], response_id: str, operation_id: str
    ) -> None:
        """A look at a response, or its cancel: bound to its organization, without a receipt."""
        headers: RawHeaders = scope["headers"]  # type: ignore[assignment]
        entered = await self._enter_without_receipt(client, headers, openai_responses.DIALECT, operation_id)
        if entered is None:
            return
        principal, body = entered
        visit = Visit(
            method=str(scope["method"]),
            target=_target(scope),
            response_id=response_id,
            organization=principal.organization,
            operation_id=operation_id,
            headers=headers,
            body=body,
        )
        await self._own(self._visits.pass_on(client, visit), client)

    async def _answer_free(
        self, client: Client, scope: dict[str, object], dialect: Dialect, operation_id: str
    ) -> None:
        """A route that costs nothing: for every key of the data plane, without a cap and without a receipt."""
        headers: RawHeaders = scope["headers"]  # type: ignore[assignment]
        entered = await self._enter_without_receipt(client, headers, dialect, operation_id)
        if entered is not None:
            call = FreeCall(
                target=_target(scope), headers=headers, body=entered[1], operation_id=operation_id
            )
            await self._own(self._free.answer(client, dialect, call), client)

    async def _enter_without_receipt(
        self, client: Client, headers: RawHeaders, dialect: Dialect, operation_id: str
    ) -> tuple[Principal, bytes] | None:
        """Who calls a route that leaves no receipt, and the body; None once a refusal was answered."""
        principal = self._authenticate(headers)
        if principal is None:
            refusal = Refusal(code="invalid_api_key", message="The API key is missing or unknown.")
        elif principal.role is not None:
            refusal = Refusal(code="permission_denied", message="An operator key cannot use the data plane.")
        else:
            try:
                return principal, await self._body(client, headers)
            except ClientLeft:
                self._services.metrics.count("left_early")
                return None
            except BodyTooLarge:
                refusal = Refusal(code="request_too_large", message="The request body is too large.")
        await self._answer(client, dialect, refusal, operation_id)
        return None

    @property
    def in_flight(self) -> int:
        """Calls that have not left their receipt yet."""
        return len(self._running)

    async def drain(self) -> None:
        """Wait until every running call has left its receipt; those in the background go on at the next start."""
        while self._running:
            await asyncio.wait(set(self._running))

    async def cut_off(self) -> None:
        """End every running call at once: it is recorded as abandoned, with what was seen of its answer."""
        for task in self._running:
            task.cancel()
        await self.drain()

    async def _serve(
        self,
        client: Client,
        dialect: Dialect,
        principal: Principal,
        target: str,
        headers: RawHeaders,
        operation_id: str,
    ) -> None:
        draft: Draft = {
            "receipt_id": f"rc_{operation_id.removeprefix('op_')}",
            "operation_id": operation_id,
            "organization": principal.organization,
            "project": principal.project,
            "key_id": principal.key_id,
            "dialect": dialect.name,
            "route": dialect.route or target.partition("?")[0],
            "request_bytes": 0,
            "node": self._services.settings.node,
        }
        if principal.role is not None:
            refusal = Refusal(code="permission_denied", message="An operator key cannot use the data plane.")
            await self._refuse(client, dialect, refusal, draft)
            return
        try:
            body = await self._body(client, headers)
        except BodyTooLarge:
            most = self._services.settings.max_body_bytes
            refusal = Refusal(
                code="request_too_large", message=f"The request body is larger than {most} bytes."
            )
            await self._refuse(client, dialect, refusal, draft)
            return
        draft["request_bytes"] = len(body)
        policy = self._policy.current
        at = draft["admitted_at"] = self._services.clock()
        tag_lines = [value for name, value in headers if name == self._services.names.tags]
        arrival = Arrival(target, headers)
        candidate = self._pipeline.understand(policy, principal, dialect, tag_lines, arrival, body, at, draft)
        if isinstance(candidate, Refusal):
            await self._refuse(client, dialect, candidate, draft)
            return
        claim = None
        keys = [value for name, value in headers if name == IDEMPOTENCY_KEY]
        if keys and not candidate.call.stream:
            claim = await self._enter(client, dialect, principal, keys, target, body, draft)
            if claim is None:
                return
            client = Keeping(client)
        book = self._policy.current.book(principal.organization)
        decision = self._pipeline.decide(self._services.ledger, book, candidate, draft["receipt_id"], draft)
        if isinstance(decision, tuple):
            if claim is not None:
                self._idempotency.give_up(claim)
            await self._refuse(client, dialect, decision[0], draft, decision[1])
            return
        exchange = Exchange(self._services, client, dialect, candidate, decision, draft, self.backgrounds)
        work = exchange.run(target, headers, body)
        if isinstance(client, Keeping) and claim is not None:
            work = self._idempotency.run(work, claim, client)
        await self._own(work, client)

    async def _enter(
        self,
        client: Client,
        dialect: Dialect,
        principal: Principal,
        keys: Sequence[bytes],
        target: str,
        body: bytes,
        draft: Draft,
    ) -> Claim | None:
        """Hold an idempotency key; None once what the key says has been answered instead."""
        try:
            found = await self._idempotency.enter(
                principal, keys, target, body, draft["receipt_id"], draft["admitted_at"]
            )
        except StoreUnavailable:
            found = Refusal(
                code="budget_unverifiable",
                message="The ledger cannot say now whether this idempotency key was used.",
            )
        if isinstance(found, Refusal):
            await self._refuse(client, dialect, found, draft)
        elif isinstance(found, Answer):
            replayed = raw([(self._services.names.replayed, "true")])
            await client.answer(found.status, [*found.headers, *replayed], found.body)
        else:
            return found
        return None

    async def _body(self, client: Client, headers: RawHeaders) -> bytes:
        most = self._services.settings.max_body_bytes
        declared = next((value for name, value in headers if name == b"content-length"), b"0")
        if declared.isdigit() and int(declared) > most:
            raise BodyTooLarge
        return await client.body(most)

    async def _own(self, work: Coroutine[Any, Any, None], client: Client) -> None:
        """Run a call in a task of its own, so that neither a departing client nor a cancelled handler ends it."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def end(owner: asyncio.Task[None]) -> None:
            self._running.discard(owner)
            if not ended.done():
                ended.set_result(None)

        owner = loop.create_task(work)
        self._running.add(owner)
        owner.add_done_callback(end)
        watcher: list[asyncio.Task[None]] = []
        later = loop.call_later(WATCH_AFTER_S, lambda: watcher.append(loop.create_task(client.watch())))
        try:
            await ended  # as `asyncio.shield(owner)`, at a third of its cost
        except asyncio.CancelledError:
            client.leave()
            raise
        finally:
            later.cancel()
            for task in watcher:
                task.cancel()
        owner.result()

    def _authenticate(self, headers: RawHeaders) -> Principal | None:
        for name, value in headers:
            if name == b"authorization":
                scheme, _, secret = value.partition(b" ")
                if scheme.lower() != b"bearer":
                    continue
            elif name in (b"x-api-key", b"x-goog-api-key"):
                secret = value
            else:
                continue
            return self._policy.current.keys.get(digest(secret.strip().decode("latin-1")))
        return None

    async def _refuse(
        self, client: Client, dialect: Dialect, refusal: Refusal, draft: Draft, looks: Sequence[CapLook] = ()
    ) -> None:
        """Answer a refusal once its receipt is committed; without one the answer is that nothing can be verified."""
        now = self._services.clock()
        at = draft.setdefault("admitted_at", now)
        receipt = Receipt(**redraft(draft, refusal), settled_at=max(now, at))
        try:
            await self._services.ledger.record(receipt, trace_text(looks), closes_intent=False)
        except StoreUnavailable:
            refusal = Refusal(code="budget_unverifiable", message="The ledger cannot be written now.")
        await self._answer(client, dialect, refusal, draft["operation_id"])

    async def _answer(self, client: Client, dialect: Dialect, refusal: Refusal, operation_id: str) -> None:
        self._services.metrics.count("refusals", code=refusal.code)
        headers = {
            "content-type": "application/json",
            self._services.names.request_id: operation_id,
            **request_ids(operation_id),
            **refusal.response_headers(),
        }
        await client.answer(refusal.status, raw(headers.items()), dialect.render(refusal, operation_id))


def _target(scope: dict[str, object]) -> str:
    """The path, and the query that came with it."""
    path, query = str(scope["path"]), scope.get("query_string", b"")
    return f"{path}?{query.decode('latin-1')}" if isinstance(query, bytes) and query else path
