"""The ledger as an export reads it: pinned at the last committed row, then page by page in steady memory."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Engine, and_, func, or_, select, union

from gateway.stores.finals import Part, admitted_between, bucket, walked, within
from gateway.stores.open_calls import open_calls
from gateway.stores.retention import gone_from
from gateway.stores.rollups import of_days, rollups
from gateway.stores.tables import chain_heads, intents, receipts
from toolkit.core.chain import GENESIS, RECIPE
from toolkit.core.receipts import RECEIPT_COLUMNS
from toolkit.core.windows import instant_text, period_at, period_key

PAGE_ROWS = 2_000

Stored = tuple[Any, ...]
"""A row's values as the table keeps them: those of RECEIPT_COLUMNS in their order, and its sequence behind them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is asked for: a period by admission, and what came after an earlier export, by node."""

    organization: str
    part: Part = (None, None)
    after: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """The rows of an export as of its start. `header` is what it says of them before they come."""

    wanted: Wanted
    header: Mapping[str, Any]
    next_seq: str
    first_row: int
    last_row: int
    gone: Sequence[str]
    """Months of the period whose receipts were dropped; it is not complete with one."""


def pin(engine: Engine, wanted: Wanted, now: datetime) -> Pinned:
    """Fix the rows that an export holds. Open calls are looked for first: later ones are of later periods."""
    with engine.connect() as connection:
        gone = gone_from(connection, wanted.organization, wanted.part)
        complete = not gone and wanted.after is None and _is_over(connection, wanted, now)
        is_known = not gone and wanted.after is None and _is_months(wanted.part)
        held = _known(connection, wanted) if is_known else _looked_up(connection, wanted)
        nodes = connection.execute(
            select(chain_heads.c.node).where(chain_heads.c.organization == wanted.organization).distinct()
        ).scalars()
        seen = {node: held.last_row for node in sorted(nodes)}
        start, end = wanted.part
        header = {
            "recipe": RECIPE,
            "chains": held.chains,
            "price_lists": held.price_lists,
            "from": None if start is None else instant_text(start),
            "to": None if end is None else instant_text(end),
            "complete": complete,
        }
    return Pinned(
        wanted=wanted,
        header=header,
        next_seq=encode_seq({**(wanted.after or {}), **seen}),
        first_row=held.first_row,
        last_row=held.last_row,
        gone=gone,
    )


def pages(engine: Engine, pinned: Pinned) -> Iterator[Sequence[Stored]]:
    """The pinned rows, in the order they were written. No connection is held between two pages."""
    position = pinned.first_row - 1
    wanted = pinned.wanted
    mine = (*walked(wanted.organization, wanted.part), *_since(wanted), receipts.c.row_seq <= pinned.last_row)
    columns = [receipts.c[name] for name in RECEIPT_COLUMNS]
    query = select(*columns, receipts.c.row_seq).where(*mine).order_by(receipts.c.row_seq)
    while True:
        with engine.connect() as connection:
            found = connection.execute(query.where(receipts.c.row_seq > position).limit(PAGE_ROWS)).all()
        if not found:
            return
        position = found[-1].row_seq
        yield [tuple(row) for row in found]


def encode_seq(seen: Mapping[str, int]) -> str:
    """The last committed row of each node as the opaque text of a footer."""
    text = json.dumps(dict(seen), sort_keys=True, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_seq(text: str) -> dict[str, int]:
    """The text of a footer as rows by node. Raises ValueError for anything else."""
    try:
        seen = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except ValueError:
        seen = None
    if not isinstance(seen, dict) or not all(type(row) is int and 0 <= row < 2**63 for row in seen.values()):
        raise ValueError("after_seq is the next_seq of an earlier export's footer")
    return seen


def _since(wanted: Wanted) -> list[ColumnElement[bool]]:
    if wanted.after is None:
        return []
    known = wanted.after
    beyond = [and_(receipts.c.node == node, receipts.c.row_seq > row) for node, row in known.items()]
    return [or_(*beyond, receipts.c.node.not_in(list(known)))]


def _is_over(connection: Connection, wanted: Wanted, now: datetime) -> bool:
    """Whether the period has ended and none of its calls still runs."""
    _, end = wanted.part
    if end is None or end > now:
        return False
    running = open_calls(connection, *within(intents.c.admitted_at, wanted.part))
    return all(json.loads(call["receipt"])["organization"] != wanted.organization for call in running)


class _Held(NamedTuple):
    """What an export's header says of its rows, and between which of them they lie."""

    chains: list[dict[str, Any]]
    price_lists: list[str]
    first_row: int
    last_row: int


def _is_months(part: Part) -> bool:
    return all(edge is None or edge == period_at("month", edge).start for edge in part)


def _known(connection: Connection, wanted: Wanted) -> _Held:
    """Of whole months, from what is kept beside the receipts: millions of them need not be read before the first."""
    start, end = wanted.part
    months = [chain_heads.c.organization == wanted.organization]
    if start is not None:
        months.append(chain_heads.c.month >= period_key("month", start))
    if end is not None:
        months.append(chain_heads.c.month < period_key("month", end))
    last_row = select(func.max(receipts.c.row_seq)).scalar_subquery()
    # One statement sees one state of the ledger: no head lies behind the last row.
    query = select(chain_heads, last_row.label("last_row")).where(*months)
    found = connection.execute(query.order_by(chain_heads.c.month, chain_heads.c.node)).all()
    chains = [_chain(row.node, row.month, row.row_hash, 1, row.chain_seq) for row in found]
    mine = (receipts.c.organization == wanted.organization, *within(receipts.c.admitted_at, wanted.part))
    first_row = (
        None if start is None else connection.execute(select(func.min(receipts.c.row_seq)).where(*mine))
    )
    return _Held(
        chains,
        _price_lists(connection, wanted),
        1 if first_row is None else first_row.scalar_one() or 1,
        found[0].last_row if found else 0,
    )


def _price_lists(connection: Connection, wanted: Wanted) -> list[str]:
    """Those of the rollups, and of rows that were corrected, which the rollups have forgotten."""
    corrected = select(receipts.c.corrects).where(receipts.c.corrects.is_not(None))
    lists = union(
        select(rollups.c.price_list).where(of_days(wanted.organization, wanted.part)),
        select(receipts.c.price_list).where(
            receipts.c.receipt_id.in_(corrected), *walked(wanted.organization, wanted.part)
        ),
    )
    return sorted(name for name in connection.execute(lists).scalars() if name is not None)


def _looked_up(connection: Connection, wanted: Wanted) -> _Held:
    """Of any other part of the ledger, from its receipts."""
    last_row = connection.execute(select(func.coalesce(func.max(receipts.c.row_seq), 0))).scalar_one()
    rows = _rows(wanted, last_row)
    chains, first_row = _chains(connection, wanted, rows, nothing=last_row + 1)
    lists = select(receipts.c.price_list).where(rows, receipts.c.price_list.is_not(None)).distinct()
    return _Held(chains, sorted(connection.execute(lists).scalars()), first_row, last_row)


def _rows(wanted: Wanted, last_row: int) -> ColumnElement[bool]:
    if wanted.after is not None:
        # What came since lies at the end: it is found by row, whatever the period.
        recent = receipts.c.row_seq > min(wanted.after.values(), default=0)
        mine = walked(wanted.organization, wanted.part)
        return and_(recent, receipts.c.row_seq <= last_row, *mine, *_since(wanted))
    return and_(
        receipts.c.organization == wanted.organization,
        receipts.c.row_seq <= last_row,
        *within(receipts.c.admitted_at, wanted.part),
    )


def _chains(
    connection: Connection, wanted: Wanted, rows: ColumnElement[bool], *, nothing: int
) -> tuple[list[dict[str, Any]], int]:
    """What the export holds of each chain, and its first row; `nothing` where it has none."""
    first, last = admitted_between(connection, wanted.organization, wanted.part)
    month = bucket("month", first, last, receipts.c.admitted_at)
    groups = (month.column.label("month"), receipts.c.node)
    query = select(
        *groups,
        func.count().label("rows"),
        func.min(receipts.c.chain_seq).label("first_seq"),
        func.min(receipts.c.row_seq).label("first_row"),
        func.max(receipts.c.row_seq).label("head_row"),
    )
    found = connection.execute(query.where(rows).group_by(*groups).order_by(*groups)).all()
    hashes = select(receipts.c.row_seq, receipts.c.row_hash)
    rows_of_heads = hashes.where(receipts.c.row_seq.in_([row.head_row for row in found]))
    heads = {row.row_seq: row.row_hash for row in connection.execute(rows_of_heads)}
    chains = [
        _chain(row.node, month.shown(row.month), heads[row.head_row], row.first_seq, row.rows)
        for row in found
    ]
    return chains, min((row.first_row for row in found), default=nothing)


def _chain(node: str, month: str | None, head: str, first_seq: int, rows: int) -> dict[str, Any]:
    return {
        "node": node,
        "month": month,
        "genesis": GENESIS,
        "head": head,
        "first_seq": first_seq,
        "rows": rows,
    }
