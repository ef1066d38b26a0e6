"""What a Gemini request may cost at most, told from its body, however its fields are spelled."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.dialects.base import BadRequest
from gateway.dialects.gemini_request import IMAGE_TOKENS, MOST_TURNS, TOOL_TOKENS, bounds_of
from toolkit.core.estimate import CallBounds


def bounds(**fields: Any) -> CallBounds:
    """The bounds of a body with these fields."""
    return bounds_of(json.dumps({"contents": [{"parts": [{"text": "hi"}]}], **fields}).encode())


def part(**blob: Any) -> dict[str, Any]:
    """Contents with one more part."""
    return {"contents": [{"parts": [{"text": "hi"}, blob]}]}


def test_text_is_its_bytes() -> None:
    body = b'{"contents": [{"parts": [{"text": "hi"}]}]}'
    found = bounds_of(body)
    assert (found.body_bytes, found.text_bytes, found.media_tokens, found.reaches_out) == (43, 43, 0, False)
    assert (found.turns, found.choices, found.output_limit, found.fees) == (1, 1, None, ())
    assert found.prompt_meters == {"input", "cache_read"}


@pytest.mark.parametrize(
    ("fields", "limit", "choices"),
    [
        ({"generationConfig": {"maxOutputTokens": 7, "candidateCount": 3}}, 7, 3),
        ({"generation_config": {"max_output_tokens": 7, "candidate_count": 3}}, 7, 3),
        ({"generationConfig": {"max_output_tokens": 7}, "generation_config": {"maxOutputTokens": 9}}, 9, 1),
        ({"generationConfig": {"maxOutputTokens": 7, "thinkingConfig": {"thinkingBudget": 99}}}, 7, 1),
        ({"generationConfig": None}, None, 1),
        ({"generationConfig": {"candidateCount": 0}}, None, 1),
    ],
)
def test_limits_are_the_largest_that_is_declared(fields: Any, limit: int | None, choices: int) -> None:
    found = bounds(**fields)
    assert (found.output_limit, found.choices) == (limit, choices)


@pytest.mark.parametrize(
    "fields",
    [
        part(fileData={"fileUri": "gs://x"}),
        part(file_data={"file_uri": "https://x.test"}),
        part(inlineData={"mimeType": "audio/mp3", "data": "aGk="}),
        part(inlineData={"mimeType": "application/pdf", "data": "aGk="}),
        part(inline_data={"data": "aGk="}),
        part(functionResponse={"parts": [{"inlineData": {"mimeType": "video/mp4", "data": "aGk="}}]}),
        {"systemInstruction": {"parts": [{"fileData": {"fileUri": "x"}}]}},
        {"system_instruction": {"parts": [{"file_data": {"file_uri": "x"}}]}},
        {"cachedContent": "cachedContents/1"},
        {"cached_content": "cachedContents/1"},
    ],
)
def test_what_the_body_does_not_hold_reaches_out_and_may_be_audio(fields: Any) -> None:
    found = bounds(**fields)
    assert found.reaches_out
    assert found.turns == 1
    assert "audio_input" in found.prompt_meters


def test_a_file_spelled_with_an_escape_is_a_file() -> None:
    body = b'{"contents": [{"parts": [{"file\\u0044ata": {"fileUri": "x"}}]}]}'
    assert bounds_of(body).reaches_out


@pytest.mark.parametrize("name", ["inlineData", "inline_data"])
def test_an_inline_image_is_bounded_by_tokens_not_by_bytes(name: str) -> None:
    data = "A" * 4_000
    found = bounds(**part(**{name: {"mimeType": "image/png", "data": data}}))
    assert found.text_bytes == found.body_bytes - 4_000
    assert (found.media_tokens, found.reaches_out) == (IMAGE_TOKENS, False)
    assert "image" in found.prompt_meters


@pytest.mark.parametrize(
    "tool",
    [
        "googleSearch",
        "google_search",
        "urlContext",
        "codeExecution",
        "googleMaps",
        "fileSearch",
        "of_tomorrow",
    ],
)
def test_a_tool_that_the_provider_runs_reaches_out_and_reads_the_prompt_again(tool: str) -> None:
    found = bounds(tools=[{"functionDeclarations": []}, {tool: {}}])
    assert (found.reaches_out, found.turns) == (True, MOST_TURNS)
    assert (found.fees[0][0] if found.fees else None) == (
        "web_search" if "oogle" in tool and "earch" in tool else None
    )


def test_functions_are_the_clients_to_run() -> None:
    found = bounds(tools=[{"functionDeclarations": [{"name": "f"}]}])
    assert (found.reaches_out, found.turns, found.media_tokens) == (False, 1, TOOL_TOKENS)


def test_the_tier_that_is_asked_for_is_held_for() -> None:
    assert bounds(serviceTier="priority").tier == "priority"
    assert bounds(service_tier="FLEX").tier == "flex"
    assert bounds(serviceTier="standard").tier == "standard"


@pytest.mark.parametrize(
    "body",
    [
        b'{"generationConfig": {"maxOutputTokens": 100000, "maxOutputTokens": 1}}',
        b'{"generationConfig": {"maxOutputTokens": 1}, "generationConfig": {}}',
        b'{"generation\\u0043onfig": {"maxOutputTokens": 1}, "generationConfig": {}}',
    ],
)
def test_a_field_given_twice_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequest, match="more than once"):
        bounds_of(body)
