"""Which tier of a price list an answer was served in, told from what its provider says it served.

Anything that is not known to cost the standard price keeps its own name: a list without such a row leaves the answer
unpriced, and nothing is ever priced as standard by default.
"""

from __future__ import annotations

STANDARD = "standard"


def openai_tier(service_tier: str | None) -> str:
    """OpenAI's `service_tier`: `default` and `auto` are the standard one, any other stands for itself."""
    return STANDARD if service_tier in (None, "default", "auto", STANDARD) else service_tier


def anthropic_tier(
    service_tier: str | None, *, speed: str | None = None, inference_geo: str | None = None
) -> str:
    """Anthropic's: a speed or a geography of its own price comes before the service tier."""
    if speed not in (None, STANDARD):
        return speed
    if inference_geo not in (None, "global", "not_available"):
        return inference_geo
    return STANDARD if service_tier in (None, STANDARD) else service_tier
