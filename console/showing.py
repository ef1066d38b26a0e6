"""From the toolkit's frames to what a page shows: which rows, which columns, in which order.

Nothing is drawn here and no sentence is made; pages put these into tables and cards.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import polars as pl

from console import cap_wording, data, formatting, model_wording, wording
from console.components.cards import Card
from console.data import Totals
from console.gateway_views import AuditRow, CapView, Coverage, ReceiptView
from console.history import HistoryState
from console.modelling import Modelled, Over
from toolkit.core.caps import EACH
from toolkit.core.windows import Window

TOP = 10
NEAREST = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodChoice:
    """A window, and the period of it that a page shows."""

    window: Window
    period: str


def overview_cards(totals: Totals) -> list[Card]:
    """One period in four cards."""
    change = None
    if totals.before_nano_usd is not None:
        change = formatting.signed_usd(totals.spend_nano_usd - totals.before_nano_usd)
    before, short = "", ""
    if totals.before_key:
        before, short = formatting.period(totals.before_key), formatting.short_period(totals.before_key)
    return [
        Card(
            label=wording.SPEND_CARD,
            value=formatting.total_usd(totals.spend_nano_usd),
            badge=change,
            note=wording.change_md(totals.before_nano_usd, short),
            help=wording.change_help_md(totals.before_nano_usd, before, is_part=totals.before_is_part),
        ),
        Card(
            label=wording.REQUESTS_CARD,
            value=formatting.count(totals.requests),
            badge=formatting.count(totals.customers),
            note=wording.CUSTOMERS_NOTE,
        ),
        Card(
            label=wording.REFUSED_CARD,
            value=formatting.count(totals.refused),
            badge=formatting.percent(totals.refused, totals.requests),
            note=wording.OF_REQUESTS_NOTE,
            alarming=totals.refused > 0,
        ),
        Card(
            label=wording.UNPRICED_CARD,
            value=formatting.count(totals.unpriced),
            badge=formatting.percent(totals.unpriced, totals.requests),
            note=wording.OF_REQUESTS_NOTE,
            help=wording.UNPRICED_HELP,
        ),
    ]


def model_cards(version: str, modelled: Modelled) -> list[Card]:
    """The four answers of a draft; each with its share and its days."""
    found, days = modelled.what_if.summary, modelled.what_if.by_day
    return [
        Card(
            label=model_wording.DOLLARS_STOPPED,
            value=formatting.total_usd(found.refused_nano_usd),
            badge=formatting.percent(found.refused_nano_usd, found.total_nano_usd),
            note=model_wording.of_spend_md(found.total_nano_usd),
            trend=days["refused_nano_usd"].to_list(),
        ),
        Card(
            label=model_wording.CALLS_REFUSED,
            value=formatting.count(found.refused),
            badge=formatting.percent(found.refused, found.judged),
            note=model_wording.of_count_md(found.judged),
            help=model_wording.JUDGED_HELP,
            trend=days["refused_requests"].to_list(),
        ),
        Card(
            label=model_wording.CUSTOMERS_REFUSED,
            value=formatting.count(found.customers_refused),
            badge=formatting.percent(found.customers_refused, found.customers),
            note=model_wording.of_count_md(found.customers),
            trend=days["customers_refused"].to_list(),
        ),
        Card(
            label=model_wording.OVER_NOW,
            value=formatting.count(modelled.over_count),
            badge=model_wording.REFUSED_NEXT if modelled.over else model_wording.NOBODY_NOW,
            note=model_wording.over_period_md(modelled),
            alarming=modelled.over_count > 0,
            help=model_wording.OVER_HELP,
            trend=data.standings(version, modelled.draft, NEAREST) if modelled.over else None,
        ),
    ]


def over_rows(over: Iterable[Over]) -> pl.DataFrame:
    """Who is over, the furthest first."""
    rows = [(row.subject, row.spent, row.spent / row.limit if row.limit else None) for row in over]
    schema = {"subject": pl.String, "spent": pl.Int64, "share": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def customers(version: str, chosen: PeriodChoice) -> pl.DataFrame:
    """Every customer of a period, the dearest first."""
    frame = data.spend(version, ("customer",), chosen.window, chosen.period)
    return frame.drop_nulls("customer").sort(
        "cost_nano_usd", "customer", descending=[True, False], nulls_last=True
    )


def top_customers(version: str, chosen: PeriodChoice, caps: Iterable[CapView]) -> pl.DataFrame:
    """The dearest customers of a period with the share of their cap that is spent."""
    dollar = [
        cap
        for cap in caps
        if cap.scope == "customer"
        and cap.window == chosen.window
        and cap.limit_nano_usd
        and (cap.provider, cap.model, cap.tag) == (None, None, None)
    ]
    limits = {
        cap.subject: cap.limit_nano_usd for cap in sorted(dollar, key=lambda cap: (cap.hard_stop, -cap.id))
    }
    frame = customers(version, chosen).head(TOP)
    limit = pl.Series([limits.get(name, limits.get(EACH)) for name in frame["customer"]], dtype=pl.Int64)
    return frame.with_columns(of_cap=pl.col("counted_nano_usd") / limit)


def models_of(version: str, chosen: PeriodChoice, customer: str) -> pl.DataFrame:
    """One customer's models in a period, the dearest first."""
    mine = data.spend(version, ("model",), chosen.window, chosen.period, customer)
    return mine.sort("cost_nano_usd", "model", descending=[True, False], nulls_last=True)


def receipt_rows(frame: pl.DataFrame) -> pl.DataFrame:
    """Receipts with the model that answered, and one reason column."""
    return frame.with_columns(
        model=pl.coalesce("model_served", "model_requested"),
        why=pl.coalesce("refusal_code", "unpriced_reason"),
    )


def trace_rows(receipt: ReceiptView) -> pl.DataFrame:
    """A decision trace, one cap and axis a row, all of it as text."""
    return pl.DataFrame([cap_wording.look_cells(look) for look in receipt.trace])


def audit_rows(rows: Iterable[AuditRow]) -> pl.DataFrame:
    """The audit log, newest first, with what changed between before and after."""
    cells = [
        (row.at, row.actor, row.action, row.subject, _change(row.before, row.after), row.reason)
        for row in rows
    ]
    schema: dict[str, pl.DataType | type[pl.DataType]] = {
        "at": pl.Datetime("us", "UTC"),
        "actor": pl.String,
        "action": pl.String,
        "object": pl.String,
        "change": pl.String,
        "reason": pl.String,
    }
    return pl.DataFrame(cells, schema=schema, orient="row").sort("at", descending=True, maintain_order=True)


def armed_by(rows: Iterable[AuditRow]) -> dict[int, str]:
    """Who armed each cap last."""
    found: dict[int, str] = {}
    for row in sorted(rows, key=lambda row: row.at):
        kind, _, number = row.subject.partition(":")
        if row.action == "cap.arm" and kind == "cap" and number.isdigit():
            found[int(number)] = row.actor
    return found


def month_rows(frame: pl.DataFrame) -> pl.DataFrame:
    """Months by price list, with a word where a total or nothing stands instead of a list."""
    word = pl.when("total").then(pl.lit(wording.TOTAL)).otherwise(pl.lit(wording.NO_LIST))
    return frame.with_columns(list=pl.when("total").then(word).otherwise(pl.coalesce("price_list", word)))


def coverage_facts(history: HistoryState, covered: Coverage, statuses: Mapping[str, int]) -> dict[str, str]:
    """What this console's history holds."""
    return {
        wording.RECEIPTS_FACT: formatting.count(covered.rows),
        **{
            wording.STATUS_FACTS.get(name, name): formatting.count(number)
            for name, number in statuses.items()
        },
        wording.FIRST_FACT: formatting.instant(covered.first),
        wording.LAST_FACT: formatting.instant(covered.last),
        wording.VERSION_FACT: history.version,
    }


def _change(before: Mapping[str, object] | None, after: Mapping[str, object] | None) -> str:
    """The fields that differ, `before → after`; stamps are left out, they stand in the row's own columns."""
    stamps = ("id", "version", "created_at", "updated_at", "updated_by", "armed_at", "limit_nano_usd")
    before, after = before or {}, after or {}
    names = [
        name for name in {**before, **after} if name not in stamps and before.get(name) != after.get(name)
    ]
    made, gone = not before, not after
    said = [name for name in names if not (made and _says_nothing(after[name]))]
    if made or gone:
        return "; ".join(f"{name}: {_short((after or before)[name])}" for name in said)
    return "; ".join(f"{name}: {_short(before.get(name))} → {_short(after.get(name))}" for name in said)


def _says_nothing(value: object) -> bool:
    """A field that a new object leaves open."""
    if isinstance(value, Mapping):
        return not any(value.values())
    return value in (None, False, "", [])


def _short(value: object) -> str:
    return value if isinstance(value, str) else formatting.UNKNOWN if value is None else json.dumps(value)


def what_to_do(unpriced: pl.DataFrame) -> dict[str, str]:
    """The advice for each reason that stands in a table of unpriced calls, the most frequent first."""
    by_calls = unpriced.group_by("reason", "what_to_do").agg(pl.col("requests").sum())
    rows = by_calls.sort("requests", "reason", descending=[True, False]).select("reason", "what_to_do").rows()
    return {reason or wording.NO_REASON: advice for reason, advice in rows}
