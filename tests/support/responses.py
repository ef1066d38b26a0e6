"""OpenAI responses as a provider sends them: the object, and the events of its stream."""

from __future__ import annotations

import itertools
import json
from typing import Any

from tests.support.provider import Reply, Seen

SSE = [(b"content-type", b"text/event-stream")]


def usage(
    prompt: int = 10, output: int = 5, cached: int = 0, reasoning: int = 0, **more: Any
) -> dict[str, Any]:
    """A usage that adds up."""
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": prompt + output,
        **more,
    }


def response(status: str = "completed", *, id: str = "resp_1", **fields: Any) -> dict[str, Any]:
    """A response object; it has a usage once it has ended."""
    return {
        "id": id,
        "object": "response",
        "created_at": 1,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": "m-small",
        "output": [] if status in ("queued", "in_progress") else [message()],
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "service_tier": "default",
        "usage": None if status in ("queued", "in_progress") else usage(),
        **fields,
    }


def message(text: str = "ok") -> dict[str, Any]:
    """An output item."""
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "content": [part]}


def events(status: str = "completed", **fields: Any) -> list[dict[str, Any]]:
    """The events of a stream that ends with that status."""
    item = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    part = {"type": "output_text", "text": "ok", "annotations": []}
    early = {**fields, "usage": None, "output": []}
    told: list[dict[str, Any]] = [
        {"type": "response.created", "response": response("in_progress", **early)},
        {"type": "response.in_progress", "response": response("in_progress", **early)},
        {"type": "response.output_item.added", "output_index": 0, "item": {**message(), "content": []}},
        {"type": "response.content_part.added", **item, "part": {**part, "text": ""}},
        {"type": "response.output_text.delta", **item, "delta": "ok", "logprobs": []},
        {"type": "response.output_text.done", **item, "text": "ok", "logprobs": []},
        {"type": "response.content_part.done", **item, "part": part},
        {"type": "response.output_item.done", "output_index": 0, "item": message()},
        {"type": f"response.{status}", "response": response(status, **fields)},
    ]
    return [{**event, "sequence_number": number} for number, event in enumerate(told)]


def sse(told: list[dict[str, Any]]) -> list[bytes]:
    """Events as chunks of a stream, one each."""
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in told]


class BackgroundProvider:
    """A script for `ScriptedProvider` that runs responses in the background and counts what it billed."""

    _numbers = itertools.count(100)

    def __init__(self) -> None:
        self.responses: dict[str, dict[str, Any]] = {}
        self.seen: list[Seen] = []

    def __call__(self, seen: Seen) -> Reply:
        """One call: a new response, a look at one, or a cancel."""
        self.seen.append(seen)
        path = seen.url.partition("?")[0].partition("/v1/responses")[2].strip("/")
        response_id, _, word = path.partition("/")
        if not response_id:
            response_id = f"resp_{next(self._numbers)}"
            self.responses[response_id] = response("queued", id=response_id, background=True)
        if response_id not in self.responses:
            return Reply(status=404, body=b'{"error": {"message": "no such response"}}')
        if word == "cancel":
            self.end(response_id, "cancelled", usage=None, output=[])
        return Reply(body=json.dumps(self.responses[response_id]).encode())

    def end(self, response_id: str, status: str = "completed", **fields: Any) -> None:
        """A response ends."""
        ended = response(status, id=response_id, background=True, **fields)
        self.responses[response_id] = ended

    def looks(self) -> int:
        """How often it was asked for a response."""
        return sum(seen.method == "GET" for seen in self.seen)

    def tokens(self) -> tuple[int, int]:
        """Input and output tokens that it billed."""
        usages = [each["usage"] for each in self.responses.values() if each["usage"] is not None]
        return sum(u["input_tokens"] for u in usages), sum(u["output_tokens"] for u in usages)
