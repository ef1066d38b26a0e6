"""`price`: each supported API's convention and tier, against the vectors and from both sides of each rule."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

import toolkit as tk
from tests.support.exports import PRICES
from tests.support.prices import row
from tests.toolkit.core.builders import prices
from tests.toolkit.core.builders import row as row_of
from toolkit.apis import APIS
from toolkit.core.pricefile import parse_price_list

AT = datetime(2026, 11, 15, 12, tzinfo=UTC)
TIERED = parse_price_list(
    {
        "schema": "capline-prices-v1", "date": "2026-10-01", "currency": "USD", "sources": [],
        "rows": [
            {**row("m", input="4", output="20", cache_read="0.4"), "provider": provider, "tier": tier}
            for provider in ("openai", "anthropic", "xai", "azure", "google")
            for tier in ("standard", "batch", "flex", "priority", "data-zone")
            if (provider, tier) != ("anthropic", "priority")
        ],
    },
    source="test",
)  # fmt: skip
CHAT = {"prompt_tokens": 1000, "completion_tokens": 100, "prompt_tokens_details": {"cached_tokens": 600}}
MESSAGES = {"input_tokens": 400, "cache_read_input_tokens": 600, "output_tokens": 100}
COST = 400 * 4_000 + 600 * 400 + 100 * 20_000
"""Nano-USD of both usages: 4 USD per million is 4,000 nano-USD per token."""


def priced(api: str, usage: Any, provider: str = "openai", **options: Any) -> tk.Priced | tk.Unpriced:
    return tk.price(provider, api, "m", usage, AT, price_list=TIERED, **options)


RESPONSES = {"input_tokens": 1000, "output_tokens": 100, "input_tokens_details": {"cached_tokens": 600}}
GEMINI = {"promptTokenCount": 1000, "candidatesTokenCount": 100, "cachedContentTokenCount": 600}
CONVERSE = {"inputTokens": 400, "outputTokens": 100, "cacheReadInputTokens": 600}
USAGES: dict[str, dict[str, Any]] = {
    "chat.completions": CHAT, "completions": CHAT, "embeddings": CHAT, "moderations": CHAT, "responses": RESPONSES,
    "messages": MESSAGES, "generateContent": GEMINI, "converse": CONVERSE,
}  # fmt: skip
MEDIA = {
    "images.generations": {
        "input_tokens": 1000, "input_tokens_details": {"text_tokens": 400, "image_tokens": 600}, "output_tokens": 100
    },
    "images.edits": {
        "input_tokens": 1000, "input_tokens_details": {"text_tokens": 400, "image_tokens": 600}, "output_tokens": 100
    },
    "audio.transcriptions": {
        "type": "tokens", "input_tokens": 1000, "input_token_details": {"text_tokens": 400, "audio_tokens": 600},
        "output_tokens": 100,
    },
    "audio.speech": {"input_tokens": 400, "output_tokens": 100},
}  # fmt: skip


def test_every_supported_api_is_tried_here() -> None:
    assert APIS.keys() == USAGES.keys() | MEDIA.keys()


@pytest.mark.parametrize(
    "name", ["{}", "{}(stream)", "{}(batch)", "batch({})", "{}(azure)", "{}(vertex)", "{}(beta advisor)"]
)
@pytest.mark.parametrize("base", USAGES)
def test_every_text_api_counts_by_its_convention_under_each_of_its_names(base: str, name: str) -> None:
    api = name.format(base)
    usage: Any = USAGES[base]
    if api == "messages(stream)":
        usage = {"message_start": usage | {"output_tokens": 1}, "message_delta": {"output_tokens": 100}}
    found = priced(api, usage)
    assert isinstance(found, tk.Priced), found
    assert (found.cost_nano_usd, found.price_list, found.status) == (COST, TIERED.id, "priced")
    assert ("batch" in found.price_row) is ("batch" in api)
    assert [line.meter for line in found.lines] == ["input", "cache_read", "output"]


@pytest.mark.parametrize("api", ["batchGenerateContent", "streamGenerateContent", "converseStream"])
def test_googles_and_amazons_names_of_batches_and_streams_are_understood(api: str) -> None:
    found = priced(api, CONVERSE if api.startswith("converse") else GEMINI)
    assert isinstance(found, tk.Priced)
    assert ("batch" in found.price_row) is (api == "batchGenerateContent")


@pytest.mark.parametrize("api", MEDIA)
def test_media_have_classes_of_tokens_that_a_text_row_does_not_price(api: str) -> None:
    found = priced(api, MEDIA[api])
    assert isinstance(found, tk.Unpriced)
    assert found.reason == "rate_missing"
    rates = {"input": "1", "image": "2", "audio_input": "2", "output": "3", "audio_output": "3"}
    whole = prices(row_of("m", rates=rates, fees={"image_output_tokens": "0.000003"}))
    listed = tk.price("openai", api, "m", MEDIA[api], AT, price_list=whole)
    assert isinstance(listed, tk.Priced)
    wanted = 400 + 100 * 3 + (0 if api == "audio.speech" else 600 * 2)
    assert sum(line.pico_usd for line in listed.lines) == wanted * 10**6


@pytest.mark.parametrize(
    ("api", "provider", "facts", "tier"),
    [
        ("chat.completions", "openai", {"service_tier": "default"}, "standard"),
        ("chat.completions", "openai", {"service_tier": "auto"}, "standard"),
        ("chat.completions", "openai", {"service_tier": "flex"}, "flex"),
        ("chat.completions", "openai", {"service_tier": "priority"}, "priority"),
        ("chat.completions", "openai", {"service_tier": "scale"}, None),
        ("messages", "anthropic", {"service_tier": "standard"}, "standard"),
        ("messages", "anthropic", {"service_tier": "batch"}, "batch"),
        ("messages(batch)", "anthropic", {"service_tier": "batch"}, "batch"),
        ("messages", "anthropic", {"service_tier": "priority"}, None),
        ("messages", "anthropic", {"speed": "fast"}, None),
        ("messages", "anthropic", {"speed": "standard"}, "standard"),
        ("messages", "anthropic", {"inference_geo": "us"}, None),
        ("messages(batch)", "anthropic", {"inference_geo": "us"}, None),
        ("messages", "anthropic", {"inference_geo": "global"}, "standard"),
        ("messages", "anthropic", {"inference_geo": "not_available"}, "standard"),
        ("messages", "anthropic", {"service_tier": ["odd"]}, None),
        ("messages(batch)", "anthropic", {"service_tier": "standard"}, "batch"),
        ("generateContent", "openai", {"trafficType": "ON_DEMAND"}, "standard"),
        ("generateContent(vertex)", "openai", {"trafficType": "ON_DEMAND_FLEX"}, "flex"),
        ("generateContent", "openai", {"trafficType": "PROVISIONED_THROUGHPUT"}, None),
        ("generateContent", "openai", {"serviceTier": "PRIORITY"}, "priority"),
        ("converse", "openai", {"serviceTier": {"type": "flex"}}, "flex"),
        ("converse", "openai", {"serviceTier": {"type": "default"}}, "standard"),
        ("converse", "openai", {"serviceTier": {"type": "reserved"}}, None),
        ("chat.completions", "azure", {"deployment_type": "data-zone-eu"}, "data-zone"),
        ("chat.completions", "azure", {"deployment_type": "global-standard"}, "standard"),
        ("chat.completions", "azure", {"deployment_type": "standard"}, None),
        ("chat.completions", "azure", {"deployment_type": "provisioned"}, None),
    ],
)
@pytest.mark.parametrize("place", ["usage", "context"])
def test_the_served_tier_decides_and_one_without_a_list_price_is_unpriced(
    api: str, provider: str, facts: dict[str, Any], tier: str | None, place: str
) -> None:
    usage = USAGES[api.partition("(")[0]]
    inside = place == "usage"
    found = priced(api, usage | facts if inside else usage, provider, context=None if inside else facts)
    if tier is None:
        assert isinstance(found, tk.Unpriced)
        assert found.reason == "no_list_price_for_service_tier"
    else:
        assert isinstance(found, tk.Priced)
        assert found.price_row.split()[1] == tier


def test_what_the_usage_says_wins_over_the_context() -> None:
    found = priced(
        "messages", MESSAGES | {"service_tier": "batch"}, "anthropic", context={"service_tier": "standard"}
    )
    assert isinstance(found, tk.Priced)
    assert "batch" in found.price_row


def test_the_processing_of_a_batch_is_told_by_the_context_where_no_name_says_it() -> None:
    found = priced("chat.completions", CHAT, context={"processing": "batch", "service_tier": "default"})
    assert isinstance(found, tk.Priced)
    assert found.price_row.split()[1] == "batch"


def test_a_stream_counts_its_last_word_field_by_field() -> None:
    start = MESSAGES | {"output_tokens": 1}
    found = priced(
        "messages(stream)", {"message_start": start, "message_delta": {"output_tokens": 100}}, "anthropic"
    )
    assert isinstance(found, tk.Priced)
    assert found.cost_nano_usd == COST


START = MESSAGES | {"output_tokens": 1}
BROKEN = COST - 99 * 20_000
"""What the start alone is worth."""


@pytest.mark.parametrize(
    ("usage", "context", "cost", "reason"),
    [
        (
            {"message_start": START, "error": {"type": "overloaded_error"}},
            {},
            BROKEN,
            "without_message_delta",
        ),
        ({"message_start": START, "message_delta": None}, {}, BROKEN, "without_message_delta"),
        ({"message_start": START, "message_delta": []}, {}, BROKEN, "without_message_delta"),
        ({"message_start": START, "message_delta": MESSAGES, "error": {}}, {}, COST, "with_error"),
        (
            {"message_start": START, "message_delta": MESSAGES},
            {"terminal": "error event"},
            COST,
            "with_error",
        ),
        ({"message_start": START, "message_delta": MESSAGES}, {"terminal": "message_stop"}, COST, None),
        ({"message_start": None, "message_delta": [START, MESSAGES]}, {}, COST, None),
        (MESSAGES, {}, COST, None),
    ],
)
def test_a_stream_that_broke_off_is_priced_by_what_was_seen_and_says_so(
    usage: Any, context: dict[str, Any], cost: int, reason: str | None
) -> None:
    found = priced("messages(stream)", usage, "anthropic", context=context)
    assert isinstance(found, tk.Priced)
    assert found.cost_nano_usd == cost
    assert (found.status, found.reason) == (
        ("priced", None) if reason is None else ("priced_partial", f"stream_ended_{reason}")
    )


def test_events_that_are_no_usage_are_invalid_and_a_broken_stream_without_any_has_none() -> None:
    for usage in ({"message_start": 5}, {"message_start": START, "message_delta": "x"}):
        found = priced("messages(stream)", usage, "anthropic")
        assert isinstance(found, tk.Unpriced)
        assert found.reason == "usage_invalid"
    found = priced("chat.completions(stream)", [None], context={"terminal": "error event"})
    assert isinstance(found, tk.Unpriced)
    assert found.reason == "usage_missing"


def test_of_the_usages_of_a_stream_the_last_one_counts_and_none_is_added() -> None:
    early = CHAT | {"completion_tokens": 1}
    found = priced("chat.completions(stream)", [None, early, CHAT, None])
    assert isinstance(found, tk.Priced)
    assert found.cost_nano_usd == COST
    by_event = {"first": None, "chunks": [early, CHAT], "last": None}
    assert priced("chat.completions(stream)", by_event) == found
    ended = priced("chat.completions(stream)", by_event | {"error": {"code": 500}})
    assert isinstance(ended, tk.Priced)
    assert (ended.cost_nano_usd, ended.status, ended.reason) == (
        COST, "priced_partial", "stream_ended_with_error"
    )  # fmt: skip
    nothing = priced("chat.completions(stream)", {"first": None, "error": {"code": 500}})
    assert isinstance(nothing, tk.Unpriced)
    assert nothing.reason == "usage_missing"
    broken = priced("generateContent(stream)", [GEMINI], context={"terminal": "disconnect"})
    assert isinstance(broken, tk.Priced)
    assert (broken.cost_nano_usd, broken.status, broken.reason) == (
        COST, "priced_partial", "stream_ended_with_error"
    )  # fmt: skip


@pytest.mark.parametrize("usage", [None, [], "many", {}, {"prompt_tokens": -1, "completion_tokens": 1}])
@pytest.mark.parametrize("api", ["chat.completions", "messages(stream)"])
def test_usage_that_cannot_be_counted_is_unpriced(usage: Any, api: str) -> None:
    found = priced(api, usage)
    assert isinstance(found, tk.Unpriced)
    assert found.reason in ("usage_missing", "usage_invalid")


@pytest.mark.parametrize(
    ("provider", "status", "outcome"),
    [
        ("anthropic", 400, "no_charge"), ("anthropic", 413, "no_charge"), ("anthropic", 429, "no_charge"),
        ("anthropic", 503, "no_charge"), ("anthropic", 529, "no_charge"),
        ("anthropic", 500, "outcome_unknown"), ("mistral", 502, "outcome_unknown"), ("aws", 504, "outcome_unknown"),
        ("openai", 400, "no_charge"), ("openai", 429, "no_charge"), ("openai", 500, "no_charge"),
        ("google", 400, "no_charge"), ("google", 500, "no_charge"), ("openrouter", 502, "no_charge"),
        ("azure", 400, "possibly_billed"), ("azure", 408, "possibly_billed"), ("azure", 401, "no_charge"),
        ("azure", 429, "no_charge"), ("azure", 500, "outcome_unknown"),
    ],
)  # fmt: skip
def test_an_error_costs_nothing_only_where_the_provider_is_known_not_to_bill(
    provider: str, status: int, outcome: str
) -> None:
    found = priced("chat.completions", None, provider, context={"http_status": status})
    if outcome == "no_charge":
        assert isinstance(found, tk.Priced)
        assert (found.cost_nano_usd, found.lines, found.status) == (0, (), "no_charge")
    else:
        assert isinstance(found, tk.Unpriced)
        assert found.reason == outcome


@pytest.mark.parametrize("status", [200, 399, None, "429"])
def test_a_missing_usage_is_missing_where_the_answer_was_no_error(status: Any) -> None:
    found = priced("responses", None, context={"http_status": status, "response_status": "failed"})
    assert isinstance(found, tk.Unpriced)
    assert found.reason == "usage_missing"


def test_an_error_that_reports_usage_is_priced() -> None:
    found = priced("chat.completions", CHAT, context={"http_status": 400})
    assert isinstance(found, tk.Priced)
    assert found.cost_nano_usd == COST


@pytest.mark.parametrize(
    "api", ["sockets", "chat.completion", "messages(odd)", "batch(messages", "batch(x)", ""]
)
def test_an_api_that_is_not_supported_names_those_that_are(api: str) -> None:
    with pytest.raises(
        tk.QueryError, match=r"is not supported; it is one of chat\.completions, .* of stream, "
    ):
        tk.price("openai", api, "m", {}, AT)


def test_a_way_to_count_can_be_declared_and_an_unknown_one_names_those_there_are() -> None:
    raw = {"prompt_tokens": 100, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 900}}
    inclusive = priced("chat.completions", raw)
    assert isinstance(inclusive, tk.Unpriced)
    assert inclusive.reason == "usage_invalid"  # B62: 900 of 100 tokens
    exclusive = priced("chat.completions", raw, context={"usage": "exclusive"})
    assert isinstance(exclusive, tk.Priced)
    assert exclusive.cost_nano_usd == 100 * 4_000 + 900 * 400 + 20_000
    with pytest.raises(tk.QueryError, match="'odd' is no way to count; it is one of openai, xai, "):
        priced("chat.completions", raw, context={"usage": "odd"})


def test_without_a_total_xai_counts_reasoning_beside_the_completion() -> None:
    raw = {"prompt_tokens": 10, "completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 3}}
    outputs = {
        provider: found.lines[1].quantity
        for provider in ("x-ai", "openai")
        if isinstance(found := priced("chat.completions", raw, provider), tk.Priced)
    }
    assert outputs == {"x-ai": 8, "openai": 5}


def test_what_tools_used_stands_beside_the_usage() -> None:
    listed = prices(row_of("m", fees={"web_search": "0.01"}))
    used = {"web_search": {"num_requests": 3}}
    costs = [
        found.cost_nano_usd
        for usage, context in ((RESPONSES | {"_tool_usage": used}, {}), (RESPONSES, {"tool_usage": used}))
        if isinstance(found := tk.price("openai", "responses", "m",
                      {**usage, "input_tokens_details": None}, AT, context=context, price_list=listed), tk.Priced)
    ]  # fmt: skip
    assert costs == [1000 * 1_000 + 100 * 4_000 + 3 * 10_000_000] * 2


def test_a_fraction_of_a_second_is_read_by_its_text_and_a_fraction_of_a_token_is_none() -> None:
    listed = prices(row_of("m", fees={"seconds": "0.0001"}))
    heard = {"type": "duration", "seconds": 10.01}  # a float, as json.loads makes it
    found = tk.price("openai", "audio.transcriptions", "m", heard, AT, price_list=listed)
    assert isinstance(found, tk.Priced)
    assert (found.lines[0].quantity, found.cost_nano_usd) == (Decimal("10.01"), 1_001_000)
    for usage in (CHAT | {"prompt_tokens": 10.0}, {"type": "duration", "seconds": float("nan")}):
        api = "audio.transcriptions" if "seconds" in usage else "chat.completions"
        bad = tk.price("openai", api, "m", usage, AT, price_list=listed)
        assert isinstance(bad, tk.Unpriced)
        assert bad.reason == "usage_invalid"


@pytest.mark.parametrize(
    ("provider", "model", "listed"),
    [
        ("google", "models/m", True),
        ("google", "publishers/google/models/m", True),
        ("google", "models/models/m", False),
        ("openai", "models/m", False),
        ("google", "google/m", False),
        ("openai", "openai/m", False),
        ("azure", "m.ft-0123", True),  # Azure's spelling of ft:m
        ("openai", "m.ft-0123", False),
        ("azure", "m-1.ft-0123", None),
        ("openai", "", False),
        ("openai", None, False),
    ],
)
def test_an_id_is_exact_but_for_the_prefix_of_its_own_provider(
    provider: str, model: str | None, listed: bool | None
) -> None:
    rows = prices(row_of("m", provider="google"), row_of("m"), row_of("ft:m", provider="azure"))
    found = tk.price(provider, "chat.completions", model, {"prompt_tokens": 1, "completion_tokens": 1}, AT,
                     price_list=rows)  # fmt: skip
    if listed:
        assert isinstance(found, tk.Priced)
    else:
        assert isinstance(found, tk.Unpriced)
        assert found.reason == ("fine_tune_base_not_listed" if listed is None else "model_unknown")


def test_a_turn_of_another_model_is_priced_at_its_own_row() -> None:
    listed = prices(
        row_of("m", provider="anthropic"),
        row_of("adviser", {"input": "2", "output": "8"}, provider="anthropic"),
    )
    turn = {"input_tokens": 10, "output_tokens": 5}
    usage = turn | {"iterations": [
        turn | {"type": "message", "model": "m"},
        turn | {"type": "advisor_message", "model": "adviser"},
    ]}  # fmt: skip
    found = tk.price("anthropic", "messages(beta advisor)", "m", usage, AT, price_list=listed)
    assert isinstance(found, tk.Priced)
    assert {line.meter: line.pico_usd // 10**6 for line in found.lines} == {
        "input": 10, "output": 20, "adviser/input": 20, "adviser/output": 40
    }  # fmt: skip


def test_an_answer_without_usage_is_priced_by_what_is_known_to_be_billed() -> None:
    listed = prices(row_of("free", {"input": "0"}), row_of("drawn", {}, fees={"images": "0.04"}))
    free = tk.price("openai", "moderations", "free", None, AT, price_list=listed)
    assert isinstance(free, tk.Priced)
    assert free.cost_nano_usd == 0
    drawn = tk.price(
        "openai", "images.generations", "drawn", None, AT, context={"images": 3}, price_list=listed
    )
    assert isinstance(drawn, tk.Priced)
    assert drawn.cost_nano_usd == 120_000_000  # B79: 3 images at 0.04
    missing = tk.price("openai", "images.generations", "drawn", None, AT, price_list=listed)
    assert isinstance(missing, tk.Unpriced)
    assert missing.reason == "usage_missing"


@pytest.mark.parametrize("spent", [2**53 - 1, 2**53 + 1])
def test_a_cost_may_be_larger_than_a_receipt_can_carry(spent: int) -> None:
    found = tk.price("openai", "chat.completions", "m", {"prompt_tokens": spent, "completion_tokens": 0}, AT,
                     price_list=prices(row_of("m")))  # fmt: skip
    assert isinstance(found, tk.Priced)
    assert found.cost_nano_usd == spent * 1_000


def test_a_list_is_taken_by_id_and_an_unknown_id_names_the_bundled_ones() -> None:
    newest = tk.price_lists()[-1]
    found = tk.price("openai", "chat.completions", "gpt-9-omega", CHAT, AT, price_list=newest.id)
    assert found == tk.Unpriced(reason="model_unknown", price_list=newest.id)
    assert tk.price("openai", "chat.completions", "gpt-9-omega", CHAT, AT) == found, (
        "the newest when none is named"
    )
    with pytest.raises(
        tk.QueryError, match=f"price list 'x' is not bundled; .*{newest.id.partition('+')[0]}"
    ):
        tk.price("openai", "chat.completions", "m", CHAT, AT, price_list="x")


@pytest.mark.parametrize("at", ["2026-11-15T12:00", "noon"])
def test_an_instant_in_text_needs_its_offset(at: str) -> None:
    with pytest.raises(tk.QueryError):
        tk.price("openai", "chat.completions", "m-large", CHAT, at, price_list=PRICES)


def test_an_instant_is_utc() -> None:
    text = tk.price("openai", "chat.completions", "m-large", CHAT, "2026-11-15T12:00:00Z", price_list=PRICES)
    assert text == tk.price("openai", "chat.completions", "m-large", CHAT, AT, price_list=PRICES)
    for at in (AT.replace(tzinfo=None), AT.astimezone(timezone(timedelta(hours=1)))):
        with pytest.raises(tk.QueryError, match="is not in UTC"):
            tk.price("openai", "chat.completions", "m-large", CHAT, at, price_list=PRICES)


def test_a_provider_is_found_under_its_own_name_too() -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 1}
    assert isinstance(priced("chat.completions", usage, "x-ai"), tk.Priced)


@pytest.mark.parametrize(("said", "tier"), [("Batch", "batch"), ("sync", "standard"), (None, "standard")])
def test_how_an_answer_was_processed_is_a_word_of_its_own(said: str | None, tier: str) -> None:
    usage = {"prompt_tokens": 1_000, "completion_tokens": 1}
    found = tk.price(
        "openai", "chat.completions", "gpt-4o", usage, "2026-11-15", context={"processing": said}
    )
    assert found.price_row is not None
    assert f" {tier}" in found.price_row


def test_a_processing_that_nobody_lists_is_not_the_standard_one() -> None:
    usage = {"prompt_tokens": 1_000, "completion_tokens": 1}
    found = tk.price(
        "openai", "chat.completions", "gpt-4o", usage, "2026-11-15", context={"processing": "bacth"}
    )
    assert found.reason == "no_list_price_for_service_tier"
