"""Amazon Bedrock Converse: input excludes what was read from a cache and what was written to one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolkit.core.conventions.counts import (
    InconsistentUsage,
    InvalidUsage,
    MissingUsage,
    added,
    check_whole,
    count,
    entries,
    guarded,
)
from toolkit.core.usage import Usage, UsageProblem

_LIVES = ("5m", "1h")


def bedrock_converse(raw: Any) -> Usage | UsageProblem:
    """`usage` of Converse. `cacheDetails` says how long what was written lives; without it, five minutes."""
    return guarded(raw, _converse)


def _converse(raw: Mapping[str, Any]) -> Usage:
    plain, output = count(raw, "inputTokens"), count(raw, "outputTokens")
    read, written = count(raw, "cacheReadInputTokens"), count(raw, "cacheWriteInputTokens")
    if plain is None or output is None:
        raise MissingUsage
    by_life: dict[str, int] = {}
    for entry in entries(raw, "cacheDetails"):
        life, tokens = entry.get("ttl"), count(entry, "inputTokens")
        if life not in _LIVES or tokens is None:
            raise InvalidUsage
        by_life[life] = by_life.get(life, 0) + tokens
    check_whole(written, *by_life.values())
    short, long = by_life.get("5m"), by_life.get("1h")
    if not by_life:
        short = written
    total = count(raw, "totalTokens")
    # AWS defines the total as input and output; answers have what was cached in it.
    if total not in (None, plain + output, plain + output + added((read, short, long))):
        raise InconsistentUsage
    return Usage(input=plain, cache_read=read, cache_write_5m=short, cache_write_1h=long, output=output)
