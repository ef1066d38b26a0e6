"""Routes that cost nothing: the list of models, and Anthropic's count of a prompt's tokens.

No cap is asked and no receipt is left, since nothing can be spent: a customer whose cap is reached may still count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from gateway.catalogue import ROUTE as MODELS
from gateway.catalogue import anthropic_shape, models, openai_shape
from gateway.client import Client
from gateway.deadline import Deadline
from gateway.dialects import anthropic_messages, openai_chat
from gateway.dialects.base import BadRequest, Dialect
from gateway.exchange import key_headers, request_ids
from gateway.headers import raw
from gateway.pipeline import choose
from gateway.policy import Policy
from gateway.refusals import Refusal
from gateway.services import Services
from gateway.upstream import BrokenOff, NotReached, RawHeaders
from toolkit.core.pricing import list_at

COUNT_TOKENS = "/v1/messages/count_tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeCall:
    """One authenticated call of a free route. `target` is the path and the query that came with it."""

    target: str
    headers: RawHeaders
    body: bytes
    operation_id: str

    @property
    def path(self) -> str:
        """The path alone."""
        return self.target.partition("?")[0]


def free_dialect(method: str, path: str, headers: RawHeaders) -> Dialect | None:
    """Whose words a free route's refusals are in; None for any other route."""
    if (method, path) == ("POST", COUNT_TOKENS):
        return anthropic_messages.DIALECT
    if (method, path) == ("GET", MODELS):
        return anthropic_messages.DIALECT if _speaks_anthropic(headers) else openai_chat.DIALECT
    return None


class FreeRoutes:
    """Answers free calls from the policy in force, or passes them on."""

    def __init__(self, services: Services, policy: Callable[[], Policy]) -> None:
        self._services = services
        self._policy = policy

    async def answer(self, client: Client, dialect: Dialect, call: FreeCall) -> None:
        """Answer one call."""
        try:
            refusal = await (self._count if call.path == COUNT_TOKENS else self._list)(client, call)
        except BadRequest as error:
            refusal = Refusal(code="invalid_request", message=str(error))
        except (NotReached, BrokenOff, TimeoutError):
            refusal = Refusal(code="provider_unreachable", message="The provider could not be reached.")
        if refusal is not None and not client.started:
            self._services.metrics.count("refusals", code=refusal.code)
            own = {"content-type": "application/json", **request_ids(call.operation_id)}
            headers = [*raw({**own, **refusal.response_headers()}.items()), *self._ours(call)]
            await client.answer(refusal.status, headers, dialect.render(refusal, call.operation_id))

    async def _list(self, client: Client, call: FreeCall) -> None:
        at = self._services.clock()
        prices = list_at(self._policy().prices, at)
        assert prices is not None, "a gateway starts with at least one price list"
        found = models(self._services.settings.providers, prices, at)
        query = call.target.partition("?")[2]
        body = anthropic_shape(found, query) if _speaks_anthropic(call.headers) else openai_shape(found)
        headers = [(b"content-type", b"application/json"), *self._ours(call)]
        await client.answer(200, headers, body)

    async def _count(self, client: Client, call: FreeCall) -> Refusal | None:
        """Ask the model's provider, whose answer passes unchanged."""
        dialect, services = anthropic_messages.DIALECT, self._services
        asked = anthropic_messages.parse(call.body)
        chosen = choose(services.settings.providers, dialect, asked.model)
        if chosen is None:
            return Refusal(
                code="unknown_provider", message=f"No provider is configured for the {dialect.name} dialect."
            )
        provider, model = chosen
        headers = services.names.to_provider(call.headers)
        headers.extend(key_headers(dialect, provider).items())
        body = dialect.prepare(call.body, asked, model)
        deadline = Deadline(asyncio.get_running_loop().time() + services.settings.hold_ttl_s)
        client.when_left(lambda: deadline.bring_forward(0))
        with deadline:
            answer = await services.upstream.send(provider.url(call.target), headers, body)
            try:
                counted = b"".join([chunk async for chunk in answer.chunks()])
            finally:
                await answer.close()
        kept = [*services.names.to_client(answer.headers), *self._ours(call)]
        await client.answer(answer.status, kept, counted)
        return None

    def _ours(self, call: FreeCall) -> list[tuple[bytes, bytes]]:
        return list(self._services.names.on_answer(call.operation_id))


def _speaks_anthropic(headers: RawHeaders) -> bool:
    return any(name == b"anthropic-version" for name, _ in headers)
