"""Ids that sort by time: 48 bits of milliseconds, a step within the process, then random bits."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_steps = itertools.count()
_random = random.Random()  # seeded by the system; ids must differ, not be secret

NewId = Callable[[datetime], str]


def new_id(at: datetime) -> str:
    """32 hex digits that sort after every id this process made for an earlier instant."""
    return f"{(at - _EPOCH) // _MILLISECOND:012x}{next(_steps) & 0xFFFFFF:06x}{_random.getrandbits(56):014x}"
