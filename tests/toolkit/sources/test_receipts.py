"""Our own export in its three forms: whole or refused, and the same rows from each."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import toolkit as tk
from tests.support.exports import Export, abandoned, chained, correction, refused, served
from toolkit.frames import RECEIPT_SCHEMA

LOST = abandoned(5)
FORMULA = '=HYPERLINK("x")'
ROWS = chained(
    [
        served(1),
        served(2, customer=FORMULA, tags=("agent:-1", 'note:"q"\nline two')),
        served(3, customer="'quoted", units={"web_search": 2, "seconds": "1.500000"}, run="\tx"),
        refused(4, customer=None),
        LOST,
        correction(6, LOST),
    ]
)
EXPORT = Export(ROWS)
FORMS: dict[str, bytes] = {"jsonl": EXPORT.jsonl(), "csv": EXPORT.csv(), "parquet": EXPORT.parquet()}
TEXT_FORMS = ("jsonl", "csv")


def put(folder: Path, content: bytes, name: str = "november") -> Path:
    """A file whose name says nothing of its form."""
    path = folder / name
    path.write_bytes(content)
    return path


def rows_of(path: Path, **options: Any) -> list[dict[str, Any]]:
    return tk.load(path, **options).frame.collect().to_dicts()


def expected() -> list[dict[str, Any]]:
    """The rows as a frame holds them."""
    rows = []
    for receipt in sorted(ROWS, key=lambda receipt: (receipt.admitted_at, receipt.receipt_id)):
        row = receipt.row() | {"admitted_at": receipt.admitted_at, "settled_at": receipt.settled_at}
        units = row["units"]
        row["units"] = None if units is None else json.dumps(units, sort_keys=True, separators=(",", ":"))
        rows.append(row)
    return rows


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_every_value_back(tmp_path: Path, form: str) -> None:
    receipts = tk.load(put(tmp_path, FORMS[form]))
    found = receipts.frame.collect()
    assert found.schema == RECEIPT_SCHEMA
    got = found.to_dicts()
    for row in got:
        row["units"] = (
            None
            if row["units"] is None
            else json.dumps(json.loads(row["units"]), sort_keys=True, separators=(",", ":"))
        )
    assert got == expected()
    (file,) = receipts.manifest.files
    assert (file.kind, file.read, file.loaded, file.rejected, file.duplicates) == ("receipts", 6, 6, 0, 0)
    assert file.sha256 == hashlib.sha256(FORMS[form]).hexdigest()
    assert file.complete is True
    assert file.header is not None
    assert file.header["to"] == "2026-12-01T00:00:00.000000Z"
    assert file.footer is not None
    assert file.footer["rows"] == 6


@pytest.mark.parametrize("form", FORMS)
def test_gzip_is_unpacked_and_hashed_as_it_lies_on_disk(tmp_path: Path, form: str) -> None:
    packed = gzip.compress(FORMS[form])
    receipts = tk.load(put(tmp_path, packed))
    assert receipts.manifest.loaded == 6
    assert receipts.manifest.files[0].sha256 == hashlib.sha256(packed).hexdigest()


@pytest.mark.parametrize("form", FORMS)
def test_gzip_that_ends_early_is_refused(tmp_path: Path, form: str) -> None:
    with pytest.raises(tk.LoadError, match="does not unpack, cut off"):
        tk.load(put(tmp_path, gzip.compress(FORMS[form])[:-20]))


def test_the_csv_guards_formulas_and_the_loader_takes_the_guard_off(tmp_path: Path) -> None:
    assert b"'=HYPERLINK" in FORMS["csv"]
    assert b"''quoted" in FORMS["csv"]
    assert b",'-" in FORMS["csv"], "a negative count is guarded too"
    customers = [row["customer"] for row in rows_of(put(tmp_path, FORMS["csv"]))]
    assert FORMULA in customers
    assert "'quoted" in customers


@pytest.mark.parametrize("form", TEXT_FORMS)
def test_an_export_without_its_footer_is_refused_and_taken_in_part_when_told(
    tmp_path: Path, form: str
) -> None:
    cut = FORMS[form].rstrip(b"\n").rpartition(b"\n")[0] + b"\n"
    with pytest.raises(tk.LoadError, match="no footer: it is cut off or plain"):
        tk.load(put(tmp_path, cut))
    part = tk.load(put(tmp_path, cut), strict=False)
    assert (part.manifest.loaded, part.manifest.complete) == (6, False)


@pytest.mark.parametrize("form", TEXT_FORMS)
def test_a_row_that_is_cut_off_is_named_and_set_aside(tmp_path: Path, form: str) -> None:
    cut = FORMS[form].rstrip(b"\n").rpartition(b"\n")[0][:-40]
    path = put(tmp_path, cut)
    # JSON lines: the header, then rows on lines 2 to 7. CSV: header and head, then rows on lines 3 to 8.
    line = {"jsonl": 7, "csv": 8}[form]
    with pytest.raises(tk.LoadError, match=f"line {line}") as caught:
        tk.load(path)
    assert (caught.value.file, caught.value.line) == (str(path), line)
    part = tk.load(path, strict=False)
    assert (part.manifest.read, part.manifest.loaded, part.manifest.rejected) == (6, 5, 1)
    assert part.rejected.row(0)[:2] == (str(path), line)


def test_a_csv_cut_inside_a_quoted_cell_is_refused(tmp_path: Path) -> None:
    cut = FORMS["csv"][: FORMS["csv"].index(b"line two")]
    with pytest.raises(tk.LoadError, match="not CSV: unexpected end of data"):
        tk.load(put(tmp_path, cut), strict=False)


@pytest.mark.parametrize("form", TEXT_FORMS)
def test_a_changed_amount_is_seen_by_the_sum_and_named(tmp_path: Path, form: str) -> None:
    cost = str(ROWS[0].cost_nano_usd).encode()
    changed = FORMS[form].replace(cost, str(int(cost) + 1).encode(), 1)
    with pytest.raises(tk.LoadError, match=r"column cost_nano_usd: adds up to \d+; the footer says \d+"):
        tk.load(put(tmp_path, changed))


@pytest.mark.parametrize("form", TEXT_FORMS)
def test_a_changed_name_is_seen_by_the_hash(tmp_path: Path, form: str) -> None:
    with pytest.raises(tk.LoadError, match="a byte was changed"):
        tk.load(put(tmp_path, FORMS[form].replace(b"cust-1", b"cust-2", 1)))


def test_a_parquet_whose_hashes_were_changed_is_refused(tmp_path: Path) -> None:
    path = put(tmp_path, FORMS["parquet"])
    metadata = pl.read_parquet_metadata(path)
    pl.read_parquet(path).with_columns(row_hash=pl.lit("0" * 64)).write_parquet(
        path, metadata={key: text for key, text in metadata.items() if key.startswith("capline")}
    )
    with pytest.raises(tk.LoadError, match="a byte was changed"):
        tk.load(path)


@pytest.mark.parametrize("form", TEXT_FORMS)
def test_a_missing_row_is_seen_by_the_count(tmp_path: Path, form: str) -> None:
    lines = FORMS[form].split(b"\n")
    del lines[2]
    with pytest.raises(tk.LoadError, match="holds 5 rows; its footer says 6"):
        tk.load(put(tmp_path, b"\n".join(lines)))


def test_another_recipe_is_refused(tmp_path: Path) -> None:
    with pytest.raises(tk.LoadError, match=r"recipe 'capline-chain-v2'; this version knows capline-chain-v1"):
        tk.load(put(tmp_path, FORMS["jsonl"].replace(b"chain-v1", b"chain-v2", 1)))


@pytest.mark.parametrize("form", TEXT_FORMS)
def test_a_byte_order_mark_and_other_line_ends_are_read_but_break_the_hash(tmp_path: Path, form: str) -> None:
    saved = b"\xef\xbb\xbf" + FORMS[form].replace(b"\n", b"\r\n")
    path = put(tmp_path, saved)
    with pytest.raises(tk.LoadError, match="a byte was changed"):
        tk.load(path)
    assert tk.load(path, strict=False).manifest.loaded == 6


def test_a_plain_csv_is_taken_only_as_a_part(tmp_path: Path) -> None:
    path = put(tmp_path, EXPORT.csv(plain=True))
    with pytest.raises(tk.LoadError, match="plain export cannot prove itself"):
        tk.load(path)
    assert rows_of(path, strict=False) == rows_of(put(tmp_path, FORMS["csv"], "whole"))


@pytest.mark.parametrize("form", FORMS)
def test_an_export_without_rows_is_no_usage_and_no_error(tmp_path: Path, form: str) -> None:
    writers: dict[str, Callable[[Export], bytes]] = {
        "jsonl": Export.jsonl,
        "csv": Export.csv,
        "parquet": Export.parquet,
    }
    receipts = tk.load(put(tmp_path, writers[form](Export([]))))
    assert receipts.frame.collect().height == 0
    assert receipts.manifest.complete is True


def test_parquet_without_metadata_is_a_sample_only_when_it_has_no_hashes(tmp_path: Path) -> None:
    sample = put(tmp_path, Export([served(1), served(2)]).parquet(metadata=False), "sample")
    assert tk.load(sample).manifest.files[0].kind == "sample"
    with pytest.raises(tk.LoadError, match="plain export cannot prove itself"):
        tk.load(put(tmp_path, EXPORT.parquet(metadata=False)))


def test_a_parquet_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    with pytest.raises(tk.LoadError, match="no Parquet file that can be read whole"):
        tk.load(put(tmp_path, FORMS["parquet"][:-30]))


def test_a_parquet_of_something_else_is_refused_by_its_column(tmp_path: Path) -> None:
    path = tmp_path / "other"
    pl.DataFrame({"a": [1]}).write_parquet(path)
    with pytest.raises(tk.LoadError, match="column receipt_id: a receipts frame needs this column"):
        tk.load(path)


@pytest.mark.parametrize("form", FORMS)
def test_the_hash_beside_a_file_is_checked(tmp_path: Path, form: str) -> None:
    path = put(tmp_path, FORMS[form])
    beside = path.with_name("november.sha256")
    beside.write_text(f"{hashlib.sha256(FORMS[form]).hexdigest()}  november\n")
    assert tk.load(path).manifest.loaded == 6
    beside.write_text(f"{'0' * 64}  november\n")
    with pytest.raises(tk.LoadError, match=r"the \.sha256 beside it says 000"):
        tk.load(path)


@pytest.mark.parametrize(
    ("column", "text", "reason"),
    [
        ("cost_nano_usd", "1.5", "1.5 is no whole number"),
        ("cost_nano_usd", "1e9", "is no whole number"),
        ("cost_nano_usd", '"7"', "'7' is no whole number"),
        ("cost_nano_usd", "true", "True is no whole number"),
        ("cost_nano_usd", "-7", "-7 is not between 0 and 9007199254740991"),
        ("input_tokens", "9007199254740992", "9007199254740992 is not between"),
        ("stream", "0", "0 is no true or false"),
        ("customer", "7", "7 is no text"),
        ("status", '"free"', "'free' is none of served, refused, failed, abandoned"),
        ("status", "null", "null is none of"),
        ("receipt_id", "null", "null is missing"),
        ("counted_nano_usd", "null", "null is missing"),
        ("admitted_at", '"2026-11-01"', "is no instant like"),
        ("admitted_at", '"2026-13-01T00:00:00.000000Z"', "is no instant like"),
        ("tags", '"a:b"', "is no list of texts"),
        ("tags", "[1]", "is no list of texts"),
        ("units", '{"search":1.5}', "is no object of counts"),
        ("units", '{"search":-1}', "is no object of counts"),
        ("customer", r'"\ud800"', "half a surrogate pair"),
    ],
)
def test_a_bad_value_is_set_aside_with_line_column_and_reason(
    tmp_path: Path, column: str, text: str, reason: str
) -> None:
    line = json.dumps(ROWS[0].row() | {column: "HERE"}, separators=(",", ":")).replace('"HERE"', text)
    path = put(tmp_path, json.dumps(ROWS[1].row()).encode() + b"\n" + line.encode() + b"\n")
    receipts = tk.load(path, strict=False)
    assert receipts.frame.collect()["receipt_id"].to_list() == ["r00002"]
    ((file, number, named, why),) = receipts.rejected.rows()
    assert (file, number) == (str(path), 2)
    assert named == (None if "surrogate" in reason else column)
    assert reason in why


@pytest.mark.parametrize("line", [b"[1]", b"nothing", b'{"a":NaN}', b'{"a":1', b"\xff\xfe", b"[" * 100_000])
def test_a_line_that_is_no_object_is_set_aside(tmp_path: Path, line: bytes) -> None:
    path = put(tmp_path, json.dumps(ROWS[0].row()).encode() + b"\n" + line + b"\n")
    receipts = tk.load(path, strict=False)
    assert (receipts.manifest.loaded, receipts.manifest.rejected) == (1, 1)
    assert receipts.rejected["line"].to_list() == [2]


@pytest.mark.parametrize(
    ("change", "column"),
    [(lambda row: row.pop("run"), "run"), (lambda row: row.update(extra=1), "extra")],
)
def test_a_row_with_other_columns_is_set_aside(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], column: str
) -> None:
    row = ROWS[0].row()
    change(row)
    receipts = tk.load(put(tmp_path, json.dumps(row).encode() + b"\n"), strict=False)
    assert receipts.rejected["column"].to_list() == [column]


def test_a_csv_with_another_head_is_refused_by_its_column(tmp_path: Path) -> None:
    with pytest.raises(tk.LoadError, match="line 2, column run: this column of a receipt is missing"):
        tk.load(put(tmp_path, FORMS["csv"].replace(b",run,", b",job,", 1)))


def test_a_csv_that_is_not_utf_8_is_refused_with_line_and_byte(tmp_path: Path) -> None:
    with pytest.raises(tk.LoadError, match="line 3: not UTF-8 at byte"):
        tk.load(put(tmp_path, FORMS["csv"].replace(b"cust-1", b"cust-\xff", 1)))


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("input_tokens", pl.lit(-1), "-1 is not between 0 and"),
        ("cost_nano_usd", pl.lit(2**53), "is not between 0 and"),
        ("counted_nano_usd", pl.lit(-(2**53)), "is not between -"),
        ("organization", pl.lit(None, dtype=pl.String), "null is missing"),
        ("status", pl.lit("free"), "'free' is none of"),
    ],
)
def test_parquet_values_are_checked_like_text(
    tmp_path: Path, column: str, value: pl.Expr, reason: str
) -> None:
    path = put(tmp_path, Export([served(1), served(2)]).parquet(metadata=False))
    changed = pl.when(pl.col("receipt_id") == "r00002").then(value).otherwise(column).alias(column)
    pl.read_parquet(path).with_columns(changed).write_parquet(path)
    receipts = tk.load(path)
    assert receipts.frame.collect()["receipt_id"].to_list() == ["r00001"]
    ((_, line, named, why),) = receipts.rejected.rows()
    assert (line, named) == (2, column)
    assert reason in why
