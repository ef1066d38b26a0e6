"""Providers that speak OpenAI's dialect and count or bill in their own way, told by the configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.settings import Provider, Settings, SettingsError
from tests.support.gateway import Harness, running_gateway
from tests.support.prices import row
from tests.support.provider import Reply, chat_answer

ROWS = [row("m-small", input="1", output="4", cache_read="0.1")]


def provider(name: str, **fields: Any) -> Provider:
    """A provider of the OpenAI dialect under the prices of `openai`."""
    wanted = {"base_url": f"http://{name}.test/v1", "api_keys": (f"k-{name}",), "prices": "openai", **fields}
    return Provider(name=name, dialect="openai", **wanted)


def settings(tmp_path: Path, text: str) -> Settings:
    """Settings of a capline.toml."""
    path = tmp_path / "capline.toml"
    path.write_text(text, "utf-8")
    return Settings.load({}, path)


def table(name: str, **fields: str) -> str:
    """A `[providers.NAME]` table."""
    lines = {"dialect": "openai", "base_url": "https://x.test/v1", **fields}
    return f"[providers.{name}]\n" + "".join(f'{key} = "{value}"\n' for key, value in lines.items())


@pytest.mark.parametrize(
    ("name", "fields", "usage", "style"),
    [
        ("openai", {}, "openai", "openai"),
        ("vllm", {}, "openai", "openai"),
        ("xai", {}, "xai", "xai"),
        ("grok", {"prices": "x-ai"}, "xai", "xai"),
        ("deepseek", {}, "deepseek", "deepseek"),
        ("eu", {"prices": "mistral"}, "mistral", "mistral"),
        ("groq", {}, "groq", "groq"),
        ("azure", {"prices": "openai"}, "azure", "openai"),
        ("mine", {"usage": "exclusive"}, "exclusive", "exclusive"),
        ("xai", {"usage": "openai"}, "openai", "openai"),
    ],
)
def test_a_providers_convention_goes_with_its_name_unless_it_is_said(
    tmp_path: Path, name: str, fields: dict[str, str], usage: str, style: str
) -> None:
    (found,) = settings(tmp_path, table(name, **fields)).providers
    assert (found.usage, found.usage_style) == (usage, style)


def test_an_unknown_convention_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"providers\.x\.usage is one of azure, openai, xai"):
        settings(tmp_path, table("x", usage="inclusive"))


async def served(tmp_path: Path, where: Provider, usage: Any, stream: bool) -> dict[str, Any]:
    """The receipt of one call of `where` whose answer has this usage."""
    whole = {
        "id": "x",
        "model": "m-small",
        "choices": [{"index": 0, "finish_reason": "stop"}],
        "usage": usage,
    }
    text = json.dumps(whole).encode()
    async with running_gateway(tmp_path, rows=ROWS, providers=(where,)) as gateway:
        if stream:
            chunks = [b"data: " + text + b"\n\n", b"data: [DONE]\n\n"]
            reply = Reply(chunks=chunks, headers=[(b"content-type", b"text/event-stream")])
        else:
            reply = Reply(body=text)
        gateway.provider.script = lambda seen: reply
        assert (await gateway.chat(stream=stream)).status_code == 200
        (receipt,) = await gateway.receipts()
        return receipt


XAI = {
    "prompt_tokens": 1_000,
    "completion_tokens": 50,
    "completion_tokens_details": {"reasoning_tokens": 200},
}
CACHED = {"prompt_tokens": 100, "completion_tokens": 50, "prompt_tokens_details": {"cached_tokens": 900}}
DEEPSEEK = {
    "prompt_tokens": 1_000,
    "completion_tokens": 50,
    "total_tokens": 1_050,
    "prompt_cache_hit_tokens": 900,
    "prompt_cache_miss_tokens": 100,
    "prompt_tokens_details": {"cached_tokens": 900},
}


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
@pytest.mark.parametrize(
    ("convention", "usage", "cost", "reason"),
    [
        # xAI: reasoning stands beside the completion, and the total proves it
        ("xai", XAI, 2_000_000, None),
        ("xai", {**XAI, "total_tokens": 1_250}, 2_000_000, None),
        ("openai", {**XAI, "total_tokens": 1_250}, 2_000_000, None),
        ("xai", {**XAI, "total_tokens": 1_251}, None, "usage_inconsistent"),
        # B58, B62: a cached count beyond the prompt is an exclusive one, or nothing
        ("exclusive", CACHED, 390_000, None),
        ("openai", CACHED, None, "usage_inconsistent"),
        ("exclusive", {**CACHED, "total_tokens": 1_050}, 390_000, None),
        ("exclusive", {**CACHED, "total_tokens": 1_051}, None, "usage_inconsistent"),
        # DeepSeek says its hits twice and is charged once
        ("deepseek", DEEPSEEK, 390_000, None),
        ("deepseek", {**DEEPSEEK, "prompt_cache_miss_tokens": 101}, None, "usage_inconsistent"),
        # Groq's timings are no counts
        (
            "groq",
            {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150, "total_time": 0.123},
            300_000,
            None,
        ),
        ("mistral", {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150}, 300_000, None),
        (
            "openrouter",
            {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150, "cost": 0.0005},
            300_000,
            None,
        ),
        # B64
        (
            "openai",
            {
                "prompt_tokens": 20,
                "completion_tokens": 500,
                "total_tokens": 520,
                "completion_tokens_details": {"reasoning_tokens": 450},
            },
            2_020_000,
            None,
        ),
    ],
)
async def test_each_convention_is_read_as_it_is_meant(
    tmp_path: Path, convention: Any, usage: Any, cost: int | None, reason: str | None, stream: bool
) -> None:
    receipt = await served(tmp_path, provider("p", usage=convention), usage, stream)
    if convention == "openai" and usage is CACHED:
        assert receipt["cost_nano_usd"] is None
        assert receipt["unpriced_reason"] in ("usage_invalid", "usage_inconsistent")
        return
    assert (receipt["cost_nano_usd"], receipt["unpriced_reason"]) == (cost, reason)


async def test_what_openrouter_charges_is_kept_beside_our_price(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150, "cost": 0.0005}
    receipt = await served(tmp_path, provider("openrouter", usage="openrouter"), usage, stream=True)
    assert (receipt["cost_nano_usd"], receipt["provider_cost_nano_usd"]) == (300_000, 500_000)


AZURE = provider("azure", usage="azure", base_url="https://res.openai.azure.com/openai/deployments/d1")


@pytest.mark.parametrize("status", [400, 408])
async def test_azure_may_bill_what_it_refuses(tmp_path: Path, status: int) -> None:  # contract §8
    async with running_gateway(tmp_path, rows=ROWS, providers=(AZURE, provider("other"))) as gateway:
        await gateway.make_cap(limit_usd="1")
        error = b'{"error": {"code": "content_filter", "message": "filtered"}}'
        gateway.provider.script = lambda seen: Reply(body=error, status=status)
        reply = await gateway.chat(customer="a")
        assert (reply.status_code, reply.content) == (status, error)
        assert (await gateway.chat(customer="a", model="other/m-small")).status_code == status
        billed, free = await gateway.receipts()
        assert (billed["status"], billed["cost_nano_usd"]) == ("abandoned", None)
        assert (billed["unpriced_reason"], billed["http_status"]) == ("possibly_billed", status)
        assert billed["counted_nano_usd"] == billed["hold_nano_usd"] > 0
        assert (free["status"], free["cost_nano_usd"], free["counted_nano_usd"]) == ("failed", 0, 0)


@pytest.mark.parametrize("status", [401, 403, 404, 429])
async def test_azures_other_refusals_are_free(tmp_path: Path, status: int) -> None:
    async with running_gateway(tmp_path, rows=ROWS, providers=(AZURE,)) as gateway:
        gateway.provider.script = lambda seen: Reply(body=b"{}", status=status)
        await gateway.chat()
        (receipt,) = await gateway.receipts()
        assert (receipt["status"], receipt["cost_nano_usd"], receipt["counted_nano_usd"]) == ("failed", 0, 0)


async def test_azure_is_asked_in_its_own_way_and_priced_by_the_model_it_names(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, rows=ROWS, providers=(AZURE,)) as gateway:
        gateway.provider.script = lambda seen: Reply(body=chat_answer("m-small", prompt=100, output=50))
        reply = await gateway.http.post(
            "/v1/chat/completions?api-version=2024-10-21",
            json={"model": "azure/my-deployment", "messages": []},
            headers={"authorization": f"Bearer {gateway.secret}", "api-key": "a-client's-own"},
        )
        assert reply.status_code == 200
        (seen,) = gateway.provider.seen
        assert seen.url == f"{AZURE.base_url}/chat/completions?api-version=2024-10-21"
        assert [value for name, value in seen.headers if name == "api-key"] == ["k-azure"]
        assert seen.header("authorization") is None
        assert json.loads(seen.body)["model"] == "my-deployment"
        (receipt,) = await gateway.receipts()
        assert (receipt["model_requested"], receipt["model_served"]) == ("azure/my-deployment", "m-small")
        assert receipt["cost_nano_usd"] == 300_000


async def test_a_deployment_without_a_price_is_unpriced_and_never_free(tmp_path: Path) -> None:  # B83
    async with running_gateway(tmp_path, rows=ROWS, providers=(AZURE,)) as gateway:
        gateway.provider.script = lambda seen: Reply(body=chat_answer("d1", prompt=100, output=50))
        await gateway.chat(model="d1")
        (receipt,) = await gateway.receipts()
        assert (receipt["cost_nano_usd"], receipt["unpriced_reason"]) == (None, "model_unknown")
        await gateway.make_cap(limit_usd="100")
        refused = await gateway.chat(customer="a", model="d1")
        assert (refused.status_code, refused.json()["error"]["code"]) == (402, "model_unpriced")


async def named(gateway: Harness, model: str) -> tuple[str, str]:
    """(host, model) that a call of this model reaches."""
    await gateway.chat(model=model)
    seen = gateway.provider.seen[-1]
    return seen.url.split("/")[2], json.loads(seen.body)["model"]


async def test_a_name_before_a_slash_picks_a_provider_and_any_other_slash_is_part_of_the_id(
    tmp_path: Path,
) -> None:  # B73
    providers = tuple(provider(name) for name in ("openai", "openrouter", "deepseek", "xai"))
    async with running_gateway(tmp_path, rows=ROWS, providers=providers) as gateway:
        assert await named(gateway, "m-small") == ("openai.test", "m-small")
        assert await named(gateway, "openrouter/openai/m-small") == ("openrouter.test", "openai/m-small")
        assert await named(gateway, "deepseek/m-small") == ("deepseek.test", "m-small")
        assert await named(gateway, "xai/m-small") == ("xai.test", "m-small")
        assert await named(gateway, "team/m-large") == ("openai.test", "team/m-large")
        assert await named(gateway, "xai/") == ("openai.test", "xai/")
