"""Tables: amounts that sort as numbers and never show a false zero, other people's text made inert, rows one can
choose, and the same table as a file that no spreadsheet runs."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import streamlit as st

from console import formatting, wording

ROWS_BEFORE_SCROLLING = 12
MONEY = ("usd", "call_usd")
_ROW_PIXELS = 35

_NANO = pl.lit("0.000000001").cast(pl.Decimal(38, 9))


@dataclass(frozen=True, slots=True)
class Column:
    """One column: where its values are, what stands over them, and what they are."""

    source: str
    title: str
    kind: str = "text"
    """`text`, `count`, `instant`, `usd` and `call_usd` (nano-USD: a total, one call), `share` (0 to 1, with a bar) or
    `percent` (without)."""
    help: str | None = None


@dataclass(frozen=True, slots=True)
class Chosen:
    """How rows are chosen: the id of each row, which one is, and whom to tell."""

    ids: Sequence[str | None]
    now: str | None
    tell: Callable[[str | None], None]


def table(
    frame: pl.DataFrame,
    columns: Sequence[Column],
    *,
    key: str,
    alt: str,
    chosen: Chosen | None = None,
    rows: int = ROWS_BEFORE_SCROLLING,
) -> None:
    """Show a frame. Rows are chosen by id: a table of other rows is another widget, never an old row number."""
    shown = pl.DataFrame([_display(frame[column.source], column) for column in columns])
    config = {column.title: _config(frame, column) for column in columns}
    height: Any = (rows + 1) * _ROW_PIXELS + 3 if frame.height > rows else "auto"
    if chosen is None:
        st.dataframe(
            shown,
            key=key,
            hide_index=True,
            column_config=config,
            height=height,
            placeholder=formatting.UNKNOWN,
            alt=alt,
        )
        return
    ids = list(chosen.ids)
    widget = f"{key}_{zlib.crc32('|'.join(map(str, ids)).encode()):08x}"
    selected = [ids.index(chosen.now)] if chosen.now in ids else []

    def told() -> None:
        now = st.session_state[widget].selection.rows
        chosen.tell(ids[now[0]] if now and now[0] < len(ids) else None)

    st.dataframe(
        shown,
        key=widget,
        hide_index=True,
        column_config=config,
        height=height,
        placeholder=formatting.UNKNOWN,
        alt=alt,
        on_select=told,
        selection_mode="single-row",
        selection_default={"selection": {"rows": selected, "columns": [], "cells": []}},
    )


def download(frame: pl.DataFrame, columns: Sequence[Column], *, key: str, file_name: str) -> None:
    """The same rows as a CSV file: exact amounts, guarded text, and the number of rows on the button."""
    st.download_button(
        wording.download_md(frame.height),
        data=lambda: csv_of(frame, columns),
        file_name=file_name,
        mime="text/csv",
        key=key,
        icon=":material/download:",
        on_click="ignore",
        disabled=frame.is_empty(),
    )


def csv_of(frame: pl.DataFrame, columns: Sequence[Column]) -> bytes:
    """What `download` hands out."""
    header = [f"{column.title} (USD)" if column.kind in MONEY else column.title for column in columns]
    rows = frame.select(column.source for column in columns).rows()
    return formatting.csv_file(
        header,
        ([_file_cell(value, column) for value, column in zip(row, columns, strict=True)] for row in rows),
    )


def facts(figures: Mapping[str, str], *, key: str) -> None:
    """A short list of names and figures. All of it is shown as plain text."""
    with st.container(key=key, gap="xsmall"):
        for name, figure in figures.items():
            left, right = st.columns([2, 3], wrap=False)
            left.caption(name)
            right.text(figure)


def _display(values: pl.Series, column: Column) -> pl.Series:
    if column.kind in MONEY:
        values = (values.cast(pl.Decimal(38, 0)).to_frame("usd").select(pl.col("usd") * _NANO))["usd"]
    elif column.kind == "text" and values.dtype == pl.String:
        values = pl.Series(values.name, [formatting.inert(value) for value in values], dtype=pl.String)
    elif column.kind in ("share", "percent"):
        values = values * 100
    return values.alias(column.title)


def _config(frame: pl.DataFrame, column: Column) -> Any:
    kinds = st.column_config
    match column.kind:
        case "usd" | "call_usd":
            least = 6 if column.kind == "call_usd" else 2
            places = max(least, formatting.column_places(frame[column.source]))
            return kinds.NumberColumn(column.title, format=f"$%,.{places}f", help=column.help)
        case "count":
            return kinds.NumberColumn(column.title, format="%,d", help=column.help)
        case "share":
            return kinds.ProgressColumn(
                column.title, format="%.1f%%", min_value=0, max_value=100, help=column.help
            )
        case "percent":
            return kinds.NumberColumn(column.title, format="%,.0f%%", help=column.help)
        case "instant":
            return kinds.DatetimeColumn(
                f"{column.title} (UTC)", format="DD MMM YYYY HH:mm:ss", timezone="UTC", help=column.help
            )
    return kinds.TextColumn(column.title, help=column.help)


def _file_cell(value: Any, column: Column) -> str | int | None:
    if value is None:
        return None
    if column.kind in MONEY:
        return formatting.exact_usd(value)
    if column.kind == "instant":
        return f"{value:%Y-%m-%dT%H:%M:%S.%fZ}"
    return value if isinstance(value, int) else str(value)
