"""The demo provider as an ASGI application: OpenAI chat and embeddings, Anthropic messages, and its own count.

It answers any model and takes any key that is not empty. `/__demo__/…` is for whoever runs it: what it served, and
what it shall do differently. It stands outside the gateway: no code is shared, so that the two counts are two.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from gateway.demo import anthropic, openai
from gateway.demo.answers import Answer, Denied, Dialect, Piece, Work
from gateway.demo.controls import HEADER_PREFIX, Controls
from gateway.demo.delivery import Channel, Message, Receive, Send, deliver, start
from gateway.demo.journal import Count, Entry, Journal
from gateway.demo.tokens import PrefixCache

DEFAULT_MODELS: Final = ("gpt-4o", "gpt-4o-mini", "claude-sonnet-4-5", "claude-haiku-4-5")
"""What `GET /v1/models` lists; any other model is answered too."""
LARGEST_BODY_BYTES: Final = 64 * 1024 * 1024

_Handler = Callable[[bytes, Work], Answer]
_ROUTES: Final[Mapping[tuple[str, str], tuple[Dialect, _Handler]]] = {
    ("POST", "/v1/chat/completions"): (openai.DIALECT, openai.chat),
    ("POST", "/v1/embeddings"): (openai.DIALECT, openai.embeddings),
    ("POST", "/v1/messages"): (anthropic.DIALECT, anthropic.messages),
}


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    path: str
    headers: Mapping[str, str]
    header_names: tuple[str, ...]
    body: bytes
    """One byte more than the largest that is allowed when it is larger."""

    @property
    def has_key(self) -> bool:
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        bearer = scheme.lower() == "bearer" and bool(token.strip())
        return bearer or bool(self.headers.get("x-api-key", "").strip())

    @property
    def dialect(self) -> Dialect:
        route = _ROUTES.get((self.method, self.path))
        if route is not None:
            return route[0]
        is_anthropic = self.path.startswith("/v1/messages") or "anthropic-version" in self.headers
        return anthropic.DIALECT if is_anthropic else openai.DIALECT


class _Peek(msgspec.Struct):
    model: Any = None
    stream: Any = None


def utc_now() -> datetime:
    """The provider's own clock."""
    return datetime.now(UTC)


class DemoProvider:
    """An ASGI application. `defaults` are the orders of a request that brings none; `journal` is the count."""

    def __init__(
        self,
        *,
        aliases: Mapping[str, str] | None = None,
        models: Sequence[str] = DEFAULT_MODELS,
        journal_path: Path | None = None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self.defaults = Controls()
        self.journal = Journal(journal_path, clock)
        self._aliases = aliases or {}
        self._models = models
        self._clock = clock
        self._cache = PrefixCache(clock)
        # Ids stay unique when a provider is started again.
        self._birth = int(clock().timestamp() * 1_000_000)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """One request; other scopes are not supported, lifespan included."""
        if scope["type"] != "http":
            raise NotImplementedError(scope["type"])
        request = await _read(scope, receive)
        if request is None:
            return
        if request.path.startswith("/__demo__/"):
            await start_and_send(self._control(request), send)
        else:
            await self._provide(request, Channel(receive, send))

    def served(self) -> list[Entry]:
        """The journal's entries, oldest first."""
        return self.journal.served()

    def count(self) -> Count:
        """The journal's totals, in tokens."""
        return self.journal.count()

    def _mark(self, sequence: int) -> str:
        return f"{self._birth:014x}{sequence:08x}"

    async def _provide(self, request: _Request, channel: Channel) -> None:
        dialect = request.dialect
        entry = self._receive(request, dialect)
        headers = [(dialect.request_id_header, entry.request_id.encode())]
        controls = Controls()
        try:
            try:
                controls = self._controls(request)
                answer = self._answer(request, entry, controls)
            except Denied as denied:
                answer = Answer(status=denied.status, pieces=[Piece(dialect.error(denied, entry.request_id))])
                if denied.status == 429 and denied.code is None:
                    headers.append((b"retry-after", b"1"))
            entry.fault = controls.fault
            entry.work_on(answer)
            await deliver(answer, controls, headers, entry, self.journal, channel)
        finally:
            self.journal.end(entry, completed=False)

    def _receive(self, request: _Request, dialect: Dialect) -> Entry:
        try:
            peek = msgspec.json.decode(request.body, type=_Peek)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            peek = _Peek()
        return self.journal.receive(
            request_id=lambda sequence: f"req_{self._mark(sequence)}",
            path=request.path,
            dialect=dialect.name,
            header_names=request.header_names,
            body_sha256=hashlib.sha256(request.body).hexdigest(),
            model=peek.model if isinstance(peek.model, str) else None,
            stream=peek.stream is True,
        )

    def _controls(self, request: _Request) -> Controls:
        try:
            return self.defaults.overridden(request.headers)
        except msgspec.ValidationError as error:
            raise Denied(400, f"A header {HEADER_PREFIX}* is not valid: {error}") from error

    def _answer(self, request: _Request, entry: Entry, controls: Controls) -> Answer:
        """The whole answer, before anything leaves. Raises Denied."""
        if not request.has_key:
            raise Denied(401, "An API key is required.")
        if len(request.body) > LARGEST_BODY_BYTES:
            raise Denied(413, "The request is too large.")
        _raise_ordered(controls, request.dialect)
        created = int(self._clock().timestamp())
        if (request.method, request.path) == ("GET", "/v1/models"):
            return Answer(pieces=[Piece(request.dialect.models(self._models, created))])
        route = _ROUTES.get((request.method, request.path))
        if route is None:
            raise Denied(404, f"There is no {request.method} {request.path} here.")
        work = Work(
            mark=self._mark(entry.sequence),
            created=created,
            aliases=self._aliases,
            controls=controls,
            cache=self._cache,
        )
        return route[1](request.body, work)

    def _control(self, request: _Request) -> Answer:
        match request.method, request.path.removeprefix("/__demo__/"):
            case "GET", "served":
                return _json(self.served())
            case "GET", "count":
                return _json(self.count())
            case "DELETE", "served":
                self.journal.clear()
                return _json({})
            case "POST", "defaults":
                try:
                    self.defaults = msgspec.json.decode(request.body, type=Controls)
                except msgspec.DecodeError as error:
                    return _json({"error": str(error)}, status=400)
                return _json(self.defaults)
        return _json({"error": "There is no such endpoint."}, status=404)


async def start_and_send(answer: Answer, send: Send) -> None:
    """Send a JSON answer that no order concerns."""
    await start(answer, [], send)
    await send({"type": "http.response.body", "body": answer.pieces[0].raw, "more_body": False})


def _json(value: Any, status: int = 200) -> Answer:
    return Answer(status=status, pieces=[Piece(msgspec.json.encode(value))])


def _raise_ordered(controls: Controls, dialect: Dialect) -> None:
    """Raise the error that a fault orders."""
    if controls.fault == "spend-limit":
        raise Denied(429, "The organization has reached its spend limit.", dialect.spend_limit_code)
    if controls.fault.startswith("status:"):
        status = int(controls.fault.removeprefix("status:"))
        raise Denied(status, f"The demo provider was told to answer {status}.")


async def _read(scope: Message, receive: Receive) -> _Request | None:
    """The request with its whole body; None when the client left while sending it."""
    body = bytearray()
    more = True
    while more and len(body) <= LARGEST_BODY_BYTES:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        more = message.get("more_body", False)
    pairs = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]]
    return _Request(
        scope["method"], scope["path"], dict(pairs), tuple(name for name, _ in pairs), bytes(body)
    )
