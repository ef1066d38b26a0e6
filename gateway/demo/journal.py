"""The provider's own count: one entry for every request it received, in memory and, if wanted, in a file."""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from gateway.demo.answers import Answer

KEPT_ENTRIES: Final = 50_000
"""Ended entries that are listed, the newest; the totals take in every one."""


class Total(msgspec.Struct, kw_only=True):
    """Requests and tokens of one kind."""

    requests: int = 0
    input_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_5m_tokens: int = 0
    cache_write_1h_tokens: int = 0
    output_tokens: int = 0

    def add(self, more: Total) -> None:
        """Take in more of them."""
        for name in Total.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(more, name))


class Entry(msgspec.Struct, kw_only=True):
    """One request. Instants are RFC 3339 in UTC; meters are disjoint and hold what was really produced."""

    sequence: int
    received_at: str
    ended_at: str | None = None
    path: str
    dialect: str
    request_id: str
    header_names: tuple[str, ...]
    """As they came, in lower case."""
    body_sha256: str
    model: str | None = None
    model_served: str | None = None
    stream: bool = False
    fault: str = "none"
    status: int | None = None
    """None until a status line has left."""
    completed: bool = False
    """Whether the last byte was handed to the server; a client that had left does not change it."""
    input_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_5m_tokens: int = 0
    cache_write_1h_tokens: int = 0
    output_tokens: int = 0
    answer_sha256: str | None = None
    """Of the whole text of all choices, even when only a part of it left."""

    def total(self) -> Total:
        """This request alone, as a total."""
        return Total(
            requests=1,
            input_tokens=self.input_tokens,
            cache_read_tokens=self.cache_read_tokens,
            cache_write_5m_tokens=self.cache_write_5m_tokens,
            cache_write_1h_tokens=self.cache_write_1h_tokens,
            output_tokens=self.output_tokens,
        )

    def work_on(self, answer: Answer) -> None:
        """Note what the answer takes: its prompt is billed once work begins, its output as it is produced."""
        meters = answer.meters
        self.model_served = answer.model_served
        self.input_tokens = meters.input_tokens
        self.cache_read_tokens = meters.cache_read_tokens
        self.cache_write_5m_tokens = meters.cache_write_5m_tokens
        self.cache_write_1h_tokens = meters.cache_write_1h_tokens
        if answer.text:
            self.answer_sha256 = hashlib.sha256(answer.text.encode()).hexdigest()


class Row(Total, kw_only=True):
    """Ended requests of one model and outcome."""

    model: str | None
    model_served: str | None
    status: int | None
    completed: bool


class Count(msgspec.Struct, kw_only=True):
    """Everything that ended since the journal was last cleared."""

    running: int
    total: Total
    rows: list[Row]


class Journal:
    """Thread-safe. A file line is flushed when a request is in, and again before its answer's last byte leaves."""

    def __init__(self, path: Path | None, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._sequence = 0
        self._file = None if path is None else path.open("ab", buffering=0)
        self._forget()

    def receive(
        self,
        *,
        request_id: Callable[[int], str],
        path: str,
        dialect: str,
        header_names: tuple[str, ...],
        body_sha256: str,
        model: str | None,
        stream: bool,
    ) -> Entry:
        """Open an entry; `request_id` makes its id of its sequence."""
        with self._lock:
            self._sequence += 1
            entry = Entry(
                sequence=self._sequence,
                received_at=_instant(self._clock()),
                path=path,
                dialect=dialect,
                request_id=request_id(self._sequence),
                header_names=header_names,
                body_sha256=body_sha256,
                model=model,
                stream=stream,
            )
            self._running[entry.sequence] = entry
            self._write("received", entry)
        return entry

    def end(self, entry: Entry, *, completed: bool) -> None:
        """Close an entry; closing it again changes nothing."""
        with self._lock:
            if entry.ended_at is not None:
                return
            entry.ended_at, entry.completed = _instant(self._clock()), completed
            self._write("ended", entry)
            # An entry of before the last clearing is nobody's any more.
            if self._running.pop(entry.sequence, None) is not None:
                self._add(entry)

    def served(self) -> list[Entry]:
        """Running and ended entries in the order in which they were received; the newest, see KEPT_ENTRIES."""
        with self._lock:
            entries = [*self._ended, *self._running.values()]
            return sorted(map(msgspec.structs.replace, entries), key=lambda entry: entry.sequence)

    def count(self) -> Count:
        """Totals of all ended entries, by model and outcome."""
        with self._lock:
            rows = [msgspec.structs.replace(row) for row in self._rows.values()]
            total = Total()
            for row in rows:
                total.add(row)
            return Count(running=len(self._running), total=total, rows=rows)

    def clear(self) -> None:
        """Forget every entry and total; the sequence goes on, the file is kept."""
        with self._lock:
            self._forget()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _forget(self) -> None:
        self._running: dict[int, Entry] = {}
        self._ended: deque[Entry] = deque(maxlen=KEPT_ENTRIES)
        self._rows: dict[tuple[str | None, str | None, int | None, bool], Row] = {}

    def _add(self, entry: Entry) -> None:
        self._ended.append(entry)
        key = (entry.model, entry.model_served, entry.status, entry.completed)
        row = self._rows.get(key)
        if row is None:
            model, model_served, status, completed = key
            row = Row(model=model, model_served=model_served, status=status, completed=completed)
            self._rows[key] = row
        row.add(entry.total())

    def _write(self, event: str, entry: Entry) -> None:
        if self._file is not None:
            self._file.write(msgspec.json.encode({"event": event, **msgspec.structs.asdict(entry)}) + b"\n")


def _instant(at: datetime) -> str:
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")
