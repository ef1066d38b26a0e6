"""Rows of tables to the kernel's frozen objects, and back. Nothing else crosses the store's edge."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from gateway.stores.tables import BOOLEAN_COLUMNS, INSTANT_COLUMNS, JSON_COLUMNS
from toolkit.core.caps import Cap, Match
from toolkit.core.receipts import RECEIPT_COLUMNS, Receipt
from toolkit.core.windows import instant_text, parse_instant

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_micros(at: datetime) -> int:
    """A UTC instant as integer microseconds since 1970."""
    return (at - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """Integer microseconds since 1970 as a UTC instant."""
    return _EPOCH + timedelta(microseconds=micros)


def receipt_to_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A receipt's JSON-ready row (`Receipt.row()`) as table columns."""
    stored = dict(row)
    for name in INSTANT_COLUMNS:
        stored[name] = to_micros(parse_instant(row[name]))
    for name in JSON_COLUMNS:
        stored[name] = (
            None if row[name] is None else json.dumps(row[name], separators=(",", ":"), ensure_ascii=False)
        )
    return stored


def row_to_json(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Table columns as the receipt's JSON-ready row, in the contract's order: what is hashed and exported."""
    row: dict[str, Any] = {}
    for name in RECEIPT_COLUMNS:
        value = stored[name]
        if value is not None:
            if name in INSTANT_COLUMNS:
                value = instant_text(from_micros(value))
            elif name in JSON_COLUMNS:
                value = json.loads(value)
            elif name in BOOLEAN_COLUMNS:
                value = bool(value)
        row[name] = value
    return row


def receipt_from_json(row: Mapping[str, Any]) -> Receipt:
    """A receipt from its JSON-ready row."""
    fields = dict(row)
    for name in INSTANT_COLUMNS:
        fields[name] = parse_instant(row[name])
    fields["tags"] = tuple(row["tags"])
    if row["units"] is not None:
        fields["units"] = {
            name: Decimal(count) if isinstance(count, str) else count for name, count in row["units"].items()
        }
    return Receipt(**fields)


def cap_to_row(cap: Cap, organization: str) -> dict[str, Any]:
    """A cap as table columns, without its id."""
    return {
        "organization": organization,
        "name": cap.name,
        "scope": cap.scope,
        "subject": cap.subject,
        "match_provider": cap.match.provider,
        "match_model": cap.match.model,
        "match_tag": cap.match.tag,
        "window": cap.window,
        "limit_nano_usd": cap.limit_nano_usd,
        "token_limit": cap.token_limit,
        "request_limit": cap.request_limit,
        "hard_stop": cap.hard_stop,
        "admission": cap.admission,
        "on_reach": cap.on_reach,
        "unpriced": cap.unpriced,
        "refusal_status": cap.refusal_status,
        "alert_percents": json.dumps(cap.alert_percents),
        "version": cap.version,
        "created_at": None if cap.created_at is None else to_micros(cap.created_at),
        "updated_at": None if cap.updated_at is None else to_micros(cap.updated_at),
        "updated_by": cap.updated_by,
        "armed_at": None if cap.armed_at is None else to_micros(cap.armed_at),
    }


def cap_from_row(stored: Mapping[str, Any]) -> Cap:
    """A cap from its table columns."""
    fields = {name: stored[name] for name in _PLAIN_CAP_FIELDS}
    return Cap(
        **fields,
        match=Match(stored["match_provider"], stored["match_model"], stored["match_tag"]),
        hard_stop=bool(stored["hard_stop"]),
        alert_percents=tuple(json.loads(stored["alert_percents"])),
        created_at=from_micros(stored["created_at"]),
        updated_at=from_micros(stored["updated_at"]),
        armed_at=None if stored["armed_at"] is None else from_micros(stored["armed_at"]),
    )


_PLAIN_CAP_FIELDS = (
    "id",
    "name",
    "scope",
    "subject",
    "window",
    "limit_nano_usd",
    "token_limit",
    "request_limit",
    "admission",
    "on_reach",
    "unpriced",
    "refusal_status",
    "version",
    "updated_by",
)
