"""Ledger exports as contract §11 has them, written here from the contract and not by the gateway."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.prices import ROWS
from toolkit.core.chain import GENESIS, RECIPE, row_hash
from toolkit.core.pricefile import parse_price_list
from toolkit.core.pricing import Priced, price
from toolkit.core.receipts import RECEIPT_COLUMNS, Receipt, usage_columns
from toolkit.core.usage import Usage

NOVEMBER = ("2026-11-01T00:00:00.000000Z", "2026-12-01T00:00:00.000000Z")
PRICES = parse_price_list(
    {"schema": "capline-prices-v1", "date": "2026-10-01", "currency": "USD", "sources": [], "rows": ROWS},
    source="test",
)
_INTEGERS = {"int", "int | None"}


def instant(day: int, hour: int = 12, *, month: int = 11) -> datetime:
    """An instant of 2026, in UTC."""
    return datetime(2026, month, day, hour, tzinfo=UTC)


def served(number: int, at: datetime | None = None, *, model: str = "m-large", **changes: Any) -> Receipt:
    """A served receipt priced by `PRICES`: `number` names it and gives it its tokens."""
    admitted_at = at or instant(1 + number % 28)
    usage = Usage(input=1_000 + number, cache_read=10 * number, output=100 + number)
    cost = price(PRICES, "openai", model, usage, admitted_at)
    assert isinstance(cost, Priced)
    known: dict[str, Any] = {
        "receipt_id": f"r{number:05d}",
        "operation_id": f"o{number:05d}",
        "admitted_at": admitted_at,
        "settled_at": admitted_at + timedelta(seconds=2),
        "organization": "default",
        "key_id": "k1",
        "customer": f"cust-{number % 3}",
        "tags": ("agent:crawler",) if number % 2 else (),
        "provider": "openai",
        "dialect": "openai",
        "route": "/v1/chat/completions",
        "model_requested": model,
        "model_served": model,
        "status": "served",
        "http_status": 200,
        **usage_columns(usage),
        "request_bytes": 4_000,
        "usage_source": "final",
        "hold_nano_usd": cost.cost_nano_usd * 2,
        "cost_nano_usd": cost.cost_nano_usd,
        "counted_nano_usd": cost.cost_nano_usd,
        "counted_tokens": usage.tokens,
        "price_list": cost.price_list,
        "price_row": cost.price_row,
        "node": "n1",
    }
    return Receipt(**{**known, **changes})


NO_USAGE: dict[str, Any] = dict.fromkeys(usage_columns(Usage()))


def refused(number: int, **changes: Any) -> Receipt:
    """A receipt of a call that a cap refused."""
    nothing = {"status": "refused", "http_status": 402, "refusal_code": "budget_exceeded", "cap_id": 1}
    unspent = {"cost_nano_usd": None, "counted_nano_usd": 0, "counted_tokens": 0, "usage_source": "none"}
    nowhere = {"price_row": None, "model_served": None}
    return served(number, **{**NO_USAGE, **nothing, **unspent, **nowhere, **changes})


def abandoned(number: int, **changes: Any) -> Receipt:
    """A receipt of a call whose outcome is unknown: no cost, the hold counted."""
    hold = 70_000_000
    unknown = {
        "status": "abandoned",
        "cost_nano_usd": None,
        "hold_nano_usd": hold,
        "counted_nano_usd": hold,
        "unpriced_reason": "outcome_unknown",
        "usage_source": "none",
        "price_row": None,
    }
    return served(number, **{**NO_USAGE, **unknown, **changes})


def correction(number: int, of: Receipt) -> Receipt:
    """The row that settles `of`: tokens and cost in full, counted as the difference."""
    full = served(number, of.admitted_at, customer=of.customer, tags=of.tags)
    assert full.cost_nano_usd is not None
    return replace(
        full,
        corrects=of.receipt_id,
        counted_nano_usd=full.cost_nano_usd - of.counted_nano_usd,
        counted_tokens=full.counted_tokens - of.counted_tokens,
    )


def chained(receipts: Iterable[Receipt]) -> list[Receipt]:
    """`receipts` linked in their order, one chain per organization, month and node."""
    heads: dict[tuple[str, str, str], tuple[int, str]] = {}
    linked: list[Receipt] = []
    for receipt in receipts:
        chain = (receipt.organization, receipt.row()["admitted_at"][:7], receipt.node)
        seq, head = heads.get(chain, (0, GENESIS))
        row = replace(receipt, chain_seq=seq + 1, prev_hash=head).row()
        heads[chain] = (seq + 1, row_hash(row))
        linked.append(replace(receipt, chain_seq=seq + 1, prev_hash=head, row_hash=heads[chain][1]))
    return linked


@dataclass(frozen=True)
class Export:
    """One export's rows with its range; `jsonl`, `csv` and `parquet` write it."""

    receipts: Sequence[Receipt]
    period: tuple[str, str] = NOVEMBER
    complete: bool = True

    def header(self) -> dict[str, Any]:
        """The header, with one entry per chain."""
        chains: dict[tuple[str, str], list[Receipt]] = {}
        for receipt in self.receipts:
            chains.setdefault((receipt.row()["admitted_at"][:7], receipt.node), []).append(receipt)
        return {
            "recipe": RECIPE,
            "chains": [
                {
                    "node": node,
                    "genesis": GENESIS,
                    "head": rows[-1].row_hash,
                    "first_seq": rows[0].chain_seq,
                    "rows": len(rows),
                }
                for (_, node), rows in chains.items()
            ],
            "price_lists": sorted({receipt.price_list for receipt in self.receipts if receipt.price_list}),
            "from": self.period[0],
            "to": self.period[1],
            "complete": self.complete,
        }

    def footer(self, digest: str) -> dict[str, Any]:
        """The footer, with sums over all rows."""
        return {
            "rows": len(self.receipts),
            "cost_nano_usd": sum(receipt.cost_nano_usd or 0 for receipt in self.receipts),
            "counted_nano_usd": sum(receipt.counted_nano_usd for receipt in self.receipts),
            "next_seq": "opaque",
            "sha256": digest,
        }

    def jsonl(self) -> bytes:
        """Header, rows and footer, one JSON object a line."""
        lines = [self.header(), *(receipt.row() for receipt in self.receipts)]
        body = b"".join(_json(line) + b"\n" for line in lines)
        return body + _json(self.footer(hashlib.sha256(body).hexdigest())) + b"\n"

    def csv(self, *, plain: bool = False) -> bytes:
        """A CSV whose header and footer stand in comment lines, or not at all when it is `plain`."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(RECEIPT_COLUMNS)
        for receipt in self.receipts:
            writer.writerow([_cell(value) for value in receipt.row().values()])
        table = out.getvalue().encode()
        if plain:
            return table
        body = b"# " + _json(self.header()) + b"\n" + table
        return body + b"# " + _json(self.footer(hashlib.sha256(body).hexdigest())) + b"\n"

    def parquet(self, *, metadata: bool = True) -> bytes:
        """A Parquet file with header and footer among its metadata, or without any."""
        rows = [receipt.row() for receipt in self.receipts]
        columns = {name: [_arrow(name, row[name]) for row in rows] for name in RECEIPT_COLUMNS}
        table = pa.table(
            [pa.array(columns[name], type=_arrow_type(name)) for name in RECEIPT_COLUMNS],
            names=RECEIPT_COLUMNS,
        )
        if metadata:
            text = "".join(f"{receipt.row_hash}\n" for receipt in self.receipts)
            footer = self.footer(hashlib.sha256(text.encode()).hexdigest())
            table = table.replace_schema_metadata(
                {"capline.header": _json(self.header()), "capline.footer": _json(footer)}
            )
        out = io.BytesIO()
        pq.write_table(table, out)
        return out.getvalue()


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    text = _json(value).decode() if isinstance(value, bool | list | dict) else str(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "'", "\t", "\r")) else text


def _arrow(name: str, value: Any) -> Any:
    if name in ("admitted_at", "settled_at"):
        return datetime.fromisoformat(value)
    return _json(value).decode() if name == "units" and value is not None else value


def _arrow_type(name: str) -> pa.DataType:
    if name in ("admitted_at", "settled_at"):
        return pa.timestamp("us", "UTC")
    if name == "tags":
        return pa.list_(pa.string())
    annotation = Receipt.__annotations__[name]
    if annotation in _INTEGERS:
        return pa.int64()
    return pa.bool_() if annotation == "bool" else pa.string()
