"""What every test may ask for, first of all the programs and servers that a machine may lack.

A test names what it needs as a fixture, or with `pytest.mark.usefixtures("node")`. Where that is missing
the test is skipped with the one line that says how to get it; under CAPLINE_REQUIRE_ALL=1 every skip is a
failure.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator

import hypothesis
import psycopg
import pytest
import redis as redis_client

# A busy machine is slow now and then; that is no bug of the code under test.
# CI tries the same cases each time, so that a change is judged by what it changed; developers' runs go on searching.
hypothesis.settings.register_profile("capline", deadline=None, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("capline")

POSTGRES_URL = os.environ.get("CAPLINE_TEST_POSTGRES_URL", "postgresql://127.0.0.1:5432/test")
REDIS_URL = os.environ.get("CAPLINE_TEST_REDIS_URL", "redis://127.0.0.1:6379/0")


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of a Chromium or Chrome."""
    return _program("chromium", "chromium-browser", "google-chrome", get="apt-get install chromium")


@pytest.fixture(scope="session")
def node() -> str:
    """The path of Node.js."""
    return _program("node", get="apt-get install nodejs")


@pytest.fixture(scope="session")
def nginx() -> str:
    """The path of nginx."""
    return _program("nginx", get="apt-get install nginx-light")


@pytest.fixture(scope="session")
def postgres() -> str:
    """The URL of a PostgreSQL database that tests may create schemas in."""
    try:
        psycopg.connect(POSTGRES_URL, connect_timeout=2).close()
    except psycopg.OperationalError:
        pytest.skip(f"no PostgreSQL at {POSTGRES_URL}: start one, or set CAPLINE_TEST_POSTGRES_URL")
    return POSTGRES_URL


@pytest.fixture(scope="session")
def redis() -> str:
    """The URL of a Redis or Valkey database that tests may write keys of their own prefix to."""
    try:
        with redis_client.Redis.from_url(REDIS_URL, socket_connect_timeout=2) as client:
            client.ping()
    except redis_client.ConnectionError:
        pytest.skip(f"no Redis at {REDIS_URL}: start one, or set CAPLINE_TEST_REDIS_URL")
    return REDIS_URL


def _program(*names: str, get: str) -> str:
    for name in names:
        if path := shutil.which(name):
            return path
    pytest.skip(f"{names[0]} is not installed: {get}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turns the skip of a test into a failure when everything is required."""
    report = yield
    # An expected failure is reported as skipped too; it ran.
    if report.skipped and not hasattr(report, "wasxfail"):
        _fail_when_all_is_required(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Turns the skip of a whole file into a failure when everything is required."""
    report = yield
    if report.skipped:
        _fail_when_all_is_required(report)
    return report


def _fail_when_all_is_required(report: pytest.TestReport | pytest.CollectReport) -> None:
    if os.environ.get("CAPLINE_REQUIRE_ALL") == "1":
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"CAPLINE_REQUIRE_ALL=1 allows no skip. {reason}"
