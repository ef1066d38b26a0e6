"""The hand-priced vectors over HTTP: what `tk.price` gives for a usage, a receipt must say too, whole and streamed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.settings import Provider
from tests.support.clock import ManualClock
from tests.support.gateway import running_gateway
from tests.support.provider import Reply
from tests.support.raw_client import RawClient
from tests.test_vectors import PRICED, Vector, nano, rows_of
from tests.toolkit.core.builders import prices
from toolkit.core.money import LARGEST_INTEGER
from toolkit.core.windows import parse_instant

BOUNDARY = "b0undary"
SSE = [(b"content-type", b"text/event-stream")]
DONE = b"data: [DONE]\n\n"
PRICES = {"x-ai": "xai", "azure": "azure"}
DIALECTS = {"anthropic": "anthropic", "google": "gemini"}
CONVENTIONS = {"deepseek": "deepseek", "x-ai": "xai", "mistral": "mistral", "openrouter": "openrouter"}
PATHS = {
    "chat.completions": "/v1/chat/completions",
    "responses": "/v1/responses",
    "embeddings": "/v1/embeddings",
    "images.generations": "/v1/images/generations",
    "audio.transcriptions": "/v1/audio/transcriptions",
    "messages": "/v1/messages",
    "generateContent": "/v1beta/models/{model}:generateContent",
}
TOLD_ELSEWHERE = {"processing", "deployment_type", "response_status", "terminal"}
"""Context that the answer of a plain call does not tell: a batch, a deployment's zone, a run that failed."""
WHOLE = [
    vector
    for vector in PRICED
    if vector["api"] in PATHS
    and not TOLD_ELSEWHERE & vector["context"].keys()
    and nano(vector["exact_micro_usd"]) <= LARGEST_INTEGER  # big-002 costs more than a receipt can carry
]
STREAMED = [v for v in WHOLE if v["api"] in ("chat.completions", "responses", "messages", "generateContent")]


def ids(vectors: list[Vector]) -> list[str]:
    return [vector["id"] for vector in vectors]


def usage_of(vector: Vector) -> dict[str, Any]:
    """The raw usage without our own fields; Anthropic's tells tier, speed and geography itself."""
    usage = {name: count for name, count in vector["usage"].items() if not name.startswith("_")}
    told = ("service_tier", "speed", "inference_geo") if vector["api"] == "messages" else ()
    return usage | {name: vector["context"][name] for name in told if name in vector["context"]}


def answer(vector: Vector, **more: Any) -> dict[str, Any]:
    """A whole answer that says this usage, in the shape of its API."""
    model, usage, tier = vector["model"], usage_of(vector), vector["context"].get("service_tier")
    if vector["api"] == "generateContent":
        said = [{"content": {"parts": [{"text": "ok"}]}, "finishReason": "STOP"}]
        return {
            "candidates": said,
            "usageMetadata": usage,
            "modelVersion": model.removeprefix("models/"),
            **more,
        }
    told: dict[str, Any] = {"id": "id-1", "model": model, "usage": usage}
    if vector["api"] == "messages":
        return {**told, "type": "message", "role": "assistant", "content": [], **more}
    if tier is not None:
        told["service_tier"] = tier
    if vector["api"] == "responses":
        tools = vector["usage"].get("_tool_usage")
        told |= {"object": "response", "status": "completed", "output": []}
        return told | ({} if tools is None else {"tool_usage": tools}) | more
    if vector["api"] == "images.generations":
        return {"created": 1, "data": [{"b64_json": "eHg="}], "usage": usage, **more}
    if vector["api"] == "audio.transcriptions":
        return {"text": "ok", "usage": usage, **more}
    return {**told, "object": "x", "choices": [], "data": [], **more}


def event(data: dict[str, Any]) -> bytes:
    """One event, named where it has a type."""
    name = f"event: {data['type']}\n" if "type" in data else ""
    return f"{name}data: {json.dumps(data)}\n\n".encode()


def events(vector: Vector) -> list[bytes]:
    """The same answer as a stream, its usage where the API puts it."""
    whole, usage = answer(vector), usage_of(vector)
    if vector["api"] == "chat.completions":
        piece = [{"index": 0, "delta": {"content": "x"}, "finish_reason": None}]
        return [event({**whole, "usage": None, "choices": piece}), event({**whole, "choices": []}), DONE]
    if vector["api"] == "responses":
        begun = {**whole, "status": "in_progress", "usage": None}
        return [
            event({"type": f"response.{kind}", "response": r})
            for kind, r in (("created", begun), ("completed", whole))
        ]
    if vector["api"] == "messages":
        start = {**whole, "usage": {**usage, "output_tokens": 1}}
        return [
            event({"type": "message_start", "message": start}),
            event({"type": "message_delta", "delta": {}, "usage": {"output_tokens": usage["output_tokens"]}}),
            event({"type": "message_stop"}),
        ]
    partial = [{"content": {"parts": [{"text": "o"}]}}]
    return [event({**whole, "candidates": partial, "usageMetadata": {"promptTokenCount": 1}}), event(whole)]


def request(vector: Vector, *, stream: bool) -> tuple[str, bytes, bytes, bytes]:
    """(path, query, body, content type) of the call."""
    model, path = vector["model"], PATHS[vector["api"]]
    if vector["api"] == "generateContent":
        path = path.format(model=model.removeprefix("models/"))
        path = path.replace(":generate", ":streamGenerate") if stream else path
        return path, b"alt=sse" if stream else b"", b'{"contents": []}', b"application/json"
    if vector["api"] == "audio.transcriptions":
        head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="model"\r\n\r\n{model}\r\n--{BOUNDARY}--\r\n'
        return path, b"", head.encode(), f"multipart/form-data; boundary={BOUNDARY}".encode()
    asked: dict[str, Any] = {"model": model, "stream": True} if stream else {"model": model}
    return path, b"", json.dumps(asked).encode(), b"application/json"


async def receipt_of(folder: Path, vector: Vector, *, stream: bool = False) -> dict[str, Any]:
    """The receipt of a call that the vector's provider answers so, at the vector's instant and rates."""
    name = vector["provider"]
    provider = Provider(
        name=name,
        dialect=DIALECTS.get(name, "openai"),  # type: ignore[arg-type]
        base_url="http://provider.test/v1",
        api_keys=("sk-up",),
        prices=PRICES.get(name, name),
        usage=CONVENTIONS.get(name, "openai"),  # type: ignore[arg-type]
    )
    clock = ManualClock(parse_instant(vector["timestamp"]))
    async with running_gateway(folder, clock=clock, providers=(provider,)) as gateway:
        holder = gateway.gateway.running.policy
        holder.current = replace(holder.current, prices=(prices(*rows_of(vector)),))
        whole = json.dumps(answer(vector)).encode()
        reply = Reply(chunks=events(vector), headers=SSE) if stream else Reply(body=whole)
        gateway.provider.script = lambda seen: reply
        path, query, body, kind = request(vector, stream=stream)
        headers = [(b"authorization", b"Bearer " + gateway.secret.encode()), (b"content-type", kind)]
        client = RawClient()
        await client.post(gateway.gateway, path, body, headers, query=query)
        assert client.ended, client.body
        (receipt,) = await gateway.receipts()
        assert len(gateway.provider.seen) == 1, client.body
        return receipt


@pytest.mark.parametrize("vector", WHOLE, ids=ids(WHOLE))
async def test_a_whole_answer_leaves_its_exact_cost(tmp_path: Path, vector: Vector) -> None:
    receipt = await receipt_of(tmp_path, vector)
    assert (receipt["status"], receipt["cost_nano_usd"]) == ("served", nano(vector["exact_micro_usd"])), (
        receipt
    )
    if "provider_reported_cost_micro_usd" in vector:
        assert receipt["provider_cost_nano_usd"] == nano(vector["provider_reported_cost_micro_usd"])


@pytest.mark.parametrize("vector", STREAMED, ids=ids(STREAMED))
async def test_a_streamed_answer_leaves_the_same(tmp_path: Path, vector: Vector) -> None:
    receipt = await receipt_of(tmp_path, vector, stream=True)
    assert (receipt["status"], receipt["cost_nano_usd"]) == ("served", nano(vector["exact_micro_usd"])), (
        receipt
    )
