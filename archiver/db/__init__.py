"""Postgres: connections, schema, tables, and the values that columns may hold."""
