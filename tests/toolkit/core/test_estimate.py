"""Estimates: a hold that the cost cannot pass, a floor that it cannot miss."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from tests.toolkit.core.builders import AT, prices, row
from toolkit.core.estimate import CallBounds, Estimate, UndeclaredOutput, estimate, nearest_names
from toolkit.core.money import LARGEST_INTEGER
from toolkit.core.pricing import Peak, PriceList, Unpriced

CHEAPEST = row("cheapest", {"input": "0.05", "output": "0.4"})
FULL = row("full", {"input": "2", "cache_read": "0.2", "cache_write_1h": "4", "output": "8", "audio_output": "16"},
           fees={"search": "0.01"}, max_input_tokens=1_000, max_output_tokens=500)  # fmt: skip
LISTED = prices(CHEAPEST, FULL)


def bounds(size: int = 0, **other: Any) -> CallBounds:
    return CallBounds(**{"body_bytes": size, "text_bytes": size} | other)


def of(
    model: str, body: CallBounds, listed: PriceList = LISTED, *, undeclared: UndeclaredOutput = "default"
) -> Estimate:
    return estimate(listed, "openai", model, body, AT, default_output=4_096, undeclared=undeclared)


@pytest.mark.parametrize(
    ("size", "tokens", "nano"),
    [
        (0, 1, 50),  # R067: at least one token, × 50,000 pico
        (3, 1, 50),
        (4, 1, 50),
        (7, 1, 50),
        (8, 2, 100),
        (8_191, 2_047, 102_350),
        (8_192, 2_048, 102_400),  # R044, R068: 2,048 × 0.05 micro = 102.4 micro
        (8_196, 2_049, 102_450),
    ],
)
def test_r067_r068_the_floor_is_a_quarter_of_the_bytes_at_the_cheapest_rate(
    size: int, tokens: int, nano: int
) -> None:
    for model in ("cheapest", "full"):  # R045: of any row of the list, whatever the model
        found = of(model, bounds(size))
        assert (found.floor_tokens, found.floor_nano_usd) == (tokens, nano)


def test_r045_a_floor_is_rounded_down() -> None:
    thin = prices(row("m", {"input": "0.0005"}))
    assert of("m", bounds(12), thin).floor_nano_usd == 1  # 3 × 500 pico = 1.5 nano


def test_r046_the_floor_counts_every_encoded_byte_of_an_image_and_the_hold_does_not() -> None:
    image = of("cheapest", bounds(1_000_000, text_bytes=100, media_tokens=900, output_limit=0))
    assert image.floor_tokens == 250_000
    assert image.input_tokens == 1_000  # 100 bytes of text and 900 tokens for the image


def test_o026_the_hold_is_every_byte_at_the_dearest_input_rate_and_the_whole_output() -> None:
    found = of("cheapest", bounds(8_192, output_limit=1_000))
    # 8,192 × 0.05 + 1,000 × 0.4 = 809.6 micro
    assert found.hold_nano_usd == 809_600
    assert (found.input_tokens, found.output_tokens, found.hold_tokens) == (8_192, 1_000, 9_192)


def test_a_hold_is_rounded_up() -> None:
    thin = prices(row("m", {"input": "0.000001", "output": "0"}))
    assert of("m", bounds(1), thin).hold_nano_usd == 1  # a thousandth of a nano
    assert of("m", bounds(1_000), thin).hold_nano_usd == 1
    assert of("m", bounds(1_001), thin).hold_nano_usd == 2


@pytest.mark.parametrize(("size", "tokens"), [(999, 999), (1_000, 1_000), (1_001, 1_000)])
def test_the_input_is_at_most_what_the_model_can_read(size: int, tokens: int) -> None:
    assert of("full", bounds(size)).input_tokens == tokens


def test_a_body_that_reaches_out_may_fill_the_model_in_every_turn() -> None:
    assert of("full", bounds(10, reaches_out=True)).input_tokens == 1_000
    assert of("full", bounds(10, reaches_out=True, turns=11)).input_tokens == 11_000
    assert of("full", bounds(10, turns=3)).input_tokens == 30


@pytest.mark.parametrize(
    ("meters", "rate"),
    [
        ({"input", "cache_read"}, 2),
        ({"input", "cache_read", "cache_write_1h"}, 4),
        ({"cache_read"}, 0.2),
        ({"image"}, 0),  # the row has no such rate
    ],
)
def test_the_dearest_rate_is_of_the_meters_that_can_occur(meters: set[str], rate: float) -> None:
    found = of("full", bounds(1_000, output_limit=0, prompt_meters=frozenset(meters)))
    assert found.hold_nano_usd == round(1_000 * rate * 1_000)


def test_the_dearer_of_text_and_speech_is_held_for_the_output() -> None:
    assert of("full", bounds(output_limit=10)).hold_nano_usd == 160_000  # 10 × 16 micro


def test_every_choice_may_use_the_whole_output() -> None:
    found = of("cheapest", bounds(10, output_limit=100, choices=3))
    assert found.hold_nano_usd == 500 + 3 * 40_000  # 10 × 50 nano + 3 × 100 × 400 nano
    assert found.hold_tokens == 10 + 3 * 100


def test_paid_tools_are_held_at_their_most_uses() -> None:
    found = of("full", bounds(output_limit=0, fees=(("search", 5),)))
    assert found.hold_nano_usd == 50_000_000  # 5 × 0.01 dollars
    assert of("full", bounds(output_limit=0, fees=(("unlisted", 5),))).hold_nano_usd == 0


@pytest.mark.parametrize(
    ("model", "undeclared", "output"),
    [
        ("cheapest", "default", 4_096),  # B17: bounded, not the whole budget
        ("full", "default", 500),  # never above what the model can write
        ("cheapest", "model_max", 16_000),
        ("full", "model_max", 500),
        ("cheapest", "refuse", 4_096),
    ],
)
def test_b17_an_undeclared_output_has_a_bound(model: str, undeclared: UndeclaredOutput, output: int) -> None:
    assert of(model, bounds(10), undeclared=undeclared).output_tokens == output


@pytest.mark.parametrize("declared", [0, 1, 501])
def test_a_declared_output_limit_is_taken_at_its_word(declared: int) -> None:
    assert of("full", bounds(output_limit=declared)).output_tokens == declared


LONG = prices(
    row("m", {"input": "2", "output": "8"}),
    row("m", {"input": "4", "output": "12"}, prompt_above=1_000),
    row("m", {"input": "1", "output": "40"}, tier="priority"),
    row("m", {"input": "1", "output": "4"}, tier="flex"),
)


@pytest.mark.parametrize(
    ("size", "tier", "nano"),
    [
        (1_000, "standard", 1_000 * 2_000 + 10 * 8_000),  # the long-context row is out of reach
        (1_001, "standard", 1_001 * 4_000 + 10 * 12_000),  # one above: within reach
        (1_000, "priority", 1_000 * 2_000 + 10 * 40_000),  # may be served as either
        (1_000, "flex", 1_000 * 2_000 + 10 * 8_000),
    ],
)
def test_the_hold_covers_every_row_that_the_call_can_incur(size: int, tier: str, nano: int) -> None:
    assert of("m", bounds(size, tier=tier, output_limit=10), LONG).hold_nano_usd == nano


PARTS = prices(
    row("m", {"input": "1", "output": "1"}),
    *[row("m", {"input": rate, "output": "1"}, tier=tier)
      for tier, rate in (("fast", "2"), ("us", "3"), ("fast us", "4"), ("batch", "9"), ("batch us", "9"))],
)  # fmt: skip


@pytest.mark.parametrize(("tier", "rate"), [("standard", 1), ("fast", 2), ("us", 3), ("fast us", 4)])
def test_the_hold_covers_each_part_of_the_tier_that_was_asked(tier: str, rate: int) -> None:
    assert of("m", bounds(1_000, tier=tier, output_limit=0), PARTS).hold_nano_usd == 1_000 * rate * 1_000


def test_the_hold_is_at_the_peak_rate_at_any_hour() -> None:
    quiet = Peak(hours=((AT.hour + 1, AT.hour + 2),))
    listed = prices(
        row("m", {"input": "1", "output": "1"}), row("m", {"input": "2", "output": "3"}, peak=quiet)
    )
    assert of("m", bounds(1_000, output_limit=10), listed).hold_nano_usd == 2_000_000 + 30_000


def test_the_hold_covers_image_tokens_and_parts_of_an_hour() -> None:
    fees: dict[str, int | Fraction] = {
        "image_output_tokens": 40_000_000,
        "seconds": Fraction(1_020_000_000_000, 3_600),
    }
    draws = replace(row("m", {"input": "5"}), fees=fees)
    found = of("m", bounds(10, output_limit=100, fees=(("seconds", 1),)), prices(draws))
    assert found.hold_nano_usd == 50_000 + 4_000_000 + 283_334  # a third of a nano more than 283,333


def test_a_model_of_one_tier_alone_is_held_at_its_rates() -> None:
    only = prices(row("m", {"input": "3", "output": "1"}, tier="flex"))
    assert of("m", bounds(10, tier="flex", output_limit=0), only).hold_nano_usd == 30_000
    found = of("m", bounds(10, output_limit=0), only)
    assert found.unpriced == Unpriced(reason="no_list_price_for_service_tier", price_list=only.id)


def test_r120_a_model_without_a_price_has_neither_hold_nor_floor_and_still_counts_tokens() -> None:
    found = of(
        "unheard-of", bounds(100, media_tokens=20, reaches_out=True, turns=2, output_limit=7, choices=3)
    )
    assert (found.hold_nano_usd, found.floor_nano_usd) == (None, None)
    assert found.unpriced == Unpriced(reason="model_unknown", price_list=LISTED.id)
    assert found.hold_tokens == (100 + 20) * 2 + 7 * 3
    assert of("unheard-of", bounds(100)).hold_tokens == 100 + 4_096


def test_b23_a_free_model_holds_nothing_and_keeps_a_floor() -> None:
    local = prices(CHEAPEST, row("local", {"input": "0", "output": "0"}))
    found = of("local", bounds(8_192), local)
    assert (found.hold_nano_usd, found.floor_nano_usd) == (0, 102_400)
    assert of("local", bounds(8_192), prices(local.rows[1])).floor_nano_usd == 0


def test_bounds_stay_within_the_integers_of_a_receipt() -> None:
    found = of("cheapest", bounds(1, output_limit=2**53, choices=128))
    assert found.hold_tokens == LARGEST_INTEGER
    assert found.hold_nano_usd == LARGEST_INTEGER
    assert of("unheard-of", bounds(1, output_limit=2**53)).hold_tokens == LARGEST_INTEGER


@pytest.mark.parametrize(
    ("room", "fits"),
    [
        (809_600, 1_000),
        (809_599, 999),
        (809_200, 999),
        (410_000, 1),  # 8,192 × 50 = 409,600 for the input and 400 for one token
        (409_999, None),
        (0, None),
        (-5, None),
        (10**12, 16_000),  # never above what the model can write
        (None, 16_000),
    ],
)
def test_o017_the_largest_output_that_fits_is_told_to_the_token(room: int | None, fits: int | None) -> None:
    body = bounds(8_192, output_limit=1_000)
    assert of("cheapest", body).output_that_fits(nano_usd=room, tokens=None) == fits
    if fits is not None and room is not None:
        held = of("cheapest", bounds(8_192, output_limit=fits)).hold_nano_usd
        over = of("cheapest", bounds(8_192, output_limit=fits + 1)).hold_nano_usd
        assert held is not None
        assert over is not None
        assert held <= room
        assert over > room or fits == 16_000


@pytest.mark.parametrize(("room", "fits"), [(106, 2), (105, 1), (104, 1), (103, 1), (102, None), (0, None)])
def test_o017_room_in_tokens_is_shared_by_the_choices(room: int, fits: int | None) -> None:
    found = of("cheapest", bounds(100, output_limit=50, choices=3))
    assert found.output_that_fits(nano_usd=None, tokens=room) == fits
    assert found.output_that_fits(nano_usd=10**12, tokens=room) == fits


@pytest.mark.parametrize(("room", "fits"), [(1_999, None), (2_000, 16_000), (2_001, 16_000)])
def test_o017_a_free_output_fits_when_the_input_does(room: int, fits: int | None) -> None:
    free = prices(row("m", {"input": "2", "output": "0"}))
    assert of("m", bounds(1), free).output_that_fits(nano_usd=room, tokens=None) == fits


def test_o017_a_model_without_a_price_is_bounded_by_its_tokens() -> None:
    found = of("unheard-of", bounds(10, output_limit=50))
    assert found.output_that_fits(nano_usd=5, tokens=None) == 50
    assert found.output_that_fits(nano_usd=None, tokens=12) == 2


def test_b82_the_nearest_listed_ids_help_a_person() -> None:
    assert nearest_names("M.large", ["m-large", "m-small", "other"])[0] == "m-large"
    assert nearest_names("zzzz", ["m-large"]) == []
    assert nearest_names("m" * 10_000_000, ["m" * 256]) == ["m" * 256]  # a name of any length costs the same
