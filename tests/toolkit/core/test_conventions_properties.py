"""Whatever a provider reports: disjoint meters that make the billed total, and costs that follow them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.toolkit.core.builders import AT, prices, row
from toolkit.core.conventions import (
    anthropic_messages,
    bedrock_converse,
    gemini,
    last_usage,
    merge_fields,
    merged,
    openai_chat,
    openai_embeddings,
    openai_images,
    openai_responses,
    openai_speech,
    openai_transcriptions,
)
from toolkit.core.pricing import Priced, exact_price
from toolkit.core.usage import METERS, PROMPT_METERS, PROMPT_UNITS, Usage, UsageProblem

small = st.integers(0, 9)
maybe = st.one_of(st.none(), small)


def total_or_none(draw: st.DrawFn, total: int) -> int | None:
    return total if draw(st.booleans()) else None


# Each generator makes an honest answer: (raw usage, whole prompt, all that is billed as tokens).
Honest = tuple[dict[str, Any], int, int]


@st.composite
def chats(draw: st.DrawFn, names: tuple[str, str, str, str], style: str = "openai") -> Honest:
    plain, cached, short, long, heard = (draw(small) for _ in range(5))
    said, spoken, thought = (draw(small) for _ in range(3))
    inside = {
        "cached_tokens": cached,
        "audio_tokens": heard,
        "cache_write_tokens": short + long,
        "cache_write_tokens_details": {"ttl_30m_tokens": short, "ttl_12h_tokens": long},
    }
    beside = draw(st.booleans()) and style != "exclusive"  # where reasoning stands
    apart = style == "exclusive"
    whole = plain + cached + short + long + heard
    prompt = plain + heard if apart else whole
    output = said + spoken + (0 if beside else thought)
    billed = whole + said + spoken + thought
    total = (prompt if apart and draw(st.booleans()) else whole) + said + spoken + thought
    raw = {
        names[0]: prompt,
        names[1]: output,
        names[2]: inside,
        names[3]: {"audio_tokens": spoken, "reasoning_tokens": thought},
        "total_tokens": total if beside else total_or_none(draw, total),
    }
    return raw, whole, billed


@st.composite
def messages(draw: st.DrawFn) -> Honest:
    def counts() -> tuple[dict[str, Any], int, int]:
        plain, read, short, long, output = (draw(small) for _ in range(5))
        raw: dict[str, Any] = {
            "input_tokens": plain,
            "cache_read_input_tokens": read,
            "output_tokens": output,
        }
        if draw(st.booleans()):
            raw["cache_creation"] = {"ephemeral_5m_input_tokens": short, "ephemeral_1h_input_tokens": long}
        if draw(st.booleans()) or "cache_creation" not in raw:
            raw["cache_creation_input_tokens"] = short + long
        return raw, plain + read + short + long, output

    raw, prompt, output = counts()
    billed = prompt + output
    turns = [{"type": "message", **raw}]
    for kind in draw(st.lists(st.sampled_from(["compaction", "advisor_message"]), max_size=3)):
        turn, read, made = counts()
        other = kind == "advisor_message"
        turns.append({"type": kind, **turn} | ({"model": "adviser"} if other else {}))
        prompt += 0 if other else read
        billed += read + made
    if len(turns) > 1 or draw(st.booleans()):
        raw = raw | {"iterations": draw(st.permutations(turns))}
    return raw, prompt, billed


@st.composite
def generations(draw: st.DrawFn) -> Honest:
    text, picture, heard, cached_text, cached_heard, tools = (draw(small) for _ in range(6))
    said, drawn, spoken, thought = (draw(small) for _ in range(4))
    prompt = text + picture + heard + cached_text + cached_heard
    beside = draw(st.booleans())
    candidates = said + drawn + spoken + (0 if beside else thought)
    total = prompt + tools + said + drawn + spoken + thought

    def modalities(**tokens: int) -> list[dict[str, Any]]:
        return [{"modality": kind, "tokenCount": count} for kind, count in tokens.items()]

    raw = {
        "promptTokenCount": prompt,
        "promptTokensDetails": modalities(TEXT=text + cached_text, IMAGE=picture, AUDIO=heard + cached_heard),
        "cachedContentTokenCount": cached_text + cached_heard,
        "cacheTokensDetails": modalities(TEXT=cached_text, AUDIO=cached_heard),
        "toolUsePromptTokenCount": tools,
        "candidatesTokenCount": candidates,
        "candidatesTokensDetails": modalities(IMAGE=drawn, AUDIO=spoken),
        "thoughtsTokenCount": thought,
        "totalTokenCount": total_or_none(draw, total) if beside else total,
    }
    return raw, prompt + tools, total


@st.composite
def converses(draw: st.DrawFn) -> Honest:
    plain, read, short, long, output = (draw(small) for _ in range(5))
    total = plain + read + short + long + output
    raw = {
        "inputTokens": plain,
        "outputTokens": output,
        "cacheReadInputTokens": read,
        "cacheWriteInputTokens": short + long,
        "cacheDetails": [{"ttl": "1h", "inputTokens": long}, {"ttl": "5m", "inputTokens": short}],
        "totalTokens": draw(st.sampled_from([None, total, plain + output])),
    }
    return raw, total - output, total


@st.composite
def pictures(draw: st.DrawFn) -> Honest:
    text, picture, cached_text, cached_picture, words, drawn = (draw(small) for _ in range(6))
    prompt, output = text + picture + cached_text + cached_picture, words + drawn
    raw = {
        "input_tokens": prompt,
        "input_tokens_details": {"text_tokens": text + cached_text, "image_tokens": picture + cached_picture},
        "cached_tokens": cached_text + cached_picture,
        "cached_tokens_details": {"cached_text_tokens": cached_text, "cached_image_tokens": cached_picture},
        "output_tokens": output,
        "output_tokens_details": {"text_tokens": words, "image_tokens": drawn},
        "total_tokens": total_or_none(draw, prompt + output),
    }
    return raw, prompt, prompt + output


@st.composite
def transcriptions(draw: st.DrawFn) -> Honest:
    text, heard, output = (draw(small) for _ in range(3))
    details = {"text_tokens": text, "audio_tokens": heard}
    raw = {"input_tokens": text + heard, "input_token_details": details, "output_tokens": output}
    return (
        raw | {"total_tokens": total_or_none(draw, text + heard + output)},
        text + heard,
        text + heard + output,
    )


CHAT = ("prompt_tokens", "completion_tokens", "prompt_tokens_details", "completion_tokens_details")
RESPONSES = ("input_tokens", "output_tokens", "input_tokens_details", "output_tokens_details")
KINDS: list[tuple[Any, st.SearchStrategy[Honest]]] = [
    (openai_chat, chats(CHAT)),
    (lambda raw: openai_chat(raw, "exclusive"), chats(CHAT, "exclusive")),
    (openai_responses, chats(RESPONSES)),
    (anthropic_messages, messages()),
    (gemini, generations()),
    (bedrock_converse, converses()),
    (openai_images, pictures()),
    (openai_transcriptions, transcriptions()),
]
NAMES = ["chat", "exclusive", "responses", "messages", "gemini", "converse", "images", "transcriptions"]
every_convention = pytest.mark.parametrize(("convention", "answers"), KINDS, ids=NAMES)


@every_convention
@given(data=st.data())
def test_disjoint_meters_make_the_billed_total(
    convention: Any, answers: st.SearchStrategy[Honest], data: st.DataObject
) -> None:
    raw, prompt, billed = data.draw(answers)
    usage = convention(raw)
    assert isinstance(usage, Usage), raw
    assert (usage.prompt, usage.tokens) == (prompt, billed)
    assert all(count >= 0 for count in (*usage.meters().values(), *usage.units.values()))


@every_convention
@given(data=st.data())
def test_a_total_that_is_off_is_never_priced(
    convention: Any, answers: st.SearchStrategy[Honest], data: st.DataObject
) -> None:
    raw, _, billed = data.draw(answers)
    name = next(
        (name for name in raw if name.lower() in ("total_tokens", "totaltokencount", "totaltokens")), None
    )
    if name is not None:
        # More than everything that was billed is a total of no reading.
        raw = raw | {name: billed + data.draw(st.integers(10, 99))}
        assert convention(raw) == UsageProblem("usage_inconsistent")


noise = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.decimals(), st.text(max_size=2),
        st.sampled_from(["AUDIO", "TEXT", "5m", "message", "compaction", "duration"]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=2), inner, max_size=2)),
    max_leaves=4,
)  # fmt: skip


@st.composite
def spoiled(draw: st.DrawFn, value: Any) -> Any:
    """A value of which one part, at any depth, is something else."""
    if isinstance(value, dict) and value and draw(st.booleans()):
        name = draw(st.sampled_from(sorted(value)))
        return value | {name: draw(spoiled(value[name]))}
    if isinstance(value, list) and value and draw(st.booleans()):
        return [draw(spoiled(value[0])), *value[1:]]
    return draw(noise)


@every_convention
@given(data=st.data())
def test_no_answer_makes_a_convention_fail_or_count_below_zero(
    convention: Any, answers: st.SearchStrategy[Honest], data: st.DataObject
) -> None:
    raw, _, _ = data.draw(answers)
    for found in (convention(data.draw(spoiled(raw))), openai_responses(raw, data.draw(noise))):
        assert isinstance(found, Usage | UsageProblem)
        if isinstance(found, Usage):
            assert all(count >= 0 for count in (*found.meters().values(), *found.units.values()))


@given(noise)
def test_the_other_conventions_fail_at_nothing_either(raw: Any) -> None:
    for convention in (openai_embeddings, openai_speech, openai_transcriptions):
        assert isinstance(convention(raw), Usage | UsageProblem)


# --- costs --------------------------------------------------------------------------------------

RATES = {meter: str(place + 1) for place, meter in enumerate(METERS)}
UNITS = ("image_output_tokens", *PROMPT_UNITS, "web_search", "seconds")
LISTED = prices(
    row("m", RATES, fees=dict.fromkeys(UNITS, "0.00001")),
    row("other", RATES),
)
counts = st.integers(0, 10**6)
usages = st.builds(
    lambda meters, units: Usage(**meters, units=units),
    st.dictionaries(st.sampled_from(METERS), counts),
    st.dictionaries(st.sampled_from([*UNITS, *(f"other/{meter}" for meter in METERS)]), counts),
)


def cost(usage: Usage) -> int:
    found = exact_price(LISTED, "openai", "m", usage, AT)
    assert isinstance(found, Priced), found
    return found.cost_nano_usd


@given(usages, st.sampled_from([*METERS, *UNITS, "other/input", "other/output"]), counts)
def test_a_cost_is_never_negative_and_grows_with_every_meter(usage: Usage, meter: str, more: int) -> None:
    reported = usage.meters()
    if meter in METERS:
        larger = Usage(**reported | {meter: reported.get(meter, 0) + more}, units=usage.units)
    else:
        larger = Usage(**reported, units={**usage.units, meter: usage.units.get(meter, 0) + more})
    assert 0 <= cost(usage) <= cost(larger)
    assert (cost(usage) < cost(larger)) is (more > 0)


@given(usages)
def test_what_is_counted_as_tokens_is_every_meter_and_every_class(usage: Usage) -> None:
    words = [count for name, count in usage.units.items() if name not in ("web_search", "seconds")]
    assert usage.tokens == sum(usage.meters().values()) + sum(map(int, words))
    inside = [count for name, count in usage.units.items() if name in PROMPT_UNITS]
    assert usage.prompt == sum(usage.meters().get(meter, 0) for meter in PROMPT_METERS) + sum(
        map(int, inside)
    )


@given(st.decimals(0, 10**6, places=3))
def test_seconds_cost_their_exact_fraction(seconds: Decimal) -> None:
    usage = openai_transcriptions({"type": "duration", "seconds": seconds})
    assert isinstance(usage, Usage)
    assert cost(usage) == round(seconds * 10_000)


# --- streams ------------------------------------------------------------------------------------

names = st.sampled_from(
    ["input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation", "speed"]
)
events = st.lists(st.one_of(st.none(), st.dictionaries(names, maybe, max_size=4)), max_size=6)


@given(events, st.data())
def test_an_event_said_twice_or_in_two_parts_changes_nothing(said: list[Any], data: st.DataObject) -> None:
    whole = merged(said)
    place = data.draw(st.integers(0, len(said)))
    assert merged([merged(said[:place]), *said[place:]]) == whole
    if place < len(said):
        event = said[place] or {}
        assert merged([*said[: place + 1], *said[place:]]) == whole
        fields = sorted(event)
        cut = data.draw(st.integers(0, len(fields)))
        parts = [{name: event[name] for name in half} for half in (fields[cut:], fields[:cut])]
        assert (merged([*said[:place], *parts, *said[place + 1 :]]) or {}) == (whole or {})


@given(events)
def test_of_every_field_the_last_value_that_is_not_null_stands(said: list[Any]) -> None:
    last: dict[str, Any] = {}
    for event in said:
        last |= {name: value for name, value in (event or {}).items() if value is not None}
    assert (merged(said) or {}) == last
    assert (merged(said) is None) is all(event is None for event in said)
    assert merge_fields(merged(said), None) == merged(said)


@given(st.lists(st.one_of(st.none(), st.dictionaries(names, maybe, max_size=2)), max_size=6), st.data())
def test_the_last_usage_stands_whatever_empty_chunks_come_between(
    said: list[Any], data: st.DataObject
) -> None:
    known = [usage for usage in said if usage is not None]
    assert last_usage(said) == (known[-1] if known else None)
    place = data.draw(st.integers(0, len(said)))
    assert last_usage([*said[:place], None, *said[place:], None]) == last_usage(said)
    assert last_usage([*said, last_usage(said)]) == last_usage(said)
