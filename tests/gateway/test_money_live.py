"""The figures of the source systems, to the nano-dollar, on a live gateway (R043, R055, R064, R067-R073)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.gateway import Harness, running_gateway
from tests.support.prices import row
from tests.support.provider import Reply, Seen, chat_answer
from toolkit.core.decisions import Balance

RATES = [
    row("m-cheap", input="0.05", output="0.05"),
    row("m", input="1", output="4"),
    row("free-in", input="0", output="4"),
]


def organization_balance(gateway: Harness) -> Balance:
    """The one dollar counter of the organization."""
    counters = gateway.gateway.running.services.ledger.counters
    (key,) = [key for key in tuple(counters.keys()) if key.scope == "organization" and key.unit == "usd"]
    return counters.balance(key)


async def test_the_worked_example_in_floor_mode(tmp_path: Path) -> None:  # R044, R045, R066-R073
    async with running_gateway(tmp_path, rows=RATES) as gateway:
        cap = {"scope": "organization", "subject": "default", "limit_usd": "2000", "admission": "floor"}
        await gateway.make_cap(**cap)
        gateway.provider.script = lambda seen: Reply(body=chat_answer("m", prompt=1_999_400_000, output=0))
        assert (await gateway.chat(model="m")).status_code == 200
        assert organization_balance(gateway).spent == 1_999_400_000_000

        gate = asyncio.Event()
        gateway.provider.script = lambda seen: Reply(
            body=chat_answer("m", prompt=45_000, output=0), gate=gate
        )
        running = asyncio.create_task(gateway.chat(model="m", size=8_192))
        await gateway.provider.until_called(2)
        # 8,192 bytes // 4 = 2,048 tokens at 0.05 USD a million = 102,400 nano-USD
        taken = organization_balance(gateway)
        assert taken.spent + taken.held_floor == 1_999_400_102_400
        gate.set()
        assert (await running).status_code == 200
        assert organization_balance(gateway) == Balance(1_999_445_000_000, 0, 0)


@pytest.mark.parametrize("admission", ["reserve", "after"])
async def test_twenty_calls_of_five_cents_against_one_dollar_admit_exactly_twenty(
    tmp_path: Path, admission: str
) -> None:  # R055
    async with running_gateway(tmp_path, rows=RATES) as gateway:
        await gateway.make_cap(limit_usd="1", admission=admission)
        # free-in holds and costs 12,500 output tokens at 4 USD a million = $0.05
        gateway.provider.script = lambda seen: Reply(body=chat_answer("free-in", prompt=1, output=12_500))
        statuses = [
            (await gateway.chat(model="free-in", customer="a", max_tokens=12_500)).status_code
            for _ in range(22)
        ]
        assert statuses == [200] * 20 + [402] * 2


async def test_floor_mode_refuses_at_equality(tmp_path: Path) -> None:  # R043
    async with running_gateway(tmp_path, rows=RATES) as gateway:
        # 990 nano spent; a body of 800 bytes has 200 tokens * 0.05 = 10 nano of floor: 990 + 10 reaches 1,000
        await gateway.make_cap(limit_usd="0.000010", admission="floor")
        gateway.provider.script = lambda seen: Reply(
            body=chat_answer("m-cheap", prompt=19_800 // 100, output=0)
        )
        assert (await gateway.chat(model="m-cheap", customer="a", size=400)).status_code == 200
        # spent: 198 tokens * 50 nano = 9,900; limit 10,000; floor of 8 bytes more or less than 100 nano decides
        at = await gateway.chat(
            model="m-cheap", customer="a", size=400
        )  # 100 tokens * 50 = 5,000 >= 100 left
        assert at.status_code == 402


async def test_a_pausing_cap_says_when_it_opens_again(tmp_path: Path) -> None:  # R064, R065
    async with running_gateway(tmp_path, rows=RATES) as gateway:
        await gateway.make_cap(scope="organization", subject="default", limit_usd="0", on_reach="pause")
        gateway.clock.at = datetime(2026, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
        refused = await gateway.chat(model="m")
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "1"
        assert refused.headers["x-should-retry"] == "false"
        assert refused.json()["error"]["type"] == "rate_limit_error"
        assert refused.json()["error"]["code"] == "budget_exceeded"
        gateway.clock.at = datetime(2026, 12, 31, 23, 0, tzinfo=UTC)
        assert (await gateway.chat(model="m")).headers["retry-after"] == "3600"


class CountingProvider:
    """Answers every call with 7,500 output tokens of free-in ($0.03) when its gate opens; keeps its own count."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.served_nano_usd = 0
        self.in_flight = 0
        self.decided = asyncio.Event()

    def __call__(self, seen: Seen) -> Reply:
        self.served_nano_usd += 7_500 * 4_000
        self.in_flight += 1
        self.decided.set()
        return Reply(body=chat_answer("free-in", prompt=1, output=7_500), gate=self.gate)


async def burst(gateway: Harness, provider: CountingProvider, calls: int, customer: str) -> list[Any]:
    """So many calls at once, each holding 10,000 output tokens ($0.04); the provider answers when all are decided."""
    provider.gate = asyncio.Event()
    tasks = [
        asyncio.create_task(gateway.chat(model="free-in", customer=customer, max_tokens=10_000))
        for _ in range(calls)
    ]
    for task in tasks:
        task.add_done_callback(lambda _: provider.decided.set())
    while sum(task.done() for task in tasks) + provider.in_flight < calls:
        provider.decided.clear()
        await provider.decided.wait()
    provider.gate.set()
    replies = await asyncio.gather(*tasks)
    provider.in_flight = 0
    return replies


async def test_no_burst_passes_an_armed_reserve_cap(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, rows=RATES) as gateway:
        await gateway.make_cap(limit_usd="1")
        provider = CountingProvider()
        gateway.provider.script = provider
        refusals: list[str] = []
        for _ in range(40):
            replies = await burst(gateway, provider, 200, "a")
            room_before = 1_000_000_000 - provider.served_nano_usd
            assert room_before >= 0, "the provider served more than the cap"
            codes = [reply.json()["error"]["code"] for reply in replies if reply.status_code != 200]
            served = len(replies) - len(codes)
            if served:  # only holds stood in the way of the others
                assert set(codes) <= {"budget_busy"}
            else:
                refusals = codes
                break
        # 32 * $0.03 = $0.96: a hold of $0.04 still fits exactly, so 33 calls cost $0.99 and the next does not fit
        assert provider.served_nano_usd == 33 * 30_000_000
        assert set(refusals) == {"budget_exceeded"}


async def test_the_first_burst_of_an_unknown_customer_is_held_too(tmp_path: Path) -> None:  # B05
    async with running_gateway(tmp_path, rows=RATES) as gateway:
        await gateway.make_cap(limit_usd="0.10")
        provider = CountingProvider()
        gateway.provider.script = provider
        replies = await burst(gateway, provider, 8, "never-seen")
        assert sorted(reply.status_code for reply in replies) == [200, 200] + [429] * 6
        assert provider.served_nano_usd == 2 * 30_000_000


async def test_floor_mode_overshoots_by_what_was_in_flight_at_most(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, rows=RATES) as gateway:
        await gateway.make_cap(limit_usd="1", admission="floor")
        provider = CountingProvider()
        gateway.provider.script = provider
        most_in_flight = 0
        while provider.served_nano_usd < 1_000_000_000:
            replies = await burst(gateway, provider, 20, "a")
            most_in_flight = max(most_in_flight, sum(reply.status_code == 200 for reply in replies))
        overshoot = provider.served_nano_usd - 1_000_000_000
        print(f"floor: {overshoot} nano-USD over, {most_in_flight} calls in flight at $0.03")  # noqa: T201
        assert 0 < overshoot <= most_in_flight * 30_000_000
        assert (await gateway.chat(model="free-in", customer="a")).status_code == 402
