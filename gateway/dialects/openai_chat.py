"""OpenAI chat completions: requests, usage in the body or the last chunk, errors with `error.code`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

import msgspec

from gateway.dialects.base import (
    JUST_A_BODY,
    MOST_CHOICES,
    Arrival,
    BadRequest,
    Body,
    Call,
    Handling,
    Served,
    check_model,
    decode,
    output_limit,
    parsed,
    with_fields,
)
from gateway.dialects.openai_shape import (
    asked_tier,
    openai_dialect,
    prompt_meters,
    provider_cost,
)
from toolkit.core.conventions import openai_chat
from toolkit.core.estimate import CallBounds
from toolkit.core.tiers import openai_tier
from toolkit.core.usage import Usage, UsageProblem

ROUTE = "/v1/chat/completions"

IMAGE_TOKENS = 50_000
"""More than any listed vision model charges for one image (8 tiles of 5,667 and a base of 2,833 on gpt-4o-mini)."""

_TELL_UNASKED = ("mistral",)
"""Usage conventions of providers that report a stream's usage unasked, and refuse a request that asks for it."""
_SEARCH_MODEL = re.compile(r"-search-(?:preview|api)(?:-|$)")
"""OpenAI's models that search before they answer, whatever the request says of it."""
_CITATION = b'"url_citation"'
_MEDIA = re.compile(rb'"(?:image_url|input_audio|file)"')


class StreamOptions(msgspec.Struct):
    """Whether a stream is to end with its usage."""

    include_usage: bool | None = None


class _Request(Body):
    model: str
    messages: msgspec.Raw = msgspec.Raw(b"[]")
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    n: int | None = None
    service_tier: str | None = None
    web_search_options: Any = None


class _Answer(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    service_tier: str | None = None
    usage: Any = None
    choices: list[msgspec.Raw] | None = None
    error: Any = None
    x_groq: Any = None


class _Choice(msgspec.Struct):
    finish_reason: Any = None


class _Options(msgspec.Struct):
    stream_options: dict[str, msgspec.Raw] | None = None


_choice = msgspec.json.Decoder(_Choice)
_answer = msgspec.json.Decoder(_Answer, float_hook=Decimal)
_options = msgspec.json.Decoder(_Options)


def parse(body: bytes, _arrival: Arrival = JUST_A_BODY) -> Call:
    """What a chat request says about itself. Raises BadRequest."""
    request: _Request = decode(_Request, body)
    check_model(request.model)
    choices = 1 if request.n is None else request.n
    if not 1 <= choices <= MOST_CHOICES:
        raise BadRequest("n must be a whole number of choices, one or more.")
    inline_bytes, media_tokens, reaches_out = _media(request.messages)
    searches = request.web_search_options is not None or _SEARCH_MODEL.search(request.model) is not None
    return Call(
        model=request.model,
        stream=bool(request.stream),
        wants_usage=request.stream_options is not None and bool(request.stream_options.include_usage),
        bounds=CallBounds(
            body_bytes=len(body),
            text_bytes=len(body) - inline_bytes,
            media_tokens=media_tokens,
            reaches_out=reaches_out or searches,
            output_limit=output_limit(request.max_tokens, request.max_completion_tokens),
            choices=choices,
            prompt_meters=prompt_meters(body),
            tier=asked_tier(request.service_tier),
            fees=(("web_search", choices),) if searches else (),
        ),
    )


def prepare(body: bytes, call: Call, model: str) -> bytes:
    """The body to send: a stripped model id, and usage asked for in a stream whose client did not."""
    changed: dict[str, Any] = {} if model == call.model else {"model": model}
    if call.stream and not call.wants_usage and call.usage_style not in _TELL_UNASKED:
        kept = _options.decode(body).stream_options or {}
        changed["stream_options"] = {**kept, "include_usage": True}
    return with_fields(body, **changed) if changed else body


def read_answer(body: bytes, call: Call | None = None) -> Served:
    """The facts of a whole JSON answer; unreadable JSON has no usage."""
    try:
        return _served(_answer.decode(body), call, cited=_CITATION in body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return Served()


class ChatStreamMeter:
    """Chunks up to `[DONE]`. Of each fact the last one that is not null counts."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._answer = _Answer()
        self._done = False
        self._ended = False
        self._failed = False
        self._cited = False

    def event(self, data: bytes | None) -> Handling:
        """Note model, tier, id and usage; withhold the usage chunk that was not asked for."""
        if data is None:
            return Handling.FORWARD
        if data == b"[DONE]":
            self._done = True
            return Handling.FINAL
        try:
            chunk = _answer.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return Handling.FORWARD
        known = self._answer
        known.id = chunk.id or known.id
        known.model = chunk.model or known.model
        known.service_tier = chunk.service_tier or known.service_tier
        known.x_groq = chunk.x_groq or known.x_groq
        self._failed |= chunk.error is not None
        self._cited |= bool(self._call.bounds.fees) and _CITATION in data
        if chunk.usage is None:
            return Handling.FORWARD
        known.usage = chunk.usage
        extra = chunk.choices == []
        self._ended |= all([_choice.decode(choice).finish_reason for choice in chunk.choices or ()])
        return Handling.WITHHOLD if extra and not self._call.wants_usage else Handling.FORWARD

    def complete(self) -> bool:
        """`[DONE]` came, or at least the last chunk's usage that stands before it, and no error."""
        return not self._failed and (self._done or self._ended)

    def served(self) -> Served:
        """What the chunks said so far."""
        return _served(self._answer, self._call, cited=self._cited)


def _served(answer: _Answer, call: Call | None, *, cited: bool) -> Served:
    usage = answer.usage
    if usage is None and isinstance(answer.x_groq, dict):
        usage = answer.x_groq.get("usage")
    counted = openai_chat(usage, "openai" if call is None else call.usage_style)
    return Served(
        model=answer.model,
        upstream_id=answer.id,
        service_tier=answer.service_tier,
        tier=openai_tier(answer.service_tier),
        usage=counted
        if call is None
        else _with_searches(counted, answer.model or call.model, call, cited=cited),
        provider_cost_nano_usd=provider_cost(usage),
    )


def _with_searches(
    usage: Usage | UsageProblem, model: str, call: Call, *, cited: bool
) -> Usage | UsageProblem:
    """The usage with the searches that OpenAI bills and does not count: one for each answer that made one.

    A model made to search does so before every answer; any other has searched where its answer cites a page.
    """
    searches = dict(call.bounds.fees).get("web_search", 0)
    if isinstance(usage, UsageProblem) or not searches or call.usage_style != "openai":
        return usage
    if "web_search" in usage.units or not (cited or _SEARCH_MODEL.search(model)):
        return usage
    return replace(usage, units={**usage.units, "web_search": searches})


def _media(messages: msgspec.Raw) -> tuple[int, int, bool]:
    """(bytes of inline media, tokens they may cost, whether something must be fetched or cannot be bounded)."""
    raw = bytes(messages)
    if _MEDIA.search(raw) is None and b"\\u" not in raw:  # an escape may spell any of the words
        return 0, 0, False
    inline_bytes = media_tokens = 0
    reaches_out = False
    for part in _parts(parsed(raw)):
        url = _image_url(part)
        if url is not None and url.startswith("data:"):
            inline_bytes += len(url.encode())
            media_tokens += IMAGE_TOKENS
        elif part.get("type") not in (None, "text", "refusal"):
            reaches_out = True
    return inline_bytes, media_tokens, reaches_out


def _parts(messages: Any) -> list[dict[str, Any]]:
    """Every content part of every message that is an object."""
    contents = [message.get("content") for message in messages or () if isinstance(message, dict)]
    return [
        part
        for content in contents
        if isinstance(content, list)
        for part in content
        if isinstance(part, dict)
    ]


def _image_url(part: Mapping[str, Any]) -> str | None:
    image = part.get("image_url")
    url = image.get("url") if isinstance(image, dict) else image
    return url if isinstance(url, str) else None


DIALECT = openai_dialect(
    routes=frozenset({ROUTE}),
    parse=parse,
    prepare=prepare,
    read_answer=read_answer,
    stream_meter=ChatStreamMeter,
)
