"""Which rows of the newest list a person has still to read against the provider's page, as a Markdown table.

    python data/prices/unread.py

A row of two sources that state the same price was compiled by machine: nobody has read a page for it. A signed row
rests on one source, or on a rule, and is worth reading first. `read` of a signature is the day on which a person did.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGES = {
    "anthropic": "https://platform.claude.com/docs/en/about-claude/pricing",
    "aws": "https://aws.amazon.com/bedrock/pricing/",
    "azure": "https://azure.microsoft.com/en-us/pricing/details/azure-openai/",
    "cohere": "https://cohere.com/pricing",
    "deepseek": "https://api-docs.deepseek.com/quick_start/pricing",
    "google": "https://ai.google.dev/gemini-api/docs/pricing",
    "groq": "https://groq.com/pricing",
    "mistral": "https://mistral.ai/pricing",
    "openai": "https://developers.openai.com/api/docs/pricing",
    "openrouter": "https://openrouter.ai/models",
    "voyageai": "https://docs.voyageai.com/docs/pricing",
    "xai": "https://docs.x.ai/docs/models",
}


def table(rows: list[dict[str, Any]]) -> str:
    """One line per provider: how many rows there are, how many of them are signed, and the page to read."""
    listed = Counter(row["provider"] for row in rows)
    signed = Counter(row["provider"] for row in rows if "signed" in row["sources"])
    lines = ["| provider | rows | signed, first to read | page |", "|---|---:|---:|---|"]
    lines += [f"| {one} | {listed[one]} | {signed[one]} | {PAGES[one]} |" for one in sorted(listed)]
    return "\n".join(lines)


def unread(signed: dict[str, Any]) -> str:
    """The signatures for which nobody has read the page yet, with the reason that each gives."""
    lines = []
    for entry in (*signed["rates"], *signed["rules"], *signed["rows"]):
        if entry["read"] is None:
            names = [entry.get("model")] if "rows" not in entry else [row["model"] for row in entry["rows"]]
            what = ", ".join(dict.fromkeys(name for name in names if name)) or _scope(entry)
            provider = entry["rows"][0]["provider"] if "rows" in entry else entry["provider"]
            lines.append(f"- {provider}, {what}: <{entry['url']}>")
    return "\n".join(lines)


def _scope(rule: dict[str, Any]) -> str:
    parts = (rule.get("tier"), rule.get("place"), *rule.get("meters", ()), *rule.get("tiers", ()))
    words = [*parts, *rule.get("fees", ()), f"{len(rule['models'])} models" if "models" in rule else None]
    return " ".join(word for word in words if word) or "every route"


def main() -> None:
    """Print both."""
    newest = max(HERE.glob("20*.json"))
    rows = json.loads(newest.read_text("utf-8"))["rows"]
    signed = json.loads((HERE / "signed.json").read_text("utf-8"))
    sys.stdout.write(f"{newest.name}\n\n{table(rows)}\n\nSignatures not read yet:\n\n{unread(signed)}\n")


if __name__ == "__main__":
    main()
