"""Texts that one database would store and the other not: a call that was made has its receipt on both."""

from __future__ import annotations

import json

from tests.support.gateway import Harness
from tests.support.provider import Reply, chat_answer


async def test_a_model_with_a_nul_is_refused_before_anything_is_sent(gateway: Harness) -> None:
    """PostgreSQL stores no NUL: the call was made, and its receipt was lost."""
    refused = await gateway.chat(model="m-small\0")
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_request")
    assert gateway.provider.seen == []
    (receipt,) = await gateway.receipts()
    assert (receipt["status"], receipt["model_requested"]) == ("refused", None)


async def test_what_a_provider_says_with_a_nul_is_kept_without_it(gateway: Harness) -> None:
    answer = {
        **json.loads(chat_answer()),
        "id": "chat\0cmpl",
        "model": "m-\0small",
        "service_tier": "def\0ault",
    }
    gateway.provider.script = lambda _: Reply(body=json.dumps(answer).encode())
    assert (await gateway.chat()).status_code == 200
    (receipt,) = await gateway.receipts()
    assert (receipt["upstream_id"], receipt["model_served"], receipt["status"]) == (
        "chatcmpl",
        "m-small",
        "served",
    )
    assert "\0" not in receipt["service_tier"]


async def test_asking_for_a_nul_is_no_error_of_ours(gateway: Harness) -> None:
    found = await gateway.http.get(
        "/v1/responses/a%00b", headers={"authorization": f"Bearer {gateway.secret}"}
    )
    assert found.status_code == 404
    listed = await gateway.api("GET", "/api/receipts?model=a%00b")
    assert (listed.status_code, listed.json()["error"]["code"]) == (422, "invalid_request")
    assert (await gateway.api("GET", "/api/receipts/a%00b")).status_code == 404
