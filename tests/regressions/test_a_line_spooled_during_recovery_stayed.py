"""A receipt that reached the spool while the database came back stayed there until the next outage or restart.

Corrections, new caps and the check waited for it. The state machine of calls found it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from gateway import ledger as ledgers
from gateway.stores import committing
from tests.support.gateway import running_gateway


async def until(met: Callable[[], bool]) -> None:
    """Give the loop turns until it is so."""
    async with asyncio.timeout(10):
        while not met():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_what_is_spooled_while_the_database_comes_back_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committing, "RETRY_S", 0.02)
    monkeypatch.setattr(ledgers, "IMPORT_AGAIN_S", 0.02)
    broken, flushed = threading.Event(), threading.Event()

    def fail(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if broken.is_set() and statement.startswith(("INSERT", "UPDATE", "DELETE")):
            raise OperationalError("the disk", {}, Exception("is full"))

    async with running_gateway(tmp_path) as gateway:
        writer = gateway.gateway.running.services.ledger.writer
        event.listen(gateway.gateway.running.database.engine, "before_cursor_execute", fail)
        write = writer.spool._write

        def slow(lines: Any) -> None:
            flushed.wait(10)
            write(lines)

        monkeypatch.setattr(writer.spool, "_write", slow)
        broken.set()
        call = asyncio.create_task(gateway.chat())  # its intent goes to the spool, slowly
        await until(lambda: writer.failed is not None)
        broken.clear()
        await until(lambda: writer.failed is None)
        await asyncio.sleep(0.05)
        assert not writer.spool.is_empty
        flushed.set()
        assert (await call).status_code == 200
        await until(lambda: writer.spool.is_empty)
        (receipt,) = await gateway.receipts()
        assert (receipt["status"], receipt["verified"]) == ("served", False)
        assert list((tmp_path / "spool").glob("*")) == []
