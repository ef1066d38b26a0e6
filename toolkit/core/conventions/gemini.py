"""Gemini: thoughts stand beside the candidates, what tools brought in beside the prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolkit.core.conventions.counts import (
    InconsistentUsage,
    InvalidUsage,
    MissingUsage,
    added,
    check_part,
    check_whole,
    count,
    entries,
    guarded,
    rest,
)
from toolkit.core.usage import Quantity, Usage, UsageProblem

_MADE = ("IMAGE", "VIDEO")
"""What comes out at a price of its own and has no meter."""
_TEXT = ("TEXT", "MODALITY_UNSPECIFIED")


def gemini(raw: Any) -> Usage | UsageProblem:
    """`usageMetadata` of generateContent, by the Gemini API or Vertex.

    Text, images, video and documents are one class of a prompt, as Google prices them; audio is another. Images and
    video that come out are classes of their own. `totalTokenCount` decides whether thoughts stand beside the
    candidates, and only it tells an answer without candidates from one whose candidates were not reported.
    """
    return guarded(raw, _gemini)


def _gemini(raw: Mapping[str, Any]) -> Usage:
    said, thoughts, tools = (
        count(raw, name) for name in ("candidatesTokenCount", "thoughtsTokenCount", "toolUsePromptTokenCount")
    )
    if (prompt := count(raw, "promptTokenCount")) is None:
        raise MissingUsage
    output = _output(prompt + (tools or 0), said, thoughts, count(raw, "totalTokenCount"))
    heard = _by_modality(raw, "promptTokensDetails", prompt).get("AUDIO")
    from_tools = _by_modality(raw, "toolUsePromptTokensDetails", tools).get("AUDIO")
    made = _by_modality(raw, "candidatesTokensDetails", said)
    cached = count(raw, "cachedContentTokenCount")
    cached_audio = _cached_audio(raw, cached, prompt, heard)
    audio = rest(added((heard, from_tools)), cached_audio)
    units: dict[str, Quantity] = {
        f"{kind.lower()}_output_tokens": made[kind] for kind in _MADE if kind in made
    }
    if cached_audio is not None:
        units["cache_read_audio_tokens"] = cached_audio
    return Usage(
        input=rest(prompt + (tools or 0), cached, audio),
        cache_read=None if cached is None else rest(cached, cached_audio),
        audio_input=None if heard is None and from_tools is None else audio,
        output=None
        if output is None
        else rest(output, made.get("AUDIO"), *[made.get(kind) for kind in _MADE]),
        audio_output=made.get("AUDIO"),
        reasoning=thoughts,
        units=units,
    )


def _output(prompt: int, said: int | None, thoughts: int | None, total: int | None) -> int | None:
    """The whole output, thoughts included; None where the total proves that there was none."""
    both = added((said, thoughts))
    if total is None:
        if said is None:
            raise MissingUsage
        return both
    if prompt + both == total:
        return None if said is None and thoughts is None else both
    if said is None or prompt + said != total:
        raise InconsistentUsage
    check_part(thoughts, said)
    return said


def _cached_audio(raw: Mapping[str, Any], cached: int | None, prompt: int, heard: int | None) -> int | None:
    """The audio in what was cached: what the details say, or all of it where the whole prompt is of one class."""
    details = _by_modality(raw, "cacheTokensDetails", cached)
    if not details and cached and heard:
        if heard != prompt:
            raise InconsistentUsage
        return cached
    check_part(details.get("AUDIO"), heard)
    return details.get("AUDIO")


def _by_modality(raw: Mapping[str, Any], name: str, whole: int | None) -> dict[str, int]:
    """A list of details as tokens by modality. They are parts of `whole`, and make it where text is among them."""
    tokens: dict[str, int] = {}
    for entry in entries(raw, name):
        kind = entry.get("modality") or "TEXT"
        if not isinstance(kind, str):
            raise InvalidUsage
        tokens[kind] = tokens.get(kind, 0) + (count(entry, "tokenCount") or 0)
    check_part(sum(tokens.values()), whole)
    if any(kind in tokens for kind in _TEXT):
        check_whole(whole, *tokens.values())
    return tokens
