"""Customers, models, caps and reasons are other people's text: it stays text, on every page and in every file."""

from __future__ import annotations

import polars as pl
import pytest
from streamlit.testing.v1 import AppTest

from console import columns, showing
from console.components import tables
from tests.console.conftest import PAGES, Open
from tests.console.test_every_page import assert_whole
from tests.support.fake_gateway import FakeGateway

NAMES = (
    "![a](https://e.example/x.png)",
    "=cmd|' /C calc'!A0",
    "<img src=https://e.example/x>",
    "[link](https://e.example) mail@e.example",
    "cust\u202e131",
    "@SUM(A1:A9)",
)
MARKDOWN = (
    "markdown",
    "caption",
    "title",
    "subheader",
    "metric",
    "toast",
    "button",
    "selectbox",
    "text_input",
)


@pytest.fixture
def hostile(fake: FakeGateway, sample: pl.DataFrame) -> FakeGateway:
    """Every name of a busy history is hostile, and so are a cap's name, its subject and the reason it was armed for."""
    customers = sample["customer"].drop_nulls().unique(maintain_order=True).head(len(NAMES)).to_list()
    mapped = pl.col("customer").replace_strict(dict(zip(customers, NAMES, strict=True)))
    rows = sample.filter(pl.col("customer").is_in(customers)).with_columns(
        customer=mapped, model_requested=mapped, model_served=mapped, refusal_code=pl.col("refusal_code")
    )
    fake.receipts = rows
    for name in NAMES:
        cap = fake.add_cap(name=name, subject=name, limit_usd="0.01")
        fake._set(
            cap, "cap.arm", name, hard_stop=True, armed_at="2026-11-30T00:00:00.000000Z", updated_by=name
        )
    return fake


@pytest.mark.parametrize("page", PAGES)
def test_no_name_reaches_markdown(hostile: FakeGateway, open_page: Open, page: str) -> None:
    app = open_page(page, limit="0.01")
    assert_whole(app)
    assert leaks(app) == []


@pytest.mark.parametrize("page", ["model_cap", "caps"])
def test_no_name_reaches_markdown_in_the_arm_dialog(hostile: FakeGateway, open_page: Open, page: str) -> None:
    for cap in list(hostile.caps.values()):
        hostile._set(cap, "cap.disarm", None, hard_stop=False, armed_at=None)
    app = open_page(page, limit="0.01")
    key = "model_arm" if page == "model_cap" else "cap_1_arm"
    app.button(key=key).click().run()
    assert_whole(app)
    assert "arm_submit" in {button.key for button in app.button}
    assert leaks(app) == []


def test_what_reorders_text_is_spelled_out_in_cells(hostile: FakeGateway, open_page: Open) -> None:
    shown = open_page("customers").dataframe[0].value
    assert "cust⟨U+202E⟩131" in set(shown["Customer"])
    assert not any("\u202e" in str(cell) for cell in shown["Customer"])


def test_no_cell_of_a_file_is_a_formula(hostile: FakeGateway) -> None:
    frame = showing.receipt_rows(hostile.receipts.head(500))
    file = tables.csv_of(frame, columns.RECEIPT_COLUMNS).decode()
    cells = [cell for line in file.splitlines() for cell in line.replace('"', "").split(",")]
    assert any(cell.startswith("'=cmd") for cell in cells)
    assert [cell for cell in cells if cell.startswith(("=", "+", "-", "@"))] == []


def leaks(app: AppTest) -> list[str]:
    """Where Streamlit would read somebody else's text as Markdown: labels, headings, captions, badges."""
    found: list[str] = []
    for kind in MARKDOWN:
        for element in app.get(kind):
            said = [str(getattr(element, name, "")) for name in ("value", "label", "body", "help", "delta")]
            if kind in ("text_input", "selectbox"):
                said = said[1:]  # a value of these is never Markdown
            found += [f"{kind}: {words}" for words in said if "e.example" in words or "cmd" in words]
    return found
