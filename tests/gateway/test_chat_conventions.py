"""Chat answers of OpenAI and of those who speak its dialect: each at its own convention (facts/pricing §3)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.test_streams import CHAT, DONE, EXTRA, SSE, USAGE, chunk, stream
from tests.support.gateway import PROVIDERS, Harness, running_gateway
from tests.support.prices import ROWS, row
from tests.support.provider import Reply, chat_answer
from tests.support.raw_client import RawClient

SEARCH = {"web_search": "0.025"}
TIERED = [
    *ROWS,
    {**row("m-web", input="1", output="4"), "fees": SEARCH},
    {**row("m-search-preview", input="1", output="4"), "fees": SEARCH},
    row("m-search-api", input="1", output="4"),
    row("m-audio", input="2.5", output="10", audio_input="32", audio_output="64"),
    {**row("m-small", input="2", output="8"), "tier": "priority"},
]


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Harness]:
    """A gateway with a priority tier and a model that hears."""
    async with running_gateway(tmp_path, rows=TIERED) as harness:
        yield harness


async def asked(gateway: Harness, answer: bytes, **fields: Any) -> dict[str, Any]:
    """The receipt of a chat that the provider answers so."""
    gateway.provider.script = lambda seen: Reply(body=answer)
    await gateway.chat(**fields)
    return (await gateway.receipts())[-1]


async def test_rejected_predictions_are_billed_as_output(gateway: Harness) -> None:
    details = {"accepted_prediction_tokens": 2, "rejected_prediction_tokens": 30, "reasoning_tokens": 0}
    receipt = await asked(gateway, chat_answer(output=40, completion_tokens_details=details))
    assert (receipt["cost_nano_usd"], receipt["output_tokens"]) == (10 * 1_000 + 40 * 4_000, 40)


async def test_audio_has_rates_of_its_own(gateway: Harness) -> None:
    made = {"prompt_tokens_details": {"audio_tokens": 4}, "completion_tokens_details": {"audio_tokens": 3}}
    receipt = await asked(gateway, chat_answer("m-audio", **made), model="m-audio")
    assert receipt["cost_nano_usd"] == 6 * 2_500 + 4 * 32_000 + 2 * 10_000 + 3 * 64_000
    assert (receipt["input_tokens"], receipt["audio_input_tokens"]) == (6, 4)


async def test_audio_without_a_rate_is_not_taken_for_text(gateway: Harness) -> None:
    receipt = await asked(gateway, chat_answer(prompt_tokens_details={"audio_tokens": 4}))
    assert (receipt["cost_nano_usd"], receipt["unpriced_reason"]) == (None, "rate_missing")


@pytest.mark.parametrize("details", [None, {}, {"cached_tokens": None}])
async def test_details_that_are_null_say_nothing(gateway: Harness, details: Any) -> None:
    receipt = await asked(gateway, chat_answer(prompt_tokens_details=details, completion_tokens_details=None))
    assert (receipt["cost_nano_usd"], receipt["cache_read_tokens"]) == (30_000, None)


async def test_a_fast_request_is_held_and_priced_as_priority(gateway: Harness) -> None:
    answer = json.loads(chat_answer()) | {"service_tier": "priority"}
    receipt = await asked(gateway, json.dumps(answer).encode(), service_tier="fast")
    assert (receipt["cost_nano_usd"], receipt["service_tier"]) == (10 * 2_000 + 5 * 8_000, "priority")
    assert receipt["hold_nano_usd"] == receipt["request_bytes"] * 2_000 + 10 * 8_000


async def test_the_served_tier_prices_and_not_the_asked_one(gateway: Harness) -> None:
    answer = json.loads(chat_answer()) | {"service_tier": "default"}
    receipt = await asked(gateway, json.dumps(answer).encode(), service_tier="priority")
    assert receipt["cost_nano_usd"] == 30_000


async def test_a_usage_that_does_not_add_up_is_named(gateway: Harness) -> None:
    receipt = await asked(gateway, chat_answer(total_tokens=99))
    assert (receipt["cost_nano_usd"], receipt["unpriced_reason"]) == (None, "usage_inconsistent")
    assert receipt["counted_nano_usd"] == receipt["hold_nano_usd"]


async def test_zeros_that_are_said_are_a_cost(gateway: Harness) -> None:
    receipt = await asked(gateway, chat_answer(prompt=0, output=0))
    assert (receipt["cost_nano_usd"], receipt["input_tokens"], receipt["unpriced_reason"]) == (0, 0, None)


async def test_null_usage_on_every_chunk_but_the_last_says_nothing(gateway: Harness) -> None:
    await stream(gateway, [chunk("a", usage=None), chunk("b", usage=None), EXTRA, DONE])
    assert (await gateway.receipts())[0]["cost_nano_usd"] == 1_200_000


@pytest.mark.parametrize(
    "chunks", [[chunk("a"), DONE], [chunk("a", usage=None), DONE], [chunk("a", usage={}), DONE]]
)
async def test_a_whole_stream_without_usage_has_no_cost(gateway: Harness, chunks: list[bytes]) -> None:
    client = await stream(gateway, chunks)
    assert client.ended
    (receipt,) = await gateway.receipts()
    assert (receipt["status"], receipt["unpriced_reason"]) == ("served", "usage_missing")
    assert receipt["counted_nano_usd"] == receipt["hold_nano_usd"]


async def test_comments_are_passed_on_and_say_nothing(gateway: Harness) -> None:
    comments = [b": OPENROUTER PROCESSING\n\n", *CHAT]
    client = await stream(gateway, comments, stream_options={"include_usage": True})
    assert client.body == b"".join(comments)
    assert (await gateway.receipts())[0]["cost_nano_usd"] == 1_200_000


async def test_a_stream_says_what_the_provider_took_for_it(gateway: Harness) -> None:
    dear = chunk(
        choices=[], usage={**USAGE, "cost": 0.0012345, "cost_details": {"upstream_inference_cost": None}}
    )
    await stream(gateway, [chunk("a"), dear, DONE])
    (receipt,) = await gateway.receipts()
    assert (receipt["provider_cost_nano_usd"], receipt["cost_nano_usd"]) == (1_234_500, 1_200_000)


async def test_an_error_after_usage_is_still_no_whole_answer(gateway: Harness) -> None:
    failed = {"finish_reason": "error", "index": 0, "delta": {"content": ""}}
    error = chunk(choices=[failed], error={"code": 502, "message": "lost"}, usage=USAGE)
    await stream(gateway, [chunk("a"), error, DONE])
    (receipt,) = await gateway.receipts()
    assert (receipt["status"], receipt["cost_nano_usd"], receipt["usage_source"]) == (
        "abandoned",
        None,
        "partial",
    )
    assert receipt["counted_nano_usd"] == max(1_200_000, receipt["hold_nano_usd"])


async def test_usage_so_far_on_a_chunk_in_the_middle_is_not_the_end(gateway: Harness) -> None:
    so_far = {"prompt_tokens": 1_000, "completion_tokens": 1, "total_tokens": 1_001}
    await stream(gateway, [chunk("a", usage=so_far)])  # as vLLM's continuous_usage_stats, then nothing more
    (receipt,) = await gateway.receipts()
    assert (receipt["status"], receipt["cost_nano_usd"]) == ("abandoned", None)


async def test_groq_tells_its_usage_beside_the_last_chunk(gateway: Harness) -> None:
    stop = [{"index": 0, "delta": {}, "finish_reason": "stop"}]
    last = chunk(
        choices=stop, x_groq={"id": "req_1", "usage": {**USAGE, "queue_time": 0.01, "total_time": 0.2}}
    )
    client = await stream(gateway, [chunk("a"), last, DONE])
    assert client.body == b"".join([chunk("a"), last, DONE])
    assert (await gateway.receipts())[0]["cost_nano_usd"] == 1_200_000


async def test_mistral_is_not_asked_for_usage_that_it_tells_anyway(tmp_path: Path) -> None:
    mistral = replace(PROVIDERS[0], usage="mistral")
    async with running_gateway(tmp_path, providers=(mistral,)) as gateway:
        stop = [{"index": 0, "delta": {"content": ""}, "finish_reason": "stop"}]
        chunks = [chunk("a"), chunk(choices=stop, usage=USAGE), DONE]
        client = await stream(gateway, chunks)
        assert "stream_options" not in json.loads(gateway.provider.seen[0].body)
        assert client.body == b"".join(chunks)
        assert (await gateway.receipts())[0]["cost_nano_usd"] == 1_200_000


async def test_reasoning_beside_the_completion_is_told_by_the_total(gateway: Harness) -> None:
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 22,
        "completion_tokens_details": {"reasoning_tokens": 7},
    }
    await stream(gateway, [chunk("a"), chunk(choices=[], usage=usage), DONE])
    (receipt,) = await gateway.receipts()
    assert (receipt["output_tokens"], receipt["reasoning_tokens"]) == (12, 7)
    assert receipt["cost_nano_usd"] == 10 * 1_000 + 12 * 4_000


@pytest.mark.parametrize("at", range(5))
async def test_a_client_that_leaves_at_any_chunk_pays_once_all_the_same(gateway: Harness, at: int) -> None:
    left = RawClient()
    left._on_message = lambda _: left.gone.set() if len(left.messages) == at else None
    gateway.provider.script = lambda seen: Reply(chunks=CHAT, headers=SSE)
    await stream(gateway, CHAT, client=left)
    await gateway.gateway.running.plane.drain()
    (receipt,) = await gateway.receipts()
    assert (receipt["status"], receipt["cost_nano_usd"]) == ("served", 1_200_000)


def cited(model: str) -> bytes:
    """An answer that cites a page."""
    answer = json.loads(chat_answer(model))
    citation = {"url": "https://a.test", "title": "a", "start_index": 0, "end_index": 1}
    answer["choices"][0]["message"]["annotations"] = [{"type": "url_citation", "url_citation": citation}]
    return json.dumps(answer).encode()


async def test_a_search_that_was_made_is_charged_and_one_that_was_allowed_is_not(
    gateway: Harness,
) -> None:  # B76, B77
    wants: dict[str, Any] = {"model": "m-web", "web_search_options": {}}
    receipt = await asked(gateway, chat_answer("m-web"), **wants)
    assert (receipt["cost_nano_usd"], receipt["units"]) == (30_000, None)
    receipt = await asked(gateway, cited("m-web"), **wants)
    assert (receipt["cost_nano_usd"], receipt["units"]) == (25_030_000, {"web_search": 1})
    assert receipt["hold_nano_usd"] >= receipt["cost_nano_usd"]


async def test_a_model_made_to_search_searches_once_an_answer(gateway: Harness) -> None:
    receipt = await asked(gateway, chat_answer("m-search-preview"), model="m-search-preview")
    assert (receipt["cost_nano_usd"], receipt["units"]) == (25_030_000, {"web_search": 1})
    receipt = await asked(gateway, chat_answer("m-search-api"), model="m-search-api")
    assert (receipt["cost_nano_usd"], receipt["unpriced_reason"]) == (
        None,
        "rate_missing",
    )  # its row has no fee


async def test_a_search_within_a_stream_is_charged(gateway: Harness) -> None:
    citation = [{"index": 0, "delta": {"annotations": [{"type": "url_citation"}]}, "finish_reason": None}]
    said = chunk('\\"url_citation\\"', model="m-web")
    usage = chunk(choices=[], usage=USAGE, model="m-web")
    await stream(gateway, [said, usage, DONE], model="m-web", web_search_options={})
    await stream(
        gateway, [chunk(choices=citation, model="m-web"), usage, DONE], model="m-web", web_search_options={}
    )
    plain, searched = await gateway.receipts()
    assert (plain["cost_nano_usd"], searched["cost_nano_usd"]) == (1_200_000, 26_200_000)
