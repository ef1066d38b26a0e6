"""The ledger's history on this side of the gateway: fetched as Parquet increments, kept on disk, held as one frame.

An increment asks for what came since the last one (`after_seq`), so a page never downloads the ledger twice. What
was fetched is kept by ledger id, and by month where a copy begins with one; when the gateway is away, pages still
stand on the last history and say so.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

import toolkit as tk
from console.gateway_client import GatewayClient, GatewayError

MOST_INCREMENTS = 64
"""Files of one ledger before they are united into one."""

_STATE = "state.json"
_LAST = "last_ledger"
_NAME = re.compile(r"[0-9A-Za-z]+(?:-(\d{6}))?", re.ASCII)
"""A copy's folder: the ledger's id, and the month that it begins with unless it is whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryState:
    """Which history a page stands on. `version` changes when a row does; `trouble` is why it may be old."""

    version: str
    rows: int
    trouble: str | None = None
    since: datetime | None = None
    """Where a copy begins that is not of the whole ledger."""
    summed: bool = False
    """The gateway answers for the ledger: nothing was copied."""


NOTHING = HistoryState(version="none", rows=0)
"""Before anything was asked."""


class History:
    """A copy of one gateway's receipts. `sync` brings it up to date, `receipts` hands out the frame of a version."""

    def __init__(self, gateway: GatewayClient, directory: Path) -> None:
        self._gateway = gateway
        self._directory = directory
        self._lock = threading.Lock()
        self._name: str | None = None
        self._cursor: str | None = None
        self._files: list[str] = []
        self._frame = _no_rows()
        self._state = NOTHING
        self._snapshots: dict[str, pl.DataFrame] = {NOTHING.version: self._frame}

    def sync(self, since: datetime | None = None) -> HistoryState:
        """The history as the gateway has it now: all of it, or from the first instant of a month on."""
        with self._lock:
            self._state = self._synced(since)
            return self._state

    def receipts(self, version: str) -> tk.Receipts:
        """The receipts of one version: the current one or the one before it. KeyError for an older one."""
        with self._lock:
            rows = self._snapshots[version]
        return tk.Receipts.from_frame(rows)

    def _synced(self, since: datetime | None) -> HistoryState:
        try:
            ledger = self._gateway.ledger_id()
            name = ledger if since is None else f"{ledger}-{since:%Y%m}"
            if name != self._name:
                self._open(name)
            try:
                self._fetch()
            except GatewayError as error:
                if error.kind != "invalid":
                    raise
                # The ledger no longer knows this cursor: it was restored from a backup. Start over.
                self._forget()
                self._fetch()
        except (GatewayError, tk.LoadError, OSError) as error:
            if self._name is None:
                self._open_last()
            return self._described(str(error))
        return self._described(None)

    def _described(self, trouble: str | None) -> HistoryState:
        named = f"{self._name}|{self._cursor}|{self._frame.height}"
        version = hashlib.sha256(named.encode()).hexdigest()[:16]
        if version not in self._snapshots:
            before = self._state.version
            self._snapshots = {before: self._snapshots[before], version: self._frame}
        return HistoryState(version=version, rows=self._frame.height, trouble=trouble, since=self._since())

    def _since(self) -> datetime | None:
        found = _NAME.fullmatch(self._name or "")
        return datetime.strptime(found[1], "%Y%m").replace(tzinfo=UTC) if found and found[1] else None

    def _fetch(self) -> None:
        fresh = self._folder() / f".fetching-{os.getpid()}.parquet"
        try:
            self._gateway.export(fresh, after_seq=self._cursor, since=self._since())
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
        (self._directory / _LAST).write_text(folder.name, "utf-8")
        ledger = folder.name.split("-")[0]
        for other in (self._directory / ledger, *self._directory.glob(f"{ledger}-*")):
            if other != folder:
                shutil.rmtree(other, ignore_errors=True)

    def _open(self, name: str) -> None:
        self._name, self._cursor, self._files, self._frame = name, None, [], _no_rows()
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
            name = (self._directory / _LAST).read_text("utf-8").strip()
        except OSError:
            return
        if _NAME.fullmatch(name):
            self._open(name)

    def _forget(self) -> None:
        self._cursor, self._files, self._frame = None, [], _no_rows()

    def _folder(self) -> Path:
        assert self._name is not None, "no copy is open"
        return self._directory / self._name


def _no_rows() -> pl.DataFrame:
    return pl.DataFrame(schema=tk.RECEIPT_SCHEMA)
