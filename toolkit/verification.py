"""`verify`: whether exports are what the gateway wrote, and whether every cost follows from its price list.

Three answers. False: a row or a file contradicts itself, and the first such row is named. True: every hash,
link, sum and cost holds and nothing is missing. Null: nothing is wrong, but a part of the proof is missing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from toolkit.core.chain import GENESIS, ChainCheck, chain_of, row_hash
from toolkit.core.errors import VerifyError
from toolkit.core.pricing import Priced, PriceList, PriceRow, price
from toolkit.core.receipts import RECEIPT_COLUMNS, counted_of, usage_of_row
from toolkit.core.windows import instant_text, parse_instant
from toolkit.datasets import load_prices
from toolkit.frames import TOKEN_COLUMNS
from toolkit.loading import expand
from toolkit.sources import read
from toolkit.sources.common import Part, Unproven, read_blob
from toolkit.sources.receipts import KIND, SAMPLE_KIND, exact_sum


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The verdict over all files. `ok` is True, False, or None for "cannot tell", for the reasons in `notes`.

    `priced_rows` are those whose recorded cost follows from their tokens and price list.
    """

    ok: bool | None
    first_fault: str | None
    faults: int
    files: int
    rows: int
    priced_rows: int
    cost_nano_usd: int
    counted_nano_usd: int
    complete: bool | None
    notes: tuple[str, ...]


def verify(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    price_lists: Iterable[PriceList] | None = None,
) -> Verification:
    """Check our own exports, or plain receipts whose costs alone can be checked.

    `price_lists` are those to derive costs from; the bundled ones when left out.

    Raises:
        LoadError: a file that cannot be read at all.
        VerifyError: a file of another system, which holds no proof.
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    files = [file for path in given for file in expand(os.fspath(path))]
    if not files:
        raise VerifyError("nothing was given to verify")
    found = _Findings(_Rows(load_prices() if price_lists is None else price_lists))
    for file in files:
        part = read(read_blob(file))
        if part.kind not in (KIND, SAMPLE_KIND):
            raise VerifyError(f"{file}: {part.kind} hold no proof; load them with tk.load")
        _check(part, str(file), found)
    return found.verdict(len(files))


@dataclass(slots=True)
class _Rows:
    """The rows of all price lists at hand, by list and row id."""

    lists: Iterable[PriceList]
    known: dict[str, tuple[PriceList, dict[str, PriceRow]]] = field(init=False)
    absent: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.known = {prices.id: (prices, {row.id: row for row in prices.rows}) for prices in self.lists}


@dataclass(slots=True)
class _Findings:
    """What was seen so far, over all files."""

    prices: _Rows
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    rows: int = 0
    priced_rows: int = 0
    cost: int = 0
    counted: int = 0
    claims: set[bool | None] = field(default_factory=set)

    def verdict(self, files: int) -> Verification:
        for name, count in sorted(self.prices.absent.items()):
            self.notes.append(f"price list {name} is not at hand: {count} costs were not derived again")
        return Verification(
            ok=False if self.faults else None if self.notes else True,
            first_fault=self.faults[0] if self.faults else None,
            faults=len(self.faults),
            files=files,
            rows=self.rows,
            priced_rows=self.priced_rows,
            cost_nano_usd=self.cost,
            counted_nano_usd=self.counted,
            complete=True if self.claims == {True} else False if False in self.claims else None,
            notes=tuple(self.notes),
        )


def _check(part: Part, name: str, found: _Findings) -> None:
    found.rows += part.frame.height
    found.cost += exact_sum(part.frame["cost_nano_usd"])
    found.counted += exact_sum(part.frame["counted_nano_usd"])
    found.claims.add(part.complete)
    chained = part.kind == KIND
    whole = chained and _is_whole(part.header)
    if not chained:
        found.notes.append(f"{name}: receipts without a chain; only costs and counts were checked")
    elif not whole:
        found.notes.append(f"{name}: not a whole month; each row's own hash was checked, gaps cannot be told")
    elif part.complete is not True:
        found.notes.append(f"{name}: does not say that it is complete; more rows may follow")
    heads = _Heads()
    ids: set[str] = set()
    for row in _json_rows(part):
        twice = row["receipt_id"] in ids
        ids.add(row["receipt_id"])
        for fault in (
            heads.see(row, whole=whole) if chained else None,
            "stands in this file twice" if twice else None,
            _count_fault(row, found.prices),
            _cost_fault(row, found),
            _token_fault(row),
        ):
            if fault is not None:
                named = fault if fault.startswith("receipt ") else f"receipt {row['receipt_id']}: {fault}"
                found.faults.append(f"{name}: {named}")
    found.faults.extend(f"{name}: {fault}" for fault in _correction_faults(part.frame))
    if whole and part.header is not None:
        found.faults.extend(f"{name}: {fault}" for fault in heads.against(part.header))
        if any(first != 1 for first, _, _ in heads.chains.values()):
            found.notes.append(
                f"{name}: a chain does not start at its first row; what was before cannot be told"
            )
    for error in part.faults:
        (found.notes if isinstance(error, Unproven) else found.faults).append(str(error))


def _json_rows(part: Part) -> Iterator[dict[str, Any]]:
    """Rows in file order in the form that was hashed."""
    for row in part.frame.select(RECEIPT_COLUMNS).iter_rows(named=True):
        row["admitted_at"] = instant_text(row["admitted_at"])
        row["settled_at"] = instant_text(row["settled_at"])
        row["units"] = None if row["units"] is None else json.loads(row["units"])
        yield row


def _is_whole(header: Mapping[str, Any] | None) -> bool:
    """Whether the range runs from one month's start to another's, so that no chain is cut inside."""
    if header is None:
        return False
    try:
        edges = [parse_instant(header[edge]) for edge in ("from", "to") if header.get(edge) is not None]
    except (TypeError, ValueError):
        return False
    return all(edge.day == 1 and edge.timetuple()[3:6] == (0, 0, 0) for edge in edges)


@dataclass(slots=True)
class _Heads:
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
        before = len(self.check.faults)
        self.check.see(row)
        return "; ".join(self.check.faults[before:]) or None

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


def _count_fault(row: Mapping[str, Any], prices: _Rows) -> str | None:
    """Whether cost and status go together, and the counters took what they should have (contract §10)."""
    status, cost, counted = row["status"], row["cost_nano_usd"], row["counted_nano_usd"]
    if row["corrects"] is not None:
        return None if cost is not None else "corrects a row and has no cost itself"
    if cost is not None and (status in ("refused", "abandoned") or (status == "failed" and cost)):
        return f"is {status} and has a cost"
    if status == "served" and cost is None and row["unpriced_reason"] is None:
        return "has neither a cost nor a reason for none"
    seen = _again(row, prices) if cost is None and status in ("served", "abandoned") else None
    if status == "served" and seen is not None:
        return f"has no cost; tokens and price list give {seen}"
    expected = counted_of(
        status=status, cost_nano_usd=cost, hold_nano_usd=row["hold_nano_usd"], seen_nano_usd=seen
    )
    if counted == expected or (counted > expected and _is_beyond_reach(row, prices)):
        return None
    why = f"its cost is {cost}" if cost is not None else f"it is {status} and should count {expected}"
    return f"counted_nano_usd is {counted} where {why}"


def _token_fault(row: Mapping[str, Any]) -> str | None:
    """Whether a row counts the tokens that it reports, or its hold where nobody knows them (contract §7)."""
    if row["corrects"] is not None:
        return None
    usage = usage_of_row(row)
    if row["status"] in ("refused", "failed"):
        expected = 0
    elif row["status"] == "served" and (usage.meters() or usage.units):
        expected = usage.tokens
    else:
        expected = row["hold_tokens"]
    if row["counted_tokens"] in (expected, None) or expected is None:
        return None
    return f"counted_tokens is {row['counted_tokens']} and not {expected}"


def _again(row: Mapping[str, Any], prices: _Rows) -> int | None:
    """What the reported tokens of a row without a cost would cost by the price that it names."""
    usage = usage_of_row(row)
    known, rows = prices.known.get(row["price_list"], (None, {}))
    priced_by = rows.get(row["price_row"])
    if known is None or priced_by is None or not (usage.meters() or usage.units):
        return None
    at = parse_instant(row["admitted_at"])
    again = price(known, priced_by.provider, priced_by.model, usage, at, tier=priced_by.tier)
    return again.cost_nano_usd if isinstance(again, Priced) else None


def _is_beyond_reach(row: Mapping[str, Any], prices: _Rows) -> bool:
    """Whether an abandoned call saw usage whose price list is not at hand: it may have counted more."""
    return (
        row["status"] == "abandoned"
        and row["price_row"] is not None
        and row["price_list"] not in prices.known
    )


def _cost_fault(row: Mapping[str, Any], found: _Findings) -> str | None:
    """Whether tokens and the named row of the named list give the recorded cost, exactly."""
    if row["status"] != "served" or row["cost_nano_usd"] is None:
        return None
    if row["price_list"] is None or row["price_row"] is None:
        return "has a cost and names no price"
    if row["price_list"] not in found.prices.known:
        found.prices.absent[row["price_list"]] = found.prices.absent.get(row["price_list"], 0) + 1
        return None
    prices, rows = found.prices.known[row["price_list"]]
    priced_by = rows.get(row["price_row"])
    if priced_by is None:
        return f"price list {prices.id} has no row {row['price_row']!r}"
    if row["model_served"] is not None and priced_by not in prices.find(
        priced_by.provider, row["model_served"]
    ):
        return f"row {priced_by.id!r} does not price model {row['model_served']!r}"
    at = parse_instant(row["admitted_at"])
    again = price(prices, priced_by.provider, priced_by.model, usage_of_row(row), at, tier=priced_by.tier)
    if not isinstance(again, Priced):
        return f"its tokens have no price by {priced_by.id!r}: {again.reason}"
    if again.price_row != priced_by.id:
        return f"its tokens are priced by {again.price_row!r}, not by {priced_by.id!r}"
    if again.cost_nano_usd != row["cost_nano_usd"]:
        return f"cost_nano_usd is {row['cost_nano_usd']}; tokens and price list give {again.cost_nano_usd}"
    found.priced_rows += 1
    return None


def _correction_faults(frame: pl.DataFrame) -> Iterator[str]:
    """A correction settles a row without a cost, once, and counts the difference (contract §10)."""
    columns = ["receipt_id", "corrects", "cost_nano_usd", "counted_nano_usd", "counted_tokens"]
    made = frame.filter(pl.col("corrects").is_not_null()).select(*columns, *TOKEN_COLUMNS, "units")
    pairs = made.join(
        frame.select(columns),
        left_on="corrects",
        right_on="receipt_id",
        suffix="_before",
        maintain_order="left",
    )
    seen: set[str] = set()
    for row in pairs.iter_rows(named=True):
        name = f"receipt {row['receipt_id']} corrects {row['corrects']}"
        if row["corrects"] in seen:
            yield f"{name}, which is corrected already"
        seen.add(row["corrects"])
        both = row["counted_nano_usd"] + row["counted_nano_usd_before"]
        if row["cost_nano_usd_before"] is not None:
            yield f"{name}, which has a cost"
        elif both != row["cost_nano_usd"]:
            yield f"{name}; together they count {both} where the cost is {row['cost_nano_usd']}"
        elif None not in (row["counted_tokens"], row["counted_tokens_before"]):
            billed = usage_of_row({**row, "units": json.loads(row["units"] or "{}")}).tokens
            tokens = row["counted_tokens"] + row["counted_tokens_before"]
            if tokens != billed:
                yield f"{name}; together they count {tokens} tokens where {billed} were billed"
