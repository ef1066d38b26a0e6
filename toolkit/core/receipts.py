"""The receipt: the one immutable row that a request leaves, whatever became of it.

Columns and their order are contract §10. Null is never zero: a cost that is not known is None, and what the
counters took for the row stands beside it in `counted_nano_usd`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

from toolkit.core.usage import Quantity, Usage
from toolkit.core.windows import instant_text

Status = Literal["served", "refused", "failed", "abandoned"]
UsageSource = Literal["final", "partial", "estimated", "none"]
Basis = Literal["measured", "estimated"]


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """One provider attempt or refusal. Money in nano-USD, instants UTC-aware, tokens per disjoint meter."""

    receipt_id: str
    operation_id: str
    attempt: int = 1
    admitted_at: datetime
    settled_at: datetime
    admit_seq: int | None = None
    settle_seq: int | None = None
    organization: str
    project: str | None = None
    key_id: str | None = None
    customer: str | None = None
    run: str | None = None
    tags: tuple[str, ...] = ()
    provider: str | None = None
    dialect: str
    route: str
    model_requested: str | None = None
    model_served: str | None = None
    stream: bool = False
    status: Status
    client_left: bool = False
    http_status: int | None = None
    refusal_code: str | None = None
    cap_id: int | None = None
    cap_scope: str | None = None
    cap_window: str | None = None
    upstream_id: str | None = None
    service_tier: str | None = None
    input_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_5m_tokens: int | None = None
    cache_write_1h_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    audio_input_tokens: int | None = None
    audio_output_tokens: int | None = None
    image_tokens: int | None = None
    units: Mapping[str, Quantity] | None = None
    request_bytes: int
    response_bytes: int | None = None
    output_limit: int | None = None
    usage_source: UsageSource = "none"
    hold_nano_usd: int | None = None
    floor_nano_usd: int | None = None
    cost_nano_usd: int | None = None
    counted_nano_usd: int = 0
    hold_tokens: int | None = None
    counted_tokens: int = 0
    unpriced_reason: str | None = None
    price_list: str | None = None
    price_row: str | None = None
    provider_cost_nano_usd: int | None = None
    basis: Basis = "measured"
    verified: bool = True
    corrects: str | None = None
    latency_ms: int | None = None
    ttft_ms: int | None = None
    node: str
    chain_seq: int | None = None
    prev_hash: str | None = None
    row_hash: str | None = None

    @classmethod
    def of(cls, columns: Mapping[str, Any]) -> Receipt:
        """A receipt of columns by name: `Receipt(**columns)` for those who make thousands a second.

        A frozen class's constructor sets each of its 61 fields by a call; here they are set together.
        """
        values = {**_DEFAULTS, **columns}
        if len(values) != len(RECEIPT_COLUMNS) or not columns.keys() >= _REQUIRED:
            return cls(**columns)  # raises the TypeError that names the column
        made = object.__new__(cls)
        vars(made).update(values)
        return made

    def row(self) -> dict[str, Any]:
        """The receipt as a JSON-ready row: instants and decimals as text, tags a list, the rest as it is."""
        row = dict(vars(self))
        row["admitted_at"] = instant_text(self.admitted_at)
        row["settled_at"] = instant_text(self.settled_at)
        row["tags"] = list(self.tags)
        if self.units is not None:
            row["units"] = plain_units(self.units)
        return row


RECEIPT_COLUMNS: tuple[str, ...] = tuple(field.name for field in fields(Receipt))
"""Every column, in the contract's order."""

_REQUIRED = frozenset(field.name for field in fields(Receipt) if field.default is MISSING)
_DEFAULTS = {field.name: None if field.default is MISSING else field.default for field in fields(Receipt)}

USAGE_COLUMNS: Mapping[str, str] = {
    "input": "input_tokens",
    "cache_read": "cache_read_tokens",
    "cache_write_5m": "cache_write_5m_tokens",
    "cache_write_1h": "cache_write_1h_tokens",
    "output": "output_tokens",
    "reasoning": "reasoning_tokens",
    "audio_input": "audio_input_tokens",
    "audio_output": "audio_output_tokens",
    "image": "image_tokens",
}
"""Meter of `Usage` to column of a receipt."""


def plain_units(units: Mapping[str, Quantity]) -> dict[str, int | str]:
    """Units in the order of their names, a fraction as decimal text without an exponent."""
    return {
        name: format(count, "f") if isinstance(count, Decimal) else count
        for name, count in sorted(units.items())
    }


def usage_columns(usage: Usage) -> dict[str, Any]:
    """A usage as receipt columns."""
    columns: dict[str, Any] = {column: getattr(usage, meter) for meter, column in USAGE_COLUMNS.items()}
    columns["units"] = dict(usage.units) or None
    return columns


def usage_of_row(row: Mapping[str, Any]) -> Usage:
    """The usage that a receipt's row records; fractional units stand as decimal text."""
    counts = {meter: row[column] for meter, column in USAGE_COLUMNS.items()}
    units = row["units"] or {}
    counted = {name: Decimal(count) if isinstance(count, str) else count for name, count in units.items()}
    return Usage(**counts, units=counted)


def counted_of(
    *, status: Status, cost_nano_usd: int | None, hold_nano_usd: int | None, seen_nano_usd: int | None = None
) -> int:
    """What the counters take for a row: its cost, else the hold where money may have been spent (§10).

    `seen_nano_usd` is the price of the usage seen before an abandoned call broke off.
    """
    if status in ("refused", "failed"):
        return cost_nano_usd or 0
    if status == "abandoned":
        return max(hold_nano_usd or 0, seen_nano_usd or 0)
    return cost_nano_usd if cost_nano_usd is not None else hold_nano_usd or 0
