from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.support.exports import NO_USAGE, PRICES, abandoned, instant, refused, served
from toolkit.core.corrections import attribution_of, correction
from toolkit.core.errors import CorrectionError
from toolkit.core.pricing import Priced, price
from toolkit.core.receipts import Receipt
from toolkit.core.usage import Usage

LATER = instant(20)


def settle(before: Receipt, usage: Usage | None = None, **changes: Any) -> Receipt:
    """The correction of `before`, priced by `PRICES` as m-large."""
    priced = price(PRICES, "openai", "m-large", usage or Usage(input=1), before.admitted_at)
    assert isinstance(priced, Priced)
    known = {"receipt_id": "rc_new", "settled_at": LATER, "settle_seq": 99, "node": "n2", "usage": usage}
    return correction(before, **{**known, "priced": priced, **changes})


def test_a_correction_repeats_whose_call_it_was_and_counts_the_difference() -> None:
    before = abandoned(7, run="job", project="search", operation_id="op", admit_seq=3, settle_seq=4)
    after = settle(before, Usage(input=1_000, output=200))
    repeated = ("operation_id", "attempt", "admitted_at", "organization", "project", "key_id", "customer", "run",
                "tags", "provider", "route", "model_requested", "request_bytes", "hold_nano_usd")  # fmt: skip
    assert {name: getattr(after, name) for name in repeated} == {
        name: getattr(before, name) for name in repeated
    }
    assert (after.receipt_id, after.corrects, after.node) == ("rc_new", before.receipt_id, "n2")
    assert (after.status, after.usage_source, after.unpriced_reason) == ("served", "final", None)
    assert (after.input_tokens, after.output_tokens, after.cache_read_tokens) == (1_000, 200, None)
    assert after.cost_nano_usd is not None
    assert after.cost_nano_usd > 0
    assert before.counted_nano_usd + after.counted_nano_usd == after.cost_nano_usd
    assert before.counted_tokens + after.counted_tokens == 1_200
    assert (after.admit_seq, after.settle_seq, after.settled_at) == (None, 99, LATER)
    assert (after.chain_seq, after.prev_hash, after.row_hash) == (None, None, None)


def test_without_a_usage_of_its_own_it_bills_what_the_row_recorded() -> None:
    before = served(3, cost_nano_usd=None, unpriced_reason="model_unknown", units={"web_search": 2})
    after = settle(before)
    assert (after.input_tokens, after.cache_read_tokens, after.units) == (1_003, 30, {"web_search": 2})
    assert after.counted_tokens == 0


def test_a_call_that_its_provider_does_not_bill_is_settled_at_zero() -> None:
    after = settle(abandoned(1), priced=None, facts={"http_status": 500, "model_served": "m-large"})
    assert (after.status, after.cost_nano_usd, after.usage_source) == ("failed", 0, "none")
    assert (after.counted_nano_usd, after.http_status) == (-abandoned(1).counted_nano_usd, 500)


def test_facts_never_replace_what_a_correction_is() -> None:
    after = settle(abandoned(1), Usage(input=5), facts={"corrects": "other", "model_served": "m-large"})
    assert (after.corrects, after.model_served) == (abandoned(1).receipt_id, "m-large")


def test_a_correction_is_not_made_before_its_call() -> None:
    before = abandoned(1)
    assert settle(before, settled_at=before.admitted_at - timedelta(days=1)).settled_at == before.admitted_at


@pytest.mark.parametrize(
    "before",
    [
        served(1),
        served(1, cost_nano_usd=0),
        refused(1),
        served(1, status="failed", cost_nano_usd=None),
        replace(abandoned(1), corrects="r00000"),
    ],
    ids=["priced", "priced at zero", "refused", "failed", "a correction"],
)
def test_only_a_row_without_a_known_cost_is_settled(before: Receipt) -> None:
    with pytest.raises(CorrectionError):
        settle(before)


def test_the_caps_of_a_correction_are_those_of_its_call() -> None:
    who = attribution_of(served(1, model_requested="openai/m-large", **NO_USAGE))
    assert (who.provider, who.model, who.customer, who.tags) == (
        "openai",
        "m-large",
        "cust-1",
        ("agent:crawler",),
    )
