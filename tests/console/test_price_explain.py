"""`capline prices explain`: a receipt's row, its lines, and what another list would have said."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gateway.settings import Settings
from tests.console.test_cli import Shell
from tests.support.gateway import running_gateway
from tests.support.provider import Reply, ScriptedProvider, chat_answer


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> tuple[Shell, list[dict[str, Any]]]:
    """A directory with a ledger of two calls, one of a model that no list has, and their receipts."""
    folder = tmp_path_factory.mktemp("explain")

    async def calls() -> list[dict[str, Any]]:
        settings = Settings()
        provider = ScriptedProvider(lambda seen: Reply(body=chat_answer(json.loads(seen.body)["model"])))
        async with running_gateway(folder, provider=provider, prices_dir=settings.prices_dir) as gateway:
            for model in ("gpt-4o-mini", "gpt-99"):
                await gateway.chat(model=model)
            return await gateway.receipts()

    receipts = asyncio.run(calls())
    return Shell(folder, {"CAPLINE_DATABASE_URL": f"sqlite:///{folder}/capline.db"}), receipts


def test_each_line_of_a_cost_is_shown(ledger: tuple[Shell, list[dict[str, Any]]]) -> None:
    shell, (priced, _) = ledger
    found = shell.json("prices", "explain", priced["receipt_id"])
    assert found["cost_nano_usd"] == found["recorded_cost_nano_usd"] == priced["cost_nano_usd"] > 0
    assert found["price_row"] == priced["price_row"]
    assert [line["meter"] for line in found["lines"]] == ["input", "output"]
    shown = shell.run("prices", "explain", priced["operation_id"]).stdout
    assert "gpt-4o-mini is listed, served as standard" in shown


def test_an_unpriced_receipt_says_why(ledger: tuple[Shell, list[dict[str, Any]]]) -> None:
    shell, (_, unpriced) = ledger
    assert shell.json("prices", "explain", unpriced["receipt_id"])["reason"] == "model_unknown"
    assert "unpriced: model_unknown" in shell.run("prices", "explain", unpriced["receipt_id"]).stdout


def test_another_list_answers_beside(ledger: tuple[Shell, list[dict[str, Any]]], tmp_path: Path) -> None:
    shell, (priced, _) = ledger
    lists = shell.json("prices", "lists")
    earlier = shell.json("prices", "explain", priced["receipt_id"], "--list", lists[0]["id"])
    assert earlier["price_list"] == lists[0]["id"] != priced["price_list"]
    forged = tmp_path / "2026-12-01-0123456789ab.json"
    forged.write_text(json.dumps({}), "utf-8")
    assert "must not be used" in shell.fails("prices", "explain", priced["receipt_id"], "--list", str(forged))
