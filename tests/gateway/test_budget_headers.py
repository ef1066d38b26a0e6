"""The figures on answers, line by line (R034, R040, R093-R105, contract §9)."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.support.gateway import Harness
from tests.support.provider import Reply, chat_answer


def figures(reply: httpx.Response) -> dict[str, str]:
    """The budget headers, without their prefix."""
    return {
        name.removeprefix("x-capline-budget-"): text
        for name, text in reply.headers.items()
        if "-budget-" in name
    }


ORGANIZATION: dict[str, Any] = {"scope": "organization", "subject": "default"}


async def test_no_armed_cap_prints_nothing(gateway: Harness) -> None:  # R097, R098
    await gateway.make_cap(limit_usd="1", armed=False)
    assert figures(await gateway.chat(customer="a")) == {}


async def test_the_pair_names_the_tightest_armed_cap(gateway: Harness) -> None:  # R093, R094
    await gateway.make_cap(**ORGANIZATION, limit_usd="100", window="year")
    await gateway.make_cap(scope="key", limit_usd="50", window="week")
    assert figures(await gateway.chat()) == {"scope": "key", "window": "week"}


async def test_of_equal_caps_the_more_specific_is_named_then_the_lower_id(gateway: Harness) -> None:  # R062
    await gateway.make_cap(**ORGANIZATION, limit_usd="1")
    await gateway.make_cap(scope="key", limit_usd="1", window="week")
    await gateway.make_cap(scope="key", limit_usd="1", window="day")
    assert figures(await gateway.chat()) == {"scope": "key", "window": "week"}


async def test_three_figures_ride_under_a_customers_cap_and_the_pair_is_its_own(gateway: Harness) -> None:
    await gateway.make_cap(**ORGANIZATION, limit_usd="0.50")  # R095, R096, R101, R103
    await gateway.make_cap(limit_usd="20")
    reply = await gateway.chat(customer="a", max_tokens=10)
    held = len(gateway.provider.seen[-1].body) * 1_000 + 10 * 4_000
    remaining = (20_000_000_000 - held) // 1_000
    assert figures(reply) == {
        "scope": "customer",
        "window": "month",
        "remaining": f"{remaining // 10**6}.{remaining % 10**6:06d}",
        "cap": "20.000000",
        "resets-at": "2027-01-01T00:00:00Z",
    }


@pytest.mark.parametrize(("admission", "taken"), [("floor", "floor"), ("after", "nothing")])
async def test_remaining_counts_what_the_caps_own_mode_takes(
    gateway: Harness, admission: str, taken: str
) -> None:
    await gateway.make_cap(limit_usd="1", admission=admission)
    reply = await gateway.chat(customer="a", size=8_000)
    # floor: 2,000 tokens at the list's cheapest input rate, m-small's cached 0.1 = 200,000 nano-USD
    assert figures(reply)["remaining"] == {"floor": "0.999800", "nothing": "1.000000"}[taken]


async def test_several_customer_caps_show_the_one_with_the_least_headroom(gateway: Harness) -> None:
    await gateway.make_cap(limit_usd="20", window="month")
    await gateway.make_cap(limit_usd="3", window="day")
    shown = figures(await gateway.chat(customer="a"))
    assert (shown["window"], shown["cap"], shown["resets-at"]) == ("day", "3.000000", "2026-12-02T00:00:00Z")


async def test_a_cap_that_never_resets_says_no_instant(gateway: Harness) -> None:  # R040
    await gateway.make_cap(limit_usd="0.001", window="never")
    gateway.provider.script = lambda seen: Reply(body=chat_answer(prompt=1_000, output=0))
    served = await gateway.chat(customer="a")
    assert "resets-at" not in figures(served)
    refused = await gateway.chat(customer="a")
    assert (refused.status_code, figures(refused)) == (402, {"scope": "customer", "window": "never"})
    assert refused.json()["error"]["details"]["resets_at"] is None


async def test_a_customers_refusal_carries_the_pair_and_the_reset(gateway: Harness) -> None:  # R104
    await gateway.make_cap(limit_usd="0", window="week")
    refused = await gateway.chat(customer="a")
    assert figures(refused) == {"scope": "customer", "window": "week", "resets-at": "2026-12-07T00:00:00Z"}


async def test_another_scopes_refusal_carries_the_pair_only(gateway: Harness) -> None:  # R099
    await gateway.make_cap(**ORGANIZATION, limit_usd="0")
    assert figures(await gateway.chat(customer="a")) == {"scope": "organization", "window": "month"}


async def test_nothing_left_reads_zero_and_the_next_call_is_refused(gateway: Harness) -> None:  # R102
    await gateway.make_cap(limit_usd="1", admission="after")
    gateway.provider.script = lambda seen: Reply(body=chat_answer(prompt=1_000_000, output=0))
    assert figures(await gateway.chat(customer="a"))["remaining"] == "1.000000"
    assert (await gateway.chat(customer="a")).status_code == 402


async def test_a_cap_without_dollars_shows_the_pair_alone(gateway: Harness) -> None:
    await gateway.make_cap(request_limit=2)
    assert figures(await gateway.chat(customer="a")) == {"scope": "customer", "window": "month"}
    assert (await gateway.chat(customer="a")).status_code == 200
    refused = await gateway.chat(customer="a")
    assert (refused.status_code, refused.json()["error"]["details"]["fits_max_tokens"]) == (402, None)


async def test_lower_max_tokens_that_would_fit_is_named(gateway: Harness) -> None:  # B25, O017
    await gateway.make_cap(limit_usd="0.01")
    refused = await gateway.chat(customer="a", max_tokens=10_000, size=1_000)
    assert refused.status_code == 402
    fits = refused.json()["error"]["details"]["fits_max_tokens"]
    # (0.01 USD - 1,000 bytes at 1 USD a million) / 4 USD a million = 2,250 tokens
    assert fits == 2_250
    assert "$0.041000" in refused.json()["error"]["message"]
    assert (await gateway.chat(customer="a", max_tokens=fits + 1, size=1_000)).status_code == 402
    assert (await gateway.chat(customer="a", max_tokens=fits, size=1_000)).status_code == 200


async def test_anthropic_refusals_have_their_own_shape(gateway: Harness) -> None:
    await gateway.make_cap(limit_usd="0")
    headers = {"x-api-key": gateway.secret, "x-capline-tags": "customer:a"}
    body = {"model": "claude-test", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}
    refused = await gateway.http.post("/v1/messages", json=body, headers=headers)
    assert refused.status_code == 402
    told = refused.json()
    assert (told["type"], told["error"]["type"]) == ("error", "billing_error")
    assert told["error"]["details"]["error_code"] == "budget_exceeded"
    assert told["request_id"] == refused.headers["request-id"] == refused.headers["x-capline-request-id"]


@pytest.mark.parametrize(
    ("status", "kind"), [(402, "insufficient_quota"), (403, "insufficient_quota"), (429, "rate_limit_error")]
)
async def test_a_caps_own_status_never_changes_the_code(gateway: Harness, status: int, kind: str) -> None:
    await gateway.make_cap(limit_usd="0", refusal_status=status)
    refused = await gateway.chat(customer="a")
    assert refused.status_code == status
    assert (refused.json()["error"]["code"], refused.json()["error"]["type"]) == ("budget_exceeded", kind)
    assert refused.headers["x-should-retry"] == "false"
    assert "retry-after" not in refused.headers
