"""Idempotency keys (contract §8, §10): a call that comes again is answered as before, and never charged twice.

A key belongs to an API key. It is held from the intent on; a call that was refused or that the provider turned down
frees it. Whole answers are kept in memory for a while; after that, or after a restart, the key names its receipt.
"""

from __future__ import annotations

import hmac
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from gateway.client import Client
from gateway.ledger import Ledger
from gateway.policy import Principal
from gateway.refusals import Refusal
from gateway.stores.idempotency import Claim, find_claim
from gateway.stores.records import organization_secret
from gateway.upstream import RawHeaders
from toolkit.core.errors import StoreUnavailable

_T = TypeVar("_T")

HEADER = b"idempotency-key"
KEEP_S = 600.0
KEEP_BYTES = 64 * 1024 * 1024
LONGEST_KEY = 255


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as it left."""

    status: int
    headers: RawHeaders
    body: bytes

    @property
    def size(self) -> int:
        """Bytes, roughly."""
        return len(self.body) + sum(len(name) + len(value) for name, value in self.headers)


class Keeping(Client):
    """A client whose whole answer is kept as it leaves."""

    def __init__(self, client: Client) -> None:
        super().__init__(client._receive, client._send)
        self.kept: Answer | None = None

    async def answer(self, status: int, headers: RawHeaders, body: bytes) -> None:
        """A whole answer of known length."""
        self.kept = Answer(status, tuple(headers), body)
        await super().answer(status, headers, body)


@dataclass(slots=True)
class _Kept:
    body_hmac: str
    answer: Answer
    until: float


class Answers:
    """Answers by key: for KEEP_S, KEEP_BYTES in all, the oldest out first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: OrderedDict[tuple[str, str], _Kept] = OrderedDict()
        self._size = 0

    def keep(self, name: tuple[str, str], body_hmac: str, answer: Answer) -> None:
        """Keep one answer, where it fits at all."""
        self.drop(name)
        if answer.size > KEEP_BYTES:
            return
        self._kept[name] = _Kept(body_hmac, answer, self._clock() + KEEP_S)
        self._size += answer.size
        while self._size > KEEP_BYTES:
            self.drop(next(iter(self._kept)))

    def find(self, name: tuple[str, str]) -> tuple[str, Answer] | None:
        """The body's HMAC and the answer of a key."""
        now = self._clock()
        while self._kept and next(iter(self._kept.values())).until <= now:
            self.drop(next(iter(self._kept)))
        kept = self._kept.get(name)
        return None if kept is None else (kept.body_hmac, kept.answer)

    def drop(self, name: tuple[str, str]) -> None:
        """Forget one answer."""
        kept = self._kept.pop(name, None)
        if kept is not None:
            self._size -= kept.answer.size


class Idempotency:
    """The keys of the calls that run, and the answers of those that ended."""

    def __init__(self, ledger: Ledger, answers: Answers | None = None) -> None:
        self._ledger = ledger
        self._answers = Answers() if answers is None else answers
        self._running: dict[tuple[str, str], Claim] = {}
        self._secrets: dict[str, bytes] = {}

    async def enter(
        self,
        principal: Principal,
        keys: Sequence[bytes],
        target: str,
        body: bytes,
        receipt_id: str,
        at: datetime,
    ) -> Claim | Answer | Refusal:
        """Hold a key for a call, or what the key says instead: the answer that it had, or why there is none.

        Raises:
            StoreUnavailable: the ledger cannot say whether the key was used.
        """
        key = keys[0]
        if (
            len(set(keys)) > 1
            or not 0 < len(key) <= LONGEST_KEY
            or not key.isascii()
            or not key.decode().isprintable()
        ):
            return Refusal(
                code="invalid_request",
                message=f"Idempotency-Key is one key of 1 to {LONGEST_KEY} printable ASCII characters.",
            )
        secret = await self._secret(principal.organization)
        name = (principal.key_id, _hmac(secret, key))
        claim = Claim(*name, _hmac(secret, target.encode() + b"\0" + body), receipt_id, at)
        found = self._known(claim)
        if found is not None:
            return found
        self._running[name] = claim
        try:
            stored = await self._read(lambda connection: find_claim(connection, name, at))
        except BaseException:
            del self._running[name]
            raise
        if stored is not None:
            del self._running[name]
            body_hmac, receipt = stored
            return _conflict() if body_hmac != claim.body_hmac else _replayed(receipt)
        self._ledger.writer.claims[receipt_id] = claim
        return claim

    async def run(self, work: Coroutine[Any, Any, None], claim: Claim, client: Keeping) -> None:
        """Run a call under its key, and keep the answer of one that would be charged again.

        One that runs on in the background has no status yet: its first answer is kept.
        """
        try:
            await work
        finally:
            del self._running[claim.name]
            if client.kept is not None and claim.status in ("served", None):
                self._answers.keep(claim.name, claim.body_hmac, client.kept)

    def give_up(self, claim: Claim) -> None:
        """The call was refused before its intent."""
        self._ledger.writer.claims.pop(claim.receipt_id, None)
        del self._running[claim.name]

    def _known(self, claim: Claim) -> Answer | Refusal | None:
        """What this process knows of a key."""
        running = self._running.get(claim.name)
        if running is not None:
            if running.body_hmac != claim.body_hmac:
                return _conflict()
            message = "The first call under this idempotency key is still running; try again."
            return Refusal(code="idempotency_running", message=message)
        kept = self._answers.find(claim.name)
        if kept is None:
            return None
        return kept[1] if kept[0] == claim.body_hmac else _conflict()

    async def _secret(self, organization: str) -> bytes:
        if organization not in self._secrets:
            self._secrets[organization] = await self._read(
                lambda connection: organization_secret(connection, organization)
            )
        return self._secrets[organization]

    async def _read(self, work: Callable[[Connection], _T]) -> _T:
        if self._ledger.writer.failed is not None:
            raise StoreUnavailable("the ledger is away: it cannot say whether the key was used")
        try:
            return await self._ledger.writer.read(work)
        except SQLAlchemyError as error:
            raise StoreUnavailable(f"the ledger cannot be read ({type(error).__name__})") from error


def _conflict() -> Refusal:
    message = "This idempotency key was used for another request; use a new one."
    return Refusal(code="idempotency_conflict", message=message)


def _replayed(receipt_id: str) -> Refusal:
    return Refusal(
        code="idempotency_replayed",
        message=f"This request was made before, and its answer is no longer kept; its receipt is {receipt_id}.",
        details={"receipt_id": receipt_id},
    )


def _hmac(secret: bytes, content: bytes) -> str:
    return hmac.new(secret, content, "sha256").hexdigest()
