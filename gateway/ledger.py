"""The ledger: counters, intents and receipts of one node, kept in step.

The counters take a call before its intent is on disk, and its settlement before its receipt is; the order of both is
the order of the writer's queue. A cap made in mid-period is hydrated at one place in that order: everything settled
before it is read from the rollups, everything after it is added as it comes, and running calls lend their holds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Connection, func, select
from sqlalchemy.exc import SQLAlchemyError

from gateway.steadiness import CLOSED_GRACE, Steadiness
from gateway.stores.backgrounds import is_kept
from gateway.stores.balances import covers, spent_by_key
from gateway.stores.closed_sums import keep
from gateway.stores.corrections import is_corrected
from gateway.stores.importing import import_spool
from gateway.stores.ledger_check import Checked, check_ledger
from gateway.stores.open_calls import forget_calls, open_calls
from gateway.stores.rows import to_micros
from gateway.stores.tables import intents, receipts
from gateway.stores.writer import LedgerWriter
from toolkit.core.admission import claims_for
from toolkit.core.caps import EACH, Cap, CapBook, Match
from toolkit.core.corrections import attribution_of
from toolkit.core.counters import Counted, Counters, Grant
from toolkit.core.decisions import BalanceKey, CallFacts, Claim
from toolkit.core.errors import CorrectionError, StoreUnavailable
from toolkit.core.receipts import Receipt, counted_of
from toolkit.core.windows import parse_instant, period_key, period_of

_log = logging.getLogger("capline.ledger")
_encode = msgspec.json.Encoder().encode

_RECENT_ROWS = 100_000
"""Rows that are searched for the last step of the sequence: they are appended in nearly that order."""

IMPORT_AGAIN_S = 1.0
"""How soon the spool is looked at again while something is left in it."""


class Ledger:
    """One node's counters over its receipts. Every method runs on the event loop's thread."""

    def __init__(self, writer: LedgerWriter, counters: Counters, closed: int, at: datetime) -> None:
        self.writer = writer
        self.counters = counters
        self.closed_at_start = closed
        self._joining: list[tuple[str, CapBook]] = []
        self._correcting: dict[str, dict[BalanceKey, int]] = {}
        """What corrections that are not committed yet have added to counters, by the receipt that they correct."""
        self.steadiness = Steadiness(at)
        self._importing: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, writer: LedgerWriter, node: str, at: datetime) -> Ledger:
        """Close this node's open intents as abandoned, and continue the sequence that the receipts end at."""
        await import_spool(writer, lambda _: True)
        closed, last_seq = await writer.run(lambda connection: _close_intents(connection, writer, node, at))
        ledger = cls(writer, Counters(next_seq=last_seq + 1), closed, at)
        writer.on_recovered = ledger.take_back
        return ledger

    def reserve(self, receipt_id: str, facts: CallFacts, claims: Sequence[Claim]) -> Grant:
        """Take every claim of a call, or none. A cap that is being hydrated counts the call from here on."""
        closed_before = self.steadiness.closed_before(facts.at)
        if closed_before is not None:
            self.counters.forget_closed(closed_before)
        grant = self.counters.reserve(receipt_id, facts, claims)
        if grant.granted:
            for organization, alone in self._joining:
                if organization == facts.who.organization:
                    self.counters.hold_also(receipt_id, claims_for(alone, facts))
        return grant

    def take_up(self, receipt_id: str, facts: CallFacts) -> None:
        """Go on with a call that a stopped process left running; hydration lends its holds to every counter."""
        self.counters.reserve(receipt_id, facts, ())

    async def begin(self, draft: Mapping[str, Any], trace: str | None, *, armed: bool) -> None:
        """Commit the intent of an admitted call: its receipt's columns as far as they are known.

        While the ledger is away the spool takes the intents of calls that no armed cap stands over. On StoreUnavailable
        nothing may be sent.
        """
        admitted_at = to_micros(draft["admitted_at"])
        text = _encode(draft).decode()
        await self.writer.begin(draft["receipt_id"], draft["node"], admitted_at, text, trace, armed=armed)

    def settle(self, receipt_id: str, counted: Counted) -> int:
        """End a reservation; the step at which the counters saw it."""
        seq = self.counters.settle(receipt_id, counted)
        assert seq is not None, "a call settles once"
        return seq

    def record(self, receipt: Receipt, trace: str | None, *, closes_intent: bool) -> asyncio.Future[None]:
        """Queue a finished receipt; await the result before the end of the answer leaves."""
        return self.writer.record(receipt, trace, closes_intent=closes_intent)

    async def correct(
        self,
        book: CapBook,
        make: Callable[[int], Receipt],
        store: Callable[[Connection, Receipt], object] | None = None,
    ) -> Receipt:
        """Append the row that settles an earlier one; the counters of its period take the difference at once.

        `make` builds the row at the step it is given (`toolkit.core.corrections.correction`), `book` holds the caps in
        force, `store` goes into the same transaction. Counters and queue take it in one step of the loop, so a cap that
        is being hydrated counts it exactly once.

        Raises:
            CorrectionError: another row settled it before, or is about to; nothing was changed.
            StoreUnavailable: the ledger is away, or what was spooled is not back in it.
        """
        self.see_all_imported()
        receipt = make(self.counters.draw())
        corrects = receipt.corrects
        assert corrects is not None
        if corrects in self._correcting:
            raise CorrectionError(f"receipt {corrects} is being corrected")
        taken = self._correcting[corrects] = {
            claim.key: amount
            for claim in self._claims_of(book, receipt)
            if (amount := _difference(receipt).of(claim.key))
            and _is_kept(claim.key.period, receipt.settled_at)
        }

        def append(connection: Connection) -> None:
            if is_corrected(connection, corrects):
                raise CorrectionError(f"receipt {corrects} is corrected already")
            self.writer.append_in_job(connection, [receipt])
            if store is not None:
                store(connection, receipt)

        def ended(committed: asyncio.Future[None]) -> None:
            del self._correcting[corrects]
            if committed.exception() is not None:
                for key, amount in taken.items():
                    self.counters.adjust(key, -amount)

        for key, amount in taken.items():
            self.counters.adjust(key, amount)
        appended = self.writer.run(append)
        appended.add_done_callback(ended)
        await asyncio.shield(appended)  # whoever stops waiting does not undo it
        return receipt

    def take_back(self) -> None:
        """Import what was spooled, in pieces between what comes, unless that is under way or the ledger is away."""
        idle = self._importing is None or self._importing.done()
        if idle and self.writer.failed is None and not self.writer.spool.is_empty:
            self._importing = asyncio.get_running_loop().create_task(self._import())

    async def _import(self) -> None:
        """Import until nothing is spooled any more: lines may still be on their way to the spool."""
        while self.writer.failed is None and not self.writer.spool.is_empty:
            running = {receipt_id for receipt_id, _ in self.counters.running()}
            try:
                await import_spool(self.writer, running.__contains__)
            except (StoreUnavailable, SQLAlchemyError, OSError) as error:
                _log.error("the spool was not imported to its end (%s); it stays", type(error).__name__)
            if not self.writer.spool.is_empty:
                await asyncio.sleep(IMPORT_AGAIN_S)

    def see_all_imported(self) -> None:
        """Raise StoreUnavailable while the spool holds what the ledger does not."""
        if not self.writer.spool.is_empty:
            raise StoreUnavailable("receipts are in the spool still; try again in a moment")

    async def check(self, organization: str, book: CapBook, at: datetime) -> Checked:
        """Compare receipts, rollups, chain heads and counters as they are at one place in the order."""
        self.see_all_imported()
        spent = {key: self.counters.balance(key).spent for key in tuple(self.counters.keys())}
        return await self.writer.read_here(
            lambda connection: check_ledger(connection, organization, book, spent, at)
        )

    def _claims_of(self, book: CapBook, receipt: Receipt) -> Iterator[Claim]:
        """The counters that stand over a receipt's call, those of caps that are being hydrated included; each once."""
        who = attribution_of(receipt)
        facts = CallFacts(who=who, at=receipt.admitted_at, hold_nano_usd=0, floor_nano_usd=0, hold_tokens=0)
        joining = [alone for organization, alone in self._joining if organization == receipt.organization]
        claims = (claim for books in (book, *joining) for claim in claims_for(books, facts))
        return iter({claim.key: claim for claim in claims}.values())

    async def hydrate(
        self,
        organization: str,
        cap: Cap,
        book: CapBook,
        clock: Callable[[], datetime],
        store: Callable[[Connection], object] | None = None,
    ) -> None:
        """Give a cap's counters what the rollups of the current period say, plus the holds of running calls.

        `book` is the one in force before the cap joins it: counters that it covers are live and stay as they
        are. The rollups are read beside the writer, so no call waits for that. `store` writes the cap once its
        counters are right. Calls that are admitted meanwhile count too; the caller swaps the book at once when this
        returns, not later.
        """
        self.see_all_imported()
        joining = (organization, CapBook((cap,)))
        self._joining.append(joining)
        try:
            while True:
                at = clock()
                self.steadiness.filled(at)
                await self._hydrate_at(organization, cap, book, at)
                if store is not None:
                    await self.writer.run(store)
                    store = None
                if period_key(cap.window, clock()) == period_key(cap.window, at):
                    return
        finally:
            self._joining.remove(joining)

    async def hydrate_book(self, organization: str, book: CapBook, clock: Callable[[], datetime]) -> None:
        """Fill the counters of a whole book at a start: the receipts are read once per match and window."""
        for cap in _spanning(book):
            await self.hydrate(organization, cap, CapBook(), clock)

    async def _hydrate_at(
        self,
        organization: str,
        cap: Cap,
        book: CapBook,
        at: datetime,
    ) -> None:
        alone = CapBook((cap,))
        for key in tuple(self.counters.keys()):
            if key.organization == organization and covers(alone, key) and not covers(book, key):
                self.counters.adjust(key, -self.counters.balance(key).spent)
                for taken in self._correcting.values():
                    taken.pop(key, None)  # whether it came to be, the ledger tells from here on
        for receipt_id, facts in self.counters.running():
            if facts.who.organization == organization:
                self.counters.hold_also(receipt_id, claims_for(alone, facts))

        # Everything that was settled before this step is in the ledger here; the rest counts as it comes.
        spent = await self.writer.read_here(
            lambda connection: spent_by_key(connection, organization, cap, at)
        )
        for key, amount in spent.by_key.items():
            if not covers(book, key):
                self.counters.adjust(key, amount)
        closed = spent.closed
        if closed is not None:
            await self.writer.run(lambda connection: keep(connection, closed))


def _is_kept(period: str, at: datetime) -> bool:
    """Whether counters of a period may still be asked for."""
    end = period_of(period).end
    return end is None or end > at - CLOSED_GRACE


def _difference(correction: Receipt) -> Counted:
    """What a correction adds to the counters; the row before it counted its request, which one that failed was not."""
    return Counted(
        correction.counted_nano_usd, correction.counted_tokens, -1 if correction.status == "failed" else 0
    )


def _spanning(book: CapBook) -> Iterator[Cap]:
    """Caps that stand over every counter of the book, one for each scope, match and window."""
    together: dict[tuple[str, Match, str], list[Cap]] = {}
    for cap in book.caps:
        together.setdefault((cap.scope, cap.match, cap.window), []).append(cap)
    for caps in together.values():
        units = {unit for cap in caps for unit, _ in cap.limits}
        yield replace(
            caps[0],
            subject=caps[0].subject if len(caps) == 1 else EACH,
            limit_nano_usd=0 if "usd" in units else None,
            token_limit=0 if "tokens" in units else None,
            request_limit=0 if "requests" in units else None,
        )


def _close_intents(connection: Connection, writer: LedgerWriter, node: str, at: datetime) -> tuple[int, int]:
    """Turn the calls that a dead process left open into abandoned receipts, counted at their hold.

    Those that run in the background stay open: their provider can still be asked.
    """
    mine = intents.c.node == node
    rows, kept = open_calls(connection, mine, ~is_kept()), open_calls(connection, mine, is_kept())
    drafts = [msgspec.json.decode(row["receipt"]) for row in rows]
    known = [*drafts, *(msgspec.json.decode(row["receipt"]) for row in kept)]
    last_seq = max([_last_seq(connection), *(draft["admit_seq"] for draft in known)])
    abandoned = [_as_abandoned(draft, at, last_seq + step) for step, draft in enumerate(drafts, start=1)]
    if abandoned:
        writer.append_in_job(connection, abandoned, traces=[row["trace"] for row in rows])
        _log.warning(
            "%d calls were cut off by the last stop: abandoned, counted at their holds", len(abandoned)
        )
    forget_calls(connection, mine, ~is_kept())
    return len(abandoned), last_seq + len(abandoned)


def _as_abandoned(draft: dict[str, Any], at: datetime, settle_seq: int) -> Receipt:
    """The receipt of a call whose outcome nobody will learn: no cost is known, its hold stays counted."""
    admitted_at = parse_instant(draft.pop("admitted_at"))
    hold = draft["hold_nano_usd"]
    return Receipt(
        **{**draft, "tags": tuple(draft["tags"])},
        admitted_at=admitted_at,
        settled_at=max(at, admitted_at),
        settle_seq=settle_seq,
        status="abandoned",
        unpriced_reason="outcome_unknown",
        counted_nano_usd=counted_of(status="abandoned", cost_nano_usd=None, hold_nano_usd=hold),
        counted_tokens=draft["hold_tokens"],
        basis="estimated",
    )


def _last_seq(connection: Connection) -> int:
    recent = select(receipts.c.admit_seq, receipts.c.settle_seq).order_by(receipts.c.row_seq.desc())
    last = recent.limit(_RECENT_ROWS).subquery()
    found = connection.execute(select(func.max(last.c.admit_seq), func.max(last.c.settle_seq))).one()
    return max(found[0] or 0, found[1] or 0)
