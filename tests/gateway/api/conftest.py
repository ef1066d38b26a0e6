"""What tests of the operator's plane share: keys of every role, and receipts written as history."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import httpx
import pytest

from gateway.policy import ROLES
from tests.support.gateway import Harness
from toolkit.core.receipts import Receipt

Ask = Callable[..., Awaitable[httpx.Response]]


@pytest.fixture
async def keys(gateway: Harness) -> dict[str | None, str]:
    """The secret of one key for each role, and of one without."""
    made = {role: (await gateway.make_key(name=str(role), role=role))["key"] for role in (*ROLES, None)}
    return made


@pytest.fixture
def ask(gateway: Harness) -> Ask:
    """A request with any Bearer secret, or with none."""

    async def send(
        secret: str | None, method: str, path: str, body: Any = None, **headers: str
    ) -> httpx.Response:
        sent = {} if secret is None else {"authorization": f"Bearer {secret}"}
        sent.update({name.replace("_", "-"): text for name, text in headers.items()})
        return await gateway.http.request(method, path, json=body, headers=sent)

    return send


@pytest.fixture
def write(gateway: Harness) -> Callable[[Iterable[Receipt]], Awaitable[None]]:
    """Append receipts to the ledger as if calls had left them."""

    async def append(history: Iterable[Receipt]) -> None:
        writer = gateway.gateway.running.services.ledger.writer
        rows = list(history)
        await writer.run(lambda connection: writer.append_in_job(connection, rows))

    return append
