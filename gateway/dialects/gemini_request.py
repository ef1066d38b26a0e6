"""What a Gemini request may cost at most, told from its body. Every field may be spelled in camel or snake case."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from gateway.dialects.base import MOST_CHOICES, BadRequest, Body, decode, output_limit, parsed
from toolkit.core.estimate import CallBounds
from toolkit.core.tiers import gemini_tier

IMAGE_TOKENS = 10_000
"""More than Gemini charges for one image: at most 24 tiles of 258 tokens, or 2,240 at the highest resolution."""
TOOL_TOKENS = 1_000
"""More than the words that Gemini adds when it may call functions or run tools of its own."""
MOST_TURNS = 10
"""How often a tool that the provider runs may make the model read its prompt again."""
MOST_SEARCHES = 10
"""Search queries of one grounded answer; Google states no bound, and more than a few are rare."""

_CLIENT_TOOLS = frozenset({"functionDeclarations", "function_declarations"})
"""Tools that the client runs; whatever else a tool has, the provider runs."""
_SEARCH_TOOLS = frozenset(
    {"googleSearch", "google_search", "googleSearchRetrieval", "google_search_retrieval"}
)
_TEXT_METERS = frozenset({"input", "cache_read"})
_IMAGE_METERS = _TEXT_METERS | {"image"}
_ANY_METER = _IMAGE_METERS | {"audio_input"}
_MEDIA = re.compile(rb'"(?:inlineData|inline_data|fileData|file_data)"')


class _Request(Body):
    contents: msgspec.Raw = msgspec.Raw(b"null")
    systemInstruction: msgspec.Raw = msgspec.Raw(b"null")
    system_instruction: msgspec.Raw = msgspec.Raw(b"null")
    generationConfig: msgspec.Raw = msgspec.Raw(b"{}")
    generation_config: msgspec.Raw = msgspec.Raw(b"{}")
    tools: list[dict[str, Any]] | dict[str, Any] | None = None
    cachedContent: Any = None
    cached_content: Any = None
    serviceTier: str | None = None
    service_tier: str | None = None


class _Config(Body):
    maxOutputTokens: int | None = None
    max_output_tokens: int | None = None
    candidateCount: int | None = None
    candidate_count: int | None = None


def bounds_of(body: bytes) -> CallBounds:
    """The bounds of a request body. Raises BadRequest."""
    request: _Request = decode(_Request, body)
    configs = [_config(raw) for raw in (request.generationConfig, request.generation_config)]
    limits = [limit for config in configs for limit in (config.maxOutputTokens, config.max_output_tokens)]
    tools = set().union(*([request.tools] if isinstance(request.tools, dict) else request.tools or ()))
    hosted = tools - _CLIENT_TOOLS
    media = _Media.of(request)
    cached = request.cachedContent is not None or request.cached_content is not None
    choices = _choices(configs)
    return CallBounds(
        body_bytes=len(body),
        text_bytes=len(body) - media.inline_bytes,
        media_tokens=media.tokens + (TOOL_TOKENS if tools else 0),
        reaches_out=media.reaches_out or cached or bool(hosted),
        turns=MOST_TURNS if hosted else 1,
        output_limit=output_limit(*limits),
        choices=choices,
        prompt_meters=_ANY_METER if media.reaches_out or cached or hosted else _meters(media),
        tier=gemini_tier(request.serviceTier or request.service_tier),
        fees=(("web_search", MOST_SEARCHES * choices),) if hosted & _SEARCH_TOOLS else (),
    )


def _config(raw: msgspec.Raw) -> _Config:
    body = bytes(raw)
    config: _Config = decode(_Config, b"{}" if body == b"null" else body)
    return config


def _choices(configs: list[_Config]) -> int:
    counts = [
        count
        for config in configs
        for count in (config.candidateCount, config.candidate_count)
        if count is not None
    ]
    if any(not 0 <= count <= MOST_CHOICES for count in counts):
        raise BadRequest("candidateCount must be a whole number of candidates, one or more.")
    return max(counts, default=1) or 1  # a zero is Google's word for none given


class _Media(msgspec.Struct):
    """What a request holds beside text: inline images with the tokens they may cost, and what cannot be bounded."""

    inline_bytes: int = 0
    tokens: int = 0
    reaches_out: bool = False

    @classmethod
    def of(cls, request: _Request) -> _Media:
        """Of the contents and the system's instruction."""
        media = cls()
        for raw in (request.contents, request.systemInstruction, request.system_instruction):
            text = bytes(raw)
            if _MEDIA.search(text) is not None or b"\\u" in text:  # an escape may spell any of the words
                for item in _objects(parsed(text)):
                    media.note(item)
        return media

    def note(self, item: Mapping[str, Any]) -> None:
        """Count one object's media: an image's tokens are bounded, a file's or a recording's are not."""
        for name in ("fileData", "file_data"):
            self.reaches_out |= item.get(name) is not None
        for name in ("inlineData", "inline_data"):
            blob = item.get(name)
            if not isinstance(blob, dict):
                continue
            data, kind = blob.get("data"), blob.get("mimeType", blob.get("mime_type"))
            if isinstance(data, str) and isinstance(kind, str) and kind.lower().startswith("image/"):
                self.inline_bytes += len(data.encode())
                self.tokens += IMAGE_TOKENS
            else:
                self.reaches_out = True


def _meters(media: _Media) -> frozenset[str]:
    return _IMAGE_METERS if media.tokens else _TEXT_METERS


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Every object within a value, at any depth: what a function answered may hold parts of its own."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            yield item
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
