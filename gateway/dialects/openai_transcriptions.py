"""OpenAI transcriptions: a form with a file; usage in tokens or seconds where an answer has room for it."""

from __future__ import annotations

from gateway.dialects.base import (
    JUST_A_BODY,
    Arrival,
    BadRequest,
    Call,
    Served,
    check_model,
)
from gateway.dialects.openai_shape import (
    UsageEventMeter,
    facts_of,
    openai_dialect,
)
from gateway.forms import NotAForm, form_fields, text_of, with_text
from toolkit.core.conventions import openai_transcriptions
from toolkit.core.estimate import CallBounds
from toolkit.core.usage import PROMPT_METERS

ROUTE = "/v1/audio/transcriptions"

BYTES_PER_SECOND = 500
"""Fewer than speech takes at the lowest rate of any codec that is accepted (Opus at 6 kbit/s takes 750)."""
LEAST_SECONDS = 10
"""What some providers bill for the shortest file."""


def parse(body: bytes, arrival: Arrival = JUST_A_BODY) -> Call:
    """What the fields of a form say; of the file only its size is looked at. Raises BadRequest."""
    try:
        fields = form_fields(body, arrival.content_type)
        model = text_of(body, fields.get("model"))
        stream = text_of(body, fields.get("stream"))
    except NotAForm as error:
        raise BadRequest(str(error)) from error
    check_model(model or "")
    audio = sum([field.end - field.start for field in fields.values() if field.is_file])
    return Call(
        model=model or "",
        stream=stream is not None and stream.strip().lower() in ("true", "1"),
        bounds=CallBounds(
            body_bytes=len(body) - audio,
            text_bytes=len(body) - audio,
            reaches_out=True,
            prompt_meters=frozenset(PROMPT_METERS),
            limits_output=False,
            fees=(("seconds", max(LEAST_SECONDS, -(-audio // BYTES_PER_SECOND))),),
        ),
    )


def prepare(body: bytes, call: Call, model: str) -> bytes:
    """The body to send: only a stripped model id changes it, in its place."""
    if model == call.model:
        return body
    boundary = body[2 : body.index(b"\r\n")].decode("latin-1")
    fields = form_fields(body, f'multipart/form-data; boundary="{boundary}"')
    return with_text(body, fields["model"], model)


def read_answer(body: bytes, _call: Call | None = None) -> Served:
    """The facts of a whole JSON answer; unreadable JSON has no usage."""
    return facts_of(body, openai_transcriptions)


def stream_meter(_call: Call) -> UsageEventMeter:
    """Pieces of text, then `transcript.text.done` with the usage."""
    return UsageEventMeter("transcript.text.done", openai_transcriptions)


DIALECT = openai_dialect(
    routes=frozenset({ROUTE}),
    parse=parse,
    prepare=prepare,
    read_answer=read_answer,
    stream_meter=stream_meter,
    passes_through=True,
)
