"""How a call may end, what the counters take for it, and what its receipt says (contract §8, §10)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.support.gateway import Harness
from tests.support.provider import Reply, chat_answer

SSE = [(b"content-type", b"text/event-stream")]


def taken(gateway: Harness) -> int:
    """Everything that all counters hold or took, in nano-USD."""
    counters = gateway.gateway.running.services.ledger.counters
    return sum(
        counters.balance(key).spent + counters.balance(key).held
        for key in tuple(counters.keys())
        if key.unit == "usd"
    )


async def last(gateway: Harness) -> dict[str, Any]:
    """The newest receipt."""
    return (await gateway.receipts())[-1]


@pytest.fixture(autouse=True)
async def _cap(gateway: Harness) -> None:
    await gateway.make_cap(limit_usd="100")


async def test_a_served_call_costs_what_it_used(gateway: Harness) -> None:
    gateway.provider.script = lambda seen: Reply(
        body=chat_answer(prompt=1_000, output=50, prompt_tokens_details={"cached_tokens": 600})
    )
    reply = await gateway.chat(customer="a")
    # 400 * 1,000 + 600 * 100 + 50 * 4,000 nano-USD
    assert reply.headers["x-capline-cost-usd"] == "0.000660000"
    receipt = await last(gateway)
    assert receipt["status"] == "served"
    assert receipt["cost_nano_usd"] == receipt["counted_nano_usd"] == 660_000
    assert (receipt["input_tokens"], receipt["cache_read_tokens"], receipt["output_tokens"]) == (400, 600, 50)
    assert receipt["operation_id"] == reply.headers["x-capline-request-id"]
    assert receipt["price_row"]
    assert receipt["price_list"]
    assert receipt["usage_source"] == "final"
    assert taken(gateway) == 660_000


@pytest.mark.parametrize("status", [400, 404, 429, 503, 529])
async def test_a_providers_no_passes_through_and_takes_nothing(gateway: Harness, status: int) -> None:
    gateway.provider.script = lambda seen: Reply(body=b'{"error": {"message": "no"}}', status=status)
    reply = await gateway.chat(customer="a")
    assert (reply.status_code, reply.content) == (status, b'{"error": {"message": "no"}}')
    assert reply.headers["x-capline-request-id"]
    receipt = await last(gateway)
    assert (receipt["status"], receipt["http_status"]) == ("failed", status)
    assert (receipt["cost_nano_usd"], receipt["counted_nano_usd"]) == (0, 0)
    assert taken(gateway) == 0


@pytest.mark.parametrize("status", [500, 502, 504])
async def test_an_unknown_outcome_counts_its_hold(gateway: Harness, status: int) -> None:
    gateway.provider.script = lambda seen: Reply(body=b"{}", status=status)
    assert (await gateway.chat(customer="a")).status_code == status
    receipt = await last(gateway)
    assert (receipt["status"], receipt["cost_nano_usd"]) == ("abandoned", None)
    assert receipt["unpriced_reason"] == "outcome_unknown"
    assert receipt["counted_nano_usd"] == receipt["hold_nano_usd"] > 0
    assert taken(gateway) == receipt["hold_nano_usd"]


async def test_a_provider_that_cannot_be_reached_takes_nothing(gateway: Harness) -> None:
    gateway.provider.script = lambda seen: Reply(fault="unreached")
    reply = await gateway.chat(customer="a")
    assert (reply.status_code, reply.json()["error"]["code"]) == (502, "provider_unreachable")
    receipt = await last(gateway)
    assert (receipt["status"], receipt["cost_nano_usd"], receipt["counted_nano_usd"]) == ("failed", 0, 0)
    assert taken(gateway) == 0


async def test_an_answer_that_breaks_off_counts_its_hold(gateway: Harness) -> None:
    gateway.provider.script = lambda seen: Reply(fault="broken")
    reply = await gateway.chat(customer="a")
    assert (reply.status_code, reply.json()["error"]["code"]) == (502, "provider_unreachable")
    receipt = await last(gateway)
    assert receipt["status"] == "abandoned"
    assert taken(gateway) == receipt["counted_nano_usd"] == receipt["hold_nano_usd"]


async def test_a_whole_answer_without_usage_is_served_and_counts_its_hold(gateway: Harness) -> None:
    gateway.provider.script = lambda seen: Reply(body=b'{"id": "x", "model": "m-small", "choices": []}')
    reply = await gateway.chat(customer="a")
    assert reply.status_code == 200
    assert "x-capline-cost-usd" not in reply.headers
    receipt = await last(gateway)
    assert (receipt["status"], receipt["unpriced_reason"]) == ("served", "usage_missing")
    assert (receipt["cost_nano_usd"], receipt["usage_source"]) == (None, "none")
    assert receipt["input_tokens"] is None
    assert receipt["counted_nano_usd"] == receipt["hold_nano_usd"]


async def test_usage_that_does_not_add_up_is_never_guessed(gateway: Harness) -> None:
    gateway.provider.script = lambda seen: Reply(body=chat_answer(prompt=10, output=5, total_tokens=99))
    assert (await gateway.chat(customer="a")).status_code == 200
    receipt = await last(gateway)
    assert (receipt["cost_nano_usd"], receipt["unpriced_reason"]) == (None, "usage_inconsistent")


async def test_an_explicit_zero_is_a_cost(gateway: Harness) -> None:
    gateway.provider.script = lambda seen: Reply(body=chat_answer(prompt=0, output=0))
    reply = await gateway.chat(customer="a")
    assert reply.headers["x-capline-cost-usd"] == "0.000000000"
    assert (await last(gateway))["cost_nano_usd"] == 0


async def test_an_unlisted_model_is_refused_under_an_armed_cap_and_served_without_a_number(
    gateway: Harness,
) -> None:  # R051, R120, D09
    gateway.provider.script = lambda seen: Reply(body=chat_answer("m-smal", prompt=10, output=5))
    refused = await gateway.chat(customer="a", model="m-smal")
    assert (refused.status_code, refused.json()["error"]["code"]) == (402, "model_unpriced")
    assert "m-small" in refused.json()["error"]["details"]["nearest"]
    assert gateway.provider.seen == []
    assert (await last(gateway))["admit_seq"] is None
    served = await gateway.chat(model="m-smal")  # nobody's cap
    assert served.status_code == 200
    receipt = await last(gateway)
    assert (receipt["cost_nano_usd"], receipt["unpriced_reason"]) == (None, "model_unknown")
    assert (receipt["hold_nano_usd"], receipt["floor_nano_usd"], receipt["counted_nano_usd"]) == (
        None,
        None,
        0,
    )
    assert receipt["output_tokens"] == 5


async def test_refusals_leave_receipts_without_a_cost_and_never_count(gateway: Harness) -> None:  # R085, R111
    await gateway.make_cap(scope="key", subject="*", limit_usd="0")
    for _ in range(5):
        assert (await gateway.chat(customer="a")).status_code == 402
    refused = [receipt for receipt in await gateway.receipts() if receipt["status"] == "refused"]
    assert len(refused) == 5
    for receipt in refused:
        assert (receipt["cost_nano_usd"], receipt["counted_nano_usd"], receipt["http_status"]) == (
            None,
            0,
            402,
        )
        assert (receipt["refusal_code"], receipt["cap_scope"]) == ("budget_exceeded", "key")
        assert receipt["hold_nano_usd"] > 0
    assert taken(gateway) == 0


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'{"messages": []}', b'{"model": ""}', b'{"model": 7}', b"\xff\xfe"]
    + [
        json.dumps({"model": "m-small", "max_tokens": value}).encode()
        for value in (-1, True, "7", 1e30, 10**8)
    ]
    + [json.dumps({"model": "m-small", "n": value}).encode() for value in (0, -1, 129)],
)
async def test_a_body_that_no_provider_could_answer_is_refused_and_leaves_a_receipt(
    gateway: Harness, body: bytes
) -> None:
    headers = {"authorization": f"Bearer {gateway.secret}"}
    reply = await gateway.http.post("/v1/chat/completions", content=body, headers=headers)
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_request")
    receipt = await last(gateway)
    assert (receipt["status"], receipt["refusal_code"]) == ("refused", "invalid_request")
    assert gateway.provider.seen == []


async def test_what_comes_before_authentication_leaves_no_receipt(gateway: Harness) -> None:
    before = await gateway.receipts()
    assert (await gateway.http.post("/v1/batches", content=b"{}")).json()["error"][
        "code"
    ] == "unsupported_route"
    for headers in (
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": "Basic x"},
        {"x-api-key": "wrong"},
    ):
        reply = await gateway.http.post("/v1/chat/completions", content=b"{}", headers=headers)
        assert (reply.status_code, reply.json()["error"]["code"]) == (401, "invalid_api_key")
    assert await gateway.receipts() == before


async def test_a_key_that_requires_a_customer_refuses_without_one(gateway: Harness) -> None:
    gateway.secret = (await gateway.make_key(require_customer=True))["key"]
    reply = await gateway.chat()
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "customer_required")
    assert (await gateway.chat(customer="a")).status_code == 200


async def test_an_operator_key_cannot_use_the_data_plane(gateway: Harness) -> None:
    gateway.secret = (await gateway.make_key(role="admin"))["key"]
    reply = await gateway.chat()
    assert (reply.status_code, reply.json()["error"]["code"]) == (403, "permission_denied")


async def test_a_providers_own_spend_limit_is_final(gateway: Harness) -> None:
    body = b'{"error": {"code": "organization_spend_limit_exceeded"}}'
    headers = [(b"content-type", b"application/json"), (b"retry-after", b"3"), (b"x-should-retry", b"true")]
    gateway.provider.script = lambda seen: Reply(body=body, status=429, headers=headers)
    reply = await gateway.chat(customer="a")
    assert (reply.status_code, reply.content) == (429, body)
    assert reply.headers.get_list("x-should-retry") == ["false"]


async def test_a_client_that_leaves_does_not_stop_the_metering(gateway: Harness) -> None:  # D10
    gate = asyncio.Event()
    gateway.provider.script = lambda seen: Reply(body=chat_answer(prompt=1_000, output=0), gate=gate)
    call = asyncio.create_task(gateway.chat(customer="a"))
    await gateway.provider.until_called()
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert taken(gateway) > 0
    gate.set()
    await gateway.gateway.running.plane.drain()
    receipt = await last(gateway)
    assert (receipt["status"], receipt["cost_nano_usd"], receipt["client_left"]) == (
        "served",
        1_000_000,
        True,
    )


async def test_provider_prefixes_pick_the_provider_and_are_stripped(gateway: Harness) -> None:
    assert (await gateway.chat(model="openai/m-small")).status_code == 200
    assert json.loads(gateway.provider.seen[-1].body)["model"] == "m-small"
    receipt = await last(gateway)
    assert (receipt["provider"], receipt["model_requested"]) == ("openai", "openai/m-small")
    assert receipt["hold_nano_usd"] is not None


async def test_bodies_and_headers_pass_as_they_are(gateway: Harness) -> None:
    body = b'{ "model":"m-small",  "max_tokens": 10 , "messages": [], "x": 1.0000000000000000001}'
    headers = {
        "authorization": f"Bearer {gateway.secret}",
        "x-capline-tags": "agent:x",
        "x-capline-anything": "y",
        "openai-organization": "org-1",
        "connection": "keep-alive, x-hop",
        "x-hop": "1",
    }
    reply = await gateway.http.post("/v1/chat/completions?beta=1", content=body, headers=headers)
    assert reply.status_code == 200
    seen = gateway.provider.seen[-1]
    assert seen.body == body
    assert seen.header("authorization") == "Bearer sk-up"
    assert seen.header("openai-organization") == "org-1"
    assert not [name for name, _ in seen.headers if name.startswith("x-capline") or name in ("x-hop", "host")]
