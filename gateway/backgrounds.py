"""Responses that run on after their first answer: asked for until they end, and priced once.

While one runs its hold stays. Its end makes its receipt. After CAPLINE_HOLD_TTL_S it is recorded as abandoned, and
asked for until a day has gone by: an end that comes so late is a correction. What is needed for that is on disk before
the first answer leaves, so a restart goes on where the last process stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta

from gateway.background_calls import candidate_of, kept_headers, provider_of_run
from gateway.deadline import Deadline
from gateway.dialects import openai_responses
from gateway.dialects.base import Served
from gateway.exchange import key_headers
from gateway.late import LONGEST
from gateway.outcome import Outcome, outcome_columns
from gateway.pipeline import Candidate, Draft
from gateway.policy import PolicyHolder, digest
from gateway.services import Services
from gateway.stores import backgrounds as store
from gateway.stores.backgrounds import Background, Kept
from gateway.upstream import Answer, BrokenOff, NotReached, RawHeaders
from toolkit.core.counters import Counted
from toolkit.core.errors import StoreUnavailable
from toolkit.core.receipts import Receipt
from toolkit.core.usage import Usage

_log = logging.getLogger("capline.backgrounds")

FIRST_POLL_S = 0.5
MOST_POLL_S = 30.0
"""The pause between two looks grows from the one to the other."""
POLL_TIMEOUT_S = 60.0
LOOKS_FOR_USAGE = 3
"""How often one that ended without usage is looked at again: of a cancelled one it may come later."""

_MILLISECOND = timedelta(milliseconds=1)


@dataclass(eq=False)
class Run:
    """One response that may run on. `receipt` is set once it is recorded as abandoned."""

    row: Background
    candidate: Candidate
    draft: Draft
    trace: str | None
    receipt: Receipt | None = None
    followed: bool = False
    """Whether it is asked for: while a stream of it is read, that stream tells its end."""
    ended: bool = False
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    ending: asyncio.Lock = field(default_factory=asyncio.Lock)


class Backgrounds:
    """Every run of this node. `keep` stores one, `follow` asks for it until it ends."""

    def __init__(self, services: Services, policy: PolicyHolder) -> None:
        self._services = services
        self._policy = policy
        self._runs: dict[tuple[str, str], Run] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def keep(
        self,
        upstream_id: str,
        candidate: Candidate,
        draft: Draft,
        trace: str | None,
        target: str,
        headers: RawHeaders,
    ) -> Run:
        """Store what is needed to ask for a response again. Raises StoreUnavailable: its id must not leave then."""
        provider = candidate.provider
        _, mark, query = target.partition("?")
        row = Background(
            receipt_id=draft["receipt_id"],
            node=draft["node"],
            organization=draft["organization"],
            upstream_id=upstream_id,
            provider=provider.name,
            base_url=provider.base_url,
            key_digest=digest(provider.api_keys[0]) if provider.api_keys else "",
            query=mark + query,
            headers=kept_headers(headers),
            tier=candidate.call.bounds.tier,
        )
        try:
            await self._services.ledger.writer.run(lambda connection: store.keep(connection, row, draft))
        except Exception as error:
            raise StoreUnavailable(f"a background run was not stored ({type(error).__name__})") from error
        run = Run(row, candidate, draft, trace)
        self._runs[row.organization, upstream_id] = run
        return run

    def resume(self, kept: Iterable[Kept]) -> None:
        """Go on with what the last process left running."""
        for each in kept:
            provider = provider_of_run(each.row, self._services.settings.providers)
            candidate = candidate_of(each.receipt, each.row, provider, self._policy.current.prices)
            run = Run(each.row, candidate, each.draft or {}, each.trace)
            run.receipt = each.receipt if each.draft is None else None
            self._runs[each.row.organization, each.row.upstream_id] = run
            self.follow(run)

    def find(self, organization: str, upstream_id: str) -> Run | None:
        """An organization's run of that id."""
        return self._runs.get((organization, upstream_id))

    def follow(self, run: Run) -> None:
        """Ask for a run until it ends."""
        run.followed = True
        task = asyncio.get_running_loop().create_task(self._follow(run))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Stop asking; the next start goes on."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def forget(self, run: Run) -> None:
        """A run has its end."""
        run.ended = True
        mine = (run.row.organization, run.row.upstream_id)
        if self._runs.get(mine) is run:
            del self._runs[mine]
        with contextlib.suppress(Exception):  # a start finds that it has ended
            await self._services.ledger.writer.run(lambda link: store.forget(link, run.row.receipt_id))

    async def told(self, run: Run, outcome: Outcome) -> None:
        """An answer that a client asked for passed by: an end is settled at once."""
        if run.followed and _ended(outcome) and isinstance(outcome.served.usage, Usage):
            await self._end(run, outcome)

    async def _follow(self, run: Run) -> None:
        pause, looks = FIRST_POLL_S, 0
        ttl = timedelta(seconds=self._services.settings.hold_ttl_s)
        while not run.ended:
            await self._pause(run, pause, ttl)
            age = self._services.clock() - run.candidate.at
            if run.receipt is None and age >= ttl:
                await self._abandon(run)
            if age >= max(ttl, LONGEST):
                await self.forget(run)
                return
            outcome = await self._look(run)
            pause = min(pause * 1.5, MOST_POLL_S)
            if outcome is not None and _ended(outcome):
                looks += 1
                if isinstance(outcome.served.usage, Usage) or looks > LOOKS_FOR_USAGE:
                    await self._end(run, outcome)

    async def _pause(self, run: Run, seconds: float, ttl: timedelta) -> None:
        """Wait until it is time to look again: earlier when somebody saw it change, or when its time is up."""
        if run.receipt is None:
            left = run.candidate.at + ttl - self._services.clock()
            seconds = max(0.0, min(seconds, left.total_seconds()))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(run.wake.wait(), seconds)
        run.wake.clear()

    async def _look(self, run: Run) -> Outcome | None:
        """What the provider says of a run now; None when it cannot be asked."""
        provider, row = run.candidate.provider, run.row
        url = provider.url(f"{openai_responses.ROUTE}/{row.upstream_id}{row.query}")
        headers = {
            **row.headers,
            **key_headers(openai_responses.DIALECT, provider),
            "accept-encoding": "identity",
        }
        try:
            with Deadline(asyncio.get_running_loop().time() + POLL_TIMEOUT_S):
                answer = await self._services.upstream.send(url, headers.items(), b"", "GET")
                try:
                    return await self._read(run, answer)
                finally:
                    await answer.close()
        except (NotReached, BrokenOff, TimeoutError) as error:
            _log.info("background run %s could not be looked at: %s", row.receipt_id, type(error).__name__)
            return None

    async def _read(self, run: Run, answer: Answer) -> Outcome | None:
        body = b"".join([chunk async for chunk in answer.chunks()])
        return self.outcome_of(run, answer.status, body)

    def outcome_of(self, run: Run, status: int, body: bytes) -> Outcome | None:
        """What an answer to a look at a run says; None for one that is no response."""
        if not 200 <= status < 300:
            return None
        served = openai_responses.read_answer(body, run.candidate.call)
        return None if served.upstream_id is None else Outcome("served", status, served, len(body))

    async def _end(self, run: Run, outcome: Outcome) -> None:
        async with run.ending:
            if run.ended:
                return
            if run.receipt is None:
                await self._settle(run, outcome)
            elif not await self._correct(run, run.receipt, outcome):
                return
            await self.forget(run)

    async def _abandon(self, run: Run) -> None:
        async with run.ending:
            if not run.ended:
                served = Served(upstream_id=run.row.upstream_id)
                run.receipt = await self._settle(run, Outcome("abandoned", 200, served))

    async def _settle(self, run: Run, outcome: Outcome) -> Receipt:
        """The receipt of a run: its hold is given back, its cost counted."""
        services, at = self._services, run.candidate.at
        columns = outcome_columns(outcome, run.candidate)
        counted = Counted(columns["counted_nano_usd"], columns["counted_tokens"], 1)
        columns["settle_seq"] = services.ledger.settle(run.row.receipt_id, counted)
        columns["settled_at"] = max(services.clock(), at)
        columns["latency_ms"] = (columns["settled_at"] - at) // _MILLISECOND
        receipt = Receipt.of(run.draft | columns)
        services.metrics.count("requests", dialect=receipt.dialect, status=outcome.status)
        try:
            await services.ledger.record(receipt, run.trace, closes_intent=True)
        except StoreUnavailable:
            _log.error("receipt %s of a background run was not committed", run.row.receipt_id)
        return receipt

    async def _correct(self, run: Run, before: Receipt, outcome: Outcome) -> bool:
        """The end of a run that was recorded as abandoned: a correction, where it tells a cost.

        False when the ledger did not take it: the run is asked for again.
        """
        try:
            await self._services.late.correct(before, run.candidate, outcome)
        except StoreUnavailable:
            return False
        return True


def _ended(outcome: Outcome) -> bool:
    return not outcome.served.running
