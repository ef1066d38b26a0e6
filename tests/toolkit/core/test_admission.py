"""The decision: claims out of caps, a verdict out of balances, and the order in which caps are named."""

from __future__ import annotations

from typing import Any

import pytest

from tests.toolkit.core.builders import CENT, USD, ask, book, call, caller, cap, decide, spend
from toolkit.core.admission import claims_for, room_in, taken_by, verdict
from toolkit.core.caps import Cap, Match
from toolkit.core.counters import Counters
from toolkit.core.decisions import Admitted, Balance, CallFacts, Refused
from toolkit.core.scopes import SCOPES, Attribution
from toolkit.core.windows import parse_instant

ZERO = Balance(0, 0, 0)


def spent(amount: int, held: int = 0, held_floor: int = 0) -> Balance:
    return Balance(amount, held, held_floor)


def refused(caps: list[Cap], facts: CallFacts, *balances: Balance) -> Refused:
    decision = decide(caps, facts, *balances)
    assert isinstance(decision, Refused)
    return decision


def named(caps: list[Cap], facts: CallFacts, *balances: Balance) -> int | None:
    """The id of the cap that an admission names."""
    decision = decide(caps, facts, *balances)
    assert isinstance(decision, Admitted)
    return None if decision.named is None else decision.named.cap.id


# --- the worked examples -----------------------------------------------------------------------


@pytest.mark.parametrize("running", [True, False])
def test_r055_twenty_calls_of_five_cents_fit_into_a_dollar_exactly(running: bool) -> None:
    counters, admitted = Counters(), 0
    for number in range(25):
        decision = ask(counters, [cap(limit=USD)], call(hold=5 * CENT), f"r{number}")
        if isinstance(decision, Admitted):
            admitted += 1
            if not running:
                spend(counters, f"r{number}", 5 * CENT)
        else:
            # 20 × 5 = 100 cents: taken by holds that may come back, or spent for good
            assert decision.code == ("budget_busy" if running else "budget_exceeded")
    assert admitted == 20


def test_r072_the_worked_example_to_the_nano() -> None:
    caps = [cap(limit=2_000_000_000_000, scope="organization", subject="default", admission="floor")]
    facts = call(hold=10**9, floor=102_400)  # 8,192 bytes: 2,048 tokens × 50 nano
    counters = Counters()
    (claim,) = claims_for(book(*caps), facts)
    counters.adjust(claim.key, 1_999_400_000_000)

    assert isinstance(ask(counters, caps, facts, "first"), Admitted)
    assert taken_by(caps[0], counters.balance(claim.key)) == 1_999_400_102_400
    spend(counters, "first", 45_000_000)
    assert counters.balance(claim.key) == spent(1_999_445_000_000)

    # R073: the request that crosses is admitted, the next one is refused
    assert isinstance(ask(counters, caps, facts, "crossing"), Admitted)
    spend(counters, "crossing", 600_000_000)
    assert counters.balance(claim.key) == spent(2_000_045_000_000)
    last = ask(counters, caps, facts, "next")
    assert isinstance(last, Refused)
    assert not last.busy


def test_m006_the_call_that_no_longer_fits_is_the_72nd() -> None:
    counters, caps = Counters(), [cap(limit=20 * USD, window="day")]
    for number in range(1, 72):
        assert isinstance(ask(counters, caps, call(hold=278_853_000), f"r{number}"), Admitted)
        spend(counters, f"r{number}", 277_797_000)
    # 71 × 0.277797 = 19.723587; + 0.278853 = 20.002440 > 20
    last = ask(counters, caps, call(hold=278_853_000), "r72")
    assert isinstance(last, Refused)
    assert last.named.balance.spent == 19_723_587_000


def test_m003_forty_racers_of_nine_cents_share_a_dollar_as_eleven() -> None:
    counters, caps = Counters(), [cap(limit=1_000_000)]
    admitted = [
        isinstance(ask(counters, caps, call(hold=90_000), str(number)), Admitted) for number in range(40)
    ]
    assert sum(admitted) == 11  # 11 × 90,000 = 990,000


def test_b05_the_first_burst_of_an_unknown_customer_is_held_too() -> None:
    counters, caps = Counters(), [cap(limit=2 * CENT)]
    burst = [isinstance(ask(counters, caps, call(hold=CENT), str(number)), Admitted) for number in range(8)]
    assert sum(burst) == 2


# --- which caps stand over a call --------------------------------------------------------------


def test_r024_an_armed_override_lets_a_customer_past_the_default() -> None:
    caps = [cap(1, USD), cap(2, 5 * USD, subject="ann")]
    assert isinstance(decide(caps, call(hold=USD), spent(4 * USD)), Admitted)
    over = refused(caps, call(hold=USD + 1), spent(4 * USD))
    assert over.named.cap.id == 2
    assert [(look.cap.id, look.binds) for look in over.looks] == [(2, True), (1, False)]
    assert refused(caps, call(caller("bob"), hold=USD + 1), ZERO).named.cap.id == 1


def test_r025_a_disarmed_override_counts_and_the_default_still_binds() -> None:
    caps = [cap(1, USD), cap(2, 5 * USD, armed=False, subject="ann")]
    decision = refused(caps, call(hold=1), spent(USD))
    assert decision.named.cap.id == 1
    assert [look.balance.spent for look in decision.looks] == [USD, USD]


def test_r026_a_default_of_another_window_binds_beside_an_override() -> None:
    caps = [cap(1, USD, window="day"), cap(2, 5 * USD, subject="ann")]
    assert refused(caps, call(hold=1), spent(0), spent(USD)).named.cap.id == 1


def test_r027_of_two_default_rules_the_tighter_decides() -> None:
    caps = [cap(1, USD, window="day"), cap(2, 20 * USD)]
    assert refused(caps, call(hold=2 * USD), ZERO, ZERO).named.cap.id == 1
    assert named(caps, call(hold=CENT), ZERO, spent(20 * USD - CENT - 1)) == 2


def test_r028_two_clocks_keep_separate_counters() -> None:
    claims = claims_for(book(cap(1, window="day"), cap(2, window="week"), cap(3)), call())
    assert [claim.key.period for claim in claims] == ["2026-12-01", "2026-W49", "2026-12"]


def test_r029_a_default_and_an_override_of_one_window_share_the_customers_counter() -> None:
    claims = claims_for(book(cap(1, USD), cap(2, 5 * USD, subject="ann")), call())
    assert [[one.id for one, _ in claim.caps] for claim in claims] == [[2, 1]]


def test_r029_raising_renaming_or_recreating_a_cap_keeps_what_was_spent() -> None:
    counters = Counters()
    ask(counters, [cap(1, USD)], call(hold=60 * CENT), "a")
    spend(counters, "a", 60 * CENT)
    raised = ask(counters, [cap(9, 2 * USD, name="other")], call(), "b")
    assert isinstance(raised, Admitted)
    assert raised.named is not None
    assert raised.named.headroom == 140 * CENT


def test_r022_customers_do_not_share_a_default_rule() -> None:
    counters, caps = Counters(), [cap(limit=USD)]
    ask(counters, caps, call(caller("ann"), hold=USD), "a")
    assert isinstance(ask(counters, caps, call(caller("ann"), hold=1), "b"), Refused)
    assert isinstance(ask(counters, caps, call(caller("bob"), hold=USD), "c"), Admitted)


def test_b29_a_new_period_is_a_counter_that_was_never_written() -> None:
    counters, caps = Counters(), [cap(limit=USD, window="day")]
    late, early = parse_instant("2026-12-01T23:59:59.999999Z"), parse_instant("2026-12-02T00:00:00Z")
    ask(counters, caps, call(hold=USD, at=late), "a")
    spend(counters, "a", USD)
    assert isinstance(ask(counters, caps, call(hold=1, at=late), "b"), Refused)
    assert isinstance(ask(counters, caps, call(hold=USD, at=early), "c"), Admitted)


def test_r031_a_watching_cap_counts_and_refuses_nothing() -> None:
    watching = [cap(limit=USD, armed=False)]
    decision = decide(watching, call(hold=USD), spent(2 * USD))  # at 200 %
    assert isinstance(decision, Admitted)
    assert (decision.named, decision.customer) == (None, None)
    assert [(look.binds, look.room) for look in decision.looks] == [(False, "final")]  # what arming would do
    assert isinstance(decide([cap(limit=USD)], call(hold=USD), spent(2 * USD)), Refused)


def test_a_gateway_without_caps_asks_nothing() -> None:
    assert claims_for(book(), call()) == ()
    assert decide([], call(hold=10**15)) == Admitted(looks=(), named=None, customer=None)
    assert claims_for(book(cap()), call(caller(None))) == ()


def test_a_cap_of_zero_blocks_everything() -> None:
    for admission in ("reserve", "floor", "after"):
        assert not refused([cap(limit=0, admission=admission)], call(), ZERO).busy


def test_b34_a_key_and_its_project_roll_independently() -> None:
    caps = [cap(1, 50 * USD, scope="project"), cap(2, 5 * USD, scope="key", subject="k1", window="day")]
    claims = claims_for(book(*caps), call(caller(project="p")))
    assert [(claim.key.scope, claim.key.subject, claim.key.period) for claim in claims] == [
        ("project", "p", "2026-12"),
        ("key", "k1", "2026-12-01"),
    ]


@pytest.mark.parametrize(
    ("match", "counters"),
    [
        (Match(), {("", "", "")}),
        (Match(tag="agent:*"), {("", "", "agent:a"), ("", "", "agent:b")}),
        (Match(provider="*", tag="agent:*"), {("openai", "", "agent:a"), ("openai", "", "agent:b")}),
        (Match(model="m1"), {("", "m1", "")}),
        (Match(model="*", tag="agent:*"), {("", m, f"agent:{a}") for m in ("m1", "m2") for a in "ab"}),
    ],
)
def test_c008_two_agents_on_two_models_fill_the_counters_of_a_narrowed_cap(
    match: Match, counters: set[tuple[str, str, str]]
) -> None:
    caps = book(cap(scope="organization", match=match))
    calls = [call(caller(model=m, tags=(f"agent:{a}",))) for m in ("m1", "m2") for a in "ab"]
    keys = {claim.key.match for facts in calls for claim in claims_for(caps, facts)}
    assert {tuple(value or "" for value in key) for key in keys} == counters


@pytest.mark.parametrize("downward", [True, False])
def test_one_counter_is_claimed_once_with_the_least_limit_of_each_rule(downward: bool) -> None:
    limits = {"reserve": (9, 8), "floor": (7, 6), "after": (5, 4)}
    caps = [
        cap(2 * place + step, limit, admission=admission)
        for place, (admission, pair) in enumerate(limits.items(), start=1)
        for step, limit in enumerate(pair if downward else pair[::-1])
    ]
    (claim,) = claims_for(book(*caps, cap(99, 1, armed=False)), call(hold=4, floor=3))
    assert (claim.hold, claim.floor, len(claim.caps)) == (4, 3, 7)
    assert (claim.reserve_limit, claim.floor_limit, claim.after_limit) == (8, 6, 4)


def test_every_axis_of_a_cap_has_its_own_counter_and_all_must_pass() -> None:
    caps = [cap(1, USD, token_limit=100, request_limit=2)]
    facts = call(hold=CENT, hold_tokens=50)
    claims = claims_for(book(*caps), facts)
    assert [(claim.key.unit, claim.hold, claim.reserve_limit) for claim in claims] == [
        ("usd", CENT, USD),
        ("tokens", 50, 100),
        ("requests", 1, 2),
    ]
    assert isinstance(decide(caps, facts, spent(USD - CENT), spent(50), spent(1)), Admitted)
    for used_up in range(3):
        balances = [spent(USD - CENT), spent(50), spent(1)]
        balances[used_up] = balances[used_up]._replace(spent=balances[used_up].spent + 1)
        decision = refused(caps, facts, *balances)
        assert decision.named.unit == ("usd", "tokens", "requests")[used_up]  # the axis that refuses
        assert not decision.busy


# --- final or busy -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spent_before", "held", "hold", "room"),
    [
        (60, 20, 20, "fits"),
        (60, 20, 21, "busy"),  # 60 + 21 <= 100: only the 20 held stand in the way
        (60, 20, 40, "busy"),
        (60, 20, 41, "final"),  # 60 + 41 > 100 whatever is given back
        (99, 1, 0, "busy"),
        (99, 0, 1, "fits"),
        (100, 0, 0, "final"),
        (0, 100, 0, "busy"),
        (0, 0, 101, "final"),  # larger than the whole cap
    ],
)
def test_d27_busy_is_what_running_holds_alone_stand_in_the_way_of(
    spent_before: int, held: int, hold: int, room: str
) -> None:
    one, balance = cap(limit=100), spent(spent_before, held)
    assert room_in(one, 100, balance, hold, 0) == room
    decision = decide([one], call(hold=hold), balance)
    assert isinstance(decision, Admitted) is (room == "fits")
    if isinstance(decision, Refused):
        assert (decision.named.room, decision.busy) == (room, room == "busy")


@pytest.mark.parametrize("admission", ["floor", "after"])
def test_every_refusal_of_floor_and_after_is_final(admission: str) -> None:
    one = cap(limit=100, admission=admission)
    held = spent(50 if admission == "floor" else 100, 10**6, 50)
    decision = refused([one], call(floor=0), held)
    assert (decision.named.room, decision.busy) == ("final", False)


def test_floor_and_after_look_past_holds() -> None:
    for admission in ("floor", "after"):
        assert isinstance(
            decide([cap(limit=100, admission=admission)], call(hold=10**6), spent(99, 10**6)), Admitted
        )


def test_final_wins_over_a_tighter_busy_cap() -> None:
    caps = [cap(1, 100, scope="organization"), cap(2, 100)]
    decision = refused(caps, call(hold=20), spent(0, 95), spent(81))
    # The organization: 100 - 95 - 20 = -15, busy. The customer: 100 - 81 - 20 = -1, final.
    assert [(look.headroom, look.room) for look in decision.looks] == [(-15, "busy"), (-1, "final")]
    assert (decision.named.cap.id, decision.busy) == (2, False)


def test_a_refusal_is_busy_only_when_every_failing_cap_is() -> None:
    caps = [cap(1, 100, scope="organization"), cap(2, 100), cap(3, 1000, scope="key")]
    decision = refused(caps, call(hold=20), spent(0, 95), ZERO, spent(0, 90))
    assert (decision.named.cap.id, decision.busy, decision.code) == (1, True, "budget_busy")


def test_a_cap_that_does_not_bind_is_never_named_in_a_refusal() -> None:
    caps = [cap(1, 1, armed=False, scope="organization"), cap(2, 100)]
    decision = refused(caps, call(hold=20), spent(10**6), spent(90))
    assert decision.named.cap.id == 2
    assert [look.room for look in decision.looks] == ["final", "final"]


# --- who is named ------------------------------------------------------------------------------


def test_r061_the_least_headroom_is_named() -> None:
    caps = [cap(1, 100, scope="organization"), cap(2, 100)]
    assert named(caps, call(hold=1), spent(50), spent(51)) == 2
    assert named(caps, call(hold=1), spent(51), spent(50)) == 1
    assert refused(caps, call(hold=60), spent(50), spent(51)).named.cap.id == 2
    assert refused(caps, call(hold=60), spent(51), spent(50)).named.cap.id == 1


def test_r062_a_tie_goes_to_the_more_specific_scope_then_to_the_lower_id() -> None:
    who = Attribution(organization="o", project="p", key_id="k", customer="c", run="r")
    facts = call(who, hold=1)
    caps = [cap(10 + place, 100, scope=scope, subject="*") for place, scope in enumerate(SCOPES)]
    for last in range(len(SCOPES), 0, -1):
        assert named(caps[:last], facts, *[spent(50)] * last) == 9 + last
        assert refused(caps[:last], facts, *[spent(100)] * last).named.cap.id == 9 + last
    twins = [cap(7, 100, match=Match(model="m")), cap(3, 100, match=Match(provider="openai"))]
    assert named(twins, call(hold=1), ZERO, ZERO) == 3
    assert refused(twins, call(hold=1), spent(100), spent(100)).named.cap.id == 3


def test_a_tie_on_one_counter_goes_to_the_lower_id() -> None:
    assert named([cap(7, 100), cap(3, 100)], call(hold=1), spent(50)) == 3
    assert refused([cap(7, 100), cap(3, 100)], call(hold=1), spent(100)).named.cap.id == 3


@pytest.mark.parametrize(
    ("admission", "taken", "headroom"),
    [
        ("reserve", 50 + 20, 1_000 - 70 - 100),  # the whole hold
        ("floor", 50 + 3, 1_000 - 53 - 7),  # the floor of this call
        ("after", 50, 1_000 - 50),  # nothing of this call
    ],
)
def test_headroom_is_by_the_caps_own_admission_mode(admission: Any, taken: int, headroom: int) -> None:
    one, balance = cap(limit=1_000, admission=admission), spent(50, 20, 3)
    assert taken_by(one, balance) == taken
    decision = decide([one], call(hold=100, floor=7), balance)
    assert isinstance(decision, Admitted)
    assert decision.named is not None
    assert (decision.named.headroom, decision.named.hold) == (headroom, 100)


def test_caps_without_dollars_come_after_all_dollar_caps_by_share_left() -> None:
    tokens = cap(1, None, token_limit=1_000)
    requests = cap(2, None, request_limit=10)
    dollars = cap(3, 10**15)
    facts = call(hold=1, hold_tokens=100)
    # tokens: 1,000 - 600 - 100 = 300 of 1,000 = 30 %; requests: 10 - 7 - 1 = 2 of 10 = 20 %
    assert named([tokens, requests], facts, spent(600), spent(7)) == 2
    assert named([tokens, requests], facts, spent(701), spent(7)) == 1  # 19.9 %
    assert named([tokens, requests], facts, spent(700), spent(7)) == 1  # 20 % each: the lower id
    assert named([tokens, requests, dollars], facts, spent(800), spent(8), ZERO) == 3
    assert refused([tokens, requests], facts, spent(950), spent(10)).named.cap.id == 2  # -5 % and -10 %
    both = refused([tokens, dollars], facts, spent(950), spent(10**15))
    assert both.named.cap.id == 3


def test_a_limit_of_zero_has_no_share_to_divide_by() -> None:
    caps = [cap(1, None, token_limit=0), cap(2, None, request_limit=1)]
    assert refused(caps, call(hold_tokens=100), ZERO, spent(1)).named.cap.id == 1


def test_a_failing_cap_is_ranked_by_its_dollars_and_named_on_the_axis_that_fails() -> None:
    both = cap(1, 100, token_limit=10)
    dollars = cap(2, 200, match=Match(model="m"))
    facts = call(hold=50, hold_tokens=20)
    # cap 1: dollars 100 - 60 - 50 = -10, tokens 10 - 0 - 20 = -10; cap 2: 200 - 160 - 50 = -10; cap 1 by its id
    tied = refused([both, dollars], facts, spent(60), ZERO, spent(160))
    assert (tied.named.cap.id, tied.named.unit) == (1, "usd")
    # cap 1 fails on tokens alone, with 100 - 0 - 50 = 50 dollars left; cap 2 fails on dollars
    other = refused([both, dollars], facts, ZERO, ZERO, spent(160))
    assert (other.named.cap.id, other.named.unit) == (2, "usd")
    # cap 1 alone fails, on tokens: that is the figure to show
    alone = refused([both, dollars], facts, ZERO, ZERO, ZERO)
    assert (alone.named.cap.id, alone.named.unit, alone.named.limit) == (1, "tokens", 10)
    # A cap with dollars comes before one without, though its tokens are the smaller part over: -10 % and -100 %
    tokens = cap(3, None, token_limit=20, match=Match(model="m"))
    mixed = refused([cap(1, 100, token_limit=100), tokens], call(hold_tokens=20), ZERO, spent(90), spent(20))
    assert (mixed.named.cap.id, mixed.named.unit) == (1, "tokens")


def test_r095_the_customers_own_dollar_cap_is_told_beside_the_tightest() -> None:
    caps = [cap(1, 100, scope="organization"), cap(2, 300), cap(3, 200, window="day"), cap(4, 1, armed=False)]
    decision = decide(caps, call(), ZERO, ZERO, ZERO)
    assert isinstance(decision, Admitted)
    assert decision.named is not None
    assert decision.customer is not None
    assert (decision.named.cap.id, decision.customer.cap.id) == (1, 3)


def test_r095_a_customer_cap_without_dollars_prints_no_figures() -> None:
    decision = decide([cap(1, None, token_limit=5)], call(), ZERO)
    assert isinstance(decision, Admitted)
    assert decision.customer is None
    assert decision.named is not None


def test_the_trace_shows_every_cap_with_the_balance_before_the_call() -> None:
    caps = [cap(1, 100), cap(2, 200, armed=False, scope="key")]
    decision = decide(caps, call(hold=5), spent(10), spent(50, 1, 2))
    assert [(look.cap.id, look.limit, look.balance, look.hold, look.binds) for look in decision.looks] == [
        (2, 200, spent(10), 5, False),
        (1, 100, spent(50, 1, 2), 5, True),
    ]


def test_a_store_that_refuses_what_passes_is_a_bug_and_no_verdict() -> None:
    claims = claims_for(book(cap()), call(hold=1))
    with pytest.raises(AssertionError, match="refused claims that all pass"):
        verdict(claims, [ZERO], False)
    with pytest.raises(ValueError, match="shorter"):
        verdict(claims, [], True)
