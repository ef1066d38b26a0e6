"""Keys: a secret is shown once, spend belongs to the id, and a key that ended is dead at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.gateway import Harness


async def test_a_secret_is_shown_once_and_kept_nowhere(gateway: Harness, tmp_path: Path) -> None:
    key = await gateway.make_key(name="app", project="search", require_customer=True)
    assert (key["name"], key["project"], key["role"], key["require_customer"]) == (
        "app",
        "search",
        None,
        True,
    )
    assert key["key"].endswith(key["hint"])
    listed = (await gateway.api("GET", "/api/keys")).json()["items"]
    assert {name: value for name, value in key.items() if name != "key"} in listed
    audited = (await gateway.api("GET", "/api/audit")).text
    await gateway.gateway.running.control.settled()
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("capline.db*"))
    assert key["key"] not in audited
    assert key["key"].encode() not in stored


async def test_rotation_keeps_the_id_and_its_spend(gateway: Harness) -> None:
    # B32: the new secret has no fresh allowance, and the old one is dead.
    key = await gateway.make_key()
    old = gateway.secret = key["key"]
    cap = {"scope": "key", "subject": key["id"], "window": "month", "request_limit": 1}
    await gateway.make_cap(**cap)
    assert (await gateway.chat()).status_code == 200
    rotated = await gateway.api("POST", f"/api/keys/{key['id']}/rotate")
    assert (rotated.status_code, rotated.json()["id"]) == (200, key["id"])
    assert rotated.json()["key"] != old
    assert (await gateway.chat()).status_code == 401
    gateway.secret = rotated.json()["key"]
    assert (await gateway.chat()).status_code == 402


async def test_a_revoked_key_is_dead_at_once_and_stays_in_the_list(gateway: Harness) -> None:
    key = await gateway.make_key()
    gateway.secret = key["key"]
    assert (await gateway.chat()).status_code == 200
    assert [(await gateway.api("DELETE", f"/api/keys/{key['id']}")).status_code for _ in range(2)] == [
        204,
        204,
    ]
    assert (await gateway.chat()).status_code == 401
    listed = {found["id"]: found for found in (await gateway.api("GET", "/api/keys")).json()["items"]}
    assert listed[key["id"]]["revoked_at"] == "2026-12-01T12:00:00.000000Z"
    audit = [row["action"] for row in (await gateway.api("GET", "/api/audit")).json()["items"]]
    assert audit.count("key.revoke") == 1
    assert (await gateway.api("POST", f"/api/keys/{key['id']}/rotate")).status_code == 404
    assert (await gateway.api("DELETE", "/api/keys/key_none")).status_code == 404


async def test_a_changed_key_counts_in_its_new_project_from_the_next_call(gateway: Harness) -> None:
    key = await gateway.make_key()
    gateway.secret = key["key"]
    await gateway.chat()
    changed = await gateway.api("PATCH", f"/api/keys/{key['id']}", {"project": "search"})
    assert (changed.status_code, changed.json()["project"]) == (200, "search")
    await gateway.chat()
    assert [row["project"] for row in await gateway.receipts()] == [None, "search"]


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": " "}, "name"),
        ({"name": "k", "role": "root"}, "role"),
        ({"name": "k", "project": "a,b"}, "project"),
        ({"name": "k", "project": "*"}, "project"),
        ({"name": "k", "require_customer": 1}, "require_customer"),
        ({"name": "k", "role": "viewer", "require_customer": True}, "require_customer"),
        ({"name": "k", "role": "viewer", "project": "p"}, "project"),
        ({"name": "k", "key": "mine"}, "key"),
        ({"name": "k", "requests_per_minute": 5}, "requests_per_minute"),
    ],
)
async def test_what_a_key_cannot_be(gateway: Harness, sent: dict[str, Any], field: str) -> None:
    reply = await gateway.api("POST", "/api/keys", sent)
    assert (reply.status_code, reply.json()["error"]["field"]) == (422, field)
    assert len((await gateway.api("GET", "/api/keys")).json()["items"]) == 1
