"""The console started as its launcher starts it: its own settings, wherever from, and nobody else's page let in."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from console import launch

BASE_PATH = "ops/console"


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A console that runs in a folder of its own, under a path of its own."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    folder = tmp_path_factory.mktemp("elsewhere")
    environ = launch.environment(os.environ, gateway_url="http://127.0.0.1:1", directory=folder)
    command = launch.command("127.0.0.1", port, BASE_PATH)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=environ, stdout=log, stderr=log)
    try:
        _wait_until_up(port, folder / "log")
        yield port
    finally:
        process.terminate()
        process.wait(10)


def test_it_answers_under_its_base_path(port: int) -> None:
    assert _status(port, f"/{BASE_PATH}/_stcore/health") == 200
    assert _status(port, "/_stcore/health") == 404


def test_its_own_page_may_connect(port: int) -> None:
    assert _handshake(port, f"127.0.0.1:{port}", f"http://127.0.0.1:{port}") == 101
    assert _handshake(port, f"localhost:{port}", f"http://localhost:{port}") == 101


def test_a_page_of_another_name_may_not(port: int) -> None:
    assert _handshake(port, "rebound.example", "http://rebound.example") == 403
    assert _handshake(port, f"127.0.0.1:{port}", "https://evil.example") == 403


def test_the_settings_file_is_understood() -> None:
    shown = subprocess.run(
        [*launch.command()[:3], "config", "show"],
        cwd=launch.APP.parent,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for line in ("gatherUsageStats = false", 'toolbarMode = "minimal"', "disableDataExport = true"):
        assert line in shown


def test_an_operators_own_variable_is_kept() -> None:
    environ = {"STREAMLIT_SERVER_ALLOWED_HOSTS": "console.example", "CAPLINE_ADMIN_TOKEN": "t"}
    own = launch.environment(environ, gateway_url="http://127.0.0.1:9")
    assert own["STREAMLIT_SERVER_ALLOWED_HOSTS"] == "console.example"
    assert own["CAPLINE_ADMIN_TOKEN"] == "t"
    assert own["CAPLINE_GATEWAY_URL"] == "http://127.0.0.1:9"
    assert environ == {"STREAMLIT_SERVER_ALLOWED_HOSTS": "console.example", "CAPLINE_ADMIN_TOKEN": "t"}


def _status(port: int, path: str, headers: dict[str, str] | None = None) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path, headers=headers or {})
        return connection.getresponse().status
    finally:
        connection.close()


def _handshake(port: int, host: str, origin: str) -> int:
    upgrade = {
        "Host": host,
        "Origin": origin,
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    return _status(port, f"/{BASE_PATH}/_stcore/stream", upgrade)


def _wait_until_up(port: int, log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if _status(port, f"/{BASE_PATH}/_stcore/health") == 200:
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise AssertionError(log.read_text())
