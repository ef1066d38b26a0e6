"""`kill -9` in the middle of mixed load, on each store: whatever a client received whole is in the ledger, and the
counters are the sum of the ledger to the nano-dollar (contract §10).

More kills, other instants: `python -m tests.campaigns.kill`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaigns.kill import Campaign, on_store
from tests.support.load import KINDS
from tests.support.servers import DemoProviderProcess
from tests.support.stores import KINDS as KINDS_OF_STORES


@pytest.mark.parametrize("store", KINDS_OF_STORES)
def test_no_kill_loses_an_answer_or_a_nano_dollar(
    request: pytest.FixtureRequest, provider: DemoProviderProcess, tmp_path: Path, store: str
) -> None:
    server = request.getfixturevalue("postgres") if store == "postgresql" else ""
    with on_store(store, server, tmp_path, provider.url) as gateway:
        campaign = Campaign(provider, gateway, seed=0, rate=200)
        for _ in range(3):
            campaign.kill(3, 6)
        campaign.go_on(1.5)
        served = campaign.kinds()
        assert all(served[kind, None] > 100 for kind in KINDS), served
        assert {code for _, code in served} >= {None, "budget_exceeded", "budget_busy"}, served
        assert any(call.replayed for call in campaign.calls)
        assert campaign.verify(tmp_path).priced_rows > 1_000
