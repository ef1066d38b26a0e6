"""The ledger's history on this side of the gateway: fetched as Parquet increments, kept on disk, held as one frame.

An increment asks for what came since the last one (`after_seq`), so a page never downloads the ledger twice. What
was fetched is kept by ledger id; when the gateway is away, pages still stand on the last history and say so.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import polars as pl

import toolkit as tk
from console.gateway_client import GatewayClient, GatewayError

MOST_INCREMENTS = 64
"""Files of one ledger before they are united into one."""

EVERY_SECONDS = 5.0
"""How often the gateway is asked for news, however many pages are open."""

_STATE = "state.json"
_LAST = "last_ledger"


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryState:
    """Which history a page stands on. `version` changes when a row does; `trouble` is why it may be old."""

    version: str
    rows: int
    trouble: str | None = None


class History:
    """One gateway's receipts. `sync` brings them up to date, `receipts` hands out the frame of a version."""

    def __init__(self, gateway: GatewayClient, directory: Path) -> None:
        self._gateway = gateway
        self._directory = directory
        self._lock = threading.Lock()
        self._ledger: str | None = None
        self._cursor: str | None = None
        self._files: list[str] = []
        self._frame = _no_rows()
        self._asked = float("-inf")
        self._state = HistoryState(version="none", rows=0)
        self._snapshots: dict[str, pl.DataFrame] = {"none": self._frame}

    def sync(self, *, now: bool = False) -> HistoryState:
        """The current history; the gateway is asked at most every few seconds unless `now`."""
        with self._lock:
            if now or time.monotonic() - self._asked >= EVERY_SECONDS:
                self._state = self._synced()
                self._asked = time.monotonic()
            return self._state

    def receipts(self, version: str) -> tk.Receipts:
        """The receipts of one version: the current one or the one before it. KeyError for an older one."""
        with self._lock:
            rows = self._snapshots[version]
        return tk.Receipts.from_frame(rows)

    def _synced(self) -> HistoryState:
        try:
            ledger = self._gateway.ledger_id()
            if ledger != self._ledger:
                self._open(ledger)
            try:
                self._fetch()
            except GatewayError as error:
                if error.kind != "invalid":
                    raise
                # The ledger no longer knows this cursor: it was restored from a backup. Start over.
                self._forget()
                self._fetch()
        except (GatewayError, tk.LoadError, OSError) as error:
            if self._ledger is None:
                self._open_last()
            return self._described(str(error))
        return self._described(None)

    def _described(self, trouble: str | None) -> HistoryState:
        named = f"{self._ledger}|{self._cursor}|{self._frame.height}"
        version = hashlib.sha256(named.encode()).hexdigest()[:16]
        if version not in self._snapshots:
            before = self._state.version
            self._snapshots = {before: self._snapshots[before], version: self._frame}
        return HistoryState(version=version, rows=self._frame.height, trouble=trouble)

    def _fetch(self) -> None:
        fresh = self._folder() / f".fetching-{os.getpid()}.parquet"
        try:
            self._gateway.export(self._cursor, fresh)
            loaded = tk.load(fresh)
        finally:
            fresh.unlink(missing_ok=True)
        rows = loaded.frame.collect()
        if rows.height:
            self._append(rows)
        self._cursor = (loaded.manifest.files[0].footer or {}).get("next_seq", self._cursor)
        self._remember()

    def _append(self, rows: pl.DataFrame) -> None:
        known = self._frame["receipt_id"]
        rows = rows.filter(~pl.col("receipt_id").is_in(known.implode()))
        self._frame = pl.concat([self._frame, rows])
        if len(self._files) >= MOST_INCREMENTS:
            self._keep(self._frame)
            for name in self._files[:-1]:
                (self._folder() / name).unlink(missing_ok=True)
            self._files = self._files[-1:]
        else:
            self._keep(rows)

    def _keep(self, rows: pl.DataFrame) -> None:
        name = f"{time.time_ns():020d}.parquet"
        path = self._folder() / name
        rows.write_parquet(path.with_suffix(".part"))
        path.with_suffix(".part").rename(path)
        self._files.append(name)

    def _remember(self) -> None:
        """Write down which files make the history, after the files themselves: a crash loses no row, only time."""
        folder = self._folder()
        state = folder / f".{_STATE}"
        state.write_text(json.dumps({"next_seq": self._cursor, "files": self._files}), "utf-8")
        state.rename(folder / _STATE)
        (self._directory / _LAST).write_text(self._ledger or "", "utf-8")

    def _open(self, ledger: str) -> None:
        self._ledger, self._cursor, self._files, self._frame = ledger, None, [], _no_rows()
        folder = self._folder()
        folder.mkdir(parents=True, exist_ok=True)
        try:
            state = json.loads((folder / _STATE).read_text("utf-8"))
            frames = [pl.read_parquet(folder / name) for name in state["files"]]
            self._frame = pl.concat([_no_rows(), *frames])
        except (OSError, ValueError, KeyError, pl.exceptions.PolarsError):
            # Nothing kept, or kept badly: the ledger has it all.
            self._frame = _no_rows()
            return
        self._cursor, self._files = state["next_seq"], state["files"]

    def _open_last(self) -> None:
        try:
            ledger = (self._directory / _LAST).read_text("utf-8").strip()
        except OSError:
            return
        if ledger.isalnum():
            self._open(ledger)

    def _forget(self) -> None:
        self._cursor, self._files, self._frame = None, [], _no_rows()

    def _folder(self) -> Path:
        assert self._ledger is not None, "no ledger is open"
        return self._directory / self._ledger


def _no_rows() -> pl.DataFrame:
    return pl.DataFrame(schema=tk.RECEIPT_SCHEMA)
