"""OpenAI embeddings: one input or many, a prompt in the usage, and nothing that comes out as tokens."""

from __future__ import annotations

import msgspec

from gateway.dialects.base import (
    JUST_A_BODY,
    Arrival,
    Body,
    Call,
    Served,
    check_model,
    decode,
    with_model,
)
from gateway.dialects.openai_shape import (
    NoEvents,
    facts_of,
    openai_dialect,
    prompts_in,
)
from toolkit.core.conventions import openai_embeddings
from toolkit.core.estimate import CallBounds
from toolkit.core.usage import PROMPT_METERS

ROUTE = "/v1/embeddings"


class _Request(Body):
    model: str
    input: msgspec.Raw = msgspec.Raw(b'""')


def parse(body: bytes, _arrival: Arrival = JUST_A_BODY) -> Call:
    """What an embedding request says about itself; an input that is no text or tokens is bounded by the model alone.

    Raises BadRequest.
    """
    request: _Request = decode(_Request, body)
    check_model(request.model)
    inputs = bytes(request.input)
    return Call(
        model=request.model,
        stream=False,
        bounds=CallBounds(
            body_bytes=len(body),
            text_bytes=len(body),
            reaches_out=inputs.lstrip(b" \t\r\n[").startswith(b"{"),
            prompts=prompts_in(request.input),
            prompt_meters=frozenset(PROMPT_METERS),
            output_limit=0,
            limits_output=False,
        ),
    )


def read_answer(body: bytes, _call: Call | None = None) -> Served:
    """The facts of a whole JSON answer; unreadable JSON has no usage."""
    return facts_of(body, openai_embeddings)


DIALECT = openai_dialect(
    routes=frozenset({ROUTE}),
    parse=parse,
    prepare=with_model,
    read_answer=read_answer,
    stream_meter=NoEvents,
)
