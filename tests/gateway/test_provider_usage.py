"""What a provider reports beside plain tokens, on the receipt: counts too large for one, turns, tools."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.gateway.test_streams import event, stream
from tests.support.gateway import Harness
from tests.support.provider import Reply, chat_answer

TURN = {"input_tokens": 100, "output_tokens": 10}


def answer(**usage: Any) -> bytes:
    """A whole message of claude-test."""
    return json.dumps({"id": "msg_1", "model": "claude-test", "usage": TURN | usage}).encode()


async def receipt_of(gateway: Harness, body: bytes) -> dict[str, Any]:
    """The receipt of a message that is answered so."""
    gateway.provider.script = lambda seen: Reply(body=body)
    asked = {"model": "claude-test", "max_tokens": 100, "messages": []}
    reply = await gateway.http.post(
        "/v1/messages", json=asked, headers={"authorization": f"Bearer {gateway.secret}"}
    )
    assert (reply.status_code, reply.content) == (200, body)
    return (await gateway.receipts())[-1]


@pytest.mark.parametrize("tokens", [2**53 - 1, 2**53, 2**63, 2**70])
async def test_a_receipt_carries_no_count_from_2_to_the_53_on(gateway: Harness, tokens: int) -> None:
    gateway.provider.script = lambda seen: Reply(body=chat_answer(prompt=tokens, output=0))
    assert (await gateway.chat()).status_code == 200
    (receipt,) = await gateway.receipts()
    assert receipt["cost_nano_usd"] is None
    assert receipt["unpriced_reason"] == "usage_invalid"
    assert receipt["input_tokens"] == (tokens if tokens < 2**53 else None)
    assert receipt["counted_nano_usd"] == receipt["hold_nano_usd"]


async def test_a_compaction_is_billed_as_its_models_own_turn(gateway: Harness) -> None:
    turns = [{"type": "compaction", **TURN}, {"type": "message", **TURN}]
    receipt = await receipt_of(gateway, answer(iterations=turns))
    assert (receipt["input_tokens"], receipt["output_tokens"], receipt["units"]) == (200, 20, None)
    assert receipt["cost_nano_usd"] == 200 * 4_000 + 20 * 20_000


async def test_another_models_turn_stands_on_the_receipt_under_its_own_name(gateway: Harness) -> None:
    turns = [{"type": "message", **TURN}, {"type": "advisor_message", "model": "claude-other", **TURN}]
    receipt = await receipt_of(gateway, answer(iterations=turns))
    assert (receipt["input_tokens"], receipt["units"]) == (
        100,
        {"claude-other/input": 100, "claude-other/output": 10},
    )
    assert (receipt["cost_nano_usd"], receipt["unpriced_reason"]) == (None, "model_unknown")
    assert receipt["counted_tokens"] == 220


async def test_turns_named_as_the_model_that_was_served_are_its_own(gateway: Harness) -> None:
    turns = [{"type": "message", "model": "claude-test", **TURN}, {"type": "compaction", **TURN}]
    receipt = await receipt_of(gateway, answer(iterations=turns))
    assert (receipt["cost_nano_usd"], receipt["units"]) == (200 * 4_000 + 20 * 20_000, None)


async def test_a_streams_turns_come_with_its_last_word(gateway: Harness) -> None:
    start = {"id": "msg_1", "model": "claude-test", "usage": TURN | {"output_tokens": 1}}
    turns = [{"type": "message", **TURN}, {"type": "compaction", **TURN}]
    chunks = [
        event("message_start", message=start),
        event("message_delta", usage={"output_tokens": 5, "input_tokens": None}),
        event("message_delta", usage={"output_tokens": 10, "iterations": turns}),
        event("message_stop"),
    ]
    await stream(gateway, chunks, model="claude-test")
    (receipt,) = await gateway.receipts()
    assert (receipt["status"], receipt["cost_nano_usd"]) == ("served", 200 * 4_000 + 20 * 20_000)


async def test_turns_that_do_not_make_the_whole_are_never_guessed(gateway: Harness) -> None:
    turns = [{"type": "message", "input_tokens": 99, "output_tokens": 10}]
    receipt = await receipt_of(gateway, answer(iterations=turns))
    assert (receipt["cost_nano_usd"], receipt["unpriced_reason"]) == (None, "usage_inconsistent")
