"""The data that ships: found in a wheel first, then in the checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

import toolkit as tk
from toolkit import datasets


def test_price_lists_are_read_once_and_stand_oldest_first() -> None:
    lists = datasets.load_prices()
    assert [prices.date for prices in lists] == sorted(prices.date for prices in lists)
    assert lists is datasets.load_prices()
    assert tk.price_lists() is lists


def test_a_wheels_files_come_before_the_checkouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel, checkout = tmp_path / "_data", tmp_path / "data"
    for place in (checkout, wheel):
        monkeypatch.setattr(datasets, "PLACES", (wheel, checkout))
        (place / "prices").mkdir(parents=True)
        assert datasets.find("prices") == place / "prices"


def test_what_an_installation_lacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "PLACES", (tmp_path,))
    with pytest.raises(tk.LoadError, match=r"data/sample/receipts\.parquet"):
        datasets.load_sample()


def test_the_sample_loads_whole_and_its_costs_follow_from_its_price_lists() -> None:
    receipts = datasets.load_sample()
    manifest = receipts.manifest
    assert manifest.files[0].kind == "sample"
    assert manifest.loaded == manifest.read > 0
    verdict = tk.verify(datasets.find("sample/receipts.parquet"))
    assert (verdict.first_fault, verdict.ok) == (None, None), "its costs hold, and it has no chain to check"
    assert verdict.priced_rows > 0
    assert not any("not at hand" in note for note in verdict.notes)
