"""A started gateway for tests of the data plane, on each database that keeps a ledger.

A test that starts a gateway runs on SQLite and on PostgreSQL; one that is marked `sqlite` looks into the file itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.gateway import Harness, running_gateway
from tests.support.stores import KINDS, stores


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test that has a folder for a gateway runs once a database."""
    if "tmp_path" in metafunc.fixturenames and metafunc.definition.get_closest_marker("sqlite") is None:
        metafunc.parametrize("_store", KINDS, indirect=True)


@pytest.fixture(autouse=True)
def _store(request: pytest.FixtureRequest) -> Iterator[None]:
    kind = getattr(request, "param", "sqlite")
    server = request.getfixturevalue("postgres") if kind == "postgresql" else ""
    with stores.on(kind, server):
        yield


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Harness]:
    """A gateway over an empty folder, its clock standing at 2026-12-01T12:00Z."""
    async with running_gateway(tmp_path) as harness:
        yield harness
