"""Usage conventions: one function per API, raw usage in, `Usage` or a `UsageProblem` out, never a guess.

`raw` is the usage object as `json.loads(text, parse_float=Decimal)` reads it.
"""

from __future__ import annotations

from toolkit.core.conventions.anthropic import anthropic_messages
from toolkit.core.conventions.openai import ChatStyle, openai_chat

__all__ = ["ChatStyle", "anthropic_messages", "openai_chat"]
