"""The reference counters: reserve all claims of a call or none, then settle it exactly once.

Synchronous and in memory. The gateway's memory store is this class, and the replay drives the very same one,
so a verdict on history and a verdict on live traffic cannot differ. One sequence numbers admissions and
settlements in the order the counters saw them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from toolkit.core.decisions import Balance, BalanceKey, CallFacts, Claim, passes
from toolkit.core.windows import period_of


class Counted(NamedTuple):
    """What one finished request adds to its counters, per unit."""

    nano_usd: int
    tokens: int
    requests: int

    def of(self, key: BalanceKey) -> int:
        """The amount in a counter's own unit."""
        if key.unit == "usd":
            return self.nano_usd
        return self.tokens if key.unit == "tokens" else self.requests


NOTHING = Counted(0, 0, 0)


class Grant(NamedTuple):
    """The answer to a reservation: whether all claims were taken, at which step, the balances before it."""

    granted: bool
    seq: int
    balances: tuple[Balance, ...]


@dataclass(slots=True)
class Reservation:
    """One running request: its facts, its grant, and what it holds on each counter."""

    facts: CallFacts
    grant: Grant
    holds: list[tuple[BalanceKey, list[int], int, int]]
    """Counter, its balance, hold, floor."""


class Counters:
    """Balances by key, and the reservations that hold on them. Not thread-safe: one owner drives it."""

    def __init__(self, *, next_seq: int = 1) -> None:
        self._balances: dict[BalanceKey, list[int]] = {}
        self._running: dict[str, Reservation] = {}
        self._next_seq = next_seq

    def reserve(self, reservation_id: str, facts: CallFacts, claims: Sequence[Claim]) -> Grant:
        """Take every claim if each one passes, none otherwise. A refusal takes a step of the sequence too.

        A repeated reservation of a running call gets the grant that it has, and takes nothing more.
        """
        running = self._running.get(reservation_id)
        if running is not None:
            return running.grant
        kept = [self._balances.get(claim.key) for claim in claims]
        balances = tuple([_ZERO if balance is None else Balance(*balance) for balance in kept])
        grant = Grant(all(map(passes, claims, balances)), self._step(), balances)
        if grant.granted:
            held = [self._hold(claim) for claim in claims]
            self._running[reservation_id] = Reservation(facts, grant, held)
        return grant

    def settle(self, reservation_id: str, counted: Counted) -> int | None:
        """End a reservation with what it counted; its step, or None when it was settled before."""
        reservation = self._running.pop(reservation_id, None)
        if reservation is None:
            return None
        for key, balance, hold, floor in reservation.holds:
            balance[0] += counted.of(key)
            balance[1] -= hold
            balance[2] -= floor
        return self._step()

    def release(self, reservation_id: str) -> int | None:
        """End a reservation that counted nothing."""
        return self.settle(reservation_id, NOTHING)

    def adjust(self, key: BalanceKey, spent: int) -> None:
        """Add to what a counter took: seeding from the ledger, or a correction's difference."""
        self._balances.setdefault(key, [0, 0, 0])[0] += spent

    def hold_also(self, reservation_id: str, claims: Iterable[Claim]) -> None:
        """Add counters to a running reservation: a cap made while the call runs counts its hold too.

        Counters that it holds on already, and calls that have settled meanwhile, stay as they are.
        """
        reservation = self._running.get(reservation_id)
        if reservation is None:
            return
        known = {key for key, *_ in reservation.holds}
        for claim in claims:
            if claim.key not in known:
                known.add(claim.key)
                reservation.holds.append(self._hold(claim))

    def forget_closed(self, before: datetime) -> int:
        """Drop the counters whose period ended by `before` and that no running call holds on; how many.

        Nothing is reset by this: a period's key is never asked for again once it is over.
        """
        held = {key for reservation in self._running.values() for key, *_ in reservation.holds}
        ends = {name: period_of(name).end for name in {key.period for key in self._balances}}
        closed = [
            key
            for key in self._balances
            if (end := ends[key.period]) is not None and end <= before and key not in held
        ]
        for key in closed:
            del self._balances[key]
        return len(closed)

    def balance(self, key: BalanceKey) -> Balance:
        """What a counter holds now; a counter that was never written reads zero."""
        kept = self._balances.get(key)
        return Balance(*kept) if kept is not None else _ZERO

    def running(self) -> Iterator[tuple[str, CallFacts]]:
        """The reservations that have not been settled."""
        return ((reservation_id, kept.facts) for reservation_id, kept in list(self._running.items()))

    def keys(self) -> Iterator[BalanceKey]:
        """Every counter that was ever written."""
        return iter(tuple(self._balances))

    def draw(self) -> int:
        """One step of the sequence for an event that touches no counter."""
        return self._step()

    def _hold(self, claim: Claim) -> tuple[BalanceKey, list[int], int, int]:
        balance = self._balances.get(claim.key)
        if balance is None:
            balance = self._balances[claim.key] = [0, 0, 0]
        balance[1] += claim.hold
        balance[2] += claim.floor
        return claim.key, balance, claim.hold, claim.floor

    def _step(self) -> int:
        seq = self._next_seq
        self._next_seq += 1
        return seq


_ZERO = Balance(0, 0, 0)
