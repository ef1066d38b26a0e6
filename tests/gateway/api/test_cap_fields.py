"""What a cap may be made of: a field that cannot bind is refused by name, and nothing is stored (contract §7)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.gateway import ADMIN, Harness

CAP: dict[str, Any] = {"scope": "customer", "subject": "*", "window": "month", "limit_usd": "20.00"}
SHAPE = [
    "id", "name", "scope", "subject", "match", "window", "limit_usd", "limit_nano_usd", "token_limit", "request_limit",
    "hard_stop", "admission", "on_reach", "unpriced", "refusal_status", "alert_percents", "version", "created_at",
    "updated_at", "updated_by", "armed_at",
]  # fmt: skip


async def test_a_cap_is_made_watching_and_read_back_in_the_contracts_shape(gateway: Harness) -> None:
    made = await gateway.api(
        "POST", "/api/caps", {**CAP, "name": "Included usage", "match": {"tag": "agent:*"}}
    )
    cap = made.json()
    assert (made.status_code, list(cap), made.headers["etag"]) == (201, SHAPE, '"1"')
    assert (cap["limit_usd"], cap["limit_nano_usd"]) == ("20.00", 20_000_000_000)
    assert (cap["hard_stop"], cap["armed_at"], cap["version"], cap["admission"]) == (
        False,
        None,
        1,
        "reserve",
    )
    assert cap["match"] == {"provider": None, "model": None, "tag": "agent:*"}
    assert (cap["created_at"], cap["updated_by"]) == ("2026-12-01T12:00:00.000000Z", "admin-token")
    assert (await gateway.api("GET", f"/api/caps/{cap['id']}")).json() == cap
    assert (await gateway.api("GET", "/api/caps")).json() == {"items": [cap], "next_cursor": None}


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        ({"limit_usd": -7}, "limit_usd"),  # B13
        ({"limit_usd": "-7"}, "limit_usd"),
        ({"limit_usd": "NaN"}, "limit_usd"),
        ({"limit_usd": "Infinity"}, "limit_usd"),
        ({"limit_usd": float("nan")}, "limit_usd"),
        ({"limit_usd": float("inf")}, "limit_usd"),
        ({"limit_usd": 1.5}, "limit_usd"),
        ({"limit_usd": True}, "limit_usd"),
        ({"limit_usd": "1e3"}, "limit_usd"),
        ({"limit_usd": "1,000"}, "limit_usd"),
        ({"limit_usd": "1_000"}, "limit_usd"),
        ({"limit_usd": " 1"}, "limit_usd"),
        ({"limit_usd": ""}, "limit_usd"),
        ({"limit_usd": "٣"}, "limit_usd"),
        ({"limit_usd": "0.0000001"}, "limit_usd"),
        ({"limit_usd": "9000000001"}, "limit_usd"),
        ({"limit_usd": None}, "limit_usd"),
        ({"token_limit": -1}, "token_limit"),
        ({"token_limit": 1.0}, "token_limit"),
        ({"token_limit": 2**53}, "token_limit"),
        ({"request_limit": True}, "request_limit"),
        ({"zone": "Europe/Amsterdam"}, "zone"),  # B28
        ({"limit": 5}, "limit"),
        ({"match": {"region": "eu"}}, "match.region"),
        ({"match": {"tag": "customer:x"}}, "match.tag"),
        ({"match": {"tag": "agent"}}, "match.tag"),
        ({"match": {"model": ""}}, "match.model"),
        ({"limit_nano_usd": 5}, "limit_nano_usd"),
        ({"hard_stop": True}, "hard_stop"),
        ({"version": 1}, "version"),
        ({"armed_at": None}, "armed_at"),
        ({"updated_by": "me"}, "updated_by"),
        ({"id": 7}, "id"),
        ({"window": "rolling:30d"}, "window"),
        ({"window": "hour"}, "window"),
        ({"on_reach": {"degrade": {"m-large": "m-small"}}}, "on_reach"),
        ({"on_reach": "pause"}, "on_reach"),
        ({"admission": "p95"}, "admission"),
        ({"unpriced": "guess"}, "unpriced"),
        ({"refusal_status": 500}, "refusal_status"),
        ({"alert_percents": [0]}, "alert_percents"),
        ({"alert_percents": "80"}, "alert_percents"),
        ({"scope": "team"}, "scope"),
        ({"subject": ""}, "subject"),
        ({"subject": "a,b"}, "subject"),
        ({"subject": "x" * 129}, "subject"),
        ({"subject": None}, "subject"),
        ({"subject": "\ud800"}, "subject"),
        ({"name": "x\0"}, "name"),
        ({"scope": "key", "subject": "key_unknown"}, "subject"),
        ({"scope": "organization", "subject": "other"}, "subject"),
    ],
)
async def test_what_cannot_bind_is_refused_by_name_and_not_stored(
    gateway: Harness, sent: dict[str, Any], field: str
) -> None:
    reply = await _post(gateway, {**CAP, **sent})
    error = reply.json()["error"]
    assert (reply.status_code, error["code"], error["field"]) == (422, "invalid_request", field)
    assert error["message"]
    assert (await gateway.api("GET", "/api/caps")).json()["items"] == []
    assert [row["action"] for row in (await gateway.api("GET", "/api/audit")).json()["items"]] == [
        "key.create"
    ]


@pytest.mark.parametrize("missing", ["scope", "window", "subject"])
async def test_a_required_field_is_asked_for_by_name(gateway: Harness, missing: str) -> None:
    reply = await _post(gateway, {name: value for name, value in CAP.items() if name != missing})
    assert (reply.status_code, reply.json()["error"]["field"]) == (422, missing)


async def test_the_words_for_a_customer_cap_that_would_pause(gateway: Harness) -> None:
    reply = await _post(gateway, {**CAP, "on_reach": "pause"})
    assert reply.json()["error"]["message"] == "A customer spending cap stops; it does not pause."


@pytest.mark.parametrize(
    ("typed", "nano_usd", "text"),
    [
        ("0", 0, "0.00"),
        ("0.000001", 1_000, "0.000001"),
        ("20", 20_000_000_000, "20.00"),
        (20, 20_000_000_000, "20.00"),
        ("1.50", 1_500_000_000, "1.50"),
        ("9000000000", 9 * 10**18, "9000000000.00"),
    ],
)
async def test_amounts_are_kept_exactly(gateway: Harness, typed: object, nano_usd: int, text: str) -> None:
    cap = (await _post(gateway, {**CAP, "limit_usd": typed})).json()
    assert (cap["limit_nano_usd"], cap["limit_usd"]) == (nano_usd, text)


async def test_an_organization_cap_may_leave_its_subject_out(gateway: Harness) -> None:
    sent = {"scope": "organization", "window": "day", "limit_usd": "1", "on_reach": "pause"}
    cap = (await _post(gateway, sent)).json()
    assert (cap["subject"], cap["on_reach"]) == ("default", "pause")


async def test_a_cap_on_a_known_key_is_taken(gateway: Harness) -> None:
    key = await gateway.make_key()
    made = await _post(gateway, {**CAP, "scope": "key", "subject": key["id"]})
    assert made.status_code == 201


@pytest.mark.parametrize(
    ("content", "status"), [(b"{", 400), (b"", 422), (b"[]", 422), (b"null", 422), (b'{"scope": 3}', 422)]
)
async def test_a_body_that_is_no_cap(gateway: Harness, content: bytes, status: int) -> None:
    headers = {"authorization": f"Bearer {ADMIN}", "content-type": "application/json"}
    reply = await gateway.http.post("/api/caps", content=content, headers=headers)
    assert (reply.status_code, reply.json()["error"]["code"]) == (status, "invalid_request")


async def test_a_large_body_is_refused_unread(gateway: Harness) -> None:
    reply = await _post(gateway, {**CAP, "name": "x" * 300_000})
    assert (reply.status_code, reply.json()["error"]["code"]) == (413, "invalid_request")


async def _post(gateway: Harness, body: dict[str, Any]) -> Any:
    """As a client would that can write what JSON cannot, such as NaN."""
    headers = {"authorization": f"Bearer {ADMIN}", "content-type": "application/json"}
    return await gateway.http.post("/api/caps", content=json.dumps(body).encode(), headers=headers)
