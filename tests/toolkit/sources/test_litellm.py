"""LiteLLM spend logs: every case of the sample by hand, and each rule of the reader from both sides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import toolkit as tk

SAMPLE = Path(__file__).resolve().parents[2] / "data" / "exports" / "litellm_spend_logs.jsonl"
FIRST: dict[str, Any] = json.loads(SAMPLE.read_text().splitlines()[0])


def load(tmp_path: Path, *rows: dict[str, Any] | str) -> tk.Receipts:
    path = tmp_path / "logs"
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return tk.load(path)


def one(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    """The receipt of the first sample row with some keys changed."""
    (row,) = load(tmp_path, FIRST | changes).frame.collect().to_dicts()
    return row


def reason(tmp_path: Path, **changes: Any) -> tuple[str | None, str]:
    """Column and reason for which the changed row is set aside."""
    receipts = load(tmp_path, FIRST | changes)
    assert receipts.manifest.loaded == 0
    ((_, _, column, why),) = receipts.rejected.rows()
    return column, why


# request: status, uncached, cached, output, source, cost, reason. Amounts are spend × 10^9: 0.000835 → 835000.
CASES = {
    "chatcmpl-1": ("served", 1200 - 800, 800, 310, "final", 835_000, None),
    "chatcmpl-2": ("served", 2, None, 10, "partial", 500, None),
    "chatcmpl-3": ("failed", 0, None, 0, "none", 0, None),
    "chatcmpl-4": ("served", None, None, None, "none", 0, None),
    "chatcmpl-5": ("served", 1000, 4000, 600, "final", 18_000_000, None),
    "chatcmpl-6": ("served", 900, None, 90, "partial", None, "zero_spend_with_tokens"),
}


@pytest.mark.parametrize("request_id", CASES)
def test_every_row_of_the_sample(request_id: str) -> None:
    rows = tk.load(SAMPLE).frame.collect().to_dicts()
    (row,) = [row for row in rows if row["receipt_id"] == f"litellm:{request_id}"]
    columns = (
        "status",
        "input_tokens",
        "cache_read_tokens",
        "output_tokens",
        "usage_source",
        "cost_nano_usd",
    )
    assert tuple(row[column] for column in (*columns, "unpriced_reason")) == CASES[request_id]
    assert row["counted_nano_usd"] == (row["cost_nano_usd"] or 0)
    assert row["provider_cost_nano_usd"] is None
    assert row["price_list"] is None


def test_the_sample_is_read_whole() -> None:
    receipts = tk.load(SAMPLE)
    (file,) = receipts.manifest.files
    assert (file.kind, file.read, file.loaded, file.complete) == ("litellm_spend_logs", 6, 6, None)
    assert receipts.rejected.height == 0


def test_attribution(tmp_path: Path) -> None:
    row = one(
        tmp_path,
        end_user="cust-7",
        organization_id="org",
        request_tags=["team:search", "Prod", "User-Agent: x"],
    )
    assert row["customer"] == "cust-7"
    assert row["organization"] == "org"
    assert (row["project"], row["run"], row["key_id"]) == ("team-search", "s1", FIRST["api_key"])
    assert row["tags"] == ["team:search", "tag:Prod", "tag:User-Agent: x"]
    assert (row["model_requested"], row["model_served"]) == ("gpt-5-mini", "gpt-5-mini-2025-08-07")
    assert row["latency_ms"] == 1878


def test_an_empty_end_user_is_no_customer(tmp_path: Path) -> None:
    assert one(tmp_path, end_user="")["customer"] is None


def test_the_provider_in_front_of_a_model_is_taken_off(tmp_path: Path) -> None:
    row = one(tmp_path, model="anthropic/claude-x", custom_llm_provider="anthropic")
    assert row["model_served"] == "claude-x"
    assert (
        one(tmp_path, model="openai/gpt-oss", custom_llm_provider="groq")["model_served"] == "openai/gpt-oss"
    )


@pytest.mark.parametrize(
    ("spend", "nano"),
    [
        ("5e-07", 500),
        ("1e-9", 1),
        ("5e-10", 0),
        ("5.0000000000000001e-10", 1),
        ("1.5e-9", 2),
        ("2.5e-9", 2),
        ("0.1000000000000000055511151231257827", 100_000_000),
        ("12345678.123456789", 12_345_678_123_456_789 // 1),
        ("0.000000002500000000000000000000000000000000001", 3),
    ],
)
def test_spend_is_rounded_once_half_to_even_from_its_text(tmp_path: Path, spend: str, nano: int) -> None:
    line = json.dumps(FIRST).replace(str(FIRST["spend"]), spend, 1)
    row = load(tmp_path, line).frame.collect().row(0, named=True) if nano < 2**53 else None
    if row is None:
        assert load(tmp_path, line).rejected["column"].to_list() == ["cost_nano_usd"]
    else:
        # A spend that rounds to nothing with tokens cannot be told from an unpriced model.
        assert row["cost_nano_usd"] == (nano or None)


def test_spend_may_stand_as_text(tmp_path: Path) -> None:
    assert one(tmp_path, spend="0.000835")["cost_nano_usd"] == 835_000


@pytest.mark.parametrize("spend", [-0.5, None, True, "free", "NaN", "1,5", [], "1e999"])
def test_a_spend_that_is_no_amount_sets_the_row_aside(tmp_path: Path, spend: Any) -> None:
    column, why = reason(tmp_path, spend=spend)
    assert column == "spend"
    assert "no amount in US dollars" in why


def test_a_spend_beyond_all_bounds_sets_the_row_aside(tmp_path: Path) -> None:
    assert reason(tmp_path, spend="9000000001")[0] == "spend"


@pytest.mark.parametrize(
    ("code", "provider", "status", "cost"),
    [
        ("429", "openai", "failed", 0),
        ("400", "openai", "failed", 0),
        ("400", "azure", "abandoned", None),
        ("408", "azure_ai", "abandoned", None),
        ("429", "azure", "failed", 0),
        ("499", "openai", "failed", 0),
        ("500", "openai", "abandoned", None),
        ("502", "openai", "abandoned", None),
        ("503", "openai", "failed", 0),
        ("504", "openai", "abandoned", None),
        ("529", "anthropic", "failed", 0),
        ("", "openai", "abandoned", None),
        (None, "openai", "abandoned", None),
    ],
)
def test_a_failure_costs_nothing_only_where_the_provider_is_known_not_to_bill(
    tmp_path: Path, code: str | None, provider: str, status: str, cost: int | None
) -> None:
    failure = {"status": "failure", "error_information": {"error_code": code}}
    row = one(
        tmp_path, status="failure", spend=0.0, metadata=failure, custom_llm_provider=provider,
        total_tokens=0, prompt_tokens=0, completion_tokens=0,
    )  # fmt: skip
    assert (row["status"], row["cost_nano_usd"]) == (status, cost)
    assert row["unpriced_reason"] == (None if cost == 0 else "outcome_unknown")


def test_a_failure_with_a_spend_keeps_it(tmp_path: Path) -> None:
    row = one(tmp_path, status="failure", metadata={}, spend=0.25)
    assert (row["status"], row["cost_nano_usd"], row["unpriced_reason"]) == ("failed", 250_000_000, None)


def test_a_served_row_without_spend_and_tokens_is_unpriced(tmp_path: Path) -> None:
    row = one(tmp_path, spend=0, metadata={}, total_tokens=0, prompt_tokens=0, completion_tokens=0)
    assert (row["cost_nano_usd"], row["unpriced_reason"]) == (None, "usage_missing")


READ, WRITTEN = {"cache_read_input_tokens": 600}, {"cache_creation_input_tokens": 100}
CHAT = {"prompt_tokens": 1000, "completion_tokens": 50}
TINY = {"prompt_tokens": 1, "completion_tokens": 1}


@pytest.mark.parametrize(
    ("usage", "meters"),
    [
        # prompt 1000 = 300 uncached + 600 read + 100 written, in LiteLLM's spellings
        (
            CHAT | {"prompt_tokens_details": {"cached_tokens": 600, "cache_creation_tokens": 100}},
            (300, 600, 100),
        ),
        (CHAT | READ | WRITTEN, (300, 600, 100)),
        ({"input_tokens": 300, "output_tokens": 50} | READ | WRITTEN, (300, 600, 100)),
        (
            {"input_tokens": 1000, "output_tokens": 50, "input_tokens_details": {"cached_tokens": 600}},
            (400, 600, None),
        ),
    ],
)
def test_each_spelling_of_cached_tokens_becomes_disjoint_meters(
    tmp_path: Path, usage: dict[str, Any], meters: tuple[int, int, int | None]
) -> None:
    row = one(
        tmp_path,
        metadata={"usage_object": usage},
        prompt_tokens=1000,
        completion_tokens=50,
        total_tokens=1050,
    )
    assert (row["input_tokens"], row["cache_read_tokens"], row["cache_write_5m_tokens"]) == meters
    assert row["counted_tokens"] == 1050


@pytest.mark.parametrize(
    ("changes", "column"),
    [
        ({"total_tokens": 1511}, "total_tokens"),
        ({"total_tokens": 1511, "metadata": {}}, "total_tokens"),
        ({"prompt_tokens": -1}, "prompt_tokens"),
        ({"prompt_tokens": 1.5}, "prompt_tokens"),
        (
            {"metadata": {"usage_object": TINY | READ | {"prompt_tokens_details": {"cached_tokens": 0}}}},
            "metadata",
        ),
        ({"metadata": {"usage_object": TINY | READ}}, "metadata"),
        ({"metadata": 7}, "metadata"),
        ({"startTime": "2026-10-01 02:37:50.123"}, "startTime"),
        ({"endTime": None}, "endTime"),
        ({"endTime": "2026-10-01T02:37:49Z"}, "latency_ms"),
        ({"request_id": ""}, "request_id"),
        ({"request_tags": {"a": 1}}, "request_tags"),
        ({"status": "maybe"}, "status"),
        ({"end_user": 7}, "end_user"),
        ({"updated_at": "yesterday"}, "updated_at"),
    ],
)
def test_a_row_that_contradicts_itself_is_set_aside_by_column(
    tmp_path: Path, changes: dict[str, Any], column: str
) -> None:
    assert reason(tmp_path, **changes)[0] == column


def test_metadata_and_tags_may_stand_as_json_text(tmp_path: Path) -> None:
    dumped = one(tmp_path, metadata=json.dumps(FIRST["metadata"]), request_tags='["team:search"]')
    assert dumped == one(tmp_path)


def test_a_bad_line_does_not_cost_the_good_ones(tmp_path: Path) -> None:
    receipts = load(tmp_path, FIRST, '{"request_id": "cut', FIRST | {"request_id": "x"})
    assert (receipts.manifest.read, receipts.manifest.loaded, receipts.manifest.rejected) == (3, 2, 1)
    assert receipts.rejected["line"].to_list() == [2]


def test_the_later_snapshot_of_a_row_supersedes_in_any_order(tmp_path: Path) -> None:
    early = FIRST | {"spend": 0.5}
    late = FIRST | {"updated_at": "2026-10-01T03:00:00Z"}
    for rows in ((early, late), (late, early)):
        receipts = load(tmp_path, *rows)
        assert receipts.frame.collect()["cost_nano_usd"].to_list() == [835_000]
        assert receipts.manifest.duplicates == 1


def test_two_contents_of_one_snapshot_are_refused(tmp_path: Path) -> None:
    with pytest.raises(tk.LoadError, match=r"receipt litellm:chatcmpl-1 differs from the one in .*, line 1"):
        load(tmp_path, FIRST, FIRST | {"spend": 0.5})


def test_daily_sums_are_refused_with_the_way_to_rows(tmp_path: Path) -> None:
    daily = {"startTime": "2026-10-01", "spend": 1.0, "users": {}, "models": {}}
    with pytest.raises(tk.LoadError, match="summarize=false"):
        load(tmp_path, daily)
