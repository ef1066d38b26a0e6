"""The console under test: its services replaced through `bootstrap`, its caches empty, time standing still."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

import toolkit as tk
from console import bootstrap
from console.history import History
from console.launch import APP
from console.ledger import Ledger
from tests.support.fake_gateway import FakeGateway

NOW = datetime(2026, 11, 30, 23, 59, 59, tzinfo=UTC)
PAGES = ("overview", "customers", "model_cap", "caps", "audit", "data_health")

Open = Callable[..., AppTest]


@pytest.fixture(scope="session")
def sample() -> pl.DataFrame:
    """The bundled month of receipts."""
    return tk.datasets.load_sample().frame.collect()


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeGateway]:
    """An empty gateway, in place of the real one for every page; its clock stands at `NOW`."""
    gateway = FakeGateway(now=NOW)
    monkeypatch.setattr(bootstrap, "build", lambda: services_of(gateway, tmp_path))
    st.cache_data.clear()
    st.cache_resource.clear()
    yield gateway
    st.cache_data.clear()
    st.cache_resource.clear()


def services_of(gateway: FakeGateway, directory: Path) -> bootstrap.Services:
    """Services over a fake gateway."""
    client = gateway.client()
    ledger = Ledger(client, History(client, directory), lambda: gateway.now)
    return bootstrap.Services(gateway=client, ledger=ledger, clock=lambda: gateway.now)


@pytest.fixture
def open_page(fake: FakeGateway) -> Open:
    """Opens a page of the console, with query parameters where given."""

    def opened(page: str, **params: str) -> AppTest:
        app = AppTest.from_file(str(APP), default_timeout=60)
        app.run()
        if page != "overview" or params:
            app.query_params.update(params)
            app.switch_page(f"app_pages/{page}.py").run()
        return app

    return opened
