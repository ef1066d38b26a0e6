"""Role by verb: who may ask what (contract §12, R125, R126)."""

from __future__ import annotations

import pytest

from gateway.policy import ROLES
from tests.gateway.api.conftest import Ask
from tests.support.gateway import Harness

MEMBERS_SENTENCE = "Only owners and admins can change customer spending caps."
CHANGES = [
    ("POST", "/api/caps", {"scope": "customer", "subject": "*", "window": "day", "limit_usd": "1"}, 201),
    ("PATCH", "/api/caps/1", {"name": "renamed"}, 200),
    ("POST", "/api/caps/1/arm", {"reason": "r"}, 200),
    ("POST", "/api/caps/1/disarm", None, 200),
    ("DELETE", "/api/caps/1", None, 204),
]
SEES_CAPS = ["/api/caps", "/api/caps/1", "/api/caps/1/refusals", "/api/audit", "/api/keys"]
SEES_SPEND = [
    "/api/spend",
    "/api/customers",
    "/api/customers/summary",
    "/api/receipts",
    "/api/refusals",
    "/api/unpriced",
    "/api/price-lists",
    "/api/ledger/coverage",
    "/v1/ledger/export",
]


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(("method", "path", "body", "done"), CHANGES)
async def test_who_changes_caps(
    gateway: Harness,
    keys: dict[str | None, str],
    ask: Ask,
    role: str,
    method: str,
    path: str,
    body: object,
    done: int,
) -> None:
    await gateway.make_cap(armed=False, limit_usd="5")
    reply = await ask(keys[role], method, path, body, if_match="1")
    if role in ("owner", "admin"):
        assert reply.status_code == done
    else:
        error = reply.json()["error"]
        assert (reply.status_code, error["code"], error["message"]) == (
            403,
            "permission_denied",
            MEMBERS_SENTENCE,
        )
        assert (await gateway.api("GET", "/api/caps/1")).json()["version"] == 1


async def test_who_sees_what(gateway: Harness, keys: dict[str | None, str], ask: Ask) -> None:
    await gateway.make_cap(armed=False, limit_usd="5")
    seen = {
        (role, path): (await ask(keys[role], "GET", path)).status_code
        for role in ROLES
        for path in (*SEES_CAPS, *SEES_SPEND)
    }
    hidden = {("billing", path) for path in SEES_CAPS}
    assert seen == {question: 403 if question in hidden else 200 for question in seen}


async def test_without_a_role_or_a_known_secret_nothing_is_seen(
    gateway: Harness, keys: dict[str | None, str], ask: Ask
) -> None:
    await gateway.make_cap(armed=False, limit_usd="5")
    for path in (*SEES_CAPS, *SEES_SPEND):
        plain = await ask(keys[None], "GET", path)
        assert (plain.status_code, plain.json()["error"]["code"]) == (403, "permission_denied")
        for secret in (None, "", "wrong", keys["owner"] + "x"):
            unknown = await ask(secret, "GET", path)
            assert (unknown.status_code, unknown.json()["error"]["code"]) == (401, "invalid_api_key")
            assert unknown.headers["www-authenticate"] == "Bearer"


async def test_an_operator_key_makes_no_calls(gateway: Harness, keys: dict[str | None, str]) -> None:
    for role in ROLES:
        gateway.secret = keys[role]
        reply = await gateway.chat()
        assert (reply.status_code, reply.json()["error"]["code"]) == (403, "permission_denied")
    assert gateway.provider.seen == []


async def test_only_owners_and_admins_change_keys(keys: dict[str | None, str], ask: Ask) -> None:
    for role in ("member", "viewer", "billing"):
        for method, path, body in (
            ("POST", "/api/keys", {"name": "k"}),
            ("PATCH", "/api/keys/key_x", {"name": "k"}),
            ("POST", "/api/keys/key_x/rotate", None),
            ("DELETE", "/api/keys/key_x", None),
        ):
            assert (await ask(keys[role], method, path, body)).status_code == 403


async def test_an_admin_makes_no_owner_and_touches_none(keys: dict[str | None, str], ask: Ask) -> None:
    listed = (await ask(keys["admin"], "GET", "/api/keys")).json()["items"]
    owner = next(key["id"] for key in listed if key["role"] == "owner")
    for method, path, body in (
        ("POST", "/api/keys", {"name": "k", "role": "owner"}),
        ("PATCH", f"/api/keys/{owner}", {"name": "k"}),
        ("POST", f"/api/keys/{owner}/rotate", None),
        ("DELETE", f"/api/keys/{owner}", None),
    ):
        assert (await ask(keys["admin"], method, path, body)).status_code == 403
    assert (await ask(keys["admin"], "POST", "/api/keys", {"name": "k", "role": "admin"})).status_code == 201
    assert (await ask(keys["owner"], "DELETE", f"/api/keys/{owner}")).status_code == 204
    assert (await ask(keys["owner"], "GET", "/api/caps")).status_code == 401


async def test_billing_sees_a_receipt_without_the_caps_behind_it(
    gateway: Harness, keys: dict[str | None, str], ask: Ask
) -> None:
    await gateway.make_cap(limit_usd="5")
    served = await gateway.chat(customer="ann")
    path = f"/api/receipts/{served.headers['x-capline-request-id']}"
    assert (await ask(keys["billing"], "GET", path)).json()["trace"] is None
    assert len((await ask(keys["viewer"], "GET", path)).json()["trace"]) == 1


async def test_the_audit_names_the_key_that_did_it(
    gateway: Harness, keys: dict[str | None, str], ask: Ask
) -> None:
    cap = await gateway.make_cap(armed=False, limit_usd="5")
    armed = await ask(keys["admin"], "POST", f"/api/caps/{cap['id']}/arm", {"reason": "r"}, if_match="1")
    row = (await gateway.api("GET", "/api/audit")).json()["items"][0]
    assert row["actor"].startswith("key_")
    assert (row["actor"], row["actor_name"], row["reason"]) == (armed.json()["updated_by"], "admin", "r")
