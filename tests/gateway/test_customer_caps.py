"""Customer caps on live traffic: who is refused, when, and that the provider is never called for it (R020-R034).

m-small costs 1 USD a million tokens in and 4 out, so an answer of 250 output tokens costs $0.001 and a little input.
"""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from gateway.steadiness import Steadiness
from tests.support.gateway import Harness
from tests.support.provider import Reply, chat_answer

TENTH = 100_000
"""Input tokens of m-small that cost exactly $0.10."""


def costing(dollars_tenths: int) -> Reply:
    """An answer that costs that many tenths of a dollar, to the nano."""
    return Reply(body=chat_answer(prompt=dollars_tenths * TENTH, output=0))


async def spend(gateway: Harness, customer: str, tenths: int) -> None:
    """Let a customer spend exactly so many tenths of a dollar."""
    before, gateway.provider.script = gateway.provider.script, lambda seen: costing(tenths)
    assert (await gateway.chat(customer=customer)).status_code == 200
    gateway.provider.script = before


@pytest.mark.parametrize("admission", ["reserve", "floor", "after"])
async def test_a_customer_at_the_cap_is_refused_before_the_provider_is_called(
    gateway: Harness, admission: str
) -> None:  # R021, R022, R107
    await gateway.make_cap(limit_usd="1", admission=admission)
    await spend(gateway, "a", 10)
    served_before = len(gateway.provider.seen)
    refused = await gateway.chat(customer="a")
    assert refused.status_code == 402
    assert refused.json()["error"]["code"] == "budget_exceeded"
    assert refused.json()["error"]["type"] == "insufficient_quota"
    assert refused.headers["x-should-retry"] == "false"
    assert "retry-after" not in refused.headers
    assert len(gateway.provider.seen) == served_before
    assert (await gateway.chat(customer="b")).status_code == 200


async def test_an_armed_override_replaces_the_default_of_its_window_even_when_looser(
    gateway: Harness,
) -> None:
    await gateway.make_cap(limit_usd="1")  # R024
    await gateway.make_cap(subject="vip", limit_usd="5")
    await spend(gateway, "vip", 30)
    assert (await gateway.chat(customer="vip")).status_code == 200
    await spend(gateway, "other", 10)
    assert (await gateway.chat(customer="other")).status_code == 402


async def test_a_disarmed_override_counts_and_the_default_still_binds(gateway: Harness) -> None:
    await gateway.make_cap(limit_usd="1")  # R025
    await gateway.make_cap(subject="vip", limit_usd="5", armed=False)
    await spend(gateway, "vip", 10)
    assert (await gateway.chat(customer="vip")).status_code == 402


async def test_a_default_on_another_window_still_applies_next_to_an_override(gateway: Harness) -> None:
    await gateway.make_cap(subject="vip", limit_usd="5", window="month")  # R026
    await gateway.make_cap(limit_usd="1", window="day")
    await spend(gateway, "vip", 10)
    refused = await gateway.chat(customer="vip")
    assert refused.status_code == 402
    assert refused.headers["x-capline-budget-window"] == "day"


async def test_of_two_default_rules_the_tightest_decides(gateway: Harness) -> None:
    await gateway.make_cap(limit_usd="20", window="month")  # R027
    await gateway.make_cap(limit_usd="1", window="day")
    await spend(gateway, "a", 10)
    refused = await gateway.chat(customer="a")
    assert refused.headers["x-capline-budget-window"] == "day"
    gateway.clock.advance(days=1)
    assert (await gateway.chat(customer="a")).status_code == 200


async def test_raising_renaming_and_recreating_keep_what_was_spent(gateway: Harness) -> None:
    cap = await gateway.make_cap(limit_usd="1")  # R029
    await spend(gateway, "a", 6)
    raised = await gateway.api(
        "PATCH", f"/api/caps/{cap['id']}", {"limit_usd": "2"}, if_match=str(cap["version"])
    )
    assert raised.status_code == 200, raised.text
    served = await gateway.chat(customer="a")
    # $2.00 - $0.60 - this call's hold of its body bytes and 10 output tokens
    held = len(gateway.provider.seen[-1].body) * 1_000 + 10 * 4_000
    remaining = 2_000_000_000 - 600_000_000 - held
    assert served.headers["x-capline-budget-remaining"] == f"{remaining // 1_000 / 1_000_000:.6f}"
    version = str(raised.json()["version"])
    assert (await gateway.api("DELETE", f"/api/caps/{cap['id']}", if_match=version)).status_code == 204
    await spend(gateway, "a", 1)  # counted by no cap, kept by the receipts
    await gateway.make_cap(limit_usd="0.70")
    assert (await gateway.chat(customer="a")).status_code == 402


async def test_the_hard_stop_is_one_switch(gateway: Harness) -> None:
    cap = await gateway.make_cap(limit_usd="1", armed=False)  # R031, R034, R075
    await spend(gateway, "a", 20)
    watched = await gateway.chat(customer="a")
    assert watched.status_code == 200
    assert not [name for name in watched.headers if "budget" in name]
    armed = await gateway.api(
        "POST", f"/api/caps/{cap['id']}/arm", {"reason": "over"}, if_match=str(cap["version"])
    )
    assert armed.status_code == 200
    assert (await gateway.chat(customer="a")).status_code == 402
    assert (await gateway.api("POST", f"/api/caps/{cap['id']}/disarm")).status_code == 200
    assert (await gateway.chat(customer="a")).status_code == 200


async def test_an_untagged_request_is_not_a_customers(gateway: Harness) -> None:
    await gateway.make_cap(limit_usd="0")  # R016
    assert (await gateway.chat()).status_code == 200
    assert (await gateway.chat(customer="a")).status_code == 402


async def test_a_cap_made_in_mid_period_starts_from_the_receipts_and_the_running_holds(
    gateway: Harness,
) -> None:
    gate = asyncio.Event()
    await spend(gateway, "a", 9)
    gateway.provider.script = lambda seen: Reply(body=chat_answer(prompt=TENTH, output=0), gate=gate)
    running = asyncio.create_task(gateway.chat(customer="a", max_tokens=16_000))  # holds $0.064 and its bytes
    await gateway.provider.until_called(2)
    await gateway.make_cap(limit_usd="1")
    busy = await gateway.chat(customer="a", max_tokens=16_000)
    assert (busy.status_code, busy.json()["error"]["code"]) == (429, "budget_busy")
    gate.set()
    assert (await running).status_code == 200
    final = await gateway.chat(customer="a", max_tokens=16_000)
    assert (final.status_code, final.json()["error"]["code"]) == (402, "budget_exceeded")


@pytest.mark.parametrize("tag", [b"customer:", b"customer:" + b"x" * 129, b"customer:\xff"])
async def test_a_bad_customer_value_is_refused_only_under_an_armed_customer_cap(
    gateway: Harness, tag: bytes
) -> None:  # R014, R015
    async def call() -> Any:
        headers = [(b"authorization", f"Bearer {gateway.secret}".encode()), (b"x-capline-tags", tag)]
        body = json.dumps({"model": "m-small", "messages": [], "max_tokens": 1})
        return await gateway.http.post("/v1/chat/completions", content=body, headers=headers)

    assert (await call()).status_code == 200
    assert (await gateway.receipts())[-1]["customer"] is None
    await gateway.make_cap(limit_usd="1")
    refused = await call()
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "invalid_customer_tag"
    assert refused.json()["error"]["message"] == "The customer tag must be 1 to 128 characters."
    assert not [name for name in refused.headers if "budget" in name]


async def test_a_customer_that_looks_like_anything_is_only_itself(gateway: Harness) -> None:
    await gateway.make_cap(limit_usd="1")  # R002, R007, R009, R011, R012
    for customer in ("a'; DROP--", "Acme", "acme", "acme ", "*"):
        headers = [
            (b"authorization", f"Bearer {gateway.secret}".encode()),
            (b"x-capline-tags", b"team:\xff, run:r1"),
            (b"x-capline-tags", f"customer:{customer},customer:second".encode()),
        ]
        body = json.dumps({"model": "m-small", "messages": [], "max_tokens": 1})
        served = await gateway.http.post("/v1/chat/completions", content=body, headers=headers)
        assert served.status_code == 200, served.text
    kept = [receipt["customer"] for receipt in await gateway.receipts()]
    assert kept == ["a'; DROP--", "Acme", "acme", "acme ", "*"]
    assert gateway.provider.seen[-1].header("x-capline-tags") is None  # R017


async def test_a_new_period_starts_at_zero_without_any_job_and_closed_counters_go(gateway: Harness) -> None:
    ledger, clock = gateway.gateway.running.services.ledger, gateway.clock
    ledger.steadiness = Steadiness(clock.at, lambda: clock.at.timestamp())  # both clocks run alike
    await gateway.make_cap(limit_usd="1", window="day")  # R036, R041, R042
    gateway.clock.at = datetime(2026, 12, 1, 23, 59, 59, 999_999, tzinfo=UTC)
    await spend(gateway, "a", 10)
    assert (await gateway.chat(customer="a")).status_code == 402
    gateway.clock.advance(microseconds=1)
    assert (await gateway.chat(customer="a")).status_code == 200
    counters = ledger.counters
    assert {key.period for key in tuple(counters.keys())} == {"2026-12-01", "2026-12-02"}
    gateway.clock.advance(days=3)
    assert (await gateway.chat(customer="a")).status_code == 200
    assert {key.period for key in tuple(counters.keys())} == {"2026-12-05"}
