"""Published heads: rows cut off the end of a chain are shown by a head that was published before."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

import toolkit as tk
from gateway.settings import Settings, SettingsError
from gateway.signing import Signer
from tests.support.gateway import Harness, running_gateway


def signing_key(folder: Path, mode: int = 0o600) -> Path:
    path = folder / "heads.pem"
    pem = Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(pem)
    path.chmod(mode)
    return path


def heads_in(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def export(gateway: Harness, path: Path) -> Path:
    reply = await gateway.api("GET", "/v1/ledger/export?from=2020-01-01&to=2030-01-01")
    path.write_bytes(reply.content)
    return path


def heads_faults(path: Path, heads: Path, key: str | None = None) -> list[str]:
    """What is wrong with an export once its heads are known, that was not before."""
    found = tk.verify(path, heads=heads, public_key=key)
    return [] if found.first_fault is None else [found.first_fault]


async def test_a_head_is_appended_once_for_each_change_and_signed(tmp_path: Path) -> None:
    file, key = tmp_path / "kept" / "heads.jsonl", signing_key(tmp_path)
    async with running_gateway(tmp_path, heads_file=file, signing_key=key) as gateway:
        await gateway.chat()
        await gateway.gateway.running.heads.publish()
        await gateway.gateway.running.heads.publish()
        await gateway.chat()
    heads = heads_in(file)
    assert [head["chain_seq"] for head in heads] == [1, 2]
    for head in heads:
        signature = base64.b64decode(head.pop("signature"))
        said = json.dumps(head, sort_keys=True, separators=(",", ":")).encode()
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(head["public_key"])).verify(signature, said)


async def test_verify_finds_rows_that_were_cut_off(tmp_path: Path) -> None:
    file, key = tmp_path / "heads.jsonl", signing_key(tmp_path)
    async with running_gateway(tmp_path, heads_file=file, signing_key=key) as gateway:
        await gateway.chat()
        short = await export(gateway, tmp_path / "short.jsonl")
        await gateway.chat()
        whole = await export(gateway, tmp_path / "whole.jsonl")
    public = Signer(key).public_key
    assert heads_faults(whole, file, public) == []
    assert "was published up to seq 2; the export ends at seq 1" in heads_faults(short, file, public)[0]


async def test_a_changed_head_and_a_foreign_or_missing_signature_are_faults(tmp_path: Path) -> None:
    file, key = tmp_path / "heads.jsonl", signing_key(tmp_path)
    async with running_gateway(tmp_path, heads_file=file, signing_key=key) as gateway:
        await gateway.chat()
        whole = await export(gateway, tmp_path / "whole.jsonl")
    public, (head,) = Signer(key).public_key, heads_in(file)
    changed = tmp_path / "changed.jsonl"
    for change, fault in (
        ({"row_hash": "0" * 64}, "signature that does not hold"),
        ({"public_key": "0" * 64}, "another key"),
        ({"signature": None}, "is not signed"),
    ):
        changed.write_text(json.dumps({**head, **change}) + "\n")
        assert fault in heads_faults(whole, changed, public)[0]
    changed.write_text(json.dumps({**head, "row_hash": "0" * 64, "signature": None}) + "\n")
    assert "the head published at seq 1 is 000" in heads_faults(whole, changed)[0]


@pytest.mark.parametrize("cut", ["a row less", "another row", "the whole chain"])
async def test_a_ledger_behind_its_published_head_is_degraded_and_serves(tmp_path: Path, cut: str) -> None:
    file = tmp_path / "heads.jsonl"
    async with running_gateway(tmp_path, heads_file=file) as gateway:
        await gateway.chat()
        await gateway.chat()
    (head,) = heads_in(file)
    ahead = {"a row less": {"chain_seq": 3}, "another row": {"row_hash": "0" * 64}}
    node = {"the whole chain": {"node": "n9"}}
    with file.open("a") as appended:
        appended.write(json.dumps({**head, **ahead.get(cut, {}), **node.get(cut, {})}) + "\n")
    async with running_gateway(tmp_path, heads_file=file) as gateway:
        health = (await gateway.http.get("/health")).json()
        (behind,) = health["ledger_behind_head"]
        assert health["status"] == "degraded"
        assert (behind["published_seq"], behind["stored_seq"]) == {
            "a row less": (3, 2),
            "another row": (2, 2),
            "the whole chain": (2, 0),
        }[cut]
        assert (await gateway.chat()).status_code == 200


async def test_heads_are_posted_and_a_failed_post_is_tried_again(
    tmp_path: Path, unused_tcp_port: int
) -> None:
    posted: list[Any] = []
    statuses = [500, 200, 200]

    async def take(request: web.Request) -> web.Response:
        posted.append(await request.json())
        return web.Response(status=statuses[len(posted) - 1])

    receiver = web.Application()
    receiver.router.add_post("/heads", take)
    runner = web.AppRunner(receiver)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", unused_tcp_port).start()
    url = f"http://127.0.0.1:{unused_tcp_port}/heads"
    try:
        async with running_gateway(tmp_path, heads_url=url) as gateway:
            assert (await gateway.chat()).status_code == 200
            await gateway.gateway.running.heads.publish()
            assert (await gateway.http.get("/health")).json()["heads_failed"] == 1
            await gateway.gateway.running.heads.publish()
            await gateway.gateway.running.heads.publish()
    finally:
        await runner.cleanup()
    assert [head["chain_seq"] for head in posted] == [1, 1]


async def test_a_line_that_a_crash_cut_off_stays_by_itself(tmp_path: Path) -> None:
    file = tmp_path / "heads.jsonl"
    file.write_bytes(b'{"recipe": "capline-he')
    async with running_gateway(tmp_path, heads_file=file) as gateway:
        await gateway.chat()
    torn, head = file.read_text().splitlines()
    assert torn == '{"recipe": "capline-he'
    assert json.loads(head)["chain_seq"] == 1


async def test_a_file_that_cannot_be_written_stops_no_call(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    async with running_gateway(tmp_path, heads_file=tmp_path / "file" / "heads.jsonl") as gateway:
        assert (await gateway.chat()).status_code == 200
        await gateway.gateway.running.heads.publish()
        assert (await gateway.http.get("/health")).json()["heads_failed"] == 1


def test_a_key_that_others_may_read_or_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="chmod 600"):
        Signer(signing_key(tmp_path, mode=0o644))
    other = tmp_path / "other.pem"
    other.write_text("no key")
    other.chmod(0o600)
    with pytest.raises(SettingsError, match="no Ed25519 key"):
        Signer(other)
    with pytest.raises(SettingsError, match="cannot be read"):
        Signer(tmp_path / "absent.pem")


def test_the_urls_password_is_not_shown() -> None:
    shown = Settings.load({"CAPLINE_HEADS_URL": "https://me:secret@heads.test/x"}).effective()
    assert shown["heads_url"] == "https://me:***@heads.test/x"
    with pytest.raises(SettingsError, match="CAPLINE_HEADS_URL"):
        Settings.load({"CAPLINE_HEADS_URL": "ftp://x"})
