"""The kernel alone: what a decision, a price and a linked receipt cost, without any server."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from bench.figures import Figure
from bench.machine import ROOT, pinned
from bench.provider import REQUEST, answer
from bench.servers import CAPS
from bench.suite import Setting
from gateway.dialects import openai_chat
from gateway.stores.linking import linked
from toolkit.core.admission import claims_for, verdict
from toolkit.core.caps import Cap, CapBook
from toolkit.core.chain import GENESIS
from toolkit.core.counters import Counted, Counters
from toolkit.core.decisions import CallFacts
from toolkit.core.estimate import estimate
from toolkit.core.pricefile import load_price_folder
from toolkit.core.pricing import list_at, price
from toolkit.core.receipts import Receipt, usage_columns
from toolkit.core.scopes import Attribution
from toolkit.core.usage import Usage

_CALLS = 2_000
_REPEATS = 15


def benchmark(setting: Setting) -> Sequence[Figure]:
    """The steps of one call under four armed caps."""
    with pinned(setting.cores.server):
        return [Figure(what=what, figure=f"{_microseconds(step):.1f} µs") for what, step in _steps().items()]


def _steps() -> dict[str, Callable[[], object]]:
    at = datetime.now(UTC)
    prices = list_at(load_price_folder(ROOT / "data" / "prices"), at)
    assert prices is not None
    call, served = openai_chat.parse(REQUEST.encode()), openai_chat.read_answer(answer().encode())
    usage = served.usage
    assert isinstance(usage, Usage)
    bounds = estimate(prices, "openai", call.model, call.bounds, at, default_output=4096)
    facts = CallFacts(
        who=Attribution(
            organization="default", key_id="key_1", customer="acme", provider="openai", model=call.model
        ),
        at=at,
        hold_nano_usd=bounds.hold_nano_usd,
        floor_nano_usd=bounds.floor_nano_usd,
        hold_tokens=bounds.hold_tokens,
    )
    book = CapBook(
        tuple(_armed(number, scope, window) for number, (scope, window) in enumerate(CAPS, start=1))
    )
    claims = claims_for(book, facts)
    counters = Counters()
    balances = counters.reserve("before", facts, claims).balances
    receipt = Receipt(
        receipt_id="rc_1",
        operation_id="op_1",
        admitted_at=at,
        settled_at=at,
        organization="default",
        customer="acme",
        dialect="openai",
        route="/v1/chat/completions",
        status="served",
        request_bytes=len(REQUEST),
        node="n1",
        **usage_columns(usage),
    )

    def reserve_and_settle() -> None:
        counters.reserve("call", facts, claims)
        counters.settle("call", Counted(1, 1, 1))

    def decide() -> None:
        made = claims_for(book, facts)
        grant = counters.reserve("call", facts, made)
        verdict(made, grant.balances, grant.granted)
        counters.settle("call", Counted(1, 1, 1))

    return {
        "a request's body read (2 kB)": lambda: openai_chat.parse(REQUEST.encode()),
        "hold and floor": lambda: estimate(
            prices, "openai", call.model, call.bounds, at, default_output=4096
        ),
        "claims of four caps": lambda: claims_for(book, facts),
        "four counters, reserved and settled": reserve_and_settle,
        "verdict on four caps": lambda: verdict(claims, balances, granted=True),
        "the whole decision: claims, counters, verdict": decide,
        "price of an answer": lambda: price(prices, "openai", call.model, usage, at),
        "a receipt linked to its chain": lambda: linked(receipt, None, 1, GENESIS),
    }


def _armed(number: int, scope: str, window: str) -> Cap:
    subject = "default" if scope == "organization" else "*"
    return Cap(
        id=number,
        scope=scope,  # type: ignore[arg-type]
        subject=subject,
        window=window,  # type: ignore[arg-type]
        limit_nano_usd=10**15,
        hard_stop=True,
    )


def _microseconds(step: Callable[[], object]) -> float:
    return statistics.median(_once(step) for _ in range(_REPEATS))


def _once(step: Callable[[], object]) -> float:
    started = time.thread_time()
    for _ in range(_CALLS):
        step()
    return (time.thread_time() - started) / _CALLS * 1e6
