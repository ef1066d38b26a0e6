"""Usage: each provider's counts to disjoint meters, or the reason why not."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from toolkit.core.conventions import anthropic_messages, openai_chat
from toolkit.core.money import LARGEST_INTEGER
from toolkit.core.usage import METERS, PROMPT_METERS, Usage, UsageProblem, within_receipt

Convention = Callable[[Any], Usage | UsageProblem]
CONVENTIONS = pytest.mark.parametrize("convention", [openai_chat, anthropic_messages])


def chat(prompt: Any, completion: Any, total: Any = None, *, inside: Any = None, made: Any = None) -> Any:
    return openai_chat(
        {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": total,
            "prompt_tokens_details": inside,
            "completion_tokens_details": made,
        }
    )


def messages(plain: Any = 10, output: Any = 5, **other: Any) -> Any:
    return anthropic_messages({"input_tokens": plain, "output_tokens": output} | other)


@CONVENTIONS
@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (None, "usage_missing"),
        ({}, "usage_missing"),
        ("10", "usage_invalid"),
        ([], "usage_invalid"),
        (0, "usage_invalid"),
    ],
)
def test_what_is_no_object_is_missing_or_invalid(convention: Convention, raw: Any, reason: str) -> None:
    assert convention(raw) == UsageProblem(reason)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [-1, True, "10", 1.0, 1.5, Decimal("10.0"), [], 2**63])
def test_a_count_is_a_whole_number_that_a_counter_can_hold(count: Any) -> None:
    assert chat(count, 5) == UsageProblem("usage_invalid")
    assert chat(10, count) == UsageProblem("usage_invalid")
    assert messages(plain=count) == UsageProblem("usage_invalid")
    assert messages(cache_read_input_tokens=count) == UsageProblem("usage_invalid")


@pytest.mark.parametrize("prompt", [LARGEST_INTEGER, LARGEST_INTEGER + 1])
def test_a_receipt_carries_no_count_beyond_2_to_the_53(prompt: int) -> None:
    usage = chat(prompt, 0, prompt)
    assert usage.input == prompt
    kept = usage if prompt == LARGEST_INTEGER else UsageProblem("usage_invalid")
    assert within_receipt(usage) == kept
    assert within_receipt(Usage(units={"web_search": prompt})) == (
        Usage(units={"web_search": prompt}) if prompt == LARGEST_INTEGER else UsageProblem("usage_invalid")
    )


def test_a_receipt_carries_no_sum_of_counts_beyond_2_to_the_53() -> None:
    assert within_receipt(Usage(input=LARGEST_INTEGER, output=1)) == UsageProblem("usage_invalid")
    assert within_receipt(UsageProblem("usage_missing")) == UsageProblem("usage_missing")


@pytest.mark.parametrize("part", ["x", 1, [1]])
def test_a_part_that_is_no_object_is_invalid(part: Any) -> None:
    assert chat(10, 5, 15, inside=part) == UsageProblem("usage_invalid")
    assert chat(10, 5, 15, made=part) == UsageProblem("usage_invalid")
    assert messages(cache_creation=part) == UsageProblem("usage_invalid")
    assert messages(iterations={"a": part}) == UsageProblem("usage_invalid")


def test_null_is_not_reported_and_zero_is_reported() -> None:
    assert chat(10, 5, 15, inside={"cached_tokens": None}).cache_read is None
    assert chat(10, 5, 15, inside={"cached_tokens": 0}).cache_read == 0
    assert chat(0, 0, 0) == Usage(input=0, output=0)
    assert messages(0, 0) == Usage(input=0, output=0)


def test_r119_openais_prompt_includes_cached_written_and_audio_tokens() -> None:
    usage = chat(
        1_000, 50, 1_050, inside={"cached_tokens": 600, "cache_write_tokens": 150, "audio_tokens": 50}
    )
    # 1,000 - 600 - 150 - 50 = 200
    assert usage == Usage(input=200, cache_read=600, cache_write_5m=150, audio_input=50, output=50)
    assert (usage.prompt, usage.tokens) == (1_000, 1_050)


def test_b58_two_conventions_give_the_same_meters() -> None:
    inclusive = chat(1_000, 50, 1_050, inside={"cached_tokens": 900})
    exclusive = messages(100, 50, cache_read_input_tokens=900)
    assert inclusive == exclusive == Usage(input=100, cache_read=900, output=50)


@pytest.mark.parametrize(("cached", "rest"), [(9, 1), (10, 0), (11, None)])
def test_b62_a_part_larger_than_the_prompt_is_invalid_never_negative(cached: int, rest: int | None) -> None:
    usage = chat(10, 5, 15, inside={"cached_tokens": cached})
    assert usage == (
        UsageProblem("usage_invalid") if rest is None else Usage(input=rest, cache_read=cached, output=5)
    )


@pytest.mark.parametrize(("spoken", "rest"), [(4, 1), (5, 0), (6, None)])
def test_spoken_tokens_are_inside_the_completion(spoken: int, rest: int | None) -> None:
    usage = chat(10, 5, 15, made={"audio_tokens": spoken})
    assert usage == (
        UsageProblem("usage_invalid") if rest is None else Usage(input=10, output=rest, audio_output=spoken)
    )


@pytest.mark.parametrize(
    ("total", "reasoning", "output"),
    [
        (None, 700, 1_000),  # inside, unless a total says otherwise
        (2_200, 700, 1_000),  # 1,200 + 1,000: inside (B64)
        (2_900, 700, 1_700),  # 1,200 + 1,000 + 700: beside
        (2_201, 700, None),
        (2_199, 700, None),
        (2_901, 700, None),
        (2_200, 1_000, 1_000),
        (2_200, 1_001, None),  # more reasoning than output
        (2_200, None, 1_000),
        (2_201, None, None),
    ],
)
def test_the_total_decides_where_reasoning_stands(
    total: int | None, reasoning: int | None, output: int | None
) -> None:
    usage = chat(1_200, 1_000, total, made={"reasoning_tokens": reasoning})
    if output is None:
        assert isinstance(usage, UsageProblem)
        assert usage.reason == ("usage_invalid" if reasoning == 1_001 else "usage_inconsistent")
    else:
        assert (usage.output, usage.reasoning, usage.tokens) == (output, reasoning, 1_200 + output)


@pytest.mark.parametrize(
    ("completion", "total", "expected"),
    [
        (None, 10, Usage(input=10)),  # an embedding: the total says that there is no output
        (None, None, UsageProblem("usage_missing")),  # nothing says so
        (None, 11, UsageProblem("usage_inconsistent")),
        (0, None, Usage(input=10, output=0)),
        (1, None, Usage(input=10, output=1)),
    ],
)
def test_an_absent_output_is_no_zero_unless_the_total_says_so(
    completion: int | None, total: int | None, expected: Usage | UsageProblem
) -> None:
    assert chat(10, completion, total) == expected


def test_an_output_without_a_prompt_is_no_usage() -> None:
    assert chat(None, 5, 5) == UsageProblem("usage_missing")
    assert messages(plain=None) == UsageProblem("usage_missing")
    assert messages(output=None) == UsageProblem("usage_missing")


@pytest.mark.parametrize(
    ("written", "long", "short_meter", "long_meter"),
    [
        (400, None, 400, None),
        (400, 150, 250, 150),
        (400, 400, 0, 400),
        (None, 150, None, 150),
    ],
)
def test_openais_twelve_hour_writes_are_a_part_of_its_writes(
    written: int | None, long: int | None, short_meter: int | None, long_meter: int | None
) -> None:
    inside = {"cache_write_tokens": written, "cache_write_tokens_details": {"ttl_12h_tokens": long}}
    usage = chat(1_000, 1, 1_001, inside=inside)
    assert (usage.cache_write_5m, usage.cache_write_1h, usage.prompt) == (short_meter, long_meter, 1_000)


def test_more_twelve_hour_writes_than_writes_are_invalid() -> None:
    inside = {"cache_write_tokens": 400, "cache_write_tokens_details": {"ttl_12h_tokens": 401}}
    assert chat(1_000, 1, 1_001, inside=inside) == UsageProblem("usage_invalid")


@pytest.mark.parametrize(
    ("created", "split", "short", "long"),
    [
        (2_000, None, 2_000, None),
        (2_000, {"ephemeral_5m_input_tokens": 1_500, "ephemeral_1h_input_tokens": 500}, 1_500, 500),
        (None, {"ephemeral_5m_input_tokens": 1_500, "ephemeral_1h_input_tokens": 500}, 1_500, 500),
        (2_000, {"ephemeral_1h_input_tokens": 2_000}, None, 2_000),
        (0, None, 0, None),
        (None, None, None, None),
    ],
)
def test_b70_anthropics_writes_are_split_by_how_long_they_live(
    created: int | None, split: Any, short: int | None, long: int | None
) -> None:
    usage = messages(cache_creation_input_tokens=created, cache_creation=split)
    assert (usage.input, usage.cache_write_5m, usage.cache_write_1h) == (10, short, long)


@pytest.mark.parametrize("created", [1_999, 2_001])
def test_b70_a_split_that_misses_its_total_is_inconsistent(created: int) -> None:
    split = {"ephemeral_5m_input_tokens": 1_500, "ephemeral_1h_input_tokens": 500}
    usage = messages(cache_creation_input_tokens=created, cache_creation=split)
    assert usage == UsageProblem("usage_inconsistent")


@pytest.mark.parametrize(("thinking", "reason"), [(4, None), (5, None), (6, "usage_invalid")])
def test_thinking_is_a_part_of_anthropics_output(thinking: int, reason: str | None) -> None:
    usage = messages(output_tokens_details={"thinking_tokens": thinking})
    assert getattr(usage, "reason", None) == reason
    assert reason or (usage.output, usage.reasoning) == (5, thinking)


def test_b76_b77_searches_are_counted_as_they_were_used() -> None:
    assert messages(server_tool_use={"web_search_requests": 2}).units == {"web_search": 2}
    assert messages(server_tool_use={"web_search_requests": 0}).units == {"web_search": 0}
    assert messages(server_tool_use={}).units == messages().units == {}


@pytest.mark.parametrize(
    ("turns", "reason"),
    [
        ([], None),
        ([{"type": "message"}], "usage_inconsistent"),
        ([{"type": "advisor_message"}], "usage_inconsistent"),
        ([{}], "usage_inconsistent"),
        ([5], "usage_invalid"),
        (5, "usage_invalid"),
        ("message", "usage_invalid"),
    ],
)
def test_turns_of_other_models_are_not_priced_as_this_one(turns: Any, reason: str | None) -> None:
    assert getattr(messages(iterations=turns), "reason", None) == reason


def test_meters_are_disjoint_and_reasoning_is_none_of_them() -> None:
    usage = Usage(**{meter: 10**place for place, meter in enumerate(METERS)}, reasoning=7)
    assert usage.meters() == {meter: 10**place for place, meter in enumerate(METERS)}
    assert usage.tokens == sum(usage.meters().values())
    assert usage.prompt == sum(usage.meters()[meter] for meter in PROMPT_METERS)
    assert Usage(input=0).meters() == {"input": 0}
    assert (Usage().prompt, Usage().tokens) == (0, 0)


def test_units_may_be_fractions_of_a_second() -> None:
    assert Usage(units={"seconds": Decimal("1.5")}).units["seconds"] == Decimal("1.5")


def test_spoken_tokens_without_a_count_of_output_are_a_part_larger_than_its_whole() -> None:
    raw = {"prompt_tokens": 1, "total_tokens": 1, "completion_tokens_details": {"audio_tokens": 1}}
    assert openai_chat(raw) == UsageProblem("usage_invalid")
