"""Anthropic messages, whole and streamed: every class of tokens once, every tier at its own row."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.gateway import Harness, running_gateway
from tests.support.prices import row
from tests.support.provider import Reply
from tests.support.raw_client import RawClient

SSE = [(b"content-type", b"text/event-stream")]
RATES = {"input": "4", "output": "20", "cache_read": "0.4", "cache_write_5m": "5", "cache_write_1h": "8"}


def claude(model: str = "c-large", **more: Any) -> dict[str, Any]:
    """A row of the provider `anthropic` with a search fee."""
    rates = more.pop("rates", RATES)
    return {**row(model, **rates), "provider": "anthropic", "fees": {"web_search": "0.01"}, **more}


ROWS = [
    claude(),
    claude(
        rates={name: str(float(rate) * 2).removesuffix(".0") for name, rate in RATES.items()}, tier="fast"
    ),
    claude(rates={"input": "4.4", "output": "22", "cache_read": "0.44"}, tier="us"),
    claude("c-small", rates={"input": "1", "output": "5", "cache_read": "0.1"}),
]
PLAIN = {"input_tokens": 1_000, "output_tokens": 50}
CASES: list[tuple[dict[str, Any], int | None, str | None]] = [
    (PLAIN, 5_000_000, None),
    # B56: written tokens are no input
    (
        {
            "input_tokens": 10,
            "cache_creation_input_tokens": 20_000,
            "cache_read_input_tokens": 0,
            "output_tokens": 500,
        },
        110_040_000,
        None,
    ),
    # B70: an hour's writes have their own rate
    (
        {
            "input_tokens": 0,
            "output_tokens": 0,
            "cache_creation_input_tokens": 20_000,
            "cache_creation": {"ephemeral_5m_input_tokens": 10_000, "ephemeral_1h_input_tokens": 10_000},
        },
        130_000_000,
        None,
    ),
    (
        {
            **PLAIN,
            "cache_creation_input_tokens": 5,
            "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 10},
        },
        None,
        "usage_inconsistent",
    ),
    # B77: searches, and fetches that are free
    ({**PLAIN, "server_tool_use": {"web_search_requests": 2, "web_fetch_requests": 3}}, 25_000_000, None),
    # B76
    ({**PLAIN, "server_tool_use": {"web_search_requests": 0}}, 5_000_000, None),
    ({**PLAIN, "speed": "fast"}, 10_000_000, None),
    ({**PLAIN, "speed": "standard", "inference_geo": "global", "service_tier": "standard"}, 5_000_000, None),
    ({**PLAIN, "inference_geo": "us"}, 5_500_000, None),
    ({**PLAIN, "service_tier": "priority"}, None, "no_list_price_for_service_tier"),
    ({**PLAIN, "service_tier": "batch", "inference_geo": "us"}, None, "no_list_price_for_service_tier"),
    # B64: thinking is a part of the output
    ({**PLAIN, "output_tokens_details": {"thinking_tokens": 45}}, 5_000_000, None),
    ({"input_tokens": 0, "output_tokens": 0}, 0, None),
    ({"input_tokens": 5, "output_tokens": -1}, None, "usage_invalid"),
    ({"input_tokens": 5, "output_tokens": True}, None, "usage_invalid"),
    ({"input_tokens": 5}, None, "usage_missing"),
    # a turn of another model, at that model's row
    (
        {
            **PLAIN,
            "iterations": [
                {"type": "message", **PLAIN},
                {"type": "advisor_message", "model": "c-small", "input_tokens": 1_500, "output_tokens": 220},
            ],
        },
        5_000_000 + 1_500_000 + 1_100_000,
        None,
    ),
    # a compaction, which the top-level counts leave out
    (
        {
            **PLAIN,
            "iterations": [
                {"type": "compaction", "input_tokens": 500, "output_tokens": 10},
                {"type": "message", **PLAIN},
            ],
        },
        5_000_000 + 2_000_000 + 200_000,
        None,
    ),
]


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Harness]:
    """A gateway over this file's rows."""
    async with running_gateway(tmp_path, rows=ROWS) as harness:
        yield harness


def message(usage: Any, stop: str | None = "end_turn") -> dict[str, Any]:
    """A message with this usage."""
    content = [{"type": "text", "text": "ok"}]
    ids = {"id": "msg_1", "type": "message", "role": "assistant", "model": "c-large"}
    return {**ids, "content": content, "stop_reason": stop, "usage": usage}


def event(kind: str, **fields: Any) -> bytes:
    """One event."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def streamed(first: dict[str, Any], *deltas: dict[str, Any]) -> list[bytes]:
    """A stream whose `message_start` and `message_delta`s say these usages."""
    text = {"type": "text_delta", "text": 'a "message_stop" and an "error"'}
    return [
        event("message_start", message=message(first, None)),
        event("content_block_delta", index=0, delta=text),
        event("ping"),
        *[event("message_delta", delta={"stop_reason": "end_turn"}, usage=usage) for usage in deltas],
        event("message_stop"),
    ]


async def ask(
    gateway: Harness, reply: Reply, client: RawClient | None = None, **fields: Any
) -> dict[str, Any]:
    """One call with this answer, and the one receipt it leaves."""
    gateway.provider.script = lambda seen: reply
    body = {"model": "c-large", "max_tokens": 100, "messages": [], "stream": bool(reply.chunks), **fields}
    headers = [(b"x-api-key", gateway.secret.encode()), (b"x-capline-tags", b"customer:a")]
    client = client or RawClient()
    await client.post(gateway.gateway, "/v1/messages", json.dumps(body).encode(), headers)
    await gateway.gateway.running.plane.drain()
    (receipt,) = await gateway.receipts()
    return receipt


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
@pytest.mark.parametrize(("usage", "cost", "reason"), CASES)
async def test_what_the_usage_says_is_what_it_costs(
    gateway: Harness, usage: Any, cost: int | None, reason: str | None, stream: bool
) -> None:
    start = {**usage, "output_tokens": 1}
    chunks = streamed(start, {key: value for key, value in usage.items() if key == "output_tokens"})
    if "iterations" in usage:  # the turns stand in the last delta, where all of them have ended
        chunks = streamed({**PLAIN, "output_tokens": 1}, usage)
    reply = Reply(chunks=chunks, headers=SSE) if stream else Reply(body=json.dumps(message(usage)).encode())
    receipt = await ask(gateway, reply)
    assert (receipt["status"], receipt["cost_nano_usd"], receipt["unpriced_reason"]) == (
        "served",
        cost,
        reason,
    )
    assert receipt["counted_nano_usd"] == (receipt["hold_nano_usd"] if cost is None else cost)


@pytest.mark.parametrize("stop", ["refusal", "max_tokens", "pause_turn"])
async def test_a_refusal_and_a_cut_answer_are_billed(gateway: Harness, stop: str) -> None:
    receipt = await ask(gateway, Reply(body=json.dumps(message(PLAIN, stop)).encode()))
    assert (receipt["status"], receipt["cost_nano_usd"]) == ("served", 5_000_000)


@pytest.mark.parametrize(
    ("start", "deltas", "cost"),
    [
        # B55: counts grow, and only the last one stands
        (
            {"input_tokens": 1_000, "output_tokens": 1},
            [{"output_tokens": 10}, {"output_tokens": 50}],
            5_000_000,
        ),
        # a later delta revises the input, and a null says nothing
        (
            {"input_tokens": 9_000, "output_tokens": 1},
            [{"input_tokens": 1_000, "output_tokens": 50}, {"input_tokens": None, "output_tokens": 50}],
            5_000_000,
        ),
        # clones say the whole prompt first and split it at the end
        (
            {"input_tokens": 1_900, "output_tokens": 0},
            [{"input_tokens": 1_000, "cache_read_input_tokens": 900, "output_tokens": 50}],
            5_360_000,
        ),
        # zeros that are said stay zero
        ({"input_tokens": 1_000, "output_tokens": 7}, [{"input_tokens": 0, "output_tokens": 0}], 0),
    ],
)
async def test_of_each_field_the_last_value_counts(
    gateway: Harness, start: Any, deltas: Any, cost: int
) -> None:
    receipt = await ask(gateway, Reply(chunks=streamed(start, *deltas), headers=SSE))
    assert (receipt["status"], receipt["cost_nano_usd"]) == ("served", cost)


@pytest.mark.parametrize("stopped", [False, True])
async def test_an_error_within_a_stream_leaves_what_was_seen(gateway: Harness, stopped: bool) -> None:
    chunks = streamed({"input_tokens": 500, "output_tokens": 1})[:2]
    chunks.append(event("error", error={"type": "overloaded_error", "message": "Overloaded"}))
    chunks += [event("message_stop")] if stopped else []
    client = RawClient()
    receipt = await ask(gateway, Reply(chunks=chunks, headers=SSE), client)
    assert not client.ended
    assert b"overloaded_error" in client.body
    assert (receipt["status"], receipt["cost_nano_usd"], receipt["usage_source"]) == (
        "abandoned",
        None,
        "partial",
    )
    # 500 * 4,000 + 1 * 20,000: the lower bound of ant-018, and no less than the hold
    assert receipt["counted_nano_usd"] == max(2_020_000, receipt["hold_nano_usd"])


@pytest.mark.parametrize("leave_at", range(6))
async def test_a_client_may_leave_at_any_event_and_the_answer_is_priced_once(
    gateway: Harness, leave_at: int
) -> None:
    client = RawClient()
    client._on_message = lambda _: client.gone.set() if len(client.messages) == leave_at else None
    reply = Reply(
        chunks=streamed({"input_tokens": 1_000, "output_tokens": 1}, {"output_tokens": 50}), headers=SSE
    )
    receipt = await ask(gateway, reply, client)
    assert (receipt["status"], receipt["cost_nano_usd"]) == ("served", 5_000_000)


@pytest.mark.parametrize(
    ("fields", "output_rate"),
    [
        ({"inference_geo": "global"}, 20_000),
        ({"inference_geo": "us"}, 22_000),
        ({}, 22_000),
        ({"speed": "fast"}, 40_000),
    ],
)
async def test_the_hold_covers_the_speed_and_the_geography_that_may_be_served(
    gateway: Harness, fields: dict[str, str], output_rate: int
) -> None:
    receipt = await ask(gateway, Reply(body=json.dumps(message(PLAIN)).encode()), **fields)
    input_rate = output_rate // 5
    assert receipt["hold_nano_usd"] == receipt["request_bytes"] * input_rate + 100 * output_rate
