"""A commit that held though its answer was lost: the chain goes on from what the database has."""

from __future__ import annotations

import sqlite3
from typing import Any

import psycopg
import pytest

from tests.support.gateway import Harness
from tests.support.stores import stores
from toolkit.core.chain import GENESIS


async def test_the_chain_does_not_fork(gateway: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The head in memory was the one before the commit, so two rows had the same place in the chain."""
    assert (await gateway.chat()).status_code == 200
    dialect = gateway.gateway.running.database.engine.dialect
    commit, commits = dialect.do_commit, []

    def lose_the_answer(connection: Any) -> None:
        commit(connection)
        commits.append(connection)
        if len(commits) == 2:  # after the intent's, the receipt's
            if stores.kind == "sqlite":
                raise sqlite3.OperationalError("disk I/O error")
            connection.dbapi_connection.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(dialect, "do_commit", lose_the_answer)
    assert (await gateway.chat()).status_code == 200
    monkeypatch.undo()
    for _ in range(50):
        if (await gateway.http.get("/health")).json()["store"]["state"] == "ok":
            break
        await gateway.gateway.running.services.ledger.writer.run(lambda connection: None)
    assert (await gateway.chat()).status_code == 200
    rows = await gateway.receipts()
    assert [row["chain_seq"] for row in rows] == [1, 2, 3]
    assert [row["prev_hash"] for row in rows] == [GENESIS, rows[0]["row_hash"], rows[1]["row_hash"]]
