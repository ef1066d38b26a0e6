"""OpenAI's images and transcriptions: tokens by what they carry, or seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolkit.core.conventions.counts import (
    InconsistentUsage,
    MissingUsage,
    check_part,
    check_whole,
    count,
    guarded,
    part,
    rest,
    seconds,
)
from toolkit.core.usage import Quantity, Usage, UsageProblem


def openai_images(raw: Any, svg_usage: Any = None) -> Usage | UsageProblem:
    """Images: text and image tokens in, image tokens out (`image_output_tokens`), text where it says so.

    `svg_usage` stands beside `usage` in the answer: the turn of another model, which it names. A model that is
    priced by the image has no usage.
    """
    return guarded(raw, lambda usage: _with_svg(images(usage), svg_usage))


def openai_speech(raw: Any) -> Usage | UsageProblem:
    """Speech as events: the text that went in, the audio that came out. As audio it reports no usage."""
    return guarded(raw, _speech)


def _speech(raw: Mapping[str, Any]) -> Usage:
    read, spoken = _input_and_output(raw)
    return Usage(input=read, audio_output=spoken)


def images(raw: Mapping[str, Any]) -> Usage:
    """The usage of `openai_images` without an SVG; raises the problems of `counts`."""
    whole, made = _input_and_output(raw)
    inside, outside = part(raw, "input_tokens_details"), part(raw, "output_tokens_details")
    text, drawn = _classes(whole, count(inside, "text_tokens"), count(inside, "image_tokens"))
    cached_text, cached_images = _cached_classes(raw, inside, text, drawn)
    words = count(outside, "text_tokens")
    pictures = count(outside, "image_tokens")
    check_whole(made, words, pictures)
    units: dict[str, Quantity] = {"image_output_tokens": rest(made, words)}
    if cached_images is not None:
        units["cache_read_image_tokens"] = cached_images
    return Usage(
        input=rest(text or 0, cached_text),
        image=None if drawn is None else rest(drawn, cached_images),
        cache_read=cached_text,
        output=words,
        units=units,
    )


def transcription(raw: Mapping[str, Any]) -> Usage:
    """The usage of OpenAI's transcriptions, of tokens or of a duration; raises the problems of `counts`."""
    heard = seconds(raw, "seconds")
    if heard is not None:
        return Usage(units={"seconds": heard})
    whole, made = _input_and_output(raw)
    inside = part(raw, "input_token_details")
    text, audio = _classes(whole, count(inside, "text_tokens"), count(inside, "audio_tokens"))
    return Usage(input=text, audio_input=audio, output=made)


def _input_and_output(raw: Mapping[str, Any]) -> tuple[int, int]:
    whole, made, total = (count(raw, name) for name in ("input_tokens", "output_tokens", "total_tokens"))
    if whole is None or made is None:
        raise MissingUsage
    check_whole(total, whole, made)
    return whole, made


def _classes(whole: int, plain: int | None, other: int | None) -> tuple[int | None, int | None]:
    """The two classes of an input, which cost differently: they make it, and without them nobody knows."""
    if whole and plain is None and other is None:
        raise InconsistentUsage
    check_whole(whole, plain, other)
    return plain, other


def _cached_classes(
    raw: Mapping[str, Any], inside: Mapping[str, Any], text: int | None, drawn: int | None
) -> tuple[int | None, int | None]:
    """What was cached of (text, images): as the answer splits it, or all of the one class that there is."""
    place = inside if "cached_tokens" in inside else raw
    cached, split = count(place, "cached_tokens"), part(place, "cached_tokens_details")
    cached_text = _either(split, "text_tokens", "cached_text_tokens")
    cached_images = _either(split, "image_tokens", "cached_image_tokens")
    if cached is not None and cached_text is None and cached_images is None:
        if cached and text and drawn:
            raise InconsistentUsage
        cached_text, cached_images = (None, cached) if drawn else (cached, None)
    check_whole(cached, cached_text, cached_images)
    check_part(cached_text, text)
    check_part(cached_images, drawn)
    return cached_text, cached_images


def _either(raw: Mapping[str, Any], *names: str) -> int | None:
    return next((found for name in names if (found := count(raw, name)) is not None), None)


def _with_svg(usage: Usage, svg_usage: Any) -> Usage:
    drawn = part({"svg_usage": svg_usage}, "svg_usage")
    if not drawn:
        return usage
    read, made = _input_and_output(drawn)
    model = drawn.get("model")
    if not isinstance(model, str) or not model:
        raise InconsistentUsage
    return Usage(**usage.meters(), units={**usage.units, f"{model}/input": read, f"{model}/output": made})
