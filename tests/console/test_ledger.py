"""A small ledger is copied, a large one is asked for its sums, and only what is modelled of it is copied."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from console import data, ledger
from console.ledger import Ledger
from console.modelling import Modelled
from console.state import CapDraft, Mistake
from tests.console.conftest import PAGES, Open, services_of
from tests.console.test_data import at, receipts, template
from tests.console.test_every_page import assert_whole, texts
from tests.support.fake_gateway import FakeGateway, reference
from toolkit.core.windows import Window

__all__ = ["template"]
DOLLAR = 10**9


@pytest.fixture
def three_months(fake: FakeGateway, template: pl.DataFrame, monkeypatch: pytest.MonkeyPatch) -> FakeGateway:
    """A gateway at the end of November with a dollar in each month since September, all of it too much to copy."""
    monkeypatch.setattr(ledger, "LARGE", 2)
    fake.receipts = receipts(template, *((at(month, 5), DOLLAR) for month in (9, 10, 11)))
    return fake


def of(fake: FakeGateway, folder: Path) -> Ledger:
    return services_of(fake, folder).ledger


def test_pages_that_ask_at_once_ask_the_gateway_once(fake: FakeGateway, tmp_path: Path) -> None:
    asked = of(fake, tmp_path)
    for _ in range(5):
        asked.sync()
    assert len(fake.exports) == 1


def test_a_small_ledger_is_copied_whole(
    fake: FakeGateway, template: pl.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "LARGE", 2)
    fake.receipts = receipts(template, (at(9, 5), DOLLAR), (at(11, 5), DOLLAR))
    asked = of(fake, tmp_path)
    state = asked.sync()
    assert (state.rows, state.summed, state.since) == (2, False, None)
    assert asked.copy() == state


def test_a_large_ledger_is_not_downloaded(three_months: FakeGateway, tmp_path: Path) -> None:
    asked = of(three_months, tmp_path)
    state = asked.sync()
    assert (state.rows, state.summed, three_months.exports) == (3, True, [])
    assert asked.reports(state.version).spend((), "never")["cost_nano_usd"].to_list() == [3 * DOLLAR]


def test_what_is_modelled_of_a_large_ledger_begins_with_the_month_before(
    three_months: FakeGateway, tmp_path: Path
) -> None:
    asked = of(three_months, tmp_path)
    state = asked.copy()
    assert (state.rows, state.since) == (2, datetime(2026, 10, 1, tzinfo=UTC))
    assert asked.receipts(state.version).manifest.loaded == 2
    three_months.now = at(12, 3)
    state = asked.copy(now=True)
    assert (state.rows, state.since) == (1, datetime(2026, 11, 1, tzinfo=UTC))
    # The older copy is gone from the disk as well.
    assert [folder.name for folder in tmp_path.iterdir() if folder.is_dir()] == ["feed0123feed0123-202611"]


def test_a_copied_part_survives_a_restart_without_the_gateway(
    three_months: FakeGateway, tmp_path: Path
) -> None:
    of(three_months, tmp_path).copy()
    three_months.down = True
    state = of(three_months, tmp_path).sync()
    assert (state.rows, state.since) == (2, datetime(2026, 10, 1, tzinfo=UTC))
    assert "does not answer" in (state.trouble or "")


def test_the_last_sums_stand_while_the_gateway_is_away(three_months: FakeGateway, tmp_path: Path) -> None:
    asked = of(three_months, tmp_path)
    before = asked.sync()
    three_months.down = True
    state = asked.sync(now=True)
    assert (state.version, state.rows) == (before.version, 3)
    assert "does not answer" in (state.trouble or "")


def test_a_version_changes_with_the_ledger_and_only_then(
    three_months: FakeGateway, template: pl.DataFrame, tmp_path: Path
) -> None:
    asked = of(three_months, tmp_path)
    first = asked.sync().version
    assert asked.sync(now=True).version == first
    three_months.receipts = receipts(template, *((at(11, day), DOLLAR) for day in (1, 2, 3, 4)))
    assert asked.sync(now=True).version != first


@pytest.mark.parametrize(
    ("window", "counted"), [("day", True), ("week", True), ("month", True), ("year", False), ("never", False)]
)
def test_a_cap_that_counts_from_before_the_copy_is_not_modelled_on_it(
    three_months: FakeGateway, window: Window, counted: bool
) -> None:
    draft = CapDraft(scope="customer", subject="*", window=window, limit_nano_usd=DOLLAR // 2)
    found = data.modelled(data.copied(), draft, at(11, 6))
    if counted:
        assert isinstance(found, Modelled)
    else:
        assert isinstance(found, Mistake)
        assert "since 01 Oct 2026" in found.words


@pytest.mark.parametrize("page", PAGES)
def test_a_page_over_a_large_ledger(
    fake: FakeGateway, sample: pl.DataFrame, open_page: Open, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "LARGE", 10)
    fake.receipts = sample
    fake.add_cap(limit_usd="20.00", armed=True, name="Included usage")
    app = open_page(page)
    assert_whole(app)
    assert "100,552 receipts, 200 customers, 1 to 30 Nov 2026" in texts(app)
    assert ("too large to copy" in texts(app)) == (page == "model_cap")


def test_a_customer_of_a_large_ledger_by_link(
    fake: FakeGateway, sample: pl.DataFrame, open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "LARGE", 10)
    fake.receipts = sample.head(2_000)
    customer = fake.receipts["customer"].drop_nulls()[0]
    app = open_page("customers", customer=reference(customer))
    assert_whole(app)
    assert customer in texts(app)
    assert fake.exports == []
    assert "does not know" in texts(open_page("customers", customer="0" * 16))


def test_a_long_list_says_that_it_is_cut(
    fake: FakeGateway, sample: pl.DataFrame, open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "LARGE", 10)
    monkeypatch.setattr("console.ledger_reports.MOST_GROUPS", 150)
    fake.receipts = sample
    assert "The 149 dearest of 200 customers" in texts(open_page("customers"))


def test_without_the_gateway_and_without_a_copy_nothing_is_said_to_be_unspent(
    fake: FakeGateway, open_page: Open
) -> None:
    fake.down = True
    app = open_page("overview")
    assert_whole(app)
    assert "does not answer" in texts(app)
    assert "Nothing was spent yet" not in texts(app)


def test_a_report_that_fails_says_why_in_its_place(
    fake: FakeGateway, sample: pl.DataFrame, open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "LARGE", 10)
    fake.receipts = sample.head(2_000)
    fake.fail[("GET", "/api/spend")] = (503, "The database is away.")
    app = open_page("overview")
    assert_whole(app)
    assert "The database is away." in texts(app)
