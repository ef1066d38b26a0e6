"""Gemini generateContent, whole and streamed: priced once by its last usage, refused in its own shape."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import func, select

from gateway.settings import Provider
from gateway.stores.tables import receipts
from tests.support.gateway import PROVIDERS, Harness, running_gateway
from tests.support.prices import ROWS, row
from tests.support.provider import Reply
from tests.support.raw_client import RawClient

SSE = [(b"content-type", b"text/event-stream")]
JSON = [(b"content-type", b"application/json; charset=UTF-8")]
RATES = {"input": "0.3", "output": "2.5", "cache_read": "0.03", "audio_input": "1"}
GEMINI = [
    {**row("g-flash", **RATES), "provider": "google", "fees": {"web_search": "0.014"}},
    {**row("g-flash", input="0.15", output="1.25"), "provider": "google", "tier": "flex"},
    {**row("g-pro", input="1.25", output="10", cache_read="0.31"), "provider": "google"},
    {
        **row("g-pro", input="2.5", output="15", cache_read="0.625"),
        "provider": "google",
        "prompt_above": 200_000,
    },
]
USAGE = {
    "promptTokenCount": 1_000,
    "candidatesTokenCount": 200,
    "thoughtsTokenCount": 850,
    "totalTokenCount": 2_050,
}
COST = 2_925_000
"""1,000 * 300 + (200 + 850) * 2,500 nano-USD."""
HELLO = {
    "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
    "generationConfig": {"maxOutputTokens": 100},
}


def answer(text: str | None = "ok", finish: str | None = "STOP", **more: Any) -> dict[str, Any]:
    """One chunk, or the whole answer, as Gemini words it."""
    candidate: dict[str, Any] = {"index": 0}
    if text is not None:
        candidate["content"] = {"role": "model", "parts": [{"text": text}]}
    if finish is not None:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], "modelVersion": "g-flash", "responseId": "r-1", **more}


CHUNKS = [
    answer('a "}{" \\ b', None, usageMetadata={"promptTokenCount": 1_000, "totalTokenCount": 1_000}),
    answer("c", None, usageMetadata={**USAGE, "candidatesTokenCount": 100, "totalTokenCount": 1_950}),
    answer("d", usageMetadata=USAGE),
]


def as_events(chunks: list[dict[str, Any]]) -> list[bytes]:
    """Chunks with alt=sse."""
    return [b"data: " + json.dumps(chunk).encode() + b"\r\n\r\n" for chunk in chunks]


def as_array(chunks: list[dict[str, Any]]) -> list[bytes]:
    """Chunks without: one array that grows."""
    texts = [json.dumps(chunk, indent=2).encode() for chunk in chunks]
    return [b"[" + texts[0], *(b"\n,\r\n" + text for text in texts[1:]), b"\n]\n"]


STREAMS = [(as_events, SSE), (as_array, JSON)]


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Harness]:
    """A gateway with two Gemini providers."""
    providers = [
        Provider(
            name=name,
            dialect="gemini",
            base_url=f"http://{name}.test",
            api_keys=(f"k-{name}",),
            prices="google",
        )
        for name in ("gemini", "second")
    ]
    async with running_gateway(
        tmp_path, rows=[*ROWS, *GEMINI], providers=(*PROVIDERS, *providers)
    ) as harness:
        yield harness


async def ask(
    gateway: Harness,
    model: str = "g-flash",
    body: Any = HELLO,
    *,
    method: str = "generateContent",
    query: str = "",
    **headers: str,
) -> httpx.Response:
    """A whole call of customer a, authorized as Google's SDKs do it."""
    sent = {"x-goog-api-key": gateway.secret, "x-capline-tags": "customer:a", **headers}
    return await gateway.http.post(f"/v1beta/models/{model}:{method}{query}", json=body, headers=sent)


async def stream(
    gateway: Harness,
    chunks: list[bytes],
    headers: list[tuple[bytes, bytes]],
    *,
    client: RawClient | None = None,
    fault: str | None = None,
    body: Any = HELLO,
) -> RawClient:
    """A streamed call of customer a."""
    gateway.provider.script = lambda seen: Reply(chunks=chunks, headers=headers, fault=fault)
    client = client or RawClient()
    sent = [(b"x-goog-api-key", gateway.secret.encode()), (b"x-capline-tags", b"customer:a")]
    path = "/v1beta/models/g-flash:streamGenerateContent"
    await client.post(gateway.gateway, path, json.dumps(body).encode(), sent, query=b"alt=sse")
    return client


async def last(gateway: Harness) -> dict[str, Any]:
    """The newest receipt."""
    return (await gateway.receipts())[-1]


def scripted(gateway: Harness, whole: dict[str, Any], status: int = 200) -> None:
    """Have the provider answer this."""
    gateway.provider.script = lambda seen: Reply(body=json.dumps(whole).encode(), status=status)


async def test_a_whole_answer_is_priced_with_its_thoughts_and_passes_byte_for_byte(gateway: Harness) -> None:
    scripted(gateway, answer(usageMetadata=USAGE))
    reply = await ask(gateway)
    assert (reply.status_code, reply.headers["x-capline-cost-usd"]) == (200, "0.002925000")
    assert reply.json() == answer(usageMetadata=USAGE)
    (seen,) = gateway.provider.seen
    assert seen.url == "http://gemini.test/v1beta/models/g-flash:generateContent"
    assert seen.header("x-goog-api-key") == "k-gemini"
    assert json.loads(seen.body) == HELLO
    receipt = await last(gateway)
    assert (receipt["dialect"], receipt["route"]) == ("gemini", "/v1beta/models/{model}:generateContent")
    assert (receipt["input_tokens"], receipt["output_tokens"], receipt["reasoning_tokens"]) == (
        1_000,
        1_050,
        850,
    )
    assert (receipt["cost_nano_usd"], receipt["upstream_id"], receipt["output_limit"]) == (COST, "r-1", 100)
    assert (receipt["model_requested"], receipt["model_served"]) == ("g-flash", "g-flash")


@pytest.mark.parametrize(("shape", "headers"), STREAMS)
@pytest.mark.parametrize("cut", [None, 1, 7, 100])
async def test_a_stream_is_priced_by_its_last_usage_and_passes_byte_for_byte(
    gateway: Harness, shape: Any, headers: Any, cut: int | None
) -> None:
    pieces = shape(CHUNKS)
    whole = b"".join(pieces)
    if cut is not None:
        pieces = [whole[at : at + cut] for at in range(0, len(whole), cut)]
    client = await stream(gateway, pieces, headers)
    assert client.ended
    assert client.body == whole
    assert gateway.provider.seen[0].url.endswith("/v1beta/models/g-flash:streamGenerateContent?alt=sse")
    (receipt,) = await gateway.receipts()
    assert (receipt["status"], receipt["stream"], receipt["cost_nano_usd"]) == ("served", True, COST)
    assert receipt["usage_source"] == "final"


@pytest.mark.parametrize(("shape", "headers"), STREAMS)
async def test_the_last_event_leaves_only_when_the_receipt_is_on_disk(
    gateway: Harness, shape: Any, headers: Any
) -> None:
    def committed() -> int:
        with gateway.gateway.running.database.engine.connect() as connection:
            return connection.execute(select(func.count()).select_from(receipts)).scalar_one()

    seen: list[tuple[bytes, int]] = []
    client = RawClient(lambda message: seen.append((message.get("body", b""), committed())))
    await stream(gateway, shape(CHUNKS), headers, client=client)
    assert [rows for body, rows in seen if b"STOP" in body] == [1]
    assert len(seen) == 4  # headers, two chunks as they came, the end
    assert all(rows == 0 for _, rows in seen[:-1])


@pytest.mark.parametrize(("shape", "headers"), STREAMS)
@pytest.mark.parametrize("leave_at", range(4))
async def test_a_client_may_leave_at_any_event_and_the_answer_is_priced_once(
    gateway: Harness, shape: Any, headers: Any, leave_at: int
) -> None:
    client = RawClient()
    client._on_message = lambda _: client.gone.set() if len(client.messages) == leave_at else None
    await stream(gateway, shape(CHUNKS), headers, client=client)
    await gateway.gateway.running.plane.drain()
    (receipt,) = await gateway.receipts()
    assert (receipt["status"], receipt["cost_nano_usd"]) == ("served", COST)
    assert receipt["counted_nano_usd"] == COST


@pytest.mark.parametrize(("shape", "headers"), STREAMS)
@pytest.mark.parametrize("fault", [None, "cut"])
async def test_a_stream_that_does_not_end_is_abandoned_with_what_it_said(
    gateway: Harness, shape: Any, headers: Any, fault: str | None
) -> None:
    pieces = shape(CHUNKS)[:2]
    client = await stream(gateway, pieces, headers, fault=fault)
    assert not client.ended
    assert client.body == b"".join(pieces)
    (receipt,) = await gateway.receipts()
    assert (receipt["status"], receipt["cost_nano_usd"], receipt["usage_source"]) == (
        "abandoned",
        None,
        "partial",
    )
    assert (receipt["input_tokens"], receipt["output_tokens"]) == (1_000, 950)
    assert receipt["counted_nano_usd"] == max(receipt["hold_nano_usd"], 1_000 * 300 + 950 * 2_500)


@pytest.mark.parametrize(("shape", "headers"), STREAMS)
async def test_an_error_within_a_stream_is_no_whole_answer(
    gateway: Harness, shape: Any, headers: Any
) -> None:
    error = {"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}}
    client = await stream(gateway, shape([*CHUNKS, error]), headers)
    assert not client.ended
    assert (await last(gateway))["status"] == "abandoned"


async def test_a_second_candidate_is_waited_for(gateway: Harness) -> None:
    second = {"candidates": [{"index": 1, "finishReason": "MAX_TOKENS"}], "usageMetadata": USAGE}
    body = {**HELLO, "generationConfig": {"maxOutputTokens": 100, "candidateCount": 2}}
    pieces = as_events([*CHUNKS[:2], answer("d"), second])
    client = await stream(gateway, pieces, SSE, body=body)
    assert client.body == b"".join(pieces)
    # The first candidate's end went out as it came; the second's waited for the receipt.
    assert client.messages[3]["body"] == pieces[2]
    assert (await last(gateway))["cost_nano_usd"] == COST


async def test_an_event_without_its_blank_line_counts_too(gateway: Harness) -> None:
    pieces = as_events(CHUNKS)
    pieces[-1] = pieces[-1].rstrip()
    client = await stream(gateway, pieces, SSE)
    assert client.body == b"".join(pieces)
    assert (await last(gateway))["cost_nano_usd"] == COST


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_blocked_prompt_is_a_whole_answer_that_costs_its_prompt(
    gateway: Harness, streamed: bool
) -> None:
    blocked = {
        "promptFeedback": {"blockReason": "SAFETY"},
        "usageMetadata": {"promptTokenCount": 1_000, "totalTokenCount": 1_000},
        "modelVersion": "g-flash",
    }
    if streamed:
        assert (await stream(gateway, as_events([blocked]), SSE)).ended
    else:
        scripted(gateway, blocked)
        assert (await ask(gateway)).status_code == 200
    receipt = await last(gateway)
    assert (receipt["status"], receipt["cost_nano_usd"]) == ("served", 300_000)


@pytest.mark.parametrize(
    ("usage", "cost", "reason"),
    [
        ({**USAGE, "trafficType": "ON_DEMAND"}, COST, None),
        ({**USAGE, "serviceTier": "standard"}, COST, None),
        ({**USAGE, "trafficType": "ON_DEMAND_FLEX"}, 1_462_500, None),
        ({**USAGE, "serviceTier": "FLEX"}, 1_462_500, None),
        ({**USAGE, "trafficType": "PROVISIONED_THROUGHPUT"}, None, "no_list_price_for_service_tier"),
        ({**USAGE, "totalTokenCount": 2_051}, None, "usage_inconsistent"),
        ({**USAGE, "promptTokenCount": -1}, None, "usage_invalid"),
        ({**USAGE, "cachedContentTokenCount": 900}, COST - 900 * 270, None),
        ({"promptTokenCount": 0, "candidatesTokenCount": 0, "totalTokenCount": 0}, 0, None),
        ({"promptTokenCount": 700, "thoughtsTokenCount": 1_024, "totalTokenCount": 1_724}, 2_770_000, None),
        (None, None, "usage_missing"),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_what_the_usage_says_is_what_it_costs(
    gateway: Harness, usage: Any, cost: int | None, reason: str | None, streamed: bool
) -> None:
    whole = answer(usageMetadata=usage)
    if streamed:
        await stream(gateway, as_events([whole]), SSE)
    else:
        scripted(gateway, whole)
        await ask(gateway)
    receipt = await last(gateway)
    assert (receipt["status"], receipt["cost_nano_usd"], receipt["unpriced_reason"]) == (
        "served",
        cost,
        reason,
    )
    assert receipt["counted_nano_usd"] == (receipt["hold_nano_usd"] if cost is None else cost)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("queries", "fee"), [(["a", "b"], 28_000_000), ([], 0)])
async def test_searches_cost_their_fee_when_they_were_run(
    gateway: Harness, streamed: bool, queries: list[str], fee: int
) -> None:  # B76, B77
    found = answer(usageMetadata=USAGE)
    found["candidates"][0]["groundingMetadata"] = {"webSearchQueries": queries}
    body = {**HELLO, "tools": [{"googleSearch": {}}]}
    if streamed:
        await stream(gateway, as_events([*CHUNKS[:2], found]), SSE, body=body)
    else:
        scripted(gateway, found)
        await ask(gateway, body=body)
    receipt = await last(gateway)
    assert receipt["cost_nano_usd"] == COST + fee
    assert receipt["hold_nano_usd"] > 10 * 14_000_000  # ten searches are bounded for


async def test_a_long_prompt_moves_the_whole_request(gateway: Harness) -> None:  # B65, B68
    usage = {"promptTokenCount": 200_001, "cachedContentTokenCount": 150_000, "candidatesTokenCount": 1_500}
    scripted(gateway, answer(modelVersion="g-pro", usageMetadata={**usage, "totalTokenCount": 201_501}))
    await ask(gateway, "g-pro")
    # 50,001 * 2,500 + 150,000 * 625 + 1,500 * 15,000
    assert (await last(gateway))["cost_nano_usd"] == 241_252_500


async def test_a_named_provider_is_picked_from_the_path_and_stripped(gateway: Harness) -> None:
    scripted(gateway, answer(usageMetadata=USAGE))
    await ask(gateway, "second/g-flash", method="streamGenerateContent", query="?alt=sse")
    (seen,) = gateway.provider.seen
    assert seen.url == "http://second.test/v1beta/models/g-flash:streamGenerateContent?alt=sse"
    assert seen.header("x-goog-api-key") == "k-second"
    receipt = await last(gateway)
    assert (receipt["provider"], receipt["model_requested"]) == ("second", "second/g-flash")
    assert receipt["hold_nano_usd"] is not None


async def test_another_slash_is_part_of_the_id(gateway: Harness) -> None:
    await ask(gateway, "team/g%20flash")
    assert gateway.provider.seen[0].url.endswith("/v1beta/models/team/g%20flash:generateContent")
    assert (await last(gateway))["model_requested"] == "team/g flash"


@pytest.mark.parametrize("model", ["", "..%2F..%2Ffiles", "a%2F%2Fb", "%2E%2E/x", "x" * 257])
async def test_a_path_that_names_no_model_is_refused(gateway: Harness, model: str) -> None:
    sent = [(b"x-goog-api-key", gateway.secret.encode())]
    client = RawClient()
    path = f"/v1beta/models/{httpx.URL('http://x/' + model).path[1:]}:generateContent"
    await client.post(gateway.gateway, path, json.dumps(HELLO).encode(), sent)
    assert json.loads(client.body)["error"]["status"] == "INVALID_ARGUMENT"
    assert gateway.provider.seen == []


@pytest.mark.parametrize("query", ["?key={}", "?alt=sse&key={}", "?%6Bey={}", "?access_token={}", "?key="])
async def test_a_key_in_the_query_is_refused_and_not_repeated(gateway: Harness, query: str) -> None:
    reply = await ask(gateway, query=query.format(gateway.secret))
    assert reply.status_code == 401
    error = reply.json()["error"]
    assert (error["code"], error["status"]) == (401, "UNAUTHENTICATED")
    assert error["details"][0]["reason"] == "invalid_api_key"
    assert gateway.secret not in reply.text
    assert await gateway.receipts() == []
    assert gateway.provider.seen == []


async def test_a_bearer_key_of_ours_is_taken_too(gateway: Harness) -> None:
    scripted(gateway, answer(usageMetadata=USAGE))
    headers = {"authorization": f"Bearer {gateway.secret}"}
    reply = await gateway.http.post("/v1beta/models/g-flash:generateContent", json=HELLO, headers=headers)
    assert reply.status_code == 200
    assert gateway.provider.seen[0].header("authorization") is None
    wrong = await ask(gateway, **{"x-goog-api-key": "wrong"})
    assert (wrong.status_code, wrong.json()["error"]["status"]) == (401, "UNAUTHENTICATED")


@pytest.mark.parametrize(
    "path", ["/v1beta/models/g-flash:embedContent", "/v1beta/files", "/v1beta/cachedContents"]
)
async def test_what_cannot_be_metered_is_refused_in_geminis_shape(gateway: Harness, path: str) -> None:
    reply = await gateway.http.post(path, json={}, headers={"x-goog-api-key": gateway.secret})
    assert (reply.status_code, reply.json()["error"]["status"]) == (404, "NOT_FOUND")
    assert reply.json()["error"]["details"][0]["reason"] == "unsupported_route"


async def test_a_reached_cap_is_refused_in_geminis_shape_before_the_provider_is_called(
    gateway: Harness,
) -> None:
    await gateway.make_cap(limit_usd="0")
    reply = await ask(gateway)
    assert reply.status_code == 402
    assert reply.headers["x-should-retry"] == "false"
    error = reply.json()["error"]
    assert (error["code"], error["status"]) == (402, "RESOURCE_EXHAUSTED")
    (detail,) = error["details"]
    assert (detail["reason"], detail["metadata"]["scope"]) == ("budget_exceeded", "customer")
    assert detail["metadata"]["request_id"] == reply.headers["x-capline-request-id"]
    assert gateway.provider.seen == []
    assert (await last(gateway))["refusal_code"] == "budget_exceeded"


@pytest.mark.parametrize("status", [400, 403, 404, 429, 503, 500, 504])
async def test_a_providers_error_passes_through(gateway: Harness, status: int) -> None:
    error = {"error": {"code": status, "message": "no", "status": "X"}}
    scripted(gateway, error, status)
    for method in ("generateContent", "streamGenerateContent"):
        reply = await ask(gateway, method=method)
        assert (reply.status_code, reply.json()) == (status, error)
        receipt = await last(gateway)
        unknown = status in (500, 504)
        assert receipt["status"] == ("abandoned" if unknown else "failed")
        assert receipt["counted_nano_usd"] == (receipt["hold_nano_usd"] if unknown else 0)


@pytest.mark.parametrize(
    "body",
    [
        [],
        {**HELLO, "generationConfig": {"maxOutputTokens": -1}},
        {**HELLO, "generationConfig": {"maxOutputTokens": True}},
        {**HELLO, "generation_config": {"max_output_tokens": "7"}},
        {**HELLO, "generationConfig": {"candidateCount": 129}},
        {**HELLO, "generationConfig": []},
        {**HELLO, "tools": "x"},
    ],
)
async def test_a_body_that_gemini_could_not_answer_is_refused(gateway: Harness, body: Any) -> None:
    reply = await ask(gateway, body=body)
    assert (reply.status_code, reply.json()["error"]["details"][0]["reason"]) == (400, "invalid_request")
    assert gateway.provider.seen == []
