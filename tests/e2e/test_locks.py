"""One gateway a database while counters are in memory: two would each spend the whole cap (contract §4, X014)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.servers import DemoProviderProcess, GatewayProcess, running


def second(first: GatewayProcess, provider: DemoProviderProcess, folder: Path, url: str) -> GatewayProcess:
    """Another gateway, in a folder of its own, on the database at `url`."""
    return GatewayProcess(folder, provider.url, name="second", CAPLINE_DATABASE_URL=url)


@pytest.mark.parametrize("spelling", ["path", "link"])
def test_a_second_gateway_refuses_to_start_and_says_why(
    gateway: GatewayProcess, provider: DemoProviderProcess, tmp_path: Path, spelling: str
) -> None:
    link = tmp_path / "linked.db"
    link.symlink_to(gateway.database)
    path = {"path": os.path.relpath(gateway.database, tmp_path), "link": link}[spelling]
    other = second(gateway, provider, tmp_path, f"sqlite:///{path}")
    ended = other.run("--port", "0")
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert line.startswith("capline: another gateway is using ")
    assert "CAPLINE_DATABASE_URL" in line
    # The first one has not noticed.
    assert gateway.chat("a").status_code == 200
    assert gateway.api("GET", "/health").json()["closed_at_start"] == 0


def test_a_killed_gateway_frees_the_database(
    gateway: GatewayProcess, provider: DemoProviderProcess, tmp_path: Path
) -> None:
    served = len(gateway.receipts())
    other = second(gateway, provider, tmp_path, f"sqlite:///{gateway.database}")
    assert other.run("--port", "0").returncode == 2
    gateway.kill()
    try:
        other.start()
        assert len(other.receipts()) == served
        assert gateway.run("--port", "0").returncode == 2
    finally:
        other.close()
    gateway.start()
    assert gateway.chat("a").status_code == 200


def test_two_databases_are_two_gateways(
    gateway: GatewayProcess, provider: DemoProviderProcess, tmp_path: Path
) -> None:
    with running(tmp_path, provider.url) as other:
        assert other.chat("a").status_code == gateway.chat("a").status_code == 200


def test_several_workers_are_refused_with_counters_in_memory(
    provider: DemoProviderProcess, tmp_path: Path
) -> None:
    process = GatewayProcess(tmp_path, provider.url)
    ended = process.run("--port", "0", "--workers", "2")
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert "--workers 2 needs shared counters" in line
    assert "memory://" in line
    assert not process.database.exists()


def test_a_taken_port_is_said_in_one_line(
    gateway: GatewayProcess, provider: DemoProviderProcess, tmp_path: Path
) -> None:
    process = GatewayProcess(tmp_path, provider.url)
    ended = process.run("--port", str(gateway.port))
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert f"port {gateway.port}" in line
    assert not process.database.exists()
