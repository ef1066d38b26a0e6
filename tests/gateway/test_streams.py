"""Streams: forwarded as they come, metered by their last word, and ended only when the receipt is on disk."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from sqlalchemy import func, select

from gateway.stores.tables import receipts
from tests.support.gateway import Harness
from tests.support.provider import Reply
from tests.support.raw_client import RawClient

SSE = [(b"content-type", b"text/event-stream")]
USAGE = {"prompt_tokens": 1_000, "completion_tokens": 50, "total_tokens": 1_050}


def chunk(content: str = "x", **more: Any) -> bytes:
    """One chat chunk as an event."""
    choices = [{"index": 0, "delta": {"content": content}, "finish_reason": None}]
    data = {
        "id": "chatcmpl-7",
        "object": "chat.completion.chunk",
        "model": "m-small",
        "choices": choices,
        **more,
    }
    return b"data: " + json.dumps(data).encode() + b"\n\n"


EXTRA = chunk(choices=[], usage=USAGE)
DONE = b"data: [DONE]\n\n"
CHAT = [chunk("a"), chunk("b"), EXTRA, DONE]


def event(kind: str, **fields: Any) -> bytes:
    """One Anthropic event."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


START = event(
    "message_start",
    message={
        "id": "msg_1",
        "model": "claude-test",
        "usage": {
            "input_tokens": 1_000,
            "cache_read_input_tokens": 0,
            "output_tokens": 1,
            "service_tier": "standard",
        },
    },
)
MESSAGES = [
    START,
    event("ping"),
    event("content_block_delta", index=0, delta={"type": "text_delta", "text": "message_stop"}),
    event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 50}),
    event("message_stop"),
]


async def stream(
    gateway: Harness,
    chunks: list[bytes],
    *,
    client: RawClient | None = None,
    fault: str | None = None,
    **fields: Any,
) -> RawClient:
    """A streamed chat call of customer a over these chunks of a provider."""
    gateway.provider.script = lambda seen: Reply(chunks=chunks, headers=SSE, fault=fault)
    client = client or RawClient()
    body = {"model": "m-small", "stream": True, "max_tokens": 100, "messages": [], **fields}
    headers = [(b"authorization", b"Bearer " + gateway.secret.encode()), (b"x-capline-tags", b"customer:a")]
    path = "/v1/messages" if fields.get("model") == "claude-test" else "/v1/chat/completions"
    await client.post(gateway.gateway, path, json.dumps(body).encode(), headers)
    return client


def committed(gateway: Harness) -> int:
    """Receipts on disk, read through a connection of its own."""
    with gateway.gateway.running.database.engine.connect() as connection:
        return connection.execute(select(func.count()).select_from(receipts)).scalar_one()


async def test_usage_is_asked_for_and_its_chunk_kept_from_a_client_that_did_not_ask(gateway: Harness) -> None:
    client = await stream(gateway, CHAT)
    assert json.loads(gateway.provider.seen[0].body)["stream_options"] == {"include_usage": True}
    assert client.body == b"".join([chunk("a"), chunk("b"), DONE])
    (receipt,) = await gateway.receipts()
    # 1,000 * 1,000 + 50 * 4,000 nano-USD
    assert (receipt["status"], receipt["cost_nano_usd"]) == ("served", 1_200_000)
    assert (receipt["model_served"], receipt["upstream_id"], receipt["stream"]) == (
        "m-small",
        "chatcmpl-7",
        True,
    )


async def test_a_client_that_asked_gets_every_byte(gateway: Harness) -> None:
    client = await stream(gateway, CHAT, stream_options={"include_usage": True})
    assert client.body == b"".join(CHAT)


async def test_other_stream_options_are_kept(gateway: Harness) -> None:
    await stream(gateway, CHAT, stream_options={"include_obfuscation": False})
    sent = json.loads(gateway.provider.seen[0].body)["stream_options"]
    assert sent == {"include_obfuscation": False, "include_usage": True}


@pytest.mark.parametrize("cut", [1, 7, 50])
async def test_events_may_be_cut_anywhere(gateway: Harness, cut: int) -> None:
    whole = b"".join(CHAT)
    client = await stream(gateway, [whole[at : at + cut] for at in range(0, len(whole), cut)])
    assert client.body == b"".join([chunk("a"), chunk("b"), DONE])
    assert (await gateway.receipts())[0]["cost_nano_usd"] == 1_200_000


async def test_a_usage_that_rides_on_a_content_chunk_is_forwarded(gateway: Harness) -> None:
    chunks = [chunk("a"), chunk("b", usage=USAGE), DONE]
    client = await stream(gateway, chunks)
    assert client.body == b"".join(chunks)


@pytest.mark.parametrize(
    ("chunks", "model", "final"), [(CHAT, "m-small", DONE), (MESSAGES, "claude-test", MESSAGES[-1])]
)
async def test_the_end_leaves_only_when_the_receipt_is_on_disk(
    gateway: Harness, chunks: list[bytes], model: str, final: bytes
) -> None:  # contract §10
    seen: list[tuple[bytes, int]] = []
    client = RawClient(lambda message: seen.append((message.get("body", b""), committed(gateway))))
    await stream(gateway, chunks, client=client, model=model)
    assert client.ended
    assert [count for body, count in seen if final in body] == [1]
    assert all(count == 0 for body, count in seen[:-1])


async def test_headers_come_before_the_first_chunk(gateway: Harness) -> None:  # R105
    await gateway.make_cap(limit_usd="1")
    client = await stream(gateway, CHAT)
    assert client.messages[0]["type"] == "http.response.start"
    names = dict(client.messages[0]["headers"])
    assert names[b"x-capline-budget-scope"] == b"customer"
    assert b"x-capline-cost-usd" not in names


async def test_anthropic_usage_is_cumulative_and_the_last_value_counts(gateway: Harness) -> None:
    client = await stream(gateway, MESSAGES, model="claude-test")
    assert client.body == b"".join(MESSAGES)
    (receipt,) = await gateway.receipts()
    # 1,000 * 4,000 + 50 * 20,000 nano-USD
    assert (receipt["cost_nano_usd"], receipt["output_tokens"], receipt["cache_read_tokens"]) == (
        5_000_000,
        50,
        0,
    )
    assert receipt["service_tier"] == "standard"


@pytest.mark.parametrize("fault", [None, "cut"])
@pytest.mark.parametrize(("chunks", "model"), [([chunk("a")], "m-small"), (MESSAGES[:3], "claude-test")])
async def test_a_stream_that_does_not_end_is_abandoned_and_its_connection_breaks(
    gateway: Harness, chunks: list[bytes], model: str, fault: str | None
) -> None:
    client = await stream(gateway, chunks, model=model, fault=fault)
    assert not client.ended
    assert client.body == b"".join(chunks)
    (receipt,) = await gateway.receipts()
    assert (receipt["status"], receipt["cost_nano_usd"]) == ("abandoned", None)
    partial = model == "claude-test"
    # what the provider said it read before it broke off is worth more than the hold of this small body
    assert receipt["counted_nano_usd"] == (4_020_000 if partial else receipt["hold_nano_usd"])
    assert receipt["usage_source"] == ("partial" if partial else "none")
    assert receipt["input_tokens"] == (1_000 if partial else None)


async def test_an_error_within_a_stream_is_no_whole_answer(gateway: Harness) -> None:
    client = await stream(gateway, [chunk("a"), b'data: {"error": {"message": "overloaded"}}\n\n', DONE])
    assert not client.ended
    assert (await gateway.receipts())[0]["status"] == "abandoned"


async def test_a_stream_whose_client_left_is_read_to_its_end(gateway: Harness) -> None:
    client = RawClient()
    client._on_message = lambda message: client.gone.set() if b"a" in message.get("body", b"") else None
    await stream(gateway, CHAT, client=client)
    await gateway.gateway.running.plane.drain()
    (receipt,) = await gateway.receipts()
    assert (receipt["status"], receipt["client_left"], receipt["cost_nano_usd"]) == (
        "served",
        True,
        1_200_000,
    )


async def test_after_its_client_left_an_answer_is_read_for_drain_s_only(gateway: Harness) -> None:
    object.__setattr__(gateway.gateway.running.services.settings, "drain_s", 0)
    gate = asyncio.Event()
    gateway.provider.script = lambda seen: Reply(chunks=CHAT, headers=SSE, gate=gate)
    client = RawClient()
    body = json.dumps({"model": "m-small", "stream": True, "messages": []}).encode()
    headers = [(b"authorization", b"Bearer " + gateway.secret.encode())]
    call = asyncio.create_task(client.post(gateway.gateway, "/v1/chat/completions", body, headers))
    await gateway.provider.until_called()
    client.gone.set()
    await asyncio.wait_for(call, 5)
    (receipt,) = await gateway.receipts()
    assert (receipt["status"], receipt["client_left"]) == ("abandoned", True)


async def test_a_cap_crossed_in_a_stream_does_not_cut_it(gateway: Harness) -> None:  # R113
    await gateway.make_cap(limit_usd="0.0005", admission="after")
    client = await stream(gateway, CHAT)
    assert client.ended
    assert client.body.endswith(DONE)
    refused = await gateway.chat(customer="a")
    assert refused.status_code == 402
