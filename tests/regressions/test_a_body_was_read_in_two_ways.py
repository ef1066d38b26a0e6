"""Bodies that the gateway read otherwise than a provider may: held too low, or answered with a bare 500."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.dialects import anthropic_messages, openai_chat
from gateway.dialects.base import BadRequest
from tests.support.gateway import Harness, running_gateway

IMAGE = b'{"type":"image_url","image_url":{"url":"https://x.test/a.png"}}'


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Harness]:
    async with running_gateway(tmp_path) as harness:
        yield harness


def test_an_image_spelled_with_an_escape_is_an_image() -> None:
    part = IMAGE.replace(b"_url", b"\\u005furl")
    chat = openai_chat.parse(b'{"model":"m","messages":[{"role":"user","content":[' + part + b"]}]}")
    assert chat.bounds.reaches_out
    block = b'{"type":"image","sourc\\u0065":{"type":"url","url":"https://x.test/a.png"}}'
    messages = anthropic_messages.parse(
        b'{"model":"m","messages":[{"role":"user","content":[' + block + b"]}]}"
    )
    assert messages.bounds.reaches_out


@pytest.mark.parametrize(
    "fields",
    [
        b'"max_tokens":100000,"max_tokens":1',
        b'"max_tokens" : 100000 , "max_tokens" : 1',
        b'"max_tokens":100000,"max\\u005ftokens":1',
        b'"n":128,"n":1',
        b'"model":"m","messages":[{"role":"user","content":"long"}]',
        b'"x":{},"x":{}',
    ],
)
@pytest.mark.parametrize("parse", [openai_chat.parse, anthropic_messages.parse])
def test_a_field_given_twice_is_refused(parse: object, fields: bytes) -> None:
    assert callable(parse)
    with pytest.raises(BadRequest, match="more than once"):
        parse(b'{"model":"m",' + fields + b',"messages":[]}')


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"m","messages":[{"a":1,"b":2},{"a":1}]}',
        b' {\n  "model" : "m",\n "messages" : [ ]\n}\n',
        b'{"mod\\u0065l":"m","messages":[]}',
        '{"model":"m","é":"\\u00e9","messages":[{"content":"ü"}]}'.encode(),
    ],
)
def test_any_other_spelling_is_taken(body: bytes) -> None:
    assert openai_chat.parse(body).model == "m"


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"m-small","messages":[{"role":"user","content":[{"type":"text","text":"\xff"},'
        + IMAGE
        + b"]}]}",
        b'{"model":"m-small","messages":[{"role":"user","content":"\xff"}]}',
        b'{"model":"m-small","stream":true,"\xff":1,"messages":[]}',
        b'{"model":"m-small","stream":true,"stream_options":{"x":"\xff"},"messages":[]}',
        b'{"model":"m-small","messages":[{"content":[' + IMAGE + b',{"x":1e999}]}]}',
        b'{"model":"' + b"m" * 257 + b'","messages":[]}',
    ],
)
async def test_what_no_provider_could_read_is_a_bad_request(gateway: Harness, body: bytes) -> None:
    sent = {"authorization": f"Bearer {gateway.secret}"}
    answer = await gateway.http.post("/v1/chat/completions", content=body, headers=sent)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")
    [row] = await gateway.receipts()
    assert (row["status"], row["refusal_code"], row["counted_nano_usd"]) == ("refused", "invalid_request", 0)


def test_options_of_a_stream_keep_their_bytes() -> None:
    body = b'{"model":"m","stream":true,"stream_options":{"x":1e999,"include_usage":false},"messages":[]}'
    sent = openai_chat.prepare(body, openai_chat.parse(body), "m")
    assert b'{"x":1e999,"include_usage":true}' in sent
