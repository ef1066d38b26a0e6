"""Our own ledger export (contract §11) in JSONL, CSV and Parquet, and plain receipts such as the sample.

An export proves itself: its footer counts the rows, sums the money and hashes every byte before it. What does
not match is collected as faults, first fault first; whether to refuse the file or to take the part is the
caller's word.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import polars as pl

from toolkit.core.chain import RECIPE, footer_hash
from toolkit.core.errors import LoadError
from toolkit.sources.common import Part, Rejected, Unproven
from toolkit.sources.files import Blob
from toolkit.sources.receipt_forms import Form, Parquet

KIND = "receipts"
SAMPLE_KIND = "sample"

_FOOTER = frozenset({"rows", "cost_nano_usd", "counted_nano_usd", "next_seq", "sha256", "footer_sha256"})
_SUMS = ("cost_nano_usd", "counted_nano_usd")
_NO_FOOTER = "has no footer: it is cut off or plain; export it again, or pass strict=False to take the part"


class Export:
    """One file of receipts, read batch by batch in steady memory.

    `rejected`, `faults` and `complete` are known once all batches were read.
    """

    def __init__(self, blob: Blob, form: Form) -> None:
        self.blob = blob
        self._form = form
        self.is_sample = isinstance(form, Parquet) and form.is_sample
        self.rejected: list[Rejected] = []
        self.faults: tuple[LoadError, ...] = ()
        self.rows = 0
        """Rows that were read and not rejected."""
        self.sums = dict.fromkeys(_SUMS, 0)

    @property
    def header(self) -> Mapping[str, Any] | None:
        """What the file says of its rows before them; null for one that says nothing."""
        return self._form.header

    @property
    def complete(self) -> bool | None:
        """What it claims of its period; null for a sample, which claims nothing."""
        if self.is_sample:
            return None
        return (
            self.header is not None and self._form.footer is not None and self.header.get("complete") is True
        )

    def batches(self) -> Iterator[pl.DataFrame]:
        """All rows in file order, as frames of PART_SCHEMA; at least one."""
        for frame, rejected in self._form.batches():
            self.rejected.extend(rejected)
            self.rows += frame.height
            for column in _SUMS:
                self.sums[column] += exact_sum(frame[column])
            yield frame
        self.rejected.sort(key=lambda row: row.line or 0)
        if not self.is_sample:
            self.faults = tuple(self._faults())

    def whole(self) -> Part:
        """All of it in memory."""
        frame = pl.concat(list(self.batches()))
        return Part(
            kind=SAMPLE_KIND if self.is_sample else KIND,
            frame=frame,
            rejected=tuple(self.rejected),
            faults=self.faults,
            header=self.header,
            footer=self._form.footer,
            complete=self.complete,
        )

    def _faults(self) -> Iterable[LoadError]:
        """Why the file is not the whole export it claims to be."""
        name, header, footer = self.blob.name, self.header, self._form.footer
        if not self.blob.is_as_promised:
            yield LoadError(self.blob.broken_promise, file=name)
        for line, column, reason in self.rejected:
            yield LoadError(reason, file=name, line=line, column=column)
        if header is None:
            yield Unproven("has no header line; a plain export cannot prove itself", file=name)
        elif header.get("recipe") != RECIPE:
            yield LoadError(f"has recipe {header.get('recipe')!r}; this version knows {RECIPE}", file=name)
        if footer is None:
            yield Unproven(_NO_FOOTER, file=name)
            return
        read = self.rows + len(self.rejected)
        if footer.get("rows") != read:
            yield LoadError(f"holds {read} rows; its footer says {footer.get('rows')}", file=name)
        for column, total in self.sums.items():
            if footer.get(column) != total:
                reason = f"adds up to {total}; the footer says {footer.get(column)}"
                yield LoadError(reason, file=name, column=column)
        yield from _footer_faults(name, footer)
        if footer.get("sha256") != self._form.digest:
            reason = f"hashes to {self._form.digest}; its footer says {footer.get('sha256')}"
            yield LoadError(f"{reason}: a byte was changed after the export", file=name)


def _footer_faults(name: str, footer: Mapping[str, Any]) -> Iterable[LoadError]:
    """A footer covers itself too; those of the first release did not."""
    unknown = sorted(footer.keys() - _FOOTER)
    if unknown:
        yield LoadError(f"has {unknown[0]!r} in its footer, which no release wrote", file=name)
    said = footer.get("footer_sha256")
    if said is not None and said != footer_hash(footer):
        yield LoadError("has a footer that was changed after the export", file=name)


def exact_sum(series: pl.Series) -> int:
    """The sum of an Int64 column; 128 bits wide, because an Int64 sum wraps without a word."""
    return int(series.cast(pl.Int128).sum())
