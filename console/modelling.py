"""A draft cap against the past: `tk.what_if` put into the figures that the pages show.

The verdicts, sums and balances are the toolkit's, so they are the gateway's own decision function's. Here they are
only chosen and ordered, and set against the clock: over the cap is whoever is over it in the window that runs now.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime

import polars as pl

import toolkit as tk
from console.state import CapDraft
from toolkit.core.scopes import Scope
from toolkit.core.windows import period_at
from toolkit.whatif_tables import Explained

SUBJECT_COLUMNS: dict[Scope, str] = {
    "organization": "organization",
    "project": "project",
    "key": "key_id",
    "customer": "customer",
    "run": "run",
}
CURVE_POINTS = 600


@dataclass(frozen=True, slots=True)
class Over:
    """One counter that has reached the draft's limit, in the limit's unit: its next call is refused."""

    subject: str
    unit: str
    spent: int
    limit: int


@dataclass(frozen=True, kw_only=True)
class Modelled:
    """What a draft would have done to one history."""

    draft: CapDraft
    what_if: tk.WhatIf = field(repr=False)
    over: tuple[Over, ...]
    """Over the limit in the window that runs now, the furthest over first."""
    over_period: str
    over_period_has_data: bool
    ended_period: str | None
    """The newest period with data, when it is not the running one."""
    ended_over: tuple[Over, ...]

    @property
    def over_count(self) -> int:
        """How many are refused on their next call once the draft is armed."""
        return len(self.over)

    @property
    def who(self) -> pl.DataFrame:
        """Who would have been refused, the most dollars first; null dollars where no refused call's cost is known."""
        return self.what_if.by_customer.filter(pl.col("refused_requests") > 0)

    def first_refusal(self, customer: str | None) -> datetime | None:
        """When the draft would first have refused a customer."""
        mine = self.who.filter(pl.col("customer").eq_missing(pl.lit(customer, dtype=pl.String)))
        found: datetime | None = mine["first_refused_at"][0] if mine.height else None
        return found

    def explained(self, customer: str) -> tuple[Explained, str] | None:
        """How a customer ran into the limit, thinned to what a screen shows, and the window in which most was stopped.

        None for a draft that counts no customer in dollars: it has no curve of one customer.
        """
        if self.draft.scope != "customer" or self.draft.limit_nano_usd is None:
            return None
        found = self.what_if.explain(customer)
        limited = pl.col("code").is_in(("budget_exceeded", "budget_busy"))
        stopped = found.curve.filter(limited).group_by("period").agg(pl.col("cost_nano_usd").sum())
        worst = stopped.sort("cost_nano_usd", "period", nulls_last=False)["period"]
        period = worst[-1] if worst.len() else found.last_refused_period()
        if period is None:
            return None
        curve = found.curve.filter(pl.col("period") == period)
        thinned = curve.gather_every(max(1, curve.height // CURVE_POINTS))
        return replace(found, curve=thinned), period


def modelled(past: tk.WhatIf, draft: CapDraft, period: str) -> Modelled:
    """The draft over a prepared history; `period` is the one of its window that runs now."""
    found = past.with_caps([draft.cap()])
    newest = past.replay.history.rows["admitted_at"].max()
    newest_period = period_at(draft.window, newest).key if isinstance(newest, datetime) else None
    over = _over(found)
    runs = newest_period == period
    return Modelled(
        draft=draft,
        what_if=found,
        over=over if runs else (),
        over_period=period,
        over_period_has_data=runs,
        ended_period=None if runs else newest_period,
        ended_over=() if runs else over,
    )


def _over(found: tk.WhatIf) -> tuple[Over, ...]:
    """Each subject once, by the counter of its that is furthest over."""
    counters = found.over_now.select("subject", "unit", "spent", "limit").rows()
    by_subject = {row.subject: row for row in sorted((Over(*counter) for counter in counters), key=_share)}
    return tuple(sorted(by_subject.values(), key=_share, reverse=True))


def _share(row: Over) -> tuple[int, str]:
    # Thousandths are enough to order a list; a limit of zero is passed by everybody alike.
    return (row.spent * 1000 // row.limit if row.limit else row.spent, row.subject)
