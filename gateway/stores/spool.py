"""The spool: where intents and receipts wait, flushed to the disk, while the database is away.

One file of JSON lines for each time that the database was away, in CAPLINE_SPOOL_DIR. A line is acknowledged once it is
flushed; a torn last line is one that nobody was told of. What was spooled is flagged: its receipt is not `verified`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from gateway.stores.entries import Entry, Intent, finish
from gateway.stores.rows import receipt_from_json
from toolkit.core.errors import StoreUnavailable
from toolkit.core.receipts import Receipt

_log = logging.getLogger("capline.spool")


class Spooled(NamedTuple):
    """One line: an intent's draft, or a receipt; and its trace."""

    draft: dict[str, Any] | None
    receipt: Receipt | None
    trace: str | None

    @property
    def name(self) -> str:
        """The receipt's id, of an intent too."""
        return self.receipt.receipt_id if self.receipt is not None else str((self.draft or {})["receipt_id"])


class Spool:
    """Writes on a thread of its own, many lines a flush. Nothing is created before the first line.

    `name` is of one node and one ledger: a folder may be shared.
    """

    def __init__(self, directory: Path, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._directory = directory
        self._name = name
        self._loop = loop
        self._waiting: queue.SimpleQueue[Intent | Entry | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._file: int | None = None
        self._path: Path | None = None
        self._size = 0
        self.entries = 0
        """Lines that have been written and not been imported yet."""
        self.failed: str | None = None
        """Why the last write failed, None when it held."""
        self.stranded: list[Entry] = []
        """Receipts of calls that were sent, and that neither ledger nor spool took: kept here until one does."""
        self._thread: threading.Thread | None = None
        self._unwritten = 0

    def put(self, item: Intent | Entry) -> None:
        """Write a line; its future is done when it is flushed. An armed call's still fails: its ledger is away."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="spool", daemon=True)
            self._thread.start()
        self._unwritten += 1
        self._waiting.put(item)

    def take(self) -> list[Path]:
        """Our files, oldest first, to be imported; what is written from now on goes to a new one."""
        with self._lock:
            if self._file is not None:
                os.close(self._file)
                self._file = self._path = None
        return sorted(self._directory.glob(f"{self._name}-*.jsonl")) if self._directory.is_dir() else []

    def drop(self, path: Path, lines: int) -> None:
        """A file whose every line is in the ledger."""
        path.unlink()
        self.entries = max(0, self.entries - lines)

    @property
    def not_imported(self) -> int:
        """Entries that are not in the ledger yet."""
        return self.entries + len(self.stranded)

    @property
    def is_empty(self) -> bool:
        """Whether everything that was spooled is in the ledger."""
        return not self.not_imported and not self._unwritten

    async def close(self) -> None:
        """Flush what waits, try once more what could not be written, and stop."""
        if self._thread is not None:
            again, self.stranded = self.stranded, []
            for entry in again:
                self.put(entry)
            self._waiting.put(None)
            await asyncio.to_thread(self._thread.join)
        self.take()

    def _run(self) -> None:
        while (item := self._waiting.get()) is not None:
            group = [item]
            while not self._waiting.empty():
                more = self._waiting.get()
                if more is None:
                    self._waiting.put(None)
                    break
                group.append(more)
            self._write(group)

    def _write(self, group: Sequence[Intent | Entry]) -> None:
        error: Exception | None = None
        try:
            with self._lock:
                self._append(b"".join(_line(item) for item in group))
            self.entries += len(group)
            self.failed = None
        except OSError as trouble:
            self.failed = os.strerror(trouble.errno) if trouble.errno else type(trouble).__name__
            _log.error("the spool did not take %d entries: %s", len(group), self.failed)
            error = StoreUnavailable("neither the ledger nor the spool can be written")
            self.stranded.extend(
                item for item in group if isinstance(item, Entry) and item.receipt.status != "refused"
            )
        away = StoreUnavailable("the ledger is away; an armed cap stands over the call")
        for item in group:
            failed = error or (away if item.armed else None)
            self._loop.call_soon_threadsafe(finish, item.committed, None, failed)
        self._loop.call_soon_threadsafe(self._wrote, len(group))

    def _wrote(self, count: int) -> None:
        self._unwritten -= count

    def _append(self, lines: bytes) -> None:
        """Write and flush; what a full disk took of it is taken back, so that no line is glued to a torn one."""
        file = self._file if self._file is not None else self._open()
        try:
            written = 0
            while written < len(lines):
                written += os.write(file, lines[written:])
            os.fdatasync(file)
        except OSError:
            os.ftruncate(file, self._size)
            raise
        self._size += len(lines)

    def _open(self) -> int:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._path = self._directory / f"{self._name}-{time.time_ns():020d}.jsonl"
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = 0
        self._file = file
        folder = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return file


def read_spool(path: Path) -> Iterator[Spooled]:
    """The lines of a file. A torn last one was never acknowledged, and is left out."""
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                _log.warning("%s ends in a torn line, which nobody was told of", path.name)
                return
            found = json.loads(line)
            if "receipt" in found:
                yield Spooled(None, receipt_from_json(found["receipt"]), found["trace"])
            else:
                yield Spooled(found["intent"], None, found["trace"])


def spooled_entry(entry: Entry) -> Spooled:
    """A receipt as its line has it: flagged."""
    return Spooled(None, replace(entry.receipt, verified=False), entry.trace)


def _line(item: Intent | Entry) -> bytes:
    if isinstance(item, Intent):
        return b'{"intent":%s,"trace":%s}\n' % (item.draft.encode(), json.dumps(item.trace).encode())
    spooled = spooled_entry(item)
    assert spooled.receipt is not None
    line = {"receipt": spooled.receipt.row(), "trace": spooled.trace}
    return json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
