"""Runs the migrations on the connection that archiver.db.schema hands over, each step in a transaction of its own.

The rules for a step, so that the workers of the release before go on working while it runs and after it (test_upgrade.py):
it only adds (columns that may be NULL or have a default, tables, indexes); what nobody uses any more goes one release later;
indexes on tables that are in use are built beside their writers (migrations.indexes). A step that can't keep to this sets
`pauses_workers = True`: then `migrate` waits until all workers have finished their batches, and lets them go on after it.
"""

from alembic import context

from archiver.db.tables import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    compare_server_default=True,
    transaction_per_migration=True,
)
with context.begin_transaction():
    context.run_migrations()
