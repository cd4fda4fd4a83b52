"""Runs the migrations on the connection that archiver.services.schema hands over, all steps in one transaction."""

from alembic import context

from archiver.models import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    compare_server_default=True,
)
with context.begin_transaction():
    context.run_migrations()
