"""OpenAI and the providers that speak its dialect: the prompt includes what was cached, written and heard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from toolkit.core.conventions.counts import (
    InconsistentUsage,
    MissingUsage,
    added,
    check_part,
    check_whole,
    count,
    guarded,
    part,
    rest,
    seconds,
)
from toolkit.core.conventions.openai_media import images, transcription
from toolkit.core.conventions.tools import tools_of
from toolkit.core.usage import Quantity, Usage, UsageProblem

ChatStyle = Literal["openai", "xai", "deepseek", "mistral", "groq", "openrouter", "exclusive"]
"""How a provider of this dialect counts. Two differ where nothing in the answer says so: `xai` puts reasoning
beside the completion, `exclusive` puts cached and written tokens beside the prompt."""


class _Names(NamedTuple):
    prompt: str
    output: str
    inside: str
    made: str


_CHAT = _Names("prompt_tokens", "completion_tokens", "prompt_tokens_details", "completion_tokens_details")
_RESPONSES = _Names("input_tokens", "output_tokens", "input_tokens_details", "output_tokens_details")


def openai_chat(raw: Any, style: ChatStyle = "openai") -> Usage | UsageProblem:
    """Chat completions: the prompt includes cached, written and audio tokens.

    `total_tokens`, where given, decides whether reasoning stands inside the output or beside it. Only a
    total tells an answer without output from one whose output was not reported.
    """
    return guarded(raw, lambda usage: _text(usage, _CHAT, style))


def openai_responses(raw: Any, tool_usage: Any = None) -> Usage | UsageProblem:
    """Responses: `usage`, and `tool_usage` that stands beside it in the answer.

    Image generation has tokens of its own outside `usage`, of a model that the answer does not name: they become
    `image_gen_…_tokens`.
    """
    return guarded(raw, lambda usage: _responses(usage, tool_usage))


def openai_embeddings(raw: Any) -> Usage | UsageProblem:
    """Embeddings and moderations: a prompt, and nothing comes out."""
    return guarded(raw, _embeddings)


def openai_transcriptions(raw: Any) -> Usage | UsageProblem:
    """Transcriptions: audio and text tokens, or seconds of audio; Mistral's count as its chats do."""
    return guarded(raw, _transcription)


def _transcription(raw: Mapping[str, Any]) -> Usage:
    return _text(raw, _CHAT, "mistral") if _CHAT.prompt in raw else transcription(raw)


def _embeddings(raw: Mapping[str, Any]) -> Usage:
    silent = count(raw, _CHAT.output) is None and count(raw, "total_tokens") is None
    return _text({**raw, "total_tokens": raw.get(_CHAT.prompt)} if silent else raw, _CHAT, "openai")


def _responses(raw: Mapping[str, Any], tool_usage: Any) -> Usage:
    usage = _text(raw, _RESPONSES, "openai")
    tools = part({"tool_usage": tool_usage}, "tool_usage")
    units: dict[str, Quantity] = dict(usage.units)
    for tool in tools:
        used = part(tools, tool)
        if tool == "image_gen":
            units |= _image_generation(used)
        elif (times := count(used, "num_requests")) is not None:
            units[tool] = times
        elif any(used.values()):
            raise InconsistentUsage  # something was used, and nothing says how much of it is billed
    return _with_units(usage, units)


def _image_generation(used: Mapping[str, Any]) -> dict[str, Quantity]:
    if not used:
        return {}
    made = images(used)
    tokens = {f"image_gen_{meter}_tokens": tokens for meter, tokens in made.meters().items()}
    units = {f"image_gen_{unit}": tokens for unit, tokens in made.units.items()}
    return {name: tokens for name, tokens in (tokens | units).items() if tokens}


def _text(raw: Mapping[str, Any], names: _Names, style: ChatStyle) -> Usage:
    prompt, output, total = count(raw, names.prompt), count(raw, names.output), count(raw, "total_tokens")
    inside, made = part(raw, names.inside), part(raw, names.made)
    if prompt is None:
        raise MissingUsage
    audio, spoken, reasoning = (
        count(inside, "audio_tokens"), count(made, "audio_tokens"), count(made, "reasoning_tokens")
    )  # fmt: skip
    cached, written, long_written = _cached(raw, inside, prompt), *_writes(inside)
    heard = seconds(raw, "prompt_audio_seconds")
    beside = added((cached, written, long_written)) if style == "exclusive" else 0
    if heard and total is not None:
        # Mistral bills what it hears by the second: those tokens stand in the total alone.
        total = min(total, prompt + (output or 0))
    whole = _output(prompt, output, reasoning, total, beside, style)
    check_part(reasoning, whole)
    check_part(spoken, whole)
    units: dict[str, Quantity] = tools_of(raw)
    if heard is not None:
        units["seconds"] = heard
    return Usage(
        input=rest(prompt + beside, cached, audio, written, long_written),
        cache_read=cached,
        cache_write_5m=written,
        cache_write_1h=long_written,
        output=None if whole is None else rest(whole, spoken),
        reasoning=reasoning,
        audio_input=audio,
        audio_output=spoken,
        units=units,
    )


def _output(
    prompt: int, output: int | None, reasoning: int | None, total: int | None, beside: int, style: ChatStyle
) -> int | None:
    """The whole output, reasoning included, as the total has it; None where it proves that there was none."""
    within, all_of_it = output, (output or 0) + (reasoning or 0)
    if total is None:
        if output is None:
            raise MissingUsage
        return all_of_it if style == "xai" else within
    wholes = {prompt, prompt + beside}
    if any(whole + (output or 0) == total for whole in wholes):
        return within
    if any(whole + all_of_it == total for whole in wholes) and style != "exclusive":
        return all_of_it
    raise InconsistentUsage


def _cached(raw: Mapping[str, Any], inside: Mapping[str, Any], prompt: int) -> int | None:
    """What was read from a cache. DeepSeek says it twice, and what it missed: the two make its prompt."""
    cached = count(inside, "cached_tokens")
    hit, miss = count(raw, "prompt_cache_hit_tokens"), count(raw, "prompt_cache_miss_tokens")
    if hit is None:
        return cached
    check_whole(cached, hit)
    if miss is not None:
        check_whole(prompt, hit, miss)
    return hit


def _writes(inside: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """OpenAI's 30-minute writes stand in the short meter, its 12-hour ones in the long one."""
    written, split = count(inside, "cache_write_tokens"), part(inside, "cache_write_tokens_details")
    short, long = count(split, "ttl_30m_tokens"), count(split, "ttl_12h_tokens")
    if written is None or short is not None:
        check_whole(written, short, long)
        return short, long
    return (written, None) if long is None else (rest(written, long), long)


def _with_units(usage: Usage, units: Mapping[str, Quantity]) -> Usage:
    """The same usage, its units exchanged."""
    return Usage(**usage.meters(), reasoning=usage.reasoning, units=units)
