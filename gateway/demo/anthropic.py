"""The Anthropic side: messages, models and errors in the shapes of the real API."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, NamedTuple

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
from gateway.demo.tokens import LONG, SHORT, Boundary, CacheParts, answer_text, cut_text, measure, tokens_of


class _Message(msgspec.Struct):
    role: str
    content: str | list[Any]


class _MessagesRequest(msgspec.Struct):
    model: str
    max_tokens: int
    messages: Annotated[list[_Message], msgspec.Meta(min_length=1)]
    system: str | list[Any] | None = None
    stream: bool | None = None
    tools: list[Any] | None = None
    cache_control: Any = None


class _Block(NamedTuple):
    """One block of the prompt, in the order in which prefixes are built: tools, system, messages."""

    owner: str
    content: Any
    opens_message: bool = False


def messages(body: bytes, work: Work) -> Answer:
    """`POST /v1/messages`: a JSON answer or a stream of events."""
    request: _MessagesRequest = decode(_MessagesRequest, body)
    length, limited = output_length(work.controls, request.max_tokens)
    prompt = _boundaries(request)
    parts = work.cache.meet(prompt) if any(b.keep for b in prompt) else CacheParts()
    meters = Meters(
        input_tokens=prompt[-1].tokens - sum(parts),
        cache_read_tokens=parts.read,
        cache_write_5m_tokens=parts.written_5m,
        cache_write_1h_tokens=parts.written_1h,
        output_tokens=length,
    )
    text = answer_text(prompt[-1].digest, length)
    stop = "max_tokens" if limited else "end_turn"
    stream = bool(request.stream)
    pieces = (
        list(_events(request, work, meters, text, stop))
        if stream
        else [_message(request, work, meters, text, stop)]
    )
    return Answer(
        pieces=pieces, stream=stream, model_served=work.served(request.model), meters=meters, text=text
    )


def error(denied: Denied, request_id: str) -> bytes:
    """Anthropic's error body; a reason stands in `details.error_code`."""
    kind = _ERRORS.get(denied.status, "api_error" if denied.status >= 500 else "invalid_request_error")
    fields: dict[str, Any] = {"type": kind, "message": denied.message}
    if denied.code is not None:
        fields["details"] = {"error_code": denied.code}
    return msgspec.json.encode({"type": "error", "error": fields, "request_id": request_id})


def models(ids: Sequence[str], created: int) -> bytes:
    """Anthropic's list of models, one page."""
    at = datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    data = [
        {"type": "model", "id": model, "display_name": model, "created_at": at, "lifecycle": "active"}
        for model in ids
    ]
    first, last = (ids[0], ids[-1]) if ids else (None, None)
    return msgspec.json.encode({"data": data, "has_more": False, "first_id": first, "last_id": last})


_ERRORS: Final = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}

DIALECT: Final = Dialect(
    name="anthropic",
    request_id_header=b"request-id",
    spend_limit_code="enforced_spend_limit_reached",
    error=error,
    models=models,
)


def _boundaries(request: _MessagesRequest) -> list[Boundary]:
    """A boundary after every block; the last one is the whole prompt."""
    blocks = list(_blocks(request))
    running, size, openings, media = hashlib.sha256(f"anthropic\x1e{request.model}".encode()), 0, 0, 0
    found: list[Boundary] = []
    for block in blocks:
        part = measure(block.content)
        running.update(b"\x1e" + block.owner.encode() + b"\x1e" + part.text)
        size += len(part.text)
        openings += block.opens_message
        media += part.media
        tokens = tokens_of(size, messages=openings, media=media)
        found.append(Boundary(running.digest(), tokens, _keep(block.content)))
    if request.cache_control and found[-1].keep is None:
        found[-1] = found[-1]._replace(keep=_lifetime(request.cache_control))
    return found


def _blocks(request: _MessagesRequest) -> Iterator[_Block]:
    for tool in request.tools or ():
        yield _Block("tool", tool)
    for content in _listed(request.system):
        yield _Block("system", content)
    for message in request.messages:
        # A message without a block still costs its opening.
        for number, content in enumerate(_listed(message.content) or [None]):
            yield _Block(message.role, content, opens_message=number == 0)


def _listed(content: str | list[Any] | None) -> list[Any]:
    if content is None:
        return []
    return [content] if isinstance(content, str) else content


def _keep(content: Any) -> timedelta | None:
    return _lifetime(content.get("cache_control")) if isinstance(content, dict) else None


def _lifetime(mark: Any) -> timedelta | None:
    if not isinstance(mark, dict):
        return None
    return LONG if mark.get("ttl") == "1h" else SHORT


def _counts(meters: Meters, work: Work) -> dict[str, int]:
    """The input side of a usage; Anthropic's input is without the cached tokens."""
    written = meters.cache_write_5m_tokens + meters.cache_write_1h_tokens
    return {
        "input_tokens": meters.input_tokens,
        "cache_creation_input_tokens": written + off_by(work.controls),
        "cache_read_input_tokens": meters.cache_read_tokens,
    }


def _usage(meters: Meters, work: Work, output: int) -> dict[str, Any]:
    split = {
        "ephemeral_5m_input_tokens": meters.cache_write_5m_tokens,
        "ephemeral_1h_input_tokens": meters.cache_write_1h_tokens,
    }
    return {
        **_counts(meters, work),
        "cache_creation": split,
        "output_tokens": output,
        "service_tier": "standard",
    }


def _body(
    request: _MessagesRequest, work: Work, meters: Meters, content: list[Any], stop: str | None, output: int
) -> dict[str, Any]:
    return {
        "id": f"msg_{work.mark}",
        "type": "message",
        "role": "assistant",
        "model": work.served(request.model),
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        **usage_field(work.controls, _usage(meters, work, output)),
    }


def _message(request: _MessagesRequest, work: Work, meters: Meters, text: str, stop: str) -> Piece:
    content = [{"type": "text", "text": text}]
    body = _body(request, work, meters, content, stop, meters.output_tokens)
    return Piece(msgspec.json.encode(body), meters.output_tokens)


def _events(request: _MessagesRequest, work: Work, meters: Meters, text: str, stop: str) -> Iterator[Piece]:
    """A stream's events. The first usage knows one output token at most; the last one is cumulative."""
    output = meters.output_tokens
    yield _event("message_start", message=_body(request, work, meters, [], None, min(1, output)))
    yield _event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    yield _event("ping")
    for part, tokens in cut_text(text, output, work.controls.chunks):
        delta = {"type": "text_delta", "text": part}
        yield _event("content_block_delta", tokens, index=0, delta=delta)
    yield _event("content_block_stop", index=0)
    usage = usage_field(work.controls, {**_counts(meters, work), "output_tokens": output})
    yield _event("message_delta", delta={"stop_reason": stop, "stop_sequence": None}, **usage)
    yield _event("message_stop")


def _event(name: str, tokens: int = 0, **fields: Any) -> Piece:
    data = msgspec.json.encode({"type": name, **fields})
    return Piece(b"event: " + name.encode() + b"\ndata: " + data + b"\n\n", tokens)
