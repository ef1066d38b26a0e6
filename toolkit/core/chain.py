"""capline-chain-v1: each receipt's hash covers its row and the hash before it (docs/chain.md).

One chain per organization, UTC month of `admitted_at`, and node. It starts at 64 zeros with `chain_seq` 1.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from toolkit.core.money import LARGEST_INTEGER

RECIPE = "capline-chain-v1"
GENESIS = "0" * 64

_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def footer_hash(footer: Mapping[str, Any]) -> str:
    """What an export's footer says of itself in `footer_sha256`: the SHA-256 of its other fields.

    Canonical JSON as below, but its sums have no bound.
    """
    said = {name: value for name, value in footer.items() if name != "footer_sha256"}
    return hashlib.sha256(_encode(said).encode()).hexdigest()


def canonical(row: Mapping[str, Any]) -> bytes:
    """The canonical JSON of a row without its `row_hash`: keys sorted by code point, no spaces, UTF-8.

    Raises ValueError for what the recipe has no form for: a float, an integer of 2^53 or more, half a
    character.
    """
    for name, value in row.items():
        kind = type(value)
        if kind is float or (kind is int and not -LARGEST_INTEGER <= value <= LARGEST_INTEGER):
            raise ValueError(f"{name} is {value!r}: decimals are text and integers stay below 2^53")
    return _encode({name: value for name, value in row.items() if name != "row_hash"}).encode()


def row_hash(row: Mapping[str, Any]) -> str:
    """SHA-256 over the canonical JSON of a row that already has its `chain_seq` and `prev_hash`."""
    return hashlib.sha256(canonical(row)).hexdigest()


@dataclass(slots=True)
class ChainCheck:
    """Walks the rows of any number of chains in order and collects what is wrong, first fault first."""

    expected: dict[tuple[str, str, str], tuple[int, str]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def see(self, row: Mapping[str, Any]) -> None:
        """Check one row's own hash and its link to the row before it in its chain."""
        chain = chain_of(row)
        name = f"receipt {row['receipt_id']} (chain {'/'.join(chain)}, seq {row['chain_seq']})"
        if not _hash_holds(row):
            self.faults.append(f"{name}: row_hash does not match the row")
        before = self.expected.get(chain)
        if before is not None:
            seq, head = before
            if row["chain_seq"] != seq + 1:
                self.faults.append(f"{name}: follows seq {seq}; rows are missing or out of order")
            elif row["prev_hash"] != head:
                self.faults.append(f"{name}: prev_hash is not the hash of seq {seq}")
        elif (row["chain_seq"] == 1) != (row["prev_hash"] == GENESIS):
            self.faults.append(f"{name}: seq 1, and no other row, must follow 64 zeros")
        self.expected[chain] = (row["chain_seq"], row["row_hash"])


def chain_of(row: Mapping[str, Any]) -> tuple[str, str, str]:
    """The chain a row belongs to: organization, UTC month of admission, node."""
    return (row["organization"], row["admitted_at"][:7], row["node"])


def _hash_holds(row: Mapping[str, Any]) -> bool:
    try:
        return bool(row_hash(row) == row["row_hash"])
    except ValueError:
        return False


def check_chain(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Every fault in `rows`, which may interleave several chains; empty when all links hold."""
    check = ChainCheck()
    for row in rows:
        check.see(row)
    return check.faults
