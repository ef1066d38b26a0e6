"""Operator prices in service: a file of settings, receipts under a merged list, one audit row a change."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import ManualClock
from tests.support.gateway import ADMIN, running_gateway
from toolkit.core.errors import PriceListError
from toolkit.core.pricefile import load_price_folder

OWNER = {"authorization": f"Bearer {ADMIN}"}


def written(folder: Path, rate: str, **changed: Any) -> Path:
    row = {
        "provider": "openai",
        "model": "m-small",
        "kind": "chat",
        "tier": "standard",
        "effective_from": "2026-12-01T00:00:00Z",
        "rates": {"input": rate, "output": rate},
        "max_input_tokens": 100_000,
        "max_output_tokens": 16_000,
    }
    body = {
        "schema": "capline-prices-v1",
        "currency": "USD",
        "date": "2026-12-01",
        "reason": "Contract 17",
        "rows": [row],
    }
    path = folder / "operator.json"
    path.write_text(json.dumps(body | changed), "utf-8")
    return path


async def test_a_call_is_priced_by_the_contract_and_its_list_is_kept(tmp_path: Path) -> None:
    clock = ManualClock(datetime(2026, 12, 3, tzinfo=UTC))
    async with running_gateway(tmp_path, clock=clock) as gateway:
        await gateway.chat()
    file = written(tmp_path, "0")
    for _ in range(2):  # the second start finds the same prices, so nothing has changed
        async with running_gateway(tmp_path, clock=clock, operator_prices=file) as gateway:
            await gateway.chat()
            receipts = await gateway.receipts()
            audit = (await gateway.http.get("/api/audit", headers=OWNER)).json()["items"]
    published, contract = receipts[0], receipts[-1]
    assert published["cost_nano_usd"] > 0 == contract["cost_nano_usd"]
    assert published["price_list"] != contract["price_list"]
    kept = load_price_folder(tmp_path / "prices")
    merged = load_price_folder(tmp_path / "price_lists")
    assert contract["price_list"] in {prices.id for prices in merged}
    assert published["price_list"] in {prices.id for prices in kept}
    changes = [entry for entry in audit if entry["action"] == "prices.operator"]
    assert [(entry["reason"], entry["before"]) for entry in changes] == [("Contract 17", None)]


async def test_taking_them_away_is_a_change_too(tmp_path: Path) -> None:
    file = written(tmp_path, "0")
    async with running_gateway(tmp_path, operator_prices=file):
        pass
    async with running_gateway(tmp_path) as gateway:
        audit = (await gateway.http.get("/api/audit", headers=OWNER)).json()["items"]
    changes = [entry["after"] for entry in audit if entry["action"] == "prices.operator"]
    assert changes[0] is None
    assert changes[1]["rows"] == 1


async def test_a_gateway_does_not_start_on_prices_without_a_reason(tmp_path: Path) -> None:
    with pytest.raises(PriceListError, match="say why"):
        async with running_gateway(tmp_path, operator_prices=written(tmp_path, "0", reason="")):
            pass
