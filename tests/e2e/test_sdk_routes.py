"""The official OpenAI SDK on its routes beside chat, with nothing changed but `base_url` and the key.

Each call goes to the provider itself and through the gateway: the caller must get the same, and one receipt is left.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from typing import Any

import openai
import pytest

from tests.support.servers import Request, Scripted, ScriptedGateway

SSE = [("Content-Type", "text/event-stream")]
AUDIO = [("Content-Type", "audio/mpeg")]
TEXT = [("Content-Type", "text/plain; charset=utf-8")]
SOUND = bytes(range(256)) * 300
CHAT_USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
IMAGE_USAGE = {
    "input_tokens": 50,
    "input_tokens_details": {"text_tokens": 50, "image_tokens": 0},
    "output_tokens": 4_160,
    "total_tokens": 4_210,
}
HEARD_USAGE = {
    "type": "tokens",
    "input_tokens": 110,
    "input_token_details": {"text_tokens": 10, "audio_tokens": 100},
    "output_tokens": 20,
    "total_tokens": 130,
}


def events(*data: Any, done: bool = False) -> list[bytes]:
    """Events as OpenAI sends them."""
    made = [f"data: {json.dumps(one)}\n\n".encode() for one in data]
    return [*made, b"data: [DONE]\n\n"] if done else made


def written(text: str | None, **more: Any) -> dict[str, Any]:
    """A legacy completion, or a chunk of one; a usage chunk has no text."""
    choices = [] if text is None else [{"index": 0, "text": text, "finish_reason": None, "logprobs": None}]
    made = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "gpt-3.5-turbo-instruct"}
    return {**made, "choices": choices, **more}


def whole(answer: Any) -> Scripted:
    """One JSON answer."""
    return Scripted([json.dumps(answer).encode()])


Ask = Callable[[openai.OpenAI], Any]


def complete(client: openai.OpenAI) -> Any:
    return client.completions.create(model="gpt-3.5-turbo-instruct", prompt=["a", "b"], max_tokens=5)


def complete_in_pieces(client: openai.OpenAI) -> Any:
    return client.completions.create(model="gpt-3.5-turbo-instruct", prompt=[1, 2], stream=True)


def embed(client: openai.OpenAI) -> Any:
    return client.embeddings.create(model="text-embedding-3-small", input=["a", "b"])


def moderate(client: openai.OpenAI) -> Any:
    return client.moderations.create(input="a text")


def draw(client: openai.OpenAI) -> Any:
    return client.images.generate(model="gpt-image-1", prompt="a cat", n=1)


def draw_in_pieces(client: openai.OpenAI) -> Any:
    return client.images.generate(model="gpt-image-1", prompt="a cat", stream=True, partial_images=1)


def hear(client: openai.OpenAI) -> Any:
    return client.audio.transcriptions.create(model="gpt-4o-transcribe", file=("a.wav", SOUND))


def hear_as_text(client: openai.OpenAI) -> Any:
    return client.audio.transcriptions.create(model="whisper-1", file=("a.wav", SOUND), response_format="srt")


def hear_in_pieces(client: openai.OpenAI) -> Any:
    return client.audio.transcriptions.create(model="gpt-4o-transcribe", file=("a.wav", SOUND), stream=True)


def speak(client: openai.OpenAI) -> Any:
    return client.audio.speech.create(model="tts-1", voice="alloy", input="hi").read()


def speak_in_pieces(client: openai.OpenAI) -> Any:
    with client.audio.speech.with_streaming_response.create(
        model="tts-1", voice="alloy", input="hi"
    ) as found:
        return b"".join(found.iter_bytes())


MODERATED = {"id": "modr-1", "model": "omni-moderation-latest", "results": []}
EMBEDDED = {
    "object": "list",
    "data": [{"object": "embedding", "index": 0, "embedding": "AACAPw=="}],
    "model": "text-embedding-3-small",
    "usage": {"prompt_tokens": 2, "total_tokens": 2},
}
ROUTES: dict[str, tuple[Ask, Scripted]] = {
    "completions": (complete, whole(written("x", usage=CHAT_USAGE))),
    "completions stream": (
        complete_in_pieces,
        Scripted(events(written("x"), written("y"), done=True), headers=SSE, chunked=True),
    ),
    "embeddings": (embed, whole(EMBEDDED)),
    "moderations": (moderate, whole(MODERATED)),
    "images": (draw, whole({"created": 1, "data": [{"b64_json": "eHg="}], "usage": IMAGE_USAGE})),
    "images stream": (
        draw_in_pieces,
        Scripted(
            events(
                {"type": "image_generation.partial_image", "b64_json": "eA==", "partial_image_index": 0},
                {"type": "image_generation.completed", "b64_json": "eHg=", "usage": IMAGE_USAGE},
            ),
            headers=SSE,
            chunked=True,
        ),
    ),
    "transcriptions": (hear, whole({"text": "hello", "usage": HEARD_USAGE})),
    "transcriptions as text": (hear_as_text, Scripted([b"1\n00:00 --> 00:01\nhello\n"], headers=TEXT)),
    "transcriptions stream": (
        hear_in_pieces,
        Scripted(
            events(
                {"type": "transcript.text.delta", "delta": "hello"},
                {"type": "transcript.text.done", "text": "hello", "usage": HEARD_USAGE},
            ),
            headers=SSE,
            chunked=True,
        ),
    ),
    "speech": (speak, Scripted([SOUND[:1], SOUND[1:9_000], SOUND[9_000:]], headers=AUDIO, chunked=True)),
    "speech stream": (speak_in_pieces, Scripted([SOUND[:7], SOUND[7:]], headers=AUDIO, chunked=True)),
}


def told(ask: Ask, url: str, key: str) -> list[Any]:
    """What a call gives to its caller."""
    with openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as client:
        found = ask(client)
        if isinstance(found, str | bytes):
            return [found]
        parts: Iterable[Any] = found if isinstance(found, openai.Stream) else [found]
        return [part.model_dump() for part in parts]


@pytest.mark.parametrize("route", ROUTES)
def test_the_caller_gets_what_the_provider_says_and_one_receipt_is_left(
    scripted: ScriptedGateway, route: str
) -> None:
    ask, reply = ROUTES[route]
    asks_usage = events(written(None, usage=CHAT_USAGE))

    def script(request: Request) -> Scripted:
        """The reply, with the usage chunk where it is asked for: through the gateway alone."""
        if b"include_usage" not in request.body:
            return reply
        pieces = list(reply.pieces)
        return Scripted([*pieces[:-1], *asks_usage, pieces[-1]], headers=SSE, chunked=True)

    scripted.upstream.script = script
    before = len(scripted.gateway.receipts())
    straight = told(ask, scripted.upstream.url, "sk-straight")
    through = told(ask, scripted.gateway.url, scripted.gateway.secret)
    assert through == straight
    receipts = scripted.gateway.receipts()[before:]
    assert [(receipt["status"], receipt["client_left"]) for receipt in receipts] == [("served", False)]
    direct, passed = scripted.upstream.seen[-2:]
    if route != "completions stream":  # of which usage is asked for
        assert _without_boundary(passed) == _without_boundary(direct)


def _without_boundary(request: Request) -> str:
    """A hash of a body in which a form's random boundary is left out."""
    kind = request.header("content-type") or ""
    boundary = kind.partition("boundary=")[2].strip('"').encode()
    body = request.body.replace(boundary, b"") if boundary else request.body
    return hashlib.sha256(body).hexdigest()


@pytest.mark.parametrize("ask", [embed, hear, speak, draw])
def test_a_refusal_is_the_sdks_own_exception(scripted: ScriptedGateway, ask: Ask) -> None:
    with pytest.raises(openai.AuthenticationError):
        told(ask, scripted.gateway.url, "cpl_wrong")
