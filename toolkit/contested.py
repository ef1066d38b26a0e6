"""The calls that some cap might refuse, run through the kernel's own counters one by one.

What is beyond doubt stays out: whatever settled before a counter's first doubtful call comes as one sum. While the
counters of a refused call stand still, a like one that asks no less is refused on the same figures, without a claim.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import polars as pl

from toolkit.core.admission import verdict
from toolkit.core.caps import Cap, Unit
from toolkit.core.counters import Counted, Counters
from toolkit.core.decisions import Balance, BalanceKey, CallFacts, Claim, Refused, passes
from toolkit.core.scopes import SCOPES

Seed = tuple[int, BalanceKey, int]
"""A counter's number, one key of it, and what that key took."""

REFUSED_SCHEMA = pl.Schema(
    {
        "row": pl.UInt32(),
        "code": pl.String(),
        "cap_id": pl.Int64(),
        "unit": pl.String(),
        "headroom": pl.Int64(),
        "false_stop": pl.Boolean(),
    }
)
"""`Refusal` as a frame."""


class Refusal(NamedTuple):
    """A row that the draft refuses. `headroom` is in `unit`; both are null when no counter was asked."""

    row: int
    code: str
    cap_id: int
    unit: Unit | None = None
    headroom: int | None = None
    false_stop: bool = False
    """A `reserve` cap refused it on its hold, though what it counted would have fit."""


class Call(NamedTuple):
    """What one call asks and takes, in nano-USD, tokens and requests, and the number of its plan.

    `refused_before`: a cap of its own time refused it, so what it would have taken is not known.
    """

    hold: int
    floor: int
    hold_tokens: int
    floor_tokens: int
    counted: int
    counted_tokens: int
    requests: int
    refused_before: bool
    plan: int

    def took(self) -> Counted:
        """What its settlement adds to its counters."""
        return Counted(self.counted, self.counted_tokens, self.requests)

    def claims(self, like: Iterable[Claim]) -> list[Claim]:
        """Claims such as `like`, with the amounts of this call."""
        claims = []
        for claim in like:
            hold, floor = 1, 0
            if claim.key.unit == "usd":
                hold, floor = self.hold, self.floor
            elif claim.key.unit == "tokens":
                hold, floor = self.hold_tokens, self.floor_tokens
            claims.append(_asking(claim, hold, floor))
        return claims


CALL_FIELDS = Call._fields[:-1]
"""The columns of `History.rows` that make a call."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the calls of one attribution, period and set of caps share: everything but the amounts.

    `counters` numbers what the claims stand on; `asks` are the fields of a call that its limits look at; `looks` are
    the binding caps, each with the place of its claim.
    """

    facts: CallFacts
    claims: tuple[Claim, ...]
    counters: tuple[int, ...]
    asks: tuple[int, ...] = field(init=False)
    looks: tuple[tuple[int, Cap], ...] = field(init=False)

    def __post_init__(self) -> None:
        asks = [_RESERVED.get(claim.key.unit) for claim in self.claims if claim.reserve_limit is not None]
        asks += [_FLOORED.get(claim.key.unit) for claim in self.claims if claim.floor_limit is not None]
        object.__setattr__(self, "asks", tuple(sorted({ask for ask in asks if ask is not None})))
        looks = [
            (place, cap) for place, claim in enumerate(self.claims) for cap, binds in claim.caps if binds
        ]
        object.__setattr__(self, "looks", tuple(looks))

    def ranks_by_dollars(self) -> bool:
        """Whether headroom alone ranks the caps: one look, or dollars only."""
        return len(self.looks) == 1 or all(self.claims[place].key.unit == "usd" for place, _ in self.looks)


_RESERVED: Mapping[Unit, int] = {"usd": 0, "tokens": 2}
_FLOORED: Mapping[Unit, int] = {"usd": 1, "tokens": 3}


class _Standstill(NamedTuple):
    """Balances that did not move since they refused a call, and the calls refused on them."""

    plan: Plan
    version: int
    balances: tuple[Balance, ...]
    asked: list[tuple[list[int], int]]
    calls: list[int]

    def refuses(self, number: int, versions: Mapping[int, int]) -> bool:
        """Whether the balances still stand, and call `number` asks no less of them than the one they refused."""
        version = 0
        for counter in self.plan.counters:
            version += versions[counter]
        if version != self.version:
            return False
        for column, least in self.asked:  # noqa: SIM110 -- a generator would double the cost of the hottest loop
            if column[number] < least:
                return False
        return True


class Contest:
    """One pass over the contested calls: a frame with the columns of `Call`, numbered from 0.

    `seeds`: at the call with which a counter comes into doubt, its number, its keys and what they took before.
    """

    def __init__(
        self, calls: pl.DataFrame, plans: Sequence[Plan], seeds: Mapping[int, Sequence[Seed]]
    ) -> None:
        self._frame = calls
        self._columns = [column.to_list() for column in calls.get_columns()]
        self._plans = plans
        self._seeds = seeds
        self._counters = Counters()
        self._versions: defaultdict[int, int] = defaultdict(int)
        self._still: dict[int, _Standstill] = {}
        self._stills: list[_Standstill] = []

    def run(self, events: Iterable[tuple[int, bool]]) -> pl.DataFrame:
        """Every refusal among the events (call, whether it settles), which come in the order of the counters."""
        admitted = set[int]()
        plan_of, still_of, versions, seeds = self._columns[-1], self._still, self._versions, self._seeds
        for number, settles in events:
            if settles:
                if number in admitted:
                    self._settle(number)
                continue
            still = still_of.get(plan_of[number])
            if still is not None and number not in seeds and still.refuses(number, versions):
                still.calls.append(number)
            elif self._admits(number):
                admitted.add(number)
        alike = [still for still in self._stills if still.plan.ranks_by_dollars()]
        others = [still for still in self._stills if not still.plan.ranks_by_dollars()]
        refusals = [self._refusal(number, still) for still in others for number in still.calls]
        return pl.concat((refusals_frame(refusals), self._on_the_same_figures(alike)))

    def _admits(self, number: int) -> bool:
        call = self._call(number)
        plan = self._plans[call.plan]
        for counter, key, taken in self._seeds.get(number, ()):
            self._counters.adjust(key, taken)
            self._versions[counter] += 1
        # The facts serve only whoever asks what is running, so those of the plan will do.
        grant = self._counters.reserve(str(number), plan.facts, call.claims(plan.claims))
        if not grant.granted:
            version = sum(self._versions[counter] for counter in plan.counters)
            asked = [(self._columns[ask], call[ask]) for ask in plan.asks]
            self._still[call.plan] = _Standstill(plan, version, grant.balances, asked, [number])
            self._stills.append(self._still[call.plan])
        elif call.refused_before:
            self._counters.release(str(number))
        else:
            for counter in plan.counters:
                self._versions[counter] += 1
            return True
        return False

    def _settle(self, number: int) -> None:
        call = self._call(number)
        self._counters.settle(str(number), call.took())
        for counter in self._plans[call.plan].counters:
            self._versions[counter] += 1

    def _call(self, number: int) -> Call:
        return Call._make([column[number] for column in self._columns])

    def _refusal(self, number: int, still: _Standstill) -> Refusal:
        call = self._call(number)
        return refusal_of(number, call, call.claims(still.plan.claims), still.balances)

    def _on_the_same_figures(self, stills: Sequence[_Standstill]) -> pl.DataFrame:
        """`refusal_of` for every call of standstills that headroom ranks, many at a time."""
        looks = [
            (
                at,
                cap.id,
                SCOPES.index(cap.scope),
                cap.admission,
                claim.key.unit,
                cap.limit(claim.key.unit),
                *balance,
            )
            for at, still in enumerate(stills)
            for (place, cap) in still.plan.looks
            for claim, balance in ((still.plan.claims[place], still.balances[place]),)
        ]
        still_of = [at for at, still in enumerate(stills) for _ in still.calls]
        calls = pl.DataFrame(
            {"row": [number for still in stills for number in still.calls], "still": still_of},
            schema={"row": pl.UInt32, "still": pl.Int64},
        )
        found = calls.hstack(self._frame.drop("plan")[calls["row"]].get_columns())
        table = pl.DataFrame(looks, schema=_LOOK_SCHEMA, orient="row")
        seen = found.join(table, on="still", how="inner", maintain_order="left").with_columns(**_seen())
        if table.height > len(stills):
            seen = seen.with_columns(false_stop=pl.col("false_stop").all().over("row"))
            seen = seen.filter(pl.col("final") | pl.col("busy"))
            seen = seen.sort(pl.col("row"), ~pl.col("final"), "headroom", -pl.col("scope"), "cap_id")
            seen = seen.unique("row", keep="first", maintain_order=True)
        code = pl.when("final").then(pl.lit("budget_exceeded")).otherwise(pl.lit("budget_busy")).alias("code")
        return seen.select("row", code, "cap_id", "unit", "headroom", "false_stop")


_LOOK_SCHEMA = pl.Schema(
    {
        "still": pl.Int64(),
        "cap_id": pl.Int64(),
        "scope": pl.Int64(),
        "admission": pl.String(),
        "unit": pl.String(),
        "limit": pl.Int64(),
        "spent": pl.Int64(),
        "held": pl.Int64(),
        "held_floor": pl.Int64(),
    }
)


def _seen() -> dict[str, pl.Expr]:
    """`admission.room_in` and `taken_by` as expressions over a call joined with one of its looks."""
    unit, admission, spent = pl.col("unit"), pl.col("admission"), pl.col("spent")
    hold = pl.when(unit == "usd").then("hold").when(unit == "tokens").then("hold_tokens").otherwise(1)
    floor = pl.when(unit == "usd").then("floor").when(unit == "tokens").then("floor_tokens").otherwise(0)
    took = (
        pl.when(unit == "usd")
        .then("counted")
        .when(unit == "tokens")
        .then("counted_tokens")
        .otherwise("requests")
    )
    left, reserves = pl.col("limit") - spent, admission == "reserve"
    free = left - pl.when(reserves).then("held").when(admission == "floor").then("held_floor").otherwise(0)
    floored = pl.when(admission == "floor").then(floor).otherwise(0)
    out = pl.when(reserves).then((left <= 0) | (hold > left)).otherwise(free - floored <= 0)
    return {
        "final": out,
        "busy": reserves & ~out & ((free <= 0) | (hold > free)),
        "headroom": free - pl.when(reserves).then(hold).otherwise(floored),
        "false_stop": ~pl.col("refused_before")
        & pl.when(reserves).then((free > 0) & (pl.min_horizontal(took, hold) <= free)).otherwise(~out),
    }


def refusal_of(row: int, call: Call, claims: Sequence[Claim], balances: Sequence[Balance]) -> Refusal:
    """What the kernel says of a call that it did not grant."""
    decision = verdict(claims, balances, granted=False)
    assert isinstance(decision, Refused)
    counted = {"usd": call.counted, "tokens": call.counted_tokens, "requests": call.requests}
    would_fit = not call.refused_before and all(
        passes(_asking(claim, min(claim.hold, counted[claim.key.unit]), claim.floor), balance)
        for claim, balance in zip(claims, balances, strict=True)
    )
    named = decision.named
    return Refusal(row, decision.code, named.cap.id, named.unit, named.headroom, would_fit)


def refusals_frame(refusals: Sequence[Refusal]) -> pl.DataFrame:
    """Refusals with `REFUSED_SCHEMA`, in their order."""
    return pl.DataFrame(refusals, schema=REFUSED_SCHEMA, orient="row")


def _asking(claim: Claim, hold: int, floor: int) -> Claim:
    return Claim(
        claim.key, hold, floor, claim.caps, claim.reserve_limit, claim.floor_limit, claim.after_limit
    )
