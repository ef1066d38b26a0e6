"""The client: typed results, every page of a list, and one line of words for whatever goes wrong."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from console.bootstrap import admin_token
from console.gateway_client import GatewayClient, GatewayError
from tests.support.fake_gateway import TOKEN, FakeGateway


def test_a_list_is_read_to_its_end() -> None:
    gateway = FakeGateway()
    made = [gateway.add_cap(subject=f"c{number}", limit_usd="1.00")["id"] for number in range(5)]
    assert [cap.id for cap in gateway.client().caps()] == made


def test_money_arrives_as_whole_nano_usd() -> None:
    gateway = FakeGateway()
    gateway.add_cap(limit_usd="0.000001")
    (cap,) = gateway.client().caps()
    assert cap.limit_nano_usd == 1_000


def test_a_version_guards_changes_but_not_disarming() -> None:
    gateway = FakeGateway()
    cap = gateway.add_cap(limit_usd="1.00", armed=True)
    client = gateway.client()
    with pytest.raises(GatewayError) as stale:
        client.delete_cap(cap["id"], 1)
    assert stale.value.kind == "stale"
    assert client.disarm(cap["id"]).hard_stop is False
    assert client.disarm(cap["id"]).version == 3


@pytest.mark.parametrize(
    ("status", "kind"),
    [(403, "forbidden"), (404, "missing"), (409, "stale"), (422, "invalid"), (428, "stale"), (503, "broken")],
)
def test_a_no_keeps_the_gateways_words(status: int, kind: str) -> None:
    gateway = FakeGateway()
    gateway.fail["GET", "/api/caps"] = (status, "What is wrong.\nmore")
    with pytest.raises(GatewayError) as error:
        gateway.client().caps()
    assert (error.value.kind, error.value.words) == (kind, "What is wrong.")


def test_an_unknown_token_says_where_the_token_lies() -> None:
    gateway = FakeGateway()
    client = GatewayClient("http://gateway.test", "wrong", transport=httpx.MockTransport(gateway.handle))
    with pytest.raises(GatewayError, match="var/admin_token or CAPLINE_ADMIN_TOKEN"):
        client.caps()


def test_an_absent_gateway_is_unreachable() -> None:
    gateway = FakeGateway()
    gateway.down = True
    with pytest.raises(GatewayError, match="does not answer") as error:
        gateway.client().caps()
    assert error.value.kind == "unreachable"


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"items": [{"id": 1}], "next_cursor": null}'])
def test_an_answer_of_another_shape_is_an_error_and_no_empty_list(body: bytes) -> None:
    transport = httpx.MockTransport(lambda request: httpx.Response(200, content=body))
    with pytest.raises(GatewayError) as error:
        GatewayClient("http://gateway.test", TOKEN, transport=transport).caps()
    assert error.value.kind == "broken"


def test_a_list_without_an_end_is_not_followed_for_ever() -> None:
    page = {"items": [], "next_cursor": "again"}
    transport = httpx.MockTransport(lambda request: httpx.Response(200, json=page))
    with pytest.raises(GatewayError, match="has no end"):
        GatewayClient("http://gateway.test", TOKEN, transport=transport).caps()


def test_the_token_comes_from_the_environment_then_from_the_file(tmp_path: Path) -> None:
    file = tmp_path / "admin_token"
    assert admin_token({}, file) == ""
    file.write_text("from-file\n")
    assert admin_token({}, file) == "from-file"
    assert admin_token({"CAPLINE_ADMIN_TOKEN": "from-environment"}, file) == "from-environment"
