"""What users of other gateways met: B47, B49, B61, B71, B82, B88, B89, B91, B92, through the gateway over HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.gateway import Harness, running_gateway
from tests.support.prices import ROWS, row
from tests.support.provider import Reply, Seen, chat_answer
from toolkit.core.errors import PriceListError
from toolkit.core.pricefile import parse_price_list

MILLION = 1_000_000


def answering(prompt: int = 10, output: int = 5) -> Any:
    """A provider that serves the model that it is asked for."""

    def script(seen: Seen) -> Reply:
        return Reply(body=chat_answer(json.loads(seen.body)["model"], prompt, output))

    return script


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Harness]:
    """A gateway whose list also has a regional id."""
    both = row("m-large-4.7", input="1", output="1") | {"aliases": ["m-large-4-7"]}
    rows = [*ROWS, row("eu.m-large", input="4.4", output="20"), both]
    async with running_gateway(tmp_path, rows=rows) as harness:
        yield harness


async def test_a_misspelt_model_is_refused_and_the_listed_one_is_named(gateway: Harness) -> None:  # B82
    await gateway.make_cap(limit_usd="0.02")
    reply = await gateway.chat(customer="ann", model="m.large")
    assert (reply.status_code, reply.json()["error"]["code"]) == (402, "model_unpriced")
    assert "m-large" in reply.json()["error"]["message"]
    assert gateway.provider.seen == []


@pytest.mark.parametrize("model", ["us.m-large", "global.m-large"])
async def test_an_unlisted_region_is_not_its_neighbour(gateway: Harness, model: str) -> None:  # B71
    await gateway.make_cap(limit_usd="20")
    reply = await gateway.chat(customer="ann", model=model)
    assert (reply.status_code, reply.json()["error"]["code"]) == (402, "model_unpriced")


async def test_a_regional_id_is_held_at_its_own_rate(gateway: Harness) -> None:  # B71
    for model in ("eu.m-large", "m-large"):
        await gateway.chat(customer="ann", model=model, size=1_000, max_tokens=1)
    regional, plain = await gateway.receipts()
    assert [one["model_requested"] for one in (regional, plain)] == ["eu.m-large", "m-large"]
    # 4.40 against 4.00 USD a million: the same 1,000 bytes are held at the rate of the id that was asked for.
    assert regional["hold_nano_usd"] > 0
    assert regional["hold_nano_usd"] != plain["hold_nano_usd"]


async def test_calls_of_a_shared_key_are_booked_to_their_own_customers(gateway: Harness) -> None:  # B88
    for customer in ("ann", "bob", "ann"):
        await gateway.chat(customer=customer)
    rows = await gateway.receipts()
    assert [one["customer"] for one in rows] == ["ann", "bob", "ann"]
    assert len({one["key_id"] for one in rows}) == 1


async def test_a_model_name_beyond_latin_leaves_a_receipt(gateway: Harness) -> None:  # B91
    reply = await gateway.chat(customer="ann", model="模型")
    assert reply.status_code == 200
    (receipt,) = await gateway.receipts()
    assert receipt["model_requested"] == "模型"


async def test_a_region_costs_what_its_own_row_says(gateway: Harness) -> None:  # B71
    gateway.provider.script = answering(prompt=MILLION, output=0)
    for model in ("eu.m-large", "m-large"):
        await gateway.chat(customer="ann", model=model)
    costs = [receipt["cost_nano_usd"] for receipt in await gateway.receipts()]
    assert costs == [4_400_000_000, 4_000_000_000]


async def test_a_stream_is_metered_though_nobody_asked_and_nobody_is_told(gateway: Harness) -> None:  # B47
    def script(seen: Seen) -> Reply:
        assert json.loads(seen.body)["stream_options"] == {"include_usage": True}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        words = {"id": "x", "model": "m-small", "choices": [{"index": 0, "delta": {"content": "ok"}}]}
        events = [words | {"usage": None}, words | {"choices": [], "usage": usage}]
        chunks = [f"data: {json.dumps(event)}\n\n".encode() for event in events] + [b"data: [DONE]\n\n"]
        return Reply(chunks=chunks, headers=[(b"content-type", b"text/event-stream")])

    gateway.provider.script = script
    reply = await gateway.chat(customer="ann", stream=True)
    assert "prompt_tokens" not in reply.text
    assert reply.text.endswith("data: [DONE]\n\n")
    (receipt,) = await gateway.receipts()
    assert (receipt["input_tokens"], receipt["output_tokens"]) == (10, 5)


async def test_a_customer_is_read_alike_on_every_route(gateway: Harness) -> None:  # B49
    headers = {"authorization": f"Bearer {gateway.secret}", "x-capline-tags": "customer:ann"}
    body = {
        "model": "m-small",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 5,
        "input": "hi",
    }
    for route in ("/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/embeddings"):
        await gateway.http.post(route, json=body, headers=headers)
    assert [receipt["customer"] for receipt in await gateway.receipts()] == ["ann"] * 4


def test_a_meter_that_nobody_knows_is_no_price() -> None:  # B61
    rows = [row("m", input="1", output="1", cache_read_x="0.1")]
    content = {"schema": "capline-prices-v1", "currency": "USD", "date": "2026-10-01", "rows": rows}
    with pytest.raises(PriceListError, match="cache_read_x"):
        parse_price_list(content, source="x")


async def test_cached_tokens_without_a_rate_make_the_answer_unpriced(gateway: Harness) -> None:  # B61
    gateway.provider.script = lambda seen: Reply(
        body=chat_answer("m-large-4.7", 1_000, 5, prompt_tokens_details={"cached_tokens": 900})
    )
    await gateway.chat(customer="ann", model="m-large-4.7")
    (receipt,) = await gateway.receipts()
    assert (receipt["cost_nano_usd"], receipt["unpriced_reason"]) == (None, "rate_missing")
    assert receipt["counted_nano_usd"] == receipt["hold_nano_usd"] > 0


async def test_the_sums_of_a_shared_key_are_its_customers_own(gateway: Harness) -> None:  # B88
    gateway.provider.script = answering(prompt=100_000, output=0)
    for customer in ("ann", "bob", "ann"):
        await gateway.chat(customer=customer)
    found = (await gateway.api("GET", "/api/spend?by=customer&window=never")).json()["items"]
    assert {line["customer"]: line["cost_nano_usd"] for line in found} == {
        "ann": 200_000_000,
        "bob": 100_000_000,
    }


@pytest.mark.parametrize("tag", ["customer:", "customer:" + "x" * 129])
async def test_what_is_no_customer_becomes_none(gateway: Harness, tag: str) -> None:  # B89
    sent = {"x-capline-tags": tag}
    assert (await gateway.chat(headers=sent)).status_code == 200
    await gateway.make_cap(limit_usd="1")
    refused = await gateway.chat(headers=sent)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_customer_tag")
    assert {receipt["customer"] for receipt in await gateway.receipts()} == {None}


async def test_a_customer_beyond_latin_is_kept_as_it_came(gateway: Harness) -> None:  # B91
    headers = [
        (b"authorization", f"Bearer {gateway.secret}".encode()),
        (b"x-capline-tags", "customer:客戶-7".encode()),
    ]
    body = {"model": "m-small", "messages": [], "max_tokens": 5}
    reply = await gateway.http.post("/v1/chat/completions", json=body, headers=headers)
    assert reply.status_code == 200
    assert "客戶" not in str(reply.headers)
    (receipt,) = await gateway.receipts()
    assert receipt["customer"] == "客戶-7"


async def test_two_spellings_that_a_list_names_have_one_row(gateway: Harness) -> None:  # B92
    gateway.provider.script = answering(prompt=MILLION, output=0)
    for model in ("m-large-4.7", "m-large-4-7", "m-large-4_7"):
        await gateway.chat(customer="ann", model=model)
    one, other, unlisted = await gateway.receipts()
    assert one["price_row"] == other["price_row"]
    assert one["cost_nano_usd"] == other["cost_nano_usd"] == 1_000_000_000
    assert [one["model_requested"], other["model_requested"]] == ["m-large-4.7", "m-large-4-7"]
    assert (unlisted["cost_nano_usd"], unlisted["unpriced_reason"]) == (None, "model_unknown")
