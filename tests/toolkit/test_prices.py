"""`price`: each supported API's convention and tier, against the vectors and from both sides of each rule."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import toolkit as tk
from tests.support.exports import PRICES
from tests.support.prices import row
from toolkit.core.pricefile import parse_price_list
from toolkit.prices import APIS

AT = datetime(2026, 11, 15, 12, tzinfo=UTC)
TIERED = parse_price_list(
    {
        "schema": "capline-prices-v1", "date": "2026-10-01", "currency": "USD", "sources": [],
        "rows": [
            {**row("m", input="4", output="20", cache_read="0.4"), "provider": provider, "tier": tier}
            for provider in ("openai", "anthropic", "xai")
            for tier in ("standard", "batch", "flex", "priority")
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


@pytest.mark.parametrize("api", APIS)
def test_every_supported_api_counts_by_its_convention(api: str) -> None:
    usage, provider = (MESSAGES, "anthropic") if api.startswith("messages") else (CHAT, "openai")
    found = priced(api, usage, provider)
    assert isinstance(found, tk.Priced)
    assert found.cost_nano_usd == COST
    assert found.price_list == TIERED.id
    assert ("batch" in found.price_row) is ("batch" in api)
    assert [line.meter for line in found.lines] == ["input", "cache_read", "output"]


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
    ],
)
@pytest.mark.parametrize("place", ["usage", "context"])
def test_the_served_tier_decides_and_one_without_a_list_price_is_unpriced(
    api: str, provider: str, facts: dict[str, Any], tier: str | None, place: str
) -> None:
    usage = MESSAGES if api.startswith("messages") else CHAT
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


def test_a_stream_counts_its_last_word_field_by_field() -> None:
    start = MESSAGES | {"output_tokens": 1}
    found = priced(
        "messages(stream)", {"message_start": start, "message_delta": {"output_tokens": 100}}, "anthropic"
    )
    assert isinstance(found, tk.Priced)
    assert found.cost_nano_usd == COST


def test_a_stream_that_broke_off_is_priced_by_what_was_seen() -> None:
    start = MESSAGES | {"output_tokens": 1}
    broken = {"message_start": start, "error": {"type": "overloaded_error"}}
    found = priced("messages(stream)", broken, "anthropic")
    assert isinstance(found, tk.Priced)
    assert found.cost_nano_usd == COST - 99 * 20_000


@pytest.mark.parametrize("usage", [None, [], "many", {}, {"prompt_tokens": -1, "completion_tokens": 1}])
@pytest.mark.parametrize("api", ["chat.completions", "messages(stream)"])
def test_usage_that_cannot_be_counted_is_unpriced(usage: Any, api: str) -> None:
    found = priced(api, usage)
    assert isinstance(found, tk.Unpriced)
    assert found.reason in ("usage_missing", "usage_invalid")


@pytest.mark.parametrize(
    ("provider", "status", "known"),
    [
        ("openai", 400, True), ("openai", 429, True), ("openai", 503, True), ("openai", 529, True),
        ("openai", 500, False), ("openai", 502, False), ("openai", 504, False),
        ("azure", 400, False), ("azure", 408, False), ("azure", 429, True),
    ],
)  # fmt: skip
def test_an_error_costs_nothing_only_where_the_provider_is_known_not_to_bill(
    provider: str, status: int, known: bool
) -> None:
    found = priced("chat.completions", CHAT, provider, context={"http_status": status})
    if known:
        assert isinstance(found, tk.Priced)
        assert (found.cost_nano_usd, found.lines) == (0, ())
    else:
        assert isinstance(found, tk.Unpriced)
        assert found.reason == "outcome_unknown"


def test_an_api_that_is_not_supported_names_those_that_are() -> None:
    with pytest.raises(
        tk.QueryError, match=r"api 'responses' is not supported yet; it is one of chat\.completions, "
    ):
        tk.price("openai", "responses", "m", {}, AT)


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


VECTORS = [
    vector
    for line in (Path(__file__).resolve().parents[1] / "data" / "pricing_vectors.jsonl")
    .read_text()
    .splitlines()
    if (vector := json.loads(line)).get("api") in APIS
]
UNLISTED = {
    "model_unknown",
    "no_rate_at_that_time",
    "no_list_price_for_service_tier",
    "rate_missing",
    "fine_tune_base_not_listed",
}


def outcome(vector: dict[str, Any]) -> int | str:
    """Nano-USD, or the reason for none, by the bundled lists."""
    asked = (vector["provider"], vector["api"], vector["model"], vector["usage"], vector["timestamp"])
    found = tk.price(*asked, context=vector["context"])
    return found.cost_nano_usd if isinstance(found, tk.Priced) else found.reason


def wanted(vector: dict[str, Any]) -> int | str:
    if vector["status"] == "no_charge":
        return 0
    exact = vector.get("exact_micro_usd")
    reason: str = vector.get("reason", "")
    return round(Decimal(exact) * 1000) if exact is not None else reason


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_no_vector_is_ever_priced_wrong(vector: dict[str, Any]) -> None:
    """A model, tier or meter that the bundled lists lack is unpriced; a count beyond 2^53 is not one."""
    found = outcome(vector)
    allowed = UNLISTED | ({"usage_invalid"} if vector["id"] == "big-002" else set())
    assert found == wanted(vector) or found in allowed, vector["arithmetic"]


def test_most_vectors_have_a_price() -> None:
    assert sum(outcome(vector) == wanted(vector) for vector in VECTORS) >= 50
