"""Usage in streams: what of several usage objects counts.

A provider repeats its counts as they grow, so nothing is ever added. Chat, Responses and Gemini say the whole again:
the last one stands (`last_usage`). Anthropic says field by field what has changed: of each field the last value that
is not null stands (`merge_fields`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_Fields = Mapping[str, Any] | None


def merge_fields(known: _Fields, news: _Fields) -> _Fields:
    """Anthropic: what was known, with the fields of a later event that are not null."""
    if news is None:
        return known
    return {**(known or {}), **{name: value for name, value in news.items() if value is not None}}


def merged(events: Iterable[_Fields]) -> _Fields:
    """Anthropic: the usage that `message_start` and every `message_delta` say together."""
    known: _Fields = None
    for news in events:
        known = merge_fields(known, news)
    return known


def last_usage(chunks: Iterable[Any]) -> Any:
    """Chat, Responses, Gemini: the last usage that is not null; None when there was none."""
    said = [usage for usage in chunks if usage is not None]
    return said[-1] if said else None
