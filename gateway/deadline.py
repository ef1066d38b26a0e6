"""The instant at which a task's work must end. `asyncio.timeout_at` for the hot path: no coroutine, one timer."""

from __future__ import annotations

import asyncio
import math
from types import TracebackType


class Deadline:
    """`with Deadline(at):` raises TimeoutError once the loop's clock reaches `at`, which may be brought forward.

    Without `at` there is no end until one is brought forward.
    """

    def __init__(self, at: float = math.inf) -> None:
        self._at = at
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._expired = False
        self._task: asyncio.Task[object] | None = None

    def __enter__(self) -> Deadline:
        task = asyncio.current_task(self._loop)
        assert task is not None, "a deadline ends a task"
        self._task = task
        self._set_timer()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _place: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        assert task is not None, "a deadline ends the work that it began"
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._expired and task.uncancel() == 0 and isinstance(error, asyncio.CancelledError):
            raise TimeoutError from error

    def bring_forward(self, seconds: float) -> None:
        """End within `seconds` from now, or at the old instant where that is earlier."""
        self._at = min(self._at, self._loop.time() + seconds)
        if self._task is not None and not self._expired:
            self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._at != math.inf:
            self._timer = self._loop.call_at(self._at, self._expire)

    def _expire(self) -> None:
        self._timer = None
        self._expired = True
        if self._task is not None:
            self._task.cancel()
