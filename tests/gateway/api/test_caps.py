"""Changing, arming and lifting caps: guarded by version, audited once, in force on the next request."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.gateway import Harness


async def actions(gateway: Harness) -> list[str]:
    """What the audit trail says of caps, oldest first."""
    rows = (await gateway.api("GET", "/api/audit")).json()["items"]
    return [row["action"] for row in reversed(rows) if row["action"].startswith("cap.")]


@pytest.mark.parametrize(
    ("method", "verb", "body"),
    [("PATCH", "", {"name": "b"}), ("DELETE", "", None), ("POST", "/arm", {"reason": "r"})],
)
async def test_a_change_wants_the_version_that_was_seen(
    gateway: Harness, method: str, verb: str, body: dict[str, Any] | None
) -> None:
    cap = await gateway.make_cap(armed=False, limit_usd="1")
    path = f"/api/caps/{cap['id']}{verb}"
    missing = await gateway.api(method, path, body)
    stale = await gateway.api(method, path, body, if_match="2")
    odd = await gateway.api(method, path, body, if_match="*")
    assert [reply.status_code for reply in (missing, stale, odd)] == [428, 409, 422]
    codes = [reply.json()["error"]["code"] for reply in (missing, stale, odd)]
    assert codes == ["version_required", "version_conflict", "invalid_request"]
    assert (await gateway.api("GET", f"/api/caps/{cap['id']}")).json() == cap
    assert await actions(gateway) == ["cap.create"]
    assert (await gateway.api(method, path, body, if_match='"1"')).status_code in (200, 204)


async def test_null_differs_from_absent_and_the_only_axis_cannot_be_taken_away(gateway: Harness) -> None:
    # B35: a cap once set is lifted by deleting it.
    cap = await gateway.make_cap(armed=False, limit_usd="5")
    path = f"/api/caps/{cap['id']}"
    bare = await gateway.api("PATCH", path, {"limit_usd": None}, if_match="1")
    assert (bare.status_code, bare.json()["error"]["field"]) == (422, "limit_usd")
    renamed = (await gateway.api("PATCH", path, {"name": "five"}, if_match="1")).json()
    assert (renamed["limit_usd"], renamed["version"]) == ("5.00", 2)
    other = (await gateway.api("PATCH", path, {"limit_usd": None, "request_limit": 3}, if_match="2")).json()
    assert (other["limit_usd"], other["limit_nano_usd"], other["request_limit"]) == (None, None, 3)
    assert (await gateway.api("DELETE", path, if_match="3")).status_code == 204
    assert (await gateway.api("GET", path)).status_code == 404
    assert (await gateway.api("GET", "/api/caps")).json()["items"] == []


async def test_a_patch_that_changes_nothing_leaves_no_trace(gateway: Harness) -> None:
    cap = await gateway.make_cap(armed=False, limit_usd="5", name="five")
    same = await gateway.api("PATCH", f"/api/caps/{cap['id']}", {"name": "five"}, if_match="1")
    assert (same.status_code, same.json()) == (200, cap)
    assert await actions(gateway) == ["cap.create"]


@pytest.mark.parametrize(
    ("sent", "field"), [({"hard_stop": False}, "hard_stop"), ({"on_reach": "pause"}, "on_reach")]
)
async def test_a_patch_is_held_to_the_rules_of_a_new_cap(
    gateway: Harness, sent: dict[str, Any], field: str
) -> None:
    cap = await gateway.make_cap(armed=False, limit_usd="5")
    reply = await gateway.api("PATCH", f"/api/caps/{cap['id']}", sent, if_match="1")
    assert (reply.status_code, reply.json()["error"]["field"]) == (422, field)


@pytest.mark.parametrize("body", [{}, {"reason": ""}, {"reason": "  "}, {"reason": None}])
async def test_arming_needs_a_reason(gateway: Harness, body: dict[str, Any]) -> None:
    cap = await gateway.make_cap(armed=False, limit_usd="5")
    reply = await gateway.api("POST", f"/api/caps/{cap['id']}/arm", body, if_match="1")
    assert (reply.status_code, reply.json()["error"]["field"]) == (422, "reason")
    assert (await gateway.api("GET", f"/api/caps/{cap['id']}")).json()["hard_stop"] is False


async def test_arming_and_disarming_twice_are_one_change_each(gateway: Harness) -> None:
    cap = await gateway.make_cap(armed=False, limit_usd="5")
    path = f"/api/caps/{cap['id']}"
    gateway.clock.advance(minutes=1)
    armed = (await gateway.api("POST", f"{path}/arm", {"reason": "runaways"}, if_match="1")).json()
    assert (armed["hard_stop"], armed["version"]) == (True, 2)
    assert armed["armed_at"] == armed["updated_at"] == "2026-12-01T12:01:00.000000Z"
    again = await gateway.api("POST", f"{path}/arm", {"reason": "again"}, if_match="2")
    assert (again.status_code, again.json()) == (200, armed)
    off = await gateway.api("POST", f"{path}/disarm")
    assert (off.status_code, off.json()["hard_stop"], off.json()["armed_at"]) == (200, False, None)
    repeated = await gateway.api("POST", f"{path}/disarm", {})
    assert (repeated.status_code, repeated.json()) == (200, off.json())
    assert await actions(gateway) == ["cap.create", "cap.arm", "cap.disarm"]
    arm, disarm = (await gateway.api("GET", "/api/audit")).json()["items"][1::-1]
    assert (arm["reason"], arm["actor"], arm["object"]) == ("runaways", "admin-token", f"cap:{cap['id']}")
    assert (arm["before"]["hard_stop"], arm["after"]) == (False, armed)
    assert (disarm["reason"], disarm["before"]) == (None, armed)


async def test_a_change_is_in_force_on_the_next_request(gateway: Harness) -> None:
    cap = await gateway.make_cap(limit_usd="0")
    path = f"/api/caps/{cap['id']}"
    assert (await gateway.chat(customer="ann")).status_code == 402
    raised = await gateway.api("PATCH", path, {"limit_usd": "1"}, if_match="2")
    assert (await gateway.chat(customer="ann")).status_code == 200
    await gateway.api("PATCH", path, {"limit_usd": "0"}, if_match=str(raised.json()["version"]))
    assert (await gateway.chat(customer="ann")).status_code == 402
    await gateway.api("POST", f"{path}/disarm")
    assert (await gateway.chat(customer="ann")).status_code == 200


async def test_caps_outlive_a_restart(gateway: Harness) -> None:
    cap = await gateway.make_cap(limit_usd="5", match={"model": "m-small"}, alert_percents=[80, 95])
    stored = gateway.gateway.running.policy.current.book("default")
    from gateway.stores import records

    with gateway.gateway.running.database.engine.connect() as connection:
        assert records.load_books(connection)["default"] == stored
    assert stored.caps[0].id == cap["id"]


async def test_lists_are_cut_into_pages(gateway: Harness) -> None:
    made = [(await gateway.make_cap(armed=False, limit_usd=str(amount)))["id"] for amount in range(5)]
    seen: list[int] = []
    cursor: str | None = ""
    while cursor is not None:
        page = (await gateway.api("GET", f"/api/caps?limit=2{cursor and f'&cursor={cursor}'}")).json()
        assert len(page["items"]) <= 2
        seen.extend(cap["id"] for cap in page["items"])
        cursor = page["next_cursor"]
    assert seen == made
    odd = await gateway.api("GET", "/api/caps?cursor=-1")
    assert (odd.status_code, odd.json()["error"]["field"]) == (422, "cursor")


@pytest.mark.parametrize(
    "path", ["/api/caps/99", "/api/caps/x", "/api/caps/1/arms", "/api/nothing", "/health/x"]
)
async def test_what_is_not_there_is_one_shape(gateway: Harness, path: str) -> None:
    reply = await gateway.api("GET", path)
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "not_found")


async def test_a_method_that_a_route_does_not_have(gateway: Harness) -> None:
    reply = await gateway.api("PUT", "/api/caps", {})
    assert (reply.status_code, reply.json()["error"]["code"]) == (405, "method_not_allowed")


async def test_a_cap_tells_what_it_refused_since_it_was_armed(gateway: Harness) -> None:
    cap = await gateway.make_cap(request_limit=1)
    path = f"/api/caps/{cap['id']}/refusals"
    assert [(await gateway.chat(customer="ann")).status_code for _ in range(3)] == [200, 402, 402]
    assert (await gateway.api("GET", path)).json() == {
        "cap_id": cap["id"],
        "since": cap["armed_at"],
        "requests": 2,
    }
    gateway.clock.advance(minutes=1)
    await gateway.api("POST", f"/api/caps/{cap['id']}/disarm")
    assert (await gateway.api("GET", path)).json()["requests"] == 2
    watching = (await gateway.api("GET", f"/api/caps/{cap['id']}")).json()
    sent = {"reason": "again"}
    armed = await gateway.api("POST", f"/api/caps/{cap['id']}/arm", sent, if_match=str(watching["version"]))
    found = (await gateway.api("GET", path)).json()
    assert (found["since"], found["requests"]) == (armed.json()["armed_at"], 0)
    assert (await gateway.chat(customer="ann")).status_code == 402
    assert (await gateway.api("GET", path)).json()["requests"] == 1
    assert (await gateway.api("GET", "/api/caps/99/refusals")).status_code == 404
