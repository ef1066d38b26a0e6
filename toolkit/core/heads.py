"""Published heads (`capline-head-v1`): where a chain stood at an instant, kept where its database cannot reach.

A chain alone proves nothing about rows cut off its end; a head that was published before shows them missing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

HEAD_RECIPE = "capline-head-v1"

Chain = tuple[str, str, str]
"""Organization, month, node."""

_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def signed_bytes(head: Mapping[str, Any]) -> bytes:
    """What a head's signature covers: its canonical JSON without `signature`."""
    return _encode({name: value for name, value in head.items() if name != "signature"}).encode()


def head_of(line: bytes | str) -> dict[str, Any]:
    """A published line as a head. Raises ValueError when it is none."""
    head = json.loads(line)
    texts = ("ledger_id", "organization", "month", "node", "row_hash")
    if not (
        isinstance(head, dict)
        and head.get("recipe") == HEAD_RECIPE
        and all(type(head.get(name)) is str for name in texts)
        and type(head.get("chain_seq")) is int
    ):
        raise ValueError(f"is no head of recipe {HEAD_RECIPE}")
    return head


def chain_of_head(head: Mapping[str, Any]) -> Chain:
    """The chain that a head is of."""
    return (head["organization"], head["month"], head["node"])
