"""The dialects, and which of them a path belongs to."""

from __future__ import annotations

from gateway.dialects import anthropic_messages, openai_chat
from gateway.dialects.base import Dialect

DIALECTS: tuple[Dialect, ...] = (openai_chat.DIALECT, anthropic_messages.DIALECT)

_BY_ROUTE = {route: dialect for dialect in DIALECTS for route in dialect.routes}


def dialect_of(path: str) -> Dialect | None:
    """The dialect that serves a path, None for a route that cannot be metered."""
    return _BY_ROUTE.get(path)
