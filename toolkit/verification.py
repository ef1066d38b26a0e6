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

from toolkit.core.chain import chain_of
from toolkit.core.errors import VerifyError
from toolkit.core.pricing import PriceList
from toolkit.core.receipts import RECEIPT_COLUMNS
from toolkit.core.windows import parse_instant
from toolkit.datasets import load_prices
from toolkit.heads import PublishedHeads, read_heads
from toolkit.loading import expand
from toolkit.sources import export_of
from toolkit.sources.common import Unproven
from toolkit.sources.files import Blob, read_blob
from toolkit.sources.receipts import Export
from toolkit.verification_links import Chains, Corrections, Repeats, repeated
from toolkit.verification_rows import RowCheck


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
    heads: str | os.PathLike[str] | None = None,
    public_key: str | os.PathLike[str] | None = None,
) -> Verification:
    """Check our own exports, or plain receipts whose costs alone can be checked.

    `price_lists` are those to derive costs from; the bundled ones when left out. `heads` is a file of published
    heads: each must stand in a whole export of its chain. `public_key` (64 hex digits or a PEM file) is theirs.

    Raises:
        LoadError: a file that cannot be read at all.
        VerifyError: a file of another system, which holds no proof.
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    files = [file for path in given for file in expand(os.fspath(path))]
    if not files:
        raise VerifyError("nothing was given to verify")
    found = _Findings(RowCheck(load_prices() if price_lists is None else price_lists))
    if heads is not None:
        found.published = read_heads(heads, public_key)
        for fault in found.published.faults:
            found.fault(fault)
        found.notes.extend(found.published.notes)
    for file in files:
        blob = read_blob(file)
        if blob.is_as_promised:
            _check(blob, found)
        else:
            found.fault(f"{file}: {blob.broken_promise}")
    return found.verdict(len(files))


@dataclass(slots=True)
class _Findings:
    """What was seen so far, over all files."""

    rows_check: RowCheck
    published: PublishedHeads = field(default_factory=PublishedHeads)
    first_fault: str | None = None
    faults: int = 0
    notes: list[str] = field(default_factory=list)
    rows: int = 0
    cost: int = 0
    counted: int = 0
    claims: set[bool | None] = field(default_factory=set)

    def fault(self, text: str) -> None:
        self.faults += 1
        if self.first_fault is None:
            self.first_fault = text

    def verdict(self, files: int) -> Verification:
        for name, count in sorted(self.rows_check.absent.items()):
            self.notes.append(f"price list {name} is not at hand: {count} costs were not derived again")
        return Verification(
            ok=False if self.faults else None if self.notes else True,
            first_fault=self.first_fault,
            faults=self.faults,
            files=files,
            rows=self.rows,
            priced_rows=self.rows_check.priced_rows,
            cost_nano_usd=self.cost,
            counted_nano_usd=self.counted,
            complete=True if self.claims == {True} else False if False in self.claims else None,
            notes=tuple(self.notes),
        )


@dataclass(slots=True)
class _RowFaults:
    """How many rows of a file are at fault, and the first of them."""

    count: int = 0
    first: tuple[int, str] | None = None

    def add(self, line: int, text: str) -> None:
        self.count += 1
        if self.first is None or line < self.first[0]:
            self.first = (line, text)


def _check(blob: Blob, found: _Findings) -> None:
    export = export_of(blob)
    whole = not export.is_sample and _is_whole(export.header)
    chains, faults = Chains(), _RowFaults()
    _check_rows(export, chains, found, faults, whole=whole)
    found.rows += export.rows
    found.cost += export.sums["cost_nano_usd"]
    found.counted += export.sums["counted_nano_usd"]
    found.claims.add(export.complete)
    if faults.first is not None:
        found.fault(f"{blob.name}: {faults.first[1]}")
        found.faults += faults.count - 1
    found.notes.extend(f"{blob.name}: {note}" for note in _doubts(export, chains, whole=whole))
    if whole and export.header is not None:
        for fault in (
            *chains.against(export.header),
            *found.published.missing(chains.last(), export.header),
        ):
            found.fault(f"{blob.name}: {fault}")
    for error in export.faults:
        if isinstance(error, Unproven):
            found.notes.append(str(error))
        else:
            found.fault(str(error))


def _check_rows(export: Export, chains: Chains, found: _Findings, faults: _RowFaults, *, whole: bool) -> None:
    ids, corrections = Repeats(), Corrections()
    for frame in export.batches():
        ids.see(frame)
        corrections.see(frame)
        for line, row in _json_rows(frame):
            if not export.is_sample:
                for fault in (chains.see(row, whole=whole), _head_fault(row, found.published)):
                    if fault is not None:
                        faults.add(line, _named(row, fault))
            for fault in found.rows_check.faults(row):
                faults.add(line, _named(row, fault))
    for line, fault in corrections.faults(ids):
        faults.add(line, fault)
    suspects = ids.suspects()
    if len(suspects):
        for line, fault in repeated(export_of(export.blob).batches(), suspects):
            faults.add(line, fault)


def _doubts(export: Export, chains: Chains, *, whole: bool) -> Iterator[str]:
    """What cannot be told of a file."""
    if export.is_sample:
        yield "receipts without a chain; only costs and counts were checked"
    elif not whole:
        yield "not a whole month; each row's own hash was checked, gaps cannot be told"
    elif export.complete is not True:
        yield "does not say that it is complete; more rows may follow"
    if whole and chains.start_inside:
        yield "a chain does not start at its first row; what was before cannot be told"


def _named(row: Mapping[str, Any], fault: str) -> str:
    return fault if fault.startswith("receipt ") else f"receipt {row['receipt_id']}: {fault}"


def _json_rows(frame: pl.DataFrame) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line, row) in file order, rows in the form that was hashed."""
    instants = pl.col("admitted_at", "settled_at").dt.strftime("%Y-%m-%dT%H:%M:%S%.6fZ")
    rows = frame.select(RECEIPT_COLUMNS).with_columns(instants).iter_rows(named=True)
    for line, row in zip(frame["line"], rows, strict=True):
        if row["units"] is not None:
            row["units"] = json.loads(row["units"])
        yield line, row


def _is_whole(header: Mapping[str, Any] | None) -> bool:
    """Whether the range runs from one month's start to another's, so that no chain is cut inside."""
    if header is None:
        return False
    try:
        edges = [parse_instant(header[edge]) for edge in ("from", "to") if header.get(edge) is not None]
    except (TypeError, ValueError):
        return False
    return all(edge.day == 1 and edge.timetuple()[3:6] == (0, 0, 0) for edge in edges)


def _head_fault(row: Mapping[str, Any], heads: PublishedHeads) -> str | None:
    """Whether the head that was published at this row is another one."""
    published = heads.published(chain_of(row), row["chain_seq"])
    if published in (None, row["row_hash"]):
        return None
    return f"the head published at seq {row['chain_seq']} is {published}, not {row['row_hash']}"
