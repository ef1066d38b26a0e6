"""From the spool into the ledger: in order, in pieces between what comes, and each receipt once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from sqlalchemy import Connection, select

from gateway.stores.spool import Spooled, read_spool, spooled_entry
from gateway.stores.tables import intents, receipts
from gateway.stores.writer import LedgerWriter

_log = logging.getLogger("capline.spool")

PIECE = 200
"""Lines that are imported at once, so that calls wait for few of them."""


async def import_spool(writer: LedgerWriter, is_open: Callable[[str], bool]) -> None:
    """Take everything that was spooled into the ledger; a file goes once all of it is committed.

    `is_open`: whether the call of an intent that has no receipt still runs, so that its intent is wanted.
    """
    stranded = writer.spool.stranded
    while stranded:
        kept = [spooled_entry(entry) for entry in stranded[:PIECE]]
        await writer.run(_Import(writer, kept, is_open))
        del stranded[: len(kept)]
        _log.warning("%d receipts that nothing took before are in the ledger", len(kept))
    for path in writer.spool.take():
        lines = read_spool(path)
        count = 0
        while piece := await asyncio.to_thread(_next, lines):
            count += len(piece)
            await writer.run(_Import(writer, piece, is_open))
        writer.spool.drop(path, count)
        _log.warning("%d entries of the spool are in the ledger", count)


def _next(lines: Iterator[Spooled]) -> list[Spooled]:
    return list(islice(lines, PIECE))


class _Import:
    """The job that takes a piece; what the ledger has already stays as it is."""

    def __init__(
        self, writer: LedgerWriter, lines: Sequence[Spooled], is_open: Callable[[str], bool]
    ) -> None:
        self._writer, self._lines, self._is_open = writer, lines, is_open

    def __call__(self, connection: Connection) -> None:
        names = {line.name for line in self._lines}
        known = [
            set(connection.execute(select(column).where(column.in_(names))).scalars())
            for column in (receipts.c.receipt_id, intents.c.receipt_id)
        ]
        ended, begun = known
        fresh = {
            line.name: line for line in self._lines if line.receipt is not None and line.name not in ended
        }
        done = [line.receipt for line in fresh.values() if line.receipt is not None]
        self._writer.append_in_job(connection, done, traces=[line.trace for line in fresh.values()])
        over = ended | begun | fresh.keys()
        for line in self._lines:
            if line.draft is not None and line.name not in over and self._is_open(line.name):
                self._writer.reopen_in_job(connection, {**line.draft, "verified": False}, line.trace)
