"""OpenAI responses: usage in the body or in the event that ends a stream; a background run answers before it ends."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

import msgspec

from gateway.dialects.base import (
    Call,
    Handling,
    Served,
    with_model,
)
from gateway.dialects.openai_responses_request import WINDOWS, parse
from gateway.dialects.openai_shape import (
    openai_dialect,
    provider_cost,
)
from toolkit.core.conventions.openai import openai_responses
from toolkit.core.tiers import STANDARD, openai_tier
from toolkit.core.usage import Usage, UsageProblem

ROUTE = "/v1/responses"

_VISITED = re.compile(r"/v1/responses/([A-Za-z0-9_.-]{1,256})(/cancel)?")
_ENDED = frozenset({"response.completed", "response.incomplete", "response.failed"})
_RUNNING = frozenset({"queued", "in_progress"})
_ABSENT = msgspec.Raw(b"")


class _Answer(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    status: str | None = None
    service_tier: str | None = None
    usage: Any = None
    tool_usage: Any = None
    output: msgspec.Raw = _ABSENT


class _Event(msgspec.Struct):
    type: str | None = None
    response: _Answer | None = None


class _OutputItem(msgspec.Struct):
    type: str | None = None
    status: str | None = None
    action: Any = None
    container_id: str | None = None
    environment: Any = None


_answer = msgspec.json.Decoder(_Answer, float_hook=Decimal)
_event = msgspec.json.Decoder(_Event, float_hook=Decimal)
_output = msgspec.json.Decoder(list[_OutputItem])


def read_answer(body: bytes, call: Call) -> Served:
    """The facts of a whole JSON answer; `running` when it came before its end. Unreadable JSON has no usage."""
    try:
        return _served(_answer.decode(body), call)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return Served()


class ResponseStreamMeter:
    """`response.created` to the event that ends it. Of each fact the last one that is not null counts."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._answer = _Answer()
        self._ended = False

    def event(self, data: bytes | None) -> Handling:
        """Note id, model, tier and usage; hold back the end of the response, and what comes after it."""
        if data is None:
            return Handling.FORWARD
        try:
            event = _event.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return Handling.FORWARD
        if event.response is not None:
            self._note(event.response)
        if event.type not in _ENDED:
            return Handling.FORWARD
        self._ended = True
        return Handling.FINAL

    def complete(self) -> bool:
        """The response ended, well or not; an `error` event alone does not say what was billed."""
        return self._ended

    def served(self) -> Served:
        """What the events said so far."""
        return _served(self._answer, self._call)

    def _note(self, news: _Answer) -> None:
        for name in news.__struct_fields__:
            value = getattr(news, name)
            if value is not None and value is not _ABSENT:
                setattr(self._answer, name, value)


def visited(method: str, path: str) -> str | None:
    """The response that a request looks at or cancels; None for any other request."""
    found = _VISITED.fullmatch(path)
    if found is None or method != ("GET" if found[2] is None else "POST"):
        return None
    return found[1]


def _served(answer: _Answer, call: Call) -> Served:
    tier, asked = openai_tier(answer.service_tier), call.bounds.tier
    return Served(
        model=answer.model,
        upstream_id=answer.id,
        service_tier=answer.service_tier,
        tier=asked if tier == STANDARD and asked in WINDOWS else tier,
        usage=_usage(answer),
        provider_cost_nano_usd=provider_cost(answer.usage),
        running=answer.status in _RUNNING,
    )


def _usage(answer: _Answer) -> Usage | UsageProblem:
    """The usage with the tools that the provider ran: those it counts itself, the others by the calls they left.

    A tool whose fee no list has leaves the answer unpriced, never priced without it.
    """
    made = _made_calls(bytes(answer.output))
    tool_usage = answer.tool_usage
    searches = made.pop("web_search", 0)
    if searches and (
        tool_usage is None or (isinstance(tool_usage, Mapping) and not tool_usage.get("web_search"))
    ):
        tool_usage = {**(tool_usage or {}), "web_search": {"num_requests": searches}}
    usage = openai_responses(answer.usage, tool_usage)
    if made and isinstance(usage, Usage):
        return replace(usage, units={**usage.units, **made})
    return usage


def _made_calls(output: bytes) -> dict[str, int]:
    """What an answer's items say of paid tools: searches, file searches, containers."""
    if not output.startswith(b"["):
        return {}
    try:
        items = _output.decode(output)
    except msgspec.MsgspecError:
        return {}
    searches = [item for item in items if item.type == "web_search_call" and _is_search(item)]
    lookups = [item for item in items if item.type == "file_search_call"]
    containers = {_container(item) for item in items} - {None}
    counts = {"web_search": len(searches), "file_search": len(lookups), "containers": len(containers)}
    return {name: count for name, count in counts.items() if count}


def _is_search(item: _OutputItem) -> bool:
    """Opening a page, looking for a word in it and a search that did not come to its end are not billed."""
    action = item.action.get("type") if isinstance(item.action, Mapping) else None
    return action in (None, "search") and item.status in (None, "completed")


def _container(item: _OutputItem) -> str | None:
    if item.type == "code_interpreter_call":
        return item.container_id or ""
    if item.type == "shell_call" and isinstance(item.environment, Mapping):
        found = item.environment.get("container_id")
        return found if isinstance(found, str) else None
    return None


DIALECT = openai_dialect(
    routes=frozenset({ROUTE}),
    parse=parse,
    prepare=with_model,
    read_answer=read_answer,
    stream_meter=ResponseStreamMeter,
)
