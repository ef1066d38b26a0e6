"""The lazy package: what it offers, and that the kernel stays free of analytics."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

import toolkit


def test_all_is_sorted_and_is_what_dir_shows() -> None:
    assert (
        sorted(toolkit.__all__, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
        == toolkit.__all__
    )
    assert dir(toolkit) == sorted(toolkit.__all__)


@pytest.mark.parametrize("name", toolkit.__all__)
def test_every_name_can_be_had(name: str) -> None:
    assert getattr(toolkit, name) is not None


@pytest.mark.parametrize("name", [name for name in toolkit.__all__ if name not in ("datasets", "figures")])
def test_no_module_is_named_like_a_function_whose_place_it_would_take(name: str) -> None:
    assert find_spec(f"toolkit.{name}") is None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'reconcil'"):
        toolkit.reconcil  # noqa: B018


@pytest.mark.parametrize("module", ["toolkit", "toolkit.core", "toolkit.core.receipts"])
def test_importing_it_loads_no_polars(module: str) -> None:
    script = f"import {module}, sys; print(*({{'polars', 'plotly', 'httpx'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
