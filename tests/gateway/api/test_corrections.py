"""An operator's correction: appended and chained, counted as the difference at once, and the same in every report."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import toolkit as tk
from gateway.policy import ROLES
from tests.gateway.api.conftest import Ask
from tests.support.gateway import Harness, running_gateway
from tests.support.prices import ROWS, row, write_list
from tests.support.provider import Reply, chat_answer
from toolkit.core.chain import check_chain
from toolkit.frames import Receipts, conform

LATER_ROWS = [*ROWS, row("m-new", input="2", output="8")]


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Harness]:
    """A gateway whose second list, of a later date, prices a model that the first does not know."""
    write_list(tmp_path / "prices")
    write_list(tmp_path / "prices", LATER_ROWS, dated="2026-12-02")
    async with running_gateway(tmp_path) as harness:
        yield harness


async def newer_list(gateway: Harness) -> str:
    lists = (await gateway.api("GET", "/api/price-lists")).json()["items"]
    return str(lists[0]["id"])


async def call(gateway: Harness, reply: Reply, model: str = "m-small", **fields: Any) -> dict[str, Any]:
    """The receipt of one call that the provider answers so."""
    gateway.provider.script = lambda _seen: reply
    await gateway.chat(customer="ann", model=model, **fields)
    return (await gateway.receipts())[-1]


async def unknown_model(gateway: Harness) -> dict[str, Any]:
    return await call(gateway, Reply(body=chat_answer("m-new", 1_000, 100)), model="m-new")


async def no_usage(gateway: Harness) -> dict[str, Any]:
    body = json.loads(chat_answer())
    del body["usage"]
    return await call(gateway, Reply(body=json.dumps(body).encode()))


async def correct(gateway: Harness, receipt: dict[str, Any], **body: Any) -> Any:
    sent = {"reason": "the provider's statement", **body}
    return await gateway.api("POST", f"/api/receipts/{receipt['receipt_id']}/correct", sent)


async def test_a_later_list_settles_a_call_of_an_unknown_model(gateway: Harness) -> None:
    before = await unknown_model(gateway)
    assert (before["status"], before["unpriced_reason"]) == ("served", "model_unknown")
    reply = await correct(gateway, before, price_list=await newer_list(gateway))
    assert reply.status_code == 201, reply.text
    made = reply.json()
    cost = 1_000 * 2_000 + 100 * 8_000  # nano-USD: 2 and 8 dollars a million
    assert (made["corrects"], made["cost_nano_usd"]) == (before["receipt_id"], cost)
    assert (made["counted_nano_usd"], made["price_row"]) == (cost, "openai/m-new standard")
    rows = await gateway.receipts()
    assert [row["receipt_id"] for row in rows] == [before["receipt_id"], made["receipt_id"]]
    assert rows[0] == before, "history never changes"
    assert check_chain(rows) == []
    repeated = (
        "operation_id",
        "admitted_at",
        "organization",
        "key_id",
        "customer",
        "provider",
        "upstream_id",
    )
    assert {name: made[name] for name in repeated} == {name: before[name] for name in repeated}


async def test_a_stated_usage_settles_a_call_without_one_and_frees_its_hold(gateway: Harness) -> None:
    cap = await gateway.make_cap(limit_usd="1", token_limit=10_000_000)
    before = await no_usage(gateway)
    assert before["counted_nano_usd"] == before["hold_nano_usd"] > 0
    reply = await correct(gateway, before, usage={"input_tokens": 10, "output_tokens": 5})
    assert reply.status_code == 201, reply.text
    made = reply.json()
    assert (made["cost_nano_usd"], made["unpriced_reason"], made["status"]) == (30_000, None, "served")
    assert made["counted_nano_usd"] == 30_000 - before["counted_nano_usd"]
    assert made["counted_tokens"] == 15 - before["counted_tokens"]
    await call(gateway, Reply(body=chat_answer()))
    last = (await gateway.api("GET", f"/api/receipts/{(await gateway.receipts())[-1]['receipt_id']}")).json()
    spent = {line["unit"]: line.get("spent_nano_usd", line.get("spent")) for line in last["trace"]}
    assert spent == {"usd": 30_000, "tokens": 15}
    assert last["trace"][0]["cap_id"] == cap["id"]


async def test_after_a_restart_the_counters_say_the_same(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        await gateway.make_cap(limit_usd="1")
        before = await no_usage(gateway)
        assert (await correct(gateway, before, usage={"input_tokens": 7})).status_code == 201
        counters = gateway.gateway.running.services.ledger.counters
        live = {key: counters.balance(key) for key in tuple(counters.keys())}
    async with running_gateway(tmp_path) as gateway:
        counters = gateway.gateway.running.services.ledger.counters
        assert {key: counters.balance(key) for key in tuple(counters.keys())} == live
        assert [balance.spent for balance in live.values()] == [7_000]


async def test_a_call_cut_off_is_settled_by_what_the_provider_states(gateway: Harness) -> None:
    before = await call(gateway, Reply(fault="broken"))
    assert (before["status"], before["cost_nano_usd"]) == ("abandoned", None)
    without = await correct(gateway, before, price_list=before["price_list"])
    assert (without.status_code, without.json()["error"]["field"]) == (422, "usage")
    reply = await correct(gateway, before, usage={"output_tokens": 3, "input_tokens": 0})
    assert (reply.status_code, reply.json()["cost_nano_usd"]) == (201, 12_000)


async def test_what_cannot_be_corrected_says_so(gateway: Harness) -> None:
    priced = await call(gateway, Reply(body=chat_answer()))
    usage = {"input_tokens": 1}
    assert (await correct(gateway, priced, usage=usage)).status_code == 409
    failed = await call(gateway, Reply(status=400, body=b"{}"))
    assert (await correct(gateway, failed, usage=usage)).status_code == 409
    assert (await correct(gateway, {"receipt_id": "rc_none"}, usage=usage)).status_code == 404
    open_one = await no_usage(gateway)
    made = await correct(gateway, open_one, usage=usage)
    assert made.status_code == 201
    again = await correct(gateway, open_one, usage=usage)
    assert (again.status_code, again.json()["error"]["code"]) == (409, "not_correctable")
    assert (await correct(gateway, made.json(), usage=usage)).status_code == 409
    assert len(await gateway.receipts()) == 4


async def test_of_two_corrections_at_once_one_is_made(gateway: Harness) -> None:
    before = await no_usage(gateway)
    both = await asyncio.gather(*(correct(gateway, before, usage={"input_tokens": n}) for n in (1, 2)))
    assert sorted(reply.status_code for reply in both) == [201, 409]


async def test_a_body_that_says_nothing_usable_is_refused_by_field(gateway: Harness) -> None:
    before = await unknown_model(gateway)
    newer = await newer_list(gateway)
    wrong: list[tuple[dict[str, Any], str | None]] = [
        ({}, None),
        ({"price_list": "2020-01-01+sha256:000000000000"}, "price_list"),
        ({"price_list": before["price_list"]}, "price_list"),  # its own list still has no price
        ({"price_list": newer, "reason": "  "}, "reason"),
        ({"usage": {}}, "usage"),
        ({"usage": {"input_tokens": -1}}, "usage.input_tokens"),
        ({"usage": {"input_tokens": 1.5}}, "usage.input_tokens"),
        ({"usage": {"prompt_tokens": 1}}, "usage.prompt_tokens"),
        ({"usage": {"output_tokens": 1, "reasoning_tokens": 2}}, "usage"),
        ({"usage": {"units": {"seconds": "1e9"}}}, "usage.units.seconds"),
        ({"usage": {"input_tokens": 2**53 - 1, "output_tokens": 2**53 - 1}}, "usage"),
    ]
    for body, field in wrong:
        reply = await correct(gateway, before, **body)
        assert reply.status_code == 422, body
        assert (reply.json()["error"].get("field") or "").startswith(field or ""), reply.text
    assert len(await gateway.receipts()) == 1


@pytest.mark.parametrize("role", ROLES)
async def test_who_corrects(gateway: Harness, keys: dict[str | None, str], ask: Ask, role: str) -> None:
    before = await no_usage(gateway)
    path = f"/api/receipts/{before['receipt_id']}/correct"
    reply = await ask(keys[role], "POST", path, {"usage": {"input_tokens": 1}, "reason": "r"})
    assert reply.status_code == (201 if role in ("owner", "admin") else 403)


async def test_it_leaves_one_audit_row_with_its_reason_and_no_customer(gateway: Harness) -> None:
    before = await unknown_model(gateway)
    made = (await correct(gateway, before, price_list=await newer_list(gateway), reason="listed now")).json()
    entry = (await gateway.api("GET", "/api/audit")).json()["items"][0]
    assert (entry["action"], entry["object"]) == ("receipt.correct", f"receipt:{before['receipt_id']}")
    assert (entry["reason"], entry["before"]["cost_nano_usd"]) == ("listed now", None)
    assert entry["after"]["receipt_id"] == made["receipt_id"]
    assert "ann" not in json.dumps(entry)


async def test_reports_what_if_and_verify_read_it_by_the_same_rules(gateway: Harness, tmp_path: Path) -> None:
    await call(gateway, Reply(body=chat_answer()))
    before = await unknown_model(gateway)
    newer = await newer_list(gateway)
    await correct(gateway, before, price_list=newer)
    lost = await call(gateway, Reply(fault="broken"))
    await correct(gateway, lost, usage={"input_tokens": 10, "output_tokens": 1})
    export = tmp_path / "2026-12.parquet"
    export.write_bytes((await gateway.api("GET", "/v1/ledger/export?format=parquet&month=2026-12")).content)
    receipts = Receipts.from_frame(conform(pl.read_parquet(export).lazy()))
    row = (await gateway.api("GET", "/api/spend")).json()["items"][0]
    theirs = tk.spend(receipts, by=()).to_dicts()[0]
    figures = (
        "requests",
        "priced_requests",
        "unpriced_requests",
        "input_tokens",
        "cost_nano_usd",
        "counted_nano_usd",
    )
    assert {name: row[name] for name in figures} == {name: theirs[name] for name in figures}
    assert (row["requests"], row["unpriced_requests"]) == (3, 0)
    assert row["cost_nano_usd"] == row["counted_nano_usd"] == 30_000 + 2_800_000 + 14_000
    assert row["input_tokens"] == 10 + 1_000 + 10
    assert tk.unpriced(receipts).height == 0
    assert (await gateway.api("GET", "/api/unpriced")).json()["items"] == []
    assert tk.months(receipts).filter("total")["cost_nano_usd"].to_list() == [row["cost_nano_usd"]]
    judged = tk.what_if(receipts, [])
    assert judged.decisions.filter(pl.col("verdict") == "not_judged").height == 2
    lists = gateway.gateway.running.policy.current.prices
    verdict = tk.verify(export, price_lists=lists)
    assert (verdict.first_fault, verdict.priced_rows) == (None, 3)


async def test_a_tier_without_a_price_is_kept_and_settled_by_the_list_that_has_it(tmp_path: Path) -> None:
    write_list(tmp_path / "prices")
    fast = {**row("m-small", input="2", output="8"), "tier": "priority"}
    write_list(tmp_path / "prices", [*ROWS, fast], dated="2026-12-02")
    async with running_gateway(tmp_path) as gateway:
        body = json.loads(chat_answer()) | {"service_tier": "priority"}
        before = await call(gateway, Reply(body=json.dumps(body).encode()))
        assert (before["unpriced_reason"], before["service_tier"]) == (
            "no_list_price_for_service_tier",
            "priority",
        )
        made = (await correct(gateway, before, price_list=await newer_list(gateway))).json()
        assert (made["cost_nano_usd"], made["price_row"]) == (60_000, "openai/m-small priority")
