"""Errors say what is wrong and where."""

from __future__ import annotations

import pytest

from toolkit.core.errors import (
    CaplineError,
    InvalidCap,
    InvalidTags,
    LoadError,
    MoneyError,
    PriceListError,
    StoreUnavailable,
    VerifyError,
)


@pytest.mark.parametrize(
    "kind", [MoneyError, InvalidTags, LoadError, PriceListError, StoreUnavailable, VerifyError]
)
def test_every_error_on_purpose_has_one_base(kind: type[CaplineError]) -> None:
    assert issubclass(kind, CaplineError)


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ({}, "no header"),
        ({"file": "a.csv"}, "a.csv: no header"),
        ({"file": "a.csv", "line": 0}, "a.csv, line 0: no header"),
        ({"file": "a.csv", "line": 3, "column": "cost"}, "a.csv, line 3, column cost: no header"),
    ],
)
def test_a_load_error_names_file_line_and_column(where: dict[str, str | int], said: str) -> None:
    error = LoadError("no header", **where)  # type: ignore[arg-type]
    assert str(error) == said
    assert {"file": error.file, "line": error.line, "column": error.column} == {
        "file": None,
        "line": None,
        "column": None,
    } | where


def test_an_invalid_cap_names_its_field() -> None:
    assert InvalidCap("window", "no such window").field == "window"
