"""The columns of every table: where their values are, what stands over them, and what they are."""

from __future__ import annotations

import polars as pl

from console import model_wording
from console.components.tables import Column
from console.state import CapDraft

TOP_COLUMNS = (
    Column("customer", "Customer"),
    Column("cost_nano_usd", "Cost", "usd"),
    Column("requests", "Requests", "count"),
)
OF_CAP = (
    Column(
        "of_cap",
        "Of cap",
        "percent",
        "Share of the customer's own cap of this window, or of the default one.",
    ),
)
CUSTOMER_COLUMNS = (
    Column("customer", "Customer"),
    Column("requests", "Requests", "count"),
    Column("cost_nano_usd", "Cost", "usd"),
    Column("unpriced_requests", "Unpriced", "count", "Calls whose cost is not known; they are in no total."),
    Column("refused_requests", "Refused", "count"),
    Column("price_list", "Price list", help="Empty when the period spans several, or none."),
    Column("price_list_count", "Lists", "count", "How many price lists priced this customer's calls."),
)
MODEL_COLUMNS = (
    Column("model", "Model"),
    Column("requests", "Requests", "count"),
    Column("cost_nano_usd", "Cost", "usd"),
)
RECEIPT_COLUMNS = (
    Column("admitted_at", "Admitted", "instant"),
    Column("model", "Model"),
    Column("status", "Status"),
    Column("input_tokens", "Input", "count", "Uncached input tokens."),
    Column("cache_read_tokens", "Cache read", "count"),
    Column("output_tokens", "Output", "count"),
    Column("cost_nano_usd", "Cost", "call_usd", "Empty when it is not known: see the reason."),
    Column("why", "Reason", help="Why a call was refused, or has no price."),
    Column("price_list", "Price list"),
    Column("receipt_id", "Receipt"),
)
REFUSAL_COLUMNS = (
    Column("admitted_at", "Refused", "instant"),
    Column("model_requested", "Model"),
    Column("refusal_code", "Code"),
    Column("cap_id", "Cap", "count"),
    Column("hold_nano_usd", "Worst case", "call_usd", "What the call could have cost at most."),
    Column("receipt_id", "Receipt"),
)
TRACE_COLUMNS = (
    Column("cap", "Cap"),
    Column("counts", "Counts"),
    Column("armed", "State"),
    Column("limit", "Limit"),
    Column("spent", "Spent"),
    Column("held", "Held"),
    Column("hold", "This call"),
    Column("verdict", "Verdict"),
)
WHO_COLUMNS = (
    Column("customer", "Customer"),
    Column("first_refused_at", "First refusal", "instant"),
    Column("refused_requests", "Calls refused", "count"),
    Column("refused_nano_usd", "Stopped", "usd", "Empty where no refused call has a known cost."),
    Column("refused_share", "Share of their spend", "share"),
)
AUDIT_COLUMNS = (
    Column("at", "When", "instant"),
    Column("actor", "Who"),
    Column("action", "What"),
    Column("object", "Object"),
    Column("reason", "Reason"),
    Column("change", "Change"),
)
UNPRICED_COLUMNS = (
    Column("model", "Model"),
    Column("reason", "Reason"),
    Column("requests", "Calls", "count"),
    Column("tokens", "Tokens", "count"),
    Column("first", "First seen", "instant"),
    Column("last", "Last seen", "instant"),
)
UNPRICED_FILE_COLUMNS = (*UNPRICED_COLUMNS, Column("what_to_do", "What you can do"))
MONTH_COLUMNS = (
    Column("period", "Month"),
    Column("list", "Price list"),
    Column("requests", "Requests", "count"),
    Column("unpriced_requests", "Unpriced", "count"),
    Column("cost_nano_usd", "Cost", "usd"),
)


def over_columns(draft: CapDraft) -> tuple[Column, ...]:
    """Their columns: dollars when the draft limits dollars."""
    kind = "usd" if draft.limit_nano_usd is not None else "count"
    return (
        Column("subject", model_wording.SUBJECT_TITLES[draft.scope]),
        Column("spent", model_wording.SPENT_TITLE, kind),
        Column("share", model_wording.OF_CAP_TITLE, "percent"),
    )


def top_columns(top: pl.DataFrame) -> tuple[Column, ...]:
    """Their columns; the share of a cap only where some customer has one of this window."""
    return TOP_COLUMNS if top["of_cap"].null_count() == top.height else TOP_COLUMNS + OF_CAP
