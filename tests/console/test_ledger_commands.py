"""`capline ledger months` and `drop` from outside: a file that proves the month, then the month is gone."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import toolkit as tk
from gateway.signing import Signer
from tests.console.test_cli import Shell
from tests.gateway.test_published_heads import signing_key
from tests.support.clock import ManualClock
from tests.support.gateway import running_gateway
from tests.support.provider import Reply
from toolkit.core.pricefile import load_price_file


async def test_a_month_is_exported_verified_and_dropped(tmp_path: Path) -> None:
    clock = ManualClock(datetime(2026, 9, 5, tzinfo=UTC))
    async with running_gateway(tmp_path, clock=clock) as gateway:
        await gateway.chat(customer="ann")
        gateway.provider.script = lambda _: Reply(body=b'{"id": "x", "model": "m-small"}')
        await gateway.chat(customer="ann")
        clock.at = datetime(2026, 10, 5, tzinfo=UTC)
        await gateway.chat(customer="ann")
        clock.at = datetime(2026, 11, 5, tzinfo=UTC)
        await gateway.chat(customer="ann")
    shell = Shell(tmp_path, {"CAPLINE_DATABASE_URL": f"sqlite:///{tmp_path}/capline.db"})
    (prices,) = (tmp_path / "prices").iterdir()
    drop = ("ledger", "drop", "2026-09", "--export", "kept")

    assert "say --yes" in _refusal(shell, *drop)
    assert "does not verify" in _refusal(shell, *drop, "--yes"), "its price list is not at hand"
    file = tmp_path / "kept" / "capline-2026-09.parquet"
    assert "is there already" in _refusal(shell, *drop, "--yes")
    file.unlink()

    done = shell.run(*drop, "--yes", "--prices", str(prices))
    assert done.returncode == 0, done.stderr
    assert "2 receipts are gone" in done.stderr
    assert "1 requests of 2026-09 have no cost" in done.stderr
    assert tk.verify(file, price_lists=[load_price_file(prices)]).ok is True
    as_text = ("--format", "jsonl", "--yes", "--prices", str(prices))
    assert shell.run("ledger", "drop", "2026-10", "--export", "kept", *as_text).returncode == 0
    states = [month["state"] for month in shell.json("ledger", "months")]
    assert states == ["dropped", "dropped", "kept"]
    assert shell.json("ledger", "check")["ok"]


async def test_verify_holds_an_export_against_its_published_heads(tmp_path: Path) -> None:
    file, key = tmp_path / "heads.jsonl", signing_key(tmp_path)
    clock = ManualClock(datetime(2026, 9, 5, tzinfo=UTC))
    async with running_gateway(tmp_path, clock=clock, heads_file=file, signing_key=key) as gateway:
        for name, now in (("short", clock.at), ("whole", datetime(2026, 10, 6, tzinfo=UTC))):
            await gateway.chat()
            clock.at = now
            reply = await gateway.api("GET", "/v1/ledger/export?from=2026-09-01&to=2026-10-01")
            (tmp_path / f"{name}.jsonl").write_bytes(reply.content)
    shell = Shell(tmp_path)
    (prices,) = (tmp_path / "prices").iterdir()
    given = ("--prices", str(prices), "--heads", "heads.jsonl", "--public-key", Signer(key).public_key)

    whole = shell.run("verify", "whole.jsonl", *given)
    assert whole.returncode == 0, whole.stdout + whole.stderr
    short = shell.run("verify", "short.jsonl", *given)
    assert short.returncode == 1, short.stdout + short.stderr
    assert "was published up to seq 2; the export ends at seq 1" in short.stdout + short.stderr
    foreign = shell.run("verify", "whole.jsonl", *given[:-1], "0" * 64)
    assert foreign.returncode == 1, foreign.stdout + foreign.stderr
    assert "is signed with another key" in foreign.stdout + foreign.stderr
    assert "is no Ed25519 public key" in shell.run("verify", "whole.jsonl", *given[:-1], "short").stderr


def _refusal(shell: Shell, *arguments: str) -> str:
    done = shell.run(*arguments)
    assert done.returncode == 2, done.stdout
    return done.stderr
