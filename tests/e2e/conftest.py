"""A demo provider and a gateway for each file, as processes; a test's own environment reaches neither."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.support.servers import (
    DemoProviderProcess,
    GatewayProcess,
    Scripted,
    ScriptedGateway,
    demo_provider,
    running,
    scripted_provider,
)


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """SDKs read keys, addresses and proxies from the environment; here they get what a test gives them."""
    for name in os.environ:
        if name.startswith(("OPENAI_", "ANTHROPIC_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoProviderProcess]:
    """The demo provider of this file."""
    with demo_provider(tmp_path_factory.mktemp("provider")) as process:
        yield process


@pytest.fixture(scope="module")
def gateway(
    provider: DemoProviderProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """The gateway of this file, before the demo provider, without caps."""
    with running(tmp_path_factory.mktemp("gateway"), provider.url) as process:
        yield process


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedGateway]:
    """A gateway before a provider whose every byte the test decides."""
    with (
        scripted_provider(lambda _: Scripted([b"{}"])) as upstream,
        running(tmp_path_factory.mktemp("scripted"), upstream.url) as process,
    ):
        yield ScriptedGateway(upstream, process)
