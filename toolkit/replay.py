"""History under a draft of caps: the gateway's own decision function over receipts, in the counters' order.

A `Replay` prepares one data set once. Judging a draft compares its limits with one number per receipt (`lanes`), and
runs only the calls that some cap might refuse through the kernel (`contested`). `judge_every_call` leaves nothing out;
it exists to prove that the two agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import polars as pl

from toolkit.contested import CALL_FIELDS, Call, Contest, Plan, Refusal, Seed, refusal_of, refusals_frame
from toolkit.core.admission import claims_for, refusing_unpriced
from toolkit.core.caps import Unit
from toolkit.core.counters import Counters
from toolkit.draft import Draft, Timeline, facts_of
from toolkit.frames import Receipts
from toolkit.history import History
from toolkit.lanes import SPENT, Lane, Limits, Shape, shape_of


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """One draft over one history: the refused rows (`REFUSED_SCHEMA`, by row), from which every verdict follows.

    `contested` is how many calls had to be run through the counters.
    """

    refused: pl.DataFrame
    contested: int


class Replay:
    """Receipts prepared for any number of drafts. Build it once for each version of the data, then judge."""

    def __init__(self, receipts: Receipts | pl.DataFrame | pl.LazyFrame) -> None:
        self.history = History.of(receipts)
        self._lanes: dict[Shape, Lane] = {}
        self._totals: dict[str, pl.DataFrame] = {}

    def lane(self, shape: Shape) -> Lane:
        """The counters of one shape, kept once made."""
        if shape not in self._lanes:
            first_number = sum(lane.keys.height for lane in self._lanes.values())
            self._lanes[shape] = Lane(self.history, shape, first_number=first_number)
        return self._lanes[shape]

    def totals(self, by: Literal["customer", "day"]) -> pl.DataFrame:
        """Per customer or UTC day, whatever the draft: judged requests, and costs of judged and other rows."""
        if by not in self._totals:
            rows = self.history.rows.with_columns(day=pl.col("admitted_at").dt.date())
            judged = pl.col("judged")
            self._totals[by] = rows.group_by(by).agg(
                judged.sum().cast(pl.Int64).alias("requests"),
                pl.col("cost").filter(judged).sum().alias("judged_nano_usd"),
                pl.col("cost").filter(~judged).sum().alias("not_judged_nano_usd"),
            )
        return self._totals[by]

    def judge(self, timeline: Timeline) -> Judged:
        """The refused rows under a draft."""
        history = self.history
        draft = Draft(timeline, history)
        strict = draft.without_price(history)
        unpriced = refusals_frame([Refusal(row, "model_unpriced", cap_id) for row, cap_id in strict])
        doubts = [Doubt(self.lane(shape), draft, unpriced["row"]) for shape in draft.shapes]
        near = pl.concat([unpriced["row"].clear(), *(doubt.near() for doubt in doubts)]).unique().sort()
        rows = without(near, unpriced["row"])
        if rows.is_empty():
            return Judged(unpriced.sort("row"), 0)
        plans, calls = _plans_and_calls(history, draft, doubts, rows)
        nowhere = pl.repeat(None, history.rows.height, dtype=pl.UInt32, eager=True)
        call_of_row = nowhere.scatter(rows, pl.int_range(rows.len(), dtype=pl.UInt32, eager=True))
        seeds: dict[int, list[Seed]] = {}
        for doubt in doubts:
            for row, counter, taken in doubt.took_before(history, pl.concat((rows, unpriced["row"]))):
                call = call_of_row[row]
                seeds.setdefault(call, []).extend(doubt.seeds(plans[calls["plan"][call]], counter, taken))
        call_of_event = call_of_row.gather(history.events["row"])
        theirs = call_of_event.is_not_null()
        settles = history.events["settles"].filter(theirs).to_list()
        refused = Contest(calls, plans, seeds).run(
            zip(call_of_event.filter(theirs).to_list(), settles, strict=True)
        )
        refused = refused.with_columns(rows.gather(refused["row"]).alias("row"))
        return Judged(pl.concat((unpriced, refused)).sort("row"), rows.len())


class Doubt:
    """The counters of a lane that may refuse someone, each from its first to its last doubtful admission."""

    def __init__(self, lane: Lane, draft: Draft, unpriced: pl.Series) -> None:
        self.lane = lane
        rows = lane.rows
        doubtful = pl.repeat(value=False, n=rows.height, eager=True)
        stretch = draft.stretch_of_row.gather(rows["row"])
        for number, (_, caps) in enumerate(draft.timeline):
            limits = Limits(lane, caps)
            for unit, admission in limits.axes():
                limit = limits.least(unit, admission).gather(rows["key"])
                beyond = (lane.need(unit, admission) > limit).fill_null(value=False)
                doubtful |= beyond if len(draft.timeline) == 1 else beyond & (stretch == number)
        if not unpriced.is_empty():
            doubtful &= ~rows["row"].is_in(unpriced.implode())
        places = (
            rows.filter(doubtful).group_by("key").agg(first=pl.col("admit").min(), last=pl.col("admit").max())
        )
        self.span_of_key = lane.keys.select("key").join(places, on="key", how="left", maintain_order="left")
        self._spans = self.span_of_key[rows["key"]]

    def near(self) -> pl.Series:
        """The rows that a doubtful admission can meet: settled after the counter's first, admitted by its last."""
        rows = self.lane.rows
        meets = (rows["settle"] >= self._spans["first"]) & (rows["admit"] <= self._spans["last"])
        return rows["row"].filter(meets)

    def counter_of(self, rows: pl.Series) -> pl.Series:
        """Per row: the number of its doubtful counter, null when its counter refuses nobody."""
        number = pl.col("key").cast(pl.Int64) + self.lane.first_number
        doubtful = self.span_of_key.select(pl.when(pl.col("first").is_not_null()).then(number))["key"]
        return doubtful.gather(self.lane.key_of_row.gather(rows))

    def took_before(self, history: History, apart: pl.Series) -> Iterator[tuple[int, int, dict[Unit, int]]]:
        """Per counter: its first doubtful row, its number, and what rows that are not `apart` counted before."""
        before = (self.lane.rows["settle"] < self._spans["first"]).fill_null(value=False)
        rows = without(self.lane.rows["row"].filter(before), apart)
        sums = [self.lane.sums(column, rows).alias(unit) for unit, column in SPENT.items()]
        taken = self.span_of_key.hstack(sums).filter(pl.col("first").is_not_null())
        starts = history.events["row"].gather(taken["first"])
        for start, key, *amounts in zip(starts, *taken["key", *SPENT].get_columns(), strict=True):
            yield start, key, dict(zip(SPENT, amounts, strict=True))

    def seeds(self, plan: Plan, key: int, taken: dict[Unit, int]) -> list[Seed]:
        """What a call of `plan` finds on this lane's counter `key`."""
        claims = (claim for claim in plan.claims if shape_of(claim.caps[0][0]) == self.lane.shape)
        return [(key + self.lane.first_number, claim.key, taken[claim.key.unit]) for claim in claims]


def judge_every_call(history: History, timeline: Timeline) -> pl.DataFrame:
    """The refused rows with nothing left out: all of history through the counters, event by event."""
    draft = Draft(timeline, history)
    counters = Counters()
    rows = list(history.rows.iter_rows(named=True))
    refusals: list[Refusal] = []
    for number, settles in history.events.iter_rows():
        row = rows[number]
        call = Call._make([*(row[name] for name in CALL_FIELDS), 0])
        if settles:
            counters.settle(row["receipt_id"], call.took())
            continue
        facts = facts_of(row)
        claims = claims_for(draft.books[draft.stretch_of_row[number]], facts)
        strict = refusing_unpriced(claims) if facts.hold_nano_usd is None else None
        if strict is not None:
            refusals.append(Refusal(number, "model_unpriced", strict.id))
            continue
        grant = counters.reserve(row["receipt_id"], facts, claims)
        if not grant.granted:
            refusals.append(refusal_of(number, call, claims, grant.balances))
        elif call.refused_before:
            counters.release(row["receipt_id"])
    return refusals_frame(refusals).sort("row")


def _plans_and_calls(
    history: History, draft: Draft, doubts: Sequence[Doubt], rows: pl.Series
) -> tuple[list[Plan], pl.DataFrame]:
    """Contested rows as calls, and what those of one attribution, period and stretch share."""
    lanes = [str(number) for number in range(len(doubts))]
    counters = [doubt.counter_of(rows).alias(name) for name, doubt in zip(lanes, doubts, strict=True)]
    profile = pl.DataFrame((*counters, draft.stretch_of_row.gather(rows).alias("stretch")))
    alike = profile.with_row_index("call").group_by(profile.columns, maintain_order=True).agg("call")
    plan_of_call = alike.with_row_index("plan").select("plan", "call").explode("call").sort("call")["plan"]
    first = history.rows[rows.gather(alike["call"].list.first())]
    plans = []
    for row, (*keys, stretch) in zip(
        first.iter_rows(named=True), alike[profile.columns].iter_rows(), strict=True
    ):
        facts = facts_of(row)
        there = {doubt.lane.shape for doubt, key in zip(doubts, keys, strict=True) if key is not None}
        claims = (
            claim for claim in claims_for(draft.books[stretch], facts) if shape_of(claim.caps[0][0]) in there
        )
        plans.append(Plan(facts, tuple(claims), tuple(key for key in keys if key is not None)))
    columns = (*history.rows.select(CALL_FIELDS)[rows].get_columns(), plan_of_call)
    return plans, pl.DataFrame(columns)


def without(rows: pl.Series, others: pl.Series) -> pl.Series:
    """`rows` that are not among `others`."""
    return rows.filter(~rows.is_in(others.implode())) if not others.is_empty() else rows
