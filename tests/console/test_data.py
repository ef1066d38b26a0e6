"""Periods that tie, comparisons that are fair, and a page for each ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from console import data
from console.state import CapDraft
from tests.console.conftest import Open
from tests.console.test_every_page import texts
from tests.support.fake_gateway import FakeGateway, reference

DOLLAR = 10**9


def receipts(template: pl.DataFrame, *rows: tuple[datetime, int | None]) -> pl.DataFrame:
    """One served receipt of one customer per (instant, cost)."""
    return pl.concat(
        [
            template.with_columns(
                receipt_id=pl.lit(f"rcp_{number}"),
                customer=pl.lit("acme"),
                admitted_at=pl.lit(at).cast(pl.Datetime("us", "UTC")),
                settled_at=pl.lit(at).cast(pl.Datetime("us", "UTC")),
                admit_seq=pl.lit(number * 2 + 1, dtype=pl.Int64),
                settle_seq=pl.lit(number * 2 + 2, dtype=pl.Int64),
                cost_nano_usd=pl.lit(cost, dtype=pl.Int64),
                counted_nano_usd=pl.lit(cost or 0, dtype=pl.Int64),
                hold_nano_usd=pl.lit(cost or 0, dtype=pl.Int64),
            )
            for number, (at, cost) in enumerate(rows)
        ]
    )


@pytest.fixture
def template(sample: pl.DataFrame) -> pl.DataFrame:
    return sample.filter(pl.col("status") == "served").head(1)


def at(month: int, day: int, hour: int = 12, minute: int = 0) -> datetime:
    return datetime(2026, month, day, hour, minute, tzinfo=UTC)


@contextmanager
def version_of(fake: FakeGateway, rows: pl.DataFrame) -> Iterator[str]:
    fake.receipts = rows
    yield data.current(now=True).version


def test_the_first_of_a_month_is_no_part_of_the_month_before(
    fake: FakeGateway, template: pl.DataFrame
) -> None:
    """B110: $1 on 31 October at 23:30 and $2 on 1 November at 00:30 make $2 of November."""
    rows = receipts(template, (at(10, 31, 23, 30), DOLLAR), (at(11, 1, 0, 30), 2 * DOLLAR))
    with version_of(fake, rows) as version:
        assert data.totals(version, "month", "2026-11", at(12, 1)).spend_nano_usd == 2 * DOLLAR


def test_a_running_month_is_held_against_the_same_part_of_the_one_before(
    fake: FakeGateway, template: pl.DataFrame
) -> None:
    rows = receipts(template, (at(10, 5), DOLLAR), (at(10, 25), 9 * DOLLAR), (at(11, 4), 3 * DOLLAR))
    with version_of(fake, rows) as version:
        running = data.totals(version, "month", "2026-11", at(11, 10))
        over = data.totals(version, "month", "2026-11", at(12, 1))
    assert (running.before_nano_usd, running.before_is_part) == (DOLLAR, True)
    assert (over.before_nano_usd, over.before_is_part) == (10 * DOLLAR, False)


def test_without_an_earlier_period_nothing_is_compared(fake: FakeGateway, template: pl.DataFrame) -> None:
    with version_of(fake, receipts(template, (at(11, 4), DOLLAR))) as version:
        assert data.totals(version, "month", "2026-11", at(11, 10)).before_nano_usd is None


def test_an_unpriced_call_is_counted_apart_and_never_as_zero_dollars(
    fake: FakeGateway, template: pl.DataFrame
) -> None:
    with version_of(fake, receipts(template, (at(11, 4), DOLLAR), (at(11, 5), None))) as version:
        totals = data.totals(version, "month", "2026-11", at(11, 10))
    assert (totals.requests, totals.unpriced, totals.spend_nano_usd) == (2, 1, DOLLAR)


@pytest.mark.parametrize("window", ["day", "week", "month", "year"])
def test_days_add_up_to_their_period_and_periods_to_all(
    fake: FakeGateway, sample: pl.DataFrame, window: str
) -> None:
    """B109: the sum of the days is the range."""
    with version_of(fake, sample) as version:
        periods = data.periods(version, window)  # type: ignore[arg-type]
        sums = [
            data.days(version, window, period, None)["cost_nano_usd"].sum()  # type: ignore[arg-type]
            for period in periods
        ]
        whole = data.spend(version, (), "never")["cost_nano_usd"].item()
    assert sum(sums) == whole == 3_440_561_333_050


def test_two_ledgers_that_differ_in_one_middle_row_give_two_answers(
    fake: FakeGateway, sample: pl.DataFrame
) -> None:
    """Streamlit hashes a Polars frame by its ends; a version is no frame."""
    rows = sample.head(1_001)
    with version_of(fake, rows) as version:
        before = data.spend(version, (), "never")["counted_nano_usd"].item()
    dearer = pl.when(pl.int_range(pl.len()) == 500).then(pl.col("counted_nano_usd") + DOLLAR)
    fake.ledger_id = "beef"
    with version_of(
        fake, rows.with_columns(counted_nano_usd=dearer.otherwise("counted_nano_usd"))
    ) as version:
        assert data.spend(version, (), "never")["counted_nano_usd"].item() == before + DOLLAR


def test_a_cap_is_modelled_on_the_rule_that_the_gateway_enforces(
    fake: FakeGateway, template: pl.DataFrame
) -> None:
    """Three calls of $4 under $10 a day, one at a time: the third would make $12 and is refused."""
    rows = receipts(template, *((at(11, 4, hour), 4 * DOLLAR) for hour in (1, 2, 3)))
    rows = rows.with_columns(settled_at=pl.col("admitted_at") + timedelta(seconds=1))
    draft = CapDraft(scope="customer", subject="*", window="day", limit_nano_usd=10 * DOLLAR)
    with version_of(fake, rows) as version:
        modelled = data.model(version, draft, at(11, 4))
    assert modelled.what_if.summary.refused == 1
    assert modelled.what_if.summary.refused_nano_usd == 4 * DOLLAR
    # History spent $12, which is what a cap armed now would start from.
    assert [(row.subject, row.spent) for row in modelled.over] == [("acme", 12 * DOLLAR)]


def test_a_link_names_a_customer_by_reference(
    fake: FakeGateway, sample: pl.DataFrame, open_page: Open
) -> None:
    fake.receipts = sample.head(2_000)
    customer = fake.receipts["customer"].drop_nulls()[0]
    app = open_page("customers", customer=reference(customer))
    assert customer in texts(app)
    assert "Last 200 receipts" in texts(app)
    assert customer not in str(app.query_params)


def test_an_unknown_reference_is_said(fake: FakeGateway, sample: pl.DataFrame, open_page: Open) -> None:
    fake.receipts = sample.head(50)
    assert "does not know" in texts(open_page("customers", customer="0" * 16))


def test_a_changed_limit_changes_the_answer(fake: FakeGateway, sample: pl.DataFrame, open_page: Open) -> None:
    fake.receipts = sample.filter(pl.col("customer") == "initech-042")
    app = open_page("model_cap", limit="200.00")
    before = app.metric[0].value
    app.text_input(key="limit").set_value("100.00").run()
    assert not app.exception
    assert app.metric[0].value != before


@pytest.mark.parametrize("counts", ["One customer", "Organization", "One key"])
def test_every_scope_can_be_modelled(
    fake: FakeGateway, sample: pl.DataFrame, open_page: Open, counts: str
) -> None:
    fake.receipts = sample.head(5_000)
    app = open_page("model_cap", limit="1.00", counts=counts)
    assert not app.exception
    assert len(app.metric) == 4
    assert "would have" in texts(app)


def test_an_amount_that_is_none_is_said_and_nothing_can_be_armed(
    fake: FakeGateway, sample: pl.DataFrame, open_page: Open
) -> None:
    fake.receipts = sample.head(50)
    app = open_page("model_cap", limit="ten")
    assert "not an amount" in texts(app)
    assert "model_arm" not in {button.key for button in app.button}
