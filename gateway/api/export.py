"""`GET /v1/ledger/export`: the ledger, or what came since an earlier export, streamed in constant memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Literal

from fastapi import APIRouter, Depends, Query
from fastapi.responses import StreamingResponse

from gateway.api.errors import OperatorRoute
from gateway.api.export_formats import Footer, csv_plain, csv_text, jsonl, parquet
from gateway.api.parts import Operator
from gateway.api.periods import named_period, part_of
from gateway.api.reports import FROM, TO
from gateway.api.security import Guard
from gateway.changes import Actor, ControlError
from gateway.stores.ledger_pages import Pinned, Wanted, decode_seq, pages, pin
from gateway.stores.retention import lies_in

Format = Literal["jsonl", "csv", "parquet"]

_MEDIA_TYPES = {
    "jsonl": "application/x-ndjson",
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
}
_MONTH: Any = Query(None, max_length=7, description="A month, such as 2026-11.")
_AFTER: Any = Query(None, max_length=4_000, description="next_seq of an earlier export's footer.")
_PLAIN: Any = Query("0", description="1: a CSV without header and footer lines, for spreadsheets.")


def export_router(parts: Operator, guard: Guard) -> APIRouter:
    """The route of the ledger export."""
    router = APIRouter(tags=["export"], route_class=OperatorRoute)

    @router.get("/v1/ledger/export", response_class=StreamingResponse)
    async def export(
        actor: Actor = Depends(guard.any_role),
        month: str | None = _MONTH,
        start: str | None = FROM,
        end: str | None = TO,
        format: Format = "jsonl",
        after_seq: str | None = _AFTER,
        plain: Literal["0", "1"] = _PLAIN,
    ) -> StreamingResponse:
        if plain == "1" and format != "csv":
            raise ControlError("invalid_request", "Only CSV has lines to leave out.", "plain")
        if month is not None:
            named_period(month, "month", "month")
        part = part_of(period=month, start=start, end=end, name="month")
        wanted = Wanted(organization=actor.organization, part=part, after=_after(after_seq))
        # Behind everything that was queued before: what has been answered is in the export.
        await parts.control.settled()
        pinned = await asyncio.to_thread(pin, parts.engine, wanted, parts.clock())
        if lies_in(part, pinned.gone):
            raise ControlError(
                "month_dropped",
                f"The receipts of {', '.join(pinned.gone)} were dropped; see your export of then.",
            )
        name = f"capline-{month or 'ledger'}.{format}"
        return StreamingResponse(
            _content(parts, pinned, format, plain == "1"),
            media_type=_MEDIA_TYPES[format],
            headers={"content-disposition": f'attachment; filename="{name}"'},
        )

    return router


def _content(parts: Operator, pinned: Pinned, format: Format, plain: bool) -> Iterator[bytes]:  # noqa: FBT001
    rows = pages(parts.engine, pinned)
    footer = Footer(pinned.next_seq)
    match format:
        case "jsonl":
            return jsonl(pinned.header, rows, footer)
        case "csv":
            return csv_plain(rows) if plain else csv_text(pinned.header, rows, footer)
        case "parquet":
            return parquet(pinned.header, rows, footer)


def _after(text: str | None) -> dict[str, int] | None:
    if text is None:
        return None
    try:
        return decode_seq(text)
    except ValueError as error:
        raise ControlError("invalid_request", str(error), "after_seq") from None
