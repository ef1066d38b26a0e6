"""Conventions beside plain chat and messages: Responses, media, turns, Gemini, Bedrock, other providers' chats."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, get_args

import pytest

from toolkit.core.conventions import (
    ChatStyle,
    anthropic_messages,
    bedrock_converse,
    gemini,
    openai_chat,
    openai_embeddings,
    openai_images,
    openai_responses,
    openai_speech,
    openai_transcriptions,
)
from toolkit.core.usage import Usage, UsageProblem

MISSING, INVALID, INCONSISTENT = (
    UsageProblem("usage_missing"), UsageProblem("usage_invalid"), UsageProblem("usage_inconsistent")
)  # fmt: skip
CONVENTIONS = [
    anthropic_messages, bedrock_converse, gemini, openai_chat, openai_embeddings, openai_images, openai_responses,
    openai_speech, openai_transcriptions,
]  # fmt: skip
INCLUSIVE = [style for style in get_args(ChatStyle) if style != "exclusive"]


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_what_is_no_object_is_missing_or_invalid_in_every_convention(convention: Any) -> None:
    raws: tuple[Any, ...] = (None, {}, "10", [], 0)
    assert [convention(raw) for raw in raws] == [
        MISSING,
        MISSING,
        INVALID,
        INVALID,
        INVALID,
    ]


# --- chat of other providers --------------------------------------------------------------------


def chat(prompt: Any, completion: Any, total: Any = None, style: Any = "openai", **other: Any) -> Any:
    raw = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total}
    return openai_chat(raw | other, style)


@pytest.mark.parametrize("style", INCLUSIVE)
@pytest.mark.parametrize(("total", "output"), [(30, 20), (35, 25), (31, None)])
def test_a_total_decides_where_reasoning_stands_whoever_answers(
    style: str, total: int, output: int | None
) -> None:
    usage = chat(10, 20, total, style, completion_tokens_details={"reasoning_tokens": 5})
    assert (usage.output if output else usage) == (output or INCONSISTENT)


def test_without_a_total_reasoning_stands_inside_but_for_xai() -> None:
    made = {"reasoning_tokens": 25}
    assert chat(10, 20, None, "xai", completion_tokens_details=made).output == 45
    assert chat(10, 20, None, "openai", completion_tokens_details=made) == INVALID
    assert chat(10, None, None, "xai", completion_tokens_details=made) == MISSING


def test_an_absent_completion_is_what_the_total_leaves_to_reasoning() -> None:
    made = {"reasoning_tokens": 25}
    assert chat(10, None, 35, completion_tokens_details=made).output == 25
    assert chat(10, None, 36, completion_tokens_details=made) == INCONSISTENT


DEEPSEEK = {"prompt_cache_hit_tokens": 8, "prompt_cache_miss_tokens": 2}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (DEEPSEEK, Usage(input=2, cache_read=8, output=1)),
        (DEEPSEEK | {"prompt_tokens_details": {"cached_tokens": 8}}, Usage(input=2, cache_read=8, output=1)),
        (DEEPSEEK | {"prompt_tokens_details": {"cached_tokens": 7}}, INCONSISTENT),
        (DEEPSEEK | {"prompt_cache_miss_tokens": 3}, INCONSISTENT),
        (DEEPSEEK | {"prompt_cache_hit_tokens": 7}, INCONSISTENT),
        ({"prompt_cache_hit_tokens": 8}, Usage(input=2, cache_read=8, output=1)),
        ({"prompt_cache_miss_tokens": 10}, Usage(input=10, output=1)),
        (
            {"prompt_cache_hit_tokens": 0, "prompt_cache_miss_tokens": 10},
            Usage(input=10, cache_read=0, output=1),
        ),
    ],
)
def test_deepseeks_hits_and_misses_make_its_prompt_and_repeat_what_was_cached(
    said: dict[str, Any], expected: Usage | UsageProblem
) -> None:
    assert chat(10, 1, 11, "deepseek", **said) == expected


@pytest.mark.parametrize("total", [None, 110, 1_010])
def test_b62_cached_tokens_stand_beside_the_prompt_where_the_convention_is_declared_so(
    total: int | None,
) -> None:
    usage = chat(100, 10, total, "exclusive", prompt_tokens_details={"cached_tokens": 900})
    assert usage == Usage(input=100, cache_read=900, output=10)
    assert usage.prompt == 1_000


@pytest.mark.parametrize("total", [109, 111, 1_009, 910])
def test_b62_an_exclusive_total_has_the_cached_tokens_or_has_them_not(total: int) -> None:
    said = {"prompt_tokens_details": {"cached_tokens": 900}}
    assert chat(100, 10, total, "exclusive", **said) == INCONSISTENT


def test_an_exclusive_completion_has_its_reasoning_inside() -> None:
    made = {"completion_tokens_details": {"reasoning_tokens": 4}}
    assert chat(100, 10, 110, "exclusive", **made).output == 10
    assert chat(100, 10, 114, "exclusive", **made) == INCONSISTENT


@pytest.mark.parametrize(
    ("heard", "total", "expected"),
    [
        (203, 3_264, Usage(input=4, output=635, units={"seconds": 203})),
        (Decimal("12.5"), 639, Usage(input=4, output=635, units={"seconds": Decimal("12.5")})),
        (203, 638, INCONSISTENT),
        (0, 3_264, INCONSISTENT),
        (None, 3_264, INCONSISTENT),
        (0, 639, Usage(input=4, output=635, units={"seconds": 0})),
        (-1, 639, INVALID), ("3", 639, INVALID), (True, 639, INVALID), (1.5, 639, INVALID),
        (Decimal("-0.1"), 639, INVALID), (Decimal("NaN"), 639, INVALID), (Decimal("1e10"), 639, INVALID),
        (Decimal("1e-13"), 639, INVALID), (Decimal("1e-999999"), 639, INVALID), (Decimal("Infinity"), 639, INVALID),
    ],
)  # fmt: skip
def test_mistral_counts_what_it_hears_by_the_second(
    heard: Any, total: int, expected: Usage | UsageProblem
) -> None:
    assert chat(4, 635, total, "mistral", prompt_audio_seconds=heard) == expected
    raw = {"prompt_tokens": 4, "completion_tokens": 635, "total_tokens": total, "prompt_audio_seconds": heard}
    assert openai_transcriptions(raw) == expected


@pytest.mark.parametrize(
    ("said", "units"),
    [
        ({"server_tool_use": {"web_search_requests": 2}}, {"web_search": 2}),
        ({"server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 3}}, {"web_search": 0}),
        ({"server_tool_use": {"code_execution_requests": 1, "other": None}}, {"code_execution": 1}),
        ({"num_sources_used": 0}, {}),
        ({"num_sources_used": 4}, {"sources": 4}),
        ({"server_side_tool_usage_details": {"web_search_calls": 1, "x_search_calls": 3, "mcp_calls": 0}},
         {"web_search": 1, "x_search": 3}),
        ({"server_side_tool_usage_details": None}, {}),
    ],
)  # fmt: skip
def test_b77_what_tools_did_is_counted_by_name_and_never_dropped(
    said: dict[str, Any], units: dict[str, int]
) -> None:
    assert chat(1, 1, 2, **said).units == units
    assert openai_responses({"input_tokens": 1, "output_tokens": 1} | said) == Usage(
        input=1, output=1, units=units
    )


@pytest.mark.parametrize("name", ["server_tool_use", "server_side_tool_usage_details"])
@pytest.mark.parametrize(
    "used", [5, "x", {"web_search_calls": -1}, {"web_search_calls": True}, {"a": Decimal("1.5")}]
)
def test_a_tools_count_is_a_count(name: str, used: Any) -> None:
    assert chat(1, 1, 2, **{name: used}) == INVALID


# --- responses, embeddings ----------------------------------------------------------------------

RESPONSE = {
    "input_tokens": 2_600, "output_tokens": 40, "total_tokens": 2_640,
    "input_tokens_details": {"cached_tokens": 2_000, "cache_write_tokens": 400},
    "output_tokens_details": {"reasoning_tokens": 30},
}  # fmt: skip


def test_r119_the_input_of_a_response_includes_what_was_cached_and_written() -> None:
    usage = openai_responses(RESPONSE)
    assert usage == Usage(input=200, cache_read=2_000, cache_write_5m=400, output=40, reasoning=30)
    assert openai_responses(RESPONSE | {"total_tokens": 2_639}) == INCONSISTENT
    assert openai_responses(RESPONSE | {"output_tokens": None}) == INCONSISTENT


@pytest.mark.parametrize(
    ("split", "meters"),
    [
        ({"ttl_30m_tokens": 250, "ttl_12h_tokens": 150}, (250, 150)),
        ({"ttl_30m_tokens": 400, "ttl_12h_tokens": 0}, (400, 0)),
        ({"ttl_30m_tokens": 400}, (400, None)),
        ({"ttl_12h_tokens": 150}, (250, 150)),
        ({}, (400, None)),
        (None, (400, None)),
        ({"ttl_30m_tokens": 249, "ttl_12h_tokens": 150}, None),
    ],
)
def test_writes_are_split_by_how_long_they_live_and_the_split_makes_them(
    split: Any, meters: tuple[int, int | None] | None
) -> None:
    inside = {"cached_tokens": 2_000, "cache_write_tokens": 400, "cache_write_tokens_details": split}
    usage = openai_responses(RESPONSE | {"input_tokens_details": inside})
    if meters is None:
        assert usage == INCONSISTENT
    else:
        assert isinstance(usage, Usage)
        assert (usage.cache_write_5m, usage.cache_write_1h, usage.input) == (*meters, 200)


@pytest.mark.parametrize(
    ("tools", "units"),
    [
        ({"web_search": {"num_requests": 3}, "image_gen": None}, {"web_search": 3}),
        ({"web_search": {"num_requests": 0}}, {"web_search": 0}),
        ({}, {}),
        (None, {}),
    ],
)
def test_b76_a_response_is_charged_the_searches_it_made(tools: Any, units: dict[str, int]) -> None:
    found = openai_responses(RESPONSE, tools)
    assert isinstance(found, Usage)
    assert (found.units, found.tokens) == (units, 2_640)


IMAGE_GEN = {
    "input_tokens": 60, "input_tokens_details": {"text_tokens": 10, "image_tokens": 50}, "output_tokens": 400,
    "total_tokens": 460,
}  # fmt: skip


@pytest.mark.parametrize(
    ("tools", "expected"),
    [
        ({"image_gen": IMAGE_GEN},
         {"image_gen_input_tokens": 10, "image_gen_image_tokens": 50, "image_gen_image_output_tokens": 400}),
        ({"image_gen": IMAGE_GEN | {"input_tokens": 0, "input_tokens_details": {"text_tokens": 0, "image_tokens": 0},
                                    "output_tokens": 0, "total_tokens": 0}}, {}),
        ({"image_gen": IMAGE_GEN | {"total_tokens": 461}}, INCONSISTENT),
        ({"image_gen": {"output_tokens": 1}}, MISSING),
        ({"image_gen": {}}, {}),
        ({"file_search": {"num_requests": 2}}, {"file_search": 2}),
        ({"containers": {"minutes": 2}}, INCONSISTENT),
        ({"containers": {"minutes": 0}, "other": {}}, {}),
        ({"web_search": {"num_requests": -1}}, INVALID),
        ({"web_search": 3}, INVALID),
        ("web_search", INVALID),
    ],
)  # fmt: skip
def test_what_other_tools_used_is_named_or_the_usage_is_not_known(tools: Any, expected: Any) -> None:
    found = openai_responses(RESPONSE, tools)
    assert (found.units if isinstance(found, Usage) else found) == expected
    if isinstance(found, Usage):
        assert found.tokens == 2_640 + sum(
            tokens for name, tokens in found.units.items() if name.endswith("_tokens")
        )


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"prompt_tokens": 8, "total_tokens": 8}, Usage(input=8)),
        ({"prompt_tokens": 8}, Usage(input=8)),
        ({"prompt_tokens": 8, "total_tokens": None}, Usage(input=8)),
        ({"prompt_tokens": 8, "completion_tokens": 0, "total_tokens": 8}, Usage(input=8, output=0)),
        ({"prompt_tokens": 8, "completion_tokens": 0}, Usage(input=8, output=0)),
        ({"prompt_tokens": 8, "total_tokens": 9}, INCONSISTENT),
        ({"total_tokens": 8}, MISSING),
        ({"prompt_tokens": True}, INVALID),
    ],
)
def test_an_embedding_is_a_prompt_and_nothing_comes_out(raw: Any, expected: Usage | UsageProblem) -> None:
    assert openai_embeddings(raw) == expected


# --- media --------------------------------------------------------------------------------------


def drawn(inside: Any = None, outside: Any = None, read: Any = 1_000, made: Any = 4_160, **other: Any) -> Any:
    raw = {"input_tokens": read, "output_tokens": made, "input_tokens_details": inside} | other
    return openai_images(raw | {"output_tokens_details": outside})


SPLIT = {"text_tokens": 50, "image_tokens": 950}


@pytest.mark.parametrize(
    ("inside", "other", "expected"),
    [
        (SPLIT, {"total_tokens": 5_160}, Usage(input=50, image=950, units={"image_output_tokens": 4_160})),
        (SPLIT, {"total_tokens": 5_161}, INCONSISTENT),
        ({"text_tokens": 1_000}, {}, Usage(input=1_000, units={"image_output_tokens": 4_160})),
        ({"image_tokens": 1_000}, {}, Usage(input=0, image=1_000, units={"image_output_tokens": 4_160})),
        ({"text_tokens": 50}, {}, INCONSISTENT),
        ({}, {}, INCONSISTENT),
        (None, {}, INCONSISTENT),
        (SPLIT, {"cached_tokens": 40}, INCONSISTENT),
        (SPLIT, {"cached_tokens": 0}, Usage(input=50, image=950, units={"image_output_tokens": 4_160,
                                                                      "cache_read_image_tokens": 0})),
        (SPLIT | {"cached_tokens": 40, "cached_tokens_details": {"text_tokens": 30, "image_tokens": 10}}, {},
         Usage(input=20, cache_read=30, image=940,
               units={"image_output_tokens": 4_160, "cache_read_image_tokens": 10})),
        (SPLIT, {"cached_tokens": 40, "cached_tokens_details": {"cached_text_tokens": 30, "cached_image_tokens": 10}},
         Usage(input=20, cache_read=30, image=940,
               units={"image_output_tokens": 4_160, "cache_read_image_tokens": 10})),
        (SPLIT, {"cached_tokens": 41, "cached_tokens_details": {"text_tokens": 30, "image_tokens": 10}}, INCONSISTENT),
        (SPLIT, {"cached_tokens": 51, "cached_tokens_details": {"text_tokens": 51}}, INVALID),
        ({"text_tokens": 1_000}, {"cached_tokens": 40},
         Usage(input=960, cache_read=40, units={"image_output_tokens": 4_160})),
        ({"image_tokens": 1_000}, {"cached_tokens": 40},
         Usage(input=0, image=960, units={"image_output_tokens": 4_160, "cache_read_image_tokens": 40})),
        (SPLIT, {"output_tokens": None}, MISSING),
    ],
)  # fmt: skip
def test_an_image_reads_text_and_images_and_draws_image_tokens(
    inside: Any, other: Any, expected: Any
) -> None:
    found = drawn(inside, **other)
    assert found == expected
    if isinstance(found, Usage):
        assert (found.prompt, found.tokens) == (1_000, 5_160)


@pytest.mark.parametrize(
    ("outside", "expected"),
    [
        ({"image_tokens": 4_000, "text_tokens": 160}, (160, 4_000)),
        ({"image_tokens": 4_160}, (None, 4_160)),
        ({"image_tokens": 4_000}, None),
        ({"text_tokens": 4_160}, (4_160, 0)),
    ],
)
def test_what_an_image_model_writes_is_text(outside: Any, expected: tuple[int | None, int] | None) -> None:
    found = drawn(SPLIT, outside)
    if expected is None:
        assert found == INCONSISTENT
    else:
        assert (found.output, found.units["image_output_tokens"]) == expected


SVG = {
    "model": "gpt-6-astra",
    "input_tokens": 7,
    "output_tokens": 9,
    "reasoning_tokens": 3,
    "total_tokens": 16,
}


@pytest.mark.parametrize(
    ("svg", "expected"),
    [
        (SVG, {"gpt-6-astra/input": 7, "gpt-6-astra/output": 9}),
        (None, {}),
        (SVG | {"total_tokens": 19}, INCONSISTENT),
        (SVG | {"model": None}, INCONSISTENT),
        (SVG | {"model": ""}, INCONSISTENT),
        (SVG | {"input_tokens": None}, MISSING),
        (5, INVALID),
    ],
)
def test_an_svg_is_the_turn_of_the_model_that_it_names(svg: Any, expected: Any) -> None:
    raw = {"input_tokens": 0, "output_tokens": 5}
    found = openai_images(raw, svg)
    if isinstance(found, Usage):
        assert found.units == {"image_output_tokens": 5} | expected
        assert found.tokens == 5 + sum(expected.values())
    else:
        assert found == expected


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"type": "duration", "seconds": Decimal("61.5")}, Usage(units={"seconds": Decimal("61.5")})),
        ({"type": "duration", "seconds": 61}, Usage(units={"seconds": 61})),
        ({"seconds": 0}, Usage(units={"seconds": 0})),
        ({"type": "duration", "seconds": None}, MISSING),
        ({"type": "duration", "seconds": 61.5}, INVALID),
        ({"type": "duration", "seconds": "61.5"}, INVALID),
        ({"type": "tokens", "input_tokens": 14, "output_tokens": 45, "total_tokens": 59,
          "input_token_details": {"text_tokens": 0, "audio_tokens": 14}},
         Usage(input=0, audio_input=14, output=45)),
        ({"input_tokens": 14, "output_tokens": 45, "input_token_details": {"audio_tokens": 14}},
         Usage(audio_input=14, output=45)),
        ({"input_tokens": 14, "output_tokens": 45, "input_token_details": {"text_tokens": 1, "audio_tokens": 12}},
         INCONSISTENT),
        ({"input_tokens": 14, "output_tokens": 45}, INCONSISTENT),
        ({"input_tokens": 0, "output_tokens": 0}, Usage(output=0)),
        ({"input_tokens": 14}, MISSING),
    ],
)  # fmt: skip
def test_a_transcription_is_seconds_or_tokens_of_two_classes(
    raw: Any, expected: Usage | UsageProblem
) -> None:
    assert openai_transcriptions(raw) == expected


def test_speech_reads_text_and_speaks() -> None:
    assert openai_speech({"input_tokens": 9, "output_tokens": 200, "total_tokens": 209}) == Usage(
        input=9, audio_output=200
    )
    assert openai_speech({"input_tokens": 9, "output_tokens": 200, "total_tokens": 210}) == INCONSISTENT


# --- turns --------------------------------------------------------------------------------------


def turn(kind: str, plain: int = 0, output: int = 0, **other: Any) -> dict[str, Any]:
    return {"type": kind, "input_tokens": plain, "output_tokens": output} | other


def message(plain: int, output: int, turns: Any, model: str | None = "served", **other: Any) -> Any:
    return anthropic_messages(
        {"input_tokens": plain, "output_tokens": output, "iterations": turns} | other, model
    )


SAID = turn("message", 412, 89)
ADVICE = turn("advisor_message", 823, 1_612, model="adviser")
AGAIN = turn("message", 1_348, 442, cache_read_input_tokens=412)


@pytest.mark.parametrize(
    ("top", "turns", "own", "others"),
    [
        ((412, 89), [SAID], (412, 89), {}),
        ((412, 89), [turn("compaction", 180, 35), SAID], (592, 124), {}),
        ((412, 89), [turn("compaction", 180, 35)], (592, 124), {}),  # the top alone is the conversation
        ((412, 89), [SAID, ADVICE], (412, 89), {"adviser/input": 823, "adviser/output": 1_612}),
        ((412, 89), [ADVICE], (412, 89), {"adviser/input": 823, "adviser/output": 1_612}),
        # The top has the outputs of all turns, of the prompts it may have the first alone.
        ((412, 531), [SAID, ADVICE, AGAIN], (1_760, 531), {"adviser/input": 823, "adviser/output": 1_612}),
        ((412, 89), [SAID, ADVICE, ADVICE], (412, 89), {"adviser/input": 1_646, "adviser/output": 3_224}),
        ((412, 89), [SAID | {"model": "served"}], (412, 89), {}),
        ((412, 89), [SAID | {"model": "first"}, turn("fallback_message", 5, 6, model="served")], (5, 6),
         {"first/input": 412, "first/output": 89}),
        ((5, 6), [SAID | {"model": "first"}, turn("fallback_message", 5, 6, model="served")], (5, 6),
         {"first/input": 412, "first/output": 89}),
        ((417, 95), [SAID, turn("fallback_message", 5, 6, model="second")], (412, 89),
         {"second/input": 5, "second/output": 6}),
        ((412, 89), [SAID, turn("fallback_message", 5, 6, model="second")], (412, 89),
         {"second/input": 5, "second/output": 6}),
        ((412, 89), [SAID, turn("advisor_message", 0, 0, model="adviser")], (412, 89), {}),
        ((412, 89), [], (412, 89), {}),
        ((412, 89), None, (412, 89), {}),
    ],
)  # fmt: skip
def test_every_turn_is_billed_at_the_model_that_took_it(
    top: tuple[int, int], turns: Any, own: tuple[int, int], others: dict[str, int]
) -> None:
    found = message(*top, turns)
    assert ((found.input, found.output), found.units) == (own, others)
    assert found.tokens == sum(own) + (found.cache_read or 0) + sum(others.values())


def test_each_turn_has_its_own_cache_counts() -> None:
    turns = [
        turn("message", 10, 5, cache_read_input_tokens=7, cache_creation_input_tokens=6),
        turn("compaction", 1, 2, cache_creation={"ephemeral_1h_input_tokens": 3}),
        turn("advisor_message", 1, 1, model="adviser", cache_creation={"ephemeral_1h_input_tokens": 4}),
    ]
    found = message(10, 5, turns, cache_read_input_tokens=7, cache_creation_input_tokens=6)
    assert found == Usage(
        input=11, cache_read=7, cache_write_5m=6, cache_write_1h=3, output=7,
        units={"adviser/input": 1, "adviser/cache_write_1h": 4, "adviser/output": 1},
    )  # fmt: skip
    assert message(10, 5, turns) == INCONSISTENT  # the top lacks what the turns read and wrote


@pytest.mark.parametrize(
    ("turns", "problem"),
    [
        ([turn("message", 411, 89)], INCONSISTENT),
        ([turn("message", 412, 88)], INCONSISTENT),
        ([turn("message", 412, 89, cache_read_input_tokens=1)], INCONSISTENT),
        ([{"type": "message"}], INCONSISTENT),
        ([SAID, turn("odd", 1, 1)], INCONSISTENT),
        ([SAID, {}], INCONSISTENT),
        ([SAID, turn("advisor_message", 1, 1)], INCONSISTENT),
        ([SAID, turn("fallback_message", 1, 1)], INCONSISTENT),
        # The model that declined is not named, and the one that was served is another.
        ([SAID, turn("fallback_message", 5, 6, model="served")], INCONSISTENT),
        ([SAID, ADVICE | {"model": 5}], INVALID),
        ([SAID, ADVICE | {"input_tokens": -1}], INVALID),
        ([SAID, 5], INVALID),
        ({"0": SAID}, INVALID),
    ],
)
def test_turns_that_do_not_make_the_top_are_never_guessed(turns: Any, problem: UsageProblem) -> None:
    assert message(412, 89, turns) == problem


@pytest.mark.parametrize(
    ("credit", "problem"),
    [
        ({"status": {"type": "redeemed"}}, INCONSISTENT),
        ({"status": {"type": "not_applied", "reason": "expired"}}, None),
        ({"status": None}, None),
        (None, None),
        ({"status": "redeemed"}, INVALID),
    ],
)
def test_a_redeemed_credit_reprices_what_no_count_tells(credit: Any, problem: UsageProblem | None) -> None:
    found = message(1, 1, None, fallback_credit=credit)
    assert found == (problem or Usage(input=1, output=1))


def test_without_a_served_model_every_named_turn_stands_under_its_name() -> None:
    found = message(412, 89, [SAID | {"model": "m"}], model=None)
    assert found == Usage(units={"m/input": 412, "m/output": 89})
    assert (found.prompt, found.tokens) == (0, 501)


# --- gemini -------------------------------------------------------------------------------------


def generated(prompt: Any = 100, said: Any = 20, total: Any = None, **other: Any) -> Any:
    return gemini(
        {"promptTokenCount": prompt, "candidatesTokenCount": said, "totalTokenCount": total} | other
    )


def details(**tokens: int) -> list[dict[str, Any]]:
    return [{"modality": kind, "tokenCount": count} for kind, count in tokens.items()]


@pytest.mark.parametrize(
    ("said", "thoughts", "tools", "total", "output"),
    [
        (20, None, None, 120, 20),
        (20, 5, None, 125, 25),  # beside
        (20, 5, None, 120, 20),  # inside
        (20, 5, None, None, 25),
        (20, 5, 40, 165, 25),
        (20, 5, 40, 160, 20),
        (20, None, 40, 120, INCONSISTENT),  # tools stand beside the prompt
        (20, 5, None, 121, INCONSISTENT),
        (20, 25, None, 120, INVALID),  # more thoughts than what holds them
        (None, 5, None, 105, 5),
        (None, None, None, 100, None),  # the prompt was all
        (None, 5, None, 100, INCONSISTENT),
        (None, None, None, 101, INCONSISTENT),
        (None, None, None, None, MISSING),
        (None, 5, None, None, MISSING),
        (0, 0, 0, 100, 0),
    ],
)
def test_geminis_total_decides_where_thoughts_stand(
    said: Any, thoughts: Any, tools: Any, total: Any, output: Any
) -> None:
    found = generated(said=said, total=total, thoughtsTokenCount=thoughts, toolUsePromptTokenCount=tools)
    if isinstance(found, Usage):
        assert (found.input, found.output, found.reasoning) == (100 + (tools or 0), output, thoughts)
    else:
        assert found == output


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ({"cachedContentTokenCount": 60}, {"input": 40, "cache_read": 60}),
        ({"cachedContentTokenCount": 101}, INVALID),
        ({"promptTokensDetails": details(TEXT=70, AUDIO=30)}, {"input": 70, "audio_input": 30}),
        ({"promptTokensDetails": details(AUDIO=30)}, {"input": 70, "audio_input": 30}),
        ({"promptTokensDetails": details(TEXT=70, AUDIO=29)}, INCONSISTENT),
        ({"promptTokensDetails": details(MODALITY_UNSPECIFIED=70)}, INCONSISTENT),
        ({"promptTokensDetails": [{"tokenCount": 70}]}, INCONSISTENT),
        ({"promptTokensDetails": [{"modality": "AUDIO"}, *details(TEXT=100)]}, {"input": 100, "audio_input": 0}),
        ({"promptTokensDetails": details(AUDIO=101)}, INVALID),
        ({"promptTokensDetails": details(TEXT=10, IMAGE=40, VIDEO=30, DOCUMENT=20)}, {"input": 100}),
        ({"promptTokensDetails": [{"modality": 5, "tokenCount": 1}]}, INVALID),
        ({"promptTokensDetails": [5]}, INVALID),
        ({"promptTokensDetails": {"AUDIO": 5}}, INVALID),
        ({"promptTokensDetails": details(AUDIO=-1)}, INVALID),
        ({"promptTokensDetails": details(TEXT=70, AUDIO=30), "cachedContentTokenCount": 60,
          "cacheTokensDetails": details(TEXT=50, AUDIO=10)},
         {"input": 20, "cache_read": 50, "audio_input": 20, "units": {"cache_read_audio_tokens": 10}}),
        ({"promptTokensDetails": details(AUDIO=100), "cachedContentTokenCount": 60},
         {"input": 0, "cache_read": 0, "audio_input": 40, "units": {"cache_read_audio_tokens": 60}}),
        ({"promptTokensDetails": details(TEXT=100), "cachedContentTokenCount": 60}, {"input": 40, "cache_read": 60}),
        ({"promptTokensDetails": details(TEXT=70, AUDIO=30), "cachedContentTokenCount": 60}, INCONSISTENT),
        ({"cachedContentTokenCount": 60, "cacheTokensDetails": details(AUDIO=10)}, INVALID),
        ({"cacheTokensDetails": details(AUDIO=10)}, INVALID),
        ({"toolUsePromptTokenCount": 50, "toolUsePromptTokensDetails": details(AUDIO=20)},
         {"input": 130, "audio_input": 20}),
        ({"toolUsePromptTokensDetails": details(AUDIO=20)}, INVALID),
        ({"promptTokenCount": None}, MISSING),
        ({"promptTokenCount": 1.0}, INVALID),
    ],
)  # fmt: skip
def test_geminis_prompt_has_audio_and_what_was_cached_inside(other: Any, expected: Any) -> None:
    found = generated(**other)
    if isinstance(expected, UsageProblem):
        assert found == expected
    else:
        assert found == Usage(output=20, **expected)
        assert found.prompt == 100 + other.get("toolUsePromptTokenCount", 0)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (details(TEXT=20), {"output": 20}),
        (details(TEXT=5, IMAGE=15), {"output": 5, "units": {"image_output_tokens": 15}}),
        (details(IMAGE=15), {"output": 5, "units": {"image_output_tokens": 15}}),
        (details(VIDEO=20), {"output": 0, "units": {"video_output_tokens": 20}}),
        (details(AUDIO=20), {"output": 0, "audio_output": 20}),
        (details(IMAGE=10, **{"DOCUMENT": 10}), {"output": 10, "units": {"image_output_tokens": 10}}),
        (details(IMAGE=21), INVALID),
        (details(TEXT=5, IMAGE=14), INCONSISTENT),
        ([{"modality": "IMAGE", "tokenCount": 7}] * 2, {"output": 6, "units": {"image_output_tokens": 14}}),
    ],
)  # fmt: skip
def test_what_gemini_makes_beside_text_is_of_a_class_of_its_own(made: Any, expected: Any) -> None:
    found = generated(candidatesTokensDetails=made)
    if isinstance(expected, UsageProblem):
        assert found == expected
    else:
        assert found == Usage(input=100, **expected)
        assert found.tokens == 120


# --- bedrock ------------------------------------------------------------------------------------

CONVERSE = {"inputTokens": 10, "outputTokens": 3, "cacheReadInputTokens": 50, "cacheWriteInputTokens": 20}
SHORT, LONG = {"ttl": "5m", "inputTokens": 15}, {"ttl": "1h", "inputTokens": 5}


@pytest.mark.parametrize(
    ("other", "writes"),
    [
        ({}, (20, None)),
        ({"totalTokens": 83}, (20, None)),
        ({"totalTokens": 13}, (20, None)),
        ({"totalTokens": 14}, INCONSISTENT),
        ({"cacheDetails": [SHORT, LONG]}, (15, 5)),
        ({"cacheDetails": [SHORT, LONG], "totalTokens": 83}, (15, 5)),
        ({"cacheDetails": [SHORT, LONG], "cacheWriteInputTokens": None, "totalTokens": 83}, (15, 5)),
        ({"cacheDetails": [LONG, LONG, LONG, LONG]}, (None, 20)),
        ({"cacheDetails": []}, (20, None)),
        ({"cacheDetails": [SHORT]}, INCONSISTENT),
        ({"cacheDetails": [{"ttl": "2h", "inputTokens": 20}]}, INVALID),
        ({"cacheDetails": [{"ttl": "5m"}]}, INVALID),
        ({"cacheDetails": [{"ttl": ["5m"], "inputTokens": 20}]}, INVALID),
        ({"cacheDetails": {"5m": 20}}, INVALID),
        ({"inputTokens": None}, MISSING),
        ({"outputTokens": None}, MISSING),
        ({"outputTokens": "3"}, INVALID),
    ],
)
def test_converse_counts_what_was_cached_beside_its_input(other: Any, writes: Any) -> None:
    found = bedrock_converse(CONVERSE | other)
    if isinstance(writes, UsageProblem):
        assert found == writes
    else:
        assert found == Usage(
            input=10, cache_read=50, cache_write_5m=writes[0], cache_write_1h=writes[1], output=3
        )
        assert (found.prompt, found.tokens) == (80, 83)
