"""Pricing: exact ids, the row in force, every meter at its own rate, rounded once."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import pytest

from tests.toolkit.core.builders import AT, prices, row
from toolkit.core.money import LARGEST_INTEGER
from toolkit.core.pricing import (
    Peak,
    Priced,
    PricedLine,
    Unpriced,
    dearest_input_rate,
    dearest_output_rate,
    list_at,
    price,
    row_for,
)
from toolkit.core.usage import METERS, Usage

TICK = timedelta(microseconds=1)
SMALL = row("m-small", {"input": "1", "output": "4", "cache_read": "0.1"}, fees={"search": "0.01"})
LARGE = row(
    "m-large",
    {"input": "4", "output": "20", "cache_read": "0.4", "cache_write_5m": "5", "cache_write_1h": "8"},
    aliases=("m-latest", "Team/M-Large"),
)
LONG = row("m-long", {"input": "2", "output": "8", "cache_read": "0.2"})
LONG_ABOVE = row("m-long", {"input": "4", "output": "12", "cache_read": "0.4"}, prompt_above=200_000)
EU = row("eu.m-large", {"input": "4.4", "output": "22"})
LISTED = prices(SMALL, LARGE, LONG, LONG_ABOVE, EU)


def cost(model: str, usage: Usage) -> int:
    priced = price(LISTED, "openai", model, usage, AT)
    assert isinstance(priced, Priced), priced
    return priced.cost_nano_usd


def reason(model: str, usage: Usage | None = None, *, tier: str = "standard", at: datetime = AT) -> str:
    unpriced = price(LISTED, "openai", model, usage or Usage(input=1, output=1), at, tier=tier)
    assert isinstance(unpriced, Unpriced), unpriced
    return unpriced.reason


@pytest.mark.parametrize(
    ("model", "usage", "nano"),
    [
        # B56: 10 × 4 + 20,000 × 5 + 500 × 20 = 110,040 micro
        ("m-large", Usage(input=10, cache_write_5m=20_000, output=500), 110_040_000),
        # B58: 100 × 4 + 900 × 0.4 + 50 × 20 = 1,760
        ("m-large", Usage(input=100, cache_read=900, output=50), 1_760_000),
        # B64: 20 × 1 + 500 × 4 = 2,020; the 450 of reasoning are inside
        ("m-small", Usage(input=20, output=500, reasoning=450), 2_020_000),
        # B70: 10,000 × 5 + 10,000 × 8 = 130,000
        ("m-large", Usage(cache_write_5m=10_000, cache_write_1h=10_000), 130_000_000),
        # B71: 1,000,000 × 4.4 and × 4
        ("eu.m-large", Usage(input=1_000_000), 4_400_000_000),
        ("m-large", Usage(input=1_000_000), 4_000_000_000),
        # B77: 100 × 1 + 100 × 4 + 2 × 10,000 = 20,500
        ("m-small", Usage(input=100, output=100, units={"search": 2}), 20_500_000),
        # B76: a tool that was declared and not used
        ("m-small", Usage(input=100, output=100, units={"search": 0}), 500_000),
    ],
)
def test_every_meter_is_priced_once_at_its_own_rate(model: str, usage: Usage, nano: int) -> None:
    assert cost(model, usage) == nano


@pytest.mark.parametrize(
    ("prompt", "nano"),
    [
        (199_999, 399_998_000 + 8_000_000),
        (200_000, 400_000_000 + 8_000_000),  # at the threshold: 200,000 × 2 + 1,000 × 8
        (200_001, 800_004_000 + 12_000_000),  # one above: the whole request at 4 and 12
        (300_000, 1_200_000_000 + 12_000_000),  # B68
    ],
)
def test_b65_the_long_context_row_prices_the_whole_request(prompt: int, nano: int) -> None:
    assert cost("m-long", Usage(input=prompt, output=1_000)) == nano


def test_b65_cached_tokens_count_toward_the_threshold() -> None:
    # 190,000 + 20,000 = 210,000 > 200,000: 190,000 × 4 + 20,000 × 0.4 + 1,000 × 12 = 780,000
    assert cost("m-long", Usage(input=190_000, cache_read=20_000, output=1_000)) == 780_000_000
    written = Usage(input=1, cache_read=100_000, cache_write_5m=50_000, cache_write_1h=50_000)
    assert reason("m-long", written) == "rate_missing"  # 200,001 in all, and no rate for writes there
    assert price(LISTED, "openai", "m-long", written, AT).price_row == LONG_ABOVE.id


def test_b65_the_highest_threshold_that_is_passed_decides() -> None:
    steps = [
        row("s", {"input": str(rate)}, prompt_above=above) for rate, above in ((3, 200), (1, None), (2, 100))
    ]
    found = [row_for(prices(*steps), "openai", "s", AT, prompt=prompt) for prompt in (100, 101, 200, 201)]
    assert found == [steps[1], steps[2], steps[2], steps[0]]


@pytest.mark.parametrize(("words", "first"), [("prompt_above", 201), ("prompt_from", 200)])
def test_a_threshold_is_passed_above_it_or_at_it_as_the_row_says(words: str, first: int) -> None:
    base, dear = row("x", {"input": "1"}), row("x", {"input": "2"}, **{words: 200})
    listed = prices(dear, base)
    assert row_for(listed, "openai", "x", AT, prompt=first - 1) == base
    assert row_for(listed, "openai", "x", AT, prompt=first) == dear


def test_a_threshold_without_a_base_row_leaves_short_prompts_without_a_price() -> None:
    only = prices(row("s", {"input": "1"}, prompt_above=0))
    assert isinstance(row_for(only, "openai", "s", AT, prompt=0), Unpriced)
    assert row_for(only, "openai", "s", AT, prompt=1) == only.rows[0]


@pytest.mark.parametrize("name", ["m-large", "M-LARGE", "m-latest", "team/m-large", "TEAM/M-LARGE"])
def test_b73_a_model_is_found_by_its_id_or_a_listed_alias_whatever_the_case(name: str) -> None:
    assert row_for(LISTED, "openai", name, AT) == LARGE


@pytest.mark.parametrize(
    "name",
    [
        "",
        "m",
        "m-larg",
        "m-large-2026",
        "m.large",
        "openai/m-large",
        "m-large:free",
        "us.m-large",
        "large",
        " m-large",
    ],
)
def test_b71_b82_a_model_is_never_found_by_prefix_or_resemblance(name: str) -> None:
    assert reason(name) == "model_unknown"
    assert LISTED.find("openai", name) == ()


def test_a_row_is_its_own_providers() -> None:
    assert price(LISTED, "azure", "m-large", Usage(input=1), AT) == Unpriced(
        reason="model_unknown", price_list=LISTED.id
    )


def test_a_fine_tune_is_priced_by_its_own_listed_base_alone() -> None:
    tuned = prices(
        row("gpt", {"input": "1"}), row("ft:gpt-1", {"input": "3"}), row("ft:gpt-1:acme:x:9", {"input": "7"})
    )
    found = [
        row_for(tuned, "openai", name, AT) for name in ("ft:gpt-1:acme::1", "FT:GPT-1:acme:x:9", "ft:gpt-1")
    ]
    assert found == [tuned.rows[1], tuned.rows[2], tuned.rows[1]]
    for name in ("ft:gpt:acme::1", "ft:gpt-1b:acme::1", "ft:"):
        assert row_for(tuned, "openai", name, AT) == Unpriced(
            reason="fine_tune_base_not_listed", price_list=tuned.id
        )


def test_b85_the_row_in_force_at_admission_prices_the_call() -> None:
    change = datetime(2026, 8, 21, tzinfo=UTC)
    end = datetime(2026, 9, 1, tzinfo=UTC)
    old, new = (
        row("m", {"input": "5"}, effective_to=change),
        row("m", {"input": "4"}, effective_from=change, effective_to=end),
    )
    dated = prices(old, new)
    found = {
        at: row_for(dated, "openai", "m", at)
        for at in (change - TICK, change, change + TICK, end - TICK, end)
    }
    assert [found[at] for at in (change - TICK, change, change + TICK, end - TICK)] == [old, new, new, new]
    assert found[end] == Unpriced(reason="no_rate_at_that_time", price_list=dated.id)


def test_a_call_before_the_first_row_is_not_priced_backwards() -> None:
    later = prices(row("m", effective_from=AT))
    assert isinstance(row_for(later, "openai", "m", AT - TICK), Unpriced)
    assert row_for(later, "openai", "m", AT) == later.rows[0]


def test_a_tier_has_its_own_rates_or_none() -> None:
    flex = row("m-small", {"input": "0.5", "output": "2"}, tier="flex")
    listed = prices(SMALL, flex)
    assert row_for(listed, "openai", "m-small", AT, tier="flex") == flex
    assert row_for(listed, "openai", "m-small", AT) == SMALL
    assert row_for(listed, "openai", "m-small", AT, tier="scale") == Unpriced(
        reason="no_list_price_for_service_tier", price_list=listed.id
    )


PEAK = Peak(hours=((1, 4), (22, 24)), weekdays=frozenset({2, 5}), except_dates=frozenset({date(2026, 12, 4)}))


@pytest.mark.parametrize(
    ("instant", "busy"),
    [
        ("2026-12-01T00:59:59.999999", False),  # a Tuesday
        ("2026-12-01T01:00:00", True),
        ("2026-12-01T03:59:59.999999", True),
        ("2026-12-01T04:00:00", False),
        ("2026-12-01T21:59:59.999999", False),
        ("2026-12-01T22:00:00", True),
        ("2026-12-01T23:59:59.999999", True),
        ("2026-12-02T00:00:00", False),
        ("2026-12-02T02:00:00", False),  # a Wednesday
        ("2026-12-04T02:00:00", False),  # a Friday that is excepted
        ("2026-12-11T02:00:00", True),  # the Friday after
    ],
)
def test_a_peak_row_prices_the_hours_that_it_names_and_the_row_beside_it_the_others(
    instant: str, busy: bool
) -> None:
    plain, peak = row("m", {"input": "1"}), row("m", {"input": "2"}, peak=PEAK)
    at = datetime.fromisoformat(instant).replace(tzinfo=UTC)
    for rows in ((plain, peak), (peak, plain)):
        listed = prices(*rows)
        for moment in (
            at + timedelta(days=1),
            at,
            at - timedelta(hours=3),
            at,
        ):  # what was asked before is no matter
            found = row_for(listed, "openai", "m", moment)
            assert found == (peak if PEAK.holds(moment) else plain)
        assert row_for(listed, "openai", "m", at) == (peak if busy else plain)


def test_a_peak_is_every_day_unless_its_row_says_which() -> None:
    every = Peak(hours=((1, 4),))
    assert all(every.holds(datetime(2026, 12, day, 1, tzinfo=UTC)) for day in range(1, 8))


def test_a_peak_row_stands_beside_rows_of_its_own_key_alone() -> None:
    peak = row("m", {"input": "2"}, peak=Peak(hours=((0, 24),)))
    long, flex = row("m", {"input": "3"}, prompt_above=100), row("m", {"input": "0.5"}, tier="flex")
    listed = prices(row("m", {"input": "1"}), peak, long, flex)
    assert row_for(listed, "openai", "m", AT, prompt=100) == peak
    assert row_for(listed, "openai", "m", AT, prompt=101) == long
    assert row_for(listed, "openai", "m", AT, tier="flex") == flex
    alone = prices(row("m", peak=Peak(hours=((1, 2),))))
    assert isinstance(row_for(alone, "openai", "m", AT), Unpriced)


def test_a_list_that_lacks_a_scheduled_row_has_withdrawn_it() -> None:
    rise = datetime(2027, 1, 1, tzinfo=UTC)
    now, planned = row("m", {"input": "1"}, effective_to=rise), row("m", {"input": "2"}, effective_from=rise)
    scheduled = prices(now, planned, dated=date(2026, 10, 1))
    withdrawn = prices(row("m", {"input": "1"}), dated=date(2026, 11, 1))
    assert row_for(scheduled, "openai", "m", rise) == planned
    for at, listed in (
        (rise - TICK, withdrawn),
        (rise, withdrawn),
        (datetime(2026, 10, 9, tzinfo=UTC), scheduled),
    ):
        assert list_at([scheduled, withdrawn], at) is listed
    assert row_for(withdrawn, "openai", "m", rise) == withdrawn.rows[0]


def test_classes_of_tokens_without_a_meter_are_priced_by_their_fees() -> None:
    draws = prices(row("draws", {"input": "5", "image": "10"}, fees={"image_output_tokens": "0.00004"}))
    usage = Usage(input=50, image=100, units={"image_output_tokens": 1_000})
    priced = price(draws, "openai", "draws", usage, AT)
    assert isinstance(priced, Priced)
    assert priced.cost_nano_usd == (50 * 5 + 100 * 10 + 1_000 * 40) * 1_000


def test_an_hourly_fee_is_exact_for_every_second() -> None:
    heard = replace(row("ears", {"input": "0"}), fees={"seconds": Fraction(1_020_000_000_000, 3_600)})
    for seconds, nano in ((Decimal("3600"), 1_020_000_000), (Decimal("7.5"), 2_125_000), (1, 283_333)):
        priced = price(prices(heard), "openai", "ears", Usage(units={"seconds": seconds}), AT)
        assert isinstance(priced, Priced)
        assert priced.cost_nano_usd == nano


OTHERS = prices(
    row("small", {"input": "2", "output": "10"}),
    row("small", {"input": "1", "output": "5"}, tier="batch"),
    row("vendor/large", {"input": "4", "output": "20"}),
    row("vendor/large", {"input": "8", "output": "40"}, prompt_above=1_000),
)


def test_the_turns_of_another_model_are_priced_at_its_own_row() -> None:
    usage = Usage(
        input=100,
        output=10,
        units={"vendor/large/input": 500, "vendor/large/output": 50, "vendor/large/image": 0},
    )
    priced = price(OTHERS, "openai", "small", usage, AT)
    assert isinstance(priced, Priced)
    # 100 × 2 + 10 × 10 + 500 × 4 + 50 × 20 = 3,300
    assert (priced.cost_nano_usd, priced.price_row) == (3_300_000, "openai/small standard")
    assert priced.lines[2] == PricedLine("vendor/large/input", 500, 4_000_000, 2_000_000_000)
    long = price(OTHERS, "openai", "small", Usage(units={"vendor/large/input": 1_001}), AT)
    assert isinstance(long, Priced)
    assert long.cost_nano_usd == 8_008_000  # its own prompt decides


@pytest.mark.parametrize(
    ("unit", "tier", "reason", "named"),
    [
        ("vendor/larger/input", "standard", "model_unknown", None),
        ("vendor/large/input", "batch", "no_list_price_for_service_tier", None),
        ("vendor/large/cache_read", "standard", "rate_missing", "openai/vendor/large standard"),
        ("vendor/large/web_search", "standard", "rate_missing", "openai/vendor/large standard"),
    ],
)
def test_turns_of_another_model_without_a_price_leave_the_answer_without_one(
    unit: str, tier: str, reason: str, named: str | None
) -> None:
    found = price(OTHERS, "openai", "small", Usage(input=1, units={unit: 1}), AT, tier=tier)
    assert found == Unpriced(reason=reason, price_list=OTHERS.id, price_row=named)


def test_a_result_says_what_it_is() -> None:
    priced = price(LISTED, "openai", "m-small", Usage(input=1), AT)
    assert (priced.status, priced.reason) == ("priced", None)
    assert price(LISTED, "openai", "nobody", Usage(input=1), AT).status == "unpriced"


def test_b61_a_meter_without_a_rate_is_never_free() -> None:
    assert reason("m-small", Usage(input=1, cache_write_5m=1)) == "rate_missing"
    assert reason("m-small", Usage(input=1, units={"images": 1})) == "rate_missing"
    assert cost("m-small", Usage(input=1, cache_write_5m=0, units={"images": 0})) == 1_000


def test_b23_a_rate_of_zero_is_a_price() -> None:
    local = prices(row("m-local", {"input": "0", "output": "0"}))
    priced = price(local, "openai", "m-local", Usage(input=9, output=9), AT)
    assert isinstance(priced, Priced)
    assert (priced.cost_nano_usd, len(priced.lines)) == (0, 2)


def test_null_and_zero_tokens_cost_nothing_and_leave_no_line() -> None:
    for usage in (Usage(), Usage(input=0, output=0)):
        priced = price(LISTED, "openai", "m-small", usage, AT)
        assert isinstance(priced, Priced)
        assert (priced.cost_nano_usd, priced.lines) == (0, ())


@pytest.mark.parametrize(
    ("tokens", "nano"),
    [(1, 0), (3, 2), (5, 2), (7, 4)],  # × 0.0005 micro = 0.5, 1.5, 2.5, 3.5 nano: ties to the even
)
def test_a_tie_goes_to_the_even_nano(tokens: int, nano: int) -> None:
    half = prices(row("m", {"input": "0.0005"}))
    priced = price(half, "openai", "m", Usage(input=tokens), AT)
    assert isinstance(priced, Priced)
    assert priced.cost_nano_usd == nano


def test_the_total_is_rounded_once_and_no_part_of_it() -> None:
    halves = prices(row("m", {"input": "0.0005", "output": "0.0005", "cache_read": "0.0005"}))
    priced = price(halves, "openai", "m", Usage(input=1, output=1, cache_read=1), AT)
    assert isinstance(priced, Priced)
    assert [line.pico_usd for line in priced.lines] == [500, 500, 500]
    assert priced.cost_nano_usd == 2  # 1.5 to the even; part by part it would be 0


def test_seconds_may_be_fractions_and_stay_exact() -> None:
    speech = prices(row("speech", {"output": "0"}, fees={"seconds": "0.0001"}))
    priced = price(speech, "openai", "speech", Usage(units={"seconds": Decimal("0.00000125")}), AT)
    assert isinstance(priced, Priced)
    # 0.0001 dollars are 100,000,000 pico; × 0.00000125 = 125 pico = 0.125 nano
    assert priced.lines == (PricedLine("seconds", Decimal("0.00000125"), 100_000_000, Fraction(125)),)
    assert priced.cost_nano_usd == 0


def test_lines_show_the_arithmetic() -> None:
    priced = price(LISTED, "openai", "m-small", Usage(input=10, output=3, units={"search": 1}), AT)
    assert isinstance(priced, Priced)
    assert priced.lines == (
        PricedLine("input", 10, 1_000_000, 10_000_000),
        PricedLine("output", 3, 4_000_000, 12_000_000),
        PricedLine("search", 1, 10_000_000_000, 10_000_000_000),
    )
    assert (priced.price_list, priced.price_row) == (LISTED.id, SMALL.id)


def test_a_cost_beyond_the_integers_of_a_receipt_is_no_cost() -> None:
    dollar = prices(row("m", {"input": "1000000"}))  # one dollar a token
    most = LARGEST_INTEGER // 10**9  # 9,007,199 dollars
    assert isinstance(price(dollar, "openai", "m", Usage(input=most), AT), Priced)
    over = price(dollar, "openai", "m", Usage(input=most + 1), AT)
    assert isinstance(over, Unpriced)
    assert over.reason == "usage_invalid"


def test_the_id_of_a_row_is_its_own_within_a_list() -> None:
    start = datetime(2026, 8, 16, 16, tzinfo=UTC)
    rows = [
        SMALL,
        LONG_ABOVE,
        row("m", tier="flex", effective_from=start),
        row("m", effective_from=start + TICK),
        row("m", tier="batch us", prompt_from=200_000, peak=PEAK),
    ]
    assert [one.id for one in rows] == [
        "openai/m-small standard",
        "openai/m-long standard >200000",
        "openai/m flex @2026-08-16T16:00:00Z",
        "openai/m standard @2026-08-16T16:00:00.000001Z",
        "openai/m batch us >=200000 peak",
    ]


def test_every_listed_name_of_a_provider_can_be_shown() -> None:
    assert prices(LARGE, row("x", provider="azure")).names("openai") == [
        "m-large",
        "m-latest",
        "team/m-large",
    ]


def test_r045_the_floor_rate_is_the_lowest_that_any_row_in_force_charges_for_input() -> None:
    change = datetime(2026, 6, 1, tzinfo=UTC)
    listed = prices(
        row("a", {"input": "2", "output": "0.01"}, effective_to=change),
        row("a", {"input": "1", "output": "0.01"}, effective_from=change),
        row("b", {"input": "3", "cache_read": "0.3"}, effective_to=change),
        row("free", {"input": "0", "cache_read": "0", "output": "0"}),
    )
    assert listed.floor_rate(change - TICK) == 300_000  # cached reads included, zero and output left out
    assert listed.floor_rate(change) == 1_000_000
    assert listed.floor_rate(change - TICK) == 300_000  # whatever was asked before
    assert prices(row("free", {"input": "0"})).floor_rate(AT) is None
    assert prices().floor_rate(AT) is None


def test_the_list_of_a_call_is_the_newest_at_or_before_its_admission_else_the_oldest() -> None:
    october, november = prices(dated=date(2026, 10, 18)), prices(dated=date(2026, 11, 20))
    assert november.starts == datetime(2026, 11, 20, tzinfo=UTC)
    for lists in ([october, november], [november, october]):
        assert list_at(lists, november.starts - TICK) is october
        assert list_at(lists, november.starts) is november
        assert list_at(lists, october.starts - TICK) is october
    assert list_at([], AT) is None


def test_the_dearest_input_rate_looks_at_the_meters_that_can_occur() -> None:
    assert dearest_input_rate(LARGE, {"input", "cache_read"}) == 4_000_000
    assert dearest_input_rate(LARGE, METERS) == 8_000_000  # the output rate of 20 is no input rate
    assert dearest_input_rate(SMALL, {"cache_write_1h"}) == dearest_input_rate(SMALL, ()) == 0


def test_classes_of_tokens_with_a_fee_count_among_the_dearest_rates() -> None:
    both = replace(
        row("m", {"input": "1", "output": "4"}),
        fees={
            "image_output_tokens": Fraction(80_000_001, 2),
            "cache_read_audio_tokens": 3_000_000,
            "seconds": 10**12,
        },
    )
    assert dearest_input_rate(both, {"input"}) == 3_000_000
    assert dearest_output_rate(both) == 40_000_001  # rounded up
    assert dearest_output_rate(row("m", {"output": "4", "audio_output": "64"})) == 64_000_000
    assert dearest_output_rate(row("m", {"input": "1"})) == 0
