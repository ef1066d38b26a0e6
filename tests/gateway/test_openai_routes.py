"""The OpenAI routes beside chat and Responses: each priced once by the provider's own count, or named as unpriced."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.gateway import Harness, running_gateway
from tests.support.prices import ROWS, row
from tests.support.provider import Reply, ScriptedProvider
from tests.support.raw_client import RawClient

PER_SECOND = {"usd": "0.36", "per": 3600}
ROUTE_ROWS = [
    *ROWS,
    {**row("embed", input="0.02"), "kind": "embedding", "max_input_tokens": 8_191, "max_output_tokens": 0},
    row("omni-moderation-latest", input="0", output="0"),
    row("moderation-paid", input="1", output="0"),
    {**row("image-tokens", input="5", image="10"), "fees": {"image_output_tokens": "0.00004"}},
    {**row("image-each"), "fees": {"images": "0.04"}},
    {**row("whisper"), "fees": {"seconds": PER_SECOND}, "max_input_tokens": 1, "max_output_tokens": 1},
    {
        **row("hear", input="2.5", audio_input="6", output="10"),
        "max_input_tokens": 16_000,
        "max_output_tokens": 2_000,
    },
    {**row("speak-each"), "fees": {"characters": "0.000015"}},
    {**row("speak-tokens", input="0.6", audio_output="12"), "max_output_tokens": 2_000},
]
JSON = [(b"content-type", b"application/json")]


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Harness]:
    """A gateway whose list has a row for every way to charge."""
    async with running_gateway(tmp_path, rows=ROUTE_ROWS) as harness:
        yield harness


async def post(
    gateway: Harness, route: str, answer: Any, **fields: Any
) -> tuple[httpx.Response, dict[str, Any]]:
    """One JSON call that the provider answers so, and the receipt that it left."""
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    gateway.provider.script = lambda seen: Reply(body=body)
    sent = {"authorization": f"Bearer {gateway.secret}", "x-capline-tags": "customer:a"}
    reply = await gateway.http.post(route, json=fields, headers=sent)
    return reply, (await gateway.receipts())[-1]


def embedding(prompt: int, **usage: Any) -> dict[str, Any]:
    """An embedding with usage."""
    data = [{"object": "embedding", "index": 0, "embedding": [0.1, -0.2]}]
    counted = {"prompt_tokens": prompt, "total_tokens": prompt, **usage}
    return {"object": "list", "data": data, "model": "embed", "usage": counted}


async def test_a_completion_is_priced_as_a_chat_is(gateway: Harness) -> None:
    usage = {"prompt_tokens": 1_000, "completion_tokens": 50, "total_tokens": 1_050}
    answer = {"id": "cmpl-1", "object": "text_completion", "model": "m-small", "choices": [], "usage": usage}
    reply, receipt = await post(
        gateway, "/v1/completions", answer, model="openai/m-small", prompt="hi", max_tokens=9
    )
    assert reply.json() == answer
    assert json.loads(gateway.provider.seen[0].body)["model"] == "m-small"
    # 1,000 * 1,000 + 50 * 4,000 nano-USD
    assert (receipt["status"], receipt["cost_nano_usd"], receipt["route"]) == (
        "served",
        1_200_000,
        "/v1/completions",
    )
    assert reply.headers["x-capline-cost-usd"] == "0.001200000"


async def test_an_embedding_is_a_prompt_and_nothing_else(gateway: Harness) -> None:
    reply, receipt = await post(gateway, "/v1/embeddings", embedding(75), model="embed", input="a text")
    assert reply.status_code == 200
    assert receipt["cost_nano_usd"] == 75 * 20
    assert (receipt["input_tokens"], receipt["output_tokens"], receipt["output_limit"]) == (75, None, None)
    assert receipt["hold_nano_usd"] == receipt["request_bytes"] * 20
    assert receipt["counted_tokens"] == 75


@pytest.mark.parametrize(
    ("inputs", "most"),
    [
        ("x" * 20_000, 8_191),
        (["x" * 20_000] * 3, 3 * 8_191),
        ([[7] * 10_000] * 2, 2 * 8_191),
        ([123_456] * 9_000, 8_191),
        ([{"image": "https://a.test/b.png"}], 8_191),
    ],
)
async def test_each_input_may_be_as_long_as_the_model_takes(gateway: Harness, inputs: Any, most: int) -> None:
    _, receipt = await post(gateway, "/v1/embeddings", embedding(most), model="embed", input=inputs)
    assert receipt["hold_nano_usd"] == most * 20 == receipt["cost_nano_usd"]


async def test_a_moderation_of_a_free_row_costs_exactly_nothing(gateway: Harness) -> None:
    answer = {"id": "modr-1", "model": "omni-moderation-latest", "results": []}
    reply, receipt = await post(gateway, "/v1/moderations", answer, input="a text")
    assert reply.json() == answer
    assert (receipt["model_requested"], receipt["cost_nano_usd"]) == ("omni-moderation-latest", 0)
    assert (receipt["unpriced_reason"], receipt["usage_source"], receipt["input_tokens"]) == (
        None,
        "none",
        None,
    )
    assert b'"model"' not in gateway.provider.seen[0].body  # byte for byte


async def test_a_moderation_that_is_charged_for_is_not_zero(gateway: Harness) -> None:
    answer = {"id": "modr-1", "model": "moderation-paid", "results": []}
    _, receipt = await post(gateway, "/v1/moderations", answer, model="moderation-paid", input="a text")
    assert (receipt["cost_nano_usd"], receipt["unpriced_reason"]) == (None, "usage_missing")
    counted = {**answer, "usage": {"prompt_tokens": 3, "total_tokens": 3}}
    _, receipt = await post(gateway, "/v1/moderations", counted, model="moderation-paid", input="a text")
    assert receipt["cost_nano_usd"] == 3_000


async def test_pictures_are_priced_by_their_tokens(gateway: Harness) -> None:
    usage = {
        "input_tokens": 50,
        "input_tokens_details": {"text_tokens": 50, "image_tokens": 0},
        "output_tokens": 4_160,
        "total_tokens": 4_210,
    }
    answer = {"created": 1, "data": [{"b64_json": "eHg="}], "usage": usage}
    fields = {"model": "image-tokens", "prompt": "a cat", "size": "1024x1024"}
    _, receipt = await post(gateway, "/v1/images/generations", answer, **fields)
    # 50 * 5,000 + 4,160 * 40,000 nano-USD
    assert receipt["cost_nano_usd"] == 166_650_000
    assert receipt["units"] == {"image_output_tokens": 4_160}
    assert receipt["cost_nano_usd"] <= receipt["hold_nano_usd"] < 2 * receipt["cost_nano_usd"]
    assert receipt["counted_tokens"] == 4_210


async def test_pictures_without_usage_are_priced_by_the_piece(gateway: Harness) -> None:  # B79
    answer = {"created": 1, "data": [{"url": "https://a.test/1"}] * 3}
    _, receipt = await post(
        gateway, "/v1/images/generations", answer, model="image-each", prompt="a cat", n=3
    )
    assert (receipt["cost_nano_usd"], receipt["units"]) == (120_000_000, {"images": 3})
    assert receipt["hold_nano_usd"] == 120_000_000
    assert receipt["usage_source"] == "final"


async def test_pictures_of_a_row_of_tokens_without_usage_have_no_cost(gateway: Harness) -> None:
    answer = {"created": 1, "data": [{"url": "https://a.test/1"}]}
    _, receipt = await post(gateway, "/v1/images/generations", answer, model="image-tokens", prompt="a cat")
    assert (receipt["cost_nano_usd"], receipt["unpriced_reason"]) == (None, "usage_missing")
    assert receipt["counted_nano_usd"] == receipt["hold_nano_usd"] > 0


AUDIO = bytes(range(256)) * 400


async def transcribe(gateway: Harness, reply: Reply, **fields: str) -> tuple[httpx.Response, dict[str, Any]]:
    """One transcription of 102,400 bytes of audio."""
    gateway.provider.script = lambda seen: reply
    sent = {"authorization": f"Bearer {gateway.secret}", "x-capline-tags": "customer:a"}
    files = {"file": ('a;name="model".mp3', AUDIO, "audio/mpeg")}
    answer = await gateway.http.post("/v1/audio/transcriptions", data=fields, files=files, headers=sent)
    return answer, (await gateway.receipts())[-1]


async def test_a_transcription_is_priced_by_its_seconds(gateway: Harness) -> None:
    answer = b'{"text": "hello", "usage": {"type": "duration", "seconds": 61.5}}'
    reply, receipt = await transcribe(gateway, Reply(body=answer), model="openai/whisper")
    assert reply.content == answer
    assert receipt["cost_nano_usd"] == 6_150_000  # 61.5 s * 0.36 USD/h
    assert receipt["units"] == {"seconds": "61.5"}
    assert receipt["hold_nano_usd"] == 205 * 100_000  # 102,400 bytes at 500 a second
    seen = gateway.provider.seen[0]
    assert AUDIO in seen.body
    assert b"\r\n\r\nwhisper\r\n" in seen.body
    assert b"openai/whisper" not in seen.body
    assert (seen.header("content-type") or "").startswith("multipart/form-data; boundary=")


async def test_a_transcription_is_priced_by_its_tokens(gateway: Harness) -> None:
    usage = {
        "type": "tokens",
        "input_tokens": 110,
        "input_token_details": {"text_tokens": 10, "audio_tokens": 100},
        "output_tokens": 20,
        "total_tokens": 130,
    }
    answer = json.dumps({"text": "hello", "usage": usage}).encode()
    _, receipt = await transcribe(gateway, Reply(body=answer), model="hear")
    assert receipt["cost_nano_usd"] == 10 * 2_500 + 100 * 6_000 + 20 * 10_000
    assert receipt["hold_nano_usd"] == 16_000 * 6_000 + 2_000 * 10_000


@pytest.mark.parametrize("content_type", [b"text/plain; charset=utf-8", b"application/x-subrip"])
async def test_a_transcript_as_text_has_no_usage(gateway: Harness, content_type: bytes) -> None:
    text = b"1\n00:00:00,000 --> 00:00:01,000\nhello\n"
    script = Reply(chunks=[text[:9], text[9:]], headers=[(b"content-type", content_type)])
    reply, receipt = await transcribe(gateway, script, model="whisper", response_format="srt")
    assert reply.content == text
    assert (receipt["status"], receipt["unpriced_reason"]) == ("served", "usage_missing")
    assert (receipt["cost_nano_usd"], receipt["counted_nano_usd"]) == (None, receipt["hold_nano_usd"])
    assert receipt["response_bytes"] == len(text)


FORM = "multipart/form-data; boundary=x"


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"{}", "application/json"),
        (b"--x\r\n\r\n", "multipart/form-data; boundary=y"),
        (
            b'--x\r\ncontent-disposition: form-data; name="model"\r\n\r\na\r\n',
            FORM,
        ),
        (
            b'--x\r\ncontent-disposition: form-data; name="model"\r\n\r\na'
            b'\r\n--x\r\ncontent-disposition: form-data; name="model"\r\n\r\nb\r\n--x--\r\n',
            FORM,
        ),
        (
            b'--x\r\ncontent-disposition: form-data; name="model"; name="a"\r\n\r\na\r\n--x--\r\n',
            FORM,
        ),
        (
            b'--x\r\ncontent-disposition: form-data; name="file"\r\n\r\na\r\n--x--\r\n',
            FORM,
        ),
        (
            b'--x\r\ncontent-disposition: form-data; name="model"\r\n\r\n\xff\r\n--x--',
            FORM,
        ),
    ],
)
async def test_a_form_that_two_readers_may_read_differently_is_refused(
    gateway: Harness, body: bytes, content_type: str
) -> None:
    sent = {"authorization": f"Bearer {gateway.secret}", "content-type": content_type}
    reply = await gateway.http.post("/v1/audio/transcriptions", content=body, headers=sent)
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_request")
    assert gateway.provider.seen == []


SOUND = [b"a", b"", b"ID3" * 1_000, b"z"]


async def speak(gateway: Harness, model: str, text: str = "Grüße!") -> tuple[httpx.Response, dict[str, Any]]:
    """One text spoken."""
    gateway.provider.script = lambda seen: Reply(chunks=SOUND, headers=[(b"content-type", b"audio/mpeg")])
    sent = {"authorization": f"Bearer {gateway.secret}", "x-capline-tags": "customer:a"}
    fields = {"model": model, "input": text, "voice": "alloy"}
    reply = await gateway.http.post("/v1/audio/speech", json=fields, headers=sent)
    return reply, (await gateway.receipts())[-1]


async def test_speech_is_priced_by_the_characters_of_its_request(gateway: Harness) -> None:
    reply, receipt = await speak(gateway, "speak-each")
    assert reply.content == b"".join(SOUND)
    assert (receipt["cost_nano_usd"], receipt["units"]) == (6 * 15_000, {"characters": 6})
    assert receipt["hold_nano_usd"] == 6 * 15_000
    assert (receipt["counted_tokens"], receipt["unpriced_reason"]) == (0, None)


async def test_speech_of_a_row_of_tokens_has_no_cost(gateway: Harness) -> None:
    reply, receipt = await speak(gateway, "speak-tokens")
    assert reply.content == b"".join(SOUND)
    assert (receipt["status"], receipt["cost_nano_usd"], receipt["unpriced_reason"]) == (
        "served",
        None,
        "usage_missing",
    )
    assert (receipt["hold_nano_usd"], receipt["counted_nano_usd"], receipt["units"]) == (None, 0, None)


@pytest.mark.parametrize(("unpriced", "status"), [("refuse", 402), ("serve", 200)])
async def test_a_cap_that_refuses_what_it_cannot_count_refuses_a_route_without_usage(
    gateway: Harness, unpriced: str, status: int
) -> None:  # contract §8
    await gateway.make_cap(limit_usd="1", unpriced=unpriced)
    reply, _ = await speak(gateway, "speak-tokens")
    assert reply.status_code == status
    if status == 402:
        error = reply.json()["error"]
        assert error["code"] == "model_unpriced"
        assert "this route reports no usage" in error["message"]
        assert gateway.provider.seen == []
    assert (await speak(gateway, "speak-each"))[0].status_code == 200


async def test_a_route_that_no_limit_bounds_wants_none_declared(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, rows=ROUTE_ROWS, undeclared_output="refuse") as gateway:
        await gateway.make_cap(limit_usd="0.001")
        reply, _ = await post(gateway, "/v1/embeddings", embedding(3), model="embed", input="a")
        assert reply.status_code == 200
        assert (await speak(gateway, "speak-each"))[0].status_code == 200
        too_dear = {"model": "image-tokens", "prompt": "a cat"}
        reply, _ = await post(gateway, "/v1/images/generations", {}, **too_dear)
        assert reply.json()["error"]["code"] == "budget_exceeded"
        assert reply.json()["error"]["details"]["fits_max_tokens"] is None


@pytest.mark.parametrize(
    ("usage", "kept"),
    [
        ('"cost": 0.000505', 505_000),
        ('"cost": 0', 0),
        ('"cost": 5.05e-4, "cost_in_usd_ticks": 7', 505_000),
        ('"cost_in_usd_ticks": 5050005', 505_000),  # 505,000.5, half to even
        ('"cost_in_usd_ticks": 5050015', 505_002),
        ('"cost": 0.1234567890123456789012345', 123_456_789),
        ('"cost": null', None),
        ('"cost": "1"', None),
        ('"cost": -1', None),
        ('"cost": true', None),
        ('"cost": 1e999999', None),
        ('"cost": 1e-999999', None),
    ],
)
async def test_what_the_provider_says_it_cost_is_kept_beside_our_cost(
    gateway: Harness, usage: str, kept: int | None
) -> None:
    body = f'{{"model": "embed", "data": [], "usage": {{"prompt_tokens": 75, "total_tokens": 75, {usage}}}}}'
    _, receipt = await post(gateway, "/v1/embeddings", body.encode(), model="embed", input="a")
    assert (receipt["provider_cost_nano_usd"], receipt["cost_nano_usd"]) == (kept, 1_500)
    assert receipt["counted_nano_usd"] == 1_500


@pytest.mark.parametrize(
    ("fields", "outputs"),
    [
        ({"prompt": "hi"}, 1),
        ({"prompt": "hi", "n": 2}, 2),
        ({"prompt": "hi", "n": 2, "best_of": 5}, 5),
        ({"prompt": ["a", "b", "c"]}, 3),
        ({"prompt": [[1, 2], [3]], "best_of": 4}, 8),
        ({"prompt": [1, 2, 3]}, 1),
        ({"prompt": [[1, 2], "a"]}, 2),
        ({"prompt": []}, 1),
    ],
)
async def test_all_that_a_completion_may_write_is_held(
    gateway: Harness, fields: dict[str, Any], outputs: int
) -> None:
    _, receipt = await post(gateway, "/v1/completions", {}, model="m-small", max_tokens=7, **fields)
    assert receipt["hold_nano_usd"] == receipt["request_bytes"] * 1_000 + 7 * outputs * 4_000


@pytest.mark.parametrize(
    ("route", "fields"),
    [
        ("/v1/completions", {"prompt": "hi", "n": 0}),
        ("/v1/completions", {"prompt": "hi", "n": 2, "best_of": -1}),
        ("/v1/completions", {"prompt": "hi", "max_tokens": True}),
        ("/v1/images/generations", {"prompt": "hi", "n": 129}),
        ("/v1/images/generations", {"prompt": "hi", "partial_images": -1}),
        ("/v1/embeddings", {"input": "hi", "model": ""}),
        ("/v1/audio/speech", {"input": 7}),
        ("/v1/audio/speech", {"input": "hi", "model": None}),
    ],
)
async def test_a_request_that_no_provider_could_answer_is_refused(
    gateway: Harness, route: str, fields: dict[str, Any]
) -> None:
    reply, _ = await post(gateway, route, {}, **{"model": "m-small", **fields})
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_request")
    assert gateway.provider.seen == []


class SlowVoice(ScriptedProvider):
    """A provider that says the second half only when it is told to go on; it is its own answer."""

    status = 200
    headers = ((b"content-type", b"audio/mpeg"),)

    def __init__(self) -> None:
        super().__init__()
        self.go_on = asyncio.Event()

    async def send(self, *_: Any) -> Any:
        """The answer."""
        return self

    async def chunks(self) -> AsyncIterator[bytes]:
        """Two halves."""
        yield b"abc"
        await self.go_on.wait()
        yield b"def"


async def test_audio_leaves_as_it_comes(tmp_path: Path) -> None:
    provider = SlowVoice()
    async with running_gateway(tmp_path, rows=ROUTE_ROWS, provider=provider) as gateway:
        client = RawClient(lambda message: provider.go_on.set() if message.get("body") == b"ab" else None)
        headers = [(b"authorization", b"Bearer " + gateway.secret.encode())]
        body = b'{"model": "speak-each", "input": "hi"}'
        await asyncio.wait_for(client.post(gateway.gateway, "/v1/audio/speech", body, headers), 5)
        assert client.body == b"abcdef"
