"""What the operator's reports give: sums, receipts and the trace of a decision. Money is integers and text."""

from __future__ import annotations

from datetime import datetime
from typing import Any, get_type_hints

from pydantic import BaseModel, create_model

from toolkit.core.receipts import RECEIPT_COLUMNS, Receipt


class Figures(BaseModel):
    """Sums over requests in their final state (contract §10)."""

    requests: int
    priced_requests: int
    unpriced_requests: int
    refused_requests: int
    input_tokens: int | None
    cache_read_tokens: int | None
    cache_write_5m_tokens: int | None
    cache_write_1h_tokens: int | None
    output_tokens: int | None
    reasoning_tokens: int | None
    audio_input_tokens: int | None
    audio_output_tokens: int | None
    image_tokens: int | None
    cost_nano_usd: int | None
    cost_usd: str | None
    counted_nano_usd: int
    counted_usd: str
    price_list: str | None
    price_list_count: int


class SpendRow(Figures):
    """One group of spend; of the dimensions those stand here that were asked for."""

    period: str
    organization: str | None = None
    project: str | None = None
    key_id: str | None = None
    customer: str | None = None
    customer_ref: str | None = None
    run: str | None = None
    provider: str | None = None
    model: str | None = None
    model_requested: str | None = None
    dialect: str | None = None
    route: str | None = None
    status: str | None = None
    refusal_code: str | None = None
    service_tier: str | None = None
    node: str | None = None
    day: str | None = None


class CustomerOut(Figures):
    """One customer's spend in a period."""

    customer: str
    customer_ref: str
    period: str
    first_seen: str
    last_seen: str


class CustomersSummary(BaseModel):
    """How many customers, and what they cost together."""

    period: str
    customers: int
    cost_nano_usd: int
    cost_usd: str


class UnpricedOut(BaseModel):
    """Calls without a known cost, by model and reason."""

    model: str | None
    reason: str | None
    calls: int
    tokens: int | None
    first_seen: str
    last_seen: str
    what_to_do: str


class PriceListOut(BaseModel):
    """A loaded price list; the one in use prices a call that is admitted now."""

    id: str
    date: str
    rows: int
    providers: list[str]
    in_use: bool
    age_days: int
    stale: bool
    """Whether it is older than 30 days; it prices all the same."""


class TraceLine(BaseModel):
    """One cap on one axis as the decision saw it; dollars stand in the fields that say so."""

    cap_id: int
    cap_version: int
    name: str
    scope: str
    window: str
    admission: str
    hard_stop: bool
    binds: bool
    unit: str
    verdict: str
    armed_at: str | None
    armed_by: str | None
    armed_reason: str | None
    limit: int | None = None
    spent: int | None = None
    held: int | None = None
    held_floor: int | None = None
    hold: int | None = None
    headroom: int | None = None
    limit_nano_usd: int | None = None
    spent_nano_usd: int | None = None
    held_nano_usd: int | None = None
    held_floor_nano_usd: int | None = None
    hold_nano_usd: int | None = None
    headroom_nano_usd: int | None = None
    limit_usd: str | None = None
    spent_usd: str | None = None
    held_usd: str | None = None
    held_floor_usd: str | None = None
    hold_usd: str | None = None
    headroom_usd: str | None = None


class Sibling(BaseModel):
    """Another row of the same operation."""

    receipt_id: str
    attempt: int
    status: str
    corrects: str | None


def _json_type(hint: Any) -> Any:
    """The type of a receipt's column as JSON carries it."""
    if hint is datetime:
        return str
    return (
        dict[str, int | str] | None if "Mapping" in str(hint) else list[str] if "tuple" in str(hint) else hint
    )


_HINTS = get_type_hints(Receipt)
_COLUMNS: dict[str, Any] = {column: (_json_type(_HINTS[column]), ...) for column in RECEIPT_COLUMNS}
_MONEY_TEXT: dict[str, Any] = {
    "customer_ref": (str | None, ...),
    "cost_usd": (str | None, ...),
    "counted_usd": (str, ...),
}
ReceiptOut: Any = create_model("ReceiptOut", **_COLUMNS, **_MONEY_TEXT)
"""Every column of a receipt, and its money as text."""

ReceiptDetail: Any = create_model(
    "ReceiptDetail",
    __base__=ReceiptOut,
    trace=(list[TraceLine] | None, ...),
    operation=(list[Sibling], ...),
)
"""A receipt with its decision trace, which is null for who may not see caps, and the rows of its operation."""
