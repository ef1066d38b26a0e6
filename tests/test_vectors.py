"""`tk.price` against 100 answers priced by hand from public list prices (tests/data/pricing_vectors.jsonl).

Each vector carries its own rates, so each is priced by a list that is built from them; the published lists are asked
too, and never give another cost.
"""

from __future__ import annotations

import json
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import toolkit as tk
from tests.toolkit.core.builders import prices
from toolkit.core.money import parse_rate
from toolkit.core.pricing import PriceList, PriceRow
from toolkit.core.windows import parse_instant

Vector = dict[str, Any]

VECTORS: list[Vector] = [
    json.loads(line)
    for line in (Path(__file__).parent / "data" / "pricing_vectors.jsonl").read_text("utf-8").splitlines()
]
BY_ID = {vector["id"]: vector for vector in VECTORS}
ANSWERS = [vector for vector in VECTORS if vector["category"] != "aggregate"]
PRICED = [vector for vector in ANSWERS if vector["status"] in ("priced", "priced_partial")]
UNPRICED = [vector for vector in ANSWERS if vector["status"] == "unpriced"]
NO_CHARGE = [vector for vector in ANSWERS if vector["status"] == "no_charge"]
AGGREGATES = [vector for vector in VECTORS if vector["category"] == "aggregate"]

METER_OF = {
    "cache_write": "cache_write_5m",
    "input_audio": "audio_input",
    "input_image": "image",
    "output_image": "image_output_tokens",
    "audio_seconds": "seconds",
}
"""What the vectors call some of our meters and units."""


def ids(vectors: list[Vector]) -> list[str]:
    return [vector["id"] for vector in vectors]


def test_no_vector_is_left_out() -> None:
    assert len(VECTORS) == 100
    parts = [len(part) for part in (PRICED, UNPRICED, NO_CHARGE, AGGREGATES)]
    assert parts == [81, 14, 2, 3]


@pytest.mark.parametrize("vector", PRICED, ids=ids(PRICED))
def test_a_priced_vector_costs_its_exact_sum_rounded_once(vector: Vector) -> None:
    priced = ask(vector, prices(*rows_of(vector)))
    assert isinstance(priced, tk.Priced), priced
    assert priced.cost_nano_usd == nano(vector["exact_micro_usd"])
    assert (priced.status, priced.reason) == (vector["status"], vector.get("reason"))
    # Tokens, and each meter's part of the cost in pico-USD, are those worked out by hand.
    by_hand: dict[str, tuple[object, object]] = {
        "/".join(filter(None, meter(part))): (
            Decimal(str(part["quantity"])),
            Decimal(part["micro_usd_exact"]) * 10**6,
        )
        for part in vector["components"]
        if part["quantity"] and Decimal(part["rate_usd"])
    }
    assert {line.meter: (line.quantity, line.pico_usd) for line in priced.lines} == by_hand


STREAMED = [
    vector
    for vector in PRICED
    if "(" not in vector["api"] and not vector["api"].startswith(("audio", "images", "embed", "batch"))
]


@pytest.mark.parametrize("vector", STREAMED, ids=ids(STREAMED))
def test_a_streamed_answer_costs_what_a_whole_one_does(vector: Vector) -> None:
    whole: dict[str, Any] = vector["usage"]
    if vector["api"] == "messages":
        start = {**whole, "output_tokens": 1, "cache_read_input_tokens": 0}
        usage: Any = {"message_start": start, "message_delta": [{"output_tokens": 2}, whole]}
    else:
        begun = {name: 1 if type(count) is int else count for name, count in whole.items()}
        usage = [None, begun, whole, None]
    streamed = {**vector, "api": f"{vector['api']}(stream)", "usage": usage}
    listed = prices(*rows_of(vector))
    assert ask(streamed, listed) == ask(vector, listed)


@pytest.mark.parametrize("vector", NO_CHARGE, ids=ids(NO_CHARGE))
def test_an_error_that_is_not_billed_costs_nothing_and_is_not_unpriced(vector: Vector) -> None:
    found = ask(vector, prices())
    assert isinstance(found, tk.Priced)
    assert (found.cost_nano_usd, found.lines, found.status) == (0, (), "no_charge")


NEIGHBOURS: dict[str, tuple[str, ...]] = {
    # What a careless look-up would take instead: shorter and longer ids, the base of a fine-tune, another tier.
    "ant-015": ("claude-sonnet-4-5-20250929",),
    "ant-026": ("claude-opus", "claude-opus-5", "claude-opus-6-20261101"),
    "az-003": ("gpt-4o", "my-deployment"),
    "bed-003": ("abc123", "anthropic.claude-sonnet-4-5-20250929-v1:0"),
    "gem-017": ("gemini-3.8-flash", "gemini-3.8-flash-cyber-preview"),
    "oai-bad-001": ("gpt-4o",),
    "oai-bad-002": ("gpt-4o",),
    "oai-chat-015": ("gpt-5",),
    "oai-ft-004": ("gpt-6-sol-2026-10-01", "ft:gpt-6-sol", "ft:gpt-6-sol-2026-10-01-preview"),
    "oai-resp-003": ("gpt-5.4",),
    "oai-resp-004": ("gpt-5.4",),
    "oai-stream-003": ("gpt-4o",),
    "oai-unk-001": ("gpt-9", "gpt-9-omega-2026-10-01"),
    "orr-002": ("openai/gpt-4o", "gpt-4o", "gpt-4o:free"),
}


@pytest.mark.parametrize("vector", UNPRICED, ids=ids(UNPRICED))
def test_an_unpriced_vector_has_its_reason_whatever_its_neighbours_cost(vector: Vector) -> None:
    rates = {"input": 1_000_000, "output": 1_000_000}
    listed = prices(
        *(
            PriceRow(
                provider=vector["provider"], model=name, rates=rates, max_input_tokens=1, max_output_tokens=1
            )
            for name in NEIGHBOURS[vector["id"]]
        )
    )
    found = ask(vector, listed)
    assert isinstance(found, tk.Unpriced)
    assert (found.reason, found.status) == (vector["reason"], "unpriced")


LIST_CHANGES = [
    # (before, at, the instant of the change): rows of one model that take turns
    ("oai-date-001", "oai-date-002", "2026-08-21T00:00:00Z"),
    ("tz-001", "oai-date-002", "2026-08-21T00:00:00Z"),
    ("ds-006", "ds-007", "2026-08-16T16:00:00Z"),
    ("ant-008", "ant-009", "2026-03-13T00:00:00Z"),
    ("gem-008", "gem-009", "2026-12-01T00:00:00Z"),
]


@pytest.mark.parametrize(("before", "after", "change"), LIST_CHANGES)
def test_of_two_dated_rows_each_vector_takes_the_one_in_force(before: str, after: str, change: str) -> None:
    at = parse_instant(change)
    listed = prices(*rows_of(BY_ID[before], effective_to=at), *rows_of(BY_ID[after], effective_from=at))
    assert [costs(BY_ID[name], listed) for name in (before, after)] == [
        nano(BY_ID[name]["exact_micro_usd"]) for name in (before, after)
    ]


THRESHOLDS = [
    ("ant-005", "ant-006", {"prompt_above": 200_000}),  # 200,000 and 200,001 tokens
    ("ant-021", "ant-022", {"prompt_above": 100_000}),  # 100,000 and 40,001 + 60,000 cached
    ("gem-005", "gem-006", {"prompt_above": 200_000}),  # 200,000 and 200,001 of which 150,000 cached
    ("xai-002", "xai-003", {"prompt_from": 200_000}),  # xAI's begins at 200,000
]


@pytest.mark.parametrize(("short", "long", "threshold"), THRESHOLDS)
def test_of_two_context_rows_each_vector_takes_its_own(
    short: str, long: str, threshold: dict[str, int]
) -> None:
    listed = prices(*rows_of(BY_ID[short]), *rows_of(BY_ID[long], **threshold))
    assert [costs(BY_ID[name], listed) for name in (short, long)] == [
        nano(BY_ID[name]["exact_micro_usd"]) for name in (short, long)
    ]


@pytest.mark.parametrize("vector", AGGREGATES, ids=ids(AGGREGATES))
def test_receipts_in_nano_dollars_add_up_where_micro_dollars_lose_or_invent_money(vector: Vector) -> None:
    total = sum(row["count"] * nano(row["exact_micro_usd_each"]) for row in vector["rows"])
    assert total == nano(vector["sum_exact_micro_usd"])


@pytest.mark.parametrize("vector", ANSWERS, ids=ids(ANSWERS))
def test_the_published_lists_give_every_answer_its_cost(vector: Vector) -> None:
    """One cached rate of 2025 is of nobody's memory: the lists lack it, and the answer has no cost."""
    found = ask(vector, None)
    if vector["id"] == "oai-date-007" or vector["status"] == "unpriced":
        assert isinstance(found, tk.Unpriced)
        assert found.reason == vector.get("reason", "rate_missing")
    else:
        assert isinstance(found, tk.Priced), found
        assert found.cost_nano_usd == (
            0 if vector["status"] == "no_charge" else nano(vector["exact_micro_usd"])
        )
        assert found.status == vector["status"]


def ask(vector: Vector, listed: PriceList | None) -> tk.Priced | tk.Unpriced:
    """What `tk.price` makes of a vector."""
    asked = (vector["provider"], vector["api"], vector["model"], vector["usage"], vector["timestamp"])
    return tk.price(*asked, context=vector["context"], price_list=listed)


def costs(vector: Vector, listed: PriceList) -> int:
    found = ask(vector, listed)
    assert isinstance(found, tk.Priced), found
    return found.cost_nano_usd


def rows_of(vector: Vector, **place: Any) -> list[PriceRow]:
    """The rows that a vector's own rates make, one per model; a fine-tune is listed by its base."""
    own: str = vector["model"]
    own = ":".join(own.split(":")[:2]) if own.startswith("ft:") else own.removeprefix("models/")
    rates: dict[str, dict[str, int]] = {own: {}}
    fees: dict[str, int | Fraction] = {}
    for part in vector["components"]:
        model, item = meter(part)
        usd = Decimal(part["rate_usd"]) * Decimal(part.get("multiplier", 1))
        if part["unit"] == "hour":
            fees[item] = Fraction(usd) * 10**12 / 3_600
        elif part["unit"] == "kcount" or item.endswith("_tokens"):
            fees[item] = parse_rate(format(usd, "f"), per=1_000 if part["unit"] == "kcount" else 1_000_000)
        else:
            rates.setdefault(model or own, {})[item] = parse_rate(format(usd, "f"))
    return [
        PriceRow(
            provider="xai" if vector["provider"] == "x-ai" else vector["provider"],
            model=name,
            tier=tier_of(vector),
            rates=each,
            fees=fees if name == own else {},
            max_input_tokens=1,
            max_output_tokens=1,
            **place,
        )
        for name, each in rates.items()
    ]


def meter(part: dict[str, Any]) -> tuple[str | None, str]:
    """(another model, meter or unit) of a component such as `cache_write` or `advisor claude-opus-5-5 input`."""
    *others, item = part["item"].split(" ")
    return others[-1] if others else None, METER_OF.get(item, item)


def tier_of(vector: Vector) -> str:
    """The served tier, speed, geography or processing, as a price list calls it."""
    said = vector["context"]
    words = (said.get(name) for name in ("processing", "speed", "inference_geo", "deployment_type"))
    word: str = next((word for word in words if word not in (None, "global")), said.get("service_tier"))
    return "data-zone" if word == "data-zone-eu" else word or "standard"


def nano(micro_usd: str) -> int:
    return int((Decimal(micro_usd) * 1_000).to_integral_value(ROUND_HALF_EVEN))
