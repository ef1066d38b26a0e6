"""The model equals reality: `tk.what_if` over the bundled month gives a live gateway's verdict, receipt by receipt."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.month_model import held_apart, judged_apart, live, recorded

pytestmark = pytest.mark.sqlite  # verdicts are the counters', whatever keeps the receipts
SLICE = 20_000
"""Calls of the month that are sent in CI; `make bench` sends all of them."""


CASES = [
    pytest.param(0, SLICE, [{"limit_usd": "3", "window": "day", "unpriced": "serve"}], id="reserve"),
    pytest.param(
        50_000,
        3_000,
        [
            {"limit_usd": "1.50", "window": "day", "admission": "floor"},
            {
                "scope": "organization",
                "subject": "default",
                "limit_usd": "60",
                "admission": "after",
                "unpriced": "serve",
            },
        ],
        id="floor-and-after",
    ),
    pytest.param(
        70_000,
        3_000,
        [
            {"limit_usd": "2", "window": "day"},
            {"subject": "initech-042", "limit_usd": "9", "window": "day"},
            {"scope": "key", "limit_usd": "40", "window": "week", "unpriced": "serve"},
        ],
        id="override-and-key",
    ),
]


@pytest.fixture
def memory_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: thousands of calls one after the other would wait for a disk."""
    shared = Path("/dev/shm")
    if not shared.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        yield Path(folder)


@pytest.mark.parametrize(("first", "calls", "caps"), CASES)
async def test_the_model_gives_the_gateways_verdict(
    memory_folder: Path, first: int, calls: int, caps: list[dict[str, Any]]
) -> None:
    rows = recorded(first, calls)
    real = await live(memory_folder, rows, caps)
    assert real.height == calls
    assert held_apart(rows, real).is_empty()
    differing = judged_apart(rows, real, caps)
    assert differing.is_empty(), differing.head(5)
    assert 0 < real["refused"].sum() < calls, "a cap that refuses nothing, or everything, proves nothing"
