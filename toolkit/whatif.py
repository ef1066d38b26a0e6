"""What a draft of caps would have done to history: dollars stopped, who would have been refused, and who is over now.

History is fixed: a refused caller would have tried again, used another model or left. So the figure is the spend
above the cap in this history, not a saving.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING

import polars as pl

from toolkit import whatif_tables as tables
from toolkit.captext import cap_words, counted, dollars, without_price
from toolkit.core.caps import Cap
from toolkit.core.errors import QueryError
from toolkit.core.money import parse_usd
from toolkit.draft import CapList, CapTimeline, Timeline, timeline_of
from toolkit.frames import Receipts
from toolkit.history import OrderedBy, exact_sum
from toolkit.replay import Judged, Replay

if TYPE_CHECKING:
    import plotly.graph_objects as go


def what_if(receipts: Receipts | Replay | pl.DataFrame | pl.LazyFrame, caps: CapList | CapTimeline) -> WhatIf:
    """The verdict that each receipt would have got, had these caps been armed; a list, or a timeline of (from, list).

    To try many drafts on the same receipts give a `Replay` of them, or go on from a result with `with_caps`. Raises
    InvalidCap for a cap that cannot bind or two with one id.

    >>> from toolkit.captext import parse_cap_text
    >>> from toolkit.frames import RECEIPT_SCHEMA
    >>> nothing = pl.DataFrame(schema=RECEIPT_SCHEMA)
    >>> what_if(nothing, [parse_cap_text("customer:* day 10")]).sentence()
    '$10.00 per day would have stopped nothing.'
    """
    replay = receipts if isinstance(receipts, Replay) else Replay(receipts)
    timeline = timeline_of(caps)
    return WhatIf(replay, timeline, replay.judge(timeline))


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A draft over one history, in counts and nano-USD. `refused` = budget_exceeded + busy + unpriced.

    `refused_nano_usd` is the recorded cost of refused requests; `refused_without_cost` of them have none on record.
    `customers_stopped` are those whom a limit refused, `customers_refused` also those refused for want of a price.
    `cost_unknown`: a cap refused them in history, the draft would not. `overshoot_nano_usd`: what counters ended
    above their limit. `false_stops`: refused on a hold though the recorded cost would have fit.
    """

    receipts: int
    judged: int
    admitted: int
    refused: int
    refused_nano_usd: int
    refused_without_cost: int
    busy: int
    unpriced: int
    false_stops: int
    cost_unknown: int
    customers: int
    customers_refused: int
    customers_stopped: int
    customers_over_now: int
    admitted_nano_usd: int
    total_nano_usd: int
    overshoot_nano_usd: int
    ordered_by: OrderedBy


@dataclass(frozen=True, repr=False, eq=False)
class WhatIf:
    """The verdicts of a draft over one history. Tables are made when first asked for."""

    replay: Replay
    timeline: Timeline
    judged: Judged

    @cached_property
    def summary(self) -> Summary:
        """Counts and sums over the whole history."""
        rows, refused = self.replay.history.rows, tables.refused_rows(self.replay, self.judged)
        by_code = dict(self.judged.refused["code"].value_counts().iter_rows())
        by_limit = self.judged.refused["code"] != "model_unpriced"
        judged = int(rows["judged"].sum())
        unknown = int(rows["refused_before"].sum()) - int(refused["refused_before"].sum())
        total, stopped = exact_sum(rows["cost"]), exact_sum(refused["cost"])
        over = self.over_now.filter(pl.col("scope") == "customer")["subject"]
        return Summary(
            receipts=rows.height,
            judged=judged,
            admitted=judged - refused.height - unknown,
            refused=refused.height,
            refused_nano_usd=stopped,
            refused_without_cost=refused["cost"].null_count(),
            busy=by_code.get("budget_busy", 0),
            unpriced=by_code.get("model_unpriced", 0),
            false_stops=int(self.judged.refused["false_stop"].sum()),
            cost_unknown=unknown,
            customers=self.replay.totals("customer")["customer"].drop_nulls().len(),
            customers_refused=refused["customer"].drop_nulls().n_unique(),
            customers_stopped=refused["customer"].filter(by_limit).drop_nulls().n_unique(),
            customers_over_now=over.n_unique(),
            admitted_nano_usd=exact_sum(rows["cost"].filter(rows["judged"])) - stopped,
            total_nano_usd=total,
            overshoot_nano_usd=tables.overshoot(self.replay, self.timeline, self.judged),
            ordered_by=self.replay.history.ordered_by,
        )

    @cached_property
    def by_customer(self) -> pl.DataFrame:
        """One row per customer, the most dollars refused first; null is the calls that name no customer.

        `customer, requests, refused_requests, refused_nano_usd` (null where no refused request has a cost on
        record), `first_refused_at, refused_share` (of its recorded cost), `admitted_nano_usd, over_now`.
        """
        over = self.over_now.filter(pl.col("scope") == "customer")["subject"].unique()
        return tables.by_customer(self.replay, self.judged).with_columns(
            over_now=pl.col("customer").is_in(over.implode()).fill_null(value=False)
        )

    @cached_property
    def by_day(self) -> pl.DataFrame:
        """One row per UTC day with receipts.

        `day, requests, refused_requests, customers_refused, admitted_nano_usd, refused_nano_usd,
        not_judged_nano_usd, partial` (the data does not hold the whole day). The three sums add up to its cost.
        """
        return tables.by_day(self.replay, self.judged)

    @cached_property
    def decisions(self) -> pl.DataFrame:
        """One verdict per receipt, in the receipts' order.

        `receipt_id, admitted_at, customer, verdict, code, cap_id, unit, headroom, false_stop, cost_nano_usd`. verdict:
        admitted, refused, cost_unknown or not_judged; code, cap and headroom (in `unit`) are those of the refusal.
        """
        return tables.decisions(self.replay, self.judged)

    @cached_property
    def over_now(self) -> pl.DataFrame:
        """Counters whose spend in the newest period of the data reaches a limit: refused on their next call.

        `cap_id, scope, subject, provider, model, tag, period, unit, spent, limit`. Spent is what the receipts say,
        refused or not by the draft, because that is what a cap armed now starts from.
        """
        return tables.over_now(self.replay, self.timeline)

    def explain(self, customer: str, *, cap_id: int | None = None) -> tables.Explained:
        """How a customer's spend ran into a customer dollar cap, call by call: the tightest, or the one named."""
        return tables.explain(self.replay, self.timeline, self.judged, customer, cap_id)

    def sweep(self, limits_usd: Iterable[str | int | Decimal], *, cap_id: int | None = None) -> pl.DataFrame:
        """Dollars stopped against customers refused, over other limits of one dollar cap of the draft.

        `limit_nano_usd, refused_requests, refused_nano_usd, customers_refused, false_stops, knee`. Limits are dollars,
        as text, whole numbers or Decimal, never floats. The knee is the limit farthest from the straight line.
        """
        cap = self._swept(cap_id)
        points = []
        for limit in sorted({_nano(usd) for usd in limits_usd}):
            changed = replace(cap, limit_nano_usd=limit)
            timeline = tuple(
                step._replace(caps=tuple(changed if other.id == cap.id else other for other in step.caps))
                for step in self.timeline
            )
            points.append((limit, self.replay.judge(timeline)))
        return tables.sweep(self.replay, points)

    def diff(self, other: WhatIf) -> pl.DataFrame:
        """Receipts whose verdict differs in `other`: `receipt_id, admitted_at, customer, cost_nano_usd, before, after,
        change` (newly_refused, no_longer_refused). Raises QueryError when the receipts are not the same.
        """
        return tables.diff(self.decisions, other.decisions)

    def with_caps(self, caps: CapList | CapTimeline) -> WhatIf:
        """Another draft over the same receipts, without preparing them again."""
        return what_if(self.replay, caps)

    @property
    def caps(self) -> tuple[Cap, ...]:
        """The caps of the draft; of a timeline, the last ones."""
        return self.timeline[-1].caps

    @property
    def data_through(self) -> datetime | None:
        """The newest instant in the receipts."""
        return self.replay.history.data_through

    def figure(self) -> go.Figure:
        """Each day's spend, split into what the draft admits and what it refuses."""
        from toolkit.figures import what_if_by_day

        return what_if_by_day(self)

    def sentence(self) -> str:
        """The finding, to read aloud.

        `$10.00 per day would have stopped $114.99 and refused 4 customers.` What is refused for want of a price is told
        apart: no limit would let it through.
        """
        found = self.summary
        who = cap_words(self.caps[0]) if len(self.caps) == 1 else f"These {counted(len(self.caps), 'cap')}"
        if not self.caps:
            return "No cap is armed, so nothing would have been refused."
        if not found.refused:
            return f"{who} would have stopped nothing."
        stopped = found.refused - found.unpriced
        said = f"{who} would have stopped nothing"
        if stopped:
            refused = counted(found.customers_stopped, "customer") if found.customers_stopped else None
            refused = refused or counted(stopped, "request")
            said = f"{who} would have stopped {dollars(found.refused_nano_usd)} and refused {refused}"
        if found.unpriced:
            said += f"; {without_price(found.unpriced, more=stopped > 0)}"
        return f"{said}."

    def __repr__(self) -> str:
        lines = [self.sentence(), "  ".join(f"{label}: {value}" for label, value in self._four_numbers())]
        lines += [f"  {who}  {calls} refused  {stopped}" for who, calls, stopped in self._most_refused()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        numbers = "".join(
            f"<td style='padding-right:2em'>{escape(label)}<br><b>{escape(value)}</b></td>"
            for label, value in self._four_numbers()
        )
        rows = "".join(
            f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in self._most_refused()
        )
        heads = "<tr><th>customer</th><th>refused</th><th>stopped</th></tr>"
        who = f"<table>{heads}{rows}</table>" if rows else ""
        return f"<p><b>{escape(self.sentence())}</b></p><table><tr>{numbers}</tr></table>{who}"

    def _four_numbers(self) -> list[tuple[str, str]]:
        found = self.summary
        return [
            ("dollars stopped", f"{dollars(found.refused_nano_usd)} of {dollars(found.total_nano_usd)}"),
            ("calls refused", f"{found.refused:,} of {found.judged:,}"),
            ("customers refused", f"{found.customers_refused:,} of {found.customers:,}"),
            ("over now", f"{found.customers_over_now:,}"),
        ]

    def _most_refused(self) -> list[tuple[str, str, str]]:
        top = self.by_customer.filter(pl.col("refused_requests") > 0).head(5)
        columns = top.select("customer", "refused_requests", "refused_nano_usd").iter_rows()
        return [
            (who or "(no customer)", f"{calls:,}", "unknown" if stopped is None else dollars(stopped))
            for who, calls, stopped in columns
        ]

    def _swept(self, cap_id: int | None) -> Cap:
        found = [cap for cap in self.caps if cap.limit_nano_usd is not None and cap_id in (None, cap.id)]
        if len(found) != 1:
            ids = ", ".join(str(cap.id) for cap in self.caps if cap.limit_nano_usd is not None) or "none"
            raise QueryError(f"name one dollar cap of this draft by cap_id; it has {ids}")
        return found[0]


def _nano(usd: str | int | Decimal) -> int:
    if isinstance(usd, float):
        raise QueryError(f"{usd!r} is a float; write dollars as text, such as '2.50'")
    return parse_usd(f"{usd:f}" if isinstance(usd, Decimal) else str(usd))
