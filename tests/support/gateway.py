"""A whole gateway in this process: real SQLite, scripted provider, a clock that is moved by hand."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from gateway.app import Gateway
from gateway.settings import Provider, Settings
from tests.support.clock import ManualClock
from tests.support.prices import write_list
from tests.support.provider import ScriptedProvider
from tests.support.stores import stores

ADMIN = "test-admin-token"

PROVIDERS = (
    Provider(
        name="openai",
        dialect="openai",
        base_url="http://provider.test/v1",
        api_keys=("sk-up",),
        prices="openai",
    ),
    Provider(
        name="anthropic",
        dialect="anthropic",
        base_url="http://provider.test",
        api_keys=("sk-ant",),
        prices="anthropic",
    ),
)


@dataclass
class Harness:
    """A started gateway and how to talk to it."""

    gateway: Gateway
    http: httpx.AsyncClient
    provider: ScriptedProvider
    clock: ManualClock
    secret: str = ""

    async def api(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        """A call of the control plane as the admin."""
        sent = {
            "authorization": f"Bearer {ADMIN}",
            **{name.replace("_", "-"): text for name, text in headers.items()},
        }
        return await self.http.request(method, path, json=body, headers=sent)

    async def make_cap(self, *, armed: bool = True, **fields: Any) -> dict[str, Any]:
        """A cap, armed unless told otherwise."""
        wanted = {"scope": "customer", "subject": "*", "window": "month", **fields}
        made = await self.api("POST", "/api/caps", wanted)
        assert made.status_code == 201, made.text
        cap: dict[str, Any] = made.json()
        if armed:
            done = await self.api(
                "POST", f"/api/caps/{cap['id']}/arm", {"reason": "test"}, if_match=str(cap["version"])
            )
            assert done.status_code == 200, done.text
            cap = done.json()
        return cap

    async def make_key(self, **fields: Any) -> dict[str, Any]:
        """A key; its secret is in `key`."""
        made = await self.api("POST", "/api/keys", {"name": "test", **fields})
        assert made.status_code == 201, made.text
        return dict(made.json())

    async def chat(
        self,
        *,
        customer: str | None = None,
        model: str = "m-small",
        max_tokens: int | None = 10,
        size: int | None = None,
        headers: dict[str, str] | None = None,
        **fields: Any,
    ) -> httpx.Response:
        """A chat completion; `size` pads the body to exactly that many bytes."""
        body = {"model": model, "messages": [{"role": "user", "content": "hi"}], **fields}
        if max_tokens is not None:
            body["max_tokens"] = max_tokens
        content = json.dumps(body).encode()
        if size is not None:
            body["messages"][0]["content"] += "x" * (size - len(content))
            content = json.dumps(body).encode()
            assert len(content) == size
        sent = {
            "authorization": f"Bearer {self.secret}",
            "content-type": "application/json",
            **(headers or {}),
        }
        if customer is not None:
            sent["x-capline-tags"] = f"customer:{customer}"
        return await self.http.post("/v1/chat/completions", content=content, headers=sent)

    async def receipts(self) -> list[dict[str, Any]]:
        """Every receipt, oldest first, as the export has them."""
        sent = {"authorization": f"Bearer {ADMIN}"}
        reply = await self.http.get(
            "/v1/ledger/export",
            params={"format": "jsonl", "from": "2020-01-01", "to": "2030-01-01"},
            headers=sent,
        )
        assert reply.status_code == 200, reply.text
        return [json.loads(line) for line in reply.text.splitlines()[1:-1]]


@contextlib.asynccontextmanager
async def running_gateway(
    folder: Path,
    *,
    provider: ScriptedProvider | None = None,
    clock: ManualClock | None = None,
    rows: list[dict[str, Any]] | None = None,
    **settings: Any,
) -> AsyncIterator[Harness]:
    """A gateway over `folder`, with one key made."""
    provider, clock = provider or ScriptedProvider(), clock or ManualClock()
    prices = folder / "prices"
    if not prices.is_dir():
        write_list(prices, rows)
    chosen = {
        "database_url": stores.url(folder),
        "var_dir": folder,
        "spool_dir": folder / "spool",
        "prices_dir": prices,
        "admin_token": ADMIN,
        "providers": PROVIDERS,
        **settings,
    }
    gateway = Gateway(Settings(**chosen), clock=clock, upstream=provider)
    async with gateway.lifespan(gateway.api):
        transport = httpx.ASGITransport(app=gateway)
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway.test") as http:
            harness = Harness(gateway, http, provider, clock)
            harness.secret = (await harness.make_key())["key"]
            yield harness
