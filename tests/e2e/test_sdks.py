"""The official SDKs with nothing changed but `base_url` and the key: the objects, exceptions and retries of a caller
who talks to the provider itself, and the few that are ours (facts measured with these very SDKs)."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import anthropic
import openai
import pytest

from tests.support.servers import (
    CountingRelay,
    DemoProviderProcess,
    GatewayProcess,
    Scripted,
    ScriptedGateway,
    counting_relay,
    until,
)

Dump = dict[str, Any]

CHAT = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Hello, wörld"}]}
WEATHER = {"type": "object", "properties": {"place": {"type": "string"}}}
TOOL_CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"place": "Köln"}'},
}
CHATS: dict[str, Dump] = {
    "plain": CHAT,
    "two choices": {**CHAT, "n": 2, "max_tokens": 7, "temperature": 0.2, "seed": 11, "user": "u"},
    "tools": {
        "model": "gpt-4o",
        "tools": [{"type": "function", "function": {"name": "weather", "parameters": WEATHER}}],
        "tool_choice": "auto",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Rain?"}]},
            {"role": "assistant", "content": None, "tool_calls": [TOOL_CALL]},
            {"role": "tool", "tool_call_id": "call_1", "content": "no"},
        ],
    },
    "stream": {**CHAT, "stream": True},
    "stream with usage": {**CHAT, "stream": True, "stream_options": {"include_usage": True}},
    "stream without usage": {**CHAT, "stream": True, "stream_options": {"include_usage": False}},
    "stream of two choices": {**CHAT, "stream": True, "n": 2, "max_completion_tokens": 5},
    "unlisted model": {**CHAT, "model": "gpt-unheard-of"},
}
MESSAGE = {
    "model": "claude-haiku-4-5",
    "max_tokens": 30,
    "messages": [{"role": "user", "content": "Hello, wörld"}],
}
MESSAGES: dict[str, Dump] = {
    "plain": MESSAGE,
    "system": {
        **MESSAGE,
        "system": [{"type": "text", "text": "Be brief."}],
        "stop_sequences": ["END"],
        "extra_body": {"temperature": 0.5},
    },
    "tools": {
        **MESSAGE,
        "tools": [{"name": "weather", "input_schema": WEATHER}],
        "messages": [
            {"role": "user", "content": "Rain?"},
            {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"place": "Köln"}}
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "no"}]},
        ],
    },
    "stream": {**MESSAGE, "stream": True},
}


def ask_openai(url: str, key: str, request: Dump, *, is_async: bool = False, **options: Any) -> list[Dump]:
    """What a chat gives to its caller: one object, or the chunks of a stream."""

    async def ask() -> list[Dump]:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, **options) as client:
            found = await client.chat.completions.create(**request)
            if request.get("stream"):
                return [plain(chunk.model_dump()) async for chunk in found]
            return [plain(found.model_dump())]

    if is_async:
        return asyncio.run(ask())
    with openai.OpenAI(base_url=f"{url}/v1", api_key=key, **options) as client:
        found = client.chat.completions.create(**request)
        return [plain(part.model_dump()) for part in (found if request.get("stream") else [found])]


def ask_anthropic(url: str, key: str, request: Dump, *, is_async: bool = False, **options: Any) -> list[Dump]:
    """What a message gives to its caller: one object, or the events of a stream."""

    async def ask() -> list[Dump]:
        async with anthropic.AsyncAnthropic(base_url=url, api_key=key, **options) as client:
            found = await client.messages.create(**request)
            if request.get("stream"):
                return [plain(event.model_dump()) async for event in found]
            return [plain(found.model_dump())]

    if is_async:
        return asyncio.run(ask())
    with anthropic.Anthropic(base_url=url, api_key=key, **options) as client:
        found = client.messages.create(**request)
        return [plain(part.model_dump()) for part in (found if request.get("stream") else [found])]


def plain(dump: Dump) -> Dump:
    """Without what differs between two answers to one question."""
    kept = {name: value for name, value in dump.items() if name not in ("id", "created")}
    if isinstance(kept.get("message"), dict):
        kept["message"] = plain(kept["message"])
    return kept


ASK = {"openai": ask_openai, "anthropic": ask_anthropic}
ONE = {"openai": CHAT, "anthropic": MESSAGE}


@pytest.fixture
def relay(gateway: GatewayProcess) -> Iterator[CountingRelay]:
    """Counts attempts between the SDK and the gateway."""
    with counting_relay(gateway.port) as counting:
        yield counting


@pytest.fixture
def capped(gateway: GatewayProcess) -> Iterator[GatewayProcess]:
    """The gateway with a cap of $0 on customer `poor`."""
    cap = gateway.make_cap(subject="poor", limit_usd="0")
    yield gateway
    gateway.delete_cap(cap)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("name", CHATS)
def test_openai_objects_are_those_of_the_provider(
    provider: DemoProviderProcess, gateway: GatewayProcess, name: str, is_async: bool
) -> None:
    straight = ask_openai(provider.url, "sk-direct", CHATS[name], is_async=is_async)
    through = ask_openai(gateway.url, gateway.secret, CHATS[name], is_async=is_async)
    assert through == straight
    assert sum(chunk.get("choices") == [] for chunk in through) == (name == "stream with usage")


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("name", MESSAGES)
def test_anthropic_objects_are_those_of_the_provider(
    provider: DemoProviderProcess, gateway: GatewayProcess, name: str, is_async: bool
) -> None:
    straight = ask_anthropic(provider.url, "sk-direct", MESSAGES[name], is_async=is_async)
    through = ask_anthropic(gateway.url, gateway.secret, MESSAGES[name], is_async=is_async)
    assert through == straight
    assert len(through) == 1 or through[-1]["type"] == "message_stop"


def test_the_stream_helpers_and_the_beta_surface_work(
    provider: DemoProviderProcess, gateway: GatewayProcess
) -> None:
    def told(url: str, key: str) -> list[Dump]:
        with anthropic.Anthropic(base_url=url, api_key=key) as client:
            with client.messages.stream(**MESSAGE) as stream:
                text = "".join(stream.text_stream)
                final = stream.get_final_message().model_dump()
            beta = client.beta.messages.create(**MESSAGE, betas=["context-1m-2025-08-07"]).model_dump()
        with (
            openai.OpenAI(base_url=f"{url}/v1", api_key=key) as chat_client,
            chat_client.chat.completions.stream(**CHAT) as chat,
        ):
            whole = chat.get_final_completion().model_dump()
        return [{"text": text}, plain(final), plain(beta), plain(whole)]

    assert told(gateway.url, gateway.secret) == told(provider.url, "sk-direct")


@pytest.mark.parametrize("sdk", ASK)
def test_the_provider_gets_the_bytes_and_headers_of_the_sdk(
    provider: DemoProviderProcess, gateway: GatewayProcess, sdk: str
) -> None:
    request = {**ONE[sdk], "extra_headers": {"x-app": "1", "x-capline-tags": "customer:seen"}}
    ASK[sdk](provider.url, "sk-direct", request)
    ASK[sdk](gateway.url, gateway.secret, request)
    straight, through = list(provider.journal().values())[-2:]
    assert through["body_sha256"] == straight["body_sha256"]
    # The hop between gateway and provider keeps its connection without saying so, and brings a key of its own.
    hop = {"connection", "x-capline-tags", "authorization", "x-api-key"}
    assert set(through["header_names"]) - hop == set(straight["header_names"]) - hop
    assert hop & set(through["header_names"]) == {"authorization" if sdk == "openai" else "x-api-key"}


def test_tags_belong_to_a_call_and_not_to_a_client(gateway: GatewayProcess) -> None:  # R001, R016, R018
    before = len(gateway.receipts())
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=gateway.secret) as client:
        for customer in ("acme", None, "a'; DROP--"):
            tags = {} if customer is None else {"x-capline-tags": f"customer:{customer}, team:a"}
            client.chat.completions.create(**CHAT, extra_headers=tags)
    with anthropic.Anthropic(base_url=gateway.url, api_key=gateway.secret) as claude:
        claude.messages.create(**MESSAGE, extra_headers={"x-capline-tags": "run:7,customer:bolt"})
        claude.messages.create(**MESSAGE)
    rows = gateway.receipts()[before:]
    customers = [row["customer"] for row in rows]
    assert customers == ["acme", None, "a'; DROP--", "bolt", None]
    assert [row["run"] for row in rows] == [None, None, None, "7", None]
    assert [row["tags"] for row in rows] == [["team:a"], [], ["team:a"], [], []]


@pytest.mark.parametrize("sdk", ASK)
@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
def test_raw_responses_show_our_headers(gateway: GatewayProcess, sdk: str, stream: bool) -> None:
    cap = gateway.make_cap(subject="raw", limit_usd="2")
    request = {**ONE[sdk], "stream": stream, "extra_headers": {"x-capline-tags": "customer:raw"}}
    with (
        openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=gateway.secret) as chat,
        anthropic.Anthropic(base_url=gateway.url, api_key=gateway.secret) as claude,
    ):
        surface = chat.chat.completions if sdk == "openai" else claude.messages
        raw = surface.with_raw_response.create(**request)
        found = raw.parse()
        if stream:
            assert len(list(found)) > 5
    gateway.delete_cap(cap)
    receipt = gateway.receipt(raw.headers["x-capline-request-id"])
    assert receipt["status"] == "served"
    assert raw.headers.get("x-capline-cost-usd") == (None if stream else receipt["cost_usd"])
    assert raw.headers["x-capline-budget-scope"] == "customer"
    assert raw.headers["x-capline-budget-window"] == "month"
    assert raw.headers["x-capline-budget-cap"] == "2.000000"
    assert raw.headers["x-capline-budget-remaining"].startswith("1.99")
    # The provider's own id stays where SDKs look for it.
    assert raw.headers["x-request-id" if sdk == "openai" else "request-id"].startswith("req_")


ERRORS = [
    ("openai", 400, openai.BadRequestError),
    ("openai", 401, openai.AuthenticationError),
    ("openai", 404, openai.NotFoundError),
    ("openai", 429, openai.RateLimitError),
    ("openai", 500, openai.InternalServerError),
    ("openai", 529, openai.InternalServerError),
    ("anthropic", 400, anthropic.BadRequestError),
    ("anthropic", 413, anthropic.ContentTooLargeError),
    ("anthropic", 429, anthropic.RateLimitError),
    ("anthropic", 500, anthropic.InternalServerError),
    ("anthropic", 529, anthropic.OverloadedError),
]


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
@pytest.mark.parametrize(("sdk", "status", "kind"), ERRORS)
def test_a_providers_error_is_the_same_exception(
    provider: DemoProviderProcess,
    gateway: GatewayProcess,
    sdk: str,
    status: int,
    kind: type[openai.APIStatusError | anthropic.APIStatusError],
    stream: bool,
) -> None:
    request = {**ONE[sdk], "stream": stream, "extra_headers": {"x-demo-fault": f"status:{status}"}}
    with pytest.raises(kind) as straight:
        ASK[sdk](provider.url, "sk-direct", request, max_retries=0)
    with pytest.raises(kind) as through:
        ASK[sdk](gateway.url, gateway.secret, request, max_retries=0)
    assert type(through.value) is type(straight.value)
    assert through.value.status_code == status
    assert nameless(through.value.body) == nameless(straight.value.body)
    names = ("content-type", "retry-after", "x-should-retry")
    seen = [[error.value.response.headers.get(name) for name in names] for error in (through, straight)]
    assert seen[0] == seen[1]
    receipt = gateway.receipt(through.value.response.headers["x-capline-request-id"])
    assert receipt["http_status"] == status
    assert receipt["status"] == ("abandoned" if status == 500 else "failed")


def nameless(body: object) -> object:
    """An error's body without the id of its request."""
    return {**body, "request_id": None} if isinstance(body, dict) else body


@pytest.mark.parametrize("sdk", ASK)
def test_a_providers_passing_error_is_retried_as_ever(
    gateway: GatewayProcess, relay: CountingRelay, sdk: str
) -> None:
    request = {**ONE[sdk], "extra_headers": {"x-demo-fault": "status:529"}}
    with pytest.raises((openai.InternalServerError, anthropic.OverloadedError)):
        ASK[sdk](relay.url, gateway.secret, request, max_retries=1)
    assert relay.requests == 2


@pytest.mark.parametrize("sdk", ASK)
def test_a_providers_spend_limit_is_asked_once(
    provider: DemoProviderProcess, gateway: GatewayProcess, relay: CountingRelay, sdk: str
) -> None:
    request = {**ONE[sdk], "extra_headers": {"x-demo-fault": "spend-limit"}}
    before = provider.received()
    with pytest.raises((openai.RateLimitError, anthropic.RateLimitError)) as caught:
        ASK[sdk](relay.url, gateway.secret, request)
    assert "spend_limit" in str(caught.value.body)
    assert (relay.requests, provider.received() - before) == (1, 1)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
@pytest.mark.parametrize("sdk", ASK)
def test_a_reached_cap_is_one_attempt_and_the_sdks_own_exception(
    provider: DemoProviderProcess,
    capped: GatewayProcess,
    relay: CountingRelay,
    sdk: str,
    stream: bool,
    is_async: bool,
) -> None:  # R021, R107, R110
    request = {**ONE[sdk], "stream": stream, "extra_headers": {"x-capline-tags": "customer:poor"}}
    rows, received = len(capped.receipts()), provider.received()
    counted = capped.metric("capline_refusals_total", code="budget_exceeded")
    with pytest.raises((openai.APIStatusError, anthropic.APIStatusError)) as caught:
        ASK[sdk](relay.url, capped.secret, request, is_async=is_async)
    error = caught.value
    operation = error.response.headers["x-capline-request-id"]
    if isinstance(error, openai.APIStatusError):
        assert (error.code, error.type, error.param) == ("budget_exceeded", "insufficient_quota", None)
    else:
        assert type(error) is anthropic.PaymentRequiredError
        assert (error.error_code, error.type) == ("budget_exceeded", "billing_error")
    assert (error.status_code, error.request_id) == (402, operation)
    assert error.response.headers["x-should-retry"] == "false"
    assert "retry-after" not in error.response.headers
    assert relay.requests == 1
    assert [row["operation_id"] for row in capped.receipts()[rows:]] == [operation]
    assert capped.metric("capline_refusals_total", code="budget_exceeded") == counted + 1
    assert provider.received() == received


@pytest.mark.parametrize(
    ("sdk", "status", "kind"),
    [
        ("openai", 403, openai.PermissionDeniedError),
        ("openai", 429, openai.RateLimitError),
        ("anthropic", 403, anthropic.PermissionDeniedError),
        ("anthropic", 429, anthropic.RateLimitError),
    ],
)
def test_a_cap_may_refuse_by_another_status_and_is_asked_once_all_the_same(
    gateway: GatewayProcess, relay: CountingRelay, sdk: str, status: int, kind: type[Exception]
) -> None:
    cap = gateway.make_cap(subject="odd", limit_usd="0", refusal_status=status)
    request = {**ONE[sdk], "extra_headers": {"x-capline-tags": "customer:odd"}}
    with pytest.raises(kind) as caught:
        ASK[sdk](relay.url, gateway.secret, request)
    gateway.delete_cap(cap)
    assert getattr(caught.value, "code" if sdk == "openai" else "error_code") == "budget_exceeded"
    assert relay.requests == 1


def test_a_wrong_key_is_an_authentication_error_of_one_attempt(
    gateway: GatewayProcess, relay: CountingRelay
) -> None:
    with pytest.raises(openai.AuthenticationError) as first:
        ask_openai(relay.url, "sk-wrong", CHAT)
    assert first.value.code == "invalid_api_key"
    with pytest.raises(anthropic.AuthenticationError) as second:
        ask_anthropic(relay.url, "sk-wrong", MESSAGE)
    assert second.value.error_code == "invalid_api_key"
    assert relay.requests == 2


@pytest.mark.parametrize("sdk", ASK)
def test_a_busy_cap_is_waited_for(gateway: GatewayProcess, relay: CountingRelay, sdk: str) -> None:
    """A slow call holds nearly the whole cap; the SDK comes again after a second, when the call has ended."""
    # Holds by the list: 1,000 output tokens at 0.6 USD a million are 0.0006 USD, at 5 USD a million 0.005 USD.
    cap = gateway.make_cap(subject="busy", limit_usd={"openai": "0.001", "anthropic": "0.008"}[sdk])
    tags = {"x-capline-tags": "customer:busy"}
    request = {**ONE[sdk], "max_tokens": 1_000}
    slow = {**request, "extra_headers": {**tags, "x-demo-delay-ms": "800", "x-demo-output-tokens": "1"}}
    holder = threading.Thread(target=ASK[sdk], args=(gateway.url, gateway.secret, slow))
    holder.start()
    until(lambda: gateway.metric("capline_in_flight") == 1, "the slow call is admitted")
    busy = gateway.metric("capline_refusals_total", code="budget_busy")
    (answer,) = ASK[sdk](relay.url, gateway.secret, {**request, "extra_headers": tags})
    holder.join()
    gateway.delete_cap(cap)
    assert answer["usage"] is not None
    assert gateway.metric("capline_refusals_total", code="budget_busy") == busy + 1
    assert relay.requests == 2
    refused = [row for row in gateway.receipts() if row["refusal_code"] == "budget_busy"][-1]
    assert (refused["http_status"], refused["cost_nano_usd"], refused["customer"]) == (429, None, "busy")


@pytest.mark.parametrize("sdk", ["openai", "anthropic"])
def test_a_ledger_that_cannot_be_written_is_waited_for(
    provider: DemoProviderProcess, gateway: GatewayProcess, relay: CountingRelay, sdk: str
) -> None:  # R109
    """Another process keeps the database to itself for longer than SQLite waits: nothing is sent, and the SDK comes
    again after a second."""
    gateway.make_cap(scope="organization", subject="default", limit_usd="1000")
    received, rows = provider.received(), len(gateway.receipts())
    refused = gateway.metric("capline_refusals_total", code="budget_unverifiable")
    answers: list[Dump] = []
    asking = threading.Thread(target=lambda: answers.extend(ASK[sdk](relay.url, gateway.secret, ONE[sdk])))
    with closing(sqlite3.connect(gateway.database, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        asking.start()
        until(
            lambda: gateway.metric("capline_refusals_total", code="budget_unverifiable") > refused,
            "the call is refused",
            30,
        )
        assert gateway.metric("capline_ledger_failing") == 1
        assert gateway.api("GET", "/health").json()["status"] == "degraded"
        assert provider.received() == received
        other.execute("ROLLBACK")
    asking.join()
    # A retry may come before the gateway has asked the ledger again.
    refusals = gateway.metric("capline_refusals_total", code="budget_unverifiable") - refused
    assert relay.requests == refusals + 1
    assert len(answers) == 1
    assert provider.received() == received + 1
    assert [row["status"] for row in gateway.receipts()[rows:]].count("served") == 1
    # The refused attempts gave their holds back.
    assert gateway.metric("capline_held_nano_usd") == 0
    assert gateway.api("GET", "/health").json()["status"] == "ok"


CHAT_TOOL_CALLS = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "gpt-4o-mini",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "logprobs": None,
            "message": {"role": "assistant", "content": None, "refusal": None, "tool_calls": [TOOL_CALL]},
        }
    ],
    "usage": {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14},
    "a_field_of_tomorrow": {"kept": True},
}
TOOL_USE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-haiku-4-5",
    "content": [
        {"type": "thinking", "thinking": "…", "signature": "c2ln"},
        {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"place": "Köln"}},
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 9, "output_tokens": 5},
}


def _chunk(delta: Dump, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o-mini"}
    return b"data: " + json.dumps({**head, "choices": [choice]}).encode() + b"\n\n"


def _event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def _called(arguments: str) -> Dump:
    return {"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]}


CHAT_STREAM = [
    _chunk({"role": "assistant", "tool_calls": [{"index": 0, **TOOL_CALL}]}),
    _chunk(_called('{"pla')),
    _chunk(_called('ce": 1}')),
    _chunk({}, "tool_calls"),
    b"data: [DONE]\n\n",
]
MESSAGE_STREAM = [
    _event("message_start", message={**TOOL_USE, "content": [], "stop_reason": None}),
    _event(
        "content_block_start",
        index=0,
        content_block={"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}},
    ),
    _event("content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": '{"place": '}),
    _event(
        "content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": '"message_stop"}'}
    ),
    _event("content_block_stop", index=0),
    _event("message_delta", delta={"stop_reason": "tool_use"}, usage={"output_tokens": 5}),
    _event("message_stop"),
]


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
@pytest.mark.parametrize("sdk", ASK)
def test_tool_calls_pass(scripted: ScriptedGateway, sdk: str, stream: bool) -> None:
    whole = {"openai": CHAT_TOOL_CALLS, "anthropic": TOOL_USE}[sdk]
    events = {"openai": CHAT_STREAM, "anthropic": MESSAGE_STREAM}[sdk]
    pieces = events if stream else [json.dumps(whole).encode()]
    kind = "text/event-stream" if stream else "application/json"
    upstream = scripted.upstream
    upstream.script = lambda _: Scripted(pieces, headers=[("Content-Type", kind)], chunked=stream)

    request = {**ONE[sdk], "stream": stream}
    through = ASK[sdk](scripted.gateway.url, scripted.gateway.secret, request)
    assert through == ASK[sdk](upstream.url, "sk-direct", request)
    assert "weather" in json.dumps(through)
