"""Usage conventions: one function per API, raw usage in, `Usage` or a `UsageProblem` out, never a guess.

`raw` is the usage object as `json.loads(text, parse_float=Decimal)` reads it.

counts     what is a count, and what does not add up    tools      searches and other units
openai     chat, responses, embeddings, transcriptions  openai_media  images and audio
anthropic  messages and their turns                     gemini     generateContent
bedrock    Converse                                     streams    which of several usage objects counts
"""

from __future__ import annotations

from toolkit.core.conventions.anthropic import anthropic_messages
from toolkit.core.conventions.bedrock import bedrock_converse
from toolkit.core.conventions.gemini import gemini
from toolkit.core.conventions.openai import (
    ChatStyle,
    openai_chat,
    openai_embeddings,
    openai_responses,
    openai_transcriptions,
)
from toolkit.core.conventions.openai_media import openai_images, openai_speech
from toolkit.core.conventions.streams import last_usage, merge_fields, merged

__all__ = [
    "ChatStyle",
    "anthropic_messages",
    "bedrock_converse",
    "gemini",
    "last_usage",
    "merge_fields",
    "merged",
    "openai_chat",
    "openai_embeddings",
    "openai_images",
    "openai_responses",
    "openai_speech",
    "openai_transcriptions",
]
