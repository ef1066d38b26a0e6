"""Which tier of a price list an answer was served in, told from what its provider says it served.

Anything that is not known to cost the standard price keeps its own name: a list without such a row leaves the answer
unpriced, and nothing is ever priced as standard by default.
"""

from __future__ import annotations

STANDARD = "standard"
BATCH = "batch"

_NO_GEOGRAPHY = ("global", "not_available")


def combined(*parts: str) -> str:
    """One tier's text from its parts in the order batch, speed, geography; standard parts say nothing.

    >>> combined("batch", "standard", "us"), combined("standard")
    ('batch us', 'standard')
    """
    said = dict.fromkeys(word for part in parts for word in part.split(" ") if word != STANDARD)
    return " ".join(said) if said else STANDARD


def openai_tier(service_tier: str | None) -> str:
    """OpenAI's `service_tier`: `default` and `auto` are the standard one, any other stands for itself."""
    return STANDARD if service_tier in (None, "default", "auto", STANDARD) else service_tier


def anthropic_tier(
    service_tier: str | None, *, speed: str | None = None, inference_geo: str | None = None
) -> str:
    """Anthropic's service tier, speed and geography, each of which has prices of its own.

    >>> anthropic_tier("batch", inference_geo="us")
    'batch us'
    """
    said = (service_tier, speed, None if inference_geo in _NO_GEOGRAPHY else inference_geo)
    return combined(*[part for part in said if part is not None])
