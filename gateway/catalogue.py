"""`GET /v1/models`: what may be asked for here, told from the configured providers and the price list.

A pure function of both. A provider's model has its plain id where a call without a name would reach it, and
`NAME/model` elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import msgspec

from gateway.dialects.base import BadRequest
from gateway.settings import Provider
from toolkit.core.pricing import PriceList

ROUTE = "/v1/models"

_DEFAULT_LIMIT = 20
_MOST = 1_000


class Model(NamedTuple):
    """One id that a call may name, whose it is, and since when its oldest row in force has had its price."""

    id: str
    provider: str
    since: datetime


def models(providers: Iterable[Provider], prices: PriceList, at: datetime) -> list[Model]:
    """Every listed id and alias in force, provider by provider in the order of the configuration."""
    found: list[Model] = []
    first: dict[str, Provider] = {}
    for provider in providers:
        plain = first.setdefault(provider.dialect, provider) is provider
        ids: dict[str, datetime] = {}
        for row in prices.rows:
            if row.provider == provider.prices and row.in_force(at):
                for name in (row.model, *row.aliases):
                    ids[name] = min(ids.get(name, at), row.effective_from or prices.starts)
        found += [
            Model(name if plain else f"{provider.name}/{name}", provider.name, ids[name])
            for name in sorted(ids)
        ]
    return found


def openai_shape(found: Iterable[Model]) -> bytes:
    """All of them in one list, as OpenAI's API gives them."""
    data = [
        {
            "id": model.id,
            "object": "model",
            "created": int(model.since.timestamp()),
            "owned_by": model.provider,
        }
        for model in found
    ]
    return msgspec.json.encode({"object": "list", "data": data})


def anthropic_shape(found: list[Model], query: str) -> bytes:
    """One page: `limit` (20, at most 1,000) after `after_id` or before `before_id`. Raises BadRequest."""
    asked = dict(parse_qsl(query))
    limit = asked.get("limit", str(_DEFAULT_LIMIT))
    if not (limit.isascii() and limit.isdecimal()) or not 1 <= int(limit) <= _MOST:
        raise BadRequest(f"limit is a whole number from 1 to {_MOST}.")
    start, end = 0, len(found)
    if "after_id" in asked:
        start = _place(found, "after_id", asked["after_id"]) + 1
    if "before_id" in asked:
        end = _place(found, "before_id", asked["before_id"])
    backwards = "before_id" in asked and "after_id" not in asked
    page = found[start:end]
    page = page[-int(limit) :] if backwards else page[: int(limit)]
    body: dict[str, Any] = {
        "data": [
            {"type": "model", "id": model.id, "display_name": model.id, "created_at": _instant(model.since)}
            for model in page
        ],
        "has_more": len(page) < end - start,
        "first_id": page[0].id if page else None,
        "last_id": page[-1].id if page else None,
    }
    return msgspec.json.encode(body)


def _place(found: list[Model], field: str, model: str) -> int:
    place = next((place for place, each in enumerate(found) if each.id == model), None)
    if place is None:
        raise BadRequest(f"{field} is no model of this list.")
    return place


def _instant(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
