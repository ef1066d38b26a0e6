"""The row that settles an earlier one: how a cost that was not known enters the ledger (contract §10).

A receipt is never edited. A correction repeats whose call it was and when it was admitted, carries tokens and cost
in full, and counts the difference to what the first row counted, so that a sum over all rows stays a sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from toolkit.core.errors import CorrectionError
from toolkit.core.pricing import Priced
from toolkit.core.receipts import Receipt, usage_columns, usage_of_row
from toolkit.core.scopes import Attribution
from toolkit.core.usage import Usage

_NO_USAGE = Usage()


def correction(
    before: Receipt,
    *,
    receipt_id: str,
    settled_at: datetime,
    settle_seq: int,
    node: str,
    usage: Usage | None = None,
    priced: Priced | None,
    facts: Mapping[str, Any] | None = None,
) -> Receipt:
    """The row that settles `before`, not chained yet.

    Args:
        before: a served or abandoned row without a cost, which no other row corrects.
        receipt_id: the new row's own id; the operation, its attempt and every other id are repeated.
        settled_at, settle_seq: when the correction is made, and the counters' step that takes its difference.
        node: who writes it: the chain that it joins.
        usage: what was billed; the usage that `before` records when left out.
        priced: its cost; None when the provider has said that it bills nothing (the row is then `failed`, at 0).
        facts: columns that a late answer tells beside them, such as `model_served` or `http_status`.

    Raises:
        CorrectionError: `before` has a cost, is itself a correction, or has another status.
    """
    if before.cost_nano_usd is not None or before.corrects is not None:
        raise CorrectionError(f"receipt {before.receipt_id} has a cost; only a row without one is corrected")
    if before.status not in ("served", "abandoned"):
        raise CorrectionError(f"receipt {before.receipt_id} is {before.status}: it cost nothing")
    billed = usage if usage is not None else usage_of_row(before.row()) if priced is not None else _NO_USAGE
    cost = 0 if priced is None else int(priced.cost_nano_usd)
    known: dict[str, Any] = {
        "receipt_id": receipt_id,
        "corrects": before.receipt_id,
        "settled_at": max(settled_at, before.admitted_at),
        "admit_seq": None,  # nobody was asked anew
        "settle_seq": settle_seq,
        "status": "failed" if priced is None else "served",
        **usage_columns(billed),
        "usage_source": "none" if priced is None else "final",
        "cost_nano_usd": cost,
        "counted_nano_usd": cost - before.counted_nano_usd,
        "counted_tokens": billed.tokens - before.counted_tokens,
        "unpriced_reason": None,
        "price_list": before.price_list if priced is None else priced.price_list,
        "price_row": before.price_row if priced is None else priced.price_row,
        "basis": "measured",
        "verified": True,
        "node": node,
        "chain_seq": None,
        "prev_hash": None,
        "row_hash": None,
    }
    return replace(before, **{**(facts or {}), **known})


def attribution_of(receipt: Receipt) -> Attribution:
    """Whose call a receipt was, as its caps saw it: the model without its provider's name."""
    provider = receipt.provider or ""
    return Attribution(
        organization=receipt.organization,
        project=receipt.project,
        key_id=receipt.key_id,
        customer=receipt.customer,
        run=receipt.run,
        tags=receipt.tags,
        provider=provider,
        model=(receipt.model_requested or "").removeprefix(f"{provider}/"),
    )
