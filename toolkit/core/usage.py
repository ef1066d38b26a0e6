"""Usage: what a provider says it served, as disjoint meters.

Each provider counts by its own convention (OpenAI's prompt includes cached and written tokens, Anthropic's
input excludes them). A convention is one function here: raw usage in, `Usage` or a `UsageProblem` out, never
a guess. Counts that are absent stay None; counts reported as zero stay 0. A part that is larger than its
whole is invalid; parts that miss a stated total are inconsistent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal

from toolkit.core.money import LARGEST_INTEGER

Quantity = int | Decimal
"""A count of units; seconds may be fractional and are then a Decimal."""

METERS = (
    "input",
    "cache_read",
    "cache_write_5m",
    "cache_write_1h",
    "output",
    "audio_input",
    "audio_output",
    "image",
)
"""The token meters that add up to what was billed. `reasoning` is a part of output and not among them."""

PROMPT_METERS = ("input", "cache_read", "cache_write_5m", "cache_write_1h", "audio_input", "image")

UsageReason = Literal["usage_missing", "usage_invalid", "usage_inconsistent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens per disjoint meter; None = not reported. `units` counts what is not tokens, by name."""

    input: int | None = None
    cache_read: int | None = None
    cache_write_5m: int | None = None
    cache_write_1h: int | None = None
    output: int | None = None
    reasoning: int | None = None
    audio_input: int | None = None
    audio_output: int | None = None
    image: int | None = None
    units: Mapping[str, Quantity] = field(default_factory=dict)

    def meters(self) -> dict[str, int]:
        """The meters that were reported, zeros included."""
        return {name: count for name in METERS if (count := getattr(self, name)) is not None}

    @property
    def prompt(self) -> int:
        """The whole prompt, cached and written tokens included: what a long-context threshold looks at."""
        whole = (self.input or 0) + (self.cache_read or 0) + (self.cache_write_5m or 0)
        return whole + (self.cache_write_1h or 0) + (self.audio_input or 0) + (self.image or 0)

    @property
    def tokens(self) -> int:
        """Everything that was billed as tokens."""
        return self.prompt + (self.output or 0) + (self.audio_output or 0)


@dataclass(frozen=True, slots=True)
class UsageProblem:
    """Why a usage cannot be priced."""

    reason: UsageReason


class _InvalidUsage(ValueError):
    pass


def openai_chat(raw: Any) -> Usage | UsageProblem:
    """OpenAI chat completions and embeddings: the prompt includes cached, written and audio tokens.

    `total_tokens`, where given, decides whether reasoning stands inside the output or beside it. Only a
    total tells an answer without output from one whose output was not reported.
    """
    return _guarded(raw, _openai_chat)


def anthropic_messages(raw: Any) -> Usage | UsageProblem:
    """Anthropic messages: input excludes cache reads and writes; a write is for minutes or an hour.

    Without both input and output nothing is known: the answer has no usage.
    """
    return _guarded(raw, _anthropic_messages)


_Convention = Callable[[Mapping[str, Any]], Usage | UsageProblem]


def _guarded(raw: Any, convention: _Convention) -> Usage | UsageProblem:
    if not isinstance(raw, Mapping):
        return UsageProblem("usage_missing" if raw is None else "usage_invalid")
    try:
        return convention(raw)
    except _InvalidUsage:
        return UsageProblem("usage_invalid")


def _openai_chat(raw: Mapping[str, Any]) -> Usage | UsageProblem:
    prompt, completion, total = (
        _count(raw, name) for name in ("prompt_tokens", "completion_tokens", "total_tokens")
    )
    inside, made = _part(raw, "prompt_tokens_details"), _part(raw, "completion_tokens_details")
    cached, audio = _count(inside, "cached_tokens"), _count(inside, "audio_tokens")
    written, long_written = _openai_writes(inside)
    reasoning, spoken = _count(made, "reasoning_tokens"), _count(made, "audio_tokens")
    if prompt is None or (completion is None and total is None):
        return UsageProblem("usage_missing")
    if total is not None and prompt + (completion or 0) != total:
        if completion is None or prompt + completion + (reasoning or 0) != total:
            return UsageProblem("usage_inconsistent")
        completion += reasoning or 0
    _check_part(reasoning, completion)
    _check_part(spoken, completion or 0)  # without a count the total has proved that there was no output
    return Usage(
        input=_rest(prompt, cached, audio, written, long_written),
        cache_read=cached,
        cache_write_5m=written,
        cache_write_1h=long_written,
        output=None if completion is None else _rest(completion, spoken),
        reasoning=reasoning,
        audio_input=audio,
        audio_output=spoken,
    )


def _openai_writes(inside: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """OpenAI's 30-minute writes stand in the short meter, its 12-hour ones in the long one."""
    written = _count(inside, "cache_write_tokens")
    long_written = _count(_part(inside, "cache_write_tokens_details"), "ttl_12h_tokens")
    if written is None or long_written is None:
        return written, long_written
    return _rest(written, long_written), long_written


def _anthropic_messages(raw: Mapping[str, Any]) -> Usage | UsageProblem:
    plain, output = _count(raw, "input_tokens"), _count(raw, "output_tokens")
    created = _count(raw, "cache_creation_input_tokens")
    split = _part(raw, "cache_creation")
    short, long = _count(split, "ephemeral_5m_input_tokens"), _count(split, "ephemeral_1h_input_tokens")
    reasoning = _count(_part(raw, "output_tokens_details"), "thinking_tokens")
    searches = _count(_part(raw, "server_tool_use"), "web_search_requests")
    if plain is None or output is None:
        return UsageProblem("usage_missing")
    if short is None and long is None:
        short = created
    elif created is not None and (short or 0) + (long or 0) != created:
        return UsageProblem("usage_inconsistent")
    if _has_other_turns(raw):
        return UsageProblem("usage_inconsistent")
    _check_part(reasoning, output)
    return Usage(
        input=plain,
        cache_read=_count(raw, "cache_read_input_tokens"),
        cache_write_5m=short,
        cache_write_1h=long,
        output=output,
        reasoning=reasoning,
        units={"web_search": searches} if searches is not None else {},
    )


def _has_other_turns(raw: Mapping[str, Any]) -> bool:
    """Whether compaction or advisor turns stand beside the top-level counts, at other models' prices."""
    turns = raw.get("iterations")
    if turns is None:
        return False
    if not isinstance(turns, list) or not all(isinstance(turn, Mapping) for turn in turns):
        raise _InvalidUsage
    return any(turn.get("type") != "message" for turn in turns)


def _rest(whole: int, *parts: int | None) -> int:
    rest = whole - sum([part or 0 for part in parts])
    if rest < 0:
        raise _InvalidUsage
    return rest


def _check_part(part: int | None, whole: int | None) -> None:
    if (part or 0) > (whole or 0):
        raise _InvalidUsage


def _part(raw: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = raw.get(name)
    if part is None:
        return {}
    if not isinstance(part, Mapping):
        raise _InvalidUsage
    return part


def _count(raw: Mapping[str, Any], name: str) -> int | None:
    """A token count, or None when absent; a bool, a text, a fraction or a negative number is not one."""
    count = raw.get(name)
    if count is None:
        return None
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= LARGEST_INTEGER:
        raise _InvalidUsage
    return count
