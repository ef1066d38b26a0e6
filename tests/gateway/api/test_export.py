"""The ledger export (contract §11), checked without the code that wrote it."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from sqlalchemy import event

import toolkit as tk
from gateway.stores import ledger_pages
from tests.support.exports import abandoned, correction, instant, refused, served
from tests.support.gateway import Harness
from tests.support.provider import Reply, Seen, chat_answer
from toolkit.core.chain import GENESIS, check_chain
from toolkit.core.receipts import RECEIPT_COLUMNS, Receipt

Write = Callable[[Iterable[Receipt]], Awaitable[None]]

HOSTILE = [
    '=cmd|" /C calc"!A0',
    "+1",
    "-1",
    "@SUM(A1)",
    "'quoted",
    "\ttab",
    "\rreturn",
    "a\nb",
    'a"b',
    "客戶-7",
    "plain",
]


def november() -> list[Receipt]:
    """A month with hostile names, refusals, a call without a cost and its correction."""
    lost = abandoned(80)
    hostile = [served(100 + number, customer=name, run=name) for number, name in enumerate(HOSTILE)]
    metered = served(90, units={"web_search": 2, "seconds": Decimal("1.5")}, service_tier="priority")
    return [
        *(served(number) for number in range(10)),
        refused(40),
        lost,
        *hostile,
        metered,
        correction(81, lost),
    ]


async def fetch(gateway: Harness, query: str) -> bytes:
    """One export."""
    reply = await gateway.api("GET", f"/v1/ledger/export?{query}")
    assert reply.status_code == 200, reply.text
    return reply.content


def parts_of(content: bytes) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any], bytes]:
    """Header, rows and footer of a JSON lines export, and the bytes before the footer."""
    lines = content.splitlines(keepends=True)
    header, *rows, footer = (json.loads(line) for line in lines)
    return header, rows, footer, content[: -len(lines[-1])]


async def test_json_lines_prove_themselves(gateway: Harness, write: Write) -> None:
    receipts = november()
    await write(receipts)
    header, rows, footer, before = parts_of(await fetch(gateway, "month=2026-11"))
    assert [row["receipt_id"] for row in rows] == [receipt.receipt_id for receipt in receipts]
    assert all(tuple(row) == RECEIPT_COLUMNS for row in rows)
    assert check_chain(rows) == []
    assert {key: header[key] for key in ("recipe", "from", "to", "complete")} == {
        "recipe": "capline-chain-v1",
        "from": "2026-11-01T00:00:00.000000Z",
        "to": "2026-12-01T00:00:00.000000Z",
        "complete": True,
    }
    chain = {"node": "n1", "month": "2026-11", "genesis": GENESIS, "first_seq": 1, "rows": len(rows)}
    assert header["chains"] == [{**chain, "head": rows[-1]["row_hash"]}]
    assert header["price_lists"] == sorted({receipt.price_list for receipt in receipts if receipt.price_list})
    assert footer["rows"] == len(receipts)
    assert footer["cost_nano_usd"] == sum(receipt.cost_nano_usd or 0 for receipt in receipts)
    assert footer["counted_nano_usd"] == sum(receipt.counted_nano_usd for receipt in receipts)
    assert footer["sha256"] == hashlib.sha256(before).hexdigest()


async def test_the_three_formats_hold_the_same_rows(gateway: Harness, write: Write) -> None:
    await write(november())
    header, rows, footer, _ = parts_of(await fetch(gateway, "month=2026-11"))

    content = await fetch(gateway, "month=2026-11&format=csv")
    lines = content.split(b"\r\n")
    assert lines.pop() == b""
    assert json.loads(lines[0].removeprefix(b"# ")) == header
    said = json.loads(lines[-1].removeprefix(b"# "))
    assert said["sha256"] == hashlib.sha256(content[: -len(lines[-1]) - 2]).hexdigest()
    own = {"sha256", "footer_sha256"}
    assert {key: said[key] for key in said.keys() - own} == {key: footer[key] for key in footer.keys() - own}
    table = content[len(lines[0]) + 2 : -len(lines[-1]) - 2].decode()
    head, *cells = csv.reader(io.StringIO(table, newline=""))
    assert tuple(head) == RECEIPT_COLUMNS
    assert [[as_cell(row[column]) for column in RECEIPT_COLUMNS] for row in rows] == cells

    parquet = pq.read_table(io.BytesIO(await fetch(gateway, "month=2026-11&format=parquet")))
    metadata = parquet.schema.metadata
    assert json.loads(metadata[b"capline.header"]) == header
    said = json.loads(metadata[b"capline.footer"])
    hashes = "".join(f"{row['row_hash']}\n" for row in rows)
    assert (said["rows"], said["sha256"]) == (len(rows), hashlib.sha256(hashes.encode()).hexdigest())
    typed = parquet.to_pylist()
    for column in ("customer", "tags", "cost_nano_usd", "counted_nano_usd", "stream", "row_hash"):
        assert [row[column] for row in typed] == [row[column] for row in rows]
    assert [row["admitted_at"].isoformat() for row in typed] == [
        row["admitted_at"].replace(".000000Z", "+00:00") for row in rows
    ]
    assert json.loads(typed[-2]["units"]) == {"web_search": 2, "seconds": "1.5"}


def as_cell(value: Any) -> str:
    """A value as contract §11 wants it in a CSV."""
    if value is None:
        return ""
    text = (
        json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        if isinstance(value, bool | list | dict)
        else str(value)
    )
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "'", "\t", "\r") else text


async def test_no_cell_is_a_formula_and_plain_leaves_both_comment_lines_out(
    gateway: Harness, write: Write
) -> None:
    await write(november())
    content = await fetch(gateway, "month=2026-11&format=csv&plain=1")
    rows = list(csv.DictReader(io.StringIO(content.decode(), newline="")))
    assert len(rows) == len(november())
    assert not any(cell[:1] in ("=", "+", "-", "@", "\t", "\r") for row in rows for cell in row.values())
    customers = [row["customer"] for row in rows if row["run"]]
    assert customers == [f"'{name}" if name[0] in "=+-@'\t\r" else name for name in HOSTILE]


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
async def test_the_loader_takes_every_format_and_finds_nothing_wrong(
    gateway: Harness, write: Write, tmp_path: Path, form: str
) -> None:
    await write(november())
    path = tmp_path / f"november.{form}"
    path.write_bytes(await fetch(gateway, f"month=2026-11&format={form}"))
    receipts = tk.load(path)
    assert (receipts.manifest.loaded, receipts.manifest.complete) == (len(november()), True)
    customers = receipts.frame.filter(run="a\nb").collect()["customer"].to_list()
    assert customers == ["a\nb"]


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
async def test_an_export_that_was_cut_or_changed_is_refused(
    gateway: Harness, write: Write, tmp_path: Path, form: str
) -> None:
    await write(november())
    content = await fetch(gateway, f"month=2026-11&format={form}")
    path = tmp_path / f"cut.{form}"
    # In a Parquet file the footer hashes the rows' own hashes, so there a changed cell is for `verify` to find.
    changed = [] if form == "parquet" else [content.replace(b"cust-1", b"cust-2")]
    for wrong in (content[: len(content) // 2], *changed):
        path.write_bytes(wrong)
        with pytest.raises(tk.LoadError):
            tk.load(path)


async def test_an_empty_month_is_complete_and_holds_nothing(gateway: Harness) -> None:
    for form in ("jsonl", "csv", "parquet"):
        assert await fetch(gateway, f"month=2026-11&format={form}")
    header, rows, footer, _ = parts_of(await fetch(gateway, "month=2026-11"))
    assert (header["complete"], header["chains"], rows, footer["rows"]) == (True, [], [], 0)


async def test_increments_join_to_the_whole(gateway: Harness, write: Write) -> None:
    receipts = november()
    seen: list[str] = []
    after = ""
    for start in range(0, len(receipts), 7):
        await write(receipts[start : start + 7])
        header, rows, footer, _ = parts_of(await fetch(gateway, after))
        assert header["complete"] is False
        seen.extend(row["receipt_id"] for row in rows)
        after = f"after_seq={footer['next_seq']}"
    assert seen == [receipt.receipt_id for receipt in receipts]
    _, rows, footer, _ = parts_of(await fetch(gateway, after))
    assert (rows, f"after_seq={footer['next_seq']}") == ([], after)


async def test_a_month_is_complete_when_it_is_over_and_none_of_its_calls_runs(gateway: Harness) -> None:
    gateway.clock.at = instant(30, 23)
    assert parts_of(await fetch(gateway, "month=2026-11"))[0]["complete"] is False
    found: list[bool] = []

    async def look() -> None:
        gateway.clock.at = instant(1, month=12)
        found.append(parts_of(await fetch(gateway, "month=2026-11"))[0]["complete"])

    class Watched(type(gateway.provider)):  # type: ignore[misc]
        async def send(self, *call: Any) -> Any:
            await look()
            return await super().send(*call)

    gateway.provider.__class__ = Watched
    await gateway.chat()
    assert found == [False]
    header, rows, _, _ = parts_of(await fetch(gateway, "month=2026-11"))
    assert (header["complete"], len(rows)) == (True, 1)


async def test_a_range_across_months_names_each_chain(gateway: Harness, write: Write) -> None:
    october = [replace(served(number, instant(5, month=10))) for number in (201, 202)]
    await write([*november(), *october])
    header, rows, _, _ = parts_of(await fetch(gateway, "from=2026-10-01&to=2026-12-01"))
    chains = [(chain["month"], chain["rows"], chain["first_seq"]) for chain in header["chains"]]
    assert chains == [("2026-10", 2, 1), ("2026-11", len(november()), 1)]
    assert header["chains"][0]["head"] == rows[-1]["row_hash"]
    day = parts_of(await fetch(gateway, "from=2026-10-05&to=2026-10-06"))
    assert len(day[1]) == 2


@pytest.mark.parametrize(
    "part",
    [
        (None, None),
        (instant(1, 0, month=11), instant(1, 0, month=12)),
        (instant(1, 0, month=10), instant(1, 0, month=12)),
        (None, instant(1, 0, month=11)),
        (instant(1, 0, month=12), None),
        (instant(1, 0, month=3), instant(1, 0, month=4)),
    ],
)
async def test_what_is_known_of_whole_months_is_what_their_receipts_say(
    gateway: Harness,
    write: Write,
    monkeypatch: pytest.MonkeyPatch,
    part: tuple[datetime | None, datetime | None],
) -> None:
    """A price list that only a corrected row names is in no rollup any more."""
    lost = abandoned(60, price_list="a-list-of-old", price_row="gone")
    await write(
        [
            served(50, instant(31, month=10)),
            *november(),
            lost,
            served(61, instant(5, month=12), price_list="a-newer-list"),
            correction(62, lost),
            served(63, node="n2"),
            served(64, instant(1, 0, month=11), node="n2"),
            served(65, instant(1, 0, month=12), organization="another"),
        ]
    )
    engine = gateway.gateway.running.database.engine
    wanted = ledger_pages.Wanted(organization="default", part=part)
    known = ledger_pages.pin(engine, wanted, gateway.clock())
    monkeypatch.setattr(ledger_pages, "_is_months", lambda part: False)
    looked_up = ledger_pages.pin(engine, wanted, gateway.clock())
    assert known.header == looked_up.header
    rows = [[row for page in ledger_pages.pages(engine, each) for row in page] for each in (known, looked_up)]
    assert rows[0] == rows[1]
    assert len(rows[0]) == sum(chain["rows"] for chain in known.header["chains"])


async def test_rows_are_read_page_by_page_and_pinned_at_the_start(
    gateway: Harness, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_pages, "PAGE_ROWS", 4)
    await write(november())
    database = gateway.gateway.running.database
    pinned = ledger_pages.pin(database.engine, ledger_pages.Wanted(organization="default"), gateway.clock())
    pages = ledger_pages.pages(database.engine, pinned)
    sizes = [len(next(pages))]
    await write([served(300)])
    sizes.extend(len(page) for page in pages)
    assert sum(sizes) == len(november())
    assert max(sizes) == 4
    whole = parts_of(await fetch(gateway, ""))
    assert len(whole[1]) == len(november()) + 1


async def test_an_increment_of_nothing_walks_no_row(gateway: Harness, write: Write) -> None:
    await write(november())
    engine = gateway.gateway.running.database.engine
    seen = ledger_pages.decode_seq(parts_of(await fetch(gateway, ""))[2]["next_seq"])
    wanted = ledger_pages.Wanted(organization="default", after=seen)
    pinned = ledger_pages.pin(engine, wanted, gateway.clock())
    assert pinned.first_row == pinned.last_row + 1
    assert list(ledger_pages.pages(engine, pinned)) == []


@pytest.mark.sqlite
async def test_pages_are_walked_by_row_and_never_sorted(gateway: Harness, write: Write) -> None:
    """SQLite would sort the whole month for every page if it read by the index of instants."""
    await write(november())
    database = gateway.gateway.running.database
    plans: list[str] = []

    @event.listens_for(database.engine, "before_cursor_execute")
    def explain(_connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if "ORDER BY receipts.row_seq" in statement:
            plans.extend(row[3] for row in cursor.execute(f"EXPLAIN QUERY PLAN {statement}", parameters))

    for query in ("month=2026-11", "", "after_seq=" + ledger_pages.encode_seq({"n1": 3})):
        await fetch(gateway, query)
    assert plans
    assert all("INTEGER PRIMARY KEY" in plan for plan in plans)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("month=2026", "month"),
        ("month=2026-13", "month"),
        ("month=2026-11&from=2026-11-01", "month"),
        ("format=xml", "format"),
        ("plain=1", "plain"),
        ("plain=yes&format=csv", "plain"),
        ("after_seq=7", "after_seq"),
        ("after_seq=" + base64.urlsafe_b64encode(b'{"n1":-1}').decode(), "after_seq"),
        ("after_seq=" + base64.urlsafe_b64encode(b'{"n1":true}').decode(), "after_seq"),
        ("after=7", "after"),
    ],
)
async def test_a_question_that_means_nothing_is_refused_by_name(
    gateway: Harness, query: str, field: str
) -> None:
    reply = await gateway.api("GET", f"/v1/ledger/export?{query}")
    assert (reply.status_code, reply.json()["error"]["field"]) == (422, field)


async def test_what_was_answered_is_in_the_export(gateway: Harness) -> None:
    gateway.provider.script = lambda seen: served_by(seen)
    for _ in range(3):
        assert (await gateway.chat(customer="ann")).status_code == 200
    header, rows, footer, _ = parts_of(await fetch(gateway, "month=2026-12"))
    assert (len(rows), header["complete"]) == (3, False)
    spent = (await gateway.api("GET", "/api/spend?by=customer")).json()["items"][0]
    assert footer["cost_nano_usd"] == spent["cost_nano_usd"]


def served_by(_seen: Seen) -> Reply:
    """A provider's answer."""
    return Reply(body=chat_answer())
