"""Price files: a list is what its name says, or it does not load."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from toolkit.core.errors import PriceListError
from toolkit.core.pricefile import content_hash, load_price_file, load_price_folder, parse_price_list


def entry(**changed: Any) -> dict[str, Any]:
    return {
        "provider": "openai",
        "model": "m",
        "kind": "chat",
        "tier": "standard",
        "rates": {"input": "0.05", "output": "4"},
        "max_input_tokens": 1,
        "max_output_tokens": 0,
    } | changed


def content(*rows: Any, **changed: Any) -> dict[str, Any]:
    return {
        "schema": "capline-prices-v1",
        "currency": "USD",
        "date": "2026-11-20",
        "rows": list(rows),
    } | changed


def write(folder: Path, body: dict[str, Any], name: str | None = None) -> Path:
    path = folder / (name or f"{body['date']}-{content_hash(body)[:12]}.json")
    path.write_text(json.dumps(body, indent=2), "utf-8")
    return path


def parse(*rows: Any, **changed: Any) -> Any:
    return parse_price_list(content(*rows, **changed), source="list.json")


def test_a_list_loads_with_its_date_hash_and_rows(tmp_path: Path) -> None:
    body = content(
        entry(aliases=["M2"], fees={"web_search": "0.01"}, sources=["a"], effective_from="2026-01-01")
    )
    prices = load_price_file(write(tmp_path, body))
    assert prices.id == f"2026-11-20+sha256:{content_hash(body)[:12]}"
    (row,) = prices.find("openai", "m2")
    assert (row.rates["input"], row.fees["web_search"], row.sources) == (50_000, 10_000_000_000, ("a",))
    assert (row.max_input_tokens, row.max_output_tokens) == (1, 0)
    assert row.id == "openai/m standard @2026-01-01T00:00:00Z"


def test_the_hash_is_of_the_canonical_bytes_and_not_of_the_layout() -> None:
    body = {"b": "ë", "a": [1]}
    assert content_hash(body) == hashlib.sha256('{"a":[1],"b":"ë"}'.encode()).hexdigest()


@pytest.mark.parametrize("name", ["prices.json", "2026-11-20.json", "2026-11-20-0123456789AB.json"])
def test_a_file_with_another_kind_of_name_does_not_load(tmp_path: Path, name: str) -> None:
    with pytest.raises(PriceListError, match="is named <date>-<12 hex"):
        load_price_file(write(tmp_path, content(), name))


def test_a_changed_list_is_a_new_file(tmp_path: Path) -> None:
    name = f"2026-11-20-{content_hash(content(entry()))[:12]}.json"
    with pytest.raises(PriceListError, match="its content hashes to"):
        load_price_file(write(tmp_path, content(entry(model="m3")), name))


def test_the_date_in_the_name_is_the_date_in_the_file(tmp_path: Path) -> None:
    body = content(entry())
    with pytest.raises(PriceListError, match="its date field says '2026-11-20'"):
        load_price_file(write(tmp_path, body, f"2026-11-21-{content_hash(body)[:12]}.json"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "2026-11-20-000000000000.json: "),
        ("[]", "one JSON object"),
        ('{"rows": 0.5}', "0.5 is a JSON number with a fraction"),
        ('{"rows": 1e3}', "1e3 is a JSON number with a fraction"),
        ('{"rows": NaN}', "NaN is a JSON number"),
        ('"\xff"', "one JSON object"),
    ],
)
def test_what_is_no_list_of_decimal_texts_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "2026-11-20-000000000000.json"
    path.write_text(text, "utf-8")
    with pytest.raises(PriceListError, match=said):
        load_price_file(path)


def test_bytes_that_are_not_utf8_and_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    path = tmp_path / "2026-11-20-000000000000.json"
    with pytest.raises(PriceListError, match=path.name):
        load_price_file(path)
    path.write_bytes(b'"\xff"')
    with pytest.raises(PriceListError, match=path.name):
        load_price_file(path)


@pytest.mark.parametrize(
    "changed",
    [{"schema": "capline-prices-v2"}, {"currency": "EUR"}, {"schema": None}],
)
def test_another_schema_or_currency_does_not_load(changed: dict[str, Any]) -> None:
    with pytest.raises(PriceListError, match=r"list\.json: expected schema capline-prices-v1 in USD"):
        parse(entry(), **changed)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"date": "soon"}, "soon"),
        ({"date": 7}, "list.json: "),
        ({"rows": {}}, "rows must be a list"),
        ({"rows": ["m"]}, "rows must be a list"),
    ],
)
def test_a_list_without_date_or_rows_does_not_load(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(PriceListError, match=said):
        parse(**changed)
    body = content()
    del body["rows"]
    with pytest.raises(PriceListError, match="'rows' is missing"):
        parse_price_list(body, source="list.json")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"provider": ""}, "provider must be text"),
        ({"model": 4}, "model must be text"),
        ({"kind": None}, "kind must be text"),
        ({"tier": ""}, "tier must be text"),
        ({"aliases": "m2"}, "aliases must be a list"),
        ({"aliases": [2]}, "aliases must be a list"),
        ({"sources": "a"}, "sources must be a list"),
        ({"rates": None}, "rates must be an object of decimal texts"),
        ({"rates": ["1"]}, "rates must be an object of decimal texts"),
        ({"rates": {"input": 1}}, "rates must be an object of decimal texts"),
        ({"rates": {"input": "1e-6"}}, "is not an amount"),
        ({"rates": {"input": "-1"}}, "is not an amount"),
        ({"rates": {"input": "0.0000001"}}, "7 decimals"),
        ({"rates": {"reasoning": "1"}}, "'reasoning' is not a token meter"),  # B61
        ({"rates": {"cache_read_x": "1"}}, "'cache_read_x' is not a token meter"),
        ({"fees": None}, "fees must be an object"),
        ({"fees": {"web_search": 1}}, "the fee web_search must be decimal text"),
        ({"fees": {"web_search": 0.01}}, "the fee web_search must be decimal text"),
        ({"fees": {"web_search": "-0.01"}}, "is not an amount"),
        ({"fees": {"web_search": {"usd": "1"}}}, "the fee web_search has the fields usd and per"),
        ({"fees": {"web_search": {"usd": "1", "per": 2, "unit": "x"}}}, "has the fields usd and per"),
        ({"fees": {"web_search": {"usd": 1, "per": 2}}}, "the fee web_search must be decimal text"),
        ({"fees": {"web_search": {"usd": "1", "per": 0}}}, "per a whole number of units"),
        ({"fees": {"web_search": {"usd": "1", "per": True}}}, "per a whole number of units"),
        ({"fees": {"websearch": "1"}}, "'websearch' is not a unit"),
        ({"fees": {"openai/m/input": "1"}}, "'openai/m/input' is not a unit"),
        ({"fees": {"images": "100.000001"}}, "images at 100.000001 USD per 1 is beyond any list price"),
        ({"fees": {"image_output_tokens": "0.010001"}}, "is beyond any list price"),
        ({"rates": {"input": "10000.000001"}}, "input at 10000.000001 USD per million tokens is beyond"),
        ({"rates": {}}, "a row has a rate or a fee"),
        ({"rates": {"output": "1"}}, "a chat row that prices output prices input too"),
        ({"rates": {"audio_output": "1"}}, "a chat row that prices output prices input too"),
        ({"kind": "chta"}, "kind 'chta' is none of chat, embedding"),
        ({"tier": "us batch"}, "is not a tier, or not in the order"),
        ({"tier": "batch standard"}, "is not a tier, or not in the order"),
        ({"tier": "batch  us"}, "is not a tier, or not in the order"),
        ({"tier": "Batch"}, "is not a tier, or not in the order"),
        ({"prompt_from": 0}, "prompt_from must be a whole number of tokens, 1 or more"),
        ({"prompt_from": 6, "prompt_above": 5}, "are two thresholds"),
        ({"peak": [1, 4]}, "peak has the fields"),
        ({"peak": {"hours": [[1, 4]], "zone": "UTC"}}, "peak has the fields"),
        ({"peak": {}}, "peak hours are pairs"),
        ({"peak": {"hours": [[4, 4]]}}, "peak hours are pairs"),
        ({"peak": {"hours": [[1, 25]]}}, "peak hours are pairs"),
        ({"peak": {"hours": [[-1, 4]]}}, "peak hours are pairs"),
        ({"peak": {"hours": [[1, 2, 3]]}}, "peak hours are pairs"),
        ({"peak": {"hours": [[1, True]]}}, "peak hours are pairs"),
        ({"peak": {"hours": [[1, 4], [3, 6]]}}, "peak hours are pairs"),
        ({"peak": {"hours": "1-4"}}, "hours must be a list"),
        ({"peak": {"hours": [[1, 4]], "weekdays": [0]}}, "peak weekdays are ISO numbers"),
        ({"peak": {"hours": [[1, 4]], "weekdays": [8]}}, "peak weekdays are ISO numbers"),
        ({"peak": {"hours": [[1, 4]], "except_dates": ["soon"]}}, "soon"),
        ({"max_input_tokens": 0}, "max_input_tokens must be a whole number of tokens, 1 or more"),
        ({"max_input_tokens": True}, "max_input_tokens must be a whole number"),
        ({"max_input_tokens": "5"}, "max_input_tokens must be a whole number"),
        ({"max_output_tokens": -1}, "max_output_tokens must be a whole number of tokens, 0 or more"),
        ({"max_output_tokens": 2**53}, "max_output_tokens must be a whole number"),
        ({"prompt_above": -1}, "prompt_above must be a whole number"),
        ({"effective_from": "2026-01-01T00:00"}, "has no offset"),
        ({"effective_from": 5}, "row openai/m: "),
        ({"effective_from": "0001-01-01T00:00:00+01:00"}, "beyond the years"),
        ({"effective_from": "2026-01-01", "effective_to": "2026-01-01"}, "is not after effective_from"),
        ({"effective_from": "2026-01-02", "effective_to": "2026-01-01"}, "is not after effective_from"),
        ({"effective_form": "2026-01-01"}, "effective_form: no such field"),
    ],
)
def test_a_row_that_is_wrong_is_named_with_the_reason(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(PriceListError, match=said) as refused:
        parse(entry(**changed))
    assert str(refused.value).startswith("list.json: row ")


@pytest.mark.parametrize("field", ["provider", "model", "kind", "tier", "rates", "max_input_tokens"])
def test_a_row_without_a_field_names_it(field: str) -> None:
    raw = entry()
    del raw[field]
    with pytest.raises(PriceListError, match=f"'{field}' is missing"):
        parse(raw)


JUNE, JULY, AUGUST = "2026-06-01", "2026-07-01", "2026-08-01"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {}),
        ({"effective_from": JUNE}, {}),
        ({"effective_from": JUNE, "effective_to": AUGUST}, {"effective_from": JULY}),
        ({"effective_from": JULY}, {"effective_to": AUGUST}),
        ({"aliases": ["x"]}, {"model": "X"}),  # one name, whatever the case
        ({"aliases": ["x"]}, {"model": "n", "aliases": ["X"]}),
        ({"prompt_above": 5}, {"prompt_above": 5}),
        ({"prompt_above": 5}, {"prompt_from": 6}),  # the same prompts in other words
        ({"peak": {"hours": [[1, 4]]}}, {"peak": {"hours": [[6, 10]]}}),  # one peak row lists all its hours
    ],
)
def test_two_rows_of_one_name_are_never_in_force_at_once(one: dict[str, Any], other: dict[str, Any]) -> None:
    for rows in ((entry(**one), entry(**other)), (entry(**other), entry(**one))):
        with pytest.raises(PriceListError, match="two rows in force at once"):
            parse(*rows)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"effective_to": JULY}, {"effective_from": JULY}),  # the end of one is the start of the next
        ({"effective_to": JUNE}, {"effective_from": JULY}),
        ({"tier": "flex"}, {}),
        ({"prompt_above": 5}, {}),
        ({"prompt_above": 5}, {"prompt_from": 5}),
        ({"peak": {"hours": [[1, 4]]}}, {}),
        ({"provider": "azure"}, {}),
        ({"model": "n"}, {}),
    ],
)
def test_rows_that_never_meet_stand_beside_each_other(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert len(parse(entry(**one), entry(**other)).rows) == 2
    assert len(parse(entry(**other), entry(**one)).rows) == 2


def test_a_folder_loads_oldest_first_and_leaves_other_files_alone(tmp_path: Path) -> None:
    write(tmp_path, content(date="2026-11-20"))
    write(tmp_path, content(date="2026-10-18"))
    write(tmp_path, {"date": "x"}, "signed.json")
    (tmp_path / "README.md").write_text("words", "utf-8")
    assert [str(prices.date) for prices in load_price_folder(tmp_path)] == ["2026-10-18", "2026-11-20"]


def test_two_lists_of_one_date_do_not_load_together(tmp_path: Path) -> None:
    write(tmp_path, content(entry()))
    write(tmp_path, content(entry(model="n")))
    with pytest.raises(PriceListError, match="two price lists are dated 2026-11-20"):
        load_price_folder(tmp_path)
