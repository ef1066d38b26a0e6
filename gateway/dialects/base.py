"""What a dialect is: a small object of functions that reads requests, meters answers and words refusals."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qsl

import msgspec

from gateway.refusals import Refusal
from gateway.upstream import RawHeaders
from toolkit.core.conventions import ChatStyle
from toolkit.core.estimate import CallBounds
from toolkit.core.tiers import STANDARD
from toolkit.core.usage import Quantity, Usage, UsageProblem, within_receipt

LARGEST_OUTPUT_LIMIT = 10_000_000
MOST_CHOICES = 128
"""Bounds that keep every hold below 2^53 nano-USD; no provider takes more."""
LONGEST_MODEL = 256
"""Characters of a model id: as many as a cap's match can name."""


class BadRequest(Exception):
    """A body that no provider could answer; the message is for the client and names the field, never a value."""


class Arrival(NamedTuple):
    """What came with a body and may say something about it: a model in the path, the boundary of a form."""

    target: str = ""
    """The path, and the query that came with it."""
    headers: RawHeaders = ()

    @property
    def content_type(self) -> str:
        """The body's declared type with its parameters, empty when none is declared."""
        return next((value for name, value in self.headers if name == b"content-type"), b"").decode("latin-1")


JUST_A_BODY = Arrival()
"""Nothing beside the body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What the gateway reads of a request. `wants_usage` tells whether the client asked for a stream's usage."""

    model: str
    stream: bool
    bounds: CallBounds
    wants_usage: bool = True
    background: bool = False
    """Whether the provider may answer before it has ended."""
    usage_style: ChatStyle = "openai"
    """The usage convention of the provider that was chosen; set by the pipeline where it is not the dialect's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What an answer says about itself: the facts that price it, null where it does not say."""

    model: str | None = None
    upstream_id: str | None = None
    service_tier: str | None = None
    tier: str = STANDARD
    """The price list's word for the tier that was served."""
    usage: Usage | UsageProblem = field(default_factory=lambda: UsageProblem("usage_missing"))
    units: Mapping[str, Quantity] | None = None
    """What the answer shows to be billed though it reports no usage: images by the piece."""
    provider_cost_nano_usd: int | None = None
    """What the provider says it cost, kept beside our cost and never added up."""
    running: bool = False
    """The provider works on: this is no end, and nothing is billed by it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "usage", within_receipt(self.usage))
        for name in ("model", "upstream_id", "service_tier", "tier"):
            said = getattr(self, name)
            if said is not None and "\0" in said:  # PostgreSQL stores none, and the receipt must be kept.
                object.__setattr__(self, name, said.replace("\0", ""))


class Handling(Enum):
    """What becomes of a stream's event on its way to the client."""

    FORWARD = "forward"
    WITHHOLD = "withhold"
    """The usage chunk that the client did not ask for."""
    FINAL = "final"
    """The end of the answer: held back until its receipt is committed."""


class StreamMeter(Protocol):
    """Reads one stream's events."""

    def event(self, data: bytes | None) -> Handling:
        """Note what an event's data says and decide what becomes of it."""

    def complete(self) -> bool:
        """Whether the answer came whole, by the dialect's own final event."""

    def served(self) -> Served:
        """What is known so far."""


def _same_target(target: str, _call: Call, _model: str) -> str:
    return target


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One route of a provider's dialect. Adding one is one file, one line in `DIALECTS`, and its captures.

    Several may share the `name` by which providers are configured: then they refuse and authorize alike.
    """

    name: str
    routes: frozenset[str] = frozenset()
    """The paths that are its own, as they stand."""
    pattern: re.Pattern[str] | None = None
    """The whole of a path that has an id or a model in it."""
    route: str = ""
    """What receipts call such a path, without the id or the model."""
    parse: Callable[[bytes, Arrival], Call]
    """A request as it came -> what it says about itself. Raises BadRequest."""
    prepare: Callable[[bytes, Call, str], bytes]
    """(body, call, the provider's own model id) -> the body to send: byte for byte unless something must change."""
    target: Callable[[str, Call, str], str] = _same_target
    """(target, call, the provider's own model id) -> path and query to send; the same unless a model stands in it."""
    read_answer: Callable[[bytes, Call], Served]
    stream_meter: Callable[[Call], StreamMeter]
    render: Callable[[Refusal, str], bytes]
    """(refusal, request id) -> the body in this dialect's own error shape."""
    authorize: Callable[[str], Mapping[str, str]]
    """A provider's API key -> the headers that carry it."""
    keys_in_query: frozenset[str] = frozenset()
    """Query parameters in which its own APIs take a key: here a call that has one is refused."""
    array_streams: bool = False
    """Whether a stream that is not of events is a JSON array that grows."""
    passes_through: bool = False
    """Whether its answers may be neither JSON nor events: then they are forwarded as they come, and report nothing."""
    is_spend_limit: Callable[[int, bytes], bool]
    """Whether a provider's error says that its own spend limit is reached: final, never to be retried."""

    def has_key_in_query(self, target: str) -> bool:
        """Whether a path's query has a parameter that its own APIs take for a key, however it is spelled."""
        if not self.keys_in_query:
            return False
        query = parse_qsl(target.partition("?")[2], keep_blank_values=True)
        return any(name in self.keys_in_query for name, _ in query)


class Body(msgspec.Struct):
    """The fields of a request that a dialect reads; everything else passes through untouched."""


_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


def decode(kind: type[Any], body: bytes) -> Any:
    """A body as `kind`; raises BadRequest naming the field that is wrong, without its value.

    All of it must be JSON in UTF-8, and no field may stand in it twice: of two output limits a provider might
    take the one that the hold does not bound.
    """
    try:
        if not body.isascii():
            body.decode()
        request = msgspec.json.decode(body, type=kind)
        twice = "" if _once(body) else _repeated(body)
    except msgspec.ValidationError as error:
        raise BadRequest(f"The request body is not valid: {error}") from error
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise BadRequest("The request body is not valid JSON.") from error
    if twice:
        raise BadRequest(f"The request body has {twice} more than once.")
    return request


def parsed(raw: bytes) -> Any:
    """A part of a body as Python has it; raises BadRequest for a number that is out of every range."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadRequest("The request body holds a number that is out of range.") from error


def with_fields(body: bytes, **changed: Any) -> bytes:
    """`body` with top-level fields exchanged; every other field keeps its bytes."""
    fields = _fields.decode(body)
    fields.update({name: msgspec.Raw(msgspec.json.encode(value)) for name, value in changed.items()})
    return msgspec.json.encode(fields)


def with_model(body: bytes, call: Call, model: str) -> bytes:
    """The body to send where only a stripped model id changes it."""
    return body if model == call.model else with_fields(body, model=model)


def _once(body: bytes) -> bool:
    """Whether the fields that a reader keeps are all that stands in a body, blanks aside: none is there twice."""
    kept = msgspec.json.encode(_fields.decode(body))
    return len(kept) == len(body) or len(_without_blanks(kept)) == len(_without_blanks(body))


def _without_blanks(body: bytes) -> bytes:
    return msgspec.json.format(body, indent=-1)


def _repeated(body: bytes) -> str:
    """The name of a field that stands in a body twice, however it is spelled; empty when none does."""
    ends: list[list[tuple[str, Any]]] = [[]]

    def note(pairs: list[tuple[str, Any]]) -> None:
        ends[0] = pairs  # the outermost object ends last

    json.loads(body, object_pairs_hook=note)
    names = [name for name, _ in ends[0]]
    return next((name for place, name in enumerate(names) if name in names[:place]), "")[:LONGEST_MODEL]


def check_model(model: str) -> None:
    """Raises BadRequest for what can be no model's id."""
    if not model:
        raise BadRequest("The request names no model.")
    if len(model) > LONGEST_MODEL:
        raise BadRequest(f"The model's id is longer than {LONGEST_MODEL} characters.")


def output_limit(*limits: int | None) -> int | None:
    """The largest of the output limits that a request declares; raises BadRequest for one that is no limit."""
    declared = [limit for limit in limits if limit is not None]
    if any(not 0 <= limit <= LARGEST_OUTPUT_LIMIT for limit in declared):
        raise BadRequest("The output limit must be a whole number of tokens, zero or more.")
    return max(declared, default=None)
