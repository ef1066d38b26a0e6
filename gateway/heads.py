"""Chain heads, published to a file and a webhook once a minute where something changed, and at the end.

Nothing here stands in a call's way: what cannot be written or posted is counted and tried again a minute later.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from gateway.settings import Settings
from gateway.signing import Signer
from gateway.stores.heads import stored_heads
from toolkit.core.heads import HEAD_RECIPE, Chain, chain_of_head, head_of
from toolkit.core.windows import instant_text

_EVERY_S = 60
_POST_S = 10
_log = logging.getLogger("capline.heads")


class Behind(NamedTuple):
    """A chain that the database holds less of than was published; `stored_seq` 0 is nothing."""

    organization: str
    month: str
    node: str
    published_seq: int
    stored_seq: int


class Heads:
    """What has been published of each chain, and what is still to be."""

    def __init__(
        self, settings: Settings, engine: Engine, ledger_id: str, clock: Callable[[], datetime]
    ) -> None:
        """Read the own file and compare it with the database. Raises SettingsError for a bad key."""
        self._file, self._url = settings.heads_file, settings.heads_url
        self._signer = None if settings.signing_key is None else Signer(settings.signing_key)
        self._engine, self._ledger_id, self._clock = engine, ledger_id, clock
        self._written = self._read() if self._file is not None else {}
        self._posted: dict[Chain, tuple[int, str]] = {}
        self.stopping = asyncio.Event()
        self.failed = 0
        """Writes and posts of heads that failed in this process."""
        self.behind = tuple(self._compared()) if self._written else ()

    async def run(self) -> None:
        """Publish once a minute until `stopping` is set; a publication that has begun is ended."""
        while not self.stopping.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), _EVERY_S)
                return
            await self.publish()

    async def publish(self) -> None:
        """Publish what changed since the last time."""
        if self._file is None and self._url is None:
            return
        try:
            stored = await asyncio.to_thread(stored_heads, self._engine)
        except SQLAlchemyError as error:
            self._note("reading them", error)
            return
        if self._file is not None and (new := _changed(stored, self._written)):
            try:
                await asyncio.to_thread(self._append, self._file, [self._line(*head) for head in new.items()])
                self._written.update(new)
            except OSError as error:
                self._note("writing CAPLINE_HEADS_FILE", error)
        if self._url is not None and (new := _changed(stored, self._posted)):
            await self._post(self._url, new)

    async def _post(self, url: str, new: dict[Chain, tuple[int, str]]) -> None:
        timeout = aiohttp.ClientTimeout(total=_POST_S)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            for chain, head in new.items():
                try:
                    async with session.post(url, json=self._head(chain, head)) as answer:
                        answer.raise_for_status()
                except (aiohttp.ClientError, TimeoutError, OSError) as error:
                    self._note("posting to CAPLINE_HEADS_URL", error)
                    return
                self._posted[chain] = head

    def _head(self, chain: Chain, head: tuple[int, str]) -> dict[str, Any]:
        organization, month, node = chain
        said = {
            "recipe": HEAD_RECIPE,
            "at": instant_text(self._clock()),
            "ledger_id": self._ledger_id,
            "organization": organization,
            "month": month,
            "node": node,
            "chain_seq": head[0],
            "row_hash": head[1],
            "public_key": None,
            "signature": None,
        }
        return said if self._signer is None else self._signer.signed(said)

    def _line(self, chain: Chain, head: tuple[int, str]) -> bytes:
        return json.dumps(self._head(chain, head), ensure_ascii=False).encode() + b"\n"

    @staticmethod
    def _append(path: Path, lines: list[bytes]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as file:
            if file.tell() and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n":
                file.write(b"\n")  # a line that a crash cut off stays by itself
            file.writelines(lines)
            file.flush()
            os.fsync(file.fileno())

    def _read(self) -> dict[Chain, tuple[int, str]]:
        """The last head of each chain of this ledger in the own file."""
        found: dict[Chain, tuple[int, str]] = {}
        if self._file is None or not self._file.is_file():
            return found
        with self._file.open("rb") as file:
            for number, line in enumerate(file, start=1):
                try:
                    head = head_of(line)
                except ValueError:
                    _log.warning("CAPLINE_HEADS_FILE line %d is no head and is passed over", number)
                    continue
                if head["ledger_id"] == self._ledger_id:
                    found[chain_of_head(head)] = (head["chain_seq"], head["row_hash"])
        return found

    def _compared(self) -> Iterator[Behind]:
        stored = stored_heads(self._engine)
        for chain, (published, row_hash) in self._written.items():
            seq, stored_hash = stored.get(chain, (0, ""))
            if seq < published or (seq == published and stored_hash != row_hash):
                _log.error(
                    "ledger_behind_head: chain %s was published up to seq %d, the database has %s; "
                    "was it restored from a backup, or cut off?",
                    "/".join(chain),
                    published,
                    f"seq {seq}" if seq < published else "another row there",
                )
                yield Behind(*chain, published, seq)

    def _note(self, doing: str, error: Exception) -> None:
        self.failed += 1
        _log.warning("heads are not published, %s failed: %s", doing, type(error).__name__)


def _changed(
    stored: dict[Chain, tuple[int, str]], published: dict[Chain, tuple[int, str]]
) -> dict[Chain, tuple[int, str]]:
    return {chain: head for chain, head in stored.items() if published.get(chain) != head}
