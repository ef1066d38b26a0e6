"""The decision, shared by the gateway and the what-if: claims out of caps, a verdict out of balances.

Everything that can be judged without a store is judged here. A store only answers whether all claims passed,
by `decisions.passes`, and what the balances were; both sides run these same two functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date
from fractions import Fraction
from functools import lru_cache

from toolkit.core.caps import Admission, Cap, CapBook, Match, Unit, replaced_defaults
from toolkit.core.decisions import Admitted, Balance, BalanceKey, CallFacts, CapLook, Claim, Refused, Room
from toolkit.core.scopes import SCOPES, Attribution, Scope
from toolkit.core.windows import Window, period_key

_SPECIFICITY = {scope: place for place, scope in enumerate(SCOPES)}


def claims_for(book: CapBook, facts: CallFacts) -> tuple[Claim, ...]:
    """One claim per counter that stands over this call; a watching cap counts and sets no limit."""
    return tuple(
        [
            Claim(key, facts.hold(key.unit), facts.floor(key.unit), caps, *least)
            for key, caps, least in _counters_over(book, facts.who, facts.at.date())
        ]
    )


def refusing_unpriced(claims: Iterable[Claim]) -> Cap | None:
    """The armed dollar cap that refuses a call without a price, before any counter is asked; None when none does."""
    strict = (
        cap
        for claim in claims
        if claim.key.unit == "usd"
        for cap, binds in claim.caps
        if binds and cap.unpriced == "refuse"
    )
    return next(strict, None)


def verdict(claims: Sequence[Claim], balances: Sequence[Balance], granted: bool) -> Admitted | Refused:  # noqa: FBT001
    """What the balances before the call mean for it.

    The named cap is the one with the least headroom after this hold; ties go to the more specific scope,
    then the lower id; caps without a dollar axis come after all dollar caps, by share left (contract §7).
    """
    looks = tuple(
        [
            _look(cap, binds, claim, balance)
            for claim, balance in zip(claims, balances, strict=True)
            for cap, binds in claim.caps
        ]
    )
    binding = [look for look in looks if look.binds]
    if granted:
        customer = [look for look in binding if look.unit == "usd" and look.cap.scope == "customer"]
        return Admitted(looks=looks, named=_tightest(binding), customer=_tightest(customer))
    final = [look for look in binding if look.room == "final"]
    failing = final or [look for look in binding if look.room == "busy"]
    return Refused(looks=looks, named=_deciding(binding, failing), busy=not final)


def room_in(cap: Cap, limit: int, balance: Balance, hold: int, floor: int) -> Room:
    """Whether one cap alone admits, refuses for good, or is only full of running holds."""
    spent, held, held_floor = balance
    if cap.admission == "after":
        return "fits" if spent < limit else "final"
    if cap.admission == "floor":
        return "fits" if spent + held_floor + floor < limit else "final"
    if spent >= limit or spent + hold > limit:
        return "final"
    return "fits" if spent + held < limit and spent + held + hold <= limit else "busy"


def taken_by(cap: Cap, balance: Balance) -> int:
    """What a cap's own admission mode counts as taken: spent, plus holds or floors of running calls (§9)."""
    if cap.admission == "reserve":
        return balance.spent + balance.held
    return balance.spent + balance.held_floor if cap.admission == "floor" else balance.spent


_Backing = tuple[tuple[Cap, bool], ...]
"""The caps behind one counter, each with whether it binds."""
_Least = tuple[int | None, int | None, int | None]
"""The least limit of each admission rule that binds: reserve, floor, after."""


@lru_cache(maxsize=2048)
def _counters_over(
    book: CapBook, who: Attribution, day: date
) -> tuple[tuple[BalanceKey, _Backing, _Least], ...]:
    """The counters over a caller's calls of one UTC day. Most callers call often, so the answer is kept."""
    counters: list[tuple[BalanceKey, _Backing, _Least]] = []
    for (scope, match, window, unit), caps, least in _caps_by_counter(tuple(book.matching(who))):
        subject = who.subject(scope)
        assert subject is not None
        key = BalanceKey(who.organization, scope, subject, match, period_key(window, day), unit)
        counters.append((key, caps, least))
    return tuple(counters)


_Clock = tuple[Scope, Match, Window, Unit]
"""A counter's name but for the subject and the period."""


@lru_cache(maxsize=4096)
def _caps_by_counter(found: tuple[tuple[Cap, Match], ...]) -> tuple[tuple[_Clock, _Backing, _Least], ...]:
    """What the caps behind each counter say, whoever calls. The same few caps stand over most callers."""
    replaced = replaced_defaults(found)
    behind: dict[_Clock, list[tuple[Cap, bool]]] = {}
    for cap, match in found:
        backing = (cap, cap.hard_stop and cap.id not in replaced)
        for unit, _ in cap.limits:
            behind.setdefault((cap.scope, match, cap.window, unit), []).append(backing)
    return tuple((counter, tuple(caps), _least(counter[-1], caps)) for counter, caps in behind.items())


def _least(unit: Unit, caps: list[tuple[Cap, bool]]) -> _Least:
    least: dict[Admission, int] = {}
    for cap, binds in caps:
        if binds:
            limit = cap.limit(unit)
            assert limit is not None
            least[cap.admission] = min(limit, least.get(cap.admission, limit))
    return least.get("reserve"), least.get("floor"), least.get("after")


def _look(cap: Cap, binds: bool, claim: Claim, balance: Balance) -> CapLook:  # noqa: FBT001
    unit, hold, floor = claim.key.unit, claim.hold, claim.floor
    limit = cap.limit(unit)
    assert limit is not None
    own = hold if cap.admission == "reserve" else floor if cap.admission == "floor" else 0
    headroom = limit - taken_by(cap, balance) - own
    return CapLook(
        cap, binds, unit, limit, balance, hold, headroom, room_in(cap, limit, balance, hold, floor)
    )


def _deciding(binding: list[CapLook], failing: list[CapLook]) -> CapLook:
    """The tightest failing cap, each ranked by its dollars where it has some; on an axis that fails."""
    by_dollars = {look.cap.id: look for look in binding if look.unit == "usd"}
    tightest = _tightest([by_dollars.get(look.cap.id, look) for look in failing])
    assert tightest is not None, "a store refused claims that all pass"
    named = _tightest([look for look in failing if look.cap.id == tightest.cap.id])
    assert named is not None
    return named


def _tightest(looks: list[CapLook]) -> CapLook | None:
    dollars = [look for look in looks if look.unit == "usd"]
    if dollars:
        return min(dollars, key=_by_headroom)
    return min(looks, key=_by_share, default=None)


def _by_headroom(look: CapLook) -> tuple[int, int, int]:
    return look.headroom, -_SPECIFICITY[look.cap.scope], look.cap.id


def _by_share(look: CapLook) -> tuple[Fraction, int, int]:
    return Fraction(look.headroom, max(look.limit, 1)), -_SPECIFICITY[look.cap.scope], look.cap.id
