"""The elements of a JSON array cut out of a byte stream as it arrives, every byte kept.

Gemini streams its chunks as one array when the client does not ask for server-sent events.
"""

from __future__ import annotations

import re

from gateway.sse import LARGEST_EVENT, Event

_MARK = re.compile(rb'["{}]')
_MARK_IN_TEXT = re.compile(rb'["\\]')


class ArraySplitter:
    """Feed it bytes, take whole elements; `rest()` is what came after the last one, the closing bracket too."""

    def __init__(self) -> None:
        self._kept = b""
        self._read = 0
        """Bytes of `_kept` that were looked at."""
        self._start = 0
        """Where in `_kept` the element begins."""
        self._depth = 0
        """Objects that are open."""
        self._in_text = False
        self._whole = True
        """Whether the element that is open is still kept from its beginning."""

    def feed(self, chunk: bytes) -> list[Event]:
        """Every element that `chunk` completes: its bytes with what stands before it, and the element alone."""
        self._kept += chunk
        elements: list[Event] = []
        while (end := self._next_end()) is not None:
            raw = self._kept[:end]
            elements.append(Event(raw, raw[self._start :] if self._whole else None))
            self._kept, self._read, self._whole = self._kept[end:], 0, True
        if len(self._kept) > LARGEST_EVENT and self._read == len(self._kept):
            elements.append(Event(self.rest(), None))
            self._whole = self._depth == 0
        return elements

    def rest(self) -> bytes:
        """Bytes after the last whole element; they are taken out."""
        kept, self._kept, self._read = self._kept, b"", 0
        return kept

    def last(self) -> Event:
        """What stands after the last element once the body has ended."""
        return Event(self.rest(), None)

    def _next_end(self) -> int | None:
        """Read on to the end of an element; None when more bytes are needed."""
        while True:
            mark = (_MARK_IN_TEXT if self._in_text else _MARK).search(self._kept, self._read)
            if mark is None:
                self._read = len(self._kept)
                return None
            if mark[0] == b"\\":
                if mark.end() == len(self._kept):  # the escaped byte is still to come
                    self._read = mark.start()
                    return None
                self._read = mark.end() + 1
                continue
            self._read = mark.end()
            if mark[0] == b'"':
                self._in_text = not self._in_text
            elif mark[0] == b"{":
                self._start = self._start if self._depth else mark.start()
                self._depth += 1
            elif self._depth:
                self._depth -= 1
                if self._depth == 0:
                    return self._read
