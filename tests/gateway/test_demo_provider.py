"""The demo provider: its answers parse in the official SDKs, its faults are what they say, its count is its own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest
import uvicorn

from gateway.demo.controls import Controls
from gateway.demo.delivery import Dropped, Message, Receive, Send
from gateway.demo.provider import DemoProvider
from tests.support.clock import ManualClock

ROOT = Path(__file__).resolve().parents[2]
KEY = {"authorization": "Bearer k"}
CHAT: dict[str, Any] = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Say something."}]}
MESSAGES: dict[str, Any] = {
    "model": "claude-haiku-4-5",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "Hello"}],
}
PATHS: dict[str, dict[str, Any]] = {"/v1/chat/completions": CHAT, "/v1/messages": MESSAGES}
CHAT_PROMPT = 4 + 3
"""14 bytes are four tokens, and a message costs three."""
ANSWER = 40


class _Switch:
    """One server for all tests, a provider for each."""

    provider: DemoProvider

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        await self.provider(scope, receive, send)


@pytest.fixture(scope="module")
def switched() -> Iterator[tuple[_Switch, str]]:
    switch, ready = _Switch(), threading.Event()

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[Any] | None = None) -> None:
            await super().startup(sockets)
            ready.set()

    config = uvicorn.Config(
        switch, port=0, lifespan="off", ws="none", log_level="critical", timeout_graceful_shutdown=1
    )
    server = Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    assert ready.wait(10)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield switch, f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(10)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(datetime(2026, 12, 1, tzinfo=UTC))


@pytest.fixture
def provider(clock: ManualClock) -> DemoProvider:
    return DemoProvider(aliases={"gpt-latest": "gpt-5.4"}, clock=clock)


@pytest.fixture
def url(switched: tuple[_Switch, str], provider: DemoProvider) -> str:
    switched[0].provider = provider
    return switched[1]


@pytest.fixture
def chat(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
        yield client


@pytest.fixture
def claude(url: str) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=url, api_key="k", max_retries=0) as client:
        yield client


@pytest.fixture
def http(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, headers=KEY) as client:
        yield client


@pytest.fixture
async def inside(provider: DemoProvider) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(provider)
    async with httpx.AsyncClient(transport=transport, base_url="http://demo", headers=KEY) as client:
        yield client


def _fault(name: str) -> dict[str, str]:
    return {"x-demo-fault": name}


def _events(body: str) -> list[Any]:
    data = [line.removeprefix("data: ") for line in body.splitlines() if line.startswith("data: ")]
    return [json.loads(one) for one in data if one != "[DONE]"]


def _meters(entry: Any) -> tuple[int, int, int, int, int]:
    return (
        entry.input_tokens,
        entry.cache_read_tokens,
        entry.cache_write_5m_tokens,
        entry.cache_write_1h_tokens,
        entry.output_tokens,
    )


def test_a_chat_completion_is_the_real_apis(chat: openai.OpenAI, provider: DemoProvider) -> None:
    answer = chat.chat.completions.create(**CHAT)
    assert answer.id.startswith("chatcmpl-")
    assert (answer.object, answer.model) == ("chat.completion", "gpt-4o-mini")
    assert (answer.service_tier, answer.system_fingerprint) == ("default", "fp_demo000001")
    assert answer.created == int(datetime(2026, 12, 1, tzinfo=UTC).timestamp())
    (choice,) = answer.choices
    assert (choice.finish_reason, choice.logprobs, choice.message.refusal) == ("stop", None, None)
    assert choice.message.content is not None
    assert len(choice.message.content.encode()) == 4 * ANSWER
    assert answer.usage is not None
    assert answer.usage.to_dict() == {
        "prompt_tokens": CHAT_PROMPT,
        "completion_tokens": ANSWER,
        "total_tokens": CHAT_PROMPT + ANSWER,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": 0,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
    (entry,) = provider.served()
    assert (entry.dialect, entry.path, entry.model) == ("openai", "/v1/chat/completions", "gpt-4o-mini")
    assert (entry.status, entry.completed, entry.stream, entry.request_id) == (
        200,
        True,
        False,
        answer._request_id,
    )
    assert _meters(entry) == (CHAT_PROMPT, 0, 0, 0, ANSWER)
    assert entry.answer_sha256 == sha256(choice.message.content.encode()).hexdigest()
    assert "authorization" in entry.header_names


def test_a_chat_stream_carries_the_text_of_the_json_answer_and_its_usage_last(chat: openai.OpenAI) -> None:
    whole = chat.chat.completions.create(**CHAT)
    chunks = list(chat.chat.completions.create(**CHAT, stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].delta.content or "" for c in chunks[:-1]) == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks[:-1]] == [None] * 11 + ["stop"]
    assert all(c.usage is None and "usage" in c.model_fields_set for c in chunks[:-1])
    assert (chunks[-1].choices, chunks[-1].usage) == ([], whole.usage)
    assert {c.id for c in chunks} != {whole.id}
    assert len({c.id for c in chunks}) == 1


def test_a_chat_stream_says_nothing_of_usage_unless_asked(http: httpx.Client) -> None:
    answer = http.post("/v1/chat/completions", json={**CHAT, "stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.endswith("data: [DONE]\n\n")
    assert not any("usage" in event for event in _events(answer.text))


@pytest.mark.parametrize(
    ("limits", "wanted", "length", "finish"),
    [
        ({}, None, 40, "stop"),
        ({"max_tokens": 39}, None, 39, "length"),
        ({"max_tokens": 40}, None, 40, "stop"),
        ({"max_completion_tokens": 41}, None, 40, "stop"),
        ({"max_tokens": 9, "max_completion_tokens": 8}, "100", 8, "length"),
        ({"max_tokens": 1000}, "100", 100, "stop"),
        ({}, "0", 0, "stop"),
    ],
)
async def test_an_answer_is_never_longer_than_its_limit(
    inside: httpx.AsyncClient, limits: dict[str, int], wanted: str | None, length: int, finish: str
) -> None:
    headers = {} if wanted is None else {"x-demo-output-tokens": wanted}
    answer = (await inside.post("/v1/chat/completions", json={**CHAT, **limits}, headers=headers)).json()
    assert answer["usage"]["completion_tokens"] == length
    assert len(answer["choices"][0]["message"]["content"]) == 4 * length
    assert answer["choices"][0]["finish_reason"] == finish


@pytest.mark.parametrize("path", PATHS)
async def test_a_limit_below_one_is_refused(inside: httpx.AsyncClient, path: str) -> None:
    assert (await inside.post(path, json={**PATHS[path], "max_tokens": 0})).status_code == 400


def test_each_choice_has_its_own_text_and_counts(chat: openai.OpenAI, provider: DemoProvider) -> None:
    answer = chat.chat.completions.create(**CHAT, n=3)
    texts = [choice.message.content for choice in answer.choices]
    assert (len(set(texts)), [choice.index for choice in answer.choices]) == (3, [0, 1, 2])
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 3 * ANSWER == provider.count().total.output_tokens
    streamed = ["", "", ""]
    for chunk in chat.chat.completions.create(**CHAT, n=3, stream=True):
        streamed[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert streamed == texts


def test_embeddings_are_unit_vectors_in_either_encoding(chat: openai.OpenAI, provider: DemoProvider) -> None:
    texts = ["12345678", "123456789"]
    packed = chat.embeddings.create(model="text-embedding-3-small", input=texts)
    plain = chat.embeddings.create(model="text-embedding-3-small", input=texts, encoding_format="float")
    assert [len(one.embedding) for one in packed.data] == [1536, 1536]
    assert packed.data[0].embedding == pytest.approx(plain.data[0].embedding, abs=1e-6)
    assert sum(number**2 for number in plain.data[1].embedding) == pytest.approx(1)
    assert (packed.usage.prompt_tokens, packed.usage.total_tokens) == (2 + 3, 2 + 3)
    tokens = chat.embeddings.create(model="text-embedding-3-small", input=[1, 2, 3, 4], dimensions=8)
    assert (len(tokens.data[0].embedding), tokens.usage.total_tokens) == (8, 4)
    assert provider.count().total.input_tokens == 5 + 5 + 4


def test_a_message_is_the_real_apis(claude: anthropic.Anthropic, provider: DemoProvider) -> None:
    answer = claude.messages.create(**MESSAGES, system="Be brief.")
    assert answer.id.startswith("msg_")
    assert (answer.type, answer.role, answer.model) == ("message", "assistant", "claude-haiku-4-5")
    assert (answer.stop_reason, answer.stop_sequence) == ("end_turn", None)
    (block,) = answer.content
    assert block.type == "text"
    assert len(block.text) == 4 * ANSWER
    # "Be brief." and "Hello" are 14 bytes: four tokens, and three for the message.
    assert answer.usage.to_dict() == {
        "input_tokens": 7,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
        "output_tokens": ANSWER,
        "service_tier": "standard",
    }
    (entry,) = provider.served()
    assert (entry.dialect, entry.request_id, _meters(entry)) == (
        "anthropic",
        answer._request_id,
        (7, 0, 0, 0, 40),
    )


def test_a_message_stream_ends_with_cumulative_usage(claude: anthropic.Anthropic, http: httpx.Client) -> None:
    whole = claude.messages.create(**{**MESSAGES, "max_tokens": 12})
    with claude.messages.stream(**{**MESSAGES, "max_tokens": 12}) as stream:
        final = stream.get_final_message()
    assert [block.to_dict()["text"] for block in final.content] == [
        block.to_dict()["text"] for block in whole.content
    ]
    assert (final.stop_reason, whole.stop_reason) == ("max_tokens", "max_tokens")
    assert final.usage == whole.usage
    raw = http.post(
        "/v1/messages", json={**MESSAGES, "max_tokens": 12, "stream": True}, headers={"x-demo-chunks": "2"}
    )
    events = _events(raw.text)
    assert [event["type"] for event in events] == [
        "message_start",
        "content_block_start",
        "ping",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert events[0]["message"]["usage"]["output_tokens"] == 1
    assert events[-2]["usage"]["output_tokens"] == 12
    assert "event: message_stop\ndata: {" in raw.text


def test_models_are_listed_in_either_shape(chat: openai.OpenAI, claude: anthropic.Anthropic) -> None:
    ids = [model.id for model in chat.models.list()]
    assert ids == [model.id for model in claude.models.list()]
    assert "gpt-4o-mini" in ids


async def test_an_alias_is_answered_by_another_model(
    inside: httpx.AsyncClient, provider: DemoProvider
) -> None:
    answer = await inside.post("/v1/chat/completions", json={**CHAT, "model": "gpt-latest"})
    assert answer.json()["model"] == "gpt-5.4"
    assert [(row.model, row.model_served) for row in provider.count().rows] == [("gpt-latest", "gpt-5.4")]


@pytest.mark.parametrize(("size", "cached"), [(4 * 1020, 0), (4 * 1021, 1024), (4 * 1200, 1152)])
async def test_a_long_first_message_is_cached(
    inside: httpx.AsyncClient, provider: DemoProvider, size: int, cached: int
) -> None:
    system = {"role": "system", "content": "x" * size}
    for question in ("One?", "Two?"):
        body = {**CHAT, "messages": [system, {"role": "user", "content": question}]}
        usage = (await inside.post("/v1/chat/completions", json=body)).json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == cached
    prompt = size // 4 + 3 + 1 + 3
    assert [_meters(entry) for entry in provider.served()] == [
        (prompt, 0, 0, 0, ANSWER),
        (prompt - cached, cached, 0, 0, ANSWER),
    ]


async def test_marked_blocks_are_written_to_the_cache_and_then_read(
    inside: httpx.AsyncClient, provider: DemoProvider, clock: ManualClock
) -> None:
    long = {"type": "text", "text": "a" * 400, "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    short = {"type": "text", "text": "b" * 80, "cache_control": {"type": "ephemeral"}}
    body = {**MESSAGES, "system": [long, short]}
    for wait in ({}, {"minutes": 4}, {"minutes": 5}, {"hours": 1}):
        clock.advance(**wait)
        answer = await inside.post("/v1/messages", json=body)
        assert answer.status_code == 200
    # "Hello" is two tokens and its message three; 100 tokens are kept for an hour, 20 for five minutes.
    assert [_meters(entry) for entry in provider.served()] == [
        (5, 0, 20, 100, ANSWER),
        (5, 120, 0, 0, ANSWER),
        (5, 100, 20, 0, ANSWER),
        (5, 0, 20, 100, ANSWER),
    ]


async def test_a_longer_conversation_reads_the_prefix_that_a_shorter_one_wrote(
    inside: httpx.AsyncClient,
) -> None:
    def usage(*texts: str) -> dict[str, Any]:
        content: list[dict[str, Any]] = [{"type": "text", "text": text} for text in texts]
        content[-1]["cache_control"] = {"type": "ephemeral"}
        return {**MESSAGES, "messages": [{"role": "user", "content": content}]}

    first = (await inside.post("/v1/messages", json=usage("a" * 40))).json()["usage"]
    second = (await inside.post("/v1/messages", json=usage("a" * 40, "b" * 20))).json()["usage"]
    assert (first["cache_creation_input_tokens"], first["cache_read_input_tokens"]) == (13, 0)
    assert (second["cache_creation_input_tokens"], second["cache_read_input_tokens"]) == (5, 13)
    assert second["cache_creation"] == {"ephemeral_5m_input_tokens": 5, "ephemeral_1h_input_tokens": 0}


@pytest.mark.parametrize(
    ("status", "theirs", "ours"),
    [
        (400, openai.BadRequestError, anthropic.BadRequestError),
        (429, openai.RateLimitError, anthropic.RateLimitError),
        (500, openai.InternalServerError, anthropic.InternalServerError),
        (529, openai.InternalServerError, anthropic.OverloadedError),
    ],
)
def test_an_ordered_status_is_an_error_of_the_sdk(
    chat: openai.OpenAI,
    claude: anthropic.Anthropic,
    provider: DemoProvider,
    status: int,
    theirs: type[openai.APIStatusError],
    ours: type[anthropic.APIStatusError],
) -> None:
    with pytest.raises(theirs) as from_openai:
        chat.chat.completions.create(**CHAT, extra_headers=_fault(f"status:{status}"))
    with pytest.raises(ours) as from_anthropic:
        claude.messages.create(**MESSAGES, extra_headers=_fault(f"status:{status}"))
    ids = [from_openai.value.request_id, from_anthropic.value.request_id]
    assert ids == [entry.request_id for entry in provider.served()]
    assert from_anthropic.value.response.json()["request_id"] == ids[1]
    assert {(row.status, row.completed, row.output_tokens) for row in provider.count().rows} == {
        (status, True, 0)
    }


def test_a_spend_limit_names_its_reason_and_no_time(chat: openai.OpenAI, claude: anthropic.Anthropic) -> None:
    with pytest.raises(openai.RateLimitError) as from_openai:
        chat.chat.completions.create(**CHAT, extra_headers=_fault("spend-limit"))
    assert (from_openai.value.type, from_openai.value.code) == (
        "insufficient_quota",
        "organization_spend_limit_exceeded",
    )
    with pytest.raises(anthropic.RateLimitError) as from_anthropic:
        claude.messages.create(**MESSAGES, extra_headers=_fault("spend-limit"))
    assert from_anthropic.value.response.json()["error"]["details"] == {
        "error_code": "enforced_spend_limit_reached"
    }
    assert "retry-after" not in from_openai.value.response.headers
    assert "retry-after" not in from_anthropic.value.response.headers


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", [False, True])
def test_a_connection_dropped_before_the_answer_sent_nothing_and_is_counted_whole(
    http: httpx.Client, provider: DemoProvider, path: str, stream: bool
) -> None:
    with pytest.raises(httpx.RemoteProtocolError, match="without sending a response"):
        http.post(path, json={**PATHS[path], "stream": stream}, headers=_fault("drop-before"))
    (row,) = provider.count().rows
    assert (row.status, row.completed, row.output_tokens) == (None, False, ANSWER)
    assert row.input_tokens > 0


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("stream", "produced"), [(False, ANSWER), (True, 20)])
def test_a_connection_dropped_midway_sent_a_half(
    http: httpx.Client, provider: DemoProvider, path: str, stream: bool, produced: int
) -> None:
    got: list[bytes] = []
    with http.stream(
        "POST", path, json={**PATHS[path], "stream": stream}, headers=_fault("drop-mid")
    ) as answer:
        assert answer.status_code == 200
        with pytest.raises(httpx.RemoteProtocolError):
            got.extend(answer.iter_raw())
    assert got
    (row,) = provider.count().rows
    assert (row.status, row.completed) == (200, False)
    assert row.output_tokens == pytest.approx(produced, abs=4)
    if stream:
        texts = [part for event in _events(b"".join(got).decode()) for part in _texts(event)]
        assert len("".join(texts)) == 4 * row.output_tokens


def _texts(event: dict[str, Any]) -> Iterator[str]:
    if event.get("type") == "content_block_delta":
        yield event["delta"]["text"]
    for choice in event.get("choices", ()):
        yield choice["delta"].get("content") or ""


@pytest.mark.parametrize("fault", ["drop-before", "drop-mid"])
async def test_in_process_a_drop_is_an_error_of_the_connection(
    inside: httpx.AsyncClient, provider: DemoProvider, fault: str
) -> None:
    with pytest.raises(Dropped):
        await inside.post("/v1/chat/completions", json=CHAT, headers=_fault(fault))
    assert [entry.completed for entry in provider.served()] == [False]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fault", ["no-usage", "null-usage"])
async def test_usage_can_be_kept_back_from_the_client_but_not_from_the_count(
    inside: httpx.AsyncClient, provider: DemoProvider, path: str, stream: bool, fault: str
) -> None:
    body = {**PATHS[path], "stream": stream, "stream_options": {"include_usage": True}}
    text = (await inside.post(path, json=body, headers=_fault(fault))).text
    told = [
        holder for event in (_events(text) if stream else [json.loads(text)]) for holder in _holders(event)
    ]
    usages = [holder["usage"] for holder in told if "usage" in holder]
    assert usages == [None] * len(usages)
    assert bool(usages) == (fault == "null-usage" or (stream and path == "/v1/chat/completions"))
    assert provider.count().total.output_tokens == ANSWER


def _holders(event: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield event
    if "message" in event:
        yield event["message"]


async def test_a_bad_usage_does_not_add_up(inside: httpx.AsyncClient) -> None:
    said = (await inside.post("/v1/chat/completions", json=CHAT, headers=_fault("bad-usage"))).json()["usage"]
    assert said["total_tokens"] - said["prompt_tokens"] - said["completion_tokens"] == 7
    said = (await inside.post("/v1/messages", json=MESSAGES, headers=_fault("bad-usage"))).json()["usage"]
    assert said["cache_creation_input_tokens"] - sum(said["cache_creation"].values()) == 7


def test_a_client_that_leaves_does_not_stop_the_answer(http: httpx.Client, provider: DemoProvider) -> None:
    headers = {"x-demo-chunk-delay-ms": "2"}
    with http.stream("POST", "/v1/messages", json={**MESSAGES, "stream": True}, headers=headers) as answer:
        assert b"message_start" in next(answer.iter_raw())
    _wait_until(lambda: provider.count().running == 0)
    (entry,) = provider.served()
    assert (entry.completed, entry.output_tokens) == (True, ANSWER)


def test_a_hanging_answer_ends_when_its_client_leaves(http: httpx.Client, provider: DemoProvider) -> None:
    with pytest.raises(httpx.ReadTimeout):
        http.post("/v1/chat/completions", json=CHAT, headers=_fault("hang"), timeout=0.05)
    assert len(provider.served()) == 1
    http.close()
    _wait_until(lambda: provider.count().running == 0)
    (row,) = provider.count().rows
    assert (row.status, row.completed, row.input_tokens, row.output_tokens) == (None, False, CHAT_PROMPT, 0)


def _wait_until(condition: Any) -> None:
    pause = threading.Event()
    for _ in range(500):
        if condition():
            return
        pause.wait(0.01)
    pytest.fail("it did not happen within five seconds")


async def test_a_hanging_answer_ends_when_it_is_cancelled(
    inside: httpx.AsyncClient, provider: DemoProvider
) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await inside.post("/v1/messages", json=MESSAGES, headers=_fault("hang"))
    count = provider.count()
    assert (count.running, count.total.requests, count.total.output_tokens) == (0, 1, 0)


@pytest.mark.parametrize(
    ("stream", "orders", "expected"),
    [
        (False, {}, ["start", "body"]),
        (False, {"delay_ms": 9}, ["0.009", "start", "body"]),
        (False, {"fault": "slow-headers"}, ["0.25", "start", "body"]),
        (True, {"delay_ms": 9, "chunks": 1}, ["start", "0.009", *["body"] * 4]),
        (True, {"delay_ms": 9, "chunks": 1, "fault": "slow-headers"}, ["0.009", "start", *["body"] * 4]),
        (True, {"chunk_delay_ms": 5, "chunks": 2}, ["start", "body", *["0.005", "body"] * 2, "body", "body"]),
    ],
)
async def test_pauses_stand_where_they_were_ordered(
    provider: DemoProvider, monkeypatch: pytest.MonkeyPatch, stream: bool, orders: Any, expected: list[str]
) -> None:
    seen: list[str] = []

    async def sleep(seconds: float) -> None:
        seen.append(str(seconds))

    async def receive() -> Message:
        return {"type": "http.request", "body": json.dumps({**CHAT, "stream": stream}).encode()}

    async def send(message: Message) -> None:
        seen.append(message["type"].removeprefix("http.response."))

    monkeypatch.setattr(asyncio, "sleep", sleep)
    provider.defaults = Controls(**orders)
    headers = [(b"authorization", b"Bearer k")]
    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": headers}
    await provider(scope, receive, send)
    assert seen == expected


@pytest.mark.parametrize(
    "key", [{}, {"authorization": "Bearer "}, {"authorization": "k"}, {"x-api-key": " "}]
)
@pytest.mark.parametrize("path", PATHS)
async def test_a_call_without_a_key_is_refused(
    provider: DemoProvider, path: str, key: dict[str, str]
) -> None:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(provider), base_url="http://demo") as client:
        answer = await client.post(path, json=PATHS[path], headers=key)
    assert answer.status_code == 401
    if path == "/v1/messages":
        assert answer.json()["error"]["type"] == "authentication_error"
        assert answer.json()["request_id"] == answer.headers["request-id"]
    else:
        assert answer.json()["error"]["code"] == "invalid_api_key"
        assert answer.headers["x-request-id"]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/chat/completions", b"{", 400),
        ("/v1/chat/completions", b'{"model": "m"}', 400),
        ("/v1/messages", b'{"model": "m", "messages": [{"role": "user", "content": "x"}]}', 400),
        ("/v1/embeddings", b'{"model": "m", "input": []}', 400),
        ("/v1/files", b"{}", 404),
    ],
)
async def test_a_wrong_request_is_refused_and_counted(
    inside: httpx.AsyncClient, provider: DemoProvider, path: str, body: bytes, status: int
) -> None:
    answer = await inside.post(path, content=body)
    assert (answer.status_code, "message" in answer.json()["error"]) == (status, True)
    (entry,) = provider.served()
    assert (entry.status, entry.output_tokens, entry.body_sha256) == (status, 0, sha256(body).hexdigest())


@pytest.mark.parametrize(
    "header", [{"x-demo-fault": "explode"}, {"x-demo-delay-ms": "-1"}, {"x-demo-chunks": "many"}]
)
async def test_an_order_that_nobody_knows_is_refused(
    inside: httpx.AsyncClient, header: dict[str, str]
) -> None:
    assert (await inside.post("/v1/chat/completions", json=CHAT, headers=header)).status_code == 400


async def test_defaults_hold_for_every_call_and_a_header_stands_over_them(inside: httpx.AsyncClient) -> None:
    async def status(headers: dict[str, str] | None = None) -> int:
        return (await inside.post("/v1/chat/completions", json=CHAT, headers=headers)).status_code

    assert (await inside.post("/__demo__/defaults", json={"fault": "status:503"})).json()[
        "fault"
    ] == "status:503"
    assert (await status(), await status(_fault("none")), await status(_fault("status:500"))) == (
        503,
        200,
        500,
    )
    assert (await inside.post("/__demo__/defaults", json={"fualt": "hang"})).status_code == 400
    assert (await inside.post("/__demo__/defaults", json={})).json() == {
        "delay_ms": 0,
        "chunk_delay_ms": 0,
        "chunks": 10,
        "output_tokens": 40,
        "fault": "none",
    }
    assert await status() == 200


async def test_the_count_is_the_sum_of_what_was_served(inside: httpx.AsyncClient) -> None:
    await inside.post("/v1/chat/completions", json=CHAT)
    await inside.post("/v1/chat/completions", json={**CHAT, "max_tokens": 5, "stream": True})
    await inside.post("/v1/messages", json=MESSAGES)
    await inside.post("/v1/messages", json=MESSAGES, headers=_fault("status:529"))
    count = (await inside.get("/__demo__/count")).json()
    served = (await inside.get("/__demo__/served")).json()
    assert {
        (row["model"], row["status"]): (row["requests"], row["output_tokens"]) for row in count["rows"]
    } == {
        ("gpt-4o-mini", 200): (2, 45),
        ("claude-haiku-4-5", 200): (1, 40),
        ("claude-haiku-4-5", 529): (1, 0),
    }
    assert count["total"] == {"requests": 4} | {
        name: sum(entry[name] for entry in served) for name in count["total"] if name != "requests"
    }
    assert all(before["sequence"] + 1 == after["sequence"] for before, after in pairwise(served))
    assert (await inside.delete("/__demo__/served")).status_code == 200
    assert (await inside.get("/__demo__/count")).json()["total"]["requests"] == 0
    await inside.post("/v1/messages", json=MESSAGES)
    assert [entry["sequence"] for entry in (await inside.get("/__demo__/served")).json()] == [5]


def test_the_journal_file_has_the_answer_before_the_client_and_survives_a_kill(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    command = [sys.executable, "-m", "gateway.demo", "--port", "0", "--journal", str(journal)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with httpx.Client(base_url=url, headers=KEY) as client:
            whole = client.post("/v1/messages", json={**MESSAGES, "stream": True})
            assert [line["event"] for line in _lines(journal)] == ["received", "ended"]
            with pytest.raises(httpx.ReadTimeout):
                client.post("/v1/messages", json=MESSAGES, headers=_fault("hang"), timeout=0.05)
            os.kill(process.pid, signal.SIGKILL)
    first, ended, second = _lines(journal)[:3]
    assert (first["completed"], ended["completed"], ended["output_tokens"]) == (False, True, ANSWER)
    assert (first["sequence"], ended["sequence"], second["sequence"]) == (1, 1, 2)
    assert ended["request_id"] == whole.headers["request-id"]
    assert (second["event"], second["model"]) == ("received", "claude-haiku-4-5")


def _lines(journal: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in journal.read_text("utf-8").splitlines()]


def test_a_taken_port_is_one_line_and_a_status(url: str) -> None:
    port = url.rpartition(":")[2]
    done = subprocess.run(
        [sys.executable, "-m", "gateway.demo", "--port", port],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "cannot start" in done.stderr
