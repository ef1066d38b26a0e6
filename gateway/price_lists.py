"""The price lists that a gateway prices by: the published ones, with the operator's prices laid over them.

A merged list is written beside the database as a price file of its own, once and for good, so that every receipt that
it priced can be derived again. The operator's prices change with one audit row.
"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

from sqlalchemy import Connection

from gateway.settings import Settings
from gateway.stores import records
from gateway.stores.database import DEFAULT_ORGANIZATION
from toolkit.core.overlay import Content, file_name, file_text, merged_contents, operator_content
from toolkit.core.pricefile import load_price_folder, parse_price_list, price_paths, read_price_content
from toolkit.core.pricing import PriceList

_META = "operator_prices"


def load_price_lists(connection: Connection, settings: Settings, at: datetime) -> tuple[PriceList, ...]:
    """Every list, oldest first. Raises PriceListError for a file that is wrong."""
    published = load_price_folder(settings.prices_dir)
    operator = None if settings.operator_prices is None else operator_content(settings.operator_prices)
    _note_change(connection, operator, at)
    if operator is None:
        return published
    contents = merged_contents(map(read_price_content, price_paths(settings.prices_dir)), operator)
    for content in contents:
        if "operator" in content:
            _keep(settings.var_dir / "price_lists" / file_name(content), file_text(content))
    return tuple(parse_price_list(content, source=file_name(content)) for content in contents)


def _keep(path: Path, text: str) -> None:
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part")
    unfinished.write_text(text, "utf-8")
    os.replace(unfinished, path)


def _note_change(connection: Connection, operator: Content | None, at: datetime) -> None:
    """One audit row where the operator's prices are others than at the last start, or are gone."""
    before = records.get_meta(connection, _META) or ""
    after = "" if operator is None else file_name(operator).removesuffix(".json")
    if before == after:
        return
    records.set_meta(connection, _META, after)
    entry = records.AuditEntry(
        at=at,
        organization=DEFAULT_ORGANIZATION,
        actor="settings",
        action="prices.operator",
        object="operator_prices",
        before={"prices": before} if before else None,
        after=None if operator is None else {"prices": after, "rows": len(operator["rows"])},
        reason=None if operator is None else operator["reason"],
    )
    records.append_audit(connection, entry)
