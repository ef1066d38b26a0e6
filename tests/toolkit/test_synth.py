"""A small month of synthetic receipts is one that the gateway could have left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

from toolkit.core.admission import claims_for, verdict
from toolkit.core.caps import CapBook
from toolkit.core.counters import NOTHING, Counted, Counters
from toolkit.core.decisions import CallFacts, Refused
from toolkit.core.estimate import CallBounds, estimate
from toolkit.core.money import NANO_PER_USD
from toolkit.core.pricefile import load_price_folder
from toolkit.core.pricing import Priced, PriceList, list_at, price
from toolkit.core.receipts import Receipt, counted_of, usage_of_row
from toolkit.core.scopes import Attribution
from toolkit.frames import RECEIPT_SCHEMA
from toolkit.synth import ARMED_AT, CapTimeline, cap_timeline, frame_of, generate, main
from toolkit.synth_desk import DEFAULT_OUTPUT, PROMPT, TIER
from toolkit.synth_world import HOSTILE_CUSTOMERS, MONTH_END, MONTH_START, RUNAWAY

DATA = Path(__file__).resolve().parents[2] / "data"
LIMIT = NANO_PER_USD * 3 // 2


@pytest.fixture(scope="module")
def lists() -> tuple[PriceList, ...]:
    return load_price_folder(DATA / "prices")


@pytest.fixture(scope="module")
def month(lists: tuple[PriceList, ...]) -> list[Receipt]:
    return small_month(lists, seed=7)


def small_month(lists: Iterable[PriceList], *, seed: int) -> list[Receipt]:
    return list(generate(seed=seed, customers=40, receipts=2_000, lists=lists, daily_limit_nano_usd=LIMIT))


def test_the_same_seed_gives_the_same_month(lists: tuple[PriceList, ...], month: list[Receipt]) -> None:
    assert small_month(lists, seed=7) == month


def test_another_seed_gives_another_month(lists: tuple[PriceList, ...], month: list[Receipt]) -> None:
    assert small_month(lists, seed=8) != month


def test_about_as_many_receipts_as_asked_for_all_of_the_month(month: list[Receipt]) -> None:
    assert 1_700 <= len(month) <= 2_300
    assert all(MONTH_START <= row.admitted_at < MONTH_END for row in month)
    assert all(row.settled_at > row.admitted_at for row in month)


def test_ids_are_unique_and_sort_as_the_calls_came(month: list[Receipt]) -> None:
    by_id = sorted(month, key=lambda row: row.receipt_id)
    assert len({row.receipt_id for row in month}) == len({row.operation_id for row in month}) == len(month)
    assert [row.admitted_at for row in by_id] == sorted(row.admitted_at for row in month)
    asked = [row.admit_seq for row in by_id if row.admit_seq is not None]
    assert asked == sorted(asked)


def test_one_sequence_numbers_every_admission_and_settlement_in_order_of_time(month: list[Receipt]) -> None:
    events = [(row.admit_seq, row.admitted_at) for row in month if row.admit_seq is not None]
    events += [(row.settle_seq, row.settled_at) for row in month if row.settle_seq is not None]
    events.sort()
    assert [seq for seq, _ in events] == list(range(1, len(events) + 1))
    assert [at for _, at in events] == sorted(at for _, at in events)


def test_receipts_come_in_the_order_of_their_commits(month: list[Receipt]) -> None:
    steps = [row.settle_seq or row.admit_seq for row in month if row.admit_seq is not None]
    assert steps == sorted(step for step in steps if step is not None)


def test_calls_overlap(month: list[Receipt]) -> None:
    edges = sorted(
        edge for row in month if row.settle_seq for edge in ((row.admit_seq, 1), (row.settle_seq, -1))
    )
    running = most = 0
    for _, step in edges:
        running += step
        most = max(most, running)
    assert running == 0
    assert most >= 3


def test_holds_and_floors_are_the_estimate_of_the_request(
    lists: tuple[PriceList, ...], month: list[Receipt]
) -> None:
    for row in month:
        if row.admit_seq is None:
            assert (row.hold_nano_usd, row.floor_nano_usd, row.hold_tokens, row.price_list) == (None,) * 4
            continue
        assert row.provider is not None
        bounds = CallBounds(
            body_bytes=row.request_bytes,
            text_bytes=row.request_bytes,
            output_limit=row.output_limit,
            prompt_meters=PROMPT[row.provider],
            tier=TIER[row.provider],
        )
        prices = list_at(lists, row.admitted_at)
        assert prices is not None
        assert row.model_requested is not None
        found = estimate(
            prices, row.provider, row.model_requested, bounds, row.admitted_at, default_output=DEFAULT_OUTPUT
        )
        assert (row.hold_nano_usd, row.floor_nano_usd) == (found.hold_nano_usd, found.floor_nano_usd)
        assert (row.hold_tokens, row.price_list) == (found.hold_tokens, prices.id)


def test_usage_stays_within_the_bounds_of_its_request(month: list[Receipt]) -> None:
    for row in month:
        usage = usage_of_row(row.row())
        limit = DEFAULT_OUTPUT if row.output_limit is None else row.output_limit
        assert row.request_bytes >= 400
        assert usage.prompt <= row.request_bytes
        assert (usage.output or 0) <= limit
        assert (usage.reasoning or 0) <= (usage.output or 0)
        assert usage.audio_input in (None, 0)
        assert usage.image is None


def test_costs_derive_again_and_counted_follows_from_them(
    lists: tuple[PriceList, ...], month: list[Receipt]
) -> None:
    by_id = {prices.id: prices for prices in lists}
    for row in month:
        seen = None
        if row.usage_source != "none" and row.price_list is not None and row.provider and row.model_served:
            usage = usage_of_row(row.row())
            result = price(by_id[row.price_list], row.provider, row.model_served, usage, row.admitted_at)
            seen = result.cost_nano_usd if isinstance(result, Priced) else None
        assert row.cost_nano_usd == {"served": seen, "failed": 0}.get(row.status)
        assert row.counted_nano_usd == counted_of(
            status=row.status,
            cost_nano_usd=row.cost_nano_usd,
            hold_nano_usd=row.hold_nano_usd,
            seen_nano_usd=seen,
        )
        assert (row.unpriced_reason is None) == (row.cost_nano_usd is not None or row.status == "refused")


def test_counted_tokens_are_the_meters_or_the_hold(month: list[Receipt]) -> None:
    for row in month:
        expected = 0
        if row.status == "abandoned" or row.unpriced_reason == "usage_missing":
            expected = row.hold_tokens or 0
        elif row.status == "served":
            expected = usage_of_row(row.row()).tokens
        assert row.counted_tokens == expected


def test_a_replay_under_the_caps_of_the_month_repeats_every_refusal(month: list[Receipt]) -> None:
    refused = [row for row in month if row.refusal_code in ("budget_exceeded", "budget_busy")]
    assert refused
    assert min(row.admitted_at for row in refused) >= ARMED_AT
    assert {(row.cap_id, row.cap_scope, row.cap_window) for row in refused} == {(2, "customer", "day")}
    assert replay(month, cap_timeline(LIMIT)) == {row.receipt_id: row.refusal_code for row in refused}


def test_a_replay_of_the_bundled_month_repeats_every_refusal() -> None:
    """From the day of the arming on: no window of the armed cap began before it."""
    frame = pl.read_parquet(DATA / "sample" / "receipts.parquet")
    assert frame.filter(pl.col("admitted_at") < ARMED_AT)["cap_id"].drop_nulls().is_empty()
    frame = frame.filter(pl.col("admitted_at").dt.date() >= ARMED_AT.date())
    month = [Receipt(**{**row, "tags": tuple(row["tags"])}) for row in frame.iter_rows(named=True)]
    refused = {
        row.receipt_id: row.refusal_code
        for row in month
        if row.refusal_code in ("budget_exceeded", "budget_busy")
    }
    assert len(refused) > 3_000
    assert replay(month, cap_timeline()) == refused


def test_the_runaway_spends_most_and_is_refused(month: list[Receipt]) -> None:
    spent: Counter[str | None] = Counter()
    for row in month:
        spent[row.customer] += row.cost_nano_usd or 0
    assert spent.most_common(1)[0][0] == RUNAWAY
    assert {"budget_exceeded"} <= {row.refusal_code for row in month if row.customer == RUNAWAY}


def test_no_armed_cap_is_overrun(month: list[Receipt]) -> None:
    spent: Counter[tuple[str, str]] = Counter()
    for row in month:
        if row.customer is not None and row.admitted_at >= ARMED_AT + timedelta(days=1):
            spent[row.customer, f"{row.admitted_at:%F}"] += row.counted_nano_usd
    assert max(spent.values()) <= LIMIT


def test_hostile_looking_customers_take_part(lists: tuple[PriceList, ...]) -> None:
    rows = generate(customers=20, receipts=2_000, lists=lists)
    assert set(HOSTILE_CUSTOMERS) <= {row.customer for row in rows}


def test_a_frame_of_receipts_has_the_published_schema(month: list[Receipt]) -> None:
    frame = frame_of(month)
    assert frame.schema == RECEIPT_SCHEMA
    assert frame.height == len(month)
    assert frame["tags"].to_list() == [list(row.tags) for row in month]


def test_the_command_writes_the_month_and_says_what_is_in_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "receipts.parquet"
    main(["--out", str(out), "--seed", "7", "--customers", "30", "--receipts", "500"])
    frame = pl.read_parquet(out)
    said = dict(line.rsplit(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert said["receipts"] == f"{frame.height:,}"
    assert '"seed": 7' in pl.read_parquet_metadata(out)["capline.synth"]


def replay(month: Iterable[Receipt], timeline: CapTimeline) -> dict[str, str]:
    """Receipt id to refusal code, by driving `Counters` through the recorded steps."""
    books = [(start, CapBook(caps)) for start, caps in timeline]
    events = [(row.admit_seq, row) for row in month if row.admit_seq is not None]
    events += [(row.settle_seq, row) for row in month if row.settle_seq is not None]
    events.sort(key=lambda event: event[0])
    counters, refusals = Counters(), {}
    for seq, row in events:
        if seq == row.settle_seq:
            requests = int(row.status in ("served", "abandoned"))
            counted = Counted(row.counted_nano_usd, row.counted_tokens, requests)
            counters.settle(row.receipt_id, counted if requests else NOTHING)
            continue
        facts = _facts(row)
        claims = claims_for(next(book for start, book in reversed(books) if start <= row.admitted_at), facts)
        grant = counters.reserve(row.receipt_id, facts, claims)
        decision = verdict(claims, grant.balances, grant.granted)
        if isinstance(decision, Refused):
            refusals[row.receipt_id] = decision.code
    assert list(counters.running()) == []
    return refusals


def _facts(row: Receipt) -> CallFacts:
    return CallFacts(
        who=Attribution(
            organization=row.organization,
            project=row.project,
            key_id=row.key_id,
            customer=row.customer,
            run=row.run,
            tags=row.tags,
            provider=row.provider or "",
            model=row.model_requested or "",
        ),
        at=row.admitted_at,
        hold_nano_usd=row.hold_nano_usd,
        floor_nano_usd=row.floor_nano_usd,
        hold_tokens=row.hold_tokens or 0,
    )
