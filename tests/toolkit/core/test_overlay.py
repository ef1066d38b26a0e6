"""Operator prices: they stand for the published ones of their names, tier and time, and nowhere else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.toolkit.core.test_pricefile import content, entry
from toolkit.core.errors import PriceListError
from toolkit.core.overlay import file_name, file_text, list_id, merged, merged_contents, operator_content
from toolkit.core.pricefile import load_price_file, parse_price_list
from toolkit.core.pricing import Priced, PriceList, price
from toolkit.core.usage import Usage
from toolkit.core.windows import parse_instant

NEGOTIATED = {"effective_from": "2026-12-01T00:00:00Z", "rates": {"input": "0.04", "output": "3"}}


def operator(*rows: dict[str, Any], date: str = "2026-12-01", **changed: Any) -> dict[str, Any]:
    return content(*rows, date=date, reason="Contract 17", **changed)


def listed(body: Any) -> PriceList:
    return parse_price_list(body, source="list.json")


def output_cost(prices: PriceList, model: str, at: str, *, tier: str = "standard", prompt: int = 0) -> int:
    """What 1,000 tokens of output cost, in nano-USD; -1 without a price."""
    usage = Usage(input=0, cache_read=prompt, output=1_000)
    found = price(prices, "openai", model, usage, parse_instant(at), tier=tier)
    return found.cost_nano_usd if isinstance(found, Priced) else -1


def test_an_operators_row_prices_from_its_instant_on_and_the_published_one_before() -> None:
    prices = listed(merged(content(entry()), operator(entry(**NEGOTIATED))))
    assert output_cost(prices, "m", "2026-11-30T23:59:59Z") == 4_000_000
    assert output_cost(prices, "m", "2026-12-01T00:00:00Z") == 3_000_000


def test_after_its_end_the_published_price_is_back() -> None:
    over = entry(**NEGOTIATED, effective_to="2027-01-01T00:00:00Z")
    prices = listed(merged(content(entry()), operator(over)))
    assert output_cost(prices, "m", "2026-12-31T23:59:59Z") == 3_000_000
    assert output_cost(prices, "m", "2027-01-01T00:00:00Z") == 4_000_000


def test_other_names_and_other_tiers_keep_the_published_price() -> None:
    published = content(
        entry(aliases=["m-2026", "M-old"]), entry(tier="batch", rates={"input": "1", "output": "2"})
    )
    prices = listed(merged(published, operator(entry(**NEGOTIATED, aliases=["m-OLD"]))))
    at = "2026-12-02T00:00:00Z"
    assert [output_cost(prices, name, at) for name in ("m", "m-old", "m-2026")] == [
        3_000_000,
        3_000_000,
        4_000_000,
    ]
    assert output_cost(prices, "m", at, tier="batch") == 2_000_000


def test_it_stands_for_long_context_and_peak_rows_too() -> None:
    dear = {"input": "1", "output": "40", "cache_read": "0"}
    published = content(
        entry(), entry(prompt_above=10, rates=dear), entry(peak={"hours": [[0, 24]]}, rates=dear)
    )
    over = entry(**NEGOTIATED | {"rates": {"input": "0.04", "output": "3", "cache_read": "0"}})
    prices = listed(merged(published, operator(over)))
    assert output_cost(prices, "m", "2026-12-02T00:00:00Z", prompt=11) == 3_000_000
    assert output_cost(prices, "m", "2026-11-02T00:00:00Z", prompt=11) == 40_000_000


def test_a_model_that_no_list_knows_can_be_priced() -> None:
    prices = listed(merged(content(entry()), operator(entry(**NEGOTIATED, model="my-deployment"))))
    assert output_cost(prices, "my-deployment", "2026-12-02T00:00:00Z") == 3_000_000


def test_a_call_before_the_operators_date_keeps_its_published_list() -> None:
    old, new, next_year = (content(entry(), date=date) for date in ("2026-10-21", "2026-11-20", "2027-02-01"))
    found = merged_contents([next_year, new, old], operator(entry(**NEGOTIATED)))
    assert [body["date"] for body in found] == ["2026-10-21", "2026-11-20", "2026-12-01", "2027-02-01"]
    assert found[:2] == [old, new]
    assert [body.get("operator", {}).get("published") for body in found[2:]] == [
        list_id(new),
        list_id(next_year),
    ]


def test_one_date_has_one_list() -> None:
    same = content(entry(), date="2026-12-01")
    assert [body["date"] for body in merged_contents([same], operator(entry(**NEGOTIATED)))] == ["2026-12-01"]


def test_prices_older_than_every_list_are_in_all_of_them() -> None:
    found = merged_contents([content(entry())], operator(entry(**NEGOTIATED), date="2020-01-01"))
    assert [(body["date"], "operator" in body) for body in found] == [("2026-11-20", True)]


def test_a_merged_list_is_a_price_file_of_its_own(tmp_path: Path) -> None:
    body = merged(content(entry()), operator(entry(**NEGOTIATED)))
    assert list_id(body) != list_id(content(entry(), date="2026-12-01"))
    path = tmp_path / file_name(body)
    path.write_text(file_text(body), "utf-8")
    assert load_price_file(path).id == list_id(body) == listed(body).id


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"reason": " "}, 'say why these prices hold: "reason"'),
        ({"reason": None}, 'say why these prices hold: "reason"'),
        ({"rows": [entry()]}, "openai/m: effective_from is missing"),
        ({"rows": [entry(**NEGOTIATED, surprise=1)]}, "surprise: no such field"),
        ({"currency": "EUR"}, "expected schema"),
    ],
)
def test_a_file_that_does_not_say_enough_is_refused(
    tmp_path: Path, changed: dict[str, Any], words: str
) -> None:
    path = tmp_path / "operator.json"
    path.write_text(json.dumps(operator(entry(**NEGOTIATED)) | changed), "utf-8")
    with pytest.raises(PriceListError, match=words):
        operator_content(path)


def test_a_good_file_is_read_as_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "operator.json"
    path.write_text(json.dumps(operator(entry(**NEGOTIATED))), "utf-8")
    assert operator_content(path) == operator(entry(**NEGOTIATED))


DAYS = st.none() | st.integers(1, 28).map(lambda day: f"2026-12-{day:02}T00:00:00Z")
NAMES = st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True)


@given(st.lists(st.tuples(NAMES, DAYS, DAYS), max_size=2), NAMES, DAYS, DAYS, st.integers(1, 28))
def test_at_every_instant_each_name_has_the_operators_price_or_else_the_published_one(
    overs: list[Any], names: list[str], start: str | None, end: str | None, day: int
) -> None:
    def row(chosen: Any, price: str) -> dict[str, Any]:
        held, since, until = chosen
        rates = {"input": "0", "output": price}
        return entry(model=held[0], aliases=held[1:], effective_from=since, effective_to=until, rates=rates)

    def good(body: Any) -> PriceList | None:
        try:
            return listed(body)
        except PriceListError:
            return None

    published = content(row((names, start, end), "4"))
    over = operator(
        *(row((held, since or "2026-01-01T00:00:00Z", until), "3") for held, since, until in overs)
    )
    before, alone = good(published), good(over)
    if before is None or alone is None:
        return
    prices = listed(merged(published, over))
    at = f"2026-12-{day:02}T00:00:00Z"
    for name in "abcd":
        wanted = output_cost(alone, name, at)
        assert output_cost(prices, name, at) == (wanted if wanted >= 0 else output_cost(before, name, at))
