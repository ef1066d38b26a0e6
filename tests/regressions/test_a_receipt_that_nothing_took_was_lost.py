"""A call ended while neither the ledger nor the spool could be written: its receipt was gone until the next start.

That start then counted it at its hold. The outage campaign with a full spool found it.
"""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from gateway import ledger as ledgers
from gateway.stores import committing
from tests.support.gateway import Harness, running_gateway
from tests.support.provider import Reply, chat_answer
from tests.support.raw_client import RawClient


async def until(met: Callable[[], bool]) -> None:
    """Give the loop turns until it is so."""
    async with asyncio.timeout(10):
        while not met():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


class Disk:
    """Of a gateway that is started over a folder: the ledger's and the spool's, each of which may be full."""

    def __init__(self, gateway: Harness) -> None:
        self.writer = gateway.gateway.running.services.ledger.writer
        self.ledger_full, self.spool_full = threading.Event(), threading.Event()
        self._append = self.writer.spool._append
        self.writer.spool._append = self._spool  # type: ignore[method-assign]
        event.listen(gateway.gateway.running.database.engine, "before_cursor_execute", self._execute)

    def _execute(self, _c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if self.ledger_full.is_set() and statement.startswith(("INSERT", "UPDATE", "DELETE")):
            raise OperationalError("the disk", {}, Exception("is full"))

    def _spool(self, lines: bytes) -> None:
        if self.spool_full.is_set():
            raise OSError(errno.ENOSPC, "No space left on device")
        self._append(lines)


async def stranded(gateway: Harness) -> Disk:
    """A call whose receipt neither took; its answer broke off."""
    disk, gate, client = Disk(gateway), asyncio.Event(), RawClient()
    gateway.provider.script = lambda seen: Reply(body=chat_answer(), gate=gate)
    headers = [(b"authorization", b"Bearer " + gateway.secret.encode()), (b"x-capline-tags", b"customer:ann")]
    body = b'{"model": "m-small", "max_tokens": 10, "messages": []}'
    call = asyncio.create_task(client.post(gateway.gateway, "/v1/chat/completions", body, headers))
    await gateway.provider.until_called()
    disk.ledger_full.set()
    disk.spool_full.set()
    gate.set()
    await call
    assert not client.ended
    await until(lambda: disk.writer.spool.not_imported == 1)
    return disk


async def is_true(gateway: Harness) -> None:
    """The receipt is there, flagged, and everything agrees with it."""
    (receipt, *_) = await gateway.receipts()
    assert (receipt["status"], receipt["cost_nano_usd"], receipt["verified"]) == ("served", 30_000, False)
    agreed = (await gateway.api("GET", "/api/ledger/check")).json()
    assert (agreed["ok"], agreed["difference"]) == (True, None)


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The database is asked again soon."""
    monkeypatch.setattr(committing, "RETRY_S", 0.02)
    monkeypatch.setattr(ledgers, "IMPORT_AGAIN_S", 0.02)


@pytest.mark.parametrize("spool_returns", [True, False])
async def test_it_is_kept_until_one_takes_it(tmp_path: Path, spool_returns: bool) -> None:
    async with running_gateway(tmp_path) as gateway:
        await gateway.make_cap(limit_usd="1")
        disk = await stranded(gateway)
        assert (await gateway.chat(customer="ann")).status_code == 503
        assert (await health(gateway))["spooled"] == 1
        disk.ledger_full.clear()
        if spool_returns:
            disk.spool_full.clear()
        await until(lambda: disk.writer.failed is None and disk.writer.spool.is_empty)
        await is_true(gateway)


async def test_a_stop_gives_it_to_a_spool_that_has_room_again(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        disk = await stranded(gateway)
        disk.spool_full.clear()
    async with running_gateway(tmp_path) as gateway:
        await is_true(gateway)


async def health(gateway: Harness) -> dict[str, Any]:
    """What the health page says of the store."""
    return dict((await gateway.http.get("/health")).json()["store"])
