"""The rows of running calls are written over and over, and none that may still be needed is lost."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gateway.stores.database import Database, open_database
from gateway.stores.open_calls import Slots, open_calls
from tests.support.gateway import Harness, running_gateway
from tests.support.provider import Reply, Seen

pytestmark = pytest.mark.sqlite


def stored(path: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def database_of(gateway: Harness) -> Database:
    return gateway.gateway.running.database


async def test_calls_one_after_the_other_share_one_row(gateway: Harness) -> None:
    for _ in range(5):
        await gateway.chat()
    assert stored(database_of(gateway).path, "select slot from intents") == [(1,)]


async def test_a_call_with_a_receipt_is_not_open(gateway: Harness) -> None:
    during: list[int] = []

    def look(_: Seen) -> Reply:
        with database_of(gateway).engine.connect() as connection:
            during.append(len(open_calls(connection)))
        return Reply()

    gateway.provider.script = look
    await gateway.chat()
    with database_of(gateway).engine.connect() as connection:
        assert (during, len(open_calls(connection))) == ([1], 0)


async def test_calls_at_once_have_a_row_each(gateway: Harness) -> None:
    gate, called = asyncio.Event(), asyncio.Semaphore(0)

    def hold_back(_: Seen) -> Reply:
        called.release()
        return Reply(gate=gate)

    gateway.provider.script = hold_back
    calls = [asyncio.create_task(gateway.chat()) for _ in range(3)]
    for _ in calls:
        await called.acquire()
    with database_of(gateway).engine.connect() as connection:
        assert len(open_calls(connection)) == 3
    gate.set()
    await asyncio.gather(*calls)
    assert len(stored(database_of(gateway).path, "select slot from intents")) == 3


async def test_a_start_abandons_no_call_that_left_its_receipt(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as before:
        await before.chat()
        path = database_of(before).path
    assert len(stored(path, "select * from intents")) == 1
    async with running_gateway(tmp_path) as after:
        assert [receipt["status"] for receipt in await after.receipts()] == ["served"]
        assert stored(path, "select * from intents") == []


async def test_a_call_of_another_node_keeps_its_row(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as before:
        path = database_of(before).path
    theirs = (1, "rc_theirs", "elsewhere", 0, "{}", None)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("insert into intents values (?, ?, ?, ?, ?, ?)", theirs)
    async with running_gateway(tmp_path) as after:
        await after.chat()
    assert [row[1] == "rc_theirs" for row in stored(path, "select * from intents order by slot")] == [
        True,
        False,
    ]


def test_a_row_is_free_again_once_it_is_given_back(tmp_path: Path) -> None:
    database, slots = open_database(f"sqlite:///{tmp_path}/capline.db"), Slots()
    with database.engine.connect() as connection:
        assert [slots.take(connection, name) for name in ("a", "b")] == [1, 2]
        slots.give_back("a")
        slots.give_back("a")
        assert [slots.take(connection, name) for name in ("c", "d")] == [1, 3]
    database.close()
