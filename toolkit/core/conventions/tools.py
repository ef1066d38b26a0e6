"""What tools did within an answer: counts that no token meter carries, as units by name.

A tool that a price list has no fee for leaves the answer unpriced: it is named here and never dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolkit.core.conventions.counts import count, part
from toolkit.core.usage import Quantity

_FREE = frozenset({"web_fetch"})
"""Tools without a fee beside the tokens they bring (facts/pricing §3.1)."""


def tools_of(raw: Mapping[str, Any]) -> dict[str, Quantity]:
    """The tools that a usage object counts itself.

    Anthropic's and OpenRouter's `server_tool_use`, xAI's `server_side_tool_usage_details` and `num_sources_used`:
    `web_search_requests` and `web_search_calls` both become `web_search`.
    """
    tools = _counted(raw, "server_tool_use", "_requests")
    if "num_sources_used" in raw or "server_side_tool_usage_details" in raw:
        used = _counted(raw, "server_side_tool_usage_details", "_calls")
        used["sources"] = count(raw, "num_sources_used") or 0
        tools |= {tool: times for tool, times in used.items() if times}  # xAI counts all it has, at 0
    return tools


def _counted(raw: Mapping[str, Any], name: str, suffix: str) -> dict[str, Quantity]:
    used = part(raw, name)
    counts = {tool.removesuffix(suffix): count(used, tool) for tool in used}
    return {tool: times for tool, times in counts.items() if times is not None and tool not in _FREE}
