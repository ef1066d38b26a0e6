"""OpenAI images: text and image tokens where the answer counts them, pictures by the piece where it does not."""

from __future__ import annotations

import re
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
    with_model,
)
from gateway.dialects.openai_shape import (
    openai_dialect,
    provider_cost,
)
from toolkit.core.conventions import openai_images
from toolkit.core.estimate import CallBounds
from toolkit.core.usage import PROMPT_METERS, UsageProblem

ROUTE = "/v1/images/generations"

PIXELS_PER_TOKEN = 200
"""Fewer than any listed model draws with one output token: at its best quality 1024 by 1024 takes 4,160."""
MOST_PIXELS = 3_840 * 2_160
"""The largest picture that a listed model draws, for a request that leaves the size to it."""
PARTIAL_TOKENS = 100
"""What each picture that a stream shows before the last one adds."""
MOST_PARTIALS = 100

_SIZE = re.compile(r"(\d{1,5})x(\d{1,5})", re.ASCII)
_COMPLETED = "image_generation.completed"


class _Request(Body):
    model: str
    n: int | None = None
    size: str | None = None
    stream: bool | None = None
    partial_images: int | None = None


class _Answer(msgspec.Struct):
    type: str | None = None
    data: list[msgspec.Raw] | None = None
    usage: Any = None
    svg_usage: Any = None
    error: Any = None


_answer = msgspec.json.Decoder(_Answer, float_hook=Decimal)


def parse(body: bytes, _arrival: Arrival = JUST_A_BODY) -> Call:
    """What a request for pictures says about itself. Raises BadRequest."""
    request: _Request = decode(_Request, body)
    check_model(request.model)
    pictures = 1 if request.n is None else request.n
    partials = request.partial_images or 0
    if not 1 <= pictures <= MOST_CHOICES:
        raise BadRequest("n must be a whole number of images, one or more.")
    if not 0 <= partials <= MOST_PARTIALS:
        raise BadRequest("partial_images must be a whole number, zero or more.")
    return Call(
        model=request.model,
        stream=bool(request.stream),
        bounds=CallBounds(
            body_bytes=len(body),
            text_bytes=len(body),
            prompt_meters=frozenset(PROMPT_METERS),
            output_limit=_pixels(request.size) // PIXELS_PER_TOKEN + 1 + PARTIAL_TOKENS * partials,
            limits_output=False,
            choices=pictures,
            fees=(("images", pictures),),
        ),
    )


def _pixels(size: str | None) -> int:
    """Those of a size that is told as width and height; any other may be the largest."""
    told = _SIZE.fullmatch(size or "")
    return MOST_PIXELS if told is None else int(told[1]) * int(told[2])


def read_answer(body: bytes, _call: Call | None = None) -> Served:
    """The facts of a whole JSON answer; one without usage says at least how many pictures it holds."""
    try:
        answer = _answer.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return Served()
    return _served(answer, len(answer.data or ()))


class ImageStreamMeter:
    """Partial pictures, then one `image_generation.completed` with the usage. Two would not say what they add up to."""

    def __init__(self, _call: Call) -> None:
        self._completed: list[_Answer] = []
        self._failed = False

    def event(self, data: bytes | None) -> Handling:
        """Note the usage of the picture that is complete, and hold it back."""
        if data is None or (b'"error"' not in data and _COMPLETED.encode() not in data):
            return Handling.FORWARD
        try:
            event = _answer.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return Handling.FORWARD
        self._failed |= event.type == "error" or event.error is not None
        if event.type != _COMPLETED:
            return Handling.FORWARD
        self._completed.append(event)
        return Handling.FINAL

    def complete(self) -> bool:
        """A complete picture came, and no error."""
        return bool(self._completed) and not self._failed

    def served(self) -> Served:
        """What the events said so far."""
        if not self._completed:
            return Served()
        if len(self._completed) > 1 and any(event.usage is not None for event in self._completed):
            return Served(usage=UsageProblem("usage_inconsistent"))
        return _served(self._completed[0], len(self._completed))


def _served(answer: _Answer, pictures: int) -> Served:
    return Served(
        usage=openai_images(answer.usage, answer.svg_usage),
        units={"images": pictures} if pictures else None,
        provider_cost_nano_usd=provider_cost(answer.usage),
    )


DIALECT = openai_dialect(
    routes=frozenset({ROUTE}),
    parse=parse,
    prepare=with_model,
    read_answer=read_answer,
    stream_meter=ImageStreamMeter,
)
