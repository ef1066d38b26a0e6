"""A call older than CAPLINE_HOLD_TTL_S is abandoned in the ledger, read on, and corrected by its late end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from gateway import exchange
from gateway.ledger import Ledger
from tests.gateway.test_streams import DONE, MESSAGES, SSE, chunk, committed
from tests.support.gateway import Harness
from tests.support.provider import Reply, chat_answer
from tests.support.raw_client import RawClient
from toolkit.core.counters import Counters

COST = 1_200_000
"""1,000 tokens in at 1 USD a million and 50 out at 4, in nano-USD."""
WHOLE = chat_answer(prompt=1_000, output=50)


@pytest.fixture(autouse=True)
async def _caps(gateway: Harness) -> None:
    """Every call outlasts its time at once; dollars and requests are counted."""
    object.__setattr__(gateway.gateway.running.services.settings, "hold_ttl_s", 0)
    await gateway.make_cap(limit_usd="100", request_limit=100)


def taken(gateway: Harness) -> dict[str, tuple[int, int]]:
    """Spent and held by unit."""
    counters = gateway.gateway.running.services.ledger.counters
    return {
        key.unit: (counters.balance(key).spent, counters.balance(key).held) for key in set(counters.keys())
    }


async def until(met: Callable[[], Any]) -> None:
    """Give the loop turns until it is so."""
    async with asyncio.timeout(5):
        while not met():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


class Running:
    """A call that has been recorded as abandoned and still runs."""

    def __init__(self, gateway: Harness, answer: Callable[[asyncio.Event], Reply], **fields: Any) -> None:
        self.gateway, self.gate, self.client = gateway, asyncio.Event(), RawClient()
        gateway.provider.script = lambda seen: answer(self.gate)
        body = {"model": "m-small", "max_tokens": 100, "messages": [], **fields}
        self.path = "/v1/messages" if fields.get("model") == "claude-test" else "/v1/chat/completions"
        self.body = json.dumps(body).encode()

    async def __aenter__(self) -> Running:
        secret = self.gateway.secret.encode()
        headers = [(b"authorization", b"Bearer " + secret), (b"x-capline-tags", b"customer:a")]
        post = self.client.post(self.gateway.gateway, self.path, self.body, headers)
        self.call: Awaitable[None] = asyncio.create_task(post)
        await until(lambda: committed(self.gateway) == 1)
        (self.abandoned,) = await self.gateway.receipts()
        assert (self.abandoned["status"], self.abandoned["cost_nano_usd"]) == ("abandoned", None)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.gate.set()
        await asyncio.wait_for(self.call, 5)

    async def end(self) -> dict[str, Any] | None:
        """Let the provider go on; the row that corrects the abandoned one."""
        self.gate.set()
        await asyncio.wait_for(self.call, 5)
        first, *later = await self.gateway.receipts()
        assert first == self.abandoned
        assert len(later) <= 1
        return later[0] if later else None


def whole(gate: asyncio.Event) -> Reply:
    """A JSON answer that comes late."""
    return Reply(body=WHOLE, gate=gate)


async def test_a_late_answer_is_delivered_and_corrects_its_receipt(gateway: Harness) -> None:
    async with Running(gateway, whole) as late:
        hold = late.abandoned["hold_nano_usd"]
        assert (late.abandoned["counted_nano_usd"], late.abandoned["unpriced_reason"]) == (
            hold,
            "outcome_unknown",
        )
        assert late.abandoned["http_status"] is None
        assert taken(gateway) == {"usd": (hold, 0), "requests": (1, 0)}
        made = await late.end()
    assert (late.client.ended, late.client.body) == (True, WHOLE)
    assert dict(late.client.messages[0]["headers"])[b"x-capline-cost-usd"] == b"0.001200000"
    assert made is not None
    assert (made["corrects"], made["status"]) == (late.abandoned["receipt_id"], "served")
    assert (made["operation_id"], made["admitted_at"]) == (
        late.abandoned["operation_id"],
        late.abandoned["admitted_at"],
    )
    assert (made["cost_nano_usd"], made["counted_nano_usd"]) == (COST, COST - hold)
    assert (made["http_status"], made["upstream_id"]) == (200, "chatcmpl-1")
    assert taken(gateway) == {"usd": (COST, 0), "requests": (1, 0)}


async def test_a_stream_is_never_cut_and_its_correction_is_on_disk_before_its_end(gateway: Harness) -> None:
    """What the provider said before the time was up is counted when it is worth more than the hold."""
    seen: list[tuple[bytes, int]] = []

    def answer(gate: asyncio.Event) -> Reply:
        return Reply(chunks=[MESSAGES[0], gate, *MESSAGES[1:]], headers=SSE)

    late = Running(gateway, answer, model="claude-test", stream=True)
    late.client = RawClient(lambda message: seen.append((message.get("body", b""), committed(gateway))))
    object.__setattr__(gateway.gateway.running.services.settings, "hold_ttl_s", 0.05)
    async with late:
        # 1,000 tokens in at 4 USD a million and 1 out at 20
        assert (late.abandoned["counted_nano_usd"], late.abandoned["usage_source"]) == (4_020_000, "partial")
        assert (late.abandoned["upstream_id"], late.abandoned["http_status"]) == ("msg_1", 200)
        made = await late.end()
    assert made is not None
    assert (made["cost_nano_usd"], made["counted_nano_usd"]) == (5_000_000, 980_000)
    assert (late.client.ended, late.client.body) == (True, b"".join(MESSAGES))
    assert [count for body, count in seen if MESSAGES[-1] in body] == [2]
    assert taken(gateway)["usd"] == (5_000_000, 0)


async def test_an_end_without_usage_leaves_and_the_abandoned_row_stands(gateway: Harness) -> None:
    def answer(gate: asyncio.Event) -> Reply:
        return Reply(chunks=[chunk("a"), gate, chunk("b"), DONE], headers=SSE)

    async with Running(gateway, answer, stream=True) as late:
        assert await late.end() is None
    assert (late.client.ended, late.client.body.endswith(DONE)) == (True, True)


@pytest.mark.parametrize("status", [400, 429, 503, 529])
async def test_a_late_no_that_bills_nothing_gives_everything_back(
    gateway: Harness, status: int
) -> None:  # contract §7, §8
    async with Running(gateway, lambda gate: Reply(body=b"{}", status=status, gate=gate)) as late:
        made = await late.end()
    assert made is not None
    assert (made["status"], made["http_status"], made["cost_nano_usd"]) == ("failed", status, 0)
    assert made["counted_nano_usd"] == -late.abandoned["counted_nano_usd"]
    assert made["counted_tokens"] == -late.abandoned["counted_tokens"]
    assert taken(gateway) == {"usd": (0, 0), "requests": (0, 0)}
    writer = gateway.gateway.running.services.ledger.writer
    again = Ledger(writer, Counters(), closed=0, at=gateway.clock())
    await again.hydrate_book("default", gateway.gateway.running.policy.current.book("default"), gateway.clock)
    assert {again.counters.balance(key).spent for key in set(again.counters.keys())} == {0}


@pytest.mark.parametrize("reply", [Reply(body=b"{}", status=500), Reply(fault="broken")])
async def test_what_nobody_can_know_stays_abandoned(gateway: Harness, reply: Reply) -> None:
    def answer(gate: asyncio.Event) -> Reply:
        reply.gate = gate
        return reply

    async with Running(gateway, answer) as late:
        assert await late.end() is None
    assert taken(gateway)["usd"] == (late.abandoned["hold_nano_usd"], 0)


async def test_a_call_that_never_ends_is_left_after_a_day(
    gateway: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "LONGEST", timedelta(seconds=0.05))
    async with Running(gateway, whole) as late:
        await asyncio.wait_for(late.call, 5)
    assert late.client.messages[0]["status"] == 502
    assert await gateway.receipts() == [late.abandoned]


async def test_after_its_client_left_it_is_read_for_drain_s_only(gateway: Harness) -> None:
    async with Running(gateway, whole) as late:
        object.__setattr__(gateway.gateway.running.services.settings, "drain_s", 0)
        late.client.gone.set()
        await asyncio.wait_for(late.call, 5)
    assert await gateway.receipts() == [late.abandoned]


async def test_after_its_client_left_a_late_end_still_corrects(gateway: Harness) -> None:
    async with Running(gateway, whole) as late:
        await asyncio.sleep(0.1)  # calls are watched for a client that leaves after 50 ms
        late.client.gone.set()
        await asyncio.sleep(0)
        made = await late.end()
    assert made is not None
    assert (made["cost_nano_usd"], made["client_left"], late.abandoned["client_left"]) == (COST, True, False)


async def correct_by_hand(gateway: Harness, receipt: dict[str, Any]) -> int:
    """An operator's correction, to 10 tokens in and 1 out; its HTTP status."""
    body = {"usage": {"input_tokens": 10, "output_tokens": 1}, "reason": "invoice"}
    return (await gateway.api("POST", f"/api/receipts/{receipt['receipt_id']}/correct", body)).status_code


async def test_whoever_corrects_first_is_the_only_one(gateway: Harness) -> None:
    async with Running(gateway, whole) as late:
        assert await correct_by_hand(gateway, late.abandoned) == 201
        made = await late.end()
    assert made is not None
    assert (made["cost_nano_usd"], late.client.body) == (14_000, WHOLE)
    assert taken(gateway) == {"usd": (14_000, 0), "requests": (1, 0)}
    assert await correct_by_hand(gateway, late.abandoned) == 409


async def test_an_operator_and_a_late_end_at_once_make_one_correction(gateway: Harness) -> None:
    async with Running(gateway, whole) as late:
        by_hand = [asyncio.create_task(correct_by_hand(gateway, late.abandoned)) for _ in range(3)]
        made = await late.end()
        answers = [await each for each in by_hand]
    assert made is not None
    assert late.client.body == WHOLE
    assert taken(gateway) == {"usd": (made["cost_nano_usd"], 0), "requests": (1, 0)}
    assert answers.count(201) == (made["cost_nano_usd"] == 14_000)
    assert set(answers) <= {201, 409}


async def test_an_end_whose_correction_the_ledger_does_not_take_is_withheld(
    gateway: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Running(gateway, whole) as late:
        writer = gateway.gateway.running.services.ledger.writer

        def fails(*_: object) -> None:
            raise OSError("disk full")

        with monkeypatch.context() as broken:
            broken.setattr(writer, "append_in_job", fails)
            assert await late.end() is None
        assert taken(gateway)["usd"] == (late.abandoned["hold_nano_usd"], 0)
        assert (late.client.ended, late.client.body) == (False, b"")
        assert await correct_by_hand(gateway, late.abandoned) == 201
