"""Anthropic: input excludes what was read from a cache and what was written to one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from toolkit.core.conventions.counts import (
    InconsistentUsage,
    InvalidUsage,
    MissingUsage,
    added,
    check_part,
    check_whole,
    count,
    entries,
    guarded,
    part,
)
from toolkit.core.conventions.tools import tools_of
from toolkit.core.usage import Quantity, Usage, UsageProblem

_NAMED_TURNS = ("advisor_message", "fallback_message")
_TURNS = ("message", "compaction", *_NAMED_TURNS)


class _Counts(NamedTuple):
    """One turn's tokens, in the order of its meters; None = not reported."""

    input: int | None
    cache_read: int | None
    cache_write_5m: int | None
    cache_write_1h: int | None
    output: int | None

    @property
    def prompt(self) -> tuple[int, int, int]:
        """(plain, read, written): what the top of a usage says of it."""
        return self.input or 0, self.cache_read or 0, added((self.cache_write_5m, self.cache_write_1h))


_NONE = _Counts(None, None, None, None, None)


class _Turn(NamedTuple):
    kind: str
    model: str | None
    counts: _Counts


def anthropic_messages(raw: Any, model: str | None = None) -> Usage | UsageProblem:
    """Anthropic messages: input excludes cache reads and writes; a write is for minutes or an hour.

    `iterations` lists every turn that is billed; the counts beside it leave some out. Turns of another model than
    `model`, the one that was served, become units `<model>/<meter>`. Without both input and output nothing is
    known: the answer has no usage.
    """
    return guarded(raw, lambda usage: _messages(usage, model))


def _messages(raw: Mapping[str, Any], model: str | None) -> Usage:
    top = _counts(raw)
    reasoning = count(part(raw, "output_tokens_details"), "thinking_tokens")
    if top.input is None or top.output is None:
        raise MissingUsage
    check_part(reasoning, top.output)
    if part(part(raw, "fallback_credit"), "status").get("type") == "redeemed":
        raise InconsistentUsage  # billed as if another model had served it all along: no count says how
    units: dict[str, Quantity] = tools_of(raw)
    turns = entries(raw, "iterations")
    if turns:
        top, others = _billed(top, [_turn(turn) for turn in turns], model)
        units |= others
    return Usage(**top._asdict(), reasoning=reasoning, units=units)


def _counts(raw: Mapping[str, Any]) -> _Counts:
    created, split = count(raw, "cache_creation_input_tokens"), part(raw, "cache_creation")
    short, long = count(split, "ephemeral_5m_input_tokens"), count(split, "ephemeral_1h_input_tokens")
    check_whole(created, short, long)
    if short is None and long is None:
        short = created
    read = count(raw, "cache_read_input_tokens")
    return _Counts(count(raw, "input_tokens"), read, short, long, count(raw, "output_tokens"))


def _turn(raw: Mapping[str, Any]) -> _Turn:
    kind, model = raw.get("type"), raw.get("model")
    if kind not in _TURNS or (model is None and kind in _NAMED_TURNS):
        raise InconsistentUsage
    if not isinstance(model, str | None):
        raise InvalidUsage
    return _Turn(kind, model, _counts(raw))


def _billed(top: _Counts, turns: list[_Turn], model: str | None) -> tuple[_Counts, dict[str, Quantity]]:
    """(the served model's turns in sum, the others' by `<model>/<meter>`). Every turn is billed.

    The top repeats the turns of the conversation, without compactions and advice; where there is nothing else, it
    is the conversation.
    """
    said, fell_back = (
        [turn.counts for turn in turns if turn.kind == kind] for kind in ("message", "fallback_message")
    )
    if said or fell_back:
        _check_top(top, [said, said + fell_back, fell_back, [turn.counts for turn in turns]])
    else:
        turns = [*turns, _Turn("message", None, top)]
    _check_who_declined(turns, model)
    units: dict[str, Quantity] = {}
    for turn in turns:
        if turn.model not in (None, model):
            for meter, tokens in turn.counts._asdict().items():
                if tokens:
                    name = f"{turn.model}/{meter}"
                    units[name] = units.get(name, 0) + tokens
    return _sum([turn.counts for turn in turns if turn.model in (None, model)]), units


def _check_top(top: _Counts, readings: list[list[_Counts]]) -> None:
    """Raises InconsistentUsage for a top that no reading of the turns gives; of a prompt it may say the first's."""
    prompts = [prompt for turns in readings if turns for prompt in (_sum(turns).prompt, turns[0].prompt)]
    outputs = [_sum(turns).output for turns in readings if turns]
    if top.prompt not in prompts or top.output not in outputs:
        raise InconsistentUsage


def _check_who_declined(turns: list[_Turn], model: str | None) -> None:
    """Where the served model was a fallback, a turn that names none may be of the model that declined."""
    fell_back = any(turn.kind == "fallback_message" and turn.model == model for turn in turns)
    if fell_back and any(turn.kind == "message" and turn.model is None for turn in turns):
        raise InconsistentUsage


def _sum(turns: list[_Counts]) -> _Counts:
    """Meter by meter; one that no turn reported stays None."""
    columns = [
        [tokens for tokens in column if tokens is not None] for column in zip(_NONE, *turns, strict=True)
    ]
    return _Counts(*[sum(column) if column else None for column in columns])
