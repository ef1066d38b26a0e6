"""The command line from outside: real processes, real ports, a directory of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

import toolkit as tk
from console import cli
from toolkit.captext import parse_cap_text

_OURS = ("CAPLINE_", "OPENAI_", "ANTHROPIC_", "GEMINI_", "OPENROUTER_")
ENVIRON = {name: text for name, text in os.environ.items() if not name.startswith(_OURS)}
SAMPLE = str(Path(__file__).resolve().parents[2] / "data" / "sample" / "receipts.parquet")
LONG = 120.0
"""Seconds after which a process that should have answered is given up."""


@dataclass
class Shell:
    """A directory and an environment in which `capline` is run."""

    folder: Path
    environ: dict[str, str] = field(default_factory=dict)

    def run(self, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
        """One command to its end."""
        return subprocess.run(
            [sys.executable, "-m", "console.cli", *arguments],
            cwd=self.folder,
            env={**ENVIRON, **self.environ, **extra},
            capture_output=True,
            text=True,
            timeout=LONG,
            check=False,
        )

    def json(self, *arguments: str) -> Any:
        """What a command that must succeed prints for scripts."""
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def fails(self, *arguments: str, code: int = 2, **extra: str) -> str:
        """The one line with which a command fails."""
        done = self.run(*arguments, **extra)
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        lines = done.stderr.splitlines()
        assert len(lines) == 1, done.stderr
        return lines[0]

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """A command that goes on."""
        return subprocess.Popen(
            [sys.executable, "-m", "console.cli", *arguments],
            cwd=self.folder,
            env={**ENVIRON, **self.environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def wait_for(ready: Callable[[], object], process: subprocess.Popen[str]) -> None:
    """Wait until something is so, as long as the process lives."""
    end = time.monotonic() + LONG
    while not ready():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)


def stopped(process: subprocess.Popen[str]) -> int:
    """End a process as an operator would; its exit code."""
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=LONG)
    return process.returncode


def free_ports(count: int) -> list[int]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


def is_up(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2, trust_env=False).is_success
    except httpx.HTTPError:
        return False


@pytest.fixture(scope="module")
def online(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A directory in which a gateway runs on a port that nothing names."""
    shell = Shell(tmp_path_factory.mktemp("online"))
    shell.environ["CAPLINE_DATABASE_URL"] = "sqlite:///var/own.db"
    gateway = shell.start("serve", "--port", "0")
    lock = shell.folder / "var" / "own.db.lock"
    wait_for(lambda: lock.exists() and lock.read_text("utf-8"), gateway)
    yield shell
    assert stopped(gateway) == 0
    assert lock.read_text("utf-8") == ""


@pytest.fixture
def nowhere(tmp_path: Path) -> Shell:
    """An empty directory without a gateway; the usual address is one where nobody answers."""
    (port,) = free_ports(1)
    return Shell(tmp_path, {"CAPLINE_PORT": str(port)})


class TestOnline:
    """Commands go to the gateway that holds the database's lock, whatever its port."""

    def test_a_key_lives_from_create_to_revoke(self, online: Shell) -> None:
        done = online.run("key", "create", "web", "--project", "search", "--require-customer")
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("cpl_")
        assert done.stdout.count("\n") == 1
        rotated = online.json("key", "rotate", "web")
        assert rotated["key"] != done.stdout.strip()
        assert online.json("key", "revoke", rotated["id"]) == {"id": rotated["id"], "revoked": True}
        (listed,) = (key for key in online.json("key", "list") if key["id"] == rotated["id"])
        assert (listed["project"], listed["require_customer"], listed["revoked_at"] is None) == (
            "search",
            True,
            False,
        )
        assert "there is no key 'web'" in online.fails("key", "rotate", "web")

    def test_a_cap_lives_from_set_to_delete(self, online: Shell) -> None:
        rule = ("--scope", "customer", "--subject", "*", "--window", "month", "--limit-usd", "20")
        cap = online.json("cap", "set", *rule, "--match-model", "gpt-4o", "--alert-percents", "50,80")
        assert (cap["hard_stop"], cap["limit_nano_usd"], cap["alert_percents"]) == (
            False,
            20_000_000_000,
            [50, 80],
        )
        number = str(cap["id"])
        changed = online.json(
            "cap", "set", number, "--limit-usd", "30.5", "--match-model", "none", "--request-limit", "9"
        )
        assert (changed["limit_usd"], changed["match"]["model"], changed["request_limit"]) == (
            "30.50",
            None,
            9,
        )
        assert online.json("cap", "arm", number, "--reason", "a test")["hard_stop"] is True
        assert "version" in online.fails("cap", "delete", number, "--version", "1")
        assert online.json("cap", "disarm", number)["hard_stop"] is False
        shown = online.run("cap", "list")
        assert "customer:*" in shown.stdout
        assert "$30.50, 9 requests" in shown.stdout
        assert online.json("cap", "delete", number) == {"id": cap["id"], "deleted": True}
        assert number not in {str(cap["id"]) for cap in online.json("cap", "list")}

    def test_a_cap_is_made_from_the_rule_that_the_what_if_takes(self, online: Shell) -> None:
        cap = online.json("cap", "set", "customer:a b never 0.5 floor", "--name", "One")
        seen = [cap[name] for name in ("name", "scope", "subject", "window", "limit_usd", "admission")]
        assert seen == ["One", "customer", "a b", "never", "0.50", "floor"]
        assert "the window 'dya'" in online.fails("cap", "set", "customer:* dya 1")
        online.json("cap", "delete", str(cap["id"]))

    def test_what_the_gateway_refuses_is_one_line(self, online: Shell) -> None:
        rule = ("--scope", "customer", "--subject", "*", "--window", "month")
        assert "1.1234567" in online.fails("cap", "set", *rule, "--limit-usd", "1.1234567")
        assert "There is no cap 999" in online.fails("cap", "arm", "999", "--reason", "x")
        assert "needs --scope and --window" in online.fails("cap", "set", "--limit-usd", "1")

    def test_a_wrong_token_says_where_it_is_from(self, online: Shell) -> None:
        assert "CAPLINE_ADMIN_TOKEN" in online.fails("key", "list", CAPLINE_ADMIN_TOKEN="wrong")

    def test_the_export_is_a_file_or_standard_output(self, online: Shell) -> None:
        printed = online.run("export", "--format", "jsonl")
        header = json.loads(printed.stdout.splitlines()[0])
        assert header["recipe"] == "capline-chain-v1"
        written = online.run("export", "-o", "all.parquet")
        assert written.returncode == 0, written.stderr
        digest, name = (online.folder / "all.parquet.sha256").read_text("utf-8").split()
        assert (len(digest), name) == (64, "all.parquet")
        assert online.run("spend", "all.parquet").returncode == 0

    def test_a_named_gateway_that_is_not_there_is_said(self, online: Shell) -> None:
        line = online.fails("key", "list", "--gateway", f"http://127.0.0.1:{free_ports(1)[0]}")
        assert line.startswith("capline: no gateway answers at http://127.0.0.1:")

    def test_a_second_gateway_on_the_database_is_refused(self, online: Shell) -> None:
        assert "another gateway is using own.db" in online.fails("serve", "--port", "0")


class TestOffline:
    """With no gateway, the same routes answer over the database itself."""

    def test_a_key_made_offline_is_listed(self, nowhere: Shell) -> None:
        made = nowhere.json("key", "create", "first")
        (listed,) = nowhere.json("key", "list")
        assert (listed["id"], listed["name"], listed["hint"]) == (made["id"], "first", made["key"][-4:])
        assert (nowhere.folder / "var" / "admin_token").stat().st_mode & 0o777 == 0o600

    def test_reading_makes_no_database(self, nowhere: Shell) -> None:
        assert "there is no ledger at var/capline.db" in nowhere.fails("cap", "list")
        assert not (nowhere.folder / "var").exists()

    def test_a_wrong_setting_is_one_line(self, nowhere: Shell) -> None:
        line = nowhere.fails("key", "list", CAPLINE_DATABASE_ULR="x")
        assert "nearest is CAPLINE_DATABASE_URL" in line


class TestSettings:
    """`serve --check`, ports and workers."""

    def test_secrets_are_hidden(self, nowhere: Shell) -> None:
        done = nowhere.run("serve", "--check", OPENAI_API_KEY="sk-secret", CAPLINE_ADMIN_TOKEN="secret-token")
        assert done.returncode == 0
        assert "secret" not in done.stdout
        assert "providers.openai.dialect" in done.stdout

    def test_the_file_beside_is_read(self, nowhere: Shell) -> None:
        (nowhere.folder / "capline.toml").write_text('node = "n7"\n', "utf-8")
        assert 'node = "n7"' in nowhere.run("serve", "--check").stdout

    def test_workers_are_refused_with_the_reason(self, nowhere: Shell) -> None:
        assert "each worker would spend the whole cap" in nowhere.fails("serve", "--workers", "2")

    def test_a_port_that_is_taken_is_said(self, nowhere: Shell) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            assert f"port {port}" in nowhere.fails("serve", "--port", port)
            assert f"port {port} is taken" in nowhere.fails("up", "--port", port)
            free = str(free_ports(1)[0])
            assert f"port {port} is taken" in nowhere.fails("up", "--port", free, "--console-port", port)
        assert not (nowhere.folder / "var").exists()


class TestFiles:
    """Commands that need no gateway."""

    def test_spend_of_the_sample(self, nowhere: Shell) -> None:
        rows = nowhere.json("spend", SAMPLE, "--by", "customer,model", "--month", "2026-11")
        assert sum(row["cost_nano_usd"] or 0 for row in rows) == 3_440_561_333_050
        shown = nowhere.run("spend", SAMPLE)
        assert shown.stdout.splitlines()[-1].split()[:2] == ["total", "100,552"]
        assert "$3,440.56" in shown.stdout

    def test_a_cap_on_history_is_judged_as_the_toolkit_judges_it(self, nowhere: Shell) -> None:
        found = nowhere.json(
            "what-if", SAMPLE, "--cap", "customer:* day 10", "--cap", "organization:default month 9000"
        )
        caps = [
            parse_cap_text("customer:* day 10"),
            parse_cap_text("organization:default month 9000", cap_id=2),
        ]
        expected = tk.what_if(tk.load(SAMPLE), caps)
        assert found["summary"] == dataclasses.asdict(expected.summary)
        assert found["summary"]["refused"] > 0
        shown = nowhere.run("what-if", SAMPLE, "--cap", "customer:* day 10", "--admission", "after")
        assert shown.stdout.startswith("$10.00 per day would have stopped $")
        assert "initech-042" in shown.stdout
        assert "write SCOPE:SUBJECT" in nowhere.fails("what-if", SAMPLE, "--cap", "customer month 10")

    def test_words_that_mean_nothing_are_one_line(self, nowhere: Shell) -> None:
        assert "no such file" in nowhere.fails("spend", "missing.jsonl")
        assert "no such file" in nowhere.fails("verify", "missing.jsonl")

    def test_prices_are_shown_with_their_sources(self, nowhere: Shell) -> None:
        shown = nowhere.json("prices", "show", "gpt-4o", "--at", "2026-11-30")
        assert shown["price_list"].startswith("2026-11-20+sha256:")
        standard = next(row for row in shown["rows"] if row["tier"] == "standard")
        assert standard["usd_per_million_tokens"]["output"] == "10.00"
        assert standard["sources"]
        unknown = nowhere.run("prices", "show", "gpt-4oo")
        assert unknown.returncode == 1
        assert "gpt-4o" in unknown.stderr

    def test_a_fee_is_shown_for_as_many_as_make_it_exact(self, nowhere: Shell) -> None:
        shown = nowhere.json("prices", "show", "whisper-1", "--at", "2026-11-30")
        assert {"seconds": {"usd": "0.0001", "per": 1}} in [row["fees"] for row in shown["rows"]]

    def test_price_lists_are_listed_compared_and_checked(self, nowhere: Shell) -> None:
        lists = [prices["date"] for prices in nowhere.json("prices", "lists")]
        compared = nowhere.json("prices", "diff", lists[0], lists[-1])
        assert compared["added"] or compared["changed"]
        forged = nowhere.folder / "2026-11-20-0123456789ab.json"
        forged.write_text("{}", "utf-8")
        assert nowhere.run("prices", "check", str(forged)).returncode == 1
        own = nowhere.folder / "own.json"
        row = {
            "provider": "openai",
            "model": "m",
            "kind": "chat",
            "tier": "standard",
            "effective_from": "2026-12-01T00:00:00Z",
            "rates": {"input": "1", "output": "2"},
            "max_input_tokens": 1,
            "max_output_tokens": 1,
        }
        head = {
            "schema": "capline-prices-v1",
            "currency": "USD",
            "date": "2026-12-01",
            "reason": "A contract",
        }
        own.write_text(json.dumps(head | {"rows": [row]}), "utf-8")
        assert "1 rows, own prices" in nowhere.run("prices", "check", str(own)).stderr
        own.write_text(json.dumps(head | {"rows": [row], "reason": ""}), "utf-8")
        assert nowhere.run("prices", "check", str(own)).returncode == 1


@pytest.mark.parametrize("arguments", [["frobnicate"], ["cap", "arm", "x"], ["up", "--port", "many"], []])
def test_wrong_words_are_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (
        "up",
        "serve",
        "console",
        "demo",
        "key create",
        "cap set",
        "export",
        "spend",
        "verify",
        "prices show",
    ):
        with pytest.raises(SystemExit) as ended:
            cli.main([*words.split(), "--help"])
        assert ended.value.code == 0
    assert "--require-customer" in capsys.readouterr().out


def test_the_demo_holds() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "console.cli", "demo", "--json"],
        env={**ENVIRON, "CAPLINE_DATABASE_URL": "sqlite:///not-this-one.db"},
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )
    told = json.loads(done.stdout)
    assert (done.returncode, told["holds"]) == (0, True), done.stdout
    steps = {step["title"]: step["figures"] for step in told["steps"]}
    assert steps["Refused"]["code"] == "budget_exceeded"
    assert steps["Refused"]["provider_count"] == steps["Spend"]["served"]
    assert steps["Burst"]["spent_nano_usd"] <= steps["Cap"]["limit_nano_usd"]


@dataclass
class Up:
    """A running `up` and what it said."""

    process: subprocess.Popen[str]
    gateway: str
    console: str
    said: str

    @classmethod
    @contextlib.contextmanager
    def running(cls, shell: Shell) -> Iterator[Up]:
        """Start it, read on until it says how to end it, and see that it is ended."""
        port, console_port = free_ports(2)
        process = shell.start("up", "--port", str(port), "--console-port", str(console_port))
        try:
            assert process.stdout is not None
            said = ""
            for line in process.stdout:
                said += line
                if "Ctrl-C" in line:
                    break
            assert "Ctrl-C" in said, process.communicate()
            yield cls(process, f"http://127.0.0.1:{port}", f"http://127.0.0.1:{console_port}", said)
        finally:
            if process.poll() is None:
                stopped(process)

    def children(self) -> list[int]:
        """The processes that it has started (Linux)."""
        listed = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in listed.read_text("utf-8").split()]


def test_up_with_nothing_configured_runs_the_demo_and_stops_clean(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    with Up.running(shell) as up:
        assert up.gateway in up.said
        assert is_up(f"{up.console}/_stcore/health")
        assert sorted(path.name for path in (tmp_path / "var").iterdir()) == ["admin_token", "demo"]
        curl = up.said[up.said.index("curl") : up.said.index("Ctrl-C")]
        answer = subprocess.run(
            ["bash", "-c", curl], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert answer.stdout.startswith("HTTP/1.1 200"), answer.stdout + answer.stderr
        assert "demo" in {key["name"] for key in shell.json("key", "list")}, (
            "the demo of the directory is found"
        )
        children = up.children()
        assert len(children) == 3
        assert stopped(up.process) == 0
        assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]

    secret = (tmp_path / "var" / "demo" / "key").read_text("utf-8")
    with Up.running(shell) as again:
        assert (tmp_path / "var" / "demo" / "key").read_text("utf-8") == secret
        children = again.children()
        os.kill(_gateway_of(children), signal.SIGKILL)
        _, errors = again.process.communicate(timeout=LONG)
        assert again.process.returncode == 2
        assert "the gateway ended (exit code -9); its last lines:" in errors
        assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]


def _gateway_of(children: list[int]) -> int:
    for pid in children:
        if "gateway\0serve" in Path(f"/proc/{pid}/cmdline").read_text("utf-8"):
            return pid
    raise AssertionError("up has no gateway")
