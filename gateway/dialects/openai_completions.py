"""OpenAI's legacy completions: one prompt or many, and answers and streams that are metered as a chat's are."""

from __future__ import annotations

import msgspec

from gateway.dialects.base import (
    JUST_A_BODY,
    MOST_CHOICES,
    Arrival,
    BadRequest,
    Body,
    Call,
    check_model,
    decode,
    output_limit,
)
from gateway.dialects.openai_chat import ChatStreamMeter, StreamOptions, prepare, read_answer
from gateway.dialects.openai_shape import (
    asked_tier,
    openai_dialect,
    prompts_in,
)
from toolkit.core.estimate import CallBounds

ROUTE = "/v1/completions"


class _Request(Body):
    model: str
    prompt: msgspec.Raw = msgspec.Raw(b'""')
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    n: int | None = None
    best_of: int | None = None
    service_tier: str | None = None


def parse(body: bytes, _arrival: Arrival = JUST_A_BODY) -> Call:
    """What a completion request says about itself; all that `best_of` writes is billed. Raises BadRequest."""
    request: _Request = decode(_Request, body)
    check_model(request.model)
    asked = [count for count in (request.n, request.best_of) if count is not None]
    if not all(1 <= count <= MOST_CHOICES for count in asked):
        raise BadRequest("n and best_of must be whole numbers of choices, one or more.")
    prompts = prompts_in(request.prompt)
    return Call(
        model=request.model,
        stream=bool(request.stream),
        wants_usage=request.stream_options is not None and bool(request.stream_options.include_usage),
        bounds=CallBounds(
            body_bytes=len(body),
            text_bytes=len(body),
            prompts=prompts,
            output_limit=output_limit(request.max_tokens),
            choices=max(asked, default=1) * prompts,
            tier=asked_tier(request.service_tier),
        ),
    )


DIALECT = openai_dialect(
    routes=frozenset({ROUTE}),
    parse=parse,
    prepare=prepare,
    read_answer=read_answer,
    stream_meter=ChatStreamMeter,
)
