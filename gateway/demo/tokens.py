"""Text and tokens: how a prompt is counted, how an answer is made, and which prefixes are cached.

A token is four bytes of UTF-8, begun ones included. Nothing here is random: one prompt has one answer.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final, NamedTuple

import msgspec

TOKEN_BYTES: Final = 4
MESSAGE_TOKENS: Final = 3
"""What each message costs beside its text."""
MEDIA_TOKENS: Final = 85
"""What an image, a sound or a file costs, whatever its size."""
MOST_PREFIXES: Final = 10_000

_MEDIA: Final = frozenset({"image", "image_url", "input_audio", "file", "document"})
_WORDS: Final = tuple(f"{a}{b}{c} " for a in "bdfgklmn" for b in "aeiu" for c in "lmnprstv")


class Measured(NamedTuple):
    """A part of a prompt: its text as UTF-8, and how many media it holds."""

    text: bytes
    media: int = 0


def measure(content: Any) -> Measured:
    """A message's content, system prompt or block: text, a block, a list of them, or nothing."""
    match content:
        case None:
            return Measured(b"")
        case str():
            return Measured(content.encode())
        case list():
            parts = [measure(part) for part in content]
            return Measured(b"\n".join(part.text for part in parts), sum(part.media for part in parts))
        case {"type": "text", "text": str(text)}:
            return Measured(text.encode())
        case {"type": "tool_result", "content": said}:
            return measure(said)
        case {"type": str(kind)} if kind in _MEDIA:
            # The bytes decide about the hash alone: two images are two prompts at one price.
            return Measured(hashlib.sha256(msgspec.json.encode(content)).digest()[:TOKEN_BYTES], 1)
        case dict():
            # A mark says what to cache, not what is read.
            return Measured(msgspec.json.encode({k: v for k, v in content.items() if k != "cache_control"}))
    return Measured(msgspec.json.encode(content))


def tokens_of(size_bytes: int, *, messages: int = 0, media: int = 0) -> int:
    """Tokens of text of this many bytes, in this many messages, beside this many media."""
    return -(-size_bytes // TOKEN_BYTES) + messages * MESSAGE_TOKENS + media * MEDIA_TOKENS


def answer_text(seed: bytes, tokens: int) -> str:
    """ASCII text of exactly this many tokens, the same for the same seed."""
    digests = b"".join(hashlib.sha256(seed + i.to_bytes(4)).digest() for i in range(-(-tokens // 32)))
    return "".join(map(_WORDS.__getitem__, digests[:tokens]))


def cut_text(text: str, tokens: int, pieces: int) -> list[tuple[str, int]]:
    """`text` in at most `pieces` pieces of nearly equal length, each with its tokens; none when there is no text."""
    pieces = min(pieces, tokens)
    ends = [tokens * piece // pieces for piece in range(pieces + 1)] if pieces else [0]
    return [(text[start * TOKEN_BYTES : end * TOKEN_BYTES], end - start) for start, end in pairwise(ends)]


class Boundary(NamedTuple):
    """Where a cached prefix may end: the digest and the tokens of all before, and how long to keep it if marked."""

    digest: bytes
    tokens: int
    keep: timedelta | None = None


class CacheParts(NamedTuple):
    """Tokens of a prompt that were read from the cache, and written to it by lifetime."""

    read: int = 0
    written_5m: int = 0
    written_1h: int = 0


SHORT: Final = timedelta(minutes=5)
LONG: Final = timedelta(hours=1)


class PrefixCache:
    """Prefixes seen lately, each until its instant; the least recently used one gives way. Thread-safe."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._until: OrderedDict[bytes, datetime] = OrderedDict()
        self._lock = threading.Lock()

    def meet(self, boundaries: Sequence[Boundary]) -> CacheParts:
        """Read the longest known prefix, write what is marked beyond it, and keep every marked one anew."""
        with self._lock:
            now = self._clock()
            read = reached = max((b.tokens for b in boundaries if self._knows(b.digest, now)), default=0)
            written = {SHORT: 0, LONG: 0}
            for boundary in boundaries:
                if boundary.keep is None:
                    continue
                self._keep(boundary.digest, now + boundary.keep)
                written[boundary.keep] += max(0, boundary.tokens - reached)
                reached = max(reached, boundary.tokens)
        return CacheParts(read, written[SHORT], written[LONG])

    def _knows(self, digest: bytes, now: datetime) -> bool:
        until = self._until.get(digest)
        return until is not None and now < until

    def _keep(self, digest: bytes, until: datetime) -> None:
        self._until[digest] = max(until, self._until.get(digest, until))
        self._until.move_to_end(digest)
        if len(self._until) > MOST_PREFIXES:
            self._until.popitem(last=False)
