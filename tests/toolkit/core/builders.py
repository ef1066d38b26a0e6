"""The smallest facts, caps and price rows that a kernel test needs; every default can be overridden."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from typing import Any

from toolkit.core.admission import claims_for, verdict
from toolkit.core.caps import Cap, CapBook
from toolkit.core.counters import Counted, Counters
from toolkit.core.decisions import Admitted, Balance, CallFacts, Claim, Refused
from toolkit.core.money import NANO_PER_USD, parse_rate
from toolkit.core.pricing import PriceList, PriceRow
from toolkit.core.scopes import Attribution

AT = datetime(2026, 12, 1, 9, 30, tzinfo=UTC)
USD = NANO_PER_USD
CENT = USD // 100


def caller(customer: str | None = "ann", **other: Any) -> Attribution:
    """A call of key `k1` in the organization `default`."""
    return Attribution(
        **{"organization": "default", "key_id": "k1", "provider": "openai", "model": "m"} | other,
        customer=customer,
    )


def call(
    who: Attribution | None = None,
    *,
    hold: int | None = 0,
    floor: int | None = 0,
    hold_tokens: int = 0,
    floor_tokens: int = 0,
    at: datetime = AT,
) -> CallFacts:
    """The facts of a call, with its bounds in nano-USD and tokens."""
    return CallFacts(
        who=who or caller(),
        at=at,
        hold_nano_usd=hold,
        floor_nano_usd=floor,
        hold_tokens=hold_tokens,
        floor_tokens=floor_tokens,
    )


def cap(cap_id: int = 1, limit: int | None = USD, *, armed: bool = True, **other: Any) -> Cap:
    """An armed monthly dollar cap on each customer."""
    defaults: dict[str, Any] = {"scope": "customer", "subject": "*", "window": "month"}
    return Cap(id=cap_id, limit_nano_usd=limit, hard_stop=armed, **defaults | other)


def book(*caps: Cap) -> CapBook:
    """A book of caps."""
    return CapBook(caps)


def decide(caps: Iterable[Cap], facts: CallFacts, *balances: Balance) -> Admitted | Refused:
    """What the kernel says of a call whose counters, in the order of the claims, stand at `balances`."""
    counters = Counters()
    claims = claims_for(CapBook(tuple(caps)), facts)
    for claim, balance in zip(claims, balances, strict=True):
        bring_to(counters, claim, balance)
    grant = counters.reserve("call", facts, claims)
    return verdict(claims, grant.balances, grant.granted)


def bring_to(counters: Counters, claim: Claim, balance: Balance) -> None:
    """Bring a counter to a balance: what is held is held by another running call."""
    counters.adjust(claim.key, balance.spent)
    other = Claim(claim.key, balance.held, balance.held_floor, (), None, None, None)
    counters.reserve(f"other {claim.key}", call(), [other])


def ask(counters: Counters, caps: Sequence[Cap], facts: CallFacts, call_id: str) -> Admitted | Refused:
    """One call against live counters."""
    claims = claims_for(CapBook(tuple(caps)), facts)
    grant = counters.reserve(call_id, facts, claims)
    return verdict(claims, grant.balances, grant.granted)


def spend(counters: Counters, call_id: str, nano_usd: int, *, tokens: int = 0) -> int | None:
    """Settle a call at what it cost."""
    return counters.settle(call_id, Counted(nano_usd, tokens, 1))


def row(model: str = "m", rates: dict[str, str] | None = None, **other: Any) -> PriceRow:
    """A standard row of the provider `openai`; rates and fees as decimal text, dollars a million and a unit."""
    texts = {"input": "1", "output": "4"} if rates is None else rates
    fees = {name: parse_rate(text, per=1) for name, text in other.pop("fees", {}).items()}
    defaults: dict[str, Any] = {
        "provider": "openai",
        "max_input_tokens": 100_000,
        "max_output_tokens": 16_000,
    }
    return PriceRow(
        model=model,
        rates={meter: parse_rate(text) for meter, text in texts.items()},
        fees=fees,
        **defaults | other,
    )


def prices(*rows: PriceRow, dated: date = date(2026, 11, 30)) -> PriceList:
    """A list of rows, without a file."""
    return PriceList(f"{dated}+test", dated, rows)
