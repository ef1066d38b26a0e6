"""Which database the tests of a gateway run on: SQLite in their folder, or a schema of their own on PostgreSQL."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import psycopg

KINDS = ("sqlite", "postgresql")


class Stores:
    """The kind in use, and the schemas that were made on the server."""

    def __init__(self) -> None:
        self.kind = "sqlite"
        self._server = ""
        self._schemas: set[str] = set()

    def url(self, folder: Path) -> str:
        """The database of a folder; the same folder has the same one."""
        if self.kind == "sqlite":
            return f"sqlite:///{folder}/capline.db"
        schema = self.schema(folder)
        if schema not in self._schemas:
            self._schemas.add(schema)
            self._run(f'CREATE SCHEMA "{schema}"')
        return with_schema(self._server, schema)

    def schema(self, folder: Path) -> str:
        """The name of a folder's schema on the server."""
        return f"capline_{hashlib.sha256(str(folder).encode()).hexdigest()[:24]}"

    @contextmanager
    def on(self, kind: str, server: str) -> Iterator[None]:
        """Use one kind for a while; what was made on the server is dropped after."""
        self.kind, self._server = kind, server
        try:
            yield
        finally:
            for schema in self._schemas:
                self._run(f'DROP SCHEMA "{schema}" CASCADE')
            self.kind = "sqlite"
            self._schemas.clear()

    def _run(self, statement: str) -> None:
        with psycopg.connect(self._server, autocommit=True) as connection:
            connection.execute(statement.encode())


def with_schema(server: str, schema: str) -> str:
    """The URL of one schema of a server, as CAPLINE_DATABASE_URL takes it."""
    plain = server.replace("postgresql://", "postgresql+psycopg://", 1)
    return f"{plain}{'&' if '?' in plain else '?'}options={quote(f'-csearch_path={schema}')}"


stores = Stores()
"""The tests' own, one in a process: what starts a gateway asks it for a database."""
