"""A ledger on PostgreSQL, from outside: its guard, its command line, its loss and its return."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import toolkit as tk
from gateway.stores.database import open_database
from gateway.stores.guards import DatabaseTaken
from tests.support.servers import ADMIN_TOKEN, REPOSITORY, DemoProviderProcess, GatewayProcess, running, until
from tests.support.stores import stores


@pytest.fixture
def url(tmp_path: Path, postgres: str) -> Iterator[str]:
    """A schema of this test's own; its sessions bear the test's name, so that no other's are cut."""
    with stores.on("postgresql", postgres):
        yield f"{stores.url(tmp_path)}&application_name={tmp_path.name}"


@pytest.fixture
def ledger(tmp_path: Path, url: str, provider: DemoProviderProcess) -> Iterator[GatewayProcess]:
    """A gateway on it."""
    with running(tmp_path, provider.url, CAPLINE_DATABASE_URL=url) as gateway:
        yield gateway


def capline(folder: Path, url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line in an empty folder that knows the database alone."""
    environ = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(REPOSITORY),
        "CAPLINE_DATABASE_URL": url,
        "CAPLINE_ADMIN_TOKEN": ADMIN_TOKEN,
    }
    command = [sys.executable, "-c", "import sys; from console.cli import main; sys.exit(main())", *arguments]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=60)


def cut(server: str, name: str) -> None:
    """End this test's sessions, and return when none of them has the guard."""
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = %s",
            (name,),
        )


def is_guarded(server: str, name: str) -> bool:
    """Whether a session of this test has the guard."""
    with psycopg.connect(server) as connection:
        held = "SELECT 1 FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory'"
        return (
            connection.execute(f"{held} AND application_name = %s".encode(), (name,)).fetchone() is not None
        )


def test_a_second_gateway_refuses_to_start_until_the_first_is_killed(
    ledger: GatewayProcess, provider: DemoProviderProcess, url: str, tmp_path: Path
) -> None:
    assert ledger.api("GET", "/health").json()["store"]["kind"] == "postgresql"
    folder = tmp_path / "second"
    second = GatewayProcess(folder, provider.url, name="second", CAPLINE_DATABASE_URL=url)
    ended = second.run("--port", "0")
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert line.startswith("capline: another gateway is using ")
    assert "CAPLINE_DATABASE_URL" in line
    served = ledger.chat("a")
    assert served.status_code == 200
    ledger.kill()
    try:
        second.start()
        assert [row["operation_id"] for row in second.receipts()] == [served.headers["x-capline-request-id"]]
    finally:
        second.close()


def test_a_gateway_that_is_just_ending_is_waited_for(url: str, postgres: str, tmp_path: Path) -> None:
    first = open_database(url)
    assert is_guarded(postgres, tmp_path.name)
    ending = threading.Timer(0.5, first.close)
    ending.start()
    open_database(url).close()
    ending.join()


def test_the_command_line_finds_the_gateway_and_works_without_one(
    ledger: GatewayProcess, url: str, tmp_path: Path
) -> None:
    ledger.chat("a")
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    online = capline(folder, url, "export", "--format", "parquet", "-o", "online.parquet")
    assert (online.returncode, "No gateway is running" in online.stderr) == (0, False), online.stderr
    assert ledger.stop() == 0
    offline = capline(folder, url, "export", "--format", "parquet", "-o", "offline.parquet")
    assert (offline.returncode, "No gateway is running" in offline.stderr) == (0, True), offline.stderr
    for name in ("online", "offline"):
        assert tk.verify(folder / f"{name}.parquet").faults == 0
    frames = [tk.load(folder / f"{name}.parquet").frame.collect() for name in ("online", "offline")]
    assert frames[0].equals(frames[1])
    assert frames[0].height == 1


def test_a_lost_connection_is_made_again_and_guarded_again(
    ledger: GatewayProcess, url: str, postgres: str, tmp_path: Path
) -> None:
    assert ledger.chat("a").status_code == 200
    cut(postgres, tmp_path.name)
    until(lambda: ledger.chat("a").status_code == 200, "calls after the connection was cut")
    until(lambda: is_guarded(postgres, tmp_path.name), "the guard is taken again")
    until(lambda: ledger.api("GET", "/health").json()["status"] == "ok", "every session is there again")
    second = GatewayProcess(tmp_path / "second", None, name="second", CAPLINE_DATABASE_URL=url)
    assert second.run("--port", "0").returncode == 2
    assert tk.verify(_written(tmp_path, ledger)).faults == 0


def test_a_gateway_stays_away_from_a_ledger_that_another_process_had_meanwhile(
    tmp_path: Path, url: str, postgres: str
) -> None:
    """Its counters know nothing of what the other one spent, and its open calls were closed by it."""
    ours = open_database(url)
    ours.writing().close()
    cut(postgres, tmp_path.name)
    ours.engine.dispose()
    ours.writing().close()  # Nobody else had it.
    ours.engine.dispose()
    open_database(url).close()
    try:
        with pytest.raises(DatabaseTaken, match=r"another process has opened .* Start it again"):
            ours.writing()
        open_database(url).close()  # The refused session keeps no guard.
    finally:
        ours.close()


def test_the_server_forgets_a_client_that_vanished(url: str) -> None:
    """A session that nobody answers for would keep the guard for hours."""
    ours = open_database(url)
    try:
        with ours.engine.connect() as connection:
            asked = [
                connection.exec_driver_sql(f"SHOW tcp_keepalives_{name}").scalar_one()
                for name in ("idle", "interval", "count")
            ]
    finally:
        ours.close()
    assert asked == ["5", "2", "3"]


def test_a_server_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    url = "postgresql+psycopg://nobody:secret@127.0.0.1:1/nothing"
    ended = GatewayProcess(tmp_path, None, CAPLINE_DATABASE_URL=url).run("--port", "0")
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert line.startswith("capline: the database nothing on 127.0.0.1 cannot be opened: ")
    assert "secret" not in line


def _written(folder: Path, gateway: GatewayProcess) -> Path:
    path = folder / "export.jsonl"
    path.write_bytes(gateway.export())
    return path
