"""Every page, with nothing to show, with one receipt and with a month of them; and what no page may do."""

from __future__ import annotations

import polars as pl
import pytest
from streamlit.testing.v1 import AppTest

from console import wording
from tests.console.conftest import PAGES, Open
from tests.support.fake_gateway import FakeGateway


def texts(app: AppTest) -> str:
    """Everything in words on a page."""
    kinds = ("text", "markdown", "caption", "title", "subheader", "metric")
    found = [element for kind in kinds for element in app.get(kind)]
    return "\n".join(str(getattr(element, "value", "")) for element in found)


def assert_whole(app: AppTest) -> None:
    """No exception, and no panel that gave up."""
    assert not app.exception
    assert wording.PANEL_FAILED not in texts(app)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_with_nothing_to_show_says_so(open_page: Open, page: str) -> None:
    app = open_page(page)
    assert_whole(app)
    assert "No receipts yet" in texts(app)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_with_one_receipt(fake: FakeGateway, sample: pl.DataFrame, open_page: Open, page: str) -> None:
    fake.receipts = sample.filter(pl.col("status") == "served").head(1)
    app = open_page(page)
    assert_whole(app)
    assert "1 receipt, 1 customer" in texts(app)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_with_a_month_of_receipts(
    fake: FakeGateway, sample: pl.DataFrame, open_page: Open, page: str
) -> None:
    fake.receipts = sample
    fake.add_cap(limit_usd="20.00", armed=True, name="Included usage")
    fake.add_cap(scope="organization", subject="default", limit_usd="5000.00")
    app = open_page(page)
    assert_whole(app)
    assert "100,552 receipts, 200 customers, 1 to 30 Nov 2026" in texts(app)
    assert "Data through" in texts(app)
    assert "UTC" in texts(app)
