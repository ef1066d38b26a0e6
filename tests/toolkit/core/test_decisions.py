"""The words of a decision: sizes of a call, and the predicate that every store repeats."""

from __future__ import annotations

import pytest

from tests.toolkit.core.builders import call, cap
from toolkit.core.caps import Match, Unit
from toolkit.core.decisions import Balance, BalanceKey, CapLook, Claim, Refused, passes

KEY = BalanceKey("default", "customer", "ann", Match(), "2026-12", "usd")


def claim(hold: int, floor: int = 0, /, **limits: int) -> Claim:
    return Claim(KEY, hold, floor, (), *(limits.get(mode) for mode in ("reserve", "floor", "after")))


@pytest.mark.parametrize(
    ("unit", "hold", "floor"),
    [("usd", 500, 20), ("tokens", 40, 3), ("requests", 1, 0)],
)
def test_a_call_has_a_hold_and_a_floor_on_every_axis(unit: Unit, hold: int, floor: int) -> None:
    facts = call(hold=500, floor=20, hold_tokens=40, floor_tokens=3)
    assert (facts.hold(unit), facts.floor(unit)) == (hold, floor)


def test_r120_a_call_without_a_price_holds_no_dollars_and_still_tokens_and_a_request() -> None:
    facts = call(hold=None, floor=None, hold_tokens=40)
    assert [facts.hold(unit) for unit in ("usd", "tokens", "requests")] == [0, 40, 1]
    assert facts.floor("usd") == 0


@pytest.mark.parametrize(
    ("spent", "held", "hold", "fits"),
    [
        (60, 20, 19, True),
        (60, 20, 20, True),  # D05: an exact fit is admitted
        (60, 20, 21, False),
        (99, 0, 0, True),
        (100, 0, 0, False),  # at the limit not even a free call passes (B23)
        (0, 100, 0, False),
        (0, 99, 1, True),
        (101, -1, 0, False),
    ],
)
def test_d05_reserve_admits_below_the_limit_and_up_to_an_exact_fit(
    spent: int, held: int, hold: int, fits: bool
) -> None:
    assert passes(claim(hold, reserve=100), Balance(spent, held, 10**6)) is fits


@pytest.mark.parametrize(
    ("spent", "held_floor", "floor", "fits"),
    [
        (979, 10, 10, True),
        (980, 10, 10, False),  # R043: 980 + 10 + 10 reaches 1,000
        (990, 0, 9, True),
        (990, 0, 10, False),  # R043: cap 1,000, spent 990, floor 10
        (990, 0, 11, False),
        (999, 0, 0, True),
        (1_000, 0, 0, False),
    ],
)
def test_r043_floor_refuses_when_spent_and_floors_reach_the_limit(
    spent: int, held_floor: int, floor: int, fits: bool
) -> None:
    assert passes(claim(10**6, floor, floor=1_000), Balance(spent, 10**6, held_floor)) is fits


@pytest.mark.parametrize(("spent", "fits"), [(99, True), (100, False), (101, False)])
def test_r063_after_refuses_once_spent_reaches_the_limit(spent: int, fits: bool) -> None:
    assert passes(claim(10**6, 10**6, after=100), Balance(spent, 10**6, 10**6)) is fits


def test_a_counter_of_watching_caps_always_passes() -> None:
    assert passes(claim(10**9, 10**9), Balance(10**9, 10**9, 10**9))


@pytest.mark.parametrize("mode", ["reserve", "floor", "after"])
def test_every_rule_of_a_counter_must_pass(mode: str) -> None:
    wide = {"reserve": 10**9, "floor": 10**9, "after": 10**9}
    assert passes(claim(1, 1, **wide), Balance(5, 0, 0))
    assert not passes(claim(1, 1, **wide | {mode: 5}), Balance(5, 0, 0))


@pytest.mark.parametrize(("busy", "code"), [(True, "budget_busy"), (False, "budget_exceeded")])
def test_d27_a_refusal_has_a_stable_code(busy: bool, code: str) -> None:
    look = CapLook(cap(), True, "usd", 1, Balance(0, 0, 0), 0, 0, "busy" if busy else "final")
    assert Refused(looks=(look,), named=look, busy=busy).code == code
