"""Background responses: the hold stays while one runs, its end is priced once, and a restart goes on (contract §10)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import func, select

import gateway.backgrounds as followed
from gateway.settings import Provider
from gateway.stores import records
from gateway.stores.backgrounds import backgrounds
from tests.support.gateway import PROVIDERS, Harness, running_gateway
from tests.support.provider import Reply, ScriptedProvider, Seen
from tests.support.raw_client import RawClient
from tests.support.responses import SSE, BackgroundProvider, events, response, sse, usage

ROUTE = "/v1/responses"
COST = 1_200_000
"""1,000 input tokens at 1,000 and 50 output tokens at 4,000 nano-USD."""
TOLD = usage(1_000, 50)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed, "FIRST_POLL_S", 0.005)
    monkeypatch.setattr(followed, "MOST_POLL_S", 0.01)


@pytest.fixture
def provider(gateway: Harness) -> BackgroundProvider:
    """The provider of `gateway`."""
    runs = BackgroundProvider()
    gateway.provider.script = runs
    return runs


async def ask(gateway: Harness, method: str, path: str, body: Any = None, secret: str = "") -> httpx.Response:
    """A call of customer a."""
    sent = {"authorization": f"Bearer {secret or gateway.secret}", "x-capline-tags": "customer:a"}
    return await gateway.http.request(method, path, json=body, headers=sent)


async def start(gateway: Harness, **fields: Any) -> str:
    """The id of a new background response."""
    body = {"model": "m-small", "input": "hi", "background": True, **fields}
    reply = await ask(gateway, "POST", ROUTE, body)
    assert (reply.status_code, reply.json()["status"]) == (200, "queued"), reply.text
    assert "x-capline-cost-usd" not in reply.headers
    return str(reply.json()["id"])


async def until(condition: Callable[[], Awaitable[Any]]) -> Any:
    """Ask until the answer is true."""
    async with asyncio.timeout(10):
        while not (found := await condition()):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        return found


async def receipts_of(gateway: Harness, count: int) -> list[dict[str, Any]]:
    """All receipts, once there are so many."""

    async def enough() -> list[dict[str, Any]] | None:
        found = await gateway.receipts()
        return found if len(found) >= count else None

    found: list[dict[str, Any]] = await until(enough)
    assert len(found) == count
    return found


async def looked_at(provider: BackgroundProvider, more: int = 3) -> None:
    """Wait until the gateway has asked the provider again, so many times."""
    before = provider.looks()

    async def asked() -> bool:
        return provider.looks() >= before + more

    await until(asked)


def taken(gateway: Harness) -> tuple[int, int]:
    """What all counters took and hold, in nano-USD."""
    counters = gateway.gateway.running.services.ledger.counters
    balances = [counters.balance(key) for key in tuple(counters.keys()) if key.unit == "usd"]
    return sum(balance.spent for balance in balances), sum(balance.held for balance in balances)


def stored(gateway: Harness) -> int:
    """Runs that a restart would go on with."""
    with gateway.gateway.running.database.engine.connect() as connection:
        return connection.execute(select(func.count()).select_from(backgrounds)).scalar_one()


async def test_the_hold_stays_until_the_end_and_the_end_is_priced_once(
    gateway: Harness, provider: BackgroundProvider
) -> None:
    await gateway.make_cap(limit_usd="100")
    response_id = await start(gateway, max_output_tokens=100)
    await looked_at(provider)
    assert await gateway.receipts() == []
    spent, held = taken(gateway)
    assert (spent, held > 0, stored(gateway)) == (0, True, 1)

    provider.end(response_id, usage=TOLD)
    (receipt,) = await receipts_of(gateway, 1)
    assert (receipt["status"], receipt["cost_nano_usd"], receipt["counted_nano_usd"]) == (
        "served",
        COST,
        COST,
    )
    assert (receipt["upstream_id"], receipt["model_served"]) == (response_id, "m-small")
    assert (receipt["customer"], receipt["hold_nano_usd"], receipt["usage_source"]) == ("a", held, "final")
    assert (receipt["input_tokens"], receipt["output_tokens"]) == provider.tokens() == (1_000, 50)
    assert taken(gateway) == (COST, 0)

    for _ in range(3):
        assert (await ask(gateway, "GET", f"{ROUTE}/{response_id}")).json()["status"] == "completed"
    assert len(await gateway.receipts()) == 1
    assert taken(gateway) == (COST, 0)
    assert stored(gateway) == 0


@pytest.mark.parametrize("status", ["incomplete", "failed", "cancelled"])
async def test_every_end_with_usage_is_priced(
    gateway: Harness, provider: BackgroundProvider, status: str
) -> None:
    provider.end(await start(gateway), status, usage=TOLD)
    (receipt,) = await receipts_of(gateway, 1)
    assert (receipt["status"], receipt["cost_nano_usd"]) == ("served", COST)


async def test_a_cancel_passes_through_and_its_usage_is_waited_for(
    gateway: Harness, provider: BackgroundProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed, "LOOKS_FOR_USAGE", 1_000)
    response_id = await start(gateway)
    reply = await ask(gateway, "POST", f"{ROUTE}/{response_id}/cancel")
    assert (reply.status_code, reply.json()["status"]) == (200, "cancelled")
    assert reply.headers["x-capline-request-id"]
    await looked_at(provider)
    assert await gateway.receipts() == []
    provider.end(response_id, "cancelled", usage=TOLD)
    assert (await receipts_of(gateway, 1))[0]["cost_nano_usd"] == COST


async def test_a_cancelled_response_that_never_tells_its_usage_is_missing_it(
    gateway: Harness, provider: BackgroundProvider
) -> None:
    await gateway.make_cap(limit_usd="100")
    await ask(gateway, "POST", f"{ROUTE}/{await start(gateway)}/cancel")
    (receipt,) = await receipts_of(gateway, 1)
    assert (receipt["status"], receipt["cost_nano_usd"]) == ("served", None)
    assert receipt["unpriced_reason"] == "usage_missing"
    assert taken(gateway) == (receipt["hold_nano_usd"], 0)


async def test_an_end_that_a_client_sees_is_on_disk_before_it_does(
    gateway: Harness, provider: BackgroundProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed, "FIRST_POLL_S", 60)
    response_id = await start(gateway)
    provider.end(response_id, usage=TOLD)
    gateway.provider.script = lambda seen: provider(seen) if seen.header("user-agent") else Reply(status=500)
    assert (await ask(gateway, "GET", f"{ROUTE}/{response_id}")).json()["status"] == "completed"
    (receipt,) = await gateway.receipts()
    assert receipt["cost_nano_usd"] == COST


async def test_an_id_belongs_to_the_organization_that_made_it(
    gateway: Harness, provider: BackgroundProvider
) -> None:
    response_id = await start(gateway)
    stranger = (await gateway.make_key(name="other"))["key"]
    current = gateway.gateway.running.policy.current
    keys = {
        digest: records.Principal(key_id=key.key_id, organization="elsewhere") if key.name == "other" else key
        for digest, key in current.keys.items()
    }
    gateway.gateway.running.policy.current = current.with_keys(keys)
    before = len(provider.seen)
    for method, path in (("GET", ""), ("POST", "/cancel")):
        replies = [
            await ask(gateway, method, f"{ROUTE}/{each}{path}", secret=stranger)
            for each in (response_id, "resp_nobody")
        ]
        assert [(reply.status_code, reply.json()["error"]["code"]) for reply in replies] == [
            (404, "response_not_found")
        ] * 2
        assert replies[0].json()["error"]["message"] == replies[1].json()["error"]["message"]
    asked = [seen for seen in provider.seen[before:] if seen.method == "POST" or "nobody" in seen.url]
    assert asked == []
    provider.end(response_id, usage=TOLD)
    await receipts_of(gateway, 1)
    assert (await ask(gateway, "GET", f"{ROUTE}/{response_id}", secret=stranger)).status_code == 404
    assert (await ask(gateway, "GET", f"{ROUTE}/{response_id}")).status_code == 200


async def test_a_visit_needs_a_key_and_leaves_no_receipt(
    gateway: Harness, provider: BackgroundProvider
) -> None:
    assert (await gateway.http.get(f"{ROUTE}/resp_1")).status_code == 401
    operator = (await gateway.make_key(role="viewer"))["key"]
    assert (await ask(gateway, "GET", f"{ROUTE}/resp_1", secret=operator)).status_code == 403
    for method, path in (
        ("DELETE", "/resp_1"),
        ("GET", "/resp_1/input_items"),
        ("POST", "/resp_1"),
        ("GET", ""),
    ):
        reply = await ask(gateway, method, ROUTE + path)
        assert (reply.status_code, reply.json()["error"]["code"]) == (404, "unsupported_route"), path
    assert (await gateway.receipts(), provider.seen) == ([], [])


async def test_a_visit_goes_as_it_came_with_the_key_of_the_first_call(
    gateway: Harness, provider: BackgroundProvider
) -> None:
    response_id = await start(gateway)
    await ask(gateway, "GET", f"{ROUTE}/{response_id}?include[]=file_search_call.results&starting_after=3")
    seen = next(seen for seen in provider.seen if "include" in seen.url)
    assert (
        seen.url
        == f"http://provider.test{ROUTE}/{response_id}?include[]=file_search_call.results&starting_after=3"
    )
    assert seen.header("authorization") == "Bearer sk-up"
    assert seen.header("x-capline-tags") is None


async def test_a_response_that_was_no_background_run_can_be_looked_at(gateway: Harness) -> None:
    gateway.provider.script = lambda seen: Reply(body=json.dumps(response(id="resp_plain")).encode())
    await ask(gateway, "POST", ROUTE, {"model": "m-small", "input": "hi"})
    assert (await ask(gateway, "GET", f"{ROUTE}/resp_plain")).json()["id"] == "resp_plain"
    assert (await ask(gateway, "GET", f"{ROUTE}/resp_none")).status_code == 404
    assert len(await gateway.receipts()) == 1


async def test_a_run_that_outlives_its_hold_is_abandoned_and_its_late_end_corrects_it(
    gateway: Harness, provider: BackgroundProvider
) -> None:
    await gateway.make_cap(limit_usd="100")
    response_id = await start(gateway)
    gateway.clock.advance(seconds=899)
    await looked_at(provider)
    assert await gateway.receipts() == []
    gateway.clock.advance(seconds=1)
    (abandoned,) = await receipts_of(gateway, 1)
    assert (abandoned["status"], abandoned["cost_nano_usd"]) == ("abandoned", None)
    assert (abandoned["upstream_id"], abandoned["unpriced_reason"]) == (response_id, "outcome_unknown")
    assert taken(gateway) == (abandoned["hold_nano_usd"], 0)

    gateway.clock.advance(hours=23)
    await looked_at(provider)
    provider.end(response_id, usage=TOLD)
    _, late = await receipts_of(gateway, 2)
    assert (late["corrects"], late["status"]) == (abandoned["receipt_id"], "served")
    assert late["operation_id"] == abandoned["operation_id"]
    assert late["cost_nano_usd"] == COST
    assert late["counted_nano_usd"] == COST - abandoned["counted_nano_usd"]
    assert (late["admitted_at"], late["model_served"]) == (abandoned["admitted_at"], "m-small")
    assert taken(gateway) == (COST, 0)
    await asyncio.sleep(0.05)
    assert len(await gateway.receipts()) == 2


async def test_after_a_day_nobody_asks_any_more(gateway: Harness, provider: BackgroundProvider) -> None:
    await start(gateway)
    gateway.clock.advance(hours=24)
    (receipt,) = await receipts_of(gateway, 1)
    assert receipt["status"] == "abandoned"

    async def forgotten() -> bool:
        return stored(gateway) == 0

    await until(forgotten)
    before = provider.looks()
    await asyncio.sleep(0.05)
    assert provider.looks() == before


async def test_a_provider_that_cannot_be_asked_is_asked_again(
    gateway: Harness, provider: BackgroundProvider
) -> None:
    response_id = await start(gateway)
    faults = [
        Reply(fault="unreached"),
        Reply(fault="broken"),
        Reply(status=500),
        Reply(status=404, body=b"{}"),
    ]
    faults.append(Reply(body=b"no json"))

    def stumble(seen: Seen) -> Reply:
        return faults.pop() if faults else provider(seen)

    gateway.provider.script = stumble
    provider.end(response_id, usage=TOLD)
    assert (await receipts_of(gateway, 1))[0]["cost_nano_usd"] == COST
    assert faults == []


async def test_a_first_answer_whose_client_left_is_followed_all_the_same(
    gateway: Harness, provider: BackgroundProvider
) -> None:
    client = RawClient(lambda message: client.gone.set())
    body = json.dumps({"model": "m-small", "input": "hi", "background": True}).encode()
    with contextlib.suppress(OSError):
        await client.post(
            gateway.gateway, ROUTE, body, [(b"authorization", f"Bearer {gateway.secret}".encode())]
        )
    await looked_at(provider)
    (response_id,) = provider.responses
    provider.end(response_id, usage=TOLD)
    assert (await receipts_of(gateway, 1))[0]["cost_nano_usd"] == COST


async def test_an_answer_that_is_whole_at_once_is_priced_at_once(gateway: Harness) -> None:
    gateway.provider.script = lambda seen: Reply(body=json.dumps(response(usage=TOLD)).encode())
    reply = await ask(gateway, "POST", ROUTE, {"model": "m-small", "input": "hi", "background": True})
    assert reply.headers["x-capline-cost-usd"] == "0.001200000"
    assert ((await gateway.receipts())[0]["cost_nano_usd"], stored(gateway)) == (COST, 0)


# Streams of a background run


async def streamed(
    gateway: Harness,
    provider: BackgroundProvider,
    chunks: list[bytes],
    fault: str | None = None,
    client: RawClient | None = None,
) -> RawClient:
    """A background run whose first call is streamed."""
    first = Reply(chunks=chunks, headers=SSE, fault=fault)
    gateway.provider.script = lambda seen: first if seen.method == "POST" else provider(seen)
    client = client or RawClient()
    body = json.dumps({"model": "m-small", "input": "hi", "background": True, "stream": True}).encode()
    await client.post(gateway.gateway, ROUTE, body, [(b"authorization", f"Bearer {gateway.secret}".encode())])
    return client


async def test_a_background_stream_is_metered_as_any_other(
    gateway: Harness, provider: BackgroundProvider
) -> None:
    client = await streamed(gateway, provider, sse(events(usage=TOLD)))
    assert client.ended
    (receipt,) = await gateway.receipts()
    assert (receipt["cost_nano_usd"], receipt["stream"]) == (COST, True)
    await asyncio.sleep(0.05)
    assert (provider.looks(), stored(gateway), len(await gateway.receipts())) == (0, 0, 1)


@pytest.mark.parametrize("fault", [None, "cut"])
@pytest.mark.parametrize("count", range(1, len(events())))
async def test_a_background_stream_that_breaks_is_asked_for(
    gateway: Harness, provider: BackgroundProvider, fault: str | None, count: int
) -> None:
    provider.responses["resp_1"] = response("in_progress", background=True)
    client = await streamed(gateway, provider, sse(events(usage=TOLD))[:count], fault)
    assert not client.ended
    await looked_at(provider)
    assert await gateway.receipts() == []
    provider.end("resp_1", usage=TOLD)
    (receipt,) = await receipts_of(gateway, 1)
    assert (receipt["status"], receipt["cost_nano_usd"], receipt["stream"]) == ("served", COST, True)


async def test_a_background_stream_that_breaks_after_its_client_left_is_asked_for(
    gateway: Harness, provider: BackgroundProvider
) -> None:
    provider.responses["resp_1"] = response("in_progress", background=True)
    client = RawClient()
    client._on_message = lambda message: client.gone.set() if message.get("body") else None
    await streamed(gateway, provider, sse(events())[:5], "cut", client)
    await looked_at(provider)
    provider.end("resp_1", usage=TOLD)
    (receipt,) = await receipts_of(gateway, 1)
    assert (receipt["status"], receipt["cost_nano_usd"]) == ("served", COST)


@pytest.mark.sqlite
async def test_a_gateway_that_is_killed_within_a_stream_asks_for_its_end(
    gateway: Harness, provider: BackgroundProvider, tmp_path: Path
) -> None:
    folder = tmp_path / "after"

    def kill(message: dict[str, Any]) -> None:
        if message.get("body") and not folder.exists():
            copied(gateway, folder)

    await streamed(gateway, provider, sse(events(usage=TOLD)), client=RawClient(kill))
    runs = BackgroundProvider()
    runs.end("resp_1", usage=TOLD)
    async with running_gateway(folder, provider=ScriptedProvider(runs)) as after:
        (receipt,) = await receipts_of(after, 1)
        assert (receipt["status"], receipt["cost_nano_usd"], receipt["stream"]) == ("served", COST, True)


async def test_a_stream_is_taken_up_again_by_a_look_without_a_receipt(
    gateway: Harness, provider: BackgroundProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed, "FIRST_POLL_S", 60)
    response_id = await start(gateway)
    rest = sse(events(id=response_id, usage=TOLD))[4:]
    gateway.provider.script = lambda seen: (
        Reply(chunks=rest, headers=SSE) if "stream=true" in seen.url else provider(seen)
    )
    provider.end(response_id, usage=TOLD)
    reply = await ask(gateway, "GET", f"{ROUTE}/{response_id}?stream=true&starting_after=3")
    assert reply.content == b"".join(rest)
    (receipt,) = await receipts_of(gateway, 1)  # the look made the gateway ask at once
    assert receipt["cost_nano_usd"] == COST


# Restarts


def copied(gateway: Harness, folder: Path) -> Path:
    """The ledger as a killed process would leave it."""
    folder.mkdir()
    source = gateway.gateway.running.database.path
    with closing(sqlite3.connect(source)) as now, closing(sqlite3.connect(folder / "capline.db")) as copy:
        now.backup(copy)
    return folder


@pytest.mark.sqlite
async def test_a_killed_gateway_goes_on_asking(
    gateway: Harness, provider: BackgroundProvider, tmp_path: Path
) -> None:
    await gateway.make_cap(limit_usd="100")
    response_id = await start(gateway, max_output_tokens=100)
    held = taken(gateway)[1]
    folder = copied(gateway, tmp_path / "after")
    runs = BackgroundProvider()
    runs.responses |= provider.responses
    async with running_gateway(folder, provider=ScriptedProvider(runs)) as after:
        assert await after.receipts() == []
        assert after.gateway.running.services.ledger.closed_at_start == 0
        assert taken(after) == (0, held)
        await looked_at(runs)
        assert {seen.header("authorization") for seen in runs.seen} == {"Bearer sk-up"}
        runs.end(response_id, usage=TOLD)
        (receipt,) = await receipts_of(after, 1)
        assert (receipt["status"], receipt["cost_nano_usd"], receipt["customer"]) == ("served", COST, "a")
        assert (receipt["hold_nano_usd"], receipt["node"]) == (held, "n1")
        assert taken(after) == (COST, 0)
        explained = (await after.api("GET", f"/api/receipts/{receipt['receipt_id']}")).json()
        assert len(explained["trace"]) == 1


@pytest.mark.sqlite
async def test_a_run_whose_time_is_up_while_nobody_ran_is_abandoned_and_corrected(
    gateway: Harness, provider: BackgroundProvider, tmp_path: Path
) -> None:
    await gateway.make_cap(limit_usd="100")
    response_id = await start(gateway)
    folder = copied(gateway, tmp_path / "after")
    runs = BackgroundProvider()
    runs.responses |= provider.responses
    runs.end(response_id, usage=TOLD)
    gateway.clock.advance(hours=1)
    async with running_gateway(folder, provider=ScriptedProvider(runs), clock=gateway.clock) as after:
        abandoned, late = await receipts_of(after, 2)
        assert (abandoned["status"], late["corrects"]) == ("abandoned", abandoned["receipt_id"])
        assert late["cost_nano_usd"] == COST
        assert taken(after) == (COST, 0)


@pytest.mark.sqlite
async def test_an_abandoned_run_is_asked_for_after_a_restart(
    gateway: Harness, provider: BackgroundProvider, tmp_path: Path
) -> None:
    await gateway.make_cap(limit_usd="100")
    response_id = await start(gateway)
    gateway.clock.advance(hours=1)
    await receipts_of(gateway, 1)
    folder = copied(gateway, tmp_path / "after")
    runs = BackgroundProvider()
    runs.responses |= provider.responses
    async with running_gateway(folder, provider=ScriptedProvider(runs), clock=gateway.clock) as after:
        await looked_at(runs)
        assert len(await after.receipts()) == 1
        runs.end(response_id, usage=TOLD)
        _, late = await receipts_of(after, 2)
        assert late["cost_nano_usd"] == COST
        assert taken(after) == (COST, 0)
    async with running_gateway(folder, provider=ScriptedProvider(runs), clock=gateway.clock) as again:
        before = runs.looks()
        await asyncio.sleep(0.05)
        assert (runs.looks(), stored(again), taken(again)) == (before, 0, (COST, 0))


@pytest.mark.sqlite
async def test_a_run_keeps_the_address_and_the_key_of_its_first_call(
    gateway: Harness, provider: BackgroundProvider, tmp_path: Path
) -> None:
    await start(gateway)
    folder = copied(gateway, tmp_path / "after")
    runs = BackgroundProvider()
    runs.responses |= provider.responses
    moved = Provider(
        name="openai",
        dialect="openai",
        base_url="http://new.test/v1",
        api_keys=("sk-new", "sk-up"),
        prices="openai",
    )
    settings = {"providers": (moved, *PROVIDERS[1:])}
    async with running_gateway(folder, provider=ScriptedProvider(runs), **settings):
        await looked_at(runs)
    assert {seen.url.partition("/v1")[0] for seen in runs.seen} == {"http://provider.test"}
    assert {seen.header("authorization") for seen in runs.seen} == {"Bearer sk-up"}


async def test_a_late_end_that_the_ledger_does_not_take_is_asked_for_again(
    gateway: Harness, provider: BackgroundProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    await gateway.make_cap(limit_usd="100")
    response_id = await start(gateway)
    gateway.clock.advance(hours=1)
    await receipts_of(gateway, 1)
    ledger = gateway.gateway.running.services.ledger
    failures = ["disk full", "disk full"]
    correct = ledger.correct

    async def stumble(*call: Any) -> Any:
        if failures:
            raise OSError(failures.pop())
        return await correct(*call)

    monkeypatch.setattr(ledger, "correct", stumble)
    provider.end(response_id, usage=TOLD)
    _, late = await receipts_of(gateway, 2)
    assert (late["cost_nano_usd"], failures, taken(gateway)) == (COST, [], (COST, 0))


async def test_a_late_end_without_a_cost_leaves_the_abandoned_row_as_it_is(
    gateway: Harness, provider: BackgroundProvider
) -> None:
    response_id = await start(gateway)
    gateway.clock.advance(hours=1)
    rows = await receipts_of(gateway, 1)
    provider.end(response_id, "failed", usage=None)

    async def forgotten() -> bool:
        return stored(gateway) == 0

    await until(forgotten)
    assert await gateway.receipts() == rows


@pytest.mark.sqlite
async def test_a_correction_that_was_the_last_thing_before_a_kill_is_not_made_again(
    gateway: Harness, provider: BackgroundProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await gateway.make_cap(limit_usd="100")
    response_id = await start(gateway)
    gateway.clock.advance(hours=1)
    await receipts_of(gateway, 1)
    with monkeypatch.context() as patched:
        patched.delattr(followed.store, "forget")
        provider.end(response_id, usage=TOLD)
        rows = await receipts_of(gateway, 2)
    folder = copied(gateway, tmp_path / "after")
    runs = BackgroundProvider()
    async with running_gateway(folder, provider=ScriptedProvider(runs), clock=gateway.clock) as after:
        assert (stored(after), taken(after)) == (0, (COST, 0))
        await asyncio.sleep(0.05)
        assert (await after.receipts(), runs.looks()) == (rows, 0)


async def test_a_late_end_that_an_operator_settled_first_is_not_counted_twice(
    gateway: Harness, provider: BackgroundProvider
) -> None:
    await gateway.make_cap(limit_usd="100")
    response_id = await start(gateway)
    gateway.clock.advance(hours=1)
    (abandoned,) = await receipts_of(gateway, 1)
    made = await gateway.api(
        "POST",
        f"/api/receipts/{abandoned['receipt_id']}/correct",
        {"usage": {"input_tokens": 10, "output_tokens": 1}, "reason": "invoice"},
    )
    assert made.status_code in (200, 201), made.text
    settled = taken(gateway)
    provider.end(response_id, usage=TOLD)

    async def forgotten() -> bool:
        return stored(gateway) == 0

    await until(forgotten)
    assert len(await gateway.receipts()) == 2
    assert taken(gateway) == settled
