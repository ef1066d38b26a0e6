"""The schema's history, one Alembic revision a change, and the step that brings a database up to date at a start.

A new database is made whole from the tables' declarations and marked with the newest revision; a test holds both ways
to the same schema. To change the schema: change the declaration, add `versions/NNNN_what.py` whose `down_revision` is
the one before, and set `HEAD`. Revisions never import the tables: they are the schema as it was on their day.
Both databases must take them; SQLite cannot alter a column, so prefer new tables and new columns.
"""

from __future__ import annotations

import re
from pathlib import Path

from sqlalchemy import Connection, inspect, text

from gateway.stores import backgrounds, closed_sums, idempotency, retention, rollups
from gateway.stores.tables import metadata
from toolkit.core.errors import CaplineError

HEAD = "0007"
"""The newest revision; kept here so that a start that has nothing to do need not load Alembic."""

_BEFORE_ALEMBIC = {"1": "0001", "2": "0002"}
"""What `meta.schema` said while there was no Alembic, and the revision that it was."""

_WITH_ROLLUPS = "0003"
_REVISION = re.compile(r"\d{4}")
_DECLARED = (
    backgrounds.backgrounds,
    closed_sums.closed_sums,
    idempotency.idempotency,
    retention.dropped_months,
    rollups.rollups,
)
"""Tables that are declared beside what uses them: a new database needs them, whoever opens it first."""


def bring_up_to_date(connection: Connection) -> None:
    """Make the schema, or bring it from any earlier revision to the newest, in the caller's transaction.

    Raises:
        CaplineError: a newer release wrote the database.
    """
    revision = stored_revision(connection)
    if revision is None:
        metadata.create_all(connection)
        _mark(connection, HEAD)
    elif _REVISION.fullmatch(revision) is None or revision > HEAD:
        raise CaplineError("a newer release of Capline wrote this database; upgrade before opening it")
    elif revision != HEAD:
        upgrade(connection, HEAD)
        if revision < _WITH_ROLLUPS:
            rollups.build(connection)


def stored_revision(connection: Connection) -> str | None:
    """The revision that a database is at, None for an empty one."""
    tables = inspect(connection).get_table_names()
    if "alembic_version" in tables:
        found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()
        if found is not None:
            return str(found)
    if "meta" not in tables:
        return None
    schema = connection.execute(text("SELECT value FROM meta WHERE name = 'schema'")).scalar_one_or_none()
    revision = None if schema is None else _BEFORE_ALEMBIC.get(schema, schema)
    if revision is not None:
        _mark(connection, revision)
    return revision


def upgrade(connection: Connection, to: str) -> None:
    """Run the revisions up to `to` in the caller's transaction."""
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(Path(__file__).parent))
    command.upgrade(config, to)


def _mark(connection: Connection, revision: str) -> None:
    """Write down which revision a database is at."""
    connection.execute(
        text("CREATE TABLE IF NOT EXISTS alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)")
    )
    connection.execute(text("DELETE FROM alembic_version"))
    connection.execute(text("INSERT INTO alembic_version VALUES (:revision)"), {"revision": revision})
