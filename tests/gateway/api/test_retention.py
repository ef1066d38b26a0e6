"""A closed month's receipts are dropped by the heads of its export; its sums, heads and counters stay."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gateway import control_ledger
from gateway.stores import retention
from tests.support.clock import ManualClock
from tests.support.gateway import Harness, running_gateway
from tests.support.provider import Reply, Seen
from toolkit.core.errors import StoreUnavailable

OCTOBER = datetime(2026, 10, 5, 12, tzinfo=UTC)
NOVEMBER = datetime(2026, 11, 20, 12, tzinfo=UTC)
SPEND = "/api/spend?window=month&by=customer,model"


async def test_a_dropped_month_keeps_its_sums_heads_and_counters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "STEP_ROWS", 2)
    monkeypatch.setattr(control_ledger, "STEPS", 1)
    async with running_gateway(tmp_path, clock=ManualClock(OCTOBER)) as gateway:
        await gateway.make_cap(window="never", limit_usd="5")
        await _two_months(gateway)
        reports = [await _json(gateway, route) for route in (SPEND, "/api/customers?period=2026-10")]
        october = await _month(gateway)
        old = (await _json(gateway, "/api/receipts?limit=1000"))["items"][-1]["receipt_id"]
        answers = []
        while not answers or not answers[-1]["done"]:
            made = await _drop(gateway, october["heads"])
            assert made.status_code == 200, made.text
            answers.append(made.json())
            assert (await _month(gateway))["state"] == ("dropped" if answers[-1]["done"] else "dropping")
            left = (await _json(gateway, "/api/receipts?limit=1000"))["items"]
            assert (await _json(gateway, "/api/ledger/coverage"))["receipts"] == len(left)
            assert (await _export(gateway, month="2026-10")).json()["error"]["code"] == "month_dropped"
        assert [answer["receipts"] for answer in answers] == [2, 1, 0]

        assert [await _json(gateway, route) for route in (SPEND, "/api/customers?period=2026-10")] == reports
        assert {**await _month(gateway), "state": "kept"} == october
        assert (await gateway.api("GET", f"/api/receipts/{old}")).status_code == 404
        assert (await _json(gateway, "/api/ledger/check"))["difference"] is None
        again = await _drop(gateway, october["heads"])
        assert (again.status_code, again.json()["error"]["code"]) == (409, "not_droppable")
        longer = json.loads((await _export(gateway, **{"from": "2026-10-01", "to": "2026-11-01"})).text)
        assert longer["error"]["code"] == "month_dropped"
        whole = (await _export(gateway, **{"from": "2026-09-01", "to": "2026-11-20"})).text.splitlines()
        assert (json.loads(whole[0])["complete"], json.loads(whole[-1])["rows"]) == (False, 0)
        entries = (await _json(gateway, "/api/audit"))["items"]
        assert [entry["object"] for entry in entries if entry["action"] == "ledger.drop"] == ["month:2026-10"]
        clock = gateway.clock
    async with running_gateway(tmp_path, clock=clock) as gateway:
        assert (await _json(gateway, "/api/ledger/check"))["difference"] is None
        assert gateway.gateway.running.services.ledger.closed_at_start == 0
        assert (await gateway.chat(customer="ann")).status_code == 200


async def test_a_month_stays_while_anything_speaks_against_it(gateway: Harness) -> None:
    gateway.clock.at = OCTOBER
    assert "has no receipts" in await _refusal(gateway, [])
    await gateway.chat(customer="ann")
    heads = (await _month(gateway))["heads"]
    assert "is not over" in await _refusal(gateway, heads)
    gateway.clock.at = datetime(2026, 11, 2, 23, 59, 59, tzinfo=UTC)
    assert "is not over" in await _refusal(gateway, heads)
    gateway.clock.at = datetime(2026, 11, 3, tzinfo=UTC)
    assert "newest receipt" in await _refusal(gateway, heads)
    await gateway.chat(customer="ann")
    assert "end elsewhere" in await _refusal(gateway, [])
    assert "end elsewhere" in await _refusal(gateway, [{**heads[0], "rows": 2}])
    assert "end elsewhere" in await _refusal(gateway, [{**heads[0], "head": "0" * 64}])
    member = (await gateway.make_key(role="member"))["key"]
    sent = {"authorization": f"Bearer {member}"}
    answer = await gateway.http.post("/api/ledger/months/2026-10/drop", json={"heads": heads}, headers=sent)
    assert answer.status_code == 403
    assert (await _month(gateway))["state"] == "kept"
    assert (await _drop(gateway, heads)).json() == {"receipts": 1, "done": True}


async def test_a_month_stays_while_a_call_of_it_runs_or_lies_open(
    gateway: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.clock.at = OCTOBER
    called, gate = asyncio.Event(), asyncio.Event()

    def hold_back(_: Seen) -> Reply:
        called.set()
        return Reply(gate=gate)

    await gateway.chat(customer="ann")
    gateway.provider.script = hold_back
    call = asyncio.create_task(gateway.chat(customer="ann"))
    await called.wait()
    gateway.clock.at = NOVEMBER
    heads = (await _month(gateway))["heads"]
    assert "is running" in await _refusal(gateway, heads)
    with monkeypatch.context() as patch:
        patch.setattr(gateway.gateway.running.services.ledger.counters, "running", lambda: iter(()))
        assert "is open still" in await _refusal(gateway, heads)
    gate.set()
    await call


async def test_a_month_stays_while_receipts_lie_in_the_spool(
    gateway: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> None:
        raise StoreUnavailable("receipts are in the spool still")

    monkeypatch.setattr(gateway.gateway.running.services.ledger, "see_all_imported", away)
    assert (await _drop(gateway, [])).status_code == 503


async def _two_months(gateway: Harness) -> None:
    """Three receipts in October, one in November."""
    together = await asyncio.gather(*(gateway.chat(customer=customer) for customer in ("ann", "bob", "ann")))
    assert [reply.status_code for reply in together] == [200, 200, 200]
    gateway.clock.at = NOVEMBER
    assert (await gateway.chat(customer="ann")).status_code == 200


async def _json(gateway: Harness, route: str) -> Any:
    reply = await gateway.api("GET", route)
    assert reply.status_code == 200, reply.text
    return reply.json()


async def _month(gateway: Harness) -> dict[str, Any]:
    months = (await _json(gateway, "/api/ledger/months"))["items"]
    return next(month for month in months if month["month"] == "2026-10")


async def _drop(gateway: Harness, heads: list[dict[str, Any]]) -> Any:
    return await gateway.api("POST", "/api/ledger/months/2026-10/drop", {"heads": heads})


async def _refusal(gateway: Harness, heads: list[dict[str, Any]]) -> str:
    answer = await _drop(gateway, heads)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "not_droppable")
    return str(answer.json()["error"]["message"])


async def _export(gateway: Harness, **params: str) -> Any:
    query = "&".join(f"{name}={text}" for name, text in params.items())
    return await gateway.api("GET", f"/v1/ledger/export?{query}")
