"""Server-sent events cut out of a byte stream as it arrives, every byte kept."""

from __future__ import annotations

import re
from typing import NamedTuple

_BLANK_LINE = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_BLANK_LINE_OF_LF = re.compile(rb"\n\n")
_LINE = re.compile(rb"\r\n|\n|\r")

LARGEST_EVENT = 16 * 1024 * 1024
"""Bytes of one event that are kept together; a longer one is forwarded unread."""


class Event(NamedTuple):
    """One event: its bytes as they came, blank line included, and its data (None when it has none)."""

    raw: bytes
    data: bytes | None


class EventSplitter:
    """Feed it bytes, take whole events; `rest()` is what came after the last blank line."""

    def __init__(self) -> None:
        self._kept = b""

    def feed(self, chunk: bytes) -> list[Event]:
        """Every event that `chunk` completes."""
        searched = max(0, len(self._kept) - 3)  # a blank line may stand across two chunks
        whole = self._kept + chunk
        # What providers send has no CR, and a fixed text is found five times as fast as a choice of three.
        blank_line = _BLANK_LINE if b"\r" in whole else _BLANK_LINE_OF_LF
        events: list[Event] = []
        start = 0
        for found in blank_line.finditer(whole, searched):
            raw = whole[start : found.end()]
            start = found.end()
            events.append(Event(raw, _data(raw)))
        self._kept = whole[start:]
        if len(self._kept) > LARGEST_EVENT:
            events.append(Event(self.rest(), None))
        return events

    def rest(self) -> bytes:
        """Bytes of an event that has not ended; they are taken out."""
        kept, self._kept = self._kept, b""
        return kept

    def last(self) -> Event:
        """What stands after the last blank line once the body has ended, which may be an event that lacks one."""
        raw = self.rest()
        return Event(raw, _data(raw))


def _data(raw: bytes) -> bytes | None:
    if raw.startswith(b"data: ") and raw.find(b"\n", 0, -2) < 0:
        return raw[6:].rstrip(b"\r\n")
    lines = [line[5:].removeprefix(b" ") for line in _LINE.split(raw) if line.startswith(b"data:")]
    return b"\n".join(lines) if lines else None
