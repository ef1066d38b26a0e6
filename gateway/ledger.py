"""The ledger: counters, intents and receipts of one node, kept in step.

The counters take a call before its intent is on disk, and its settlement before its receipt is; the order of both is
the order of the writer's queue. A cap made in mid-period is hydrated at one place in that order: everything settled
before it is read from the receipts, everything after it is added as it comes, and running calls lend their holds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import Connection, func, select

from gateway.stores.backgrounds import is_kept
from gateway.stores.balances import covers, last_receipt, spent_by_key
from gateway.stores.corrections import is_corrected
from gateway.stores.open_calls import forget_calls, open_calls
from gateway.stores.rows import to_micros
from gateway.stores.tables import intents, receipts
from gateway.stores.writer import LedgerWriter
from toolkit.core.admission import claims_for
from toolkit.core.caps import EACH, Cap, CapBook, Match
from toolkit.core.corrections import attribution_of
from toolkit.core.counters import Counted, Counters, Grant
from toolkit.core.decisions import CallFacts, Claim
from toolkit.core.errors import CorrectionError
from toolkit.core.receipts import Receipt, counted_of
from toolkit.core.windows import parse_instant, period_key

_log = logging.getLogger("capline.ledger")
_encode = msgspec.json.Encoder().encode

_RECENT_ROWS = 100_000
"""Rows that are searched for the last step of the sequence: they are appended in nearly that order."""


CLOSED_GRACE = timedelta(days=2)
"""How long the counters of a closed period are kept (R042): longer than any call runs or clock errs."""


class Ledger:
    """One node's counters over its receipts. Every method runs on the event loop's thread."""

    def __init__(self, writer: LedgerWriter, counters: Counters, closed: int) -> None:
        self.writer = writer
        self.counters = counters
        self.closed_at_start = closed
        self._joining: list[tuple[str, CapBook]] = []
        self._day = 0

    @classmethod
    async def open(cls, writer: LedgerWriter, node: str, at: datetime) -> Ledger:
        """Close this node's open intents as abandoned, and continue the sequence that the receipts end at."""
        closed, last_seq = await writer.run(lambda connection: _close_intents(connection, writer, node, at))
        return cls(writer, Counters(next_seq=last_seq + 1), closed)

    def reserve(self, receipt_id: str, facts: CallFacts, claims: Sequence[Claim]) -> Grant:
        """Take every claim of a call, or none. A cap that is being hydrated counts the call from here on."""
        if facts.at.day != self._day:
            self._day = facts.at.day
            self.counters.forget_closed(facts.at - CLOSED_GRACE)
        grant = self.counters.reserve(receipt_id, facts, claims)
        if grant.granted:
            for organization, alone in self._joining:
                if organization == facts.who.organization:
                    self.counters.hold_also(receipt_id, claims_for(alone, facts))
        return grant

    def take_up(self, receipt_id: str, facts: CallFacts) -> None:
        """Go on with a call that a stopped process left running; hydration lends its holds to every counter."""
        self.counters.reserve(receipt_id, facts, ())

    async def begin(self, draft: Mapping[str, Any], trace: str | None) -> None:
        """Commit the intent of an admitted call: its receipt's columns as far as they are known.

        On StoreUnavailable nothing may be sent.
        """
        admitted_at = to_micros(draft["admitted_at"])
        text = _encode(draft).decode()
        await self.writer.begin(draft["receipt_id"], draft["node"], admitted_at, text, trace)

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
            CorrectionError: another row settled it before; nothing was changed.
        """
        receipt = make(self.counters.draw())
        taken = [
            (claim.key, amount)
            for claim in self._claims_of(book, receipt)
            if (amount := _difference(receipt).of(claim.key))
        ]

        def append(connection: Connection) -> None:
            assert receipt.corrects is not None
            if is_corrected(connection, receipt.corrects):
                raise CorrectionError(f"receipt {receipt.corrects} is corrected already")
            self.writer.append_in_job(connection, [receipt])
            if store is not None:
                store(connection, receipt)

        for key, amount in taken:
            self.counters.adjust(key, amount)
        try:
            await self.writer.run(append)
        except Exception:
            for key, amount in taken:
                self.counters.adjust(key, -amount)
            raise
        return receipt

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
        """Give a cap's counters what the receipts of the current period say, plus the holds of running calls.

        `book` is the one in force before the cap joins it: counters that it covers are live and stay as they
        are. The receipts are read beside the writer, so no call waits for that. `store` writes the cap once its
        counters are right. Calls that are admitted meanwhile count too; the caller swaps the book at once when this
        returns, not later.
        """
        joining = (organization, CapBook((cap,)))
        self._joining.append(joining)
        try:
            while True:
                at = clock()
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
        for receipt_id, facts in self.counters.running():
            if facts.who.organization == organization:
                self.counters.hold_also(receipt_id, claims_for(alone, facts))

        # Everything that was settled before this step has a row up to here; the rest counts as it comes.
        last_row = await self.writer.run(last_receipt)
        spent = await self.writer.read(
            lambda connection: spent_by_key(connection, organization, cap, at, last_row=last_row)
        )
        for key, amount in spent.items():
            if not covers(book, key):
                self.counters.adjust(key, amount)


def _difference(correction: Receipt) -> Counted:
    """What a correction adds to the counters; its request was counted by the row before it."""
    return Counted(correction.counted_nano_usd, correction.counted_tokens, 0)


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
