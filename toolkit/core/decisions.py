"""The words of a decision: facts of a call, claims on counters, balances, and the verdict.

A claim asks one counter for room. It carries the least limit per admission rule of the armed caps behind that
counter, so that a store needs nothing but `passes` to grant all claims of a call or none.

What is made once a cap or a counter is a named tuple: it costs a third of a frozen dataclass.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from toolkit.core.caps import Cap, Match, Unit
from toolkit.core.scopes import Attribution, Scope

Room = Literal["fits", "busy", "final"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFacts:
    """What the decision reads of a call. A model without a price at admission has neither hold nor floor."""

    who: Attribution
    at: datetime
    hold_nano_usd: int | None
    floor_nano_usd: int | None
    hold_tokens: int
    floor_tokens: int = 0

    def hold(self, unit: Unit) -> int:
        """The worst case on one axis; an unpriced call holds no dollars."""
        if unit == "usd":
            return self.hold_nano_usd or 0
        return self.hold_tokens if unit == "tokens" else 1

    def floor(self, unit: Unit) -> int:
        """The low estimate on one axis; a request's is 0, so that `floor` can only trip late."""
        if unit == "usd":
            return self.floor_nano_usd or 0
        return self.floor_tokens if unit == "tokens" else 0


class BalanceKey(NamedTuple):
    """A counter's name: resolved values, never a cap's id, so that spend outlives every change of a cap."""

    organization: str
    scope: Scope
    subject: str
    match: Match
    period: str
    unit: Unit


class Balance(NamedTuple):
    """One counter: taken by finished requests, by holds and by floors of running ones."""

    spent: int
    held: int
    held_floor: int


class Claim(NamedTuple):
    """What a call asks of one counter, and the least limits that it must keep (None = no such armed cap)."""

    key: BalanceKey
    hold: int
    floor: int
    caps: tuple[tuple[Cap, bool], ...]
    """The caps behind this counter, each with whether it binds this call."""
    reserve_limit: int | None
    floor_limit: int | None
    after_limit: int | None

    @property
    def is_armed(self) -> bool:
        """Whether some armed cap stands behind this counter."""
        return (self.reserve_limit, self.floor_limit, self.after_limit) != (None, None, None)


def passes(claim: Claim, balance: Balance) -> bool:
    """Whether one counter has room for one claim: the predicate that every store repeats (contract §7)."""
    spent, held, held_floor = balance
    limit = claim.reserve_limit
    if limit is not None and (spent + held >= limit or spent + held + claim.hold > limit):
        return False
    limit = claim.floor_limit
    if limit is not None and spent + held_floor + claim.floor >= limit:
        return False
    limit = claim.after_limit
    return limit is None or spent < limit


class CapLook(NamedTuple):
    """One cap as the decision saw it on one axis: a line of the trace."""

    cap: Cap
    binds: bool
    unit: Unit
    limit: int
    balance: Balance
    hold: int
    headroom: int
    """limit - taken by the cap's own admission mode, this call's part included."""
    room: Room


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """The call may go. `named` is the tightest armed cap, `customer` of customers' dollar caps."""

    looks: tuple[CapLook, ...]
    named: CapLook | None
    customer: CapLook | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The call may not go: `busy` when only running holds stand in the way, else final.

    `named` is the deciding cap on the axis that refuses.
    """

    looks: tuple[CapLook, ...]
    named: CapLook
    busy: bool

    @property
    def code(self) -> Literal["budget_busy", "budget_exceeded"]:
        """The refusal's stable code."""
        return "budget_busy" if self.busy else "budget_exceeded"
