"""What a gateway makes of the calls that its last process left open (contract §10)."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.gateway import Harness, running_gateway
from tests.support.provider import Reply, Seen


@pytest.mark.sqlite
async def test_an_open_call_becomes_abandoned_with_the_trace_of_its_admission(
    gateway: Harness, tmp_path: Path
) -> None:
    cap = await gateway.make_cap(limit_usd="100")
    called, gate = asyncio.Event(), asyncio.Event()

    def hold_back(_: Seen) -> Reply:
        called.set()
        return Reply(gate=gate)

    gateway.provider.script = hold_back
    call = asyncio.create_task(gateway.chat(customer="a"))
    await called.wait()
    folder = tmp_path / "after"
    _copy_ledger(gateway, folder)
    gate.set()
    await call

    async with running_gateway(folder) as after:
        (receipt,) = await after.receipts()
        assert (receipt["status"], receipt["cost_nano_usd"]) == ("abandoned", None)
        assert receipt["counted_nano_usd"] == receipt["hold_nano_usd"] > 0
        explained = (await after.api("GET", f"/api/receipts/{receipt['receipt_id']}")).json()
        (line,) = explained["trace"]
        assert (line["cap_id"], line["verdict"], line["spent_nano_usd"]) == (cap["id"], "fits", 0)


def _copy_ledger(gateway: Harness, folder: Path) -> None:
    """The ledger as a killed process would leave it."""
    folder.mkdir()
    source = gateway.gateway.running.database.path
    with closing(sqlite3.connect(source)) as now, closing(sqlite3.connect(folder / "capline.db")) as copy:
        now.backup(copy)
