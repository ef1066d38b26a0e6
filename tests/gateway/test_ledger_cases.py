"""What users of other ledgers lost: B07, B08, B19, B20, B31, B38, B40, B41, B43, B44, B100, B101, over HTTP."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

import toolkit as tk
from gateway.stores import committing
from tests.support.gateway import Harness, running_gateway
from tests.support.provider import Reply, Seen, chat_answer
from tests.support.raw_client import RawClient
from tests.support.stores import stores
from toolkit.core.pricefile import load_price_folder

SSE = [(b"content-type", b"text/event-stream")]
DIME = 25_000
"""Output tokens of m-small that cost ten cents."""


def costing(output: int) -> Any:
    """A provider whose every answer has so many output tokens and no input."""
    return lambda seen: Reply(body=chat_answer(prompt=0, output=output))


async def spent(gateway: Harness, customer: str) -> int:
    """What the next call of a customer finds spent under the first cap that it meets."""
    reply = await gateway.chat(customer=customer, max_tokens=1)
    detail = await gateway.api("GET", f"/api/receipts/{reply.headers['x-capline-request-id']}")
    return int(detail.json()["trace"][0]["spent_nano_usd"])


async def is_served(gateway: Harness) -> bool:
    """Whether a call of customer ann is; an answer that breaks off is not."""
    try:
        return (await gateway.chat(customer="ann")).status_code == 200
    except AssertionError:  # httpx's transport says so that it broke off
        return False


async def test_a_hold_that_cannot_be_written_is_no_hold(gateway: Harness) -> None:  # B07
    await gateway.make_cap(limit_usd="1.00")

    def fail(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("INSERT"):
            raise OperationalError("the disk", {}, Exception("is full"))

    event.listen(gateway.gateway.running.database.engine, "before_cursor_execute", fail)
    reply = await gateway.chat(customer="ann")
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "budget_unverifiable")
    free = await gateway.chat()  # no armed cap stands over a call without a customer
    assert free.status_code == 200
    assert len(gateway.provider.seen) == 1


async def test_a_new_process_decides_by_the_ledger(tmp_path: Path) -> None:  # B08
    async with running_gateway(tmp_path) as gateway:
        await gateway.make_cap(limit_usd="1.00", armed=False)
        gateway.provider.script = costing(12 * DIME)
        assert (await gateway.chat(customer="ann")).status_code == 200
    async with running_gateway(tmp_path) as gateway:
        await gateway.api("POST", "/api/caps/1/arm", {"reason": "over"}, if_match="1")
        reply = await gateway.chat(customer="ann")
        assert (reply.status_code, reply.json()["error"]["code"]) == (402, "budget_exceeded")
        assert gateway.provider.seen == []


async def test_a_counter_that_is_filled_four_times_at_once_is_filled_once(gateway: Harness) -> None:  # B19
    gateway.provider.script = costing(30 * DIME)
    assert (await gateway.chat(customer="ann")).status_code == 200
    gateway.provider.script = costing(1)
    await asyncio.gather(*(gateway.make_cap(limit_usd=f"{limit}") for limit in (10, 11, 12, 13)))
    assert await spent(gateway, "ann") == 3_000_000_000


async def test_a_commit_whose_answer_was_lost_counts_once(
    gateway: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:  # B20
    monkeypatch.setattr(committing, "RETRY_S", 0.02)
    await gateway.make_cap(limit_usd="1.20", admission="after")
    gateway.provider.script = costing(DIME)
    dialect = gateway.gateway.running.database.engine.dialect
    commit, commits = dialect.do_commit, []

    def lose_some_answers(connection: Any) -> None:
        commit(connection)
        commits.append(connection)
        if len(commits) in (2, 6, 9):
            if stores.kind == "sqlite":
                raise sqlite3.OperationalError("disk I/O error")
            connection.dbapi_connection.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(dialect, "do_commit", lose_some_answers)
    served = 0
    async with asyncio.timeout(30):
        while served < 10:
            served += await is_served(gateway)
            await asyncio.sleep(0.01)
    monkeypatch.setattr(dialect, "do_commit", commit)
    assert len(commits) > 9
    cost = 100_000_000 * len(gateway.provider.seen)
    async with asyncio.timeout(10):
        while not gateway.gateway.running.services.ledger.writer.spool.is_empty:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert sum(row["cost_nano_usd"] or 0 for row in await gateway.receipts()) == cost
    assert await spent(gateway, "ann") == cost
    assert (await gateway.api("GET", "/api/ledger/check")).json()["ok"] is True


async def test_a_new_period_needs_no_reset_that_a_crash_could_halve(tmp_path: Path) -> None:  # B31
    async with running_gateway(tmp_path) as gateway:
        await gateway.make_cap(limit_usd="0.15", window="day", admission="after")
        gateway.provider.script = costing(DIME)
        for _ in range(3):
            last = await gateway.chat(customer="ann")
        assert last.status_code == 402
        clock = gateway.clock
    for _ in range(2):  # a restart before the boundary, and one after it
        async with running_gateway(tmp_path, clock=clock) as gateway:
            refused = await gateway.chat(customer="ann")
            assert refused.status_code == (402 if clock.at.day == 1 else 200)
        clock.at += timedelta(hours=12)
    async with running_gateway(tmp_path, clock=clock) as gateway:
        found = (await gateway.api("GET", "/api/spend?by=customer&window=day")).json()["items"]
        costs = {row["period"]: row["counted_nano_usd"] for row in found}
        assert costs == {"2026-12-01": 200_000_000, "2026-12-02": 30_000}


async def leave_after_some(gateway: Harness, usage: list[bytes]) -> dict[str, Any]:
    """A stream of 400 tokens of m-large that its client leaves half way; `usage` is what comes later."""
    word = {"model": "m-large", "choices": [{"index": 0, "delta": {"content": "x "}, "finish_reason": None}]}
    chunks = [b"data: " + json.dumps({"id": "c", **word}).encode() + b"\n\n"] * 400
    fault = None if usage else "cut"
    gateway.provider.script = lambda seen: Reply(chunks=[*chunks, *usage], headers=SSE, fault=fault)
    client = RawClient()

    def leave(message: dict[str, Any]) -> None:
        if len(client.body) > 5_000:
            client.gone.set()

    client._on_message = leave
    body = {"model": "m-large", "stream": True, "max_tokens": 4_000, "messages": []}
    headers = [(b"authorization", b"Bearer " + gateway.secret.encode())]
    await client.post(gateway.gateway, "/v1/chat/completions", json.dumps(body).encode(), headers)
    await gateway.gateway.running.plane.drain()
    (row,) = await gateway.receipts()
    return row


async def test_a_client_that_leaves_a_stream_without_usage_counts_its_hold(gateway: Harness) -> None:  # B38
    row = await leave_after_some(gateway, [])
    assert (row["status"], row["cost_nano_usd"]) == ("abandoned", None)
    assert row["counted_nano_usd"] == row["hold_nano_usd"] > 8_100_000


async def test_a_client_that_leaves_pays_what_the_provider_bills(gateway: Harness) -> None:  # B40
    usage = {"prompt_tokens": 25, "completion_tokens": 4_000, "total_tokens": 4_025}
    last = {"id": "c", "model": "m-large", "choices": [], "usage": usage}
    row = await leave_after_some(
        gateway, [b"data: " + json.dumps(last).encode() + b"\n\n", b"data: [DONE]\n\n"]
    )
    assert (row["status"], row["client_left"]) == ("served", True)
    assert row["cost_nano_usd"] == 25 * 4_000 + 4_000 * 20_000


async def test_a_client_that_hangs_up_half_way_pays_both_sides(gateway: Harness) -> None:  # B41
    gate = asyncio.Event()
    gateway.provider.script = lambda seen: Reply(body=chat_answer(prompt=100, output=900), gate=gate)
    call = asyncio.create_task(gateway.chat())
    await gateway.provider.until_called()
    call.cancel()
    gate.set()
    await asyncio.gather(call, return_exceptions=True)
    await gateway.gateway.running.plane.drain()
    (row,) = await gateway.receipts()
    assert row["cost_nano_usd"] == 3_700_000


async def test_one_id_of_a_provider_for_all_its_calls_merges_none(gateway: Harness) -> None:  # B43
    for _ in range(2):
        assert (await gateway.chat()).status_code == 200
    first, second = await gateway.receipts()
    assert first["upstream_id"] == second["upstream_id"] == "chatcmpl-1"
    assert first["receipt_id"] != second["receipt_id"]


async def test_what_waits_for_the_ledger_at_a_stop_is_written(tmp_path: Path) -> None:  # B44
    gate = asyncio.Event()

    def held(_seen: Seen) -> Reply:
        return Reply(body=chat_answer(), gate=gate)

    async with running_gateway(tmp_path) as gateway:
        gateway.provider.script = held
        calls = [asyncio.create_task(gateway.chat()) for _ in range(12)]
        await gateway.provider.until_called(12)
        stopping = asyncio.create_task(gateway.gateway.running.plane.drain())
        gate.set()
        await stopping
        assert [(await call).status_code for call in calls] == [200] * 12
    async with running_gateway(tmp_path) as gateway:
        assert [row["status"] for row in await gateway.receipts()] == ["served"] * 12


async def test_what_a_failing_commit_had_taken_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # B44
    monkeypatch.setattr(committing, "RETRY_S", 0.02)
    async with running_gateway(tmp_path) as gateway:
        dialect = gateway.gateway.running.database.engine.dialect
        commit, failed = dialect.do_commit, []

        def fail_once(connection: Any) -> None:
            if not failed:
                failed.append(connection)
                raise sqlite3.OperationalError("disk I/O error")
            commit(connection)

        monkeypatch.setattr(dialect, "do_commit", fail_once)
        replies = await asyncio.gather(*(gateway.chat() for _ in range(12)))
        assert [reply.status_code for reply in replies] == [200] * 12
        assert failed
    async with running_gateway(tmp_path) as gateway:
        assert [row["status"] for row in await gateway.receipts()] == ["served"] * 12


async def test_an_export_that_was_cut_short_is_no_export(gateway: Harness, tmp_path: Path) -> None:  # B100
    for _ in range(6):
        await gateway.chat()
    whole = (await gateway.api("GET", "/v1/ledger/export?month=2026-12")).content
    lines = whole.splitlines(keepends=True)
    path = tmp_path / "export.jsonl"
    for kept in range(1, len(lines)):
        path.write_bytes(b"".join(lines[:kept]))
        with pytest.raises(tk.LoadError):
            tk.load(path)
        assert tk.verify(path).ok is not True
    path.write_bytes(whole)
    loaded = tk.load(path)
    assert (loaded.manifest.loaded, loaded.manifest.complete) == (6, False)  # the month is not over


async def test_an_export_has_every_meter_that_was_priced(gateway: Harness, tmp_path: Path) -> None:  # B101
    cached = {"prompt_tokens_details": {"cached_tokens": 900}}
    gateway.provider.script = lambda seen: Reply(body=chat_answer(prompt=1_000, output=10, **cached))
    await gateway.chat()
    path = tmp_path / "export.csv"
    path.write_bytes((await gateway.api("GET", "/v1/ledger/export?month=2026-12&format=csv")).content)
    row = tk.load(path).frame.collect().row(0, named=True)
    assert (row["input_tokens"], row["cache_read_tokens"], row["output_tokens"]) == (100, 900, 10)
    assert row["cost_nano_usd"] == 100 * 1_000 + 900 * 100 + 10 * 4_000
    verdict = tk.verify(path, price_lists=load_price_folder(tmp_path / "prices"))
    assert (verdict.faults, verdict.priced_rows) == (0, 1)
