"""OpenAI responses through the gateway: bounds of a request, usage of an answer, the end of a stream."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sqlalchemy import func, select

from gateway.dialects.base import BadRequest, Call
from gateway.dialects.openai_responses_request import DEFAULT_SEARCHES, IMAGE_TOKENS, MOST_TURNS, parse
from gateway.stores.tables import receipts
from tests.support.gateway import Harness
from tests.support.provider import Reply
from tests.support.raw_client import RawClient
from tests.support.responses import SSE, events, message, response, sse, usage

ROUTE = "/v1/responses"
IMAGE = "data:image/png;base64," + "A" * 5_000


def parsed(**fields: Any) -> Call:
    """A parsed request."""
    return parse(json.dumps({"model": "m-small", "input": "hi", **fields}).encode())


def asking(*parts: dict[str, Any]) -> list[dict[str, Any]]:
    """An input of one message."""
    return [{"role": "user", "content": list(parts)}]


async def ask(gateway: Harness, answer: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The receipt of a call that the provider answers so."""
    body = json.dumps(answer).encode()
    gateway.provider.script = lambda seen: Reply(body=body)
    sent = {"authorization": f"Bearer {gateway.secret}"}
    reply = await gateway.http.post(ROUTE, json={"model": "m-small", "input": "hi", **fields}, headers=sent)
    assert (reply.status_code, reply.content) == (200, body)
    receipt = (await gateway.receipts())[-1]
    assert reply.headers.get("x-capline-cost-usd") == receipt.get("cost_usd", nine(receipt["cost_nano_usd"]))
    return receipt


async def stream(
    gateway: Harness, chunks: list[bytes], *, client: RawClient | None = None, fault: str | None = None
) -> RawClient:
    """A streamed call over these chunks."""
    gateway.provider.script = lambda seen: Reply(chunks=chunks, headers=SSE, fault=fault)
    client = client or RawClient()
    body = json.dumps({"model": "m-small", "input": "hi", "stream": True}).encode()
    await client.post(gateway.gateway, ROUTE, body, [(b"authorization", f"Bearer {gateway.secret}".encode())])
    return client


def nine(nano_usd: int | None) -> str | None:
    """Dollars with nine decimals."""
    return None if nano_usd is None else f"{nano_usd // 10**9}.{nano_usd % 10**9:09}"


# What a request may cost


def test_a_plain_request_is_bounded_by_its_bytes() -> None:
    for said in ("hi", asking({"type": "input_text", "text": "hi"}), [{"role": "user", "content": "hi"}]):
        bounds = parsed(input=said, max_output_tokens=9).bounds
        assert (bounds.text_bytes, bounds.media_tokens) == (bounds.body_bytes, 0)
        assert (bounds.reaches_out, bounds.turns, bounds.output_limit) == (False, 1, 9)
        assert (bounds.fees, bounds.tier) == ((), "standard")


@pytest.mark.parametrize(
    "items",
    [
        asking({"type": "input_image", "image_url": IMAGE, "detail": "auto"}),
        [
            {
                "type": "function_call_output",
                "call_id": "c",
                "output": [{"type": "input_image", "image_url": IMAGE}],
            }
        ],
        [
            {
                "type": "computer_call_output",
                "call_id": "c",
                "output": {"type": "computer_screenshot", "image_url": IMAGE},
            }
        ],
    ],
    ids=["message", "tool", "screenshot"],
)
def test_an_inline_image_is_bounded_by_count_and_not_by_its_bytes(items: list[Any]) -> None:
    bounds = parsed(input=items).bounds
    assert bounds.body_bytes - bounds.text_bytes == len(IMAGE)
    assert (bounds.media_tokens, bounds.reaches_out) == (IMAGE_TOKENS, False)


@pytest.mark.parametrize(
    "fields",
    [
        {"previous_response_id": "resp_0"},
        {"conversation": "conv_1"},
        {"prompt": {"id": "pmpt_1"}},
        {"input": [{"type": "item_reference", "id": "msg_1"}]},
        {"input": [{"id": "msg_1"}]},
        {"input": [{"type": "mystery", "content": "x"}]},
        {"input": asking({"type": "input_image", "file_id": "file_1"})},
        {"input": asking({"type": "input_image", "image_url": "https://x.test/a.png"})},
        {"input": asking({"type": "input_file", "file_url": "https://x.test/a.pdf"})},
        {"input": asking({"type": "input_file", "file_data": "data:application/pdf;base64,AA"})},
        {"input": asking({"type": "input_\u0066ile", "file_id": "f"})},
        {"input": ["hi"]},
        {"tools": [{"type": "web_search"}]},
        {"tools": [{"type": "file_search", "vector_store_ids": ["vs"]}]},
        {"tools": [{"type": "mcp", "server_label": "x"}]},
        {"tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]},
        {"tools": [{"type": "shell", "environment": {"type": "container_auto"}}]},
        {"tools": [{"type": "shell"}]},
        {"tools": [{"type": "nobody knows"}]},
    ],
    ids=lambda fields: json.dumps(fields)[:60],
)
def test_what_the_body_does_not_hold_counts_as_all_that_the_model_can_read(fields: dict[str, Any]) -> None:
    assert parsed(**fields).bounds.reaches_out


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "function", "name": "f", "parameters": {}},
        {"type": "custom", "name": "c"},
        {"type": "namespace", "name": "n", "tools": []},
        {"type": "local_shell"},
        {"type": "shell", "environment": {"type": "local"}},
        {"type": "apply_patch"},
        {"type": "computer"},
    ],
    ids=lambda tool: str(tool["type"]),
)
def test_a_tool_that_the_client_runs_adds_no_turn(tool: dict[str, Any]) -> None:
    bounds = parsed(tools=[tool]).bounds
    assert (bounds.reaches_out, bounds.turns, bounds.fees) == (False, 1, ())


def test_hosted_tools_read_the_prompt_again_and_searches_cost_a_fee() -> None:
    search = [{"type": "web_search_preview"}]
    bounds = parsed(tools=search).bounds
    assert (bounds.turns, bounds.fees) == (MOST_TURNS, (("web_search", DEFAULT_SEARCHES),))
    bounds = parsed(tools=search, max_tool_calls=3).bounds
    assert (bounds.turns, bounds.fees) == (4, (("web_search", 3),))
    assert parsed(tools=[{"type": "mcp"}], max_tool_calls=0).bounds.turns == 1
    assert parsed(context_management=[{"type": "compaction"}]).bounds.turns == 2


def test_the_tier_asked_for_is_the_one_held() -> None:
    tiers = ["default", "auto", "flex", "priority", "fast", "scale", "ultrafast"]
    found = [parsed(service_tier=tier).bounds.tier for tier in tiers]
    assert found == ["standard", "standard", "flex", "priority", "priority", "scale", "ultrafast"]
    assert parsed(background=True, background_options={"completion_window": "2h"}).bounds.tier == "2h"
    assert (
        parsed(background=True, background_options={"completion_window": "soonest"}).bounds.tier == "standard"
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"max_output_tokens": -1},
        {"max_output_tokens": True},
        {"max_tool_calls": -1},
        {"tools": ["x"]},
        {"model": ""},
    ],
    ids=str,
)
def test_what_no_provider_could_answer_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        parsed(**fields)


# What an answer cost


@pytest.mark.parametrize("status", ["completed", "incomplete", "failed"])
async def test_an_answer_that_ended_costs_what_it_used(gateway: Harness, status: str) -> None:
    told = usage(1_000, 50, cached=600, reasoning=20)
    receipt = await ask(gateway, response(status, usage=told))
    # 400 * 1,000 + 600 * 100 + 50 * 4,000 nano-USD
    assert (receipt["status"], receipt["cost_nano_usd"]) == ("served", 660_000)
    assert (receipt["input_tokens"], receipt["cache_read_tokens"]) == (400, 600)
    assert (receipt["output_tokens"], receipt["reasoning_tokens"]) == (50, 20)
    assert (receipt["model_served"], receipt["upstream_id"], receipt["service_tier"]) == (
        "m-small",
        "resp_1",
        "default",
    )
    assert (receipt["route"], receipt["usage_source"]) == (ROUTE, "final")


@pytest.mark.parametrize("status", ["completed", "failed"])
async def test_a_usage_that_is_null_is_missing_and_never_zero(gateway: Harness, status: str) -> None:
    receipt = await ask(gateway, response(status, usage=None))
    assert (receipt["status"], receipt["cost_nano_usd"]) == ("served", None)
    assert receipt["unpriced_reason"] == "usage_missing"
    assert receipt["counted_nano_usd"] == receipt["hold_nano_usd"] > 0
    assert receipt["input_tokens"] is None


async def test_an_explicit_zero_is_a_cost(gateway: Harness) -> None:
    assert (await ask(gateway, response(usage=usage(0, 0))))["cost_nano_usd"] == 0


async def test_a_usage_that_does_not_add_up_is_never_guessed(gateway: Harness) -> None:
    receipt = await ask(gateway, response(usage={**usage(), "total_tokens": 99}))
    assert (receipt["cost_nano_usd"], receipt["unpriced_reason"]) == (None, "usage_inconsistent")


async def test_a_tier_that_is_not_listed_is_not_priced_as_standard(gateway: Harness) -> None:
    receipt = await ask(gateway, response(service_tier="ultrafast"))
    assert (receipt["cost_nano_usd"], receipt["service_tier"]) == (None, "ultrafast")
    assert receipt["unpriced_reason"] == "no_list_price_for_service_tier"


async def test_a_discounted_window_is_not_priced_as_standard(gateway: Harness) -> None:
    window = {"completion_window": "8h"}
    receipt = await ask(gateway, response(), background=True, background_options=window)
    assert receipt["unpriced_reason"] == "no_list_price_for_service_tier"


SEARCH = {
    "id": "ws_1",
    "type": "web_search_call",
    "status": "completed",
    "action": {"type": "search", "query": "q"},
}
OPENED = {**SEARCH, "id": "ws_2", "action": {"type": "open_page", "url": "u"}}


@pytest.mark.parametrize(
    ("fields", "units"),
    [
        ({"tool_usage": {"web_search": {"num_requests": 3}}, "output": [SEARCH]}, {"web_search": 3}),
        ({"tool_usage": {"web_search": {"num_requests": 0}}, "output": [OPENED]}, {"web_search": 0}),
        ({"output": [SEARCH, OPENED, SEARCH, message()]}, {"web_search": 2}),
        ({"output": [OPENED]}, None),
        ({"output": [{"type": "file_search_call", "id": "fs", "queries": []}]}, {"file_search": 1}),
        (
            {"output": [{"type": "code_interpreter_call", "container_id": "cntr_1", "code": ""}] * 2},
            {"containers": 1},
        ),
    ],
)
async def test_tools_that_the_provider_ran_are_units(
    gateway: Harness, fields: dict[str, Any], units: dict[str, int] | None
) -> None:
    receipt = await ask(gateway, response(**fields))
    assert receipt["units"] == units
    if units is not None and any(units.values()):  # this list has no fee: the answer is not priced without it
        assert (receipt["cost_nano_usd"], receipt["unpriced_reason"]) == (None, "rate_missing")


async def test_a_providers_no_passes_through(gateway: Harness) -> None:
    body = b'{"error": {"message": "no", "type": "invalid_request_error", "param": null, "code": null}}'
    gateway.provider.script = lambda seen: Reply(body=body, status=400)
    sent = {"authorization": f"Bearer {gateway.secret}"}
    reply = await gateway.http.post(ROUTE, json={"model": "m-small", "input": "hi"}, headers=sent)
    assert (reply.status_code, reply.content) == (400, body)
    assert (await gateway.receipts())[-1]["status"] == "failed"


async def test_only_a_stripped_model_id_changes_the_body(gateway: Harness) -> None:
    gateway.provider.script = lambda seen: Reply(body=json.dumps(response()).encode())
    sent = {"authorization": f"Bearer {gateway.secret}"}
    body = b'{ "model":"m-small",\n"input" : "h\\u0069", "stream":false}'
    await gateway.http.post(ROUTE, content=body, headers=sent)
    assert gateway.provider.seen[-1].body == body
    assert gateway.provider.seen[-1].url == "http://provider.test/v1/responses"
    await gateway.http.post(ROUTE, content=body.replace(b"m-small", b"openai/m-small"), headers=sent)
    assert json.loads(gateway.provider.seen[-1].body)["model"] == "m-small"


# Streams


@pytest.mark.parametrize("status", ["completed", "incomplete", "failed"])
@pytest.mark.parametrize("cut", [None, 1, 50])
async def test_the_event_that_ends_a_stream_carries_its_usage(
    gateway: Harness, status: str, cut: int | None
) -> None:
    chunks = sse(events(status, usage=usage(1_000, 50, cached=600)))
    whole = b"".join(chunks)
    client = await stream(
        gateway, chunks if cut is None else [whole[at : at + cut] for at in range(0, len(whole), cut)]
    )
    assert (client.body, client.ended) == (whole, True)
    (receipt,) = await gateway.receipts()
    assert (receipt["status"], receipt["cost_nano_usd"], receipt["stream"]) == ("served", 660_000, True)
    assert (receipt["model_served"], receipt["upstream_id"]) == ("m-small", "resp_1")


async def test_the_end_and_what_comes_after_it_leave_only_when_the_receipt_is_on_disk(
    gateway: Harness,
) -> None:
    def committed() -> int:
        with gateway.gateway.running.database.engine.connect() as connection:
            return connection.execute(select(func.count()).select_from(receipts)).scalar_one()

    told = events()
    after = {"type": "response.steer.failed", "sequence_number": 99}
    chunks = [*sse([*told, after]), b"data: [DONE]\n\n"]
    seen: list[tuple[bytes, int]] = []
    client = RawClient(lambda message: seen.append((message.get("body", b""), committed())))
    await stream(gateway, chunks, client=client)
    assert client.body == b"".join(chunks)
    assert seen[-1] == (b"".join(chunks[len(told) - 1 :]), 1)
    assert all(count == 0 for _, count in seen[:-1])


async def test_a_stream_that_ends_without_usage_is_missing_it(gateway: Harness) -> None:
    client = await stream(gateway, sse(events("failed", usage=None)))
    assert client.ended
    (receipt,) = await gateway.receipts()
    assert (receipt["status"], receipt["unpriced_reason"]) == ("served", "usage_missing")


@pytest.mark.parametrize("fault", [None, "cut"])
async def test_a_stream_that_does_not_end_is_abandoned(gateway: Harness, fault: str | None) -> None:
    error = {"type": "error", "code": "server_error", "message": "x", "param": None, "sequence_number": 5}
    chunks = sse([*events()[:5], error])
    client = await stream(gateway, chunks, fault=fault)
    assert (client.body, client.ended) == (b"".join(chunks), False)
    (receipt,) = await gateway.receipts()
    assert (receipt["status"], receipt["cost_nano_usd"]) == ("abandoned", None)
    assert receipt["counted_nano_usd"] == receipt["hold_nano_usd"] > 0
    assert receipt["upstream_id"] == "resp_1"


@pytest.mark.parametrize("at", range(len(events())))
async def test_a_client_may_leave_at_any_event_and_it_is_priced_once(gateway: Harness, at: int) -> None:
    chunks = sse(events(usage=usage(1_000, 50)))
    client = RawClient()
    client._on_message = lambda message: client.gone.set() if chunks[at] in message.get("body", b"") else None
    await stream(gateway, chunks, client=client)
    await gateway.gateway.running.plane.drain()
    (receipt,) = await gateway.receipts()
    assert (receipt["status"], receipt["cost_nano_usd"]) == ("served", 1_200_000)
    assert len(gateway.provider.seen) == 1
