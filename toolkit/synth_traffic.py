"""The world outside the gateway: who calls, when, what they ask for and what a provider answers.

Traffic is made of sessions: one customer, one key, one kind of work, one model, some turns. The next turn
starts after the answer to the last one, so what the gateway refuses changes what comes next. Every draw is an
integer from one `random.Random`; nothing here knows a price.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from math import isqrt
from random import Random
from typing import Any, Literal, NamedTuple

from toolkit.synth_world import (
    BACKFILL,
    BACKFILLS,
    DAYS,
    FINE_TUNED,
    HOSTILE_CUSTOMERS,
    HOURS,
    KEYS,
    LOOP,
    MODELS,
    MONTH_END,
    MONTH_START,
    NEW_MODEL,
    NEW_MODEL_FROM,
    RUNAWAY,
    RUNAWAY_FROM,
    WORDS,
    WORKLOADS,
    Key,
    Model,
    Workload,
)

MICRO = timedelta(microseconds=1)
SECOND = 1_000_000
HOUR = 3600 * SECOND
MONTH = (MONTH_END - MONTH_START) // MICRO
UNDECLARED = 4096
"""Output tokens that no answer passes when its request declares no limit."""
LARGEST_BODY = 600_000
DRAIN_MS = 300_000
"""How long an answer is read on after its client left."""
TIMEOUT_MS = 900_000

Flaw = Literal["invalid_request", "customer_required"]
Outcome = Literal["whole", "broken", "error", "unknown"]
"""An answer: came whole, broke off in mid-stream, is an error known not to be billed, or nobody can know."""


@dataclass(slots=True, kw_only=True)
class Session:
    """One conversation or job as it goes on. A relentless one never ends, refused or not."""

    customer: str | None
    key: Key
    workload: Workload
    model: Model
    run: str | None
    turns_left: int
    body_bytes: int
    cache_ttl: Literal["5m", "1h"] | None = None
    cached_tokens: int = 0
    retries: int = 0
    relentless: bool = False
    flaw: Flaw | None = None
    slowness_percent: int = 100


class Request(NamedTuple):
    """What one turn sends. Its prompt has fewer tokens than its body has bytes."""

    body_bytes: int
    prompt_tokens: int
    output_limit: int | None
    stream: bool


class Answer(NamedTuple):
    """What came of a call that was sent; `usage` is raw, as the provider's API words it."""

    outcome: Outcome
    http_status: int
    latency_ms: int
    usage: dict[str, Any] | None = None
    ttft_ms: int | None = None
    response_bytes: int | None = None
    client_left: bool = False


def sessions(rng: Random, *, customers: int, receipts: int) -> Iterator[tuple[int, Session]]:
    """(start in microseconds of the month, session), in no order, for about `receipts` calls."""
    ids = _customer_ids(rng, customers)
    weights = [10**9 // isqrt((rank + 10) ** 3) for rank in range(customers)]
    habits = {customer: _habits(rng) for customer in ids}
    slowness_percent = max(100, 100 * 100_000 // receipts)
    planned = receipts * 91 // 100
    while planned > 0:
        customer = rng.choices(ids, weights)[0]
        kinds, key, shift = habits[customer]
        start = _start(rng, shift)
        session = _session(rng, WORKLOADS[rng.choice(kinds)], customer, key, start)
        _with_flaw(rng, session)
        planned -= session.turns_left
        yield start, session
    for worker in range(3):
        start = (RUNAWAY_FROM - MONTH_START) // MICRO + worker * 11 * SECOND
        session = _session(rng, LOOP, RUNAWAY, KEYS[1], start)
        session.relentless, session.slowness_percent = True, slowness_percent
        yield start, session
    for rank, at in BACKFILLS:
        for worker in range(4):
            start = (at - MONTH_START) // MICRO + worker * 3 * SECOND
            session = _session(rng, BACKFILL, ids[rank % customers], KEYS[3], start)
            session.turns_left = session.turns_left * 100 // slowness_percent + 1
            yield start, session


def next_request(rng: Random, session: Session) -> Request:
    """The next turn of a session."""
    work = session.workload
    limit = rng.choice(work.limits)
    if limit is None and session.model.provider == "anthropic":
        limit = 1024  # A messages request must state one.
    return Request(
        body_bytes=session.body_bytes,
        prompt_tokens=session.body_bytes * 100 // rng.randint(330, 460),
        output_limit=limit,
        stream=rng.randrange(100) < work.stream_percent,
    )


def answer(rng: Random, session: Session, request: Request) -> Answer:
    """What the provider makes of a request, or what becomes of the connection to it."""
    chance = rng.randrange(10_000)
    if chance < 110:
        return _no_answer(rng, session, chance)
    model, stream = session.model, request.stream
    output = _skewed(rng, *session.workload.output)
    output = min(output, request.output_limit if request.output_limit is not None else UNDECLARED)
    first = rng.randint(180, 700) + request.prompt_tokens // 60
    latency = first + output * 1000 // model.tokens_per_second
    size = rng.randint(380, 620) + output * (190 if stream else 4)
    if stream and chance < 160:
        seen = output * rng.randint(5, 90) // 100
        usage = _usage(rng, session, request, seen) if model.provider == "anthropic" else None
        if rng.randrange(2):
            return Answer("broken", 502, latency + DRAIN_MS, usage, first, size, client_left=True)
        return Answer("broken", 200, latency, usage, first, size // 2)
    usage = None if 160 <= chance < 166 else _usage(rng, session, request, output)
    left = stream and chance >= 9_920
    return Answer("whole", 200, latency, usage, first if stream else latency, size, client_left=left)


def _no_answer(rng: Random, session: Session, chance: int) -> Answer:
    """An error of the provider, or none at all: 90 of 110 are known not to be billed."""
    if chance < 80:
        status = rng.choice((429, 429, 429, 400, 529 if session.model.provider == "anthropic" else 503))
        latency = rng.randint(60, 900)
        return Answer("error", status, latency, None, latency, rng.randint(120, 420))
    if chance < 90:
        return Answer("error", 502, rng.randint(2, 5_000))
    if chance < 105:
        latency = rng.randint(800, 9_000)
        return Answer("unknown", 500, latency, None, latency, rng.randint(90, 240))
    return Answer("unknown", 502, TIMEOUT_MS)


def go_on(rng: Random, session: Session, request: Request, refused: str | None) -> int | None:
    """Microseconds until the session's next call, None when it is over. `refused` is the refusal's code."""
    if refused == "budget_busy" and session.retries < 2:
        session.retries += 1
        return SECOND + rng.randrange(SECOND)
    session.retries = 0
    if refused is not None and not session.relentless and rng.randrange(100) < (20 if session.run else 70):
        return None
    session.turns_left -= 1
    if session.turns_left <= 0:
        if not session.relentless:
            return None
        _start_over(rng, session)
    elif refused is None:
        _grow(rng, session, request)
    least, most = (400, 900) if refused == "budget_exceeded" else session.workload.pause
    return rng.randint(least * SECOND, most * SECOND) * session.slowness_percent // 100


def _grow(rng: Random, session: Session, request: Request) -> None:
    """The next turn's body: the conversation so far and more, or another document."""
    work = session.workload
    if work.growth == (0, 0):
        session.body_bytes = _skewed(rng, *work.body)
        session.cached_tokens = 0
        return
    session.body_bytes = min(session.body_bytes + rng.randint(*work.growth), LARGEST_BODY)
    if session.cache_ttl is not None:
        session.cached_tokens = request.prompt_tokens


def _usage(rng: Random, session: Session, request: Request, output: int) -> dict[str, Any]:
    """The usage object as the provider's API words it."""
    prompt, model = request.prompt_tokens, session.model
    cached = min(session.cached_tokens, prompt - 1)
    if model.provider == "anthropic":
        marked = session.cache_ttl is not None and prompt >= 1024
        fresh = rng.randint(3, 60) if marked else prompt - cached
        written = prompt - cached - fresh if marked else 0
        if written < 0:
            fresh, written = prompt - cached, 0
        long_written = written if session.cache_ttl == "1h" else 0
        return {
            "input_tokens": fresh,
            "cache_read_input_tokens": cached,
            "cache_creation_input_tokens": written,
            "cache_creation": {
                "ephemeral_5m_input_tokens": written - long_written,
                "ephemeral_1h_input_tokens": long_written,
            },
            "output_tokens": output,
            "service_tier": "standard",
        }
    cached = cached // 128 * 128 if prompt >= 1024 and rng.randrange(100) < 85 else 0
    inside = {"cached_tokens": cached, "audio_tokens": 0}
    if model.writes:
        inside["cache_write_tokens"] = (
            (prompt - cached) // 128 * 128 if session.cache_ttl and prompt >= 1024 else 0
        )
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": inside,
        "completion_tokens_details": {
            "reasoning_tokens": output * rng.randrange(60) // 100 if model.reasons else 0,
            "audio_tokens": 0,
        },
    }


def _session(rng: Random, work: Workload, customer: str | None, key: Key, start: int) -> Session:
    session = Session(
        customer=customer,
        key=key,
        workload=work,
        model=_model(rng, work, start),
        run=f"{work.tags[0].partition(':')[2]}-{rng.getrandbits(32):08x}" if work.has_run else None,
        turns_left=rng.randint(*work.turns),
        body_bytes=_skewed(rng, *work.body),
    )
    if rng.randrange(100) < work.cache_percent:
        session.cache_ttl = "1h" if rng.randrange(100) < 15 else "5m"
    return session


def _with_flaw(rng: Random, session: Session) -> None:
    """Now and then a body that cannot be read, a customer that was forgotten, or work of the house itself."""
    chance = rng.randrange(1000)
    if chance < 3:
        session.flaw, session.turns_left, session.key = "invalid_request", 1, KEYS[0]
    elif chance < 5:
        session.flaw, session.turns_left, session.key = "customer_required", 2, KEYS[0]
        session.customer = None
    elif chance < 30 and session.workload is WORKLOADS["summarize"]:
        session.customer, session.key = None, KEYS[4]


def _model(rng: Random, work: Workload, start: int) -> Model:
    name = rng.choices(list(work.models), list(work.models.values()))[0]
    if len(work.models) > 1:
        chance = rng.randrange(1000)
        if chance < 25 and MONTH_START + start * MICRO >= NEW_MODEL_FROM:
            name = NEW_MODEL
        elif chance >= 994:
            name = FINE_TUNED
    return MODELS[name]


def _start_over(rng: Random, session: Session) -> None:
    """A loop's next task: a new run with a fresh context."""
    work = session.workload
    session.run = f"{work.tags[0].partition(':')[2]}-{rng.getrandbits(32):08x}"
    session.turns_left = rng.randint(*work.turns)
    session.body_bytes = _skewed(rng, *work.body)
    session.cached_tokens = 0


def _customer_ids(rng: Random, customers: int) -> list[str]:
    """Ids by rank of what they spend; the runaway and the hostile-looking ones stand in the middle."""
    ids = [f"{rng.choice(WORDS)}-{number:03d}" for number in rng.sample(range(1, 1000), customers)]
    special = (RUNAWAY, *HOSTILE_CUSTOMERS)[: max(1, customers // 2)]
    ids[customers // 3 : customers // 3 + len(special)] = special
    return ids[:customers]


def _habits(rng: Random) -> tuple[tuple[str, ...], Key, int]:
    """What a customer does, through which key, and how many hours it is from UTC."""
    kinds = rng.choices(list(WORKLOADS), (5, 4, 4, 4, 3), k=3)
    key = KEYS[3] if "summarize" in kinds else rng.choice(KEYS[:3])
    return tuple(kinds), key, rng.choices((-7, -5, 0, 1, 2, 9), (4, 6, 3, 5, 2, 2))[0]


def _start(rng: Random, shift: int) -> int:
    """An instant of the month: busy on weekdays, in the caller's office hours, a little more every day."""
    day = rng.choices(range(30), DAYS)[0]
    hour = rng.choices(range(24), HOURS)[0]
    return ((day * 24 + hour - shift) * HOUR + rng.randrange(HOUR)) % MONTH


def _skewed(rng: Random, least: int, most: int) -> int:
    """A whole number between the two, small ones much more often."""
    part = rng.randrange(1000)
    return least + (most - least) * part * part // 1_000_000
