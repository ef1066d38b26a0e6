"""The dialects, and which of them a path belongs to."""

from __future__ import annotations

from gateway.dialects import (
    anthropic_messages,
    gemini,
    openai_chat,
    openai_completions,
    openai_embeddings,
    openai_images,
    openai_moderations,
    openai_responses,
    openai_speech,
    openai_transcriptions,
)
from gateway.dialects.base import Dialect

DIALECTS: tuple[Dialect, ...] = (
    openai_chat.DIALECT,
    openai_responses.DIALECT,
    openai_completions.DIALECT,
    openai_embeddings.DIALECT,
    openai_moderations.DIALECT,
    openai_images.DIALECT,
    openai_transcriptions.DIALECT,
    openai_speech.DIALECT,
    anthropic_messages.DIALECT,
    gemini.GENERATE,
    gemini.STREAM,
)

_BY_ROUTE = {route: dialect for dialect in DIALECTS for route in dialect.routes}
_BY_PATTERN = [(dialect.pattern, dialect) for dialect in DIALECTS if dialect.pattern is not None]


def dialect_of(path: str) -> Dialect | None:
    """The dialect that serves a path, None for a route that cannot be metered."""
    exact = _BY_ROUTE.get(path)
    if exact is not None:
        return exact
    return next((dialect for pattern, dialect in _BY_PATTERN if pattern.fullmatch(path)), None)


def shape_of(path: str) -> Dialect:
    """The dialect whose refusals the SDK reads that came to a path, metered or not."""
    if path.startswith(("/v1beta/", "/v1/models/")):
        return gemini.GENERATE
    return anthropic_messages.DIALECT if path.startswith("/v1/messages") else openai_chat.DIALECT
