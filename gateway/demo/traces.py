"""Why the demo month's caps refused what they refused: each decision's trace, worked out again from the receipts.

A receipt says when the counters saw it come and go and what it held and took, so the balances before any refusal
follow from the rows before it; the kernel then judges the refused call once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from gateway.stores.traces import trace_text
from toolkit.core.admission import claims_for, verdict
from toolkit.core.caps import Cap, CapBook
from toolkit.core.decisions import Balance, BalanceKey, CallFacts, Refused
from toolkit.core.scopes import Attribution

COLUMNS = (
    "receipt_id",
    "admitted_at",
    "admit_seq",
    "settle_seq",
    "organization",
    "customer",
    "refusal_code",
    "hold_nano_usd",
    "floor_nano_usd",
    "counted_nano_usd",
    "hold_tokens",
)
"""What this reads of a receipt; caps of organizations and customers in dollars need no more."""

CapsByInstant = Sequence[tuple[datetime, tuple[Cap, ...]]]


def cap_traces(columns: Mapping[str, Sequence[Any]], timeline: CapsByInstant) -> dict[str, str]:
    """The trace of every refusal that a cap gave, by receipt id. `columns` has COLUMNS, one value a row."""
    books = [(start, CapBook(caps)) for start, caps in timeline]
    keys_of = _keys_of(books[0][1])
    balances: dict[BalanceKey, list[int]] = {}
    traces: dict[str, str] = {}
    rows = list(zip(*(columns[name] for name in COLUMNS), strict=True))
    for number, settles in _events(rows):
        receipt_id, at, _, _, organization, customer, refused, hold, floor, counted, hold_tokens = rows[
            number
        ]
        if refused is not None:
            facts = CallFacts(
                who=Attribution(organization=organization, customer=customer),
                at=at,
                hold_nano_usd=hold,
                floor_nano_usd=floor,
                hold_tokens=hold_tokens,
            )
            book = next(book for start, book in reversed(books) if start <= at)
            traces[receipt_id] = _trace(book, facts, balances, refused)
            continue
        spent, held, held_floor = (
            (counted, -(hold or 0), -(floor or 0)) if settles else (0, hold or 0, floor or 0)
        )
        for key in keys_of(organization, customer, at.replace(hour=0, minute=0, second=0, microsecond=0)):
            balance = balances.setdefault(key, [0, 0, 0])
            balance[0] += spent
            balance[1] += held
            balance[2] += held_floor
    return traces


def _events(rows: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, bool]]:
    """(row, whether it settles) of every row that the counters saw, in their order."""
    steps: list[tuple[int, int, bool]] = []
    for number, row in enumerate(rows):
        admitted, settled = row[2], row[3]
        if admitted is not None:
            steps.append((admitted, number, False))
        if settled is not None:
            steps.append((settled, number, True))
    return ((number, settles) for _, number, settles in sorted(steps))


def _keys_of(book: CapBook) -> Callable[[str, str | None, datetime], tuple[BalanceKey, ...]]:
    """The counters of a call; asked once for each customer and day, since no period ends within a day."""

    @cache
    def keys(organization: str, customer: str | None, day: datetime) -> tuple[BalanceKey, ...]:
        who = Attribution(organization=organization, customer=customer)
        facts = CallFacts(who=who, at=day, hold_nano_usd=0, floor_nano_usd=0, hold_tokens=0)
        return tuple(claim.key for claim in claims_for(book, facts))

    return keys


def _trace(
    book: CapBook, facts: CallFacts, balances: Mapping[BalanceKey, Sequence[int]], refused: str
) -> str:
    claims = claims_for(book, facts)
    before = [Balance(*balances.get(claim.key, (0, 0, 0))) for claim in claims]
    decision = verdict(claims, before, granted=False)
    assert isinstance(decision, Refused), "a call that was not granted is refused"
    assert decision.code == refused, "the receipts and the caps of the demo tell two stories"
    trace = trace_text(decision.looks)
    assert trace is not None, "a cap that refuses has been looked at"
    return trace
