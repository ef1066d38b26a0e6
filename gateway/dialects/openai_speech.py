"""OpenAI speech: audio that reports no usage, priced by the characters of its request where its row is so priced."""

from __future__ import annotations

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
    UsageEventMeter,
    facts_of,
    openai_dialect,
)
from toolkit.core.conventions import openai_speech
from toolkit.core.estimate import CallBounds

ROUTE = "/v1/audio/speech"


class _Request(Body):
    model: str
    input: str = ""
    stream_format: str | None = None


def parse(body: bytes, _arrival: Arrival = JUST_A_BODY) -> Call:
    """What a request for speech says about itself. Raises BadRequest.

    Only as events does speech report tokens; as audio it reports nothing, and its characters are all that is known.
    """
    request: _Request = decode(_Request, body)
    check_model(request.model)
    stream = request.stream_format == "sse"
    characters = {"characters": len(request.input)}
    return Call(
        model=request.model,
        stream=stream,
        bounds=CallBounds(
            body_bytes=len(body),
            text_bytes=len(body),
            limits_output=False,
            fees=tuple(characters.items()),
            units=None if stream else characters,
        ),
    )


def read_answer(body: bytes, _call: Call | None = None) -> Served:
    """The facts of a JSON answer, should a provider give one; audio never comes here."""
    return facts_of(body, openai_speech)


def stream_meter(_call: Call) -> UsageEventMeter:
    """Pieces of audio, then `speech.audio.done` with the usage."""
    return UsageEventMeter("speech.audio.done", openai_speech)


DIALECT = openai_dialect(
    routes=frozenset({ROUTE}),
    parse=parse,
    prepare=with_model,
    read_answer=read_answer,
    stream_meter=stream_meter,
    passes_through=True,
)
