"""Idempotency keys: a call that comes again is answered as before, and charged once (contract §8, §10)."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import create_engine, text

from gateway.idempotency import KEEP_BYTES, KEEP_S, Answer, Answers
from tests.support.gateway import Harness, running_gateway
from tests.support.provider import Reply, ScriptedProvider
from tests.support.stores import stores


def code(reply: httpx.Response) -> tuple[int, str]:
    return reply.status_code, reply.json()["error"]["code"]


async def send(gateway: Harness, key: str = "order-1", **fields: Any) -> httpx.Response:
    return await gateway.chat(customer="ann", headers={"Idempotency-Key": key}, **fields)


async def test_the_same_call_is_answered_as_before_and_charged_once(gateway: Harness) -> None:
    first, again = await send(gateway), await send(gateway)
    assert first.status_code == again.status_code == 200
    assert again.content == first.content
    assert again.headers["x-capline-request-id"] == first.headers["x-capline-request-id"]
    assert again.headers["x-capline-cost-usd"] == first.headers["x-capline-cost-usd"]
    assert (
        "x-capline-idempotent-replayed" in first.headers,
        again.headers["x-capline-idempotent-replayed"],
    ) == (
        False,
        "true",
    )
    assert len(gateway.provider.seen) == 1
    assert [row["status"] for row in await gateway.receipts()] == ["served"]


async def test_another_body_under_the_key_is_a_conflict(gateway: Harness) -> None:
    first = await send(gateway)
    assert first.status_code == 200
    assert code(await send(gateway, max_tokens=11)) == (422, "idempotency_conflict")
    assert (await send(gateway)).status_code == 200
    assert (await send(gateway, "order-2", max_tokens=11)).status_code == 200
    assert len(gateway.provider.seen) == 2
    assert [row["refusal_code"] for row in await gateway.receipts()] == [None, "idempotency_conflict", None]


async def test_a_key_belongs_to_an_api_key(gateway: Harness) -> None:
    await send(gateway)
    gateway.secret = (await gateway.make_key())["key"]
    assert "x-capline-idempotent-replayed" not in (await send(gateway)).headers
    assert len(gateway.provider.seen) == 2


async def test_a_call_that_runs_says_so(gateway: Harness) -> None:
    gate = asyncio.Event()
    script = gateway.provider.script
    gateway.provider.script = lambda seen: _held(script(seen), gate)
    first = asyncio.create_task(send(gateway))
    await gateway.provider.until_called()
    running = await send(gateway)
    assert code(running) == (409, "idempotency_running")
    assert running.headers["retry-after"] == "1"
    assert code(await send(gateway, max_tokens=11)) == (422, "idempotency_conflict")
    gate.set()
    assert (await first).status_code == 200
    assert (await send(gateway)).content == (await first).content
    assert len(gateway.provider.seen) == 1


async def test_many_at_once_reach_the_provider_once(gateway: Harness) -> None:
    replies = await asyncio.gather(*(send(gateway) for _ in range(20)))
    assert {reply.status_code for reply in replies} <= {200, 409}
    assert len(gateway.provider.seen) == 1


@pytest.mark.parametrize(
    "reply",
    [
        Reply(status=429, body=b'{"error": {"message": "slow down"}}'),
        Reply(fault="unreached"),
    ],
)
async def test_what_was_not_billed_frees_the_key(gateway: Harness, reply: Reply) -> None:
    script = gateway.provider.script
    gateway.provider.script = lambda seen: reply
    assert (await send(gateway)).status_code in (429, 502)
    gateway.provider.script = script
    assert (await send(gateway, max_tokens=11)).status_code == 200


async def test_a_refusal_frees_the_key_and_a_replay_asks_no_cap(gateway: Harness) -> None:
    cap = await gateway.make_cap(request_limit=1)
    assert (await send(gateway)).status_code == 200
    assert code(await send(gateway, "order-2")) == (402, "budget_exceeded")
    assert (await send(gateway)).headers["x-capline-idempotent-replayed"] == "true"
    await gateway.api("POST", f"/api/caps/{cap['id']}/disarm")
    assert (await send(gateway, "order-2")).status_code == 200


async def test_what_may_have_been_billed_holds_the_key_and_names_its_receipt(gateway: Harness) -> None:
    script = gateway.provider.script
    gateway.provider.script = lambda seen: Reply(status=500, body=b"{}")
    await send(gateway)
    gateway.provider.script = script
    again = await send(gateway)
    assert code(again) == (422, "idempotency_replayed")
    (abandoned,) = [row for row in await gateway.receipts() if row["status"] == "abandoned"]
    assert again.json()["error"]["details"]["receipt_id"] == abandoned["receipt_id"]
    assert len(gateway.provider.seen) == 1


async def test_after_a_restart_the_key_names_its_receipt_for_thirty_days(tmp_path: Path) -> None:
    provider = ScriptedProvider()
    async with running_gateway(tmp_path, provider=provider) as gateway:
        await send(gateway)
        (receipt,) = await gateway.receipts()
        secret = gateway.secret
    async with running_gateway(tmp_path, provider=provider) as gateway:
        gateway.secret = secret
        again = await send(gateway)
        assert code(again) == (422, "idempotency_replayed")
        assert again.json()["error"]["details"]["receipt_id"] == receipt["receipt_id"]
        assert code(await send(gateway, max_tokens=11)) == (422, "idempotency_conflict")
        gateway.clock.advance(days=29)
        assert code(await send(gateway)) == (422, "idempotency_replayed")
        gateway.clock.advance(days=1, seconds=1)
        assert (await send(gateway)).status_code == 200
    assert len(provider.seen) == 2


async def test_streams_take_no_notice_of_a_key(gateway: Harness) -> None:
    assert [(await send(gateway, stream=True)).status_code for _ in range(2)] == [200, 200]
    assert len(gateway.provider.seen) == 2


@pytest.mark.parametrize("key", ["", "x" * 256, "tab\there"])
async def test_a_key_that_is_none_is_refused(gateway: Harness, key: str) -> None:
    assert code(await send(gateway, key)) == (400, "invalid_request")
    assert not gateway.provider.seen


async def test_neither_key_nor_body_is_stored(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        await send(gateway, "canary-key-4711", messages=[{"role": "user", "content": "canary-body"}])
        engine = create_engine(stores.url(tmp_path))
        with engine.connect() as connection:
            rows = connection.execute(text("SELECT * FROM idempotency")).all()
            others = connection.execute(text("SELECT receipt, trace FROM intents")).all()
        engine.dispose()
        assert len(rows) == 1
        assert "canary" not in json.dumps([list(map(str, row)) for row in (*rows, *others)])


async def test_while_the_ledger_is_away_a_key_cannot_be_checked(gateway: Harness) -> None:
    assert (await send(gateway)).status_code == 200
    writer = gateway.gateway.running.services.ledger.writer
    writer.failed = "full"
    assert code(await send(gateway, "order-2")) == (503, "budget_unverifiable")
    assert (await send(gateway)).headers["x-capline-idempotent-replayed"] == "true"
    assert len(gateway.provider.seen) == 1
    writer.failed = None


async def test_old_keys_are_forgotten(tmp_path: Path) -> None:
    from gateway.stores.idempotency import forget_claims

    async with running_gateway(tmp_path) as gateway:
        await send(gateway)
        writer = gateway.gateway.running.services.ledger.writer
        later = gateway.clock() + timedelta(days=30, seconds=1)
        assert await writer.run(lambda connection: forget_claims(connection, later - timedelta(days=1))) == 0
        assert await writer.run(lambda connection: forget_claims(connection, later)) == 1


def test_answers_are_kept_for_ten_minutes_and_within_64_megabytes() -> None:
    now = 0.0
    answers = Answers(lambda: now)
    third = Answer(200, (), bytes(KEEP_BYTES // 3))
    for number in range(4):
        answers.keep(("key", str(number)), "body", third)
        now += 1
    assert [answers.find(("key", str(number))) is not None for number in range(4)] == [
        False,
        True,
        True,
        True,
    ]
    now = 2 + KEEP_S
    assert [answers.find(("key", str(number))) is not None for number in range(1, 4)] == [False, False, True]
    answers.keep(("key", "3"), "body", Answer(200, (), bytes(KEEP_BYTES + 1)))
    assert answers.find(("key", "3")) is None


def _held(reply: Reply, gate: asyncio.Event) -> Reply:
    reply.gate = gate
    return reply
