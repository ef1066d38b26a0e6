"""The ledger's hot path hashes and stores exactly what the kernel's chain and the export's rows say (contract §10)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.stores.linking import linked
from gateway.stores.rows import row_to_json
from toolkit.core.chain import GENESIS, row_hash
from toolkit.core.money import LARGEST_INTEGER
from toolkit.core.receipts import RECEIPT_COLUMNS, Receipt

AT = datetime(2026, 12, 1, 9, 30, 0, 125, tzinfo=UTC)
PLAIN = Receipt(
    receipt_id="rc_1",
    operation_id="op_1",
    admitted_at=AT,
    settled_at=AT,
    organization="default",
    dialect="openai",
    route="/v1/chat/completions",
    status="served",
    request_bytes=100,
    node="n1",
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
"""Any text that UTF-8 can carry: control characters, quotes, line separators, every plane."""
integers = st.integers(0, LARGEST_INTEGER)
instants = st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001
quantities = integers | st.decimals(0, 10**12, allow_nan=False, allow_infinity=False)
receipts = st.builds(
    replace,
    st.just(PLAIN),
    admitted_at=instants,
    settled_at=instants,
    customer=st.none() | texts,
    run=st.none() | texts,
    model_requested=st.none() | texts,
    upstream_id=st.none() | texts,
    tags=st.lists(texts, max_size=8).map(tuple),
    units=st.none() | st.dictionaries(texts, quantities, max_size=4),
    stream=st.booleans(),
    input_tokens=st.none() | integers,
    cost_nano_usd=st.none() | integers,
    counted_nano_usd=st.integers(-LARGEST_INTEGER, LARGEST_INTEGER),
)


def in_kernel(receipt: Receipt, chain_seq: int, prev_hash: str) -> dict[str, Any]:
    """The row as the kernel links it."""
    row = replace(receipt, chain_seq=chain_seq, prev_hash=prev_hash).row()
    return {**row, "row_hash": row_hash(row)}


def stored_row(receipt: Receipt, chain_seq: int, prev_hash: str) -> Mapping[str, Any]:
    """The row as the ledger stores it, read back as the export reads it."""
    row_hash, values = linked(receipt, None, chain_seq, prev_hash)
    row = row_to_json(dict(zip((*RECEIPT_COLUMNS, "trace"), values, strict=True)))
    assert row["row_hash"] == row_hash
    return row


@given(receipts, st.integers(1, 10**9), st.sampled_from([GENESIS, "0a" * 32]))
def test_the_hot_path_links_as_the_kernel_does(receipt: Receipt, chain_seq: int, prev_hash: str) -> None:
    assert stored_row(receipt, chain_seq, prev_hash) == in_kernel(receipt, chain_seq, prev_hash)


def test_every_control_character_is_escaped_as_the_recipe_says() -> None:
    receipt = replace(PLAIN, customer="".join(map(chr, range(0x20))) + '"\\/\x7f\u2028é😀')
    assert stored_row(receipt, 1, GENESIS) == in_kernel(receipt, 1, GENESIS)


def test_a_unit_in_exponent_form_is_written_out() -> None:
    receipt = replace(PLAIN, units={"seconds": Decimal("1E+2"), "searches": 3, "images": Decimal("0.50")})
    row = stored_row(receipt, 1, GENESIS)
    assert row == in_kernel(receipt, 1, GENESIS)
    assert json.dumps(row["units"]) == '{"images": "0.50", "searches": 3, "seconds": "100"}'


def test_a_microsecond_is_not_lost() -> None:
    receipt = replace(PLAIN, settled_at=AT + timedelta(microseconds=1))
    row = stored_row(receipt, 1, GENESIS)
    assert (row["admitted_at"], row["settled_at"]) == (
        "2026-12-01T09:30:00.000125Z",
        "2026-12-01T09:30:00.000126Z",
    )
