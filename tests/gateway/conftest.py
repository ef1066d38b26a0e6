"""A started gateway for tests of the data plane."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.gateway import Harness, running_gateway


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Harness]:
    """A gateway over an empty folder, its clock standing at 2026-12-01T12:00Z."""
    async with running_gateway(tmp_path) as harness:
        yield harness
