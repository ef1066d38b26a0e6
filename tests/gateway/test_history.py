"""The demo month in a ledger: chained, named and explained as if the gateway had served it, and loaded once."""

from __future__ import annotations

import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gateway.demo import history, month
from gateway.policy import digest
from gateway.stores import records
from gateway.stores.database import DatabaseHeld, open_database
from gateway.stores.rows import row_to_json
from gateway.stores.traces import trace_lines
from toolkit.core.chain import check_chain
from toolkit.core.errors import CaplineError
from toolkit.synth import cap_timeline
from toolkit.synth_world import KEYS

SAMPLE = history.sample_file()


class Loaded:
    """A loaded ledger and the reader's key."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "capline.db"
        self.url = f"sqlite:///{self.path}"
        self.key_file = folder / "key"
        self.receipts = history.load(self.url, self.key_file)

    def rows(self, query: str, *values: object) -> list[dict[str, Any]]:
        with closing(sqlite3.connect(self.path)) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(query, values)]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return Loaded(tmp_path_factory.mktemp("demo"))


@pytest.fixture(scope="module")
def sample() -> pl.DataFrame:
    return pl.read_parquet(SAMPLE)


def test_every_receipt_of_the_sample_is_there_with_its_figures(loaded: Loaded, sample: pl.DataFrame) -> None:
    (found,) = loaded.rows(
        "select count(*) rows, sum(cost_nano_usd) cost, sum(counted_nano_usd) counted from receipts"
    )
    assert found == {
        "rows": sample.height,
        "cost": sample["cost_nano_usd"].sum(),
        "counted": sample["counted_nano_usd"].sum(),
    }
    assert loaded.receipts == sample.height


def test_the_receipts_are_chained_from_the_first(loaded: Loaded, sample: pl.DataFrame) -> None:
    rows = [row_to_json(row) for row in loaded.rows("select * from receipts order by row_seq limit 3000")]
    assert check_chain(rows) == []
    assert (rows[0]["chain_seq"], rows[0]["prev_hash"]) == (1, "0" * 64)
    assert [row["receipt_id"] for row in rows] == sample["receipt_id"].head(3000).to_list()
    (head,) = loaded.rows("select month, node, chain_seq from chain_heads")
    assert head == {"month": "2026-11", "node": "n1", "chain_seq": sample.height}


def test_a_receipt_in_the_ledger_is_the_one_of_the_sample(loaded: Loaded, sample: pl.DataFrame) -> None:
    last = sample.row(-1, named=True)
    (stored,) = loaded.rows("select * from receipts where receipt_id = ?", last["receipt_id"])
    row = row_to_json(stored)
    for name in (
        "tags",
        "customer",
        "stream",
        "verified",
        "hold_nano_usd",
        "cost_nano_usd",
        "admit_seq",
        "units",
    ):
        assert row[name] == last[name], name
    assert row["admitted_at"] == last["admitted_at"].strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def test_the_cast_is_the_one_that_made_the_sample() -> None:
    assert [tuple(key) for key in month.KEYS] == [tuple(key) for key in KEYS]
    (_, watching), (armed_at, armed) = cap_timeline()
    assert month.CAPS_BY_INSTANT[0][1] == watching
    assert month.CAPS_BY_INSTANT[1] == (armed_at, armed)


def test_every_key_that_a_receipt_names_has_a_name(loaded: Loaded, sample: pl.DataFrame) -> None:
    known = {row["id"] for row in loaded.rows("select id from keys")}
    assert set(sample["key_id"].unique()) < known


def test_the_caps_stand_with_their_ids_and_watch(loaded: Loaded) -> None:
    caps = loaded.rows("select id, scope, hard_stop, version, armed_at from caps order by id")
    assert [tuple(cap.values()) for cap in caps] == [
        (1, "organization", 0, 1, None),
        (2, "customer", 0, 3, None),
    ]


def test_the_audit_trail_tells_how_the_caps_came_to_stand_so(loaded: Loaded) -> None:
    rows = loaded.rows("select action, object, reason from audit where object like 'cap:%' order by id")
    assert [(row["action"], row["object"]) for row in rows] == [
        ("cap.create", "cap:1"),
        ("cap.create", "cap:2"),
        ("cap.arm", "cap:2"),
        ("cap.disarm", "cap:2"),
    ]
    assert rows[2]["reason"] == month.ARMED_BECAUSE


def test_every_refusal_of_a_cap_is_explained(loaded: Loaded) -> None:
    (found,) = loaded.rows(
        "select count(*) refused, count(trace) explained from receipts"
        " where refusal_code in ('budget_exceeded', 'budget_busy')"
    )
    assert found["refused"] == found["explained"] > 3_000


def test_the_figures_of_an_explanation_follow_from_the_receipts_before_it(
    loaded: Loaded, sample: pl.DataFrame
) -> None:
    busy = sample.filter(pl.col("refusal_code") == "budget_busy").row(40, named=True)
    (stored,) = loaded.rows("select trace from receipts where receipt_id = ?", busy["receipt_id"])
    look = next(line for line in trace_lines(stored["trace"]) if line["scope"] == "customer")
    same_day = sample.filter(
        pl.col("customer") == busy["customer"],
        pl.col("admitted_at").dt.date() == busy["admitted_at"].date(),
    )
    asked_at = busy["admit_seq"]
    spent = same_day.filter(pl.col("settle_seq") < asked_at)["counted_nano_usd"].sum()
    running = same_day.filter(pl.col("admit_seq") < asked_at, pl.col("settle_seq") > asked_at)
    assert (look["spent"], look["held"]) == (spent, running["hold_nano_usd"].sum())
    assert look["hold"] == busy["hold_nano_usd"]
    assert spent + look["held"] + look["hold"] > look["limit"] == 25_000_000_000
    assert (look["verdict"], look["binds"], look["armed_by"]) == ("busy", True, "admin")


def test_the_readers_key_is_his_alone_and_works(loaded: Loaded) -> None:
    assert stat.S_IMODE(loaded.key_file.stat().st_mode) == 0o600
    secret = loaded.key_file.read_text("utf-8").strip()
    (row,) = loaded.rows("select id, role, revoked_at from keys where secret_hash = ?", digest(secret))
    assert row == {"id": month.READERS_KEY.id, "role": None, "revoked_at": None}


def test_loading_again_changes_nothing(loaded: Loaded) -> None:
    secret = loaded.key_file.read_text("utf-8")
    assert history.load(loaded.url, loaded.key_file) == 0
    (found,) = loaded.rows("select count(*) rows from receipts")
    assert (found["rows"], loaded.key_file.read_text("utf-8")) == (loaded.receipts, secret)


def test_a_lost_secret_is_replaced(loaded: Loaded) -> None:
    before = loaded.key_file.read_text("utf-8")
    loaded.key_file.unlink()
    history.load(loaded.url, loaded.key_file)
    after = loaded.key_file.read_text("utf-8")
    assert after != before
    (row,) = loaded.rows("select id from keys where secret_hash = ?", digest(after.strip()))
    assert row["id"] == month.READERS_KEY.id


def test_a_ledger_with_caps_of_its_own_is_left_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/capline.db"
    database = open_database(url)
    with database.engine.begin() as connection:
        records.insert_cap(connection, "default", month.WHOLE_ORGANIZATION)
    database.close()
    with pytest.raises(CaplineError, match="has caps of its own"):
        history.load(url, tmp_path / "key")
    assert not (tmp_path / "key").exists()


def test_nothing_is_loaded_beside_a_running_gateway(tmp_path: Path) -> None:
    database = open_database(f"sqlite:///{tmp_path}/capline.db")
    try:
        with pytest.raises(DatabaseHeld):
            history.load(f"sqlite:///{tmp_path}/capline.db", tmp_path / "key")
    finally:
        database.close()
