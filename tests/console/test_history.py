"""History comes in increments, survives a restart, and says when it may be old."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from console import history as history_module
from console.history import History
from tests.support.fake_gateway import FakeGateway


@pytest.fixture
def gateway(sample: pl.DataFrame) -> FakeGateway:
    return FakeGateway(sample.head(10))


@pytest.fixture
def history(gateway: FakeGateway, tmp_path: Path) -> History:
    return History(gateway.client(), tmp_path)


def test_only_what_came_since_is_asked_for(
    gateway: FakeGateway, history: History, sample: pl.DataFrame
) -> None:
    assert history.sync().rows == 10
    gateway.receipts = sample.head(13)
    assert history.sync().rows == 13
    assert gateway.exports == [None, "10"]


def test_a_version_changes_with_the_rows_and_only_then(
    gateway: FakeGateway, history: History, sample: pl.DataFrame
) -> None:
    first = history.sync().version
    assert history.sync().version == first
    gateway.receipts = sample.head(11)
    second = history.sync().version
    assert second != first
    assert history.receipts(first).manifest.loaded == 10
    assert history.receipts(second).manifest.loaded == 11


def test_a_restart_goes_on_from_the_disk(
    gateway: FakeGateway, history: History, sample: pl.DataFrame, tmp_path: Path
) -> None:
    before = history.sync()
    assert History(gateway.client(), tmp_path).sync() == before
    assert gateway.exports == [None, "10"]


def test_without_the_gateway_the_last_history_stands(
    gateway: FakeGateway, history: History, tmp_path: Path
) -> None:
    history.sync()
    gateway.down = True
    state = History(gateway.client(), tmp_path).sync()
    assert state.rows == 10
    assert "does not answer" in (state.trouble or "")


def test_a_ledger_restored_from_a_backup_is_read_again(
    gateway: FakeGateway, history: History, sample: pl.DataFrame
) -> None:
    history.sync()
    gateway.receipts = sample.head(4)
    assert history.sync().rows == 4
    assert gateway.exports == [None, "10", None]


def test_a_spoilt_cache_is_read_again(gateway: FakeGateway, history: History, tmp_path: Path) -> None:
    history.sync()
    for file in tmp_path.rglob("*.parquet"):
        file.write_bytes(b"spoilt")
    assert History(gateway.client(), tmp_path).sync().rows == 10


def test_many_increments_become_one_file(
    gateway: FakeGateway,
    history: History,
    sample: pl.DataFrame,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(history_module, "MOST_INCREMENTS", 3)
    for rows in range(1, 9):
        gateway.receipts = sample.head(rows)
        history.sync()
    assert len(list(tmp_path.rglob("*.parquet"))) <= 3
    state = History(gateway.client(), tmp_path).sync()
    assert state.rows == 8


def test_an_increment_that_does_not_prove_itself_is_not_taken(
    gateway: FakeGateway, history: History, sample: pl.DataFrame
) -> None:
    history.sync()
    gateway.receipts = sample.head(12)
    gateway.forged_rows = 1
    state = history.sync()
    assert state.rows == 10
    assert "footer" in (state.trouble or "")
