"""Which tier of a price list an answer was served in, told from what its provider says it served.

Anything that is not known to cost the standard price keeps its own name: a list without such a row leaves the answer
unpriced, and nothing is ever priced as standard by default.
"""

from __future__ import annotations

STANDARD = "standard"
BATCH = "batch"

_NO_GEOGRAPHY = ("global", "not_available")
_AZURE_GEOGRAPHIES = {
    "global": STANDARD,
    "standard": "regional",
    "data-zone-us": "data-zone",
    "data-zone-eu": "data-zone",
}


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


def gemini_tier(service_tier: str | None, *, traffic_type: str | None = None) -> str:
    """Gemini's: Vertex says a `trafficType`, the Gemini API a `serviceTier`; each says the standard one in its way.

    >>> gemini_tier(None, traffic_type="ON_DEMAND_FLEX"), gemini_tier("priority"), gemini_tier("unspecified")
    ('flex', 'priority', 'standard')
    """
    if traffic_type is not None:
        said = traffic_type.upper().removeprefix("ON_DEMAND").removeprefix("_")
        said = "" if said == "TRAFFIC_TYPE_UNSPECIFIED" else said
    else:
        said = (service_tier or "").upper().removeprefix("SERVICE_TIER_")
        said = "" if said in ("UNSPECIFIED", "STANDARD") else said
    return said.lower().replace("_", "-") or STANDARD


def azure_tier(service_tier: str | None, *, deployment_type: str | None = None) -> str:
    """Azure's: no answer says the type of a deployment, whoever set it up does; `global` is the standard one.

    The American and the European data zone have one price. What Azure calls a standard deployment stays in one
    region, at a price of its own.

    >>> azure_tier(None, deployment_type="data-zone-eu"), azure_tier("priority", deployment_type="global-standard")
    ('data-zone', 'priority')
    """
    kind = (deployment_type or "global").lower().removesuffix("-standard")
    geography = _AZURE_GEOGRAPHIES.get(kind, kind)
    return combined(openai_tier(service_tier), geography)


def receipt_tier(dialect: str | None, service_tier: str | None) -> str:
    """The tier that a receipt was served in, from what its `service_tier` says in its dialect's words or the list's.

    >>> receipt_tier("openai", "default"), receipt_tier("anthropic", "batch us"), receipt_tier("gemini", None)
    ('standard', 'batch us', 'standard')
    """
    if dialect == "anthropic":
        return anthropic_tier(service_tier)
    return gemini_tier(service_tier) if dialect == "gemini" else openai_tier(service_tier)


def said_of(dialect: str | None, service_tier: str | None, tier: str) -> str | None:
    """What a receipt keeps as `service_tier`: the provider's own word, or the list's where that tells the price."""
    return service_tier if receipt_tier(dialect, service_tier) == tier else tier
