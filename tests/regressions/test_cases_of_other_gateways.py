"""What users of other gateways met: B47, B71, B82, B88, B91, each through the gateway over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.gateway import Harness, running_gateway
from tests.support.prices import ROWS, row


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Harness]:
    """A gateway whose list also has a regional id."""
    rows = [*ROWS, row("eu.m-large", input="4.4", output="20")]
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
