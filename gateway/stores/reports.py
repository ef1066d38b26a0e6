"""Reports over receipts, read in SQL with exact integers. Every function works on the caller's connection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, case, func, literal_column, or_, select

from gateway.stores.finals import Dimension, Part, bucket, walked, within
from gateway.stores.rows import from_micros, row_to_json
from gateway.stores.sources import FIGURES, Source, source_of
from gateway.stores.tables import receipts
from gateway.stores.traces import trace_lines
from toolkit.core.receipts import USAGE_COLUMNS
from toolkit.core.unpriced import what_to_do
from toolkit.core.windows import Window, instant_text

TOKEN_COLUMNS: tuple[str, ...] = tuple(USAGE_COLUMNS.values())
_BILLED = tuple(column for column in TOKEN_COLUMNS if column != "reasoning_tokens")

_PLAIN_DIMENSIONS = (
    "organization",
    "project",
    "key_id",
    "customer",
    "run",
    "provider",
    "model_requested",
    "dialect",
    "route",
    "status",
    "refusal_code",
    "service_tier",
    "price_list",
    "node",
)
_SELECTIVE = frozenset({"customer", "operation_id"})
"""Filters that an index answers better than a walk over the newest rows."""

DIMENSIONS = (*_PLAIN_DIMENSIONS, "model", "day")
"""What spend can be cut by; `model` is the one that was served, else the one that was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Which rows of a list: `limit` of them from `offset` on."""

    limit: int
    offset: int = 0


def spend(
    connection: Connection,
    organization: str,
    by: Sequence[str],
    window: Window,
    part: Part,
    page: Page,
    customer: str | None = None,
) -> list[dict[str, Any]]:
    """Spend by period and group, newest period first, then the dearest group: `tk.spend` in SQL.

    Of one customer where one is given.
    """
    source = source_of(part)
    first, last = source.span(connection, organization, part)
    if first is None:
        return []
    groups = {"period": bucket(window, first, last, source.admitted)}
    groups.update((name, _dimension(source, name)) for name in by)
    columns = [group.column.label(f"by_{name}") for name, group in groups.items()]
    query = (
        select(*columns, *source.figures)
        .select_from(source.rows)
        .where(source.of_period(organization, part), *_of_customer(source, customer))
        .group_by(*columns)
        .order_by(columns[0].desc(), source.cost.desc(), *columns[1:])
        .limit(page.limit)
        .offset(page.offset)
    )
    return [
        {name: group.shown(getattr(row, f"by_{name}")) for name, group in groups.items()} | _read_figures(row)
        for row in connection.execute(query)
    ]


def customers(
    connection: Connection, organization: str, part: Part, page: Page, customer: str | None = None
) -> list[dict[str, Any]]:
    """Spend of each customer that was named in a period, the dearest first."""
    source = source_of(part)
    named = source.column.customer
    query = (
        select(named, *source.figures, source.first.label("first"), source.last.label("last"))
        .select_from(source.rows)
        .where(
            source.of_period(organization, part),
            named.is_not(None),
            *_of_customer(source, customer),
        )
        .group_by(named)
        .order_by(source.cost.desc(), named)
        .limit(page.limit)
        .offset(page.offset)
    )
    return [
        {"customer": row.customer, **_read_figures(row), **_seen(row)} for row in connection.execute(query)
    ]


def customers_total(connection: Connection, organization: str, part: Part) -> tuple[int, int]:
    """How many customers were named in a period, and what they cost in nano-USD."""
    source = source_of(part)
    named = source.column.customer
    query = select(func.count(named.distinct()), source.cost).select_from(source.rows)
    row = connection.execute(query.where(source.of_period(organization, part), named.is_not(None))).one()
    return int(row[0]), int(row[1])


def unpriced(connection: Connection, organization: str, part: Part, page: Page) -> list[dict[str, Any]]:
    """Served or abandoned requests whose cost is not known, by model and reason, most frequent first."""
    source = source_of(part)
    column = source.column
    groups = (_dimension(source, "model").column.label("model"), column.unpriced_reason.label("reason"))
    tokens = sum(
        (func.coalesce(column[name], 0) for name in _BILLED[1:]), func.coalesce(column[_BILLED[0]], 0)
    )
    reported = or_(*(column[name].is_not(None) for name in _BILLED))
    calls = func.sum(source.unpriced_requests)
    query = (
        select(
            *groups,
            calls.label("calls"),
            func.sum(case((reported, tokens), else_=None)).label("tokens"),
            source.first.label("first"),
            source.last.label("last"),
        )
        .select_from(source.rows)
        .where(source.of_period(organization, part), source.unpriced)
        .group_by(*groups)
        .order_by(calls.desc(), *groups)
        .limit(page.limit)
        .offset(page.offset)
    )
    return [
        {
            "model": row.model,
            "reason": row.reason,
            "calls": int(row.calls),
            "tokens": None if row.tokens is None else int(row.tokens),
            **_seen(row),
            "what_to_do": what_to_do(row.reason),
        }
        for row in connection.execute(query)
    ]


def refused_by(connection: Connection, cap_id: int, since: datetime | None) -> int:
    """How many requests a cap has refused, of those admitted since an instant."""
    refused = receipts.c.status == literal_column(
        "'refused'"
    )  # A parameter would hide it from the index of these rows.
    mine = (refused, receipts.c.cap_id == cap_id, *within(receipts.c.admitted_at, (since, None)))
    return int(connection.execute(select(func.count()).select_from(receipts).where(*mine)).scalar_one())


def receipt_rows(
    connection: Connection,
    organization: str,
    part: Part,
    filters: Mapping[str, str],
    *,
    before_seq: int | None,
    limit: int,
) -> list[tuple[int, dict[str, Any]]]:
    """Receipts with the sequence of their rows, newest first. `filters` are columns and their values."""
    mine = walked(organization, part)
    if _SELECTIVE & filters.keys():
        mine = [receipts.c.organization == organization, *within(receipts.c.admitted_at, part)]
    mine.extend(receipts.c[column] == value for column, value in filters.items())
    if before_seq is not None:
        mine.append(receipts.c.row_seq < before_seq)
    query = select(receipts).where(*mine).order_by(receipts.c.row_seq.desc()).limit(limit)
    return [(row.row_seq, row_to_json(row._asdict())) for row in connection.execute(query)]


def receipt_with_trace(
    connection: Connection, organization: str, name: str
) -> tuple[dict[str, Any], list[dict[str, Any]] | None, list[dict[str, Any]]] | None:
    """A receipt by its id, or the last one of an operation: its row, its trace, and its operation's rows."""
    found = (
        connection.execute(
            select(receipts)
            .where(column == name, receipts.c.organization.concat("") == organization)
            .order_by(receipts.c.row_seq.desc())
            .limit(1)
        ).first()
        for column in (receipts.c.receipt_id, receipts.c.operation_id)
    )
    row = next((row for row in found if row is not None), None)
    if row is None:
        return None
    siblings = connection.execute(
        select(receipts.c.receipt_id, receipts.c.attempt, receipts.c.status, receipts.c.corrects)
        .where(
            receipts.c.operation_id == row.operation_id, receipts.c.organization.concat("") == organization
        )
        .order_by(receipts.c.row_seq)
    )
    trace = None if row.trace is None else trace_lines(row.trace)
    return row_to_json(row._asdict()), trace, [sibling._asdict() for sibling in siblings]


def _dimension(source: Source, name: str) -> Dimension:
    column = source.column
    if name == "model":
        return Dimension(func.coalesce(column.model_served, column.model_requested), _same)
    if name == "day":
        return bucket("day", None, None, source.admitted)
    return Dimension(column[name], _same)


def _of_customer(source: Source, customer: str | None) -> list[ColumnElement[bool]]:
    return [] if customer is None else [source.column.customer == customer]


def _same(value: str | None) -> str | None:
    return value


def _read_figures(row: Any) -> dict[str, Any]:
    found: dict[str, Any] = {name: getattr(row, name) for name in FIGURES}
    figures = {name: None if value is None else int(value) for name, value in found.items()}
    return {**figures, "price_list": row.price_list if figures["price_list_count"] == 1 else None}


def _seen(row: Any) -> dict[str, str]:
    return {
        "first_seen": instant_text(from_micros(row.first)),
        "last_seen": instant_text(from_micros(row.last)),
    }
