"""The official google-genai SDK with nothing changed but its address and key."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from google import genai
from google.genai import errors, types

from tests.support.servers import (
    Request,
    Scripted,
    ScriptedGateway,
    counting_relay,
    running,
    scripted_provider,
)

MODEL = "gemini-2.5-flash"
USAGE = {"promptTokenCount": 1_000, "candidatesTokenCount": 200, "totalTokenCount": 1_200}
COST = 800_000
"""1,000 input tokens at 300 and 200 output tokens at 2,500 nano-USD."""
ANSWER = {
    "candidates": [
        {"index": 0, "content": {"role": "model", "parts": [{"text": "ok"}]}, "finishReason": "STOP"}
    ],
    "modelVersion": MODEL,
    "responseId": "r-1",
    "usageMetadata": USAGE,
}


def answer(request: Request) -> Scripted:
    """Gemini, whole or streamed."""
    if ":streamGenerateContent" not in request.target:
        return Scripted([json.dumps(ANSWER).encode()])
    event = b"data: " + json.dumps(ANSWER).encode() + b"\r\n\r\n"
    return Scripted([event], headers=[("Content-Type", "text/event-stream")], chunked=True)


@pytest.fixture(scope="module")
def google(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedGateway]:
    """A gateway before a scripted Gemini that keeps what it got."""
    with (
        scripted_provider(answer) as upstream,
        running(
            tmp_path_factory.mktemp("google"),
            upstream.url,
            GEMINI_API_KEY="k-upstream",
            CAPLINE_GEMINI_BASE_URL=upstream.url,
        ) as process,
    ):
        yield ScriptedGateway(upstream, process)


@pytest.fixture(autouse=True)
def no_google_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK reads its key and address from the environment too."""
    for name in ("GOOGLE_API_KEY", "GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL", "GOOGLE_GENAI_USE_VERTEXAI"):
        monkeypatch.delenv(name, raising=False)


def ask(url: str, key: str, customer: str, *, stream: bool) -> types.GenerateContentResponse:
    """One call; of a stream its last chunk."""
    tags = {"x-capline-tags": f"customer:{customer}"}
    with genai.Client(api_key=key, http_options=types.HttpOptions(base_url=url, headers=tags)) as client:
        if stream:
            return list(client.models.generate_content_stream(model=MODEL, contents="hi"))[-1]
        return client.models.generate_content(model=MODEL, contents="hi")


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
def test_a_call_keeps_its_usage_and_leaves_one_priced_receipt(google: ScriptedGateway, stream: bool) -> None:
    rows, seen = len(google.gateway.receipts()), len(google.upstream.seen)
    found = ask(google.gateway.url, google.gateway.secret, "rich", stream=stream)
    assert found.text == "ok"
    assert found.usage_metadata is not None
    assert found.usage_metadata.total_token_count == 1_200
    (receipt,) = google.gateway.receipts()[rows:]
    assert (receipt["status"], receipt["cost_nano_usd"], receipt["stream"]) == ("served", COST, stream)
    assert len(google.upstream.seen) == seen + 1


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
def test_a_reached_cap_is_one_attempt(google: ScriptedGateway, stream: bool) -> None:
    cap = google.gateway.make_cap(subject="poor", limit_usd="0")
    rows, seen = len(google.gateway.receipts()), len(google.upstream.seen)
    with (
        counting_relay(google.gateway.port) as relay,
        pytest.raises(errors.ClientError) as caught,
    ):
        ask(relay.url, google.gateway.secret, "poor", stream=stream)
    google.gateway.delete_cap(cap)
    assert (caught.value.code, relay.requests) == (402, 1)
    assert [row["refusal_code"] for row in google.gateway.receipts()[rows:]] == ["budget_exceeded"]
    assert len(google.upstream.seen) == seen
