"""The OpenAI side: chat completions, embeddings, models and errors in the shapes of the real API."""

from __future__ import annotations

import base64
import hashlib
import math
import sys
from array import array
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final

import msgspec

from gateway.demo.answers import (
    Answer,
    Denied,
    Dialect,
    Meters,
    Piece,
    Work,
    decode,
    off_by,
    output_length,
    usage_field,
)
from gateway.demo.tokens import LONG, Boundary, Measured, answer_text, cut_text, measure, tokens_of

CACHE_FROM_TOKENS: Final = 1024
CACHE_STEP_TOKENS: Final = 128
DEFAULT_DIMENSIONS: Final = 1536
FINGERPRINT: Final = "fp_demo000001"

_DONE: Final = Piece(b"data: [DONE]\n\n")


class _Message(msgspec.Struct):
    role: str
    content: Any = None
    tool_calls: Any = None


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = False


class _ChatRequest(msgspec.Struct):
    model: str
    messages: Annotated[list[_Message], msgspec.Meta(min_length=1)]
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    n: Annotated[int, msgspec.Meta(ge=1, le=128)] | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    tools: Any = None
    functions: Any = None


class _EmbeddingsRequest(msgspec.Struct):
    model: str
    input: str | list[str | int | list[int]]
    dimensions: Annotated[int, msgspec.Meta(ge=1, le=4096)] | None = None
    encoding_format: str | None = None


def chat(body: bytes, work: Work) -> Answer:
    """`POST /v1/chat/completions`: a JSON answer or a stream of chunks."""
    request: _ChatRequest = decode(_ChatRequest, body)
    length, limited = output_length(work.controls, request.max_tokens, request.max_completion_tokens)
    choices = request.n or 1
    seed, meters = _read_prompt(request, work, length * choices)
    texts = [answer_text(seed + index.to_bytes(2), length) for index in range(choices)]
    finish = "length" if limited else "stop"
    stream = bool(request.stream)
    pieces = (
        list(_chunks(request, work, meters, texts, finish))
        if stream
        else [_completion(request, work, meters, texts, finish)]
    )
    return Answer(
        pieces=pieces,
        stream=stream,
        model_served=work.served(request.model),
        meters=meters,
        text="".join(texts),
    )


def embeddings(body: bytes, work: Work) -> Answer:
    """`POST /v1/embeddings`: one unit vector for each input, as numbers or as base64 of little-endian floats."""
    request: _EmbeddingsRequest = decode(_EmbeddingsRequest, body)
    inputs = _embedding_inputs(request.input)
    tokens = sum(len(one) if isinstance(one, list) else tokens_of(len(one.encode())) for one in inputs)
    as_text = request.encoding_format == "base64"
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": _vector(
                msgspec.json.encode(one), request.dimensions or DEFAULT_DIMENSIONS, as_text=as_text
            ),
        }
        for index, one in enumerate(inputs)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens + off_by(work.controls)}
    model = work.served(request.model)
    fields = {"object": "list", "data": data, "model": model, **usage_field(work.controls, usage)}
    return Answer(
        pieces=[Piece(msgspec.json.encode(fields))], model_served=model, meters=Meters(input_tokens=tokens)
    )


def error(denied: Denied, request_id: str) -> bytes:
    """OpenAI's error body; the request id is in the headers alone."""
    kind, code = _ERRORS.get(
        denied.status, ("server_error" if denied.status >= 500 else "invalid_request_error", None)
    )
    if denied.code is not None:
        kind, code = "insufficient_quota", denied.code
    return msgspec.json.encode(
        {"error": {"message": denied.message, "type": kind, "param": None, "code": code}}
    )


def models(ids: Sequence[str], created: int) -> bytes:
    """OpenAI's list of models."""
    data = [{"id": model, "object": "model", "created": created, "owned_by": "demo"} for model in ids]
    return msgspec.json.encode({"object": "list", "data": data})


_ERRORS: Final[dict[int, tuple[str, str | None]]] = {
    401: ("invalid_request_error", "invalid_api_key"),
    429: ("requests", "rate_limit_exceeded"),
}

DIALECT: Final = Dialect(
    name="openai",
    request_id_header=b"x-request-id",
    spend_limit_code="organization_spend_limit_exceeded",
    error=error,
    models=models,
)


def _read_prompt(request: _ChatRequest, work: Work, output: int) -> tuple[bytes, Meters]:
    """The seed of the answer, and the meters: a long first message that was seen before is read from the cache."""
    parts = [_measure(message) for message in request.messages]
    tools = b"".join(measure(extra).text for extra in (request.tools, request.functions) if extra)
    text = b"\x1e".join([*(part.text for part in parts), tools])
    size = sum(len(part.text) for part in parts) + len(tools)
    whole = tokens_of(size, messages=len(parts), media=sum(part.media for part in parts))
    read = _cached(request.model, request.messages[0].role, parts[0], work)
    meters = Meters(input_tokens=whole - read, cache_read_tokens=read, output_tokens=output)
    return hashlib.sha256(text).digest(), meters


def _measure(message: _Message) -> Measured:
    said, called = measure(message.content), measure(message.tool_calls)
    return Measured(said.text + called.text, said.media + called.media)


def _cached(model: str, role: str, first: Measured, work: Work) -> int:
    """Tokens of the first message that are cached, in whole steps; it is kept for the next request."""
    tokens = tokens_of(len(first.text), messages=1, media=first.media)
    if tokens < CACHE_FROM_TOKENS:
        return 0
    digest = hashlib.sha256(f"openai\x1e{model}\x1e{role}\x1e".encode() + first.text).digest()
    parts = work.cache.meet([Boundary(digest, tokens, LONG)])
    return parts.read // CACHE_STEP_TOKENS * CACHE_STEP_TOKENS


def _usage(meters: Meters, work: Work) -> dict[str, Any]:
    prompt, output = meters.prompt_tokens, meters.output_tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output + off_by(work.controls),
        "prompt_tokens_details": {"cached_tokens": meters.cache_read_tokens, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": 0,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def _head(request: _ChatRequest, work: Work, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{work.mark}",
        "object": kind,
        "created": work.created,
        "model": work.served(request.model),
        "service_tier": "default",
        "system_fingerprint": FINGERPRINT,
    }


def _completion(
    request: _ChatRequest, work: Work, meters: Meters, texts: Sequence[str], finish: str
) -> Piece:
    choices: list[dict[str, Any]] = [
        {
            "index": index,
            "message": {"role": "assistant", "content": text, "refusal": None, "annotations": []},
            "logprobs": None,
            "finish_reason": finish,
        }
        for index, text in enumerate(texts)
    ]
    usage = usage_field(work.controls, _usage(meters, work))
    return Piece(
        msgspec.json.encode({**_head(request, work, "chat.completion"), "choices": choices, **usage}),
        meters.output_tokens,
    )


def _chunks(
    request: _ChatRequest, work: Work, meters: Meters, texts: Sequence[str], finish: str
) -> Iterator[Piece]:
    """A stream's events: a role, pieces of text and an end for every choice, the usage when asked, `[DONE]`."""
    wants_usage = request.stream_options is not None and bool(request.stream_options.include_usage)
    head = _head(request, work, "chat.completion.chunk")
    plain = {"usage": None} if wants_usage else {}

    def event(index: int, delta: dict[str, Any], ended: str | None = None, tokens: int = 0) -> Piece:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": ended}
        return Piece(_data({**head, "choices": [choice], **plain}), tokens)

    for index in range(len(texts)):
        yield event(index, {"role": "assistant", "content": "", "refusal": None})
    length = meters.output_tokens // len(texts)
    cuts = [cut_text(text, length, work.controls.chunks) for text in texts]
    for row in zip(*cuts, strict=True):
        for index, (text, tokens) in enumerate(row):
            yield event(index, {"content": text}, tokens=tokens)
    for index in range(len(texts)):
        yield event(index, {}, finish)
    if wants_usage and (usage := usage_field(work.controls, _usage(meters, work))):
        yield Piece(_data({**head, "choices": [], **usage}))
    yield _DONE


def _data(fields: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(fields) + b"\n\n"


def _embedding_inputs(given: str | list[str | int | list[int]]) -> list[str | list[int]]:
    """One text or array of tokens for each vector."""
    if isinstance(given, str):
        return [given]
    numbers = [one for one in given if isinstance(one, int)]
    if numbers:
        if len(numbers) != len(given):
            raise Denied(400, "Invalid request: `input` mixes tokens with texts.")
        return [numbers]
    if not given:
        raise Denied(400, "Invalid request: `input` is empty.")
    return [one for one in given if not isinstance(one, int)]


def _vector(seed: bytes, dimensions: int, *, as_text: bool) -> str | list[float]:
    blocks = range(-(-dimensions // 32))
    digests = b"".join(hashlib.sha256(seed + block.to_bytes(2)).digest() for block in blocks)
    raw = [byte - 127.5 for byte in digests[:dimensions]]
    norm = math.sqrt(sum(number * number for number in raw))
    vector = [number / norm for number in raw]
    if not as_text:
        return vector
    floats = array("f", vector)
    if sys.byteorder == "big":
        floats.byteswap()
    return base64.b64encode(floats.tobytes()).decode()
