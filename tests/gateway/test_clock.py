"""A clock that jumps neither drops the counters of a live period nor lets a cap read an empty one."""

from __future__ import annotations

from datetime import datetime, timedelta

from gateway.steadiness import CLOSED_GRACE, Steadiness
from tests.support.gateway import Harness

START = datetime.fromisoformat("2026-12-01T12:00:00Z")


async def test_a_jump_ahead_and_back_keeps_what_was_spent(gateway: Harness) -> None:
    await gateway.make_cap(request_limit=2)
    await gateway.chat(customer="ann")
    gateway.clock.advance(days=40)
    assert (await gateway.chat(customer="ann")).status_code == 200
    health = (await gateway.http.get("/health")).json()
    assert abs(health["clock_stepped_s"] - 40 * 86_400) < 60
    gateway.clock.advance(days=1)
    assert (await gateway.chat(customer="ann")).status_code == 200
    gateway.clock.advance(days=-41)
    assert (await gateway.chat(customer="ann")).status_code == 200
    assert (await gateway.chat(customer="ann")).status_code == 402
    found = (await gateway.api("GET", "/api/ledger/check")).json()
    assert found["difference"] is None


async def test_a_clock_before_the_counters_refuses_what_is_capped(gateway: Harness) -> None:
    await gateway.make_cap(subject="ann", request_limit=5)
    gateway.clock.advance(days=-1)
    refused = await gateway.chat(customer="ann")
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "budget_unverifiable")
    assert (await gateway.chat(customer="bob")).status_code == 200
    gateway.clock.advance(days=1)
    assert (await gateway.chat(customer="ann")).status_code == 200


def test_closed_periods_are_forgotten_after_two_even_days() -> None:
    seconds = 0.0
    steadiness = Steadiness(START, lambda: seconds)
    at = START
    forgotten = []
    for _ in range(3):
        seconds += 86_400
        at += timedelta(days=1)
        forgotten.append(steadiness.closed_before(at))
        assert steadiness.closed_before(at) is None
    assert forgotten == [None, at - timedelta(days=1) - CLOSED_GRACE, at - CLOSED_GRACE]
    assert not steadiness.knows(at - CLOSED_GRACE - timedelta(seconds=1))
    at += timedelta(days=30)
    assert steadiness.closed_before(at) is None
    assert steadiness.stepped == timedelta(days=30)
    seconds += 86_400
    assert steadiness.closed_before(at + timedelta(days=1)) is None
