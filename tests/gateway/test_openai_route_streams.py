"""Streams of the OpenAI routes beside Responses: priced once, whatever the client does and however they are cut."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.gateway.test_openai_routes import ROUTE_ROWS
from tests.support.gateway import Harness, running_gateway
from tests.support.provider import Reply
from tests.support.raw_client import RawClient
from toolkit.core.pricefile import load_price_folder
from toolkit.verification import verify

SSE = [(b"content-type", b"text/event-stream")]
DONE = b"data: [DONE]\n\n"
USAGE = {"prompt_tokens": 1_000, "completion_tokens": 50, "total_tokens": 1_050}
BOUNDARY = "b0undary"


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Harness]:
    """A gateway whose list has a row for every way to charge."""
    async with running_gateway(tmp_path, rows=ROUTE_ROWS) as harness:
        yield harness


def event(**data: Any) -> bytes:
    """One event, named as OpenAI names them where it has a type."""
    name = f"event: {data['type']}\n" if "type" in data else ""
    return f"{name}data: {json.dumps(data)}\n\n".encode()


def text_chunk(text: str = "x", **more: Any) -> bytes:
    """One chunk of a legacy completion."""
    choices = [{"index": 0, "text": text, "finish_reason": None}]
    return event(
        **{"id": "cmpl-7", "object": "text_completion", "model": "m-small", "choices": choices, **more}
    )


def form(**fields: str) -> bytes:
    """A form with these fields and a file."""
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{text}\r\n'
        for name, text in fields.items()
    ]
    file = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\nRIFF\r\n'
    return "".join([*parts, file, f"--{BOUNDARY}--\r\n"]).encode()


class Case(NamedTuple):
    """A streamed call: what is sent, what comes back, and what it costs by the provider's own count."""

    path: str
    body: bytes
    events: list[bytes]
    cost_nano_usd: int
    forwarded: bytes | None = None
    """What the client gets, where it is not all that came."""


COMPLETION = Case(
    "/v1/completions",
    b'{"model": "m-small", "stream": true, "max_tokens": 100, "prompt": "hi"}',
    [text_chunk("a"), text_chunk("b"), text_chunk(choices=[], usage=USAGE), DONE],
    1_200_000,
    b"".join([text_chunk("a"), text_chunk("b"), DONE]),
)
IMAGE = Case(
    "/v1/images/generations",
    b'{"model": "image-tokens", "stream": true, "partial_images": 1, "prompt": "a cat"}',
    [
        event(type="image_generation.partial_image", b64_json="eA==", partial_image_index=0),
        event(
            type="image_generation.completed",
            b64_json="eHg=",
            usage={
                "input_tokens": 50,
                "input_tokens_details": {"text_tokens": 50, "image_tokens": 0},
                "output_tokens": 4_260,
                "total_tokens": 4_310,
            },
        ),
    ],
    50 * 5_000 + 4_260 * 40_000,
)
TRANSCRIPT = Case(
    "/v1/audio/transcriptions",
    form(model="hear", stream="true"),
    [
        event(type="transcript.text.delta", delta="transcript.text.done"),
        event(
            type="transcript.text.done",
            text="hello",
            usage={
                "type": "tokens",
                "input_tokens": 110,
                "input_token_details": {"text_tokens": 10, "audio_tokens": 100},
                "output_tokens": 20,
                "total_tokens": 130,
            },
        ),
        DONE,
    ],
    10 * 2_500 + 100 * 6_000 + 20 * 10_000,
)
SPEECH = Case(
    "/v1/audio/speech",
    b'{"model": "speak-tokens", "stream_format": "sse", "voice": "alloy", "input": "hi"}',
    [
        event(type="speech.audio.delta", audio="eA=="),
        event(
            type="speech.audio.done", usage={"input_tokens": 14, "output_tokens": 101, "total_tokens": 115}
        ),
    ],
    14 * 600 + 101 * 12_000,
)
CASES = {"completion": COMPLETION, "image": IMAGE, "transcript": TRANSCRIPT, "speech": SPEECH}
EACH = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
LEFT_AT = [
    pytest.param(case, at, id=f"{name}-{at}")
    for name, case in CASES.items()
    for at in range(len(case.events) + 1)
]


async def stream(
    gateway: Harness, case: Case, chunks: list[bytes] | None = None, *, client: RawClient | None = None
) -> RawClient:
    """One streamed call of customer a."""
    gateway.provider.script = lambda seen: Reply(
        chunks=case.events if chunks is None else chunks, headers=SSE
    )
    client = client or RawClient()
    kind = f"multipart/form-data; boundary={BOUNDARY}" if case.body.startswith(b"--") else "application/json"
    headers = [
        (b"authorization", b"Bearer " + gateway.secret.encode()),
        (b"x-capline-tags", b"customer:a"),
        (b"content-type", kind.encode()),
    ]
    await client.post(gateway.gateway, case.path, case.body, headers)
    return client


@EACH
async def test_a_stream_is_priced_by_its_last_word(gateway: Harness, case: Case) -> None:
    client = await stream(gateway, case)
    assert client.ended
    assert client.body == (b"".join(case.events) if case.forwarded is None else case.forwarded)
    (receipt,) = await gateway.receipts()
    assert (receipt["status"], receipt["cost_nano_usd"], receipt["stream"]) == (
        "served",
        case.cost_nano_usd,
        True,
    )
    assert receipt["counted_nano_usd"] == receipt["cost_nano_usd"]


@EACH
@pytest.mark.parametrize("cut", [1, 7, 64])
async def test_events_may_be_cut_anywhere(gateway: Harness, case: Case, cut: int) -> None:
    whole = b"".join(case.events)
    client = await stream(gateway, case, [whole[at : at + cut] for at in range(0, len(whole), cut)])
    assert client.body == (whole if case.forwarded is None else case.forwarded)
    assert (await gateway.receipts())[0]["cost_nano_usd"] == case.cost_nano_usd


@pytest.mark.parametrize(("case", "at"), LEFT_AT)
async def test_a_client_that_leaves_at_any_event_pays_once_all_the_same(
    gateway: Harness, case: Case, at: int
) -> None:
    left = RawClient()
    left._on_message = lambda _: left.gone.set() if len(left.messages) == at else None
    await stream(gateway, case, client=left)
    await gateway.gateway.running.plane.drain()
    (receipt,) = await gateway.receipts()
    assert (receipt["status"], receipt["cost_nano_usd"]) == ("served", case.cost_nano_usd)


@EACH
async def test_a_stream_without_its_end_is_abandoned_at_its_hold(gateway: Harness, case: Case) -> None:
    client = await stream(gateway, case, case.events[:1])
    assert not client.ended
    (receipt,) = await gateway.receipts()
    assert (receipt["status"], receipt["cost_nano_usd"]) == ("abandoned", None)
    assert receipt["counted_nano_usd"] == receipt["hold_nano_usd"]


@EACH
async def test_an_error_event_is_no_whole_answer(gateway: Harness, case: Case) -> None:
    failed = event(type="error", error={"message": "overloaded"})
    await stream(gateway, case, [case.events[0], failed, *case.events[-2:]])
    assert (await gateway.receipts())[0]["status"] == "abandoned"


@EACH
async def test_a_whole_stream_without_usage_has_no_cost(gateway: Harness, case: Case) -> None:
    silent = [
        b"data: " + json.dumps(data | {"usage": None}).encode() + b"\n\n" if isinstance(data, dict) else DONE
        for data in [json.loads(e.split(b"data: ")[1]) if e != DONE else None for e in case.events]
    ]
    await stream(gateway, case, silent)
    (receipt,) = await gateway.receipts()
    assert (receipt["status"], receipt["unpriced_reason"]) == ("served", "usage_missing")
    assert (receipt["cost_nano_usd"], receipt["counted_nano_usd"]) == (None, receipt["hold_nano_usd"])


async def test_pictures_that_count_apart_are_not_added_by_guess(gateway: Harness) -> None:
    await stream(gateway, IMAGE, [*IMAGE.events, IMAGE.events[-1]])
    (receipt,) = await gateway.receipts()
    assert (receipt["status"], receipt["unpriced_reason"]) == ("served", "usage_inconsistent")


async def test_every_receipt_of_every_route_verifies(gateway: Harness, tmp_path: Path) -> None:
    for case in CASES.values():
        await stream(gateway, case)
    gateway.provider.script = lambda seen: Reply(
        chunks=[b"a", b"b"], headers=[(b"content-type", b"audio/mpeg")]
    )
    sent = {"authorization": f"Bearer {gateway.secret}"}
    for model in ("speak-each", "speak-tokens"):
        await gateway.http.post("/v1/audio/speech", json={"model": model, "input": "hi"}, headers=sent)
    answer = json.dumps({"model": "omni-moderation-latest", "results": []}).encode()
    gateway.provider.script = lambda seen: Reply(body=answer)
    await gateway.http.post("/v1/moderations", json={"input": "hi"}, headers=sent)
    gateway.provider.script = lambda seen: Reply(body=b'{"usage": {"type": "duration", "seconds": 61.53}}')
    files = {"model": (None, "whisper"), "file": ("a.wav", b"RIFF")}
    await gateway.http.post("/v1/audio/transcriptions", files=files, headers=sent)
    exported = await gateway.http.get(
        "/v1/ledger/export",
        params={"format": "jsonl", "month": "2026-12"},
        headers={"authorization": "Bearer test-admin-token"},
    )
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(exported.content)
    found = verify([path], price_lists=load_price_folder(tmp_path / "prices"))
    assert (found.first_fault, found.rows, found.priced_rows) == (None, 8, 7)


class TestSpeechThatIsForwardedAsItComes:
    """Audio says nothing of its end but its end: its last byte waits for the receipt."""

    async def test_the_last_byte_leaves_with_the_receipt(self, gateway: Harness) -> None:
        receipts: list[int] = []
        written = gateway.gateway.running.services.ledger
        client = RawClient(lambda message: receipts.append(len(settled)))
        settled: list[Any] = []
        record = written.record

        def note(*args: Any, **more: Any) -> Any:
            settled.append(args)
            return record(*args, **more)

        written.record = note  # type: ignore[method-assign]
        case = Case("/v1/audio/speech", b'{"model": "speak-each", "input": "hi"}', [], 0)
        audio = [b"ID3", b"", b"abc", b"z"]
        gateway.provider.script = lambda seen: Reply(chunks=audio, headers=[(b"content-type", b"audio/mpeg")])
        headers = [(b"authorization", b"Bearer " + gateway.secret.encode())]
        await client.post(gateway.gateway, case.path, case.body, headers)
        assert client.ended
        assert client.body == b"".join(audio)
        assert client.messages[-1]["body"] == b"z"
        assert receipts[-1] == 1
        assert set(receipts[:-1]) == {0}

    @pytest.mark.parametrize("fault", ["cut", "broken"])
    async def test_audio_that_breaks_off_is_abandoned(self, gateway: Harness, fault: str) -> None:
        gateway.provider.script = lambda seen: Reply(
            chunks=[b"ID3", b"abc"], headers=[(b"content-type", b"audio/mpeg")], fault=fault
        )
        client = RawClient()
        headers = [(b"authorization", b"Bearer " + gateway.secret.encode())]
        await client.post(
            gateway.gateway, "/v1/audio/speech", b'{"model": "speak-each", "input": "hi"}', headers
        )
        (receipt,) = await gateway.receipts()
        assert (receipt["status"], receipt["cost_nano_usd"]) == ("abandoned", None)
        assert receipt["counted_nano_usd"] == receipt["hold_nano_usd"] == 30_000

    @pytest.mark.parametrize("at", [0, 1, 2, 3])
    async def test_a_listener_who_leaves_pays_all_the_same(self, gateway: Harness, at: int) -> None:
        audio = [b"ID3", b"abc", b"z"]
        gateway.provider.script = lambda seen: Reply(chunks=audio, headers=[(b"content-type", b"audio/mpeg")])
        client = RawClient()
        client._on_message = lambda _: client.gone.set() if len(client.messages) == at else None
        headers = [(b"authorization", b"Bearer " + gateway.secret.encode())]
        await client.post(
            gateway.gateway, "/v1/audio/speech", b'{"model": "speak-each", "input": "hi"}', headers
        )
        await gateway.gateway.running.plane.drain()
        (receipt,) = await gateway.receipts()
        assert (receipt["status"], receipt["cost_nano_usd"]) == ("served", 30_000)
