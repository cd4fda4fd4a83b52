"""The database's schema, step by step (Alembic). `archiver migrate` runs them."""
