"""The routes that cost nothing: the list of models in two shapes, and Anthropic's count of tokens."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.settings import Provider
from tests.support.gateway import PROVIDERS, Harness, running_gateway
from tests.support.prices import ROWS, row
from tests.support.provider import Reply

MORE = [
    {**row("g-flash", input="0.3", output="2.5"), "provider": "google", "aliases": ["g-latest"]},
    {**row("m-future", input="1", output="1"), "effective_from": "2027-01-01T00:00:00Z"},
    {**row("m-small", input="0.5", output="2"), "tier": "batch"},
]
COUNT = "/v1/messages/count_tokens"


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Harness]:
    """Two providers of the OpenAI dialect, one of each other."""
    providers = (
        *PROVIDERS,
        Provider(name="gemini", dialect="gemini", base_url="http://g.test", prices="google"),
        Provider(name="eu", dialect="openai", base_url="http://eu.test/v1", prices="openai"),
    )
    async with running_gateway(tmp_path, rows=[*ROWS, *MORE], providers=providers) as harness:
        yield harness


IDS = ["m-large", "m-small", "claude-test", "g-flash", "g-latest", "eu/m-large", "eu/m-small"]


async def get(gateway: Harness, query: str = "", **headers: str) -> Any:
    """The list as one of our keys sees it."""
    sent = {"authorization": f"Bearer {gateway.secret}", **headers}
    return await gateway.http.get(f"/v1/models{query}", headers=sent)


async def test_the_list_has_what_a_call_may_name_and_nothing_else(gateway: Harness) -> None:
    reply = await get(gateway)
    assert reply.headers["x-capline-request-id"]
    body = reply.json()
    assert body["object"] == "list"
    assert [model["id"] for model in body["data"]] == IDS
    assert {model["id"]: model["owned_by"] for model in body["data"]}["eu/m-small"] == "eu"
    assert all(model["object"] == "model" and model["created"] > 1_600_000_000 for model in body["data"])
    for model in body["data"]:
        if model["owned_by"] in ("openai", "eu"):
            assert (await gateway.chat(model=model["id"])).status_code == 200
    assert not [row for row in await gateway.receipts() if row["hold_nano_usd"] is None]


async def test_anthropics_shape_comes_in_pages(gateway: Harness) -> None:
    version = {"anthropic-version": "2023-06-01"}
    first = (await get(gateway, "?limit=2", **version)).json()
    assert [model["id"] for model in first["data"]] == IDS[:2]
    assert (first["has_more"], first["first_id"], first["last_id"]) == (True, IDS[0], IDS[1])
    assert set(first["data"][0]) == {"type", "id", "display_name", "created_at"}
    rest = (await get(gateway, f"?after_id={IDS[1]}", **version)).json()
    assert ([model["id"] for model in rest["data"]], rest["has_more"]) == (IDS[2:], False)
    before = (await get(gateway, f"?before_id={IDS[4]}&limit=2", **version)).json()
    assert ([model["id"] for model in before["data"]], before["has_more"]) == (IDS[2:4], True)
    for query in ("?limit=0", "?limit=x", "?limit=1001", "?after_id=none"):
        reply = await get(gateway, query, **version)
        assert (reply.status_code, reply.json()["error"]["details"]["error_code"]) == (400, "invalid_request")


async def test_only_a_key_of_the_data_plane_sees_it(gateway: Harness) -> None:
    for headers, status in (({}, 401), ({"authorization": "Bearer wrong"}, 401)):
        assert (await gateway.http.get("/v1/models", headers=headers)).status_code == status
    gateway.secret = (await gateway.make_key(role="admin"))["key"]
    assert (await get(gateway)).status_code == 403
    assert (await gateway.http.delete("/v1/models")).status_code == 404


async def test_counting_tokens_is_passed_on_and_takes_nothing(gateway: Harness) -> None:
    await gateway.make_cap(limit_usd="0")
    gateway.provider.script = lambda seen: Reply(body=b'{"input_tokens": 14}')
    body = {"model": "anthropic/claude-test", "messages": [{"role": "user", "content": "hi"}]}
    headers = {"x-api-key": gateway.secret, "anthropic-version": "2023-06-01", "x-capline-tags": "customer:a"}
    reply = await gateway.http.post(COUNT, json=body, headers=headers)
    assert (reply.status_code, reply.content) == (200, b'{"input_tokens": 14}')
    (seen,) = gateway.provider.seen
    assert seen.url == "http://provider.test/v1/messages/count_tokens"
    assert json.loads(seen.body)["model"] == "claude-test"
    assert seen.header("x-api-key") == "sk-ant"
    assert seen.header("x-capline-tags") is None
    assert await gateway.receipts() == []


@pytest.mark.parametrize("fault", ["unreached", "broken"])
async def test_a_count_that_fails_says_so_in_anthropics_shape(gateway: Harness, fault: str) -> None:
    gateway.provider.script = lambda seen: Reply(fault=fault)
    headers = {"x-api-key": gateway.secret}
    reply = await gateway.http.post(COUNT, json={"model": "claude-test"}, headers=headers)
    assert (reply.status_code, reply.json()["error"]["details"]["error_code"]) == (
        502,
        "provider_unreachable",
    )
    reply = await gateway.http.post(COUNT, content=b"{", headers=headers)
    assert (reply.status_code, reply.json()["error"]["type"]) == (400, "invalid_request_error")
    reply = await gateway.http.post(COUNT, json={}, headers={"x-api-key": "wrong"})
    assert (reply.status_code, reply.json()["error"]["type"]) == (401, "authentication_error")
    assert await gateway.receipts() == []
