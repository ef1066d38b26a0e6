"""A client's look at a response that it made, or its word to cancel one: passed through, and never a receipt."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from gateway.backgrounds import Backgrounds, Run
from gateway.client import Client
from gateway.deadline import Deadline
from gateway.dialects import openai_responses
from gateway.exchange import key_headers, request_ids
from gateway.headers import raw
from gateway.refusals import Refusal
from gateway.services import Services
from gateway.settings import Provider
from gateway.stores.backgrounds import provider_of
from gateway.upstream import Answer, BrokenOff, NotReached, RawHeaders


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One look or cancel. `target` is the path and the query that came with it."""

    method: str
    target: str
    response_id: str
    organization: str
    operation_id: str
    headers: RawHeaders
    body: bytes


class Visits:
    """Passes visits to the provider that made the response, for the organization that it was made for."""

    def __init__(self, services: Services, backgrounds: Backgrounds) -> None:
        self._services = services
        self._backgrounds = backgrounds

    async def pass_on(self, client: Client, visit: Visit) -> None:
        """Answer one visit. An id that this organization did not make is not found, whoever made it."""
        run = self._backgrounds.find(visit.organization, visit.response_id)
        provider = run.candidate.provider if run is not None else await self._provider(visit)
        if provider is None:
            unknown = "No response of this id was made here."
            await self._refuse(client, visit, Refusal(code="response_not_found", message=unknown))
            return
        deadline = Deadline(asyncio.get_running_loop().time() + self._services.settings.hold_ttl_s)
        client.when_left(lambda: deadline.bring_forward(0))
        try:
            with deadline:
                answer = await self._send(provider, visit)
                try:
                    await self._take(client, visit, run, answer)
                finally:
                    await answer.close()
        except (NotReached, BrokenOff, TimeoutError):
            if not client.started:
                lost = "The provider could not be reached."
                await self._refuse(client, visit, Refusal(code="provider_unreachable", message=lost))
        finally:
            if run is not None:
                run.wake.set()

    async def _provider(self, visit: Visit) -> Provider | None:
        name = await self._services.ledger.writer.read(
            lambda connection: provider_of(connection, visit.organization, visit.response_id)
        )
        return next((each for each in self._services.settings.providers if each.name == name), None)

    async def _send(self, provider: Provider, visit: Visit) -> Answer:
        headers = self._services.names.to_provider(visit.headers)
        headers.extend(key_headers(openai_responses.DIALECT, provider).items())
        return await self._services.upstream.send(
            provider.url(visit.target), headers, visit.body, visit.method
        )

    async def _take(self, client: Client, visit: Visit, run: Run | None, answer: Answer) -> None:
        names = self._services.names
        headers = [*names.to_client(answer.headers), *names.on_answer(visit.operation_id)]
        if any(name == b"content-type" and b"event-stream" in value for name, value in answer.headers):
            await client.start(answer.status, headers)
            async for chunk in answer.chunks():
                await client.write(chunk)
            await client.end()
            return
        body = b"".join([chunk async for chunk in answer.chunks()])
        outcome = None if run is None else self._backgrounds.outcome_of(run, answer.status, body)
        if run is not None and outcome is not None:
            await self._backgrounds.told(run, outcome)
        await client.answer(answer.status, headers, body)

    async def _refuse(self, client: Client, visit: Visit, refusal: Refusal) -> None:
        self._services.metrics.count("refusals", code=refusal.code)
        headers = {
            "content-type": "application/json",
            self._services.names.request_id: visit.operation_id,
            **request_ids(visit.operation_id),
            **refusal.response_headers(),
        }
        body = openai_responses.DIALECT.render(refusal, visit.operation_id)
        await client.answer(refusal.status, raw(headers.items()), body)
