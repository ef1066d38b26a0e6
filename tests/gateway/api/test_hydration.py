"""A cap that is made or moved in mid-period starts from what the receipts say, plus the holds of running calls."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from sqlalchemy import Connection

from tests.support.exports import abandoned, correction, instant, refused, served
from tests.support.gateway import Harness
from tests.support.provider import Reply, Seen, chat_answer
from toolkit.core.caps import Cap, CapBook
from toolkit.core.counters import Counted
from toolkit.core.decisions import Balance, CallFacts
from toolkit.core.receipts import Receipt
from toolkit.core.scopes import Attribution

Write = Callable[[Iterable[Receipt]], Awaitable[None]]

NOON = datetime.fromisoformat("2026-12-01T12:00:00Z")


async def looked_at(gateway: Harness, customer: str) -> dict[str, Any]:
    """What the newest call of a customer found under the first cap."""
    reply = await gateway.chat(customer=customer)
    detail = await gateway.api("GET", f"/api/receipts/{reply.headers['x-capline-request-id']}")
    return dict(detail.json()["trace"][0])


async def test_a_new_cap_starts_from_the_receipts_of_its_period(gateway: Harness, write: Write) -> None:
    december = [
        replace(served(1, NOON), customer="ann"),
        replace(served(2, NOON), customer="ben"),
        replace(abandoned(3), admitted_at=NOON, settled_at=NOON, customer="ann"),
        replace(refused(4), admitted_at=NOON, settled_at=NOON, customer="ann"),
    ]
    late = replace(correction(5, december[2]), customer="ann")
    await write([replace(served(9, instant(30)), customer="ann"), *december, late])
    await gateway.make_cap(limit_usd="1000")
    spent = sum(row.counted_nano_usd for row in (*december, late) if row.customer == "ann")
    assert spent == december[0].counted_nano_usd + (late.cost_nano_usd or 0)
    assert (await looked_at(gateway, "ann"))["spent_nano_usd"] == spent
    assert (await looked_at(gateway, "ben"))["spent_nano_usd"] == december[1].counted_nano_usd


async def test_running_calls_lend_their_holds_to_a_new_cap(gateway: Harness) -> None:
    gate, arrived = asyncio.Event(), asyncio.Semaphore(0)

    def held_back(_seen: Seen) -> Reply:
        arrived.release()
        return Reply(body=chat_answer(), gate=gate)

    gateway.provider.script = held_back
    running = asyncio.create_task(gateway.chat(customer="ann"))
    await arrived.acquire()
    await gateway.make_cap(request_limit=2)
    # One of two is held: the second fits, a third does not.
    second = asyncio.create_task(gateway.chat(customer="ann"))
    await arrived.acquire()
    busy = await gateway.chat(customer="ann")
    assert (busy.status_code, busy.json()["error"]["code"]) == (429, "budget_busy")
    gate.set()
    assert [(await call).status_code for call in (running, second)] == [200, 200]
    final = await gateway.chat(customer="ann")
    assert (final.status_code, final.json()["error"]["code"]) == (402, "budget_exceeded")


async def test_a_cap_that_moves_reads_its_new_past_and_keeps_the_old(gateway: Harness, write: Write) -> None:
    await write(
        [replace(served(1, instant(1, month=12)), customer="ann"), replace(served(2, NOON), customer="ann")]
    )
    cap = await gateway.make_cap(window="day", limit_usd="1000")
    day = (await looked_at(gateway, "ann"))["spent_nano_usd"]
    for window in ("month", "year", "day"):
        version = (await gateway.api("GET", f"/api/caps/{cap['id']}")).json()["version"]
        path = f"/api/caps/{cap['id']}"
        moved = await gateway.api("PATCH", path, {"window": window}, if_match=str(version))
        assert moved.status_code == 200
    # The first look was itself a call of 30,000 nano-USD: 10 tokens at 1,000 and 5 at 4,000.
    assert (await looked_at(gateway, "ann"))["spent_nano_usd"] == day + 30_000


async def test_a_new_axis_starts_from_the_receipts_too(gateway: Harness) -> None:
    cap = await gateway.make_cap(limit_usd="1")
    for _ in range(2):
        await gateway.chat(customer="ann")
    added = await gateway.api("PATCH", f"/api/caps/{cap['id']}", {"request_limit": 2}, if_match="2")
    assert added.status_code == 200
    assert (await gateway.chat(customer="ann")).status_code == 402


async def test_deleting_and_making_a_cap_again_keeps_what_was_spent(gateway: Harness) -> None:
    cap = await gateway.make_cap(request_limit=2)
    await gateway.chat(customer="ann")
    await gateway.api("DELETE", f"/api/caps/{cap['id']}", if_match="2")
    await gateway.chat(customer="ann")
    again = await gateway.make_cap(request_limit=2)
    assert again["id"] > cap["id"]
    assert (await gateway.chat(customer="ann")).status_code == 402


@pytest.mark.parametrize("step", ["reading", "storing"])
async def test_what_happens_while_a_cap_joins_is_counted_once(gateway: Harness, step: str) -> None:
    """Calls are admitted and settled while the receipts are read and the cap is stored; each counts once."""
    ledger = gateway.gateway.running.services.ledger
    cap = Cap(id=1, scope="customer", subject="*", window="month", request_limit=100)
    who = Attribution(organization="default", customer="ann")
    facts = CallFacts(who=who, at=NOON, hold_nano_usd=1, floor_nano_usd=0, hold_tokens=1)
    reached, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        reached.set()
        assert go_on.wait(10)

    read = ledger.writer.read_here

    async def slow_read(work: Callable[[Connection], Any]) -> Any:
        return await read(lambda connection: (wait(), work(connection))[1])

    if step == "reading":
        ledger.writer.read_here = slow_read  # type: ignore[method-assign]
    store = (lambda connection: wait()) if step == "storing" else None

    def call(number: int) -> Receipt:
        return replace(served(number, NOON), customer="ann")

    def settle(number: int) -> asyncio.Future[None]:
        ledger.settle(call(number).receipt_id, Counted(1, 1, 1))
        return ledger.record(call(number), None, closes_intent=False)

    for number in (1, 2):
        ledger.reserve(call(number).receipt_id, facts, ())
    before = settle(1)
    hydrating = asyncio.create_task(ledger.hydrate("default", cap, CapBook(), gateway.clock, store))
    await asyncio.to_thread(reached.wait, 10)
    for number in (3, 4):
        ledger.reserve(call(number).receipt_id, facts, ())
    during = [settle(2), settle(3)]
    go_on.set()
    await hydrating
    await asyncio.gather(before, *during)
    (key,) = (key for key in tuple(ledger.counters.keys()) if key.unit == "requests")
    assert ledger.counters.balance(key) == Balance(spent=3, held=1, held_floor=0)


async def test_a_cap_that_cannot_be_stored_is_not_in_force(gateway: Harness) -> None:
    ledger = gateway.gateway.running.services.ledger
    original = ledger.writer.run

    async def broken(_work: object) -> object:
        from sqlalchemy.exc import OperationalError

        raise OperationalError("INSERT", {"subject": "ann"}, Exception("disk is full"))

    ledger.writer.run = broken  # type: ignore[assignment,method-assign]
    sent = {"scope": "customer", "subject": "ann", "window": "month", "limit_usd": "0"}
    reply = await gateway.api("POST", "/api/caps", sent)
    ledger.writer.run = original  # type: ignore[method-assign]
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "store_unavailable")
    assert "ann" not in reply.text
    assert (await gateway.api("GET", "/api/caps")).json()["items"] == []
    assert (await gateway.chat(customer="ann")).status_code == 200
