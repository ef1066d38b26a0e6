"""Anthropic messages: input without cached tokens, cumulative usage in a stream, errors with `error_code`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from gateway.dialects.base import (
    JUST_A_BODY,
    Arrival,
    Body,
    Call,
    Dialect,
    Handling,
    Served,
    check_model,
    decode,
    output_limit,
    parsed,
    with_model,
)
from gateway.refusals import Refusal
from toolkit.core.conventions import anthropic_messages, merge_fields
from toolkit.core.estimate import CallBounds
from toolkit.core.tiers import anthropic_tier
from toolkit.core.usage import PROMPT_METERS, UsageProblem

ROUTE = "/v1/messages"

IMAGE_TOKENS = 5_000
"""More than Anthropic charges for one image, about 4,784 at the largest size."""
TOOL_TOKENS = 1_000
"""More than the system prompt that Anthropic adds when tools are declared (at most 804), and than each tool that it
defines itself and the client runs (at most 735)."""
CLIENT_TOOLS = ("bash_", "computer_", "memory_", "text_editor_")
"""Tools of Anthropic's definition that the client runs: the model does not go on by itself after them."""
MOST_TURNS = 10
"""How often a server tool may make the model read its prompt again before `pause_turn`."""
DEFAULT_SEARCHES = 10

_ANY_METER = frozenset(PROMPT_METERS)
_SHORT_WRITES = _ANY_METER - {"cache_write_1h"}
_NO_WRITES = _SHORT_WRITES - {"cache_write_5m"}

_SPEND_LIMITS = (
    b"enforced_spend_limit_reached",
    b"contract_spend_limit_reached",
    b"linked_organization_spend_limit_reached",
)
_MEDIA = re.compile(rb'"(?:source|file)"')


class _Tool(msgspec.Struct):
    type: str | None = None
    max_uses: int | None = None


class _Request(Body):
    model: str
    messages: msgspec.Raw = msgspec.Raw(b"[]")
    max_tokens: int | None = None
    stream: bool | None = None
    tools: list[_Tool] | None = None
    mcp_servers: Any = None
    container: Any = None
    speed: str | None = None
    inference_geo: str | None = None


class _Message(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    usage: Mapping[str, Any] | None = None


class _Event(msgspec.Struct):
    type: str | None = None
    message: _Message | None = None
    usage: dict[str, Any] | None = None


_message = msgspec.json.Decoder(_Message)
_event = msgspec.json.Decoder(_Event)


def parse(body: bytes, _arrival: Arrival = JUST_A_BODY) -> Call:
    """What a messages request says about itself. Raises BadRequest."""
    request: _Request = decode(_Request, body)
    check_model(request.model)
    inline_bytes, media_tokens, reaches_out = _media(request.messages)
    tools = request.tools or []
    typed = [tool.type for tool in tools if tool.type not in (None, "custom")]
    defined = [name for name in typed if name.startswith(CLIENT_TOOLS)]
    fetches = len(typed) > len(defined) or request.mcp_servers is not None or request.container is not None
    searches = sum(
        DEFAULT_SEARCHES if tool.max_uses is None else max(0, tool.max_uses)
        for tool in tools
        if tool.type is not None and tool.type.startswith("web_search")
    )
    return Call(
        model=request.model,
        stream=bool(request.stream),
        bounds=CallBounds(
            body_bytes=len(body),
            text_bytes=len(body) - inline_bytes,
            media_tokens=media_tokens + (TOOL_TOKENS * (1 + len(defined)) if tools else 0),
            reaches_out=reaches_out or fetches,
            turns=MOST_TURNS if fetches else 1,
            output_limit=output_limit(request.max_tokens),
            prompt_meters=_prompt_meters(body),
            # A workspace may be set to the dearer geography for requests that name none.
            tier=anthropic_tier(None, speed=request.speed, inference_geo=request.inference_geo or "us"),
            fees=(("web_search", searches),) if searches else (),
        ),
    )


def _prompt_meters(body: bytes) -> frozenset[str]:
    """The classes of prompt tokens a request can incur: it writes to a cache only where it says so.

    An escape may spell any of the words looked for, so a body that has one may incur everything.
    """
    if b"\\u" in body:
        return _ANY_METER
    if b'"cache_control"' not in body:
        return _NO_WRITES
    return _ANY_METER if b'"1h"' in body else _SHORT_WRITES


def read_answer(body: bytes, _call: Call | None = None) -> Served:
    """The facts of a whole JSON answer; unreadable JSON has no usage."""
    try:
        return _served(_message.decode(body))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return Served()


class MessagesStreamMeter:
    """`message_start` to `message_stop`. Usage is cumulative: per field the last value that is not null counts."""

    def __init__(self, _call: Call) -> None:
        self._known = _Message()
        self._stopped = False
        self._failed = False
        self._told = False
        """Whether the output was told after its start: what `message_start` says of it is none of the answer's."""

    def event(self, data: bytes | None) -> Handling:
        """Note id, model and usage; hold the stop back."""
        if data is None or (b'"message_' not in data and b'"error"' not in data):
            return Handling.FORWARD
        try:
            event = _event.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return Handling.FORWARD
        if event.type == "message_stop":
            self._stopped = True
            return Handling.FINAL
        self._failed |= event.type == "error"
        if event.message is not None:
            self._known.id = event.message.id or self._known.id
            self._known.model = event.message.model or self._known.model
            self._known.usage = merge_fields(self._known.usage, event.message.usage)
        self._told |= event.usage is not None and event.usage.get("output_tokens") is not None
        self._known.usage = merge_fields(self._known.usage, event.usage)
        return Handling.FORWARD

    def complete(self) -> bool:
        """`message_stop` came, and no error."""
        return self._stopped and not self._failed

    def served(self) -> Served:
        """What the events said so far; an answer that ended without saying its output has no usage."""
        if self.complete() and not self._told:
            return replace(_served(self._known), usage=UsageProblem("usage_missing"))
        return _served(self._known)


def render(refusal: Refusal, request_id: str) -> bytes:
    """`{"type": "error", "error": {"type", "message", "details": {"error_code", …}}, "request_id"}`."""
    error = {
        "type": refusal.anthropic_type,
        "message": refusal.message,
        "details": {"error_code": refusal.code, **refusal.details},
    }
    return msgspec.json.encode({"type": "error", "error": error, "request_id": request_id})


def authorize(api_key: str) -> Mapping[str, str]:
    """Anthropic's own key header."""
    return {"x-api-key": api_key}


def is_spend_limit(status: int, body: bytes) -> bool:
    """Anthropic answers 429 or 402 when its own spend limit is reached (facts/clients)."""
    return status in (402, 429) and any(code in body for code in _SPEND_LIMITS)


def _served(message: _Message) -> Served:
    usage = message.usage
    if usage is None:
        return Served(model=message.model, upstream_id=message.id, usage=UsageProblem("usage_missing"))
    tier, speed, geography = (_word(usage.get(name)) for name in ("service_tier", "speed", "inference_geo"))
    return Served(
        model=message.model,
        upstream_id=message.id,
        service_tier=tier,
        tier=anthropic_tier(tier, speed=speed, inference_geo=geography),
        usage=anthropic_messages(usage, message.model),
    )


def _word(said: Any) -> str | None:
    """What the provider says as text; something else is no known word, and so no listed tier."""
    return said if isinstance(said, str | None) else str(said)


def _media(messages: msgspec.Raw) -> tuple[int, int, bool]:
    """(bytes of inline media, tokens they may cost, whether something must be fetched or cannot be bounded)."""
    raw = bytes(messages)
    if _MEDIA.search(raw) is None and b"\\u" not in raw:  # an escape may spell any of the words
        return 0, 0, False
    inline_bytes = media_tokens = 0
    reaches_out = False
    for block in _blocks(parsed(raw)):
        source = block.get("source")
        if not isinstance(source, dict):
            continue
        data = source.get("data")
        if block.get("type") == "image" and source.get("type") == "base64" and isinstance(data, str):
            inline_bytes += len(data.encode())
            media_tokens += IMAGE_TOKENS
        elif source.get("type") != "text":
            reaches_out = True
    return inline_bytes, media_tokens, reaches_out


def _blocks(messages: Any) -> list[dict[str, Any]]:
    """Every object within messages, at any depth: tool results hold blocks of their own."""
    found: list[dict[str, Any]] = []
    waiting = [messages]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            found.append(item)
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
    return found


DIALECT = Dialect(
    name="anthropic",
    routes=frozenset({ROUTE}),
    parse=parse,
    prepare=with_model,
    read_answer=read_answer,
    stream_meter=MessagesStreamMeter,
    render=render,
    authorize=authorize,
    is_spend_limit=is_spend_limit,
)
