"""The ledger's database is away for a while: what clients see, what is kept, what health says, and that it comes back.

Every case is the real thing: a full disk, a lock that another process holds, a file that was moved, a server that does
not answer. The provider's own count is what the ledger is held to.
"""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psycopg
import pytest

import toolkit as tk
from tests.support.servers import DemoProviderProcess, GatewayProcess, running, until
from tests.support.stores import stores

Away = Callable[[GatewayProcess], AbstractContextManager[None]]
CAPPED = "capped"


@pytest.fixture
def earlier(provider: DemoProviderProcess) -> set[str]:
    """What the provider had served before this test."""
    return set(provider.journal())


@pytest.fixture
def ledger(tmp_path: Path, provider: DemoProviderProcess) -> Iterator[GatewayProcess]:
    """A gateway under whose customers one is capped."""
    with running(tmp_path, provider.url) as gateway:
        gateway.make_cap(subject=CAPPED, limit_usd="5")
        yield gateway


@contextlib.contextmanager
def locked(gateway: GatewayProcess) -> Iterator[None]:
    """Another process holds a write transaction."""
    with contextlib.closing(sqlite3.connect(gateway.database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


@contextlib.contextmanager
def moved(gateway: GatewayProcess) -> Iterator[None]:
    """The file is moved away, and put back."""
    aside = gateway.database.with_suffix(".aside")
    gateway.database.rename(aside)
    yield
    aside.rename(gateway.database)


def store(gateway: GatewayProcess) -> dict[str, Any]:
    """What health says of the store."""
    return dict(gateway.api("GET", "/health").json()["store"])


@pytest.mark.parametrize(("away", "state"), [(locked, "locked"), (moved, "gone")])
def test_calls_without_an_armed_cap_go_on_and_the_others_are_refused(
    ledger: GatewayProcess,
    provider: DemoProviderProcess,
    earlier: set[str],
    tmp_path: Path,
    away: Away,
    state: str,
) -> None:
    before = ledger.chat(CAPPED)
    assert before.status_code == 200
    with away(ledger):
        first = ledger.chat("free")
        assert first.status_code == 200
        assert store(ledger)["state"] == state
        received = provider.received()
        began = time.monotonic()
        refused = ledger.chat(CAPPED)
        assert time.monotonic() - began < 0.5
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "budget_unverifiable")
        assert refused.headers["retry-after"] == "1"
        assert provider.received() == received
        more = [ledger.chat("free", stream=stream) for stream in (False, True, False)]
        assert [reply.status_code for reply in more] == [200, 200, 200]
        assert ledger.api("GET", "/health").json()["status"] == "degraded"
        assert store(ledger)["spooled"] >= 8
        assert ledger.api("POST", "/api/keys", {"name": "k"}).status_code == 503
    until(lambda: store(ledger)["state"] == "ok" and store(ledger)["spooled"] == 0, "the ledger is back")
    assert ledger.chat(CAPPED).status_code == 200
    rows = {row["operation_id"]: row for row in ledger.receipts()}
    spooled = [rows[reply.headers["x-capline-request-id"]] for reply in (first, *more)]
    assert [(row["status"], row["verified"]) for row in spooled] == [("served", False)] * 4
    turned_away = rows[refused.headers["x-capline-request-id"]]
    assert (turned_away["status"], turned_away["counted_nano_usd"]) == ("refused", 0)
    assert rows[before.headers["x-capline-request-id"]]["verified"] is True
    agrees(ledger, provider, tmp_path, earlier)
    assert not list((tmp_path / "var" / "spool").iterdir())


def test_a_full_disk_loses_nothing(tmp_path: Path, provider: DemoProviderProcess, earlier: set[str]) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)], capture_output=True, text=True
    )
    if made.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here (run as root): {made.stderr.strip()}")
    try:
        url = f"sqlite:///{disk}/capline.db"
        with running(tmp_path, provider.url, CAPLINE_DATABASE_URL=url) as gateway:
            gateway.make_cap(subject=CAPPED, limit_usd="5")
            assert gateway.chat("free").status_code == 200
            filler = disk / "filler"
            with contextlib.suppress(OSError), filler.open("wb") as file:
                while True:
                    file.write(bytes(4096))
                    file.flush()
            served = [gateway.chat("free") for _ in range(40)]
            assert {reply.status_code for reply in served} == {200}
            assert store(gateway)["state"] == "full"
            assert gateway.chat(CAPPED).status_code == 503
            filler.unlink()
            until(lambda: store(gateway)["state"] == "ok" and store(gateway)["spooled"] == 0, "room again")
            assert gateway.chat(CAPPED).status_code == 200
            rows = {row["operation_id"] for row in gateway.receipts()}
            assert rows >= {reply.headers["x-capline-request-id"] for reply in served}
            agrees(gateway, provider, tmp_path, earlier)
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_without_a_spool_nothing_is_sent(tmp_path: Path, provider: DemoProviderProcess) -> None:
    (tmp_path / "no-folder").write_text("")
    spool = str(tmp_path / "no-folder")
    with running(tmp_path, provider.url, CAPLINE_SPOOL_DIR=spool) as gateway, locked(gateway):
        received = provider.received()
        refused = gateway.chat("free")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "budget_unverifiable")
        assert provider.received() == received
        assert store(gateway)["spool_failed"]


def test_what_was_spooled_survives_a_kill(
    ledger: GatewayProcess, provider: DemoProviderProcess, tmp_path: Path
) -> None:
    with locked(ledger):
        served = ledger.chat("free")
        assert served.status_code == 200
        ledger.kill()
        (file,) = (tmp_path / "var" / "spool").iterdir()
        lines = file.read_bytes()
        # The kill may come within a line; the last call's receipt may not have been written yet.
        draft, receipt = lines.splitlines(keepends=True)[:2]
        other = draft.replace(b'"receipt_id":"rc_', b'"receipt_id":"rc_0')
        file.write_bytes(draft + receipt + other + receipt + b'{"receipt":{"torn')
    ledger.start()
    rows = ledger.receipts()
    (kept,) = [
        row
        for row in rows
        if row["operation_id"] == served.headers["x-capline-request-id"] and row["status"] == "served"
    ]
    assert kept["verified"] is False
    (abandoned,) = [row for row in rows if row["status"] == "abandoned"]
    assert (abandoned["verified"], abandoned["counted_nano_usd"]) == (False, abandoned["hold_nano_usd"])
    assert ledger.api("GET", "/api/ledger/check").json()["difference"] is None
    assert tk.verify(exported(tmp_path, ledger)).faults == 0
    ledger.stop()
    ledger.start()
    assert len(ledger.receipts()) == len(rows)


def test_a_server_that_does_not_answer(
    tmp_path: Path, postgres: str, provider: DemoProviderProcess, earlier: set[str]
) -> None:
    with stores.on("postgresql", postgres):
        url = stores.url(tmp_path)
        schema = stores.schema(tmp_path)
        with running(tmp_path, provider.url, CAPLINE_DATABASE_URL=url) as gateway:
            gateway.make_cap(subject=CAPPED, limit_usd="5")
            with psycopg.connect(postgres) as other:
                other.execute(
                    f'LOCK TABLE "{schema}".intents, "{schema}".receipts IN ACCESS EXCLUSIVE MODE'.encode()
                )
                served = gateway.chat("free")
                assert served.status_code == 200
                assert gateway.chat(CAPPED).status_code == 503
                assert gateway.chat("free").status_code == 200
            until(
                lambda: store(gateway)["state"] == "ok" and store(gateway)["spooled"] == 0, "it answers", 20
            )
            assert gateway.chat(CAPPED).status_code == 200
            agrees(gateway, provider, tmp_path, earlier)


def agrees(gateway: GatewayProcess, provider: DemoProviderProcess, folder: Path, earlier: set[str]) -> None:
    """Receipts, rollups, heads, counters and the provider's own count since `earlier` say the same."""
    found = gateway.api("GET", "/api/ledger/check").json()
    assert (found["ok"], found["difference"]) == (True, None)
    verified = tk.verify(exported(folder, gateway))
    assert (verified.faults, verified.first_fault) == (0, None)
    billed = [
        entry for name, entry in provider.journal().items() if name not in earlier and entry["completed"]
    ]
    served = [row for row in gateway.receipts() if row["status"] == "served"]
    assert len(served) == len(billed)
    for tokens in ("input_tokens", "output_tokens"):
        assert sum(row[tokens] for row in served) == sum(entry[tokens] for entry in billed)


def exported(folder: Path, gateway: GatewayProcess) -> Path:
    path = folder / f"export-{next(_numbers)}.jsonl"
    path.write_bytes(gateway.export())
    return path


_numbers = itertools.count()
