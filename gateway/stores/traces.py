"""The decision trace beside a receipt: which caps were looked at, and the figures each was judged by.

A trace is written on every call and read for one in a thousand, so it is stored by position and named when read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from toolkit.core.decisions import CapLook

_FIELDS = (
    "cap_id",
    "cap_version",
    "name",
    "scope",
    "window",
    "admission",
    "hard_stop",
    "binds",
    "unit",
    "limit",
    "spent",
    "held",
    "held_floor",
    "hold",
    "headroom",
    "verdict",
    "armed_at",
    "armed_by",
)
_encode = msgspec.json.Encoder().encode


def trace_text(looks: Sequence[CapLook]) -> str | None:
    """A trace as it is stored; None for a call that no cap looked at."""
    return _encode([_values(look) for look in looks]).decode() if looks else None


def trace_lines(text: str) -> list[dict[str, Any]]:
    """A stored trace, one line for each cap and axis."""
    return [dict(zip(_FIELDS, values, strict=True)) for values in msgspec.json.decode(text)]


def _values(look: CapLook) -> tuple[Any, ...]:
    cap = look.cap
    return (
        cap.id,
        cap.version,
        cap.name,
        cap.scope,
        cap.window,
        cap.admission,
        cap.hard_stop,
        look.binds,
        look.unit,
        look.limit,
        *look.balance,
        look.hold,
        look.headroom,
        look.room,
        cap.armed_at,
        cap.updated_by if cap.hard_stop else None,
    )
