"""Statements for many rows at once: the few that a group commit is made of."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from sqlalchemy import Connection, Table

MOST_ROWS = 64

_PLACES = {"qmark": "?", "pyformat": "%s", "format": "%s"}


class ManyRows:
    """One statement for many rows, its text made once per count and database.

    The driver lets go of the interpreter at every step of a statement and must win it back from the event loop, so a
    group is a handful of steps, not one for each row.
    """

    def __init__(self, head: str, columns: int, tail: str = "") -> None:
        self._head, self._columns, self._tail = head, columns, tail
        self._texts: dict[tuple[str, int], str] = {}

    def run(self, connection: Connection, rows: Sequence[Sequence[Any]]) -> None:
        """Execute for all rows, MOST_ROWS at a time."""
        for start in range(0, len(rows), MOST_ROWS):
            part = rows[start : start + MOST_ROWS]
            text = self._text(connection.dialect.paramstyle, len(part))
            connection.exec_driver_sql(text, tuple(chain.from_iterable(part)))

    def _text(self, style: str, rows: int) -> str:
        text = self._texts.get((style, rows))
        if text is None:
            row = f"({','.join([_PLACES[style]] * self._columns)})"
            text = self._texts[style, rows] = self._head + ",".join([row] * rows) + self._tail
        return text


def inserted(table: Table, names: Sequence[str], tail: str = "") -> ManyRows:
    """The insertion of many rows into a table; `tail` is what follows the values."""
    return ManyRows(f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ", len(names), tail)


def written(table: Table, key: Sequence[str]) -> ManyRows:
    """The same for rows that may be there already: those of the same `key` are written over."""
    names = table.columns.keys()
    changed = ", ".join(f"{name} = excluded.{name}" for name in names if name not in key)
    return inserted(table, names, f" ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changed}")
