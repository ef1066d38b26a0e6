"""OpenAI and the providers that speak its dialect: the prompt includes what was cached, written and heard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from toolkit.core.conventions.counts import check_part, count, guarded, part, rest
from toolkit.core.usage import Usage, UsageProblem

ChatStyle = Literal["openai", "xai", "deepseek", "mistral", "groq", "openrouter", "exclusive"]
"""How a provider of this dialect counts."""


def openai_chat(raw: Any, style: ChatStyle = "openai") -> Usage | UsageProblem:
    """Chat completions: the prompt includes cached, written and audio tokens.

    `total_tokens`, where given, decides whether reasoning stands inside the output or beside it. Only a
    total tells an answer without output from one whose output was not reported.
    """
    return guarded(raw, _openai_chat)


def _openai_chat(raw: Mapping[str, Any]) -> Usage | UsageProblem:
    prompt, completion, total = (
        count(raw, name) for name in ("prompt_tokens", "completion_tokens", "total_tokens")
    )
    inside, made = part(raw, "prompt_tokens_details"), part(raw, "completion_tokens_details")
    cached, audio = count(inside, "cached_tokens"), count(inside, "audio_tokens")
    written, long_written = _openai_writes(inside)
    reasoning, spoken = count(made, "reasoning_tokens"), count(made, "audio_tokens")
    if prompt is None or (completion is None and total is None):
        return UsageProblem("usage_missing")
    if total is not None and prompt + (completion or 0) != total:
        if completion is None or prompt + completion + (reasoning or 0) != total:
            return UsageProblem("usage_inconsistent")
        completion += reasoning or 0
    check_part(reasoning, completion)
    check_part(spoken, completion or 0)  # without a count the total has proved that there was no output
    return Usage(
        input=rest(prompt, cached, audio, written, long_written),
        cache_read=cached,
        cache_write_5m=written,
        cache_write_1h=long_written,
        output=None if completion is None else rest(completion, spoken),
        reasoning=reasoning,
        audio_input=audio,
        audio_output=spoken,
    )


def _openai_writes(inside: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """OpenAI's 30-minute writes stand in the short meter, its 12-hour ones in the long one."""
    written = count(inside, "cache_write_tokens")
    long_written = count(part(inside, "cache_write_tokens_details"), "ttl_12h_tokens")
    if written is None or long_written is None:
        return written, long_written
    return rest(written, long_written), long_written
