"""What a provider says it served, as the tier of a price list."""

from __future__ import annotations

import pytest

from toolkit.core.tiers import anthropic_tier, azure_tier, gemini_tier, openai_tier, receipt_tier, said_of


@pytest.mark.parametrize(
    ("said", "tier"),
    [
        (None, "standard"),
        ("default", "standard"),
        ("auto", "standard"),
        ("flex", "flex"),
        ("priority", "priority"),
        ("scale", "scale"),
    ],
)
def test_openai_names_its_standard_tier_default(said: str | None, tier: str) -> None:
    assert openai_tier(said) == tier


@pytest.mark.parametrize(
    ("said", "tier"),
    [
        ({"service_tier": None}, "standard"),
        ({"service_tier": "standard", "speed": "standard", "inference_geo": "global"}, "standard"),
        ({"service_tier": "priority"}, "priority"),
        ({"service_tier": "standard", "speed": "fast"}, "fast"),
        ({"service_tier": "standard", "inference_geo": "us"}, "us"),
        ({"service_tier": "standard", "inference_geo": "not_available"}, "standard"),
        ({"service_tier": "batch", "speed": "standard", "inference_geo": "us"}, "batch us"),
        ({"service_tier": "standard", "speed": "fast", "inference_geo": "us"}, "fast us"),
        ({"service_tier": ""}, ""),  # what nobody has heard of is not standard
    ],
)
def test_an_anthropic_speed_or_geography_is_never_standard(said: dict[str, str | None], tier: str) -> None:
    assert anthropic_tier(**said) == tier


@pytest.mark.parametrize(
    ("service_tier", "traffic_type", "tier"),
    [
        (None, None, "standard"),
        ("standard", None, "standard"),
        ("unspecified", None, "standard"),
        ("SERVICE_TIER_STANDARD", None, "standard"),
        ("PRIORITY", None, "priority"),
        ("flex", None, "flex"),
        (None, "ON_DEMAND", "standard"),
        (None, "TRAFFIC_TYPE_UNSPECIFIED", "standard"),
        (None, "ON_DEMAND_FLEX", "flex"),
        (None, "on_demand_priority", "priority"),
        (None, "ON_DEMAND_OFFPEAK", "offpeak"),
        (None, "PROVISIONED_THROUGHPUT", "provisioned-throughput"),
        ("flex", "ON_DEMAND", "standard"),  # what Vertex served, whatever was asked
    ],
)
def test_gemini_and_vertex_each_have_their_words(
    service_tier: str | None, traffic_type: str | None, tier: str
) -> None:
    assert gemini_tier(service_tier, traffic_type=traffic_type) == tier


@pytest.mark.parametrize(
    ("kind", "tier"),
    [
        (None, "standard"),
        ("global", "standard"),
        ("Global-Standard", "standard"),
        ("data-zone-us", "data-zone"),
        ("data-zone-eu-standard", "data-zone"),
        ("standard", "regional"),
        ("provisioned", "provisioned"),
    ],
)
def test_an_azure_deployment_is_standard_only_where_it_is_global(kind: str | None, tier: str) -> None:
    assert azure_tier(None, deployment_type=kind) == tier
    assert azure_tier("priority", deployment_type=kind) == (
        "priority" if tier == "standard" else f"priority {tier}"
    )


@pytest.mark.parametrize(
    ("dialect", "said", "tier"),
    [
        ("openai", "default", "standard"),
        ("openai", "flex", "flex"),
        ("anthropic", "batch us", "batch us"),
        ("anthropic", None, "standard"),
        ("gemini", "unspecified", "standard"),
        (None, "scale", "scale"),
    ],
)
def test_a_receipt_tells_its_tier_in_its_dialects_words_or_the_lists(
    dialect: str | None, said: str | None, tier: str
) -> None:
    assert receipt_tier(dialect, said) == tier
    assert said_of(dialect, said, tier) == said
    assert said_of(dialect, said, "batch") == "batch"


@pytest.mark.parametrize("dialect", ["openai", "anthropic", "gemini"])
@pytest.mark.parametrize(
    "tier", ["standard", "batch", "flex", "priority", "fast", "us", "batch us", "data-zone-eu"]
)
@pytest.mark.parametrize("said", [None, "default", "standard", "priority", "ON_DEMAND_FLEX"])
def test_what_a_receipt_keeps_tells_its_tier_again(dialect: str, tier: str, said: str | None) -> None:
    assert receipt_tier(dialect, said_of(dialect, said, tier)) == tier
