"""What a request to OpenAI's responses says about its size: what the body holds, what it refers to, what may run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from gateway.dialects.base import (
    JUST_A_BODY,
    Arrival,
    BadRequest,
    Body,
    Call,
    check_model,
    decode,
    output_limit,
)
from gateway.dialects.openai_shape import prompt_meters
from toolkit.core.estimate import CallBounds
from toolkit.core.money import LARGEST_INTEGER
from toolkit.core.tiers import openai_tier

IMAGE_TOKENS = 50_000
"""More than any listed vision model charges for one image."""
MOST_TURNS = 10
"""How often the provider's own tools may make the model read its prompt, where the request sets no bound."""
DEFAULT_SEARCHES = 10
WINDOWS = ("2h", "8h")
"""Discounted background windows. An answer does not tell which it was, so the request's word stands for the tier."""

_RUN_BY_CLIENT = frozenset(
    {"function", "custom", "namespace", "computer", "computer_use_preview", "local_shell", "apply_patch"}
)
"""Tools that the client runs: the model does not go on by itself after them."""
_WHOLE_ITEMS = frozenset(
    {
        "message",
        "reasoning",
        "compaction",
        "function_call",
        "function_call_output",
        "custom_tool_call",
        "custom_tool_call_output",
        "computer_call",
        "computer_call_output",
        "local_shell_call",
        "local_shell_call_output",
        "shell_call",
        "shell_call_output",
        "apply_patch_call",
        "apply_patch_call_output",
    }
)
"""Items that hold all they say; any other may stand for content that the provider keeps."""
_TEXT_PARTS = frozenset(
    {None, "input_text", "output_text", "summary_text", "reasoning_text", "text", "refusal"}
)
_IMAGE_PARTS = frozenset({"input_image", "computer_screenshot"})
_ABSENT = msgspec.Raw(b"")


class _Tool(msgspec.Struct):
    type: str | None = None
    environment: Any = None


class _BackgroundOptions(msgspec.Struct):
    completion_window: str | None = None


class _Request(Body):
    model: str
    input: msgspec.Raw = _ABSENT
    stream: bool | None = None
    background: bool | None = None
    background_options: _BackgroundOptions | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    tools: list[_Tool] | None = None
    service_tier: str | None = None
    previous_response_id: Any = None
    conversation: Any = None
    prompt: Any = None
    context_management: Any = None


class _Item(msgspec.Struct):
    type: str | None = None
    content: msgspec.Raw = _ABSENT
    output: msgspec.Raw = _ABSENT


class _Part(msgspec.Struct):
    type: str | None = None
    image_url: str | None = None


_items = msgspec.json.Decoder(list[_Item])
_parts = msgspec.json.Decoder(list[_Part] | _Part)


def parse(body: bytes, _arrival: Arrival = JUST_A_BODY) -> Call:
    """What a request says about itself. Raises BadRequest."""
    request: _Request = decode(_Request, body)
    check_model(request.model)
    hosted = [tool for tool in request.tools or () if not _run_by_client(tool)]
    most_calls = _most_tool_calls(request)
    inline_bytes, media_tokens, reaches_out = _media(bytes(request.input))
    referred = (request.previous_response_id, request.conversation, request.prompt)
    return Call(
        model=request.model,
        stream=bool(request.stream),
        background=bool(request.background),
        bounds=CallBounds(
            body_bytes=len(body),
            text_bytes=len(body) - inline_bytes,
            media_tokens=media_tokens,
            reaches_out=reaches_out or bool(hosted) or any(each is not None for each in referred),
            turns=_turns(request, hosted, most_calls),
            output_limit=output_limit(request.max_output_tokens),
            prompt_meters=prompt_meters(body),
            tier=_asked_tier(request),
            fees=_fees(hosted, most_calls),
        ),
    )


def _asked_tier(request: _Request) -> str:
    """The tier whose price the request may incur; `fast` is served, and answered, as `priority`."""
    window = None if request.background_options is None else request.background_options.completion_window
    if window in WINDOWS:
        return window
    return "priority" if request.service_tier == "fast" else openai_tier(request.service_tier)


def _run_by_client(tool: _Tool) -> bool:
    if tool.type == "shell":
        return isinstance(tool.environment, Mapping) and tool.environment.get("type") == "local"
    return tool.type in _RUN_BY_CLIENT


def _most_tool_calls(request: _Request) -> int | None:
    most = request.max_tool_calls
    if most is not None and not 0 <= most <= LARGEST_INTEGER:
        raise BadRequest("max_tool_calls must be a whole number, zero or more.")
    return most


def _turns(request: _Request, hosted: list[_Tool], most_calls: int | None) -> int:
    """Readings of the prompt: one, one after each call of a hosted tool, and one more where it may be compacted."""
    calls = 0 if not hosted else MOST_TURNS - 1 if most_calls is None else most_calls
    return 1 + calls + (request.context_management is not None)


def _fees(hosted: list[_Tool], most_calls: int | None) -> tuple[tuple[str, int], ...]:
    """The paid tools it allows, with their most uses; a tool whose fee is not listed has none to hold."""
    if not any((tool.type or "").startswith("web_search") for tool in hosted):
        return ()
    return (("web_search", DEFAULT_SEARCHES if most_calls is None else most_calls),)


def _media(raw: bytes) -> tuple[int, int, bool]:
    """(bytes of inline images, tokens they may cost, whether something must be fetched or cannot be bounded)."""
    if not raw.startswith(b"["):
        return 0, 0, False
    inline_bytes = media_tokens = 0
    reaches_out = False
    try:
        for item in _items.decode(raw):
            if item.type not in _WHOLE_ITEMS and (item.type is not None or not item.content):
                reaches_out = True
            for part in _parts_of(item):
                if part.type in _IMAGE_PARTS and (part.image_url or "").startswith("data:"):
                    inline_bytes += len((part.image_url or "").encode())
                    media_tokens += IMAGE_TOKENS
                elif part.type not in _TEXT_PARTS:
                    reaches_out = True
    except (
        msgspec.MsgspecError
    ):  # shapes that are not ours to know: they are bounded by what the model can read
        return 0, 0, True
    return inline_bytes, media_tokens, reaches_out


def _parts_of(item: _Item) -> Iterator[_Part]:
    """Every part of an item's content, or of what a tool gave back; a text is no part."""
    for held in (bytes(item.content), bytes(item.output)):
        if held.startswith((b"[", b"{")):
            found = _parts.decode(held)
            yield from found if isinstance(found, list) else (found,)
