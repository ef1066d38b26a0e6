"""OpenAI moderations: an answer without usage, so only a row that charges for nothing at all prices it, at zero."""

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

ROUTE = "/v1/moderations"
DEFAULT_MODEL = "omni-moderation-latest"
"""What OpenAI takes where a request names no model, as its SDKs do not by default."""


class _Request(Body):
    model: str | None = None
    input: msgspec.Raw = msgspec.Raw(b'""')


def parse(body: bytes, _arrival: Arrival = JUST_A_BODY) -> Call:
    """What a moderation request says about itself. Raises BadRequest."""
    request: _Request = decode(_Request, body)
    model = DEFAULT_MODEL if request.model is None else request.model
    check_model(model)
    return Call(
        model=model,
        stream=False,
        bounds=CallBounds(
            body_bytes=len(body),
            text_bytes=len(body),
            prompts=prompts_in(request.input),
            output_limit=0,
            limits_output=False,
            units={},
        ),
    )


def read_answer(body: bytes, _call: Call | None = None) -> Served:
    """The facts of a whole JSON answer; a provider that counts tokens is priced by them."""
    return facts_of(body, openai_embeddings)


DIALECT = openai_dialect(
    routes=frozenset({ROUTE}),
    parse=parse,
    prepare=with_model,
    read_answer=read_answer,
    stream_meter=NoEvents,
)
