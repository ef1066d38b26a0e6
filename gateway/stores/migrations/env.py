"""Alembic's entry: it migrates on the connection, and in the transaction, that `upgrade` was given."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
