"""Where a report sums its requests from: the rollups for whole UTC days, else the receipts, to the same figures."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    FromClause,
    Label,
    case,
    func,
    literal_column,
    or_,
    select,
)

from gateway.stores.finals import (
    COST,
    COST_KNOWN,
    COUNTED,
    DAY_US,
    REQUEST,
    UNPRICED,
    Part,
    count,
    final,
    final_requests,
    of_period,
)
from gateway.stores.rollups import TOKENS, of_days, rollups
from gateway.stores.rows import from_micros


class Source(NamedTuple):
    """Requests in their final state, and what a group of them comes to."""

    rows: FromClause
    column: Any
    """The columns of attribution and outcome, by name."""
    of_period: Callable[[str, Part], ColumnElement[bool]]
    admitted: ColumnElement[int]
    """An instant of the UTC day of admission, in microseconds."""
    cost: ColumnElement[int]
    figures: tuple[Label[Any], ...]
    unpriced: ColumnElement[bool]
    """Rows of what was served or abandoned without a known cost, and how many requests a row is."""
    unpriced_requests: ColumnElement[int]
    first: ColumnElement[int]
    last: ColumnElement[int]

    def span(self, connection: Connection, organization: str, part: Part) -> Part:
        """The first and the last admission within a period; both None when there is none."""
        query = select(self.first, self.last).select_from(self.rows).where(self.of_period(organization, part))
        first, last = tuple[Any, Any](connection.execute(query).one())
        return (None, None) if first is None else (from_micros(first), from_micros(last))


def source_of(part: Part) -> Source:
    """Where the requests of a period are summed from."""
    return RECEIPTS if any(map(_is_within_a_day, part)) else ROLLUPS


def _is_within_a_day(edge: datetime | None) -> bool:
    return edge is not None and (edge.hour, edge.minute, edge.second, edge.microsecond) != (0, 0, 0, 0)


def _labelled(figures: dict[str, ColumnElement[Any]], known: ColumnElement[bool]) -> tuple[Label[Any], ...]:
    """Figures under their names; a cost is null where something was served and no cost is known."""
    figures["cost_nano_usd"] = case((known, figures["cost_nano_usd"]), else_=None)
    return tuple(figure.label(name) for name, figure in figures.items())


def _sum(column: ColumnElement[Any]) -> ColumnElement[int]:
    return func.coalesce(func.sum(column), 0)


def _lists(price_list: ColumnElement[str]) -> dict[str, ColumnElement[Any]]:
    return {
        "price_list_count": func.count(price_list.distinct()),
        "price_list": func.min(price_list),
    }


RECEIPTS = Source(
    rows=final_requests(),
    column=final.c,
    of_period=of_period,
    admitted=final.c.admitted_at,
    cost=_sum(COST),
    figures=_labelled(
        {
            "requests": _sum(REQUEST),
            "priced_requests": count(COST_KNOWN),
            "unpriced_requests": count(UNPRICED),
            "refused_requests": count(final.c.status == "refused"),
            **{name: func.sum(final.c[name]) for name in TOKENS},
            "cost_nano_usd": _sum(COST),
            "counted_nano_usd": _sum(COUNTED),
            **_lists(final.c.price_list),
        },
        or_(func.sum(case((COST_KNOWN, 1), else_=0)) > 0, func.sum(case((UNPRICED, 1), else_=0)) == 0),
    ),
    unpriced=UNPRICED,
    unpriced_requests=REQUEST,
    first=func.min(final.c.admitted_at),
    last=func.max(final.c.admitted_at),
)

ROLLUPS = Source(
    rows=rollups,
    column=rollups.c,
    of_period=of_days,
    admitted=rollups.c.day * literal_column(str(DAY_US), BigInteger),
    cost=_sum(rollups.c.cost_nano_usd),
    figures=_labelled(
        {
            "requests": _sum(rollups.c.requests),
            "priced_requests": _sum(rollups.c.priced_requests),
            "unpriced_requests": _sum(rollups.c.unpriced_requests),
            "refused_requests": _sum(case((rollups.c.status == "refused", rollups.c.requests), else_=0)),
            **{name: func.sum(rollups.c[name]) for name in TOKENS},
            "cost_nano_usd": _sum(rollups.c.cost_nano_usd),
            "counted_nano_usd": _sum(rollups.c.counted_nano_usd),
            **_lists(rollups.c.price_list),
        },
        or_(func.sum(rollups.c.priced_requests) > 0, func.sum(rollups.c.unpriced_requests) == 0),
    ),
    unpriced=rollups.c.unpriced_requests > 0,
    unpriced_requests=rollups.c.unpriced_requests,
    first=func.min(rollups.c.first_at),
    last=func.max(rollups.c.last_at),
)

FIGURES = tuple(figure.name for figure in ROLLUPS.figures if figure.name != "price_list")
