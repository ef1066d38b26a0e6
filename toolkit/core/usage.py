"""Usage: what a provider says it served, as disjoint meters.

Each provider counts by its own convention (OpenAI's prompt includes cached and written tokens, Anthropic's
input excludes them). A convention is one function in `toolkit.core.conventions`: raw usage in, `Usage` or a
`UsageProblem` out, never a guess. Counts that are absent stay None; counts reported as zero stay 0. A part that is
larger than its whole is invalid; parts that miss a stated total are inconsistent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

from toolkit.core.money import LARGEST_INTEGER

Quantity = int | Decimal
"""A count of units; seconds may be fractional and are then a Decimal."""

METERS = (
    "input",
    "cache_read",
    "cache_write_5m",
    "cache_write_1h",
    "output",
    "audio_input",
    "audio_output",
    "image",
)
"""The token meters that add up to what was billed. `reasoning` is a part of output and not among them."""

PROMPT_METERS = ("input", "cache_read", "cache_write_5m", "cache_write_1h", "audio_input", "image")

TOKEN_UNIT = "_tokens"
"""How the name of a unit ends that counts tokens of a class without a meter, such as `image_output_tokens`."""
PROMPT_UNITS = ("cache_read_audio_tokens", "cache_read_image_tokens")
"""Those of them that are a part of the prompt."""

UsageReason = Literal["usage_missing", "usage_invalid", "usage_inconsistent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens per disjoint meter; None = not reported. `units` counts what has no meter, by name.

    A unit is a class of tokens (`image_output_tokens`), no tokens at all (`web_search`, `seconds`), or a turn
    that another model took within the answer: `<model>/<meter>`, billed at that model's own rates.
    """

    input: int | None = None
    cache_read: int | None = None
    cache_write_5m: int | None = None
    cache_write_1h: int | None = None
    output: int | None = None
    reasoning: int | None = None
    audio_input: int | None = None
    audio_output: int | None = None
    image: int | None = None
    units: Mapping[str, Quantity] = field(default_factory=dict)

    def meters(self) -> dict[str, int]:
        """The meters that were reported, zeros included."""
        return {name: count for name in METERS if (count := getattr(self, name)) is not None}

    @property
    def prompt(self) -> int:
        """The whole prompt, cached and written tokens included: what a long-context threshold looks at."""
        whole = (self.input or 0) + (self.cache_read or 0) + (self.cache_write_5m or 0)
        whole += (self.cache_write_1h or 0) + (self.audio_input or 0) + (self.image or 0)
        if not self.units:
            return whole
        return whole + sum([int(self.units[name]) for name in PROMPT_UNITS if name in self.units])

    @property
    def tokens(self) -> int:
        """Everything that was billed as tokens, turns of other models included."""
        others = [
            int(count) for name, count in self.units.items() if name not in PROMPT_UNITS and _is_tokens(name)
        ]
        return self.prompt + (self.output or 0) + (self.audio_output or 0) + sum(others)


@dataclass(frozen=True, slots=True)
class UsageProblem:
    """Why a usage cannot be priced."""

    reason: UsageReason


def within_receipt(usage: Usage | UsageProblem) -> Usage | UsageProblem:
    """The usage as a receipt can carry it: whose integers stay below 2^53 (contract §10), else `usage_invalid`."""
    if isinstance(usage, Usage) and max((usage.tokens, *usage.units.values())) > LARGEST_INTEGER:
        return UsageProblem("usage_invalid")
    return usage


def turn_of(unit: str) -> tuple[str, str] | None:
    """(model, meter) of a unit that counts another model's turn, else None.

    >>> turn_of("claude-opus-5-5/input"), turn_of("web_search")
    (('claude-opus-5-5', 'input'), None)
    """
    model, slash, meter = unit.rpartition("/")
    return (model, meter) if slash else None


def _is_tokens(unit: str) -> bool:
    turn = turn_of(unit)
    return unit.endswith(TOKEN_UNIT) or (turn is not None and turn[1] in METERS)
