"""A large ledger's sums are the toolkit's over its export: both kinds of report over one real gateway."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import toolkit as tk
from console.frame_reports import FrameReports
from console.gateway_client import GatewayClient
from console.ledger_reports import LedgerReports
from console.reports import Dimensions, Reports
from gateway.demo.history import load
from tests.support import servers
from toolkit.core.windows import WINDOWS, Window, parse_instant

ROWS = 61_000
"""Of the bundled month, from its start until its cap has begun to refuse."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayClient]:
    """A gateway over a part of the bundled month, one call of it corrected."""
    folder = tmp_path_factory.mktemp("ledger")
    rows = tk.datasets.load_sample().frame.collect().head(ROWS)
    rows.write_parquet(folder / "part.parquet")
    (folder / "var").mkdir()
    load(f"sqlite:///{folder / 'var' / 'capline.db'}", folder / "key", folder / "part.parquet")
    with servers.running(folder, None) as running:
        open_call = rows.filter(pl.col("unpriced_reason") == "usage_missing")["receipt_id"][0]
        body = {"usage": {"input_tokens": 1_000, "output_tokens": 20}, "reason": "the provider's page"}
        corrected = running.api("POST", f"/api/receipts/{open_call}/correct", body)
        assert corrected.status_code == 201, corrected.text
        client = GatewayClient(running.url, running.admin_token)
        yield client
        client.close()


@pytest.fixture(scope="module")
def copied(gateway: GatewayClient, tmp_path_factory: pytest.TempPathFactory) -> FrameReports:
    export = tmp_path_factory.mktemp("export") / "ledger.parquet"
    gateway.export(export, after_seq=None, since=None)
    return FrameReports(tk.load(export), gateway, {})


@pytest.fixture(scope="module")
def summed(gateway: GatewayClient) -> LedgerReports:
    return LedgerReports(gateway, gateway.coverage(), {})


def customers(reports: Reports, most: int = 5) -> list[str]:
    found = reports.spend(("customer",), "never").drop_nulls("customer")
    return found.sort("cost_nano_usd", descending=True)["customer"].head(most).to_list()


def test_both_hold_the_same(copied: FrameReports, summed: LedgerReports) -> None:
    assert copied.coverage() == summed.coverage()
    assert copied.coverage().rows == ROWS + 1


@pytest.mark.parametrize("window", WINDOWS)
def test_both_know_the_same_periods(copied: FrameReports, summed: LedgerReports, window: Window) -> None:
    assert copied.periods(window) == summed.periods(window)


@pytest.mark.parametrize("by", [(), ("customer",), ("day",), ("model",), ("status",), ("price_list",)])
@pytest.mark.parametrize("window", ["day", "week", "month", "never"])
def test_both_sum_to_the_same(
    copied: FrameReports, summed: LedgerReports, by: Dimensions, window: Window
) -> None:
    for period in copied.periods(window)[:3]:
        mine, theirs = (reports.spend(by, window, period) for reports in (copied, summed))
        assert mine.height > 0
        assert_frame_equal(mine, theirs)


@pytest.mark.parametrize("by", [("day",), ("model",), ("customer", "model")])
def test_both_sum_one_customer_to_the_same(
    copied: FrameReports, summed: LedgerReports, by: Dimensions
) -> None:
    for customer in customers(copied):
        mine, theirs = (
            reports.spend(by, "month", "2026-11", customer=customer) for reports in (copied, summed)
        )
        assert mine.height > 0
        assert_frame_equal(mine, theirs)


def test_both_count_the_customers_of_a_period(copied: FrameReports, summed: LedgerReports) -> None:
    for period in ("2026-11-04", "2026-W46", "2026-11", "2026", "2025"):
        assert copied.customers_in(period) == summed.customers_in(period)
    assert copied.customers_in("2026-11") > 150


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("2026-11-01", "2026-11-10"),
        ("2026-11-01", "2026-11-10T13:14:15.000016Z"),
        ("2026-11-10", "2026-11-10T13:14:15Z"),
        ("2026-10-01", "2026-10-20T01:00:00Z"),
        ("2026-11-03", "2026-11-03"),
    ],
)
def test_both_cut_a_cost_at_the_same_instant(
    copied: FrameReports, summed: LedgerReports, start: str, end: str
) -> None:
    span: tuple[datetime, datetime] = (parse_instant(start), parse_instant(end))
    assert copied.cost_between(*span) == summed.cost_between(*span)


@pytest.mark.parametrize("status", [None, "refused"])
def test_both_show_the_same_receipts(copied: FrameReports, summed: LedgerReports, status: str | None) -> None:
    for customer in customers(copied):
        theirs = summed.latest(customer, status, 1_000)
        mine = copied.latest(customer, status, 1_000)
        assert_frame_equal(mine.select(theirs.columns), theirs)


def test_both_list_the_same_unpriced_calls_and_months(copied: FrameReports, summed: LedgerReports) -> None:
    assert copied.unpriced().height > 1
    assert_frame_equal(copied.unpriced(), summed.unpriced())
    assert_frame_equal(copied.months(), summed.months())
    assert copied.statuses() == summed.statuses()


def test_both_count_what_a_cap_refused(
    copied: FrameReports, summed: LedgerReports, gateway: GatewayClient
) -> None:
    counts = [(copied.refused_by(cap), summed.refused_by(cap)) for cap in gateway.caps()]
    assert all(mine == theirs for mine, theirs in counts)
    assert any(mine for mine, _ in counts)


def test_both_name_customers_alike_in_links(
    copied: FrameReports, summed: LedgerReports, gateway: GatewayClient
) -> None:
    known = copied.references(None)
    assert len(known) == copied.coverage().customers
    customer, reference = next(iter(known.items()))
    fresh = LedgerReports(gateway, summed.coverage(), {})
    assert fresh.references(reference) == {customer: reference}
    for unknown in ("f" * 16, "anybody", ""):
        assert fresh.references(unknown) == {customer: reference}
    assert fresh.latest("nobody", None, 10).is_empty()


def test_a_copy_can_begin_with_an_instant(gateway: GatewayClient, tmp_path: Path) -> None:
    since = parse_instant("2026-11-04T06:00:00Z")
    gateway.export(tmp_path / "part.parquet", after_seq=None, since=since)
    loaded = tk.load(tmp_path / "part.parquet")
    footer = loaded.manifest.files[0].footer or {}
    assert loaded.frame.select(pl.col("admitted_at").min()).collect().item() >= since
    gateway.export(tmp_path / "rest.parquet", after_seq=footer["next_seq"], since=since)
    assert tk.load(tmp_path / "rest.parquet").manifest.loaded == 0
