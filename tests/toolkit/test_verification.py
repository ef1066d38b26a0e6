"""`verify`: good, bad with the first bad row named, and cannot tell; the same in every form of an export."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import toolkit as tk
from tests.support.exports import PRICES, Export, abandoned, chained, correction, refused, served
from toolkit.core.chain import row_hash
from toolkit.core.receipts import Receipt

LOST = abandoned(7)
PLAIN = [
    *(served(number) for number in range(5)),
    refused(6),
    served(9, node="n2"),
    LOST,
    correction(8, LOST),
]
ROWS = chained(PLAIN)
FORMS: dict[str, Callable[[Export], bytes]] = {
    "jsonl": Export.jsonl,
    "csv": Export.csv,
    "parquet": Export.parquet,
}


def verify(folder: Path, content: bytes, name: str = "export") -> tk.Verification:
    path = folder / name
    path.write_bytes(content)
    return tk.verify(path, price_lists=[PRICES])


def forged(rows: Sequence[Receipt], at: int, **changes: Any) -> list[Receipt]:
    """`rows` with one changed, everything around it made consistent again: hashes, links, sums."""
    unchained = [replace(row, chain_seq=None, prev_hash=None, row_hash=None) for row in rows]
    unchained[at] = replace(unchained[at], **changes)
    return chained(unchained)


@pytest.mark.parametrize("form", FORMS)
def test_a_whole_month_is_good(tmp_path: Path, form: str) -> None:
    verdict = verify(tmp_path, FORMS[form](Export(ROWS)))
    assert verdict == tk.Verification(
        ok=True,
        first_fault=None,
        faults=0,
        files=1,
        rows=9,
        priced_rows=7,
        cost_nano_usd=sum(row.cost_nano_usd or 0 for row in ROWS),
        counted_nano_usd=sum(row.counted_nano_usd for row in ROWS),
        complete=True,
        notes=(),
    )


@pytest.mark.parametrize("form", FORMS)
def test_a_changed_row_is_named_first(tmp_path: Path, form: str) -> None:
    changed = [*ROWS[:2], replace(ROWS[2], customer="someone-else"), *ROWS[3:]]
    verdict = verify(tmp_path, FORMS[form](Export(changed)))
    assert verdict.ok is False
    assert verdict.first_fault is not None
    assert verdict.first_fault.startswith(f"{tmp_path / 'export'}: receipt r00002 ")
    assert "row_hash does not match the row" in verdict.first_fault
    assert verdict.faults == 1


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("missing", [0, 2, 8])
def test_a_missing_row_is_a_fault_wherever_it_stood(tmp_path: Path, form: str, missing: int) -> None:
    """The header was written over all rows; the footer here agrees with the rows that are left."""

    class Shortened(Export):
        def header(self) -> dict[str, Any]:
            return Export(ROWS).header()

    left = [row for number, row in enumerate(ROWS) if number != missing]
    verdict = verify(tmp_path, FORMS[form](Shortened(left)))
    assert verdict.ok is False


def test_a_gap_names_the_row_after_it(tmp_path: Path) -> None:
    verdict = verify(tmp_path, Export([*ROWS[:2], *ROWS[3:]]).jsonl())
    assert verdict.first_fault is not None
    assert "receipt r00003" in verdict.first_fault
    assert "rows are missing or out of order" in verdict.first_fault


def test_a_chain_that_does_not_begin_at_genesis_is_a_fault(tmp_path: Path) -> None:
    row = replace(ROWS[0], prev_hash="1" * 64)
    row = replace(row, row_hash=row_hash(row.row()))
    verdict = verify(tmp_path, Export([row]).jsonl())
    assert verdict.first_fault is not None
    assert "must follow 64 zeros" in verdict.first_fault


def test_rows_without_hashes_in_an_export_are_a_fault(tmp_path: Path) -> None:
    verdict = verify(tmp_path, Export([*ROWS[:1], PLAIN[1], PLAIN[2]]).jsonl())
    assert verdict.first_fault is not None
    assert "receipt r00001: is not chained" in verdict.first_fault


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"cost_nano_usd": 1, "counted_nano_usd": 1}, "tokens and price list give 6056000"),
        ({"output_tokens": 103}, "tokens and price list give"),
        ({"price_row": "openai/m-small standard"}, "does not price model 'm-large'"),
        ({"price_row": "openai/m-huge standard"}, "has no row 'openai/m-huge standard'"),
        ({"price_row": None}, "has a cost and names no price"),
        ({"audio_input_tokens": 5}, "have no price by 'openai/m-large standard': rate_missing"),
        ({"units": {"web_search": 1}}, "have no price by 'openai/m-large standard': rate_missing"),
        ({"counted_nano_usd": 5}, "counted_nano_usd is 5 where its cost is"),
        ({"status": "refused"}, "counted_nano_usd"),
        ({"status": "abandoned"}, "is abandoned and has a cost"),
    ],
)
def test_a_forged_row_is_found_though_chain_and_sums_hold(
    tmp_path: Path, form: str, changes: dict[str, Any], why: str
) -> None:
    if changes == {"status": "refused"}:
        changes = {"status": "refused", "cost_nano_usd": None}
    verdict = verify(tmp_path, FORMS[form](Export(forged(ROWS, 2, **changes))))
    assert verdict.ok is False
    assert verdict.first_fault is not None
    assert "receipt r00002: " in verdict.first_fault
    assert why in verdict.first_fault


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"counted_nano_usd": 0}, "receipt r00008 corrects r00007; together they count"),
        ({"counted_tokens": 0}, "receipt r00008 corrects r00007; together they count"),
        ({"corrects": "r00003"}, "receipt r00008 corrects r00003, which has a cost"),
        ({"cost_nano_usd": None}, "receipt r00008: corrects a row and has no cost itself"),
    ],
)
def test_a_correction_that_does_not_settle_is_a_fault(
    tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    verdict = verify(tmp_path, Export(forged(ROWS, 8, **changes)).jsonl())
    assert verdict.ok is False
    assert verdict.first_fault is not None
    assert why in verdict.first_fault


def test_a_second_correction_is_a_fault(tmp_path: Path) -> None:
    again = replace(PLAIN[-1], receipt_id="again")
    verdict = verify(tmp_path, Export(chained([*PLAIN, again])).jsonl())
    assert verdict.first_fault is not None
    assert "receipt again corrects r00007, which is corrected already" in verdict.first_fault


def test_a_byte_changed_in_the_header_is_a_fault(tmp_path: Path) -> None:
    verdict = verify(tmp_path, Export(ROWS).jsonl().replace(b"opaque", b"OPAQUE").replace(b"n2", b"n3", 1))
    assert verdict.ok is False


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_a_cut_row_is_bad_and_a_missing_footer_alone_cannot_be_told(tmp_path: Path, form: str) -> None:
    whole = FORMS[form](Export(ROWS))
    without_footer = whole.rstrip(b"\n").rpartition(b"\n")[0]
    assert verify(tmp_path, without_footer[:-100]).ok is False
    verdict = verify(tmp_path, without_footer + b"\n")
    assert (verdict.ok, verdict.first_fault) == (None, None)
    assert "no footer" in verdict.notes[-1]


@pytest.mark.parametrize(
    ("export", "why"),
    [
        (Export(ROWS[:3], complete=False), "does not say that it is complete"),
        (
            Export(ROWS[1:], period=("2026-11-02T00:00:00.000000Z", "2026-12-01T00:00:00.000000Z")),
            "not a whole month",
        ),
        (Export(ROWS[::2], period=("2026-11-01", "2026-11-20")), "gaps cannot be told"),
        (Export(ROWS[2:]), "a chain does not start at its first row"),
    ],
)
def test_a_part_of_a_chain_cannot_be_told(tmp_path: Path, export: Export, why: str) -> None:
    verdict = verify(tmp_path, export.jsonl())
    assert (verdict.ok, verdict.first_fault) == (None, None)
    assert any(why in note for note in verdict.notes)


def test_a_part_still_shows_a_changed_row(tmp_path: Path) -> None:
    changed = [replace(ROWS[1], customer="someone-else"), *ROWS[2:]]
    verdict = verify(tmp_path, Export(changed, period=("2026-11-02", "2026-12-01")).jsonl())
    assert verdict.ok is False


def test_a_price_list_that_is_not_at_hand_cannot_be_told(tmp_path: Path) -> None:
    (tmp_path / "export").write_bytes(Export(ROWS).jsonl())
    verdict = tk.verify([tmp_path / "export"])
    assert (verdict.ok, verdict.priced_rows, verdict.complete) == (None, 0, True)
    assert verdict.notes == (f"price list {PRICES.id} is not at hand: 7 costs were not derived again",)


def test_a_sample_has_no_chain_and_its_costs_are_checked(tmp_path: Path) -> None:
    good = verify(tmp_path, Export(PLAIN).parquet(metadata=False))
    assert (good.ok, good.first_fault, good.priced_rows) == (None, None, 7)
    bad = [replace(PLAIN[0], cost_nano_usd=1, counted_nano_usd=1), *PLAIN[1:]]
    assert verify(tmp_path, Export(bad).parquet(metadata=False)).ok is False


def test_the_sidecar_hash_of_a_parquet_is_checked(tmp_path: Path) -> None:
    content = Export(ROWS).parquet()
    (tmp_path / "export.sha256").write_text(f"{hashlib.sha256(content).hexdigest()}  export\n")
    assert verify(tmp_path, content).ok is True
    (tmp_path / "export.sha256").write_text(f"{'0' * 64}  export\n")
    assert verify(tmp_path, content).ok is False


def test_a_parquet_value_changed_behind_its_hashes_is_found(tmp_path: Path) -> None:
    path = tmp_path / "export"
    path.write_bytes(Export(ROWS).parquet())
    metadata = {
        key: text for key, text in pl.read_parquet_metadata(path).items() if key.startswith("capline")
    }
    moved = (
        pl.when(pl.col("receipt_id") == "r00001").then(pl.lit("x")).otherwise("customer").alias("customer")
    )
    pl.read_parquet(path).with_columns(moved).write_parquet(path, metadata=metadata)
    verdict = tk.verify(path, price_lists=[PRICES])
    assert verdict.first_fault is not None
    assert "receipt r00001" in verdict.first_fault


def test_several_files_give_one_verdict(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(Export(ROWS).jsonl())
    (tmp_path / "b").write_bytes(Export(ROWS).csv())
    verdict = tk.verify([tmp_path / "a", tmp_path / "b"], price_lists=[PRICES])
    assert (verdict.ok, verdict.files, verdict.rows) == (True, 2, 18)


def test_another_systems_file_holds_no_proof(tmp_path: Path) -> None:
    logs = Path(__file__).resolve().parents[1] / "data" / "exports" / "litellm_spend_logs.jsonl"
    with pytest.raises(tk.VerifyError, match="hold no proof"):
        tk.verify(logs)
    with pytest.raises(tk.VerifyError, match="nothing was given"):
        tk.verify([])
    with pytest.raises(tk.LoadError, match="no such file"):
        tk.verify(tmp_path / "absent")


def test_units_are_hashed_as_the_row_has_them(tmp_path: Path) -> None:
    rows = chained([refused(1, units={"seconds": "1.50", "b": 2, "a": 1}, run='quote " and ü')])
    for form in FORMS.values():
        assert verify(tmp_path, form(Export(rows))).ok is True
    assert json.loads(Export(rows).jsonl().splitlines()[1])["units"]["seconds"] == "1.50"
