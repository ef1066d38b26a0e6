"""Gemini generateContent and its stream: the model stands in the path, the last usage of a stream counts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import msgspec

from gateway.dialects.base import (
    Arrival,
    BadRequest,
    Call,
    Dialect,
    Handling,
    Served,
    check_model,
)
from gateway.dialects.gemini_request import bounds_of
from gateway.refusals import Refusal
from toolkit.core.conventions import gemini
from toolkit.core.tiers import gemini_tier
from toolkit.core.usage import Usage, UsageProblem

_PATH = re.compile(
    r"/(?P<version>v1|v1beta)/models/(?P<model>.*):(?P<method>generateContent|streamGenerateContent)"
)
"""Google's SDK asks in `/v1` where it is given no version, others in `/v1beta`; the provider gets the same one."""
_STREAM = "streamGenerateContent"

_STATUSES: Mapping[int, str] = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    402: "RESOURCE_EXHAUSTED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    413: "INVALID_ARGUMENT",
    422: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
}
"""google.rpc words for the statuses of refusals; a 5xx is UNAVAILABLE."""


class _Grounding(msgspec.Struct):
    webSearchQueries: list[Any] | None = None


class _Candidate(msgspec.Struct):
    index: int | None = None
    finishReason: Any = None
    groundingMetadata: _Grounding | None = None


class _Feedback(msgspec.Struct):
    blockReason: Any = None


class _Answer(msgspec.Struct):
    responseId: str | None = None
    modelVersion: str | None = None
    usageMetadata: dict[str, Any] | None = None
    promptFeedback: _Feedback | None = None
    candidates: list[_Candidate] | None = None
    error: Any = None


_answer = msgspec.json.Decoder(_Answer)


def parse(body: bytes, arrival: Arrival) -> Call:
    """What a generateContent request says about itself; its model and whether it streams stand in its path."""
    found = _PATH.fullmatch(arrival.target.partition("?")[0])
    if found is None:
        raise BadRequest("The request names no model.")
    model = found["model"]
    check_model(model)
    if any(part in ("", ".", "..") for part in model.split("/")):
        raise BadRequest("The model's id has an empty part.")
    return Call(model=model, stream=found["method"] == _STREAM, bounds=bounds_of(body))


def prepare(body: bytes, _call: Call, _model: str) -> bytes:
    """The body to send: nothing in it names the model."""
    return body


def target(came: str, call: Call, model: str) -> str:
    """The path of the provider's own model, with the query that came."""
    _, mark, query = came.partition("?")
    method = _STREAM if call.stream else "generateContent"
    version = came.split("/", 2)[1]
    return f"/{version}/models/{quote(model, safe='/')}:{method}{mark}{query}"


def read_answer(body: bytes, call: Call) -> Served:
    """The facts of a whole JSON answer; unreadable JSON has no usage."""
    meter = GenerateStreamMeter(call)
    meter.event(body)
    return meter.served()


class GenerateStreamMeter:
    """Chunks up to the end of the body. Each is a whole answer of its own: the last usage counts, and the last model.

    There is no final event: the answer is whole when every candidate that came has a reason for its end, or the
    prompt was blocked, and no chunk was an error.
    """

    def __init__(self, call: Call) -> None:
        self._choices = call.bounds.choices
        self._answer = _Answer()
        self._open: set[int] = set()
        self._finished: set[int] = set()
        self._searches: dict[int, list[Any]] = {}
        self._blocked = False
        self._failed = False

    def event(self, data: bytes | None) -> Handling:
        """Note model, id, usage and searches; hold back from the chunk on that ends the last candidate."""
        if data is None:
            return Handling.FORWARD
        try:
            chunk = _answer.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return Handling.FORWARD
        known = self._answer
        known.responseId = chunk.responseId or known.responseId
        known.modelVersion = chunk.modelVersion or known.modelVersion
        known.usageMetadata = chunk.usageMetadata or known.usageMetadata
        self._failed |= chunk.error is not None
        self._blocked |= chunk.promptFeedback is not None and bool(chunk.promptFeedback.blockReason)
        for place, candidate in enumerate(chunk.candidates or ()):
            self._note(candidate, place if candidate.index is None else candidate.index)
        ended = self._blocked or len(self._finished) >= self._choices
        return Handling.FINAL if ended else Handling.FORWARD

    def complete(self) -> bool:
        """Whether the answer came to its own end."""
        return not self._failed and (self._blocked or (bool(self._finished) and not self._open))

    def served(self) -> Served:
        """What the chunks said so far."""
        known, usage = self._answer, self._answer.usageMetadata
        if usage is None:
            return Served(
                model=known.modelVersion,
                upstream_id=known.responseId,
                usage=UsageProblem("usage_missing"),
            )
        said = [_word(usage.get(name)) for name in ("serviceTier", "trafficType")]
        return Served(
            model=known.modelVersion,
            upstream_id=known.responseId,
            service_tier=said[0] or said[1],
            tier=gemini_tier(said[0], traffic_type=said[1]),
            usage=_with_searches(gemini(usage), self._searches.values()),
        )

    def _note(self, candidate: _Candidate, index: int) -> None:
        if candidate.finishReason in (None, "", 0, "FINISH_REASON_UNSPECIFIED"):
            if index not in self._finished:
                self._open.add(index)
        else:
            self._open.discard(index)
            self._finished.add(index)
        grounding = candidate.groundingMetadata
        if grounding is not None and grounding.webSearchQueries is not None:
            self._searches[index] = grounding.webSearchQueries


def render(refusal: Refusal, request_id: str) -> bytes:
    """`{"error": {"code", "message", "status", "details"}}`, our own code as the reason of an ErrorInfo."""
    info = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": refusal.code,
        "domain": "capline",
        "metadata": {**refusal.details, "request_id": request_id},
    }
    error = {
        "code": refusal.status,
        "message": refusal.message,
        "status": _STATUSES.get(refusal.status, "UNAVAILABLE"),
        "details": [info],
    }
    return msgspec.json.encode({"error": error})


def authorize(api_key: str) -> Mapping[str, str]:
    """Google's own key header."""
    return {"x-goog-api-key": api_key}


def is_spend_limit(_status: int, _body: bytes) -> bool:
    """Gemini's errors name no spend limit of its own; its 429 is throughput."""
    return False


def _with_searches(usage: Usage | UsageProblem, by_candidate: Iterable[list[Any]]) -> Usage | UsageProblem:
    """The usage with the search queries that were run, which no count of tokens carries."""
    searches = sum([len(queries) for queries in by_candidate])
    if isinstance(usage, UsageProblem) or not searches:
        return usage
    return replace(usage, units={**usage.units, "web_search": searches})


def _word(said: Any) -> str | None:
    """What the provider says as text; something else is no known word, and so no listed tier."""
    return said if isinstance(said, str | None) else str(said)


GENERATE = Dialect(
    name="gemini",
    pattern=re.compile(r"/v1(?:beta)?/models/.*:generateContent"),
    route="/v1beta/models/{model}:generateContent",
    parse=parse,
    prepare=prepare,
    target=target,
    read_answer=read_answer,
    stream_meter=GenerateStreamMeter,
    render=render,
    authorize=authorize,
    keys_in_query=frozenset({"key", "access_token", "oauth_token"}),
    is_spend_limit=is_spend_limit,
)
STREAM = replace(
    GENERATE,
    pattern=re.compile(r"/v1(?:beta)?/models/.*:streamGenerateContent"),
    route="/v1beta/models/{model}:streamGenerateContent",
    array_streams=True,
)
