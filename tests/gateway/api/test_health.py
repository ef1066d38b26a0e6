"""Liveness, metrics and the page of routes: what anyone may see, and nothing more."""

from __future__ import annotations

import re

from tests.support.gateway import ADMIN, Harness
from tests.support.stores import stores


async def test_health_says_how_store_and_counters_are(gateway: Harness) -> None:
    found = (await gateway.http.get("/health")).json()
    assert (found["status"], found["node"], found["closed_at_start"]) == ("ok", "n1", 0)
    assert found["store"] == {
        "kind": stores.kind,
        "state": "ok",
        "good_s_ago": 0,
        "backlog": 0,
        "spooled": 0,
        "spool_failed": None,
    }
    assert found["counters"] == {
        "state": "memory",
        "running": 0,
        "held_nano_usd": 0,
        "held_usd": "0.000000000",
    }
    assert found["ledger_id"] == gateway.gateway.running.database.ledger_id
    assert [prices["age_days"] for prices in found["price_lists"]] == [61]
    gateway.gateway.running.services.ledger.writer.failed = "full"
    degraded = await gateway.http.get("/health")
    assert (degraded.status_code, degraded.json()["status"]) == (200, "degraded")


async def test_metrics_are_text_without_customers_or_keys(gateway: Harness) -> None:
    key = await gateway.make_key(name="secret-name")
    await gateway.chat(customer="secret-customer")
    gateway.secret = "unknown"
    await gateway.chat(customer="secret-customer")
    reply = await gateway.http.get("/metrics")
    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = reply.text.splitlines()
    assert 'capline_requests_total{dialect="openai",status="served"} 1' in lines
    assert 'capline_refusals_total{code="invalid_api_key"} 1' in lines
    assert "capline_in_flight 0" in lines
    assert "capline_price_list_age_days 61" in lines
    sample = re.compile(r'[a-z_]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? -?\d+')
    assert all(line.startswith(("# HELP ", "# TYPE ")) or sample.fullmatch(line) for line in lines)
    assert all(secret not in reply.text for secret in ("secret", key["id"], key["key"], ADMIN))


async def test_the_page_of_routes_asks_no_other_host(gateway: Harness) -> None:
    page = await gateway.http.get("/api/docs")
    assert page.status_code == 200
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert re.findall(r'(?:src|href)="?([^">\s]+)', page.text) == ["/api/openapi.json"]
    openapi = (await gateway.http.get("/api/openapi.json")).json()
    for path in ("/api/caps/{cap_id}/arm", "/api/spend", "/v1/ledger/export", "/health"):
        assert path in openapi["paths"]
        assert path in page.text
    limit = openapi["components"]["schemas"]["CapCreate"]["properties"]["limit_usd"]
    assert limit["anyOf"][0]["type"] == "string"
