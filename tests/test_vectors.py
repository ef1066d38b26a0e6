"""The kernel against 100 answers priced by hand from public list prices (tests/data/pricing_vectors.jsonl).

Each vector carries its own rates, so each is priced by a list that is built from them. What the kernel does not read
yet is named in `LATER` with how many vectors it takes: none is left out in silence.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.toolkit.core.builders import prices
from toolkit.core.conventions import anthropic_messages, openai_chat
from toolkit.core.money import parse_rate
from toolkit.core.pricing import Priced, PriceList, PriceRow, Unpriced, price
from toolkit.core.usage import Usage, UsageProblem, within_receipt
from toolkit.core.windows import parse_instant

Vector = dict[str, Any]

VECTORS: list[Vector] = [
    json.loads(line)
    for line in (Path(__file__).parent / "data" / "pricing_vectors.jsonl").read_text("utf-8").splitlines()
]
BY_ID = {vector["id"]: vector for vector in VECTORS}

CONVENTIONS: dict[str, Callable[[Any], Usage | UsageProblem]] = {
    "chat.completions": openai_chat,
    "chat.completions(stream)": openai_chat,
    "embeddings": openai_chat,
    "messages": anthropic_messages,
}

LATER: dict[tuple[str, str], tuple[int, str]] = {
    # (api, category or id): how many, and what must be there first
    ("responses", "*"): (10, "the Responses API"),
    ("generateContent", "*"): (12, "the Gemini API"),
    ("generateContent(vertex)", "*"): (1, "the Gemini API"),
    ("batchGenerateContent", "*"): (1, "batches"),
    ("batch(chat.completions)", "*"): (1, "batches"),
    ("messages(batch)", "*"): (2, "batches"),
    ("converse", "*"): (3, "the Bedrock API"),
    ("audio.transcriptions", "*"): (2, "media priced by the second"),
    ("images.generations", "*"): (1, "image tokens of input and output apart"),
    ("messages(stream)", "*"): (2, "the gateway's stream meter merges events"),
    ("messages(beta advisor)", "*"): (1, "turns of other models inside one answer"),
    ("messages", "geo"): (2, "geography multipliers"),
    ("chat.completions", "time-of-day"): (4, "peak windows"),
    ("messages", "error"): (1, "the gateway knows that an error is not billed"),
    ("chat.completions", "error"): (1, "the gateway knows that an error is not billed"),
    ("chat.completions", "big-002"): (1, "never: 2^53 + 1 tokens are beyond a receipt (contract §10)"),
    ("aggregate", "*"): (3, "sums of many calls, below"),
}


def later(vector: Vector) -> tuple[str, str] | None:
    """The line of `LATER` that a vector falls under."""
    api = vector.get("api", vector["category"])
    lines = ((api, place) for place in ("*", vector["category"], vector["id"]))
    return next((line for line in lines if line in LATER), None)


NOW = [vector for vector in VECTORS if later(vector) is None]
PRICED = [vector for vector in NOW if vector["status"] == "priced"]
UNPRICED = [vector for vector in NOW if vector["status"] == "unpriced"]


def ids(vectors: list[Vector]) -> list[str]:
    return [vector["id"] for vector in vectors]


def test_every_vector_is_priced_here_or_counted_as_later() -> None:
    found = Counter(line for vector in VECTORS if (line := later(vector)) is not None)
    assert found == {line: count for line, (count, _) in LATER.items()}
    assert (len(VECTORS), len(PRICED), len(UNPRICED)) == (100, 42, 10)
    assert len(PRICED) + len(UNPRICED) + sum(count for count, _ in LATER.values()) == 100
    assert {vector["api"] for vector in NOW} == set(CONVENTIONS)


@pytest.mark.parametrize("vector", PRICED, ids=ids(PRICED))
def test_a_priced_vector_costs_its_exact_sum_rounded_once(vector: Vector) -> None:
    priced = ask(vector, prices(row_of(vector)))
    assert isinstance(priced, Priced), priced
    assert priced.cost_nano_usd == nano(vector["exact_micro_usd"])
    # Tokens, and each meter's part of the cost in pico-USD, are those worked out by hand.
    by_hand: dict[str, tuple[object, object]] = {
        meter(part): (part["quantity"], Decimal(part["micro_usd_exact"]) * 10**6)
        for part in vector["components"]
        if part["quantity"] and Decimal(part["rate_usd"])
    }
    assert {line.meter: (line.quantity, line.pico_usd) for line in priced.lines} == by_hand


NEIGHBOURS: dict[str, tuple[str, ...]] = {
    # What a careless look-up would take instead: shorter and longer ids, the base of a fine-tune, another tier.
    "ant-015": ("claude-sonnet-4-5-20250929",),
    "ant-026": ("claude-opus", "claude-opus-5", "claude-opus-6-20261101"),
    "az-003": ("gpt-4o", "my-deployment"),
    "oai-bad-001": ("gpt-4o",),
    "oai-bad-002": ("gpt-4o",),
    "oai-chat-015": ("gpt-5",),
    "oai-ft-004": ("gpt-6-sol-2026-10-01", "ft:gpt-6-sol", "ft:gpt-6-sol-2026-10-01-preview"),
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
    assert ask(vector, listed) == vector["reason"]


LIST_CHANGES = [
    # (before, at, the instant of the change): rows of one model that take turns
    ("oai-date-001", "oai-date-002", "2026-08-21T00:00:00Z"),
    ("tz-001", "oai-date-002", "2026-08-21T00:00:00Z"),
    ("ds-006", "ds-007", "2026-08-16T16:00:00Z"),
    ("ant-008", "ant-009", "2026-03-13T00:00:00Z"),
]


@pytest.mark.parametrize(("before", "after", "change"), LIST_CHANGES)
def test_of_two_dated_rows_each_vector_takes_the_one_in_force(before: str, after: str, change: str) -> None:
    at = parse_instant(change)
    listed = prices(row_of(BY_ID[before], effective_to=at), row_of(BY_ID[after], effective_from=at))
    assert [costs(BY_ID[name], listed) for name in (before, after)] == [
        nano(BY_ID[name]["exact_micro_usd"]) for name in (before, after)
    ]


THRESHOLDS = [
    ("ant-005", "ant-006", 200_000),  # 200,000 and 200,001 tokens
    ("ant-021", "ant-022", 100_000),  # 100,000 and 40,001 + 60,000 cached
]


@pytest.mark.parametrize(("short", "long", "above"), THRESHOLDS)
def test_of_two_context_rows_each_vector_takes_its_own(short: str, long: str, above: int) -> None:
    listed = prices(row_of(BY_ID[short]), row_of(BY_ID[long], prompt_above=above))
    assert [costs(BY_ID[name], listed) for name in (short, long)] == [
        nano(BY_ID[name]["exact_micro_usd"]) for name in (short, long)
    ]


def test_more_tokens_than_a_receipt_can_carry_are_no_usage() -> None:
    usage = openai_chat(BY_ID["big-002"]["usage"])
    assert within_receipt(usage) == UsageProblem("usage_invalid")


@pytest.mark.parametrize("vector", [vector for vector in VECTORS if vector["category"] == "aggregate"])
def test_receipts_in_nano_dollars_add_up_where_micro_dollars_lose_or_invent_money(vector: Vector) -> None:
    total = sum(row["count"] * nano(row["exact_micro_usd_each"]) for row in vector["rows"])
    assert total == nano(vector["sum_exact_micro_usd"])


def ask(vector: Vector, listed: PriceList) -> Priced | str:
    """The cost of a vector's answer, or the reason why there is none."""
    usage = CONVENTIONS[vector["api"]](vector["usage"])
    if isinstance(usage, UsageProblem):
        return usage.reason
    tier = tier_of(vector)
    found = price(
        listed, vector["provider"], vector["model"], usage, parse_instant(vector["timestamp"]), tier=tier
    )
    return found.reason if isinstance(found, Unpriced) else found


def costs(vector: Vector, listed: PriceList) -> int:
    found = ask(vector, listed)
    assert isinstance(found, Priced), found
    return found.cost_nano_usd


def row_of(
    vector: Vector,
    *,
    prompt_above: int | None = None,
    effective_from: datetime | None = None,
    effective_to: datetime | None = None,
) -> PriceRow:
    """The row that a vector's own rates make; a fine-tune is listed by its base."""
    name: str = vector["model"]
    parts = vector["components"]
    return PriceRow(
        provider=vector["provider"],
        model=":".join(name.split(":")[:2]) if name.startswith("ft:") else name,
        tier=tier_of(vector),
        prompt_above=prompt_above,
        effective_from=effective_from,
        effective_to=effective_to,
        rates={meter(part): parse_rate(part["rate_usd"]) for part in parts if part["unit"] == "mtok"},
        fees={
            meter(part): parse_rate(part["rate_usd"], per=1_000) for part in parts if part["unit"] == "kcount"
        },
        max_input_tokens=1,
        max_output_tokens=1,
    )


def tier_of(vector: Vector) -> str:
    """The served tier or speed, as a price list calls it."""
    context = vector["context"]
    tier: str = context.get("service_tier") or context.get("speed") or "standard"
    return tier


def meter(part: dict[str, Any]) -> str:
    item: str = part["item"]
    return item


def nano(micro_usd: str) -> int:
    return int((Decimal(micro_usd) * 1_000).to_integral_value(ROUND_HALF_EVEN))
