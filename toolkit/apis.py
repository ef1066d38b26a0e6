"""The APIs whose usage `price` reads: how each counts, and how its answer tells the tier it was served in."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, get_args

from toolkit.core.conventions import (
    ChatStyle,
    anthropic_messages,
    bedrock_converse,
    gemini,
    last_usage,
    merged,
    openai_chat,
    openai_embeddings,
    openai_images,
    openai_responses,
    openai_speech,
    openai_transcriptions,
)
from toolkit.core.errors import QueryError
from toolkit.core.tiers import anthropic_tier, azure_tier, gemini_tier, openai_tier
from toolkit.core.usage import Usage, UsageProblem

Facts = Mapping[str, Any]
_STYLES: Mapping[str, ChatStyle] = {
    "x-ai": "xai",
    "xai": "xai",
    "deepseek": "deepseek",
    "mistral": "mistral",
    "groq": "groq",
    "openrouter": "openrouter",
}


class Answer(NamedTuple):
    """What is known of an answer: its raw usage, and the facts beside it."""

    provider: str
    model: str
    usage: Any
    context: Facts

    def said(self, *names: str) -> str | None:
        """A fact as the answer has it: in the usage first, then beside it, under the first name that is there."""
        inside = self.usage if isinstance(self.usage, Mapping) else {}
        for place in (inside, self.context):
            for name in names:
                fact = place.get(name)
                fact = fact.get("type") if isinstance(fact, Mapping) else fact
                if fact is not None:
                    return str(fact)
        return None

    def beside(self, name: str) -> Any:
        """What stands beside `usage` in an answer: under its name in the context, with a `_` before it in usage."""
        inside = self.usage if isinstance(self.usage, Mapping) else {}
        return inside.get(f"_{name}", self.context.get(name))


class Api(NamedTuple):
    """One API: its usage convention, how its tier is told, and what makes one usage of a stream's."""

    usage: Callable[[Answer], Usage | UsageProblem]
    tier: Callable[[Answer], str]
    events: Callable[[Any], tuple[Any, str | None]] = lambda usage: _last_said(usage)


class Asked(NamedTuple):
    """An API's name, read: the API, and what stands around its name."""

    api: Api
    stream: bool
    batch: bool


def api_of(name: str) -> Asked:
    """The API of a name such as `chat.completions`, `messages(stream)` or `batch(responses)`; raises QueryError."""
    found = _NAME.fullmatch(_SYNONYMS.get(name, name))
    mode = found["mode"] if found else None
    if found is None or found["base"] not in APIS or mode not in (None, *_MODES):
        raise QueryError(
            f"api {name!r} is not supported; it is one of {', '.join(APIS)}, alone, as batch(NAME), or as NAME(MODE) "
            f"with a mode of {', '.join(_MODES)}"
        )
    return Asked(APIS[found["base"]], stream=mode == "stream", batch="batch" in (found["outer"], mode))


def _chat(answer: Answer) -> Usage | UsageProblem:
    declared = answer.context.get("usage")
    if declared is not None and declared not in get_args(ChatStyle):
        raise QueryError(
            f"usage {declared!r} is no way to count; it is one of {', '.join(get_args(ChatStyle))}"
        )
    return openai_chat(answer.usage, declared or _STYLES.get(answer.provider, "openai"))


def _openai_tier(answer: Answer) -> str:
    served = answer.said("service_tier")
    if answer.provider == "azure":
        return azure_tier(served, deployment_type=answer.said("deployment_type"))
    return openai_tier(served)


def _anthropic_tier(answer: Answer) -> str:
    return anthropic_tier(
        answer.said("service_tier"), speed=answer.said("speed"), inference_geo=answer.said("inference_geo")
    )


def _gemini_tier(answer: Answer) -> str:
    return gemini_tier(
        answer.said("serviceTier", "service_tier"), traffic_type=answer.said("trafficType", "traffic_type")
    )


def _converse_tier(answer: Answer) -> str:
    return openai_tier(answer.said("serviceTier", "service_tier"))


def _last_said(usage: Any) -> tuple[Any, str | None]:
    """(the last of several usages, why it is a lower bound). They are a list, or an object by what each came with."""
    if isinstance(usage, list):
        return last_usage(usage), None
    if not isinstance(usage, Mapping) or not all(
        isinstance(each, Mapping | list | None) for each in usage.values()
    ):
        return usage, None
    said = [each for name, each in usage.items() if name != "error"]
    chunks = [chunk for each in said for chunk in (each if isinstance(each, list) else [each])]
    return last_usage(chunks), None if usage.get("error") is None else BROKEN


def _last_said_field_by_field(usage: Any) -> tuple[Any, str | None]:
    """(one usage of `{"message_start": …, "message_delta": one or a list, "error": …}`, why it is a lower bound)."""
    if not isinstance(usage, Mapping) or not {"message_start", "message_delta"} & usage.keys():
        return usage, None
    deltas = usage.get("message_delta")
    deltas = [delta for delta in (deltas if isinstance(deltas, list) else [deltas]) if delta is not None]
    events = [usage.get("message_start"), *deltas]
    if any(not isinstance(event, Mapping | None) for event in events):
        return events, None
    if not deltas:
        return merged(events), "stream_ended_without_message_delta"
    return merged(events), None if usage.get("error") is None else BROKEN


BROKEN = "stream_ended_with_error"
"""Why a stream's usage is a lower bound when an error came after it."""

_NAME = re.compile(r"(?:(?P<outer>batch)\()?(?P<base>[A-Za-z.]+)(?:\((?P<mode>[a-z ]+)\))?(?(outer)\))")
_MODES = ("stream", "batch", "background", "azure", "vertex", "bedrock", "beta", "beta advisor")
_SYNONYMS = {
    "batchGenerateContent": "generateContent(batch)",
    "streamGenerateContent": "generateContent(stream)",
    "converseStream": "converse(stream)",
}
_CHAT = Api(_chat, _openai_tier)
APIS: Mapping[str, Api] = {
    "chat.completions": _CHAT,
    "completions": _CHAT,
    "responses": Api(
        lambda answer: openai_responses(answer.usage, answer.beside("tool_usage")), _openai_tier
    ),
    "embeddings": Api(lambda answer: openai_embeddings(answer.usage), _openai_tier),
    "moderations": Api(lambda answer: openai_embeddings(answer.usage), _openai_tier),
    "images.generations": Api(
        lambda answer: openai_images(answer.usage, answer.beside("svg_usage")), _openai_tier
    ),
    "images.edits": Api(lambda answer: openai_images(answer.usage, answer.beside("svg_usage")), _openai_tier),
    "audio.transcriptions": Api(lambda answer: openai_transcriptions(answer.usage), _openai_tier),
    "audio.speech": Api(lambda answer: openai_speech(answer.usage), _openai_tier),
    "messages": Api(
        lambda answer: anthropic_messages(answer.usage, answer.model),
        _anthropic_tier,
        _last_said_field_by_field,
    ),
    "generateContent": Api(lambda answer: gemini(answer.usage), _gemini_tier),
    "converse": Api(lambda answer: bedrock_converse(answer.usage), _converse_tier),
}
"""API name to how it is read."""
