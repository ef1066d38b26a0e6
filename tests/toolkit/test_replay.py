"""The what-if judges history as the gateway's counters would have: rule by rule, and against the kernel itself."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.receipt_rows import NOVEMBER, call, cap, frame, one_by_one
from toolkit.core.admission import claims_for, verdict
from toolkit.core.caps import Cap, CapBook, Match
from toolkit.core.counters import Counted, Counters
from toolkit.core.decisions import CallFacts, Refused
from toolkit.core.errors import InvalidCap, LoadError, MoneyError
from toolkit.core.pricefile import load_price_folder
from toolkit.core.scopes import Attribution
from toolkit.draft import timeline_of
from toolkit.replay import Replay, judge_every_call
from toolkit.synth import ARMED_AT, cap_timeline, frame_of, generate
from toolkit.whatif import what_if

PRICES = Path(__file__).parents[2] / "data" / "prices"
SUBJECTS = ("a", "b", "c", None)


# ---- the property: what the pruning leaves out could not have changed a verdict

amounts = st.integers(0, 6)
subjects = st.sampled_from(SUBJECTS)


@st.composite
def histories(draw: st.DrawFn) -> pl.DataFrame:
    """Up to 40 overlapping calls, costs above holds, refused, unpriced and unjudged rows among them."""
    ends = draw(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), min_size=1, max_size=40))
    order = sorted(
        [(start, 1, number) for number, (start, _) in enumerate(ends)]
        + [(start + length, 2, number) for number, (start, length) in enumerate(ends)]
    )
    steps = {(number, kind): step for step, (_, kind, number) in enumerate(order, start=1)}
    rows = []
    for number, (start, _) in enumerate(ends):
        status = draw(st.sampled_from(("served", "served", "served", "failed", "abandoned", "refused")))
        priced = draw(st.integers(0, 7)) > 0
        columns: dict[str, Any] = {
            "status": status,
            "refusal_code": draw(st.sampled_from(("budget_exceeded", "budget_busy", "kill_switch")))
            if status == "refused"
            else None,
            "customer": draw(subjects),
            "project": draw(subjects),
            "key_id": draw(st.sampled_from(("k1", "k2"))),
            "run": draw(subjects),
            "provider": draw(st.sampled_from(("openai", None))),
            "model_requested": draw(st.sampled_from(("m", "n", "openai/m"))),
            "tags": draw(st.lists(st.sampled_from(("team:x", "team:y", "teams:z")), max_size=2)),
            "hold_nano_usd": draw(amounts) if priced else None,
            "floor_nano_usd": draw(amounts) if priced else None,
            "counted_nano_usd": draw(st.integers(0, 9)) if priced else 0,
            "hold_tokens": draw(amounts),
            "counted_tokens": draw(st.integers(0, 9)),
            "request_bytes": draw(st.integers(0, 20)),
        }
        at = NOVEMBER - timedelta(days=1) + timedelta(hours=start)
        row = call(number, steps[number, 1], steps[number, 2], at, **columns)
        if draw(st.integers(0, 9)) == 0:
            row["admit_seq"] = None
        rows.append(row)
    return frame(rows)


@st.composite
def caps(draw: st.DrawFn, cap_id: int) -> Cap:
    """Any cap on few subjects, with limits that short histories reach."""
    limits = [draw(st.none() | st.integers(0, 25)) for _ in range(3)]
    if limits == [None, None, None]:
        limits[0] = 10
    scope = draw(st.sampled_from(("customer", "customer", "organization", "project", "key", "run")))
    subject = {"organization": "default", "key": "k1"}.get(scope, draw(st.sampled_from(("a", "b", "*", "*"))))
    return Cap(
        id=cap_id,
        scope=scope,
        subject=draw(st.sampled_from((subject, "*"))),
        match=Match(
            provider=draw(st.sampled_from((None, None, None, "*", "openai"))),
            model=draw(st.sampled_from((None, None, None, "*", "m"))),
            tag=draw(st.sampled_from((None, None, None, "team:*", "team:x"))),
        ),
        window=draw(st.sampled_from(("day", "week", "month", "year", "never"))),
        limit_nano_usd=limits[0],
        token_limit=limits[1],
        request_limit=limits[2],
        admission=draw(st.sampled_from(("reserve", "reserve", "floor", "after"))),
        unpriced=draw(st.sampled_from(("refuse", "serve"))),
    )


@st.composite
def drafts(draw: st.DrawFn) -> Any:
    """A list of one to four caps, or a timeline of two lists."""
    size = draw(st.integers(1, 4))
    first = [draw(caps(number)) for number in range(1, size + 1)]
    if draw(st.booleans()):
        return first
    second = [draw(caps(number)) for number in range(1, draw(st.integers(0, 3)) + 1)]
    return [(NOVEMBER - timedelta(hours=12), first), (NOVEMBER + timedelta(hours=6), second)]


@settings(max_examples=200)
@given(histories(), drafts())
def test_pruning_changes_no_verdict(history: pl.DataFrame, draft: Any) -> None:
    replay = Replay(history)
    pruned = replay.judge(timeline_of(draft))
    assert pruned.refused.rows() == judge_every_call(replay.history, timeline_of(draft)).rows()


@settings(max_examples=150)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(("served", "served", "refused", "failed")),
            st.integers(0, 6),  # what it holds
            st.integers(0, 4),  # its floor
            st.integers(0, 9),  # what it counts
            st.integers(0, 5),  # how many steps it runs
            st.integers(0, 20),  # hours since the call before
        ),
        min_size=5,
        max_size=30,
    ),
    st.integers(4, 30),
    st.integers(4, 30),
    st.sampled_from(("reserve", "floor", "after")),
)
def test_pruning_changes_no_verdict_near_the_limit(
    calls: list[tuple[Any, ...]], day: int, month: int, admission: Any
) -> None:
    """One customer under a cap a day and one a month: every call matters to every later one."""
    rows, at = [], NOVEMBER
    for number, (status, hold, floor, counted, runs, hours) in enumerate(calls):
        at += timedelta(hours=hours)
        told = {"refusal_code": "budget_busy"} if status == "refused" else {}
        amounts = {"hold_nano_usd": hold, "floor_nano_usd": floor, "counted_nano_usd": counted}
        admit = 10 * number
        rows.append(call(number, admit, admit + 10 * runs + 1 + runs, at, status=status, **amounts, **told))
    draft = timeline_of([cap(day, window="day"), cap(month, 2, admission=admission)])
    replay = Replay(frame(rows))
    assert replay.judge(draft).refused.rows() == judge_every_call(replay.history, draft).rows()


# ---- the same, against counters driven by hand


def test_verdicts_equal_counters_driven_event_by_event() -> None:
    """Independent of the toolkit's own slow path: receipts in, kernel calls by hand, the same verdict for each."""
    rows = [
        call(n, 2 * n + 1, 2 * n + 12, customer=f"c{n % 3}", hold_nano_usd=5, counted_nano_usd=n % 7)
        for n in range(40)
    ]
    cap = Cap(id=3, scope="customer", subject="*", window="month", limit_nano_usd=20, hard_stop=True)
    book, counters, expected = CapBook((cap,)), Counters(), {}
    events = sorted(
        [(row["admit_seq"], 1, row) for row in rows] + [(row["settle_seq"], 0, row) for row in rows],
        key=lambda e: e[:2],
    )
    for _, admits, row in events:
        if not admits:
            counters.settle(row["receipt_id"], Counted(row["counted_nano_usd"], 0, 1))
            continue
        facts = CallFacts(
            who=Attribution(organization="default", customer=row["customer"]),
            at=row["admitted_at"],
            hold_nano_usd=row["hold_nano_usd"],
            floor_nano_usd=0,
            hold_tokens=0,
        )
        claims = claims_for(book, facts)
        grant = counters.reserve(row["receipt_id"], facts, claims)
        decision = verdict(claims, grant.balances, grant.granted)
        code = decision.code if isinstance(decision, Refused) else None
        expected[row["receipt_id"]] = ("refused" if code else "admitted", code)
    found = what_if(frame(rows), [cap]).decisions
    assert dict(zip(found["receipt_id"], found.select("verdict", "code").rows(), strict=True)) == expected
    assert {code for _, code in expected.values()} == {None, "budget_busy", "budget_exceeded"}


def test_the_caps_of_a_month_refuse_the_month_as_they_did() -> None:
    """Synthetic traffic that met an armed cap, replayed under that very cap: refused then, refused now, alike."""
    limit = 40_000_000
    month = frame_of(
        generate(
            seed=7, customers=12, receipts=3_000, lists=load_price_folder(PRICES), daily_limit_nano_usd=limit
        )
    )
    armed = cap_timeline(limit)[1][1][1]
    found = what_if(month, [(ARMED_AT, [armed])]).decisions.join(
        month.select("receipt_id", "refusal_code"), on="receipt_id"
    )
    judged = found.filter(pl.col("verdict") != "not_judged")
    assert judged.filter(pl.col("code").ne_missing(pl.col("refusal_code"))).is_empty()
    assert judged["code"].drop_nulls().len() > 20


# ---- the rules, with their arithmetic


def verdicts(rows: Sequence[dict[str, Any]], draft: Any) -> list[str]:
    """One word per receipt, in order: the refusal's code, else the verdict."""
    found = what_if(frame(rows), draft).decisions
    return [code or word for word, code in found.select("verdict", "code").iter_rows()]


def test_twenty_calls_of_five_cents_fill_a_dollar_exactly() -> None:
    found = verdicts(one_by_one(*[50_000_000] * 25), [cap(1_000_000_000)])
    assert found == ["admitted"] * 20 + ["budget_exceeded"] * 5


@pytest.mark.parametrize(("amount", "word"), [(9, "admitted"), (10, "admitted"), (11, "budget_exceeded")])
def test_reserve_admits_up_to_the_limit_itself(amount: int, word: str) -> None:
    assert verdicts(one_by_one(amount), [cap(10)]) == [word]


def test_nothing_passes_a_limit_that_is_spent_not_even_a_call_that_holds_nothing() -> None:
    assert verdicts(one_by_one(10, 0), [cap(10)]) == ["admitted", "budget_exceeded"]


@pytest.mark.parametrize(("floor", "word"), [(9, "admitted"), (10, "budget_exceeded")])
def test_floor_refuses_when_spent_and_floor_reach_the_limit(floor: int, word: str) -> None:
    """R043: limit 1,000, spent 990; 990 + 10 reaches it, 990 + 9 does not."""
    rows = [call(0, 1, 2, hold_nano_usd=990), call(1, 3, 4, hold_nano_usd=5_000, floor_nano_usd=floor)]
    assert verdicts(rows, [cap(1_000, admission="floor")]) == ["admitted", word]


def test_after_refuses_only_once_the_limit_is_spent() -> None:
    rows = one_by_one(9, 9, 1)
    assert verdicts(rows, [cap(10, admission="after")]) == ["admitted", "admitted", "budget_exceeded"]


def test_a_looser_override_replaces_the_default_for_its_customer() -> None:
    """R024: default 1, override 5 for customer a."""
    calls = [row | {"customer": "ab"[n % 2]} for n, row in enumerate(one_by_one(*[1] * 12))]
    found = what_if(frame(calls), [cap(1), cap(5, 2, subject="a")]).by_customer.sort("customer")
    assert found.select("customer", "refused_requests").rows() == [("a", 1), ("b", 5)]


def test_without_its_override_the_default_binds() -> None:
    """R025: an override that is not armed leaves the default."""
    assert verdicts(one_by_one(1, 1), [cap(1)]) == ["admitted", "budget_exceeded"]


def test_a_default_on_another_window_still_binds_beside_an_override() -> None:
    """R026: override month 5, default day 1."""
    assert verdicts(one_by_one(1, 1), [cap(5, subject="a"), cap(1, 2, window="day")]) == [
        "admitted",
        "budget_exceeded",
    ]


def test_of_two_defaults_the_tighter_decides() -> None:
    """R027: day 1 and month 2 over three days: one a day, and the month stops the third."""
    rows = [
        row | {"admitted_at": NOVEMBER + timedelta(days=n // 2)} for n, row in enumerate(one_by_one(*[1] * 6))
    ]
    found = what_if(frame(rows), [cap(1, window="day"), cap(2, 2)]).decisions
    assert found["cap_id"].to_list() == [None, 1, None, 1, 2, 2]


def test_running_holds_alone_make_a_refusal_busy() -> None:
    """Limit 10: 6 runs, 6 more is busy; once 6 has settled at 3, another 6 fits."""
    rows = [
        call(0, 1, 3, hold_nano_usd=6, counted_nano_usd=3),
        call(1, 2, 4, hold_nano_usd=6),
        call(2, 5, 6, hold_nano_usd=6),
    ]
    assert verdicts(rows, [cap(10)]) == ["admitted", "budget_busy", "admitted"]


def test_a_refused_call_adds_nothing_so_a_smaller_one_still_fits() -> None:
    """Limit 10: 8, then 5 does not fit, then 2 does: 8 + 2 = 10."""
    assert verdicts(one_by_one(8, 5, 2, 1), [cap(10)]) == [
        "admitted",
        "budget_exceeded",
        "admitted",
        "budget_exceeded",
    ]


def test_a_period_belongs_to_the_admission() -> None:
    """A call of the last second of November counts there, though it settles in December."""
    edge = datetime(2026, 12, 1, tzinfo=UTC)
    rows = [
        call(0, 1, 4, edge - timedelta(seconds=1), hold_nano_usd=10),
        call(1, 2, 3, edge, hold_nano_usd=10),
        call(2, 5, 6, edge + timedelta(seconds=1), hold_nano_usd=1),
    ]
    assert verdicts(rows, [cap(10)]) == ["admitted", "admitted", "budget_exceeded"]


def test_what_a_cap_refused_in_history_has_no_known_cost() -> None:
    """Judged on its recorded hold: 11 of 10 is refused again, 4 would have been admitted, and neither adds."""
    past = {"status": "refused", "refusal_code": "budget_exceeded"}
    rows = [
        call(0, 1, None, hold_nano_usd=11, **past),
        call(1, 2, None, hold_nano_usd=4, **past),
        call(2, 3, 4, hold_nano_usd=10),
    ]
    assert verdicts(rows, [cap(10)]) == ["budget_exceeded", "cost_unknown", "admitted"]


def test_a_call_of_unknown_cost_holds_nothing() -> None:
    """Limit 10, spent 8: 3 does not fit; what history refused at 2 would have, and leaves its room to the next 2."""
    past = {"status": "refused", "refusal_code": "budget_busy"}
    rows = [
        *one_by_one(8, 3),
        call(2, 5, None, NOVEMBER + timedelta(minutes=2), hold_nano_usd=2, **past),
        call(3, 7, 8, NOVEMBER + timedelta(minutes=3), hold_nano_usd=2),
        call(4, 9, 10, NOVEMBER + timedelta(minutes=4), hold_nano_usd=3),
    ]
    expected = ["admitted", "budget_exceeded", "cost_unknown", "admitted", "budget_exceeded"]
    assert verdicts(rows, [cap(10)]) == expected


def test_of_equal_headroom_the_more_specific_cap_is_named() -> None:
    """11 against 10 and 10: the customer's cap, whatever the ids say."""
    draft = [cap(10, 1, scope="organization"), cap(10, 2)]
    assert what_if(frame(one_by_one(11, 11)), draft).decisions["cap_id"].to_list() == [2, 2]


def test_what_a_month_took_before_it_came_into_doubt_is_not_lost() -> None:
    """Day 10, month 20. 6; then 11 and 11, refused by the day; 9 makes 15 in the month, so 6 more does not fit."""
    days = (0, 1, 1, 2, 3)
    rows = [
        row | {"admitted_at": NOVEMBER + timedelta(days=day, minutes=n)}
        for n, (day, row) in enumerate(zip(days, one_by_one(6, 11, 11, 9, 6), strict=True))
    ]
    found = what_if(frame(rows), [cap(10, window="day"), cap(20, 2)]).decisions
    assert found["cap_id"].to_list() == [None, 1, 1, None, 2]


def test_rows_that_no_cap_was_asked_about_are_not_judged_and_add_nothing() -> None:
    rows = [
        call(0, 1, 2, hold_nano_usd=10) | {"admit_seq": None},
        call(1, 3, None, hold_nano_usd=10, status="refused", refusal_code="kill_switch"),
        call(2, 5, 6, hold_nano_usd=9),
        call(3, 7, 8, hold_nano_usd=9, corrects="r000002"),
        call(4, 9, 10, hold_nano_usd=1),
    ]
    assert verdicts(rows, [cap(10)]) == ["not_judged", "not_judged", "admitted", "not_judged", "admitted"]


def test_a_call_without_a_price_is_refused_before_the_counters() -> None:
    """Its tokens would fill the token cap; refused first, it leaves the room to the next call."""
    rows = [
        call(0, 1, 2, hold_nano_usd=None, counted_nano_usd=0, hold_tokens=5, counted_tokens=5),
        call(1, 3, 4, hold_tokens=5),
    ]
    assert verdicts(rows, [cap(10, token_limit=5)]) == ["model_unpriced", "admitted"]
    assert verdicts(rows, [cap(10, token_limit=5, unpriced="serve")]) == ["admitted", "budget_exceeded"]
    assert verdicts(rows, [cap(None, token_limit=5)]) == ["admitted", "budget_exceeded"]


def test_a_failed_call_gives_its_request_back() -> None:
    rows = one_by_one(0, 0, 0)
    rows[0] |= {"status": "failed"}
    assert verdicts(rows, [cap(None, request_limit=1)]) == ["admitted", "admitted", "budget_exceeded"]


def test_raising_a_cap_keeps_what_was_spent() -> None:
    """R029: 5 of 5 spent, raised to 8: 3 are left, not 8."""
    rows = one_by_one(5, 1, 3, 1)
    raised = [(NOVEMBER, [cap(5)]), (NOVEMBER + timedelta(minutes=2), [cap(8)])]
    assert verdicts(rows, raised) == ["admitted", "budget_exceeded", "admitted", "budget_exceeded"]


def test_a_cap_that_comes_in_mid_period_starts_from_what_was_spent() -> None:
    rows = one_by_one(5, 5, 1)
    assert verdicts(rows, [(NOVEMBER + timedelta(minutes=2), [cap(10)])]) == [
        "admitted",
        "admitted",
        "budget_exceeded",
    ]


def test_organizations_do_not_share_a_counter() -> None:
    rows = one_by_one(10, 10)
    rows[1] |= {"organization": "other"}
    assert verdicts(rows, [cap(10)]) == ["admitted", "admitted"]


def test_the_provider_prefix_is_no_part_of_the_model() -> None:
    rows = one_by_one(10, 10, provider="openrouter", model_requested="openrouter/openai/gpt-4o")
    assert verdicts(rows, [cap(10, match=Match(model="openai/gpt-4o"))]) == ["admitted", "budget_exceeded"]


# ---- foreign rows: no sequence, no holds


def foreign(number: int, start: int, length: int, cost: int, **columns: Any) -> dict[str, Any]:
    at = NOVEMBER + timedelta(seconds=start)
    blank = {
        "admit_seq": None,
        "settle_seq": None,
        "hold_nano_usd": None,
        "floor_nano_usd": None,
        "hold_tokens": None,
    }
    row = call(number, 0, 0, at, counted_nano_usd=cost) | blank
    return row | {"settled_at": at + timedelta(seconds=length)} | columns


def test_foreign_rows_are_ordered_by_instant_and_the_result_says_so() -> None:
    """The settlement at second 5 comes before the admission at second 5; a row without a hold holds its cost."""
    rows = [foreign(0, 0, 5, 6), foreign(1, 5, 0, 4), foreign(2, 5, 3, 1), foreign(3, 4, 9, 6)]
    found = what_if(frame(rows), [cap(10)])
    words = dict(found.decisions.select("receipt_id", pl.coalesce("code", "verdict")).iter_rows())
    assert words == {
        "r000000": "admitted",
        "r000003": "budget_busy",
        "r000001": "admitted",
        "r000002": "budget_exceeded",
    }
    assert found.summary.ordered_by == "instant"


def test_a_foreign_row_without_a_price_is_told_from_one_without_usage() -> None:
    no_price = foreign(0, 0, 1, 0, cost_nano_usd=None, unpriced_reason="unknown_model")
    no_usage = foreign(1, 2, 1, 0, cost_nano_usd=None, unpriced_reason="usage_missing")
    assert verdicts([no_price, no_usage], [cap(10)]) == ["model_unpriced", "admitted"]


# ---- what cannot be judged is refused by name


def test_two_caps_of_one_id_are_refused() -> None:
    with pytest.raises(InvalidCap, match="one id"):
        timeline_of([cap(1), cap(2)])


def test_a_timeline_runs_forward() -> None:
    with pytest.raises(InvalidCap, match="oldest first"):
        timeline_of([(NOVEMBER, [cap(1)]), (NOVEMBER, [cap(2)])])


def test_an_amount_below_zero_is_named_by_its_receipt() -> None:
    with pytest.raises(LoadError, match="r000001"):
        Replay(frame(one_by_one(1, -1)))


def test_sums_beyond_64_bits_are_refused_not_wrapped() -> None:
    for columns in ({}, {"counted_nano_usd": 0}):
        with pytest.raises(MoneyError, match="64 bits"):
            Replay(frame(one_by_one(*[2**62] * 3, **columns)))


def test_only_doubtful_calls_reach_the_counters() -> None:
    """Speed is a promise: of 1,000 customers one spends past the limit, and only its tail is run call by call."""
    rows = [call(n, 2 * n + 1, 2 * n + 2, customer=f"c{n}", hold_nano_usd=5) for n in range(1_000)]
    rows += [call(n, 2 * n + 1, 2 * n + 2, customer="big", hold_nano_usd=5) for n in range(1_000, 1_010)]
    judged = Replay(frame(rows)).judge(timeline_of([cap(30)]))
    assert judged.refused["row"].to_list() == [1_006, 1_007, 1_008, 1_009]
    assert judged.contested == 4
