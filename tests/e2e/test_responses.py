"""OpenAI responses with the official SDK, and a gateway that is killed or stopped while one runs in the background."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest

from tests.support.provider import Seen
from tests.support.responses import BackgroundProvider, events, response, sse, usage
from tests.support.servers import GatewayProcess, Request, Scripted, ScriptedGateway, until
from toolkit.core.chain import check_chain

MODEL = "gpt-5.4"
ASK: dict[str, Any] = {"model": MODEL, "input": "Hello, wörld", "max_output_tokens": 100}
TOLD = usage(1_000, 50)
COST = 3_250_000
"""1,000 input tokens at 2,500 and 50 output tokens at 15,000 nano-USD."""
SSE = [("Content-Type", "text/event-stream")]


class Provider(BackgroundProvider):
    """The scripted provider over HTTP: background runs, and everything else at once."""

    def answer(self, request: Request) -> Scripted:
        """One call."""
        asked = json.loads(request.body) if request.body and request.method == "POST" else {}
        facts = {"model": MODEL, "usage": TOLD}
        if asked.get("stream"):
            return Scripted(sse(events(**facts)), headers=SSE)
        if "stream=true" in request.target:
            return Scripted(sse(events(id="resp_1", **facts))[4:], headers=SSE)
        if asked and not asked.get("background"):
            return Scripted([json.dumps(response(**facts)).encode()])
        reply = self(Seen(request.target, request.headers, request.body, request.method))
        return Scripted([reply.body], reply.status)


@pytest.fixture
def provider(scripted: ScriptedGateway) -> Provider:
    """The provider of `scripted` for one test."""
    runs = Provider()
    scripted.upstream.script = runs.answer
    return runs


def client(url: str, key: str) -> openai.OpenAI:
    """The official client with nothing changed but where it goes and its key."""
    return openai.OpenAI(base_url=f"{url}/v1", api_key=key)


def end(provider: Provider, response_id: str) -> None:
    """A response ends as the provider billed it."""
    provider.end(response_id, model=MODEL, usage=TOLD)


def test_objects_and_events_are_those_of_the_provider(scripted: ScriptedGateway, provider: Provider) -> None:
    def told(url: str, key: str) -> list[dict[str, Any]]:
        async def asked() -> dict[str, Any]:
            async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key) as each:
                return (await each.responses.create(**ASK)).model_dump()

        with client(url, key) as sdk:
            plain = sdk.responses.create(**ASK).model_dump()
            streamed = [event.model_dump() for event in sdk.responses.create(**ASK, stream=True)]
            with sdk.responses.stream(**ASK) as helper:
                final = helper.get_final_response().model_dump()
        return [plain, *streamed, final, asyncio.run(asked())]

    before = len(scripted.gateway.receipts())
    through = told(scripted.gateway.url, scripted.gateway.secret)
    assert through == told(scripted.upstream.url, "sk-direct")
    assert through[-3]["type"] == "response.completed"
    rows = scripted.gateway.receipts()[before:]
    assert [(row["cost_nano_usd"], row["stream"]) for row in rows] == [
        (COST, False),
        (COST, True),
        (COST, True),
        (COST, False),
    ]


def test_a_background_response_is_retrieved_and_cancelled(
    scripted: ScriptedGateway, provider: Provider
) -> None:
    gateway = scripted.gateway
    with client(gateway.url, gateway.secret) as sdk:
        first, second = (sdk.responses.create(**ASK, background=True) for _ in range(2))
        assert (first.status, first.background, first.id != second.id) == ("queued", True, True)
        assert sdk.responses.retrieve(first.id).status == "queued"
        end(provider, first.id)
        assert sdk.responses.retrieve(first.id).status == "completed"
        assert sdk.responses.cancel(second.id).status == "cancelled"
        resumed = list(sdk.responses.retrieve(first.id, stream=True, starting_after=3))
        assert (resumed[0].sequence_number, resumed[-1].type) == (4, "response.completed")
        with pytest.raises(openai.NotFoundError) as unknown:
            sdk.responses.retrieve("resp_nobody")
        assert unknown.value.code == "response_not_found"
    assert receipt_of(gateway, first.id)["cost_nano_usd"] == COST
    cancelled = receipt_of(gateway, second.id)
    assert (cancelled["cost_nano_usd"], cancelled["unpriced_reason"]) == (None, "usage_missing")


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_run_goes_on_after_its_gateway_is_gone(
    scripted: ScriptedGateway, provider: Provider, how: str
) -> None:
    gateway = scripted.gateway
    cap = gateway.make_cap(subject=how, limit_usd="5")
    with client(gateway.url, gateway.secret) as sdk:
        tags = {"x-capline-tags": f"customer:{how}"}
        runs = [sdk.responses.create(**ASK, background=True, extra_headers=tags) for _ in range(3)]
    ids = [f"{run.id}" for run in runs]
    gateway.kill() if how == "kill" else gateway.stop()
    end(provider, ids[0])
    gateway.start()
    end(provider, ids[1])

    first, second = (receipt_of(gateway, response_id) for response_id in ids[:2])
    assert [row["status"] for row in (first, second)] == ["served", "served"]
    assert [row["cost_nano_usd"] for row in (first, second)] == [COST, COST]
    billed = [provider.responses[response_id]["usage"] for response_id in ids[:2]]
    assert [first["input_tokens"], second["output_tokens"]] == [
        billed[0]["input_tokens"],
        billed[1]["output_tokens"],
    ]
    health = gateway.api("GET", "/health").json()
    assert health["counters"]["held_nano_usd"] == first["hold_nano_usd"]  # the third still runs
    with client(gateway.url, gateway.secret) as sdk:
        assert sdk.responses.retrieve(ids[2]).status == "queued"
    end(provider, ids[2])
    assert receipt_of(gateway, ids[2])["cost_nano_usd"] == COST
    assert gateway.api("GET", "/health").json()["counters"]["held_nano_usd"] == 0
    assert check_chain(gateway.receipts()) == []
    gateway.delete_cap(cap)


def receipt_of(gateway: GatewayProcess, response_id: str) -> dict[str, Any]:
    """The one receipt of a response, once it is there."""

    def found() -> list[dict[str, Any]]:
        rows = gateway.receipts()
        return [row for row in rows if row["upstream_id"] == response_id]

    (receipt,) = until(found, f"the receipt of {response_id}", 30)
    return dict(receipt)
