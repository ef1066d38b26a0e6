"""A database of another release is left alone, with one line that says what to do."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from gateway.stores.database import open_database
from toolkit.core.errors import CaplineError


@pytest.mark.parametrize(
    ("schema", "words"), [("1", "a preview of Capline wrote"), ("999", "a newer release of Capline wrote")]
)
def test_a_database_of_another_release_does_not_open(tmp_path: Path, schema: str, words: str) -> None:
    path = tmp_path / "capline.db"
    open_database(f"sqlite:///{path}").close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE meta SET value = ? WHERE name = 'schema'", (schema,))
    with pytest.raises(CaplineError, match=words):
        open_database(f"sqlite:///{path}")
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE meta SET value = 2 WHERE name = 'schema'")
    open_database(f"sqlite:///{path}").close()
