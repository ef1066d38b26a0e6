"""What `verify` asks of the rows of a file together: chains, repeats, corrections. A row leaves 8 bytes behind.

Where a row stands is its line, or its number in Parquet.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from toolkit.core.chain import GENESIS, ChainCheck, chain_of, row_hash
from toolkit.core.receipts import usage_of_row
from toolkit.frames import TOKEN_COLUMNS

_SUMS = ("cost_nano_usd", "counted_nano_usd", "counted_tokens")


@dataclass(slots=True)
class Chains:
    """The chains of one file as their rows go by: first sequence number, rows seen, last hash."""

    check: ChainCheck = field(default_factory=ChainCheck)
    chains: dict[tuple[str, str, str], tuple[int, int, str]] = field(default_factory=dict)

    def see(self, row: Mapping[str, Any], *, whole: bool) -> str | None:
        """The fault of a row: of its own hash, and in a whole range of its link to the row before."""
        if row["chain_seq"] is None or row["prev_hash"] is None or row["row_hash"] is None:
            return "is not chained"
        chain = chain_of(row)
        first, rows, _ = self.chains.get(chain, (row["chain_seq"], 0, GENESIS))
        self.chains[chain] = (first, rows + 1, row["row_hash"])
        if not whole:
            return None if row_hash(row) == row["row_hash"] else "row_hash does not match the row"
        self.check.see(row)
        fault = "; ".join(self.check.faults) or None
        self.check.faults.clear()
        return fault

    def last(self) -> dict[tuple[str, str, str], int]:
        """The last sequence number of each chain."""
        return {chain: first + rows - 1 for chain, (first, rows, _) in self.chains.items()}

    @property
    def start_inside(self) -> bool:
        """Whether a chain begins behind its first row."""
        return any(first != 1 for first, _, _ in self.chains.values())

    def against(self, header: Mapping[str, Any]) -> Iterator[str]:
        """What the header says of the chains and the rows do not."""
        stated = {
            (chain.get("node"), chain.get("first_seq"), chain.get("rows"), chain.get("head"))
            for chain in header.get("chains") or ()
            if chain.get("rows")
        }
        seen = {(node, *figures) for (_, _, node), figures in self.chains.items()}
        for node, first, rows, head in sorted(seen - stated):
            yield f"node {node} has {rows} rows from seq {first} to head {head}; the header says otherwise"
        for node, first, rows, head in sorted(stated - seen, key=str):
            yield f"the header states {rows} rows of node {node} from seq {first} to head {head}; not here"


class Repeats:
    """Receipts that stand in a file twice: told by 64 bits of their ids, then looked at again."""

    def __init__(self) -> None:
        self._ids: list[pl.Series] = []

    def see(self, frame: pl.DataFrame) -> None:
        """Take note of the ids of a batch."""
        self._ids.append(frame["receipt_id"].hash())

    def suspects(self) -> pl.Series:
        """The hashes that came more than once."""
        ids = pl.concat(self._ids)
        return ids.filter(ids.is_duplicated()).unique()

    def holds(self, receipt_ids: pl.Series) -> Set[str]:
        """Those of some receipts that stand in the file."""
        hashes = receipt_ids.hash()
        there = pl.concat([ids.filter(ids.is_in(hashes.implode())) for ids in self._ids])
        return set(receipt_ids.filter(hashes.is_in(there.implode())))


def repeated(batches: Iterator[pl.DataFrame], suspects: pl.Series) -> Iterator[tuple[int, str]]:
    """(line, fault) of each receipt that stood before, among those with these hashes."""
    seen: set[str] = set()
    for frame in batches:
        some = frame.filter(pl.col("receipt_id").hash().is_in(suspects.implode()))
        for line, receipt_id in some.select("line", "receipt_id").iter_rows():
            if receipt_id in seen:
                yield line, f"receipt {receipt_id}: stands in this file twice"
            seen.add(receipt_id)


class Corrections:
    """A correction settles a row without a cost, once, and counts the difference (contract §10)."""

    def __init__(self) -> None:
        self._made: list[pl.DataFrame] = []
        self._open: list[pl.DataFrame] = []

    def see(self, frame: pl.DataFrame) -> None:
        """Take note of a batch: its corrections, and its rows that may come to be corrected."""
        made = frame.filter(pl.col("corrects").is_not_null())
        if made.height:
            self._made.append(made.select("line", "receipt_id", "corrects", *_SUMS, *TOKEN_COLUMNS, "units"))
        without_cost = frame.filter(pl.col("cost_nano_usd").is_null())
        self._open.append(without_cost.select(pl.col("receipt_id").hash().alias("id"), *_SUMS))

    def faults(self, ids: Repeats) -> Iterator[tuple[int, str]]:
        """(line, fault) of each wrong correction. `ids` are those of the whole file."""
        if not self._made:
            return
        made = pl.concat(self._made)
        pairs = made.with_columns(pl.col("corrects").hash().alias("id")).join(
            pl.concat(self._open), on="id", how="left", suffix="_before", maintain_order="left"
        )
        here = ids.holds(made["corrects"])
        seen: set[str] = set()
        for row in pairs.iter_rows(named=True):
            if row["corrects"] not in here:
                continue
            name = f"receipt {row['receipt_id']} corrects {row['corrects']}"
            if row["corrects"] in seen:
                yield row["line"], f"{name}, which is corrected already"
            seen.add(row["corrects"])
            if (fault := _difference(row)) is not None:
                yield row["line"], f"{name}{fault}"


def _difference(row: Mapping[str, Any]) -> str | None:
    """Whether a correction and the row before it add up. A row that has a cost was not kept."""
    if row["counted_nano_usd_before"] is None:
        return ", which has a cost"
    both = row["counted_nano_usd"] + row["counted_nano_usd_before"]
    if both != row["cost_nano_usd"]:
        return f"; together they count {both} where the cost is {row['cost_nano_usd']}"
    if None in (row["counted_tokens"], row["counted_tokens_before"]):
        return None
    billed = usage_of_row({**row, "units": json.loads(row["units"] or "{}")}).tokens
    tokens = row["counted_tokens"] + row["counted_tokens_before"]
    return None if tokens == billed else f"; together they count {tokens} tokens where {billed} were billed"
