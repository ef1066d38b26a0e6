"""The cast of the demo month: customers, keys, models, kinds of work, and the days when something happens.

Models are named as callers name them; which of them a price list knows is the list's affair.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

MONTH_START = datetime(2026, 11, 1, tzinfo=UTC)
MONTH_END = datetime(2026, 12, 1, tzinfo=UTC)

RUNAWAY = "initech-042"
"""The customer whose agent gets into a loop."""
RUNAWAY_FROM = datetime(2026, 11, 18, 10, 12, tzinfo=UTC)
BACKFILLS = ((2, datetime(2026, 11, 11, 13, 5, tzinfo=UTC)), (1, datetime(2026, 11, 25, 8, 40, tzinfo=UTC)))
"""(rank of the customer, start) of two honest bursts of work: one before the cap was armed, one after."""
NEW_MODEL_FROM = datetime(2026, 11, 12, tzinfo=UTC)
"""From here on some callers try a model that the price list of the day does not name."""

HOSTILE_CUSTOMERS = (
    "O'Brien & Söhne",
    "=1+1",
    "<b>bold</b>",
    "株式会社-9",
    "@SUM(A1:A9)",
    "Zoë `drop` [x](y)",
)
WORDS = (
    "acme",
    "globex",
    "umbra",
    "hooli",
    "initrode",
    "vandelay",
    "wonka",
    "stark",
    "wayne",
    "tyrell",
    "cyberdyne",
    "soylent",
    "massive",
    "pied-piper",
    "dunder",
    "sterling",
    "gringotts",
    "oceanic",
    "virtucon",
    "northwind",
)


class Key(NamedTuple):
    """A gateway key as the demo has it: its id, its name, its project."""

    id: str
    name: str
    project: str | None
    require_customer: bool


KEYS = (
    Key("key_a1c4assistweb", "assistant-web", "assistant", require_customer=True),
    Key("key_b7e2assistapi", "assistant-api", "assistant", require_customer=True),
    Key("key_c9d0searchapi", "search-api", "search", require_customer=True),
    Key("key_d3f8searchjob", "search-jobs", "search", require_customer=False),
    Key("key_e5a6internal0", "internal-evals", None, require_customer=False),
)


class Model(NamedTuple):
    """A model as callers name it and as its provider signs; `writes`: it reports written cache tokens."""

    provider: str
    requested: str
    served: str
    tokens_per_second: int
    reasons: bool = False
    writes: bool = False


MODELS = {
    model.requested: model
    for model in (
        Model("openai", "gpt-5-nano", "gpt-5-nano-2025-08-07", 160, reasons=True),
        Model("openai", "gpt-5-mini", "gpt-5-mini-2025-08-07", 110, reasons=True),
        Model("openai", "gpt-5.4-mini", "gpt-5.4-mini-2026-03-17", 120, reasons=True),
        Model("openai", "gpt-6.1-sol", "gpt-6.1-sol", 90, reasons=True, writes=True),
        Model("openai", "gpt-6.1-terra", "gpt-6.1-terra", 130, reasons=True, writes=True),
        Model("openai", "ft:gpt-4.1-mini:triage:b8q2", "ft:gpt-4.1-mini:triage:b8q2", 100),
        Model("anthropic", "claude-haiku-4-5", "claude-haiku-4-5-20251001", 140),
        Model("anthropic", "claude-sonnet-4-5", "claude-sonnet-4-5-20250929", 70),
        Model("anthropic", "claude-sonnet-5-5", "claude-sonnet-5-5", 80),
        Model("anthropic", "claude-opus-5-5", "claude-opus-5-5", 60),
    )
}
NEW_MODEL = "gpt-6.1-terra"
FINE_TUNED = "ft:gpt-4.1-mini:triage:b8q2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One kind of work. Pairs are (least, most); bodies in bytes, outputs in tokens, pauses in seconds."""

    tags: tuple[str, ...]
    models: dict[str, int]
    body: tuple[int, int]
    growth: tuple[int, int]
    output: tuple[int, int]
    limits: tuple[int | None, ...]
    turns: tuple[int, int]
    pause: tuple[int, int]
    stream_percent: int
    cache_percent: int = 0
    has_run: bool = False


_SMALL = {"gpt-5-nano": 4, "gpt-5-mini": 4, "claude-haiku-4-5": 3}
_LARGE = {"gpt-6.1-sol": 5, "claude-sonnet-5-5": 5, "claude-sonnet-4-5": 2, "claude-opus-5-5": 3}

WORKLOADS = {
    "chat": Workload(
        tags=("feature:chat",),
        models={"gpt-5-mini": 3, "gpt-6.1-sol": 5, "claude-haiku-4-5": 2, "claude-sonnet-5-5": 5},
        body=(1_200, 14_000),
        growth=(500, 4_000),
        output=(60, 1_400),
        limits=(1024, 2048, None),
        turns=(1, 9),
        pause=(12, 110),
        stream_percent=92,
        cache_percent=35,
    ),
    "support": Workload(
        tags=("agent:support", "feature:tickets"),
        models={"gpt-5.4-mini": 3, "claude-haiku-4-5": 2, "claude-sonnet-5-5": 5, "gpt-6.1-sol": 4},
        body=(12_000, 90_000),
        growth=(1_000, 8_000),
        output=(120, 1_600),
        limits=(2048, 4096, None),
        turns=(2, 10),
        pause=(4, 50),
        stream_percent=40,
        cache_percent=60,
        has_run=True,
    ),
    "coder": Workload(
        tags=("agent:coder",),
        models=_LARGE,
        body=(40_000, 260_000),
        growth=(4_000, 22_000),
        output=(150, 4_000),
        limits=(8192, 16_000),
        turns=(4, 20),
        pause=(3, 45),
        stream_percent=75,
        cache_percent=95,
        has_run=True,
    ),
    "extract": Workload(
        tags=("feature:extract", "env:prod"),
        models=_SMALL,
        body=(420, 9_000),
        growth=(0, 0),
        output=(8, 160),
        limits=(128, 256, None),
        turns=(1, 6),
        pause=(1, 6),
        stream_percent=0,
    ),
    "summarize": Workload(
        tags=("feature:summarize", "env:prod"),
        models={**_LARGE, "gpt-5-mini": 4, "claude-haiku-4-5": 3},
        body=(12_000, 300_000),
        growth=(0, 0),
        output=(200, 1_400),
        limits=(1500, 2048),
        turns=(1, 5),
        pause=(2, 25),
        stream_percent=20,
    ),
}
LOOP = Workload(
    tags=("agent:research", "feature:deep-research"),
    models={"claude-opus-5-5": 1},
    body=(45_000, 115_000),
    growth=(2_000, 8_000),
    output=(300, 3_000),
    limits=(8192,),
    turns=(10, 30),
    pause=(100, 190),
    stream_percent=100,
    has_run=True,
)
BACKFILL = Workload(
    tags=("feature:summarize", "job:backfill"),
    models={"claude-sonnet-5-5": 1},
    body=(60_000, 260_000),
    growth=(0, 0),
    output=(400, 1_400),
    limits=(1500,),
    turns=(150, 180),
    pause=(1, 4),
    stream_percent=0,
    has_run=True,
)

HOURS = (2, 1, 1, 1, 1, 2, 4, 8, 14, 20, 22, 22, 17, 20, 22, 21, 19, 15, 10, 8, 7, 6, 4, 3)
DAYS = tuple(
    (100 + 2 * day) * (4 if (MONTH_START + timedelta(days=day)).weekday() > 4 else 10) for day in range(30)
)
