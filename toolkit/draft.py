"""A draft of caps, armed, over a history: which caps stand over each receipt, and whom they refuse without a price.

A draft is a list of caps, or a timeline of lists. Every cap given is armed: the question is what would have been.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

import polars as pl

from toolkit.core.admission import claims_for, refusing_unpriced
from toolkit.core.caps import Cap, CapBook, validate_cap
from toolkit.core.decisions import CallFacts
from toolkit.core.errors import InvalidCap
from toolkit.core.scopes import Attribution
from toolkit.core.windows import require_utc
from toolkit.history import History
from toolkit.lanes import SUBJECTS, Shape, shape_of

CapList = Sequence[Cap]
CapTimeline = Sequence[tuple[datetime, Sequence[Cap]]]


class Stretch(NamedTuple):
    """The armed caps in force from an instant on, None for the beginning of history."""

    start: datetime | None
    caps: tuple[Cap, ...]


Timeline = tuple[Stretch, ...]


def timeline_of(caps: CapList | CapTimeline) -> Timeline:
    """A list of caps, or a timeline of (from, list), with every cap armed; raises InvalidCap for what cannot bind."""
    plain = [cap for cap in caps if isinstance(cap, Cap)]
    if len(plain) == len(caps):
        return (Stretch(None, _armed(plain)),)
    steps = [entry for entry in caps if not isinstance(entry, Cap)]
    if plain:
        raise InvalidCap("caps", "a draft is a list of caps or a timeline of (from, list), not a mixture")
    starts = [require_utc(start) for start, _ in steps]
    if starts != sorted(set(starts)):
        raise InvalidCap("from", "a timeline of caps runs forward: each instant once, the oldest first")
    return (Stretch(None, ()), *(Stretch(start, _armed(some)) for start, some in steps))


class Draft:
    """A timeline over one history: the book of each stretch, and the stretch of each row.

    A book also watches the caps of the other stretches, so that their counters know what was spent before.
    """

    def __init__(self, timeline: Timeline, history: History) -> None:
        self.timeline = timeline
        every_cap = [cap for stretch in timeline for cap in stretch.caps]
        self.shapes: list[Shape] = list(dict.fromkeys(map(shape_of, every_cap)))
        self.books = [
            CapBook((*caps, *(replace(cap, hard_stop=False) for cap in every_cap if cap not in caps)))
            for _, caps in timeline
        ]
        at = history.rows["admitted_at"]
        begun = [(at >= stretch.start).cast(pl.Int64) for stretch in timeline if stretch.start is not None]
        self.stretch_of_row = sum(begun, pl.repeat(0, at.len(), dtype=pl.Int64, eager=True))

    def without_price(self, history: History) -> list[tuple[int, int]]:
        """(row, cap id) of every judged call without a price at admission that an armed cap refuses for it."""
        if not any(cap.unpriced == "refuse" for _, caps in self.timeline for cap in caps):
            return []
        rows = history.rows.with_row_index("row").with_columns(self.stretch_of_row.alias("stretch"))
        unpriced = rows.filter("judged", ~pl.col("priced"))
        matched = [
            *{SUBJECTS[shape.scope] for shape in self.shapes},
            "organization",
            "provider",
            "model",
            "stretch",
        ]
        alike = unpriced.group_by(*dict.fromkeys(matched), tag_text=pl.col("tags").list.join(",")).agg("row")
        first = history.rows[alike["row"].list.first()] if alike.height else history.rows.clear()
        refused: list[tuple[int, int]] = []
        for row, stretch, same in zip(
            first.iter_rows(named=True), alike["stretch"], alike["row"], strict=True
        ):
            cap = refusing_unpriced(claims_for(self.books[stretch], facts_of(row)))
            if cap is not None:
                refused += [(number, cap.id) for number in same]
        return refused


def facts_of(row: Mapping[str, Any]) -> CallFacts:
    """What the decision read of a call, from its row of `History.rows`."""
    return CallFacts(
        who=Attribution(
            organization=row["organization"],
            project=row["project"],
            key_id=row["key_id"],
            customer=row["customer"],
            run=row["run"],
            tags=tuple(row["tags"] or ()),
            provider=row["provider"],
            model=row["model"],
        ),
        at=row["admitted_at"],
        hold_nano_usd=row["hold"] if row["priced"] else None,
        floor_nano_usd=row["floor"] if row["priced"] else None,
        hold_tokens=row["hold_tokens"],
        floor_tokens=row["floor_tokens"],
    )


def _armed(caps: Iterable[Cap]) -> tuple[Cap, ...]:
    armed = tuple(replace(validate_cap(cap), hard_stop=True) for cap in caps)
    if len({cap.id for cap in armed}) < len(armed):
        raise InvalidCap("id", "two caps of a draft have one id; give each its own")
    return armed
