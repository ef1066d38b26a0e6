"""Reports are exact sums over receipts, and the same as the toolkit's over an export of them."""

from __future__ import annotations

import io
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import polars as pl
import pytest

import toolkit as tk
from tests.support.exports import abandoned, correction, instant, refused, served
from tests.support.gateway import Harness, running_gateway
from tests.support.prices import write_list
from toolkit.core.receipts import Receipt
from toolkit.core.windows import Window, parse_instant
from toolkit.frames import Receipts, conform

Write = Callable[[Iterable[Receipt]], Awaitable[None]]
OTHER_LIST = "2026-11-20+sha256:0123456789ab"


def history() -> list[Receipt]:
    """Two months, two price lists, refusals, calls without a cost, and one of these settled later."""
    lost = abandoned(50, at=instant(9))
    rows = [
        *(served(number) for number in range(1, 25)),
        replace(served(30, instant(3, month=10)), price_list=OTHER_LIST, key_id="k2", project="search"),
        replace(served(31, instant(28)), price_list=OTHER_LIST, customer=None, run="job-7"),
        refused(40),
        refused(41, customer="over"),
        lost,
        abandoned(51, at=instant(30)),
        replace(
            served(60),
            cost_nano_usd=None,
            price_row=None,
            unpriced_reason="rate_missing",
            service_tier="priority",
        ),
        correction(52, lost),
        replace(served(70), status="failed", cost_nano_usd=0, counted_nano_usd=0, http_status=400),
    ]
    return rows


async def exported(gateway: Harness) -> Receipts:
    """What the toolkit reads of the gateway's ledger."""
    reply = await gateway.api("GET", "/v1/ledger/export?format=parquet")
    return Receipts.from_frame(conform(pl.read_parquet(io.BytesIO(reply.content)).lazy()))


async def items(gateway: Harness, path: str) -> list[dict[str, Any]]:
    """Every item of a list, three a page."""
    found: list[dict[str, Any]] = []
    cursor: str | None = ""
    while cursor is not None:
        joint = "&" if "?" in path else "?"
        page = (await gateway.api("GET", f"{path}{joint}limit=3{cursor and f'&cursor={cursor}'}")).json()
        found.extend(page["items"])
        cursor = page["next_cursor"]
    return found


@pytest.mark.parametrize("window", get_args(Window))
async def test_spend_is_what_the_toolkit_says_of_the_export(
    gateway: Harness, write: Write, window: Window
) -> None:
    await write(history())
    receipts = await exported(gateway)
    for by in ((), ("customer",), ("key_id", "model"), ("day", "status"), ("price_list", "project", "run")):
        mine = await items(gateway, f"/api/spend?window={window}&by={','.join(by)}")
        theirs = tk.spend(receipts, by=by, window=window).with_columns(pl.col("cost_usd").cast(pl.String))
        wanted = theirs.drop("counted_usd", strict=False).to_dicts()
        assert sorted(map(repr, (cut(row, wanted[0]) for row in mine))) == sorted(map(repr, wanted))


async def test_spend_of_one_customer_by_reference(gateway: Harness, write: Write) -> None:
    await write(history())
    everyone = await items(gateway, "/api/spend?by=customer,day")
    for customer, ref in {(row["customer"], row["customer_ref"]) for row in everyone}:
        if ref is not None:
            mine = await items(gateway, f"/api/spend?by=customer,day&customer_ref={ref}")
            assert mine == [row for row in everyone if row["customer"] == customer]
    assert await items(gateway, f"/api/spend?customer_ref={'0' * 16}") == []


async def test_the_coverage_is_that_of_the_export(gateway: Harness, write: Write) -> None:
    path = "/api/ledger/coverage"
    nothing = (await gateway.api("GET", path)).json()
    assert nothing == {"receipts": 0, "customers": 0, "first": None, "last": None, "last_row": 0}
    await write(history())
    found = (await gateway.api("GET", path)).json()
    frame = (await exported(gateway)).frame.collect()
    assert (found["receipts"], found["customers"]) == (
        frame.height,
        frame["customer"].drop_nulls().n_unique(),
    )
    ends = (frame["admitted_at"].min(), frame["admitted_at"].max())
    assert (parse_instant(found["first"]), parse_instant(found["last"])) == ends
    await write([served(80)])
    assert (await gateway.api("GET", path)).json()["last_row"] > found["last_row"]


def cut(row: dict[str, Any], like: dict[str, Any]) -> dict[str, Any]:
    """The columns of a row that the toolkit has too, in its order."""
    return {name: row[name] for name in like}


async def test_a_period_bounds_what_is_summed(gateway: Harness, write: Write) -> None:
    rows = history()
    await write(rows)
    total = sum(row.cost_nano_usd or 0 for row in rows)
    october = sum(row.cost_nano_usd or 0 for row in rows if row.admitted_at.month == 10)
    for query, wanted in (
        ("period=2026-10", october),
        ("period=2026-11", total - october),
        ("from=2026-11-01&to=2026-12-01", total - october),
        ("period=2026&window=year", total),
        ("window=never", total),
    ):
        (row,) = await items(gateway, f"/api/spend?{query}")
        assert (row["cost_nano_usd"], row["cost_usd"]) == (wanted, f"{wanted // 10**9}.{wanted % 10**9:09d}")
    assert await items(gateway, "/api/spend?period=2025") == []
    months = await items(gateway, "/api/spend?by=price_list")
    assert [row["period"] for row in months] == ["2026-11", "2026-11", "2026-10"]
    (whole,) = await items(gateway, "/api/spend?window=year")
    assert (whole["price_list"], whole["price_list_count"]) == (None, 2)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("by=team", "by"),
        ("by=day,day", "by"),
        ("window=hour", "window"),
        ("period=2026-13", "period"),
        ("period=2026-11&from=2026-11-01", "period"),
        ("from=yesterday", "from"),
        ("from=2026-11-01T00:00:00", "from"),
        ("from=2026-11-02&to=2026-11-01", "to"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("cursor=x", "cursor"),
    ],
)
async def test_a_question_that_means_nothing_is_refused_by_name(
    gateway: Harness, query: str, field: str
) -> None:
    reply = await gateway.api("GET", f"/api/spend?{query}")
    assert (reply.status_code, reply.json()["error"]["field"]) == (422, field)


async def test_customers_are_named_by_reference_in_urls(gateway: Harness, write: Write) -> None:
    rows = [row for row in history() if row.admitted_at.month == 11]
    await write(rows)
    found = await items(gateway, "/api/customers")
    named = {row.customer for row in rows if row.customer is not None}
    assert {item["customer"] for item in found} == named
    assert {item["period"] for item in found} == {"2026-11"}
    assert [item["cost_nano_usd"] or 0 for item in found] == sorted(
        (item["cost_nano_usd"] or 0 for item in found), reverse=True
    )
    for item in found:
        own = [row for row in rows if row.customer == item["customer"]]
        assert item["cost_nano_usd"] == sum(row.cost_nano_usd or 0 for row in own)
        assert item["first_seen"] == min(row.row()["admitted_at"] for row in own)
        by_ref = await items(gateway, f"/api/customers?customer_ref={item['customer_ref']}")
        assert by_ref == [item]
        receipts = await items(gateway, f"/api/receipts?customer_ref={item['customer_ref']}")
        assert {row["receipt_id"] for row in receipts} == {row.receipt_id for row in own}
    assert await items(gateway, f"/api/customers?customer_ref={'0' * 16}") == []
    assert await items(gateway, f"/api/receipts?customer_ref={'0' * 16}") == []
    assert (await gateway.api("GET", "/api/customers?customer_ref=cust-1")).status_code == 422
    summary = (await gateway.api("GET", "/api/customers/summary")).json()
    cost = sum(row.cost_nano_usd or 0 for row in rows if row.customer is not None)
    assert (summary["customers"], summary["cost_nano_usd"]) == (len(named), cost)


async def test_unpriced_calls_by_model_and_reason(gateway: Harness, write: Write) -> None:
    # B127; the abandoned call that was settled later is no longer among them.
    await write(history())
    found = await items(gateway, "/api/unpriced")
    assert [(row["reason"], row["calls"]) for row in found] == [("outcome_unknown", 1), ("rate_missing", 1)]
    assert found[0]["tokens"] is None
    assert found[1]["tokens"] == served(60).counted_tokens
    assert "/correct with usage" in found[0]["what_to_do"]
    theirs = tk.unpriced(await exported(gateway)).rename({"requests": "calls"})
    shared = ["model", "reason", "calls", "tokens", "what_to_do"]
    assert [{name: row[name] for name in shared} for row in found] == theirs.select(shared).to_dicts()
    assert found[1]["first_seen"] == found[1]["last_seen"] == served(60).row()["admitted_at"]


async def test_receipts_come_newest_first_and_filter(gateway: Harness, write: Write) -> None:
    rows = history()
    await write(rows)
    found = await items(gateway, "/api/receipts")
    assert [row["receipt_id"] for row in found] == [row.receipt_id for row in reversed(rows)]
    for query, wanted in (
        ("key_id=k2", {"r00030"}),
        ("project=search&status=served", {"r00030"}),
        ("run=job-7", {"r00031"}),
        ("operation_id=o00031", {"r00031"}),
        ("status=failed", {"r00070"}),
        ("period=2026-10", {"r00030"}),
    ):
        assert {row["receipt_id"] for row in await items(gateway, f"/api/receipts?{query}")} == wanted
    refusals = await items(gateway, "/api/refusals?code=budget_exceeded")
    assert {row["receipt_id"] for row in refusals} == {"r00040", "r00041"}


async def test_a_receipt_shows_the_decision_and_its_operation(gateway: Harness) -> None:
    cap = await gateway.make_cap(limit_usd="0.000010", name="tight")
    served_call = await gateway.chat(customer="ann", max_tokens=1)
    assert served_call.status_code == 402
    await gateway.api("PATCH", f"/api/caps/{cap['id']}", {"name": "renamed by another"}, if_match="2")
    for name in (served_call.headers["x-capline-request-id"], None):
        if name is None:
            name = (await items(gateway, "/api/refusals"))[0]["receipt_id"]
        found = (await gateway.api("GET", f"/api/receipts/{name}")).json()
        (line,) = found["trace"]
        assert (line["verdict"], line["binds"], line["armed_by"]) == ("final", True, "admin-token")
        assert (line["limit_usd"], line["spent_nano_usd"]) == ("0.000010000", 0)
        assert line["armed_reason"] == "test"
        assert line["headroom_nano_usd"] == 10_000 - line["hold_nano_usd"] < 0
        assert [row["receipt_id"] for row in found["operation"]] == [found["receipt_id"]]
        assert (found["refusal_code"], found["cost_usd"], found["customer"]) == (
            "budget_exceeded",
            None,
            "ann",
        )


async def test_price_lists_say_which_is_in_use(gateway: Harness) -> None:
    (found,) = (await gateway.api("GET", "/api/price-lists")).json()["items"]
    assert (found["date"], found["rows"], found["in_use"]) == ("2026-10-01", 3, True)
    assert found["providers"] == ["anthropic", "openai"]
    assert (found["age_days"], found["stale"]) == (61, True)


@pytest.mark.parametrize(("dated", "stale"), [("2026-11-01", False), ("2026-10-31", True)])
async def test_a_list_is_stale_after_thirty_days(tmp_path: Path, dated: str, stale: bool) -> None:
    write_list(tmp_path / "prices", dated=dated)
    async with running_gateway(tmp_path) as gateway:
        (found,) = (await gateway.api("GET", "/api/price-lists")).json()["items"]
    assert (found["age_days"], found["stale"]) == (30 + stale, stale)


async def test_an_empty_ledger_has_empty_reports(gateway: Harness, tmp_path: Path) -> None:
    for path in ("spend", "spend?by=customer&window=never", "customers", "unpriced", "receipts", "refusals"):
        assert (await gateway.api("GET", f"/api/{path}")).json() == {"items": [], "next_cursor": None}
    summary = (await gateway.api("GET", "/api/customers/summary")).json()
    assert summary == {"period": "2026-12", "customers": 0, "cost_nano_usd": 0, "cost_usd": "0.000000000"}
