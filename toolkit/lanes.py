"""All counters of one shape, vectorised: what each row would have to clear there, whatever the limit.

A lane is every counter of one scope, match shape and window. If all its rows were admitted, each admission would
find a known balance, and no cap can make it find more: a refused row only takes amounts away. So the least limit
under which a row cannot be refused is one number per row, computed once; a new limit is one comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from toolkit.core.caps import EACH, Admission, Cap, Unit, replaced_defaults
from toolkit.core.scopes import Scope
from toolkit.core.windows import Window
from toolkit.frames import INSTANT
from toolkit.history import History

SPENT: dict[Unit, str] = {"usd": "counted", "tokens": "counted_tokens", "requests": "requests"}
"""The column of `History.rows` that a counter of each unit takes at settlement."""

SUBJECTS: dict[Scope, str] = {
    "organization": "organization",
    "project": "project",
    "key": "key_id",
    "customer": "customer",
    "run": "run",
}
_HOLDS: dict[Unit, pl.Expr] = {"usd": pl.col("hold"), "tokens": pl.col("hold_tokens"), "requests": pl.lit(1)}
_FLOORS: dict[Unit, pl.Expr] = {
    "usd": pl.col("floor"),
    "tokens": pl.col("floor_tokens"),
    "requests": pl.lit(0),
}
_TRUNCATED: dict[Window, str] = {"day": "1d", "week": "1w", "month": "1mo", "year": "1y"}
COUNTER = ("organization", "subject", "provider", "model", "tag", "period")
"""The columns that name a counter within its lane."""


class Shape(NamedTuple):
    """What the counters of a lane have in common: the dimensions they resolve, and the clock."""

    scope: Scope
    provider: bool
    model: bool
    tag: str | None
    """The namespace of the tag that splits or filters."""
    window: Window


def shape_of(cap: Cap) -> Shape:
    """The lane whose counters a cap stands over."""
    tag = cap.match.tag.partition(":")[0] if cap.match.tag is not None else None
    return Shape(cap.scope, cap.match.provider is not None, cap.match.model is not None, tag, cap.window)


class Lane:
    """One lane over one history.

    `keys`: one row per counter: its number `key`, organization, subject, provider, model, tag value and the start of
    the period ("" or null where the lane does not resolve one). `rows`: row, key, admit and settle of every
    judged row that counts here, by row.
    """

    def __init__(self, history: History, shape: Shape, *, first_number: int = 0) -> None:
        """`first_number`, with a key added, numbers a counter among those of all lanes."""
        self.shape = shape
        self.first_number = first_number
        self._history = history
        grouped = (
            history.rows.with_row_index("row")
            .filter("judged")
            .select("row", "admit", "settle", **counter_parts(shape))
            .filter(_inside(shape))
            .group_by(COUNTER, maintain_order=True)
            .agg("row", "admit", "settle")
            .with_row_index("key")
        )
        self.keys = grouped.select("key", *COUNTER)
        counters = grouped.select("key", "row", "admit", "settle")
        self.rows = counters.explode("row", "admit", "settle", empty_as_null=False).sort("row")
        every = history.rows.select(row=pl.int_range(pl.len(), dtype=pl.UInt32))
        aligned = every.join(self.rows.select("row", "key"), on="row", how="left", maintain_order="left")
        self.key_of_row = aligned["key"]
        self._needs: dict[tuple[Unit, Admission], pl.Series] = {}

    def need(self, unit: Unit, admission: Admission) -> pl.Series:
        """Per row of `rows`: the least limit that cannot refuse it, were everything before it admitted."""
        if (unit, admission) not in self._needs:
            self._needs[unit, admission] = self._least_limits(unit, admission)
        return self._needs[unit, admission]

    def sums(self, column: str, rows: pl.Series | None = None) -> pl.Series:
        """Per key: the sum of one column of `History.rows` over its rows, or over those of `rows`; 0 for none."""
        counted = self.rows["row"] if rows is None else rows
        found = pl.DataFrame(
            (
                self.key_of_row.gather(counted).alias("key"),
                self._history.rows[column].gather(counted).alias("amount"),
            )
        )
        summed = found.group_by("key").agg(pl.col("amount").sum())
        return self.keys.join(summed, on="key", how="left", maintain_order="left")["amount"].fill_null(0)

    def taken(self, rows: pl.DataFrame) -> pl.DataFrame:
        """What any rows of a history counted, judged or not, per counter: COUNTER and the columns of SPENT."""
        parts = rows.select(*SPENT.values(), **counter_parts(self.shape)).filter(_inside(self.shape))
        return parts.group_by(COUNTER, maintain_order=True).agg(pl.col(SPENT.values()).sum())

    def _least_limits(self, unit: Unit, admission: Admission) -> pl.Series:
        """Running sums over the events of each key: a row weighs its hold (floor, nothing) until it settles."""
        weight = {"reserve": _HOLDS[unit], "floor": _FLOORS[unit], "after": pl.lit(0)}[admission]
        least = pl.max_horizontal(weight, 1) if admission == "reserve" else weight + 1
        stays = ~pl.col("refused_before")
        asks = self._history.rows.select(
            weight=pl.when(stays).then(weight).otherwise(0),
            counts=pl.when(stays).then(SPENT[unit]).otherwise(0),
            least=least.cast(pl.Int64),
        )
        events = self._history.events
        delta = pl.when("settles").then(pl.col("counts") - pl.col("weight")).otherwise("weight")
        return (
            events.hstack(
                [self.key_of_row.gather(events["row"]).alias("key"), *asks[events["row"]].get_columns()]
            )
            .filter(pl.col("key").is_not_null())
            .with_columns(delta=delta)
            .with_columns(before=pl.col("delta").cum_sum().over("key") - pl.col("delta"))
            .filter(~pl.col("settles"))
            .select("row", need=pl.col("before") + pl.col("least"))
            .sort("row")["need"]
        )


class Limits:
    """The limits that one set of armed caps puts on the counters of a lane."""

    def __init__(self, lane: Lane, caps: Sequence[Cap]) -> None:
        self.caps = [cap for cap in caps if shape_of(cap) == lane.shape]
        self._lane = lane
        self._replaced_for: dict[int, list[str]] = {}
        for subject in sorted({cap.subject for cap in self.caps if cap.subject != EACH}):
            over_it = [(cap, cap.match) for cap in self.caps if cap.subject in (EACH, subject)]
            for cap_id in replaced_defaults(over_it):
                self._replaced_for.setdefault(cap_id, []).append(subject)

    def axes(self) -> list[tuple[Unit, Admission]]:
        """The units and admission modes that some cap limits."""
        return sorted({(unit, cap.admission) for cap in self.caps for unit, _ in cap.limits})

    def least(self, unit: Unit, admission: Admission | None = None) -> pl.Series:
        """Per key: the least limit on a unit, of one admission mode or of all; null where nothing binds."""
        limits = [
            pl.when(self.binds(cap)).then(pl.lit(limit, dtype=pl.Int64))
            for cap in self.caps
            if admission in (None, cap.admission) and (limit := cap.limit(unit)) is not None
        ]
        nothing = pl.repeat(None, pl.len(), dtype=pl.Int64)
        return self._lane.keys.select(pl.min_horizontal(nothing, *limits).alias("least"))["least"]

    def binds(self, cap: Cap) -> pl.Expr:
        """Whether a cap binds the counter of a row of `Lane.keys`."""
        tag = cap.match.tag.partition(":")[2] if cap.match.tag is not None else None
        wanted = {
            "subject": cap.subject,
            "provider": cap.match.provider,
            "model": cap.match.model,
            "tag": tag,
        }
        filters = [pl.col(part) == value for part, value in wanted.items() if value not in (None, EACH)]
        if cap.id in self._replaced_for:
            filters.append(~pl.col("subject").is_in(self._replaced_for[cap.id]))
        return pl.all_horizontal(filters) if filters else pl.lit(value=True)


def counter_parts(shape: Shape) -> dict[str, pl.Expr]:
    """The parts of a counter's name as each receipt resolves them."""
    namespace = f"{shape.tag}:"
    first_tag = pl.col("tags").list.filter(pl.element().str.starts_with(namespace)).list.first()
    every = _TRUNCATED.get(shape.window)
    return {
        "organization": pl.col("organization"),
        "subject": pl.col(SUBJECTS[shape.scope]),
        "provider": pl.col("provider") if shape.provider else pl.lit(""),
        "model": pl.col("model") if shape.model else pl.lit(""),
        "tag": pl.lit("") if shape.tag is None else first_tag.str.slice(len(namespace)),
        "period": pl.lit(None, dtype=INSTANT) if every is None else pl.col("admitted_at").dt.truncate(every),
    }


def _inside(shape: Shape) -> pl.Expr:
    """Whether a receipt has a value in every dimension that the lane resolves."""
    resolved = [name for name, used in (("provider", shape.provider), ("model", shape.model)) if used]
    named = [pl.col(name) != "" for name in resolved]
    return pl.all_horizontal(pl.col("subject").is_not_null(), pl.col("tag").is_not_null(), *named)
