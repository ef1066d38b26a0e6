"""What the dialects share: an answer ready to be sent, the tokens that it is billed by, and a refusal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from gateway.demo.controls import Controls
from gateway.demo.tokens import PrefixCache

BAD_USAGE_TOKENS: Final = 7
"""By how much the parts of a `bad-usage` miss their sum."""


class Meters(msgspec.Struct, frozen=True, kw_only=True):
    """Disjoint tokens of one answer: their sum is what a bill would hold."""

    input_tokens: int = 0
    """Of the prompt, neither read from the cache nor written to it."""
    cache_read_tokens: int = 0
    cache_write_5m_tokens: int = 0
    cache_write_1h_tokens: int = 0
    output_tokens: int = 0
    """Of all choices together."""

    @property
    def prompt_tokens(self) -> int:
        """The whole prompt."""
        written = self.cache_write_5m_tokens + self.cache_write_1h_tokens
        return self.input_tokens + self.cache_read_tokens + written


NO_TOKENS: Final = Meters()


class Piece(NamedTuple):
    """Bytes that leave at once, and how many output tokens they carry."""

    raw: bytes
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer, whole, before its first byte leaves. `pieces` has one piece, or a stream's events."""

    pieces: Sequence[Piece]
    status: int = 200
    stream: bool = False
    model_served: str | None = None
    meters: Meters = NO_TOKENS
    text: str = ""
    """The text of all choices, one after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a dialect needs beside the body: ids, the instant in whole seconds, aliases, orders and the cache."""

    mark: str
    """Unique in this provider's life; ids are made of it."""
    created: int
    aliases: Mapping[str, str]
    controls: Controls
    cache: PrefixCache

    def served(self, model: str) -> str:
        """The model that answers for the one that was asked for."""
        return self.aliases.get(model, model)


class Denied(Exception):
    """The provider says no. Each dialect words it; `code` is the machine-readable reason, if there is one."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How a vendor's API looks from outside."""

    name: str
    request_id_header: bytes
    spend_limit_code: str
    error: Callable[[Denied, str], bytes]
    """(what is wrong, request id) -> the body of an error."""
    models: Callable[[Sequence[str], int], bytes]
    """(ids, created) -> the body of `GET /v1/models`."""


def decode(kind: type[Any], body: bytes) -> Any:
    """A body as `kind`, unknown fields ignored; raises Denied with the path of what is wrong."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Denied(400, f"Invalid request: {error}") from error


def usage_field(controls: Controls, usage: Mapping[str, Any]) -> dict[str, Any]:
    """The `usage` member of an answer: absent, null or as it is."""
    if controls.fault == "no-usage":
        return {}
    return {"usage": None if controls.fault == "null-usage" else usage}


def off_by(controls: Controls) -> int:
    """What to add to a stated sum: nothing, unless the usage shall be bad."""
    return BAD_USAGE_TOKENS if controls.fault == "bad-usage" else 0


def output_length(controls: Controls, *limits: int | None) -> tuple[int, bool]:
    """Tokens of one choice, and whether a declared limit cut it. Raises Denied for a limit below one."""
    declared = [limit for limit in limits if limit is not None]
    if any(limit < 1 for limit in declared):
        raise Denied(400, "The limit of output tokens must be at least 1.")
    length = min([controls.output_tokens, *declared])
    return length, length < controls.output_tokens
