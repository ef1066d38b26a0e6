"""What a provider says it served, as the tier of a price list."""

from __future__ import annotations

import pytest

from toolkit.core.tiers import anthropic_tier, openai_tier


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
