"""The invented price list of cases/bugs.md, and a writer that names a list by its hash."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from toolkit.core.pricefile import content_hash


def row(model: str, **rates: str) -> dict[str, Any]:
    """A standard chat row of the provider `openai`."""
    return {
        "provider": "openai",
        "model": model,
        "aliases": [],
        "kind": "chat",
        "tier": "standard",
        "prompt_above": None,
        "effective_from": None,
        "effective_to": None,
        "rates": rates,
        "fees": {},
        "max_input_tokens": 1_000_000,
        "max_output_tokens": 16_384,
        "sources": ["test", "test"],
    }


ROWS = [
    row("m-small", input="1", output="4", cache_read="0.1"),
    row("m-large", input="4", output="20", cache_read="0.4", cache_write_5m="5", cache_write_1h="8"),
    {**row("claude-test", input="4", output="20", cache_read="0.4"), "provider": "anthropic"},
]


def write_list(folder: Path, rows: list[dict[str, Any]] | None = None, dated: str = "2026-10-01") -> Path:
    """A price file in `folder`, named as the loader wants it."""
    content = {
        "schema": "capline-prices-v1",
        "date": dated,
        "currency": "USD",
        "sources": [],
        "rows": ROWS if rows is None else rows,
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{dated}-{content_hash(content)[:12]}.json"
    path.write_text(json.dumps(content), "utf-8")
    return path
