"""The ledger as the pages see it: copied whole while it is small, asked for its sums when it is large.

A copy is fast, works while the gateway is away, and can be replayed; ten million receipts are neither quickly fetched
nor held. So a large ledger's pages ask the gateway, which sums its rollups, and only what is modelled is copied: the
receipts since the month before this one.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import toolkit as tk
from console.frame_reports import FrameReports
from console.gateway_client import GatewayClient, GatewayError
from console.history import NOTHING, History, HistoryState
from console.ledger_reports import LedgerReports
from console.reports import Reports
from toolkit.core.windows import period_at

LARGE = 1_000_000
"""More receipts than these are not copied."""

EVERY_SECONDS = 5.0
"""How often the gateway is asked for news, however many pages are open."""

_KEPT = 16


class Ledger:
    """One gateway's ledger. Safe to share between the sessions of a console."""

    def __init__(self, gateway: GatewayClient, history: History, clock: Callable[[], datetime]) -> None:
        self._gateway = gateway
        self._history = history
        self._clock = clock
        self._id: str | None = None
        self._references: dict[str, str] = {}
        self._summed: dict[str, LedgerReports] = {}
        self._looked = _Asked()
        self._copied = _Asked()

    def sync(self, *, now: bool = False) -> HistoryState:
        """The current state; the gateway is asked at most every few seconds unless `now`."""
        return self._looked.state(self._look, now=now)

    def copy(self, *, now: bool = False) -> HistoryState:
        """The history on this side, for what replays it: all of it, or of a large ledger the newest part."""
        state = self.sync(now=now)
        if not state.summed:
            return state
        return self._copied.state(lambda: self._history.sync(self._since()), now=now)

    def receipts(self, version: str) -> tk.Receipts:
        """The receipts of a copy's version. KeyError for one before the one before the current."""
        return self._history.receipts(version)

    def reports(self, version: str) -> Reports:
        """Who answers for a version. KeyError as for `receipts`."""
        summed = self._summed.get(version)
        return summed or FrameReports(self.receipts(version), self._gateway, self._references)

    def _look(self) -> HistoryState:
        try:
            ledger, covered = self._gateway.ledger_id(), self._gateway.coverage()
        except GatewayError as error:
            before = self._looked.last
            return replace(before, trouble=str(error)) if before.summed else self._history.sync()
        if ledger != self._id:
            self._id, self._references = ledger, {}
        if covered.rows <= LARGE:
            return self._history.sync()
        named = f"{ledger}|{covered}"
        version = f"summed-{hashlib.sha256(named.encode()).hexdigest()[:16]}"
        self._summed[version] = LedgerReports(self._gateway, covered, self._references)
        while len(self._summed) > _KEPT:
            self._summed.pop(next(iter(self._summed)))
        return HistoryState(version=version, rows=covered.rows, summed=True)

    def _since(self) -> datetime:
        """The start of the month before: it holds every day, week and month that runs, and a whole month."""
        start = period_at("month", self._clock()).start
        assert start is not None
        before = period_at("month", start - timedelta(days=1)).start
        assert before is not None
        return before


class _Asked:
    """A state that is looked for again when it is a few seconds old, by one thread at a time."""

    def __init__(self) -> None:
        self.last = NOTHING
        self._lock = threading.Lock()
        self._at = float("-inf")

    def state(self, look: Callable[[], HistoryState], *, now: bool) -> HistoryState:
        with self._lock:
            if now or time.monotonic() - self._at >= EVERY_SECONDS:
                self.last = look()
                self._at = time.monotonic()
            return self.last
