"""The bundled month and the schema of its rows: what the README says of it, and what holds in every row."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import jsonschema
import polars as pl
import pytest

from toolkit.core.pricefile import load_price_folder
from toolkit.core.pricing import Priced, PriceList, price
from toolkit.core.receipts import RECEIPT_COLUMNS, Receipt, usage_of_row
from toolkit.core.windows import instant_text
from toolkit.frames import RECEIPT_SCHEMA
from toolkit.synth import ARMED_AT, DAILY_LIMIT, SEED, facts_of, frame_of, generate
from toolkit.synth_world import HOSTILE_CUSTOMERS, RUNAWAY, RUNAWAY_FROM

DATA = Path(__file__).resolve().parents[2] / "data"
SAMPLE = DATA / "sample" / "receipts.parquet"
SCHEMA = json.loads((DATA / "receipt.schema.json").read_text("utf-8"))

_VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
cost, hold, counted = pl.col("cost_nano_usd"), pl.col("hold_nano_usd"), pl.col("counted_nano_usd")


@pytest.fixture(scope="module")
def sample() -> pl.DataFrame:
    return pl.read_parquet(SAMPLE)


@pytest.fixture(scope="module")
def lists() -> tuple[PriceList, ...]:
    return load_price_folder(DATA / "prices")


def test_the_sample_has_the_published_schema_and_is_small(sample: pl.DataFrame) -> None:
    assert sample.schema == RECEIPT_SCHEMA
    assert 95_000 <= sample.height <= 105_000
    assert SAMPLE.stat().st_size < 8_000_000


def test_its_metadata_name_the_seed_and_the_bundled_price_lists(lists: tuple[PriceList, ...]) -> None:
    recipe = json.loads(pl.read_parquet_metadata(SAMPLE)["capline.synth"])
    assert recipe["seed"] == SEED
    assert recipe["price_lists"] == [prices.id for prices in lists]


def test_the_generator_still_gives_the_sample(sample: pl.DataFrame, lists: tuple[PriceList, ...]) -> None:
    rows = islice(generate(lists=lists), 1_500)
    assert frame_of(rows).equals(sample.head(1_500)), "run python -m toolkit.synth again"


def test_the_readme_states_every_fact_of_the_month(sample: pl.DataFrame) -> None:
    readme = (DATA / "sample" / "README.md").read_text("utf-8")
    missing = [
        f"| {name} | {value:,} |"
        for name, value in facts_of(sample).items()
        if f"| {name} | {value:,} |" not in readme
    ]
    assert missing == []
    assert str(SEED) in readme


def test_the_month_is_november_whole(sample: pl.DataFrame) -> None:
    days = sample["admitted_at"].dt.date().unique().sort()
    assert (f"{days[0]}", f"{days[-1]}", len(days)) == ("2026-11-01", "2026-11-30", 30)


def test_ids_are_unique_and_nothing_is_chained(sample: pl.DataFrame) -> None:
    assert sample["receipt_id"].n_unique() == sample["operation_id"].n_unique() == sample.height
    assert sample.select("chain_seq", "prev_hash", "row_hash").null_count().row(0) == (sample.height,) * 3


def test_every_kind_of_row_is_there(sample: pl.DataFrame) -> None:
    facts = facts_of(sample)
    for name in (
        "status served",
        "status refused",
        "status failed",
        "status abandoned",
        "refusal_code budget_exceeded",
        "refusal_code budget_busy",
        "refusal_code invalid_request",
        "refusal_code customer_required",
        "unpriced_reason model_unknown",
        "unpriced_reason usage_missing",
        "unpriced_reason outcome_unknown",
    ):
        assert facts[name] >= 20, name
    for meter in ("cache_read_tokens", "cache_write_5m_tokens", "cache_write_1h_tokens", "reasoning_tokens"):
        assert sample.filter(pl.col(meter) > 0).height >= 500, meter
    for flag in ("stream", "client_left"):
        assert 0 < sample[flag].sum() < sample.height
    unpriced = pl.col("unpriced_reason") == "model_unknown"
    assert sample.filter(unpriced)["counted_tokens"].sum() > 100_000
    assert set(sample["provider"].drop_nulls()) == {"openai", "anthropic"}
    assert len(set(sample["project"].drop_nulls())) == 2
    assert len(set(sample["key_id"])) == 5
    assert set(HOSTILE_CUSTOMERS) <= set(sample["customer"])


def test_two_price_lists_follow_each_other(sample: pl.DataFrame, lists: tuple[PriceList, ...]) -> None:
    assert len(lists) == 2
    asked = sample.filter(pl.col("price_list").is_not_null())
    first = asked.filter(pl.col("admitted_at") < lists[1].starts)
    second = asked.filter(pl.col("admitted_at") >= lists[1].starts)
    assert set(first["price_list"]) == {lists[0].id}
    assert set(second["price_list"]) == {lists[1].id}


def test_a_new_model_gets_its_price_with_the_second_list(sample: pl.DataFrame) -> None:
    new = sample.filter(pl.col("model_requested") == "gpt-6.1-terra", pl.col("status") == "served")
    reasons = new.group_by("price_list").agg(
        pl.col("unpriced_reason").eq("model_unknown").sum().alias("unknown"),
        pl.col("cost_nano_usd").count().alias("priced"),
    )
    first, second = reasons.sort("price_list").iter_rows(named=True)
    assert first["unknown"] > 100
    assert first["priced"] == 0
    assert second["unknown"] == 0
    assert second["priced"] > 100


def test_every_cost_derives_again_from_its_price_list(
    sample: pl.DataFrame, lists: tuple[PriceList, ...]
) -> None:
    by_id = {prices.id: prices for prices in lists}
    served = sample.filter(pl.col("usage_source") == "final").gather_every(9)
    assert served.height > 10_000
    wrong = []
    for row in served.iter_rows(named=True):
        result = price(
            by_id[row["price_list"]],
            row["provider"],
            row["model_served"],
            usage_of_row(row),
            row["admitted_at"],
        )
        derived = result.cost_nano_usd if isinstance(result, Priced) else None
        if (derived, result.price_row) != (row["cost_nano_usd"], row["price_row"]):
            wrong.append(row["receipt_id"])
    assert wrong == []


def test_counted_follows_from_status_cost_and_hold_in_every_row(sample: pl.DataFrame) -> None:
    status = pl.col("status")
    refused, abandoned = status == "refused", status == "abandoned"
    rules = {
        "a priced row counts its cost": (status == "served") & cost.is_not_null() & (counted != cost),
        "a listed model without a cost counts its hold": (status == "served")
        & cost.is_null()
        & (counted != hold.fill_null(0)),
        "an unknown outcome counts at least its hold": abandoned & (counted < hold.fill_null(0)),
        "an abandoned row has no cost": abandoned & cost.is_not_null(),
        "a failed row costs nothing": (status == "failed") & ((cost != 0) | (counted != 0)),
        "a refused row costs and counts nothing": refused & (cost.is_not_null() | (counted != 0)),
        "no cost is above its hold": cost > hold,
        "no floor is above its hold": pl.col("floor_nano_usd") > hold,
    }
    assert [rule for rule, broken in rules.items() if sample.filter(broken).height] == []


def test_meters_are_disjoint_and_within_the_request(sample: pl.DataFrame) -> None:
    served = sample.filter(pl.col("usage_source") == "final")
    prompt = pl.sum_horizontal(
        "input_tokens", "cache_read_tokens", "cache_write_5m_tokens", "cache_write_1h_tokens"
    )
    assert served.filter(prompt + pl.col("output_tokens") != pl.col("counted_tokens")).height == 0
    assert served.filter(prompt > pl.col("request_bytes")).height == 0
    assert served.filter(pl.col("output_tokens") > pl.col("output_limit").fill_null(4096)).height == 0
    assert served.filter(pl.col("reasoning_tokens") > pl.col("output_tokens")).height == 0
    assert served.filter(pl.col("counted_tokens") > pl.col("hold_tokens")).height == 0
    assert sample["request_bytes"].min() >= 400


def test_one_sequence_numbers_all_steps_once(sample: pl.DataFrame) -> None:
    steps = pl.concat([sample["admit_seq"], sample["settle_seq"]]).drop_nulls().sort()
    assert steps.equals(pl.Series("admit_seq", range(1, len(steps) + 1), dtype=pl.Int64))
    by_admission = sample.filter(pl.col("admit_seq").is_not_null()).sort("admit_seq")
    assert by_admission["receipt_id"].is_sorted()
    assert by_admission["admitted_at"].is_sorted()
    assert sample.filter(pl.col("settle_seq").is_not_null()).sort("settle_seq")["settled_at"].is_sorted()


def test_calls_overlap_those_of_one_customer_too(sample: pl.DataFrame) -> None:
    admitted = sample.filter(pl.col("settle_seq").is_not_null()).sort("admit_seq")
    began_before = (pl.col("admit_seq") < pl.col("settle_seq").cum_max().shift()).alias("overlaps")
    assert admitted.select(began_before)["overlaps"].sum() > 10_000
    assert admitted.select(began_before.over("customer"))["overlaps"].sum() > 1_000


def test_the_runaway_is_the_top_spender_and_stops_at_its_cap(sample: pl.DataFrame) -> None:
    by_customer = sample.group_by("customer").agg(cost.sum(), pl.len()).sort("cost_nano_usd", descending=True)
    assert by_customer["customer"][0] == RUNAWAY
    others = by_customer.filter(pl.col("customer") != RUNAWAY)["cost_nano_usd"].sum() // 199
    assert 30 <= by_customer["cost_nano_usd"][0] // others <= 50
    loop = sample.filter(pl.col("customer") == RUNAWAY, pl.col("admitted_at") >= RUNAWAY_FROM)
    days = loop.group_by(pl.col("admitted_at").dt.date().alias("day")).agg(
        counted.sum(), pl.col("refusal_code").eq("budget_exceeded").sum().alias("refused")
    )
    armed = days.filter(pl.col("day") > ARMED_AT.date())
    assert armed.height == 10
    assert armed["counted_nano_usd"].max() <= DAILY_LIMIT
    assert armed["refused"].min() > 100
    assert days.filter(pl.col("day") < ARMED_AT.date())["refused"].sum() == 0


def test_the_schema_describes_every_column_in_order() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert tuple(SCHEMA["properties"]) == RECEIPT_COLUMNS
    assert tuple(SCHEMA["required"]) == RECEIPT_COLUMNS
    assert SCHEMA["additionalProperties"] is False
    for column, described in SCHEMA["properties"].items():
        text = described["description"]
        assert text.endswith("."), column
        assert "null" in text, f"{column} says nothing of null"
        if column.endswith("_nano_usd"):
            assert "nano-USD" in text, column


def test_sampled_rows_satisfy_the_schema(sample: pl.DataFrame) -> None:
    kinds = sample.unique(["status", "refusal_code", "unpriced_reason", "dialect"], maintain_order=True)
    rows = pl.concat([sample.gather_every(250), kinds])
    for row in rows.iter_rows(named=True):
        _VALIDATOR.validate(json_row(row))


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("cost_nano_usd", 1.5),
        ("cost_nano_usd", "44898000"),
        ("cost_nano_usd", -1),
        ("counted_nano_usd", None),
        ("admitted_at", "2026-11-01T00:00:00Z"),
        ("status", "ok"),
        ("tags", ["Agent:x"]),
        ("customer", ""),
        ("units", {"web_search": -1}),
        ("row_hash", "F" * 64),
    ],
)
def test_the_schema_refuses_what_no_receipt_carries(column: str, value: object) -> None:
    at = datetime(2026, 11, 1, tzinfo=UTC)
    row = Receipt(
        receipt_id="rc_1",
        operation_id="op_1",
        admitted_at=at,
        settled_at=at,
        organization="default",
        dialect="openai",
        route="/v1/chat/completions",
        status="served",
        request_bytes=400,
        node="n1",
    ).row()
    _VALIDATOR.validate(row)
    assert not _VALIDATOR.is_valid({**row, column: value})
    assert not _VALIDATOR.is_valid({name: kept for name, kept in row.items() if name != column})


def json_row(row: dict[str, Any]) -> dict[str, Any]:
    """A frame's row as it stands in an export."""
    instants = {name: instant_text(row[name]) for name in ("admitted_at", "settled_at")}
    return {**row, **instants, "units": None if row["units"] is None else json.loads(row["units"])}
