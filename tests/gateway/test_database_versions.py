"""A database of any earlier release is brought up to date with all that is in it; a newer one is left alone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, text

from gateway.stores import migrations
from gateway.stores.database import open_database
from gateway.stores.tables import metadata
from tests.support.gateway import running_gateway
from tests.support.stores import stores
from toolkit.core.errors import CaplineError

EARLIER = sorted(
    script.revision
    for script in ScriptDirectory(str(Path(migrations.__file__).parent)).walk_revisions()
    if script.revision != migrations.HEAD
)


@contextmanager
def connected(folder: Path) -> Iterator[Connection]:
    """One transaction on a folder's database."""
    engine = create_engine(stores.url(folder))
    with engine.begin() as connection:
        yield connection
    engine.dispose()


def test_the_newest_revision_is_the_one_that_a_start_looks_for() -> None:
    script = ScriptDirectory(str(Path(migrations.__file__).parent))
    assert script.get_current_head() == migrations.HEAD


def test_the_revisions_make_the_schema_that_the_tables_declare(tmp_path: Path) -> None:
    with connected(tmp_path) as connection:
        migrations.upgrade(connection, migrations.HEAD)
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_a_new_database_is_whole_whoever_opens_it_first(tmp_path: Path) -> None:
    """Also a tool that imports nothing else of the gateway."""
    opening = f"from gateway.stores.database import open_database as o; o({stores.url(tmp_path)!r}).close()"
    subprocess.run([sys.executable, "-c", opening], check=True)
    with connected(tmp_path) as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


@pytest.mark.parametrize("revision", EARLIER)
async def test_every_earlier_schema_is_brought_up_to_date(tmp_path: Path, revision: str) -> None:
    """Its keys, receipts and open calls are there; what was open is abandoned at its hold."""
    with connected(tmp_path) as connection:
        migrations.upgrade(connection, revision)
        _fill(connection, revision)
    async with running_gateway(tmp_path) as gateway:
        rows = await gateway.receipts()
        assert [(row["receipt_id"], row["status"], row["counted_nano_usd"]) for row in rows] == [
            ("rc_open", "abandoned", 5_000)
        ]
        assert (await gateway.chat(customer="acme")).status_code == 200
        assert (await gateway.api("GET", "/api/keys")).json()["items"][0]["name"] == "old"
    open_database(stores.url(tmp_path)).close()


@pytest.mark.sqlite
@pytest.mark.parametrize(("schema", "revision"), [("1", "0001"), ("2", "0002")])
def test_a_database_from_before_the_revisions_is_known_by_its_schema(
    tmp_path: Path, schema: str, revision: str
) -> None:
    with connected(tmp_path) as connection:
        migrations.upgrade(connection, revision)
        connection.execute(text("DROP TABLE alembic_version"))
        connection.execute(text("INSERT INTO meta VALUES ('schema', :schema)"), {"schema": schema})
    open_database(stores.url(tmp_path)).close()
    with connected(tmp_path) as connection:
        assert migrations.stored_revision(connection) == migrations.HEAD


@pytest.mark.parametrize("revision", ["9999", "a branch"])
def test_a_database_of_a_newer_release_does_not_open(tmp_path: Path, revision: str) -> None:
    open_database(stores.url(tmp_path)).close()
    with connected(tmp_path) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :new"), {"new": revision})
    with pytest.raises(CaplineError, match="a newer release of Capline wrote this database"):
        open_database(stores.url(tmp_path))
    with connected(tmp_path) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :head"), {"head": migrations.HEAD})
    open_database(stores.url(tmp_path)).close()


def _fill(connection: Connection, revision: str) -> None:
    """A key, and a call that a stopped process left open."""
    connection.execute(text("INSERT INTO organizations VALUES ('default', :secret)"), {"secret": "ab" * 32})
    connection.execute(text("INSERT INTO meta VALUES ('ledger_id', 'feedbeef')"))
    connection.execute(
        text(
            "INSERT INTO keys (id, organization, name, require_customer, secret_hash, hint, created_at)"
            " VALUES ('key_old', 'default', 'old', false, 'h', '…', 1)"
        )
    )
    draft = {
        "receipt_id": "rc_open",
        "operation_id": "op_open",
        "admitted_at": "2026-12-01T11:00:00.000000Z",
        "admit_seq": 7,
        "organization": "default",
        "tags": [],
        "dialect": "openai",
        "route": "/v1/chat/completions",
        "model_requested": "m-small",
        "provider": "openai",
        "request_bytes": 10,
        "hold_nano_usd": 5_000,
        "hold_tokens": 20,
        "node": "n1",
    }
    columns = {
        "receipt_id": "rc_open",
        "node": "n1",
        "admitted_at": 1_796_122_800_000_000,
        "receipt": json.dumps(draft),
    }
    if revision != "0001":
        columns["slot"] = 1
    names = ", ".join(columns)
    places = ", ".join(f":{name}" for name in columns)
    connection.execute(text(f"INSERT INTO intents ({names}) VALUES ({places})"), columns)
