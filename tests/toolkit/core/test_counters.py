"""Counters: all claims of a call or none, each settled once, one sequence for both."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.toolkit.core.builders import CENT, USD, ask, book, call, caller, cap, spend
from toolkit.core.admission import claims_for
from toolkit.core.caps import Match
from toolkit.core.counters import NOTHING, Counted, Counters, Grant
from toolkit.core.decisions import Admitted, Balance, BalanceKey, Claim, Refused
from toolkit.core.windows import parse_instant

ANN = BalanceKey("default", "customer", "ann", Match(), "2026-12", "usd")
KEY = ANN._replace(scope="key", subject="k1")
FACTS = call()


def claim(key: BalanceKey = ANN, hold: int = 10, floor: int = 1, limit: int | None = 100) -> Claim:
    return Claim(key, hold, floor, (), limit, None, None)


def test_a_counter_that_was_never_written_reads_zero() -> None:
    counters = Counters()
    assert counters.balance(ANN) == Balance(0, 0, 0)
    assert list(counters.keys()) == []


def test_a_reservation_holds_and_floors_and_a_settlement_spends() -> None:
    counters = Counters()
    assert counters.reserve("a", FACTS, [claim()]) == Grant(True, 1, (Balance(0, 0, 0),))
    assert counters.balance(ANN) == Balance(0, 10, 1)
    assert counters.settle("a", Counted(7, 0, 1)) == 2
    assert counters.balance(ANN) == Balance(7, 0, 0)


def test_d12_a_cost_above_the_hold_is_taken_in_full() -> None:
    counters = Counters()
    counters.reserve("a", FACTS, [claim(hold=10)])
    spend(counters, "a", 1_000)
    assert counters.balance(ANN) == Balance(1_000, 0, 0)


def test_each_axis_takes_its_own_amount() -> None:
    counters = Counters()
    keys = [ANN._replace(unit=unit) for unit in ("usd", "tokens", "requests")]
    counters.reserve("a", FACTS, [claim(key) for key in keys])
    counters.settle("a", Counted(nano_usd=7, tokens=5, requests=1))
    assert [counters.balance(key).spent for key in keys] == [7, 5, 1]


def test_all_claims_are_taken_or_none() -> None:
    counters = Counters()
    grant = counters.reserve("a", FACTS, [claim(hold=10), claim(KEY, hold=101)])
    assert grant == Grant(False, 1, (Balance(0, 0, 0), Balance(0, 0, 0)))
    assert list(counters.keys()) == []
    assert list(counters.running()) == []
    assert counters.settle("a", Counted(5, 5, 1)) is None


def test_r085_a_refusal_takes_a_step_and_no_money() -> None:
    counters = Counters()
    counters.adjust(ANN, 100)
    for step in range(1, 101):
        assert counters.reserve(f"r{step}", FACTS, [claim()]) == Grant(False, step, (Balance(100, 0, 0),))
    assert counters.balance(ANN) == Balance(100, 0, 0)


@pytest.mark.parametrize("second", [Counted(7, 7, 1), Counted(0, 0, 0), Counted(99, 99, 1)])
def test_b20_a_settlement_counts_once_whatever_it_says_the_second_time(second: Counted) -> None:
    counters = Counters()
    counters.reserve("a", FACTS, [claim()])
    counters.settle("a", Counted(7, 0, 1))
    assert counters.settle("a", second) is None
    assert counters.release("a") is None
    assert counters.balance(ANN) == Balance(7, 0, 0)
    assert counters.draw() == 3  # nothing stepped in between


def test_b20_a_repeated_reservation_of_a_running_call_takes_nothing_more() -> None:
    counters = Counters()
    first = counters.reserve("a", FACTS, [claim()])
    assert counters.reserve("a", FACTS, [claim()]) is first
    assert counters.balance(ANN) == Balance(0, 10, 1)
    counters.release("a")
    assert counters.balance(ANN) == Balance(0, 0, 0)


def test_a_call_that_was_refused_may_ask_again() -> None:
    counters = Counters()
    counters.reserve("other", FACTS, [claim(hold=95)])
    assert not counters.reserve("a", FACTS, [claim()]).granted
    counters.release("other")
    assert counters.reserve("a", FACTS, [claim()]).granted


def test_a_settlement_that_was_never_reserved_counts_nothing() -> None:
    counters = Counters()
    assert counters.settle("unknown", Counted(5, 5, 1)) is None
    assert list(counters.keys()) == []


def test_r050_a_release_gives_the_hold_and_the_floor_back() -> None:
    counters = Counters()
    counters.reserve("a", FACTS, [claim()])
    assert counters.release("a") == 2
    assert counters.balance(ANN) == Balance(0, 0, 0)
    assert NOTHING == (0, 0, 0)


def test_settlements_in_any_order_give_the_same_balance() -> None:
    for order in (["a", "b", "c"], ["c", "a", "b"], ["b", "c", "a"]):
        counters = Counters()
        for call_id in "abc":
            counters.reserve(call_id, FACTS, [claim()])
        for call_id in order:
            spend(counters, call_id, ord(call_id))
        assert counters.balance(ANN) == Balance(sum(map(ord, "abc")), 0, 0)


def test_one_sequence_numbers_admissions_settlements_and_other_events() -> None:
    counters = Counters(next_seq=41)
    assert counters.reserve("a", FACTS, []).seq == 41
    assert counters.draw() == 42
    assert counters.settle("a", NOTHING) == 43
    assert counters.reserve("b", FACTS, []).seq == 44


def test_a_call_under_no_cap_runs_and_is_settled() -> None:
    counters = Counters()
    assert counters.reserve("a", FACTS, ()) == Grant(True, 1, ())
    assert list(counters.running()) == [("a", FACTS)]
    assert counters.settle("a", Counted(5, 5, 1)) == 2
    assert list(counters.running()) == []


def test_running_calls_can_be_settled_while_they_are_listed() -> None:
    counters = Counters()
    for call_id in "abc":
        counters.reserve(call_id, FACTS, [claim()])
    for call_id, _ in counters.running():
        counters.release(call_id)
    assert counters.balance(ANN) == Balance(0, 0, 0)


def test_an_adjustment_adds_to_what_was_taken() -> None:
    counters = Counters()
    counters.adjust(ANN, 50)
    counters.adjust(ANN, -20)  # a correction's difference
    assert counters.balance(ANN) == Balance(30, 0, 0)


def test_a_cap_made_while_a_call_runs_counts_its_hold_and_its_cost() -> None:
    counters = Counters()
    counters.reserve("a", FACTS, [claim()])
    counters.hold_also("a", [claim(KEY, hold=10), claim(ANN, hold=999), claim(KEY, hold=999)])
    assert counters.balance(KEY) == Balance(0, 10, 1)
    assert counters.balance(ANN) == Balance(0, 10, 1)  # it held there already
    spend(counters, "a", 7)
    assert counters.balance(KEY) == counters.balance(ANN) == Balance(7, 0, 0)


def test_a_cap_made_after_a_call_has_settled_holds_nothing_for_it() -> None:
    counters = Counters()
    counters.reserve("a", FACTS, [claim()])
    counters.release("a")
    counters.hold_also("a", [claim(KEY)])
    assert counters.balance(KEY) == Balance(0, 0, 0)


def test_r042_counters_of_closed_periods_are_forgotten_and_live_ones_never() -> None:
    counters = Counters()
    keys = {
        period: ANN._replace(period=period) for period in ("2026-11", "2026-12", "2026-W49", "2026", "all")
    }
    for key in keys.values():
        counters.adjust(key, 5)
    december = parse_instant("2026-12-01")
    assert counters.forget_closed(december - timedelta(microseconds=1)) == 0
    assert counters.forget_closed(december) == 1  # November ended at this very instant
    assert counters.balance(keys["2026-11"]) == Balance(0, 0, 0)
    assert counters.forget_closed(parse_instant("2030-01-01")) == 3
    assert list(counters.keys()) == [keys["all"]]


def test_r042_a_counter_that_a_running_call_holds_on_is_kept_until_it_settles() -> None:
    counters = Counters()
    counters.reserve("a", FACTS, [claim(hold=0, floor=0)])
    later = parse_instant("2030-01-01")
    assert counters.forget_closed(later) == 0
    spend(counters, "a", 7)
    assert counters.balance(ANN) == Balance(7, 0, 0)
    assert counters.forget_closed(later) == 1


def test_r048_what_floor_admits_can_pass_the_cap_by_no_more_than_the_calls_in_flight() -> None:
    counters, caps = Counters(), [cap(limit=USD, admission="floor")]
    facts = call(hold=50 * CENT, floor=CENT)
    running = [
        name for name in map(str, range(100)) if isinstance(ask(counters, caps, facts, name), Admitted)
    ]
    assert len(running) == 99  # 98 floors and this one's reach 99 cents; the hundredth would reach the dollar
    for name in running:
        spend(counters, name, 30 * CENT)
    (key,) = counters.keys()
    assert counters.balance(key).spent - USD <= 99 * 30 * CENT
    assert isinstance(ask(counters, caps, facts, "next"), Refused)


def test_caps_of_different_modes_share_one_counter() -> None:
    counters = Counters()
    ask(counters, [cap(1, admission="reserve")], call(hold=9, floor=2), "a")
    (of_floor,) = claims_for(book(cap(2, admission="floor")), call())
    assert counters.balance(of_floor.key) == Balance(0, 9, 2)


def test_b88_on_a_shared_key_every_customer_has_its_own_counter() -> None:
    counters, caps = Counters(), [cap()]
    for number, customer in enumerate(("ann", "bob", "ann")):
        ask(counters, caps, call(caller(customer), hold=10 * CENT), str(number))
        spend(counters, str(number), 10 * CENT)
    spent = {key.subject: counters.balance(key).spent for key in list(counters.keys())}
    assert spent == {
        "ann": 20 * CENT,
        "bob": 10 * CENT,
    }
