"""A real clock moves within one change: the trace must still find who armed a cap, and why."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from tests.support.clock import ManualClock
from tests.support.gateway import running_gateway


class RunningClock(ManualClock):
    """Moves at every look, like a real one."""

    def __call__(self) -> datetime:
        self.advance(microseconds=7)
        return self.at


async def test_the_trace_says_who_armed_a_cap_and_why(tmp_path: Path) -> None:
    async with running_gateway(
        tmp_path, clock=RunningClock(datetime(2026, 12, 1, 12, tzinfo=UTC))
    ) as gateway:
        await gateway.make_cap(limit_usd="0")
        refused = await gateway.chat(customer="a")
        receipt = await gateway.api("GET", f"/api/receipts/{refused.headers['x-capline-request-id']}")
        (look,) = receipt.json()["trace"]
        assert (look["armed_by"], look["armed_reason"]) == ("admin-token", "test")
