"""Anthropic: input excludes what was read from a cache and what was written to one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolkit.core.conventions.counts import InvalidUsage, check_part, count, guarded, part
from toolkit.core.usage import Usage, UsageProblem


def anthropic_messages(raw: Any) -> Usage | UsageProblem:
    """Anthropic messages: input excludes cache reads and writes; a write is for minutes or an hour.

    Without both input and output nothing is known: the answer has no usage.
    """
    return guarded(raw, _anthropic_messages)


def _anthropic_messages(raw: Mapping[str, Any]) -> Usage | UsageProblem:
    plain, output = count(raw, "input_tokens"), count(raw, "output_tokens")
    created = count(raw, "cache_creation_input_tokens")
    split = part(raw, "cache_creation")
    short, long = count(split, "ephemeral_5m_input_tokens"), count(split, "ephemeral_1h_input_tokens")
    reasoning = count(part(raw, "output_tokens_details"), "thinking_tokens")
    searches = count(part(raw, "server_tool_use"), "web_search_requests")
    if plain is None or output is None:
        return UsageProblem("usage_missing")
    if short is None and long is None:
        short = created
    elif created is not None and (short or 0) + (long or 0) != created:
        return UsageProblem("usage_inconsistent")
    if _has_other_turns(raw):
        return UsageProblem("usage_inconsistent")
    check_part(reasoning, output)
    return Usage(
        input=plain,
        cache_read=count(raw, "cache_read_input_tokens"),
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
        raise InvalidUsage
    return any(turn.get("type") != "message" for turn in turns)
