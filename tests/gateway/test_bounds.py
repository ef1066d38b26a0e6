"""What a request's body says about its worst case: media, tools, choices, limits (contract §7)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.dialects import anthropic_messages, openai_chat
from gateway.dialects.base import Call


def chat(**fields: Any) -> Call:
    """A parsed chat request."""
    return openai_chat.parse(json.dumps({"model": "m", "messages": [], **fields}).encode())


def messages(**fields: Any) -> Call:
    """A parsed messages request."""
    return anthropic_messages.parse(json.dumps({"model": "m", "messages": [], **fields}).encode())


def test_the_larger_declared_limit_counts_and_choices_are_kept() -> None:
    bounds = chat(max_tokens=5, max_completion_tokens=9, n=3).bounds
    assert (bounds.output_limit, bounds.choices) == (9, 3)
    assert chat().bounds.output_limit is None
    assert chat(max_tokens=0).bounds.output_limit == 0


def test_inline_images_are_bounded_by_count_and_not_by_their_bytes() -> None:
    url = "data:image/png;base64," + "A" * 5_000
    part = {"type": "image_url", "image_url": {"url": url}}
    bounds = chat(messages=[{"role": "user", "content": [part, {"type": "text", "text": "what"}]}]).bounds
    assert bounds.body_bytes - bounds.text_bytes == len(url)
    assert bounds.media_tokens == openai_chat.IMAGE_TOKENS
    assert not bounds.reaches_out
    source = {"type": "base64", "media_type": "image/png", "data": "A" * 5_000}
    result = {"type": "tool_result", "content": [{"type": "image", "source": source}]}
    bounds = messages(messages=[{"role": "user", "content": [result]}]).bounds
    assert bounds.body_bytes - bounds.text_bytes == 5_000
    assert bounds.media_tokens == anthropic_messages.IMAGE_TOKENS


@pytest.mark.parametrize(
    "call",
    [
        chat(messages=[{"content": [{"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}]}]),
        chat(
            messages=[{"content": [{"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}]}]
        ),
        chat(messages=[{"content": [{"type": "file", "file": {"file_id": "f"}}]}]),
        chat(web_search_options={}),
        messages(
            messages=[{"content": [{"type": "image", "source": {"type": "url", "url": "https://x.test"}}]}]
        ),
        messages(messages=[{"content": [{"type": "document", "source": {"type": "base64", "data": "AA"}}]}]),
        messages(tools=[{"type": "web_search_20250305", "name": "web_search"}]),
        messages(mcp_servers=[{"url": "https://x.test"}]),
    ],
)
def test_what_a_body_does_not_hold_is_bounded_by_the_models_maximum(call: Call) -> None:
    assert call.bounds.reaches_out


def test_server_tools_read_the_prompt_again_and_cost_a_fee() -> None:
    bounds = messages(tools=[{"type": "web_search_20250305", "name": "web_search", "max_uses": 3}]).bounds
    assert bounds.turns == anthropic_messages.MOST_TURNS
    assert bounds.fees == (("web_search", 3),)
    own = messages(tools=[{"name": "mine", "input_schema": {}}]).bounds
    assert (own.turns, own.fees, own.reaches_out) == (1, (), False)
    assert own.media_tokens == anthropic_messages.TOOL_TOKENS


def test_tools_that_the_client_runs_make_the_provider_read_nothing_again() -> None:
    tools = [{"type": "bash_20250124", "name": "bash"}, {"type": "computer_20250124", "name": "computer"}]
    bounds = messages(tools=tools).bounds
    assert (bounds.turns, bounds.fees, bounds.reaches_out) == (1, (), False)
    assert bounds.media_tokens == 3 * anthropic_messages.TOOL_TOKENS
    assert (
        messages(tools=[*tools, {"type": "web_fetch_20250910"}]).bounds.turns == anthropic_messages.MOST_TURNS
    )


def test_a_chat_request_that_may_search_the_web_holds_its_fee() -> None:
    assert chat(web_search_options={}, n=2).bounds.fees == (("web_search", 2),)
    assert chat().bounds.fees == ()


def test_an_asked_tier_is_bounded_by_its_own_rates() -> None:
    assert chat(service_tier="priority").bounds.tier == "priority"
    assert chat(service_tier="auto").bounds.tier == "standard"


@pytest.mark.parametrize(
    ("fields", "writes"),
    [
        ({}, set()),
        ({"cache_control": {"type": "ephemeral"}}, {"cache_write_5m"}),
        ({"cache_control": {"type": "ephemeral", "ttl": "1h"}}, {"cache_write_5m", "cache_write_1h"}),
        (
            {"metadata": {"user_id": "\u00e9"}},
            {"cache_write_5m", "cache_write_1h"},
        ),  # an escape may spell any word
    ],
)
def test_a_messages_request_incurs_cache_writes_only_where_it_asks_for_them(
    fields: dict[str, Any], writes: set[str]
) -> None:
    assert messages(**fields).bounds.prompt_meters & {"cache_write_5m", "cache_write_1h"} == writes


def test_a_chat_request_may_be_written_to_the_cache_unasked() -> None:
    assert "cache_write_5m" in chat().bounds.prompt_meters
