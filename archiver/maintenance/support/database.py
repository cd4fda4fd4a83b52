"""What a bundle says of the database: sizes, settings, the plans of the statements that take longest, and what is failing."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from archiver.db.sql import query, query_one, run
from archiver.maintenance.figures import STATEMENTS
from archiver.maintenance.status import STATUS_STATEMENTS

_EXPLAIN_SECONDS = 10
_SLOWEST = 20
STATISTICS = "pg_stat_statements"
"""The extension that counts statements; the embedded server does not have it."""

_TABLES = """
    SELECT c.relname::text AS name, pg_total_relation_size(c.oid) AS bytes, pg_indexes_size(c.oid) AS index_bytes,
        coalesce(s.n_live_tup, 0) AS rows, coalesce(s.n_dead_tup, 0) AS dead_rows,
        greatest(s.last_vacuum, s.last_autovacuum) AS vacuumed_at, greatest(s.last_analyze, s.last_autoanalyze) AS analysed_at
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = 'public'
    LEFT JOIN pg_stat_user_tables s ON s.relid = c.oid
    WHERE c.relkind IN ('r', 'p') ORDER BY bytes DESC LIMIT 200"""
_SETTINGS = """
    SELECT name, setting, coalesce(unit, '') AS unit FROM pg_settings
    WHERE source <> 'default' AND vartype IN ('integer', 'real', 'bool', 'enum') ORDER BY name"""
_WAITS = """
    SELECT coalesce(application_name, '') AS application, coalesce(state, '') AS state,
        coalesce(wait_event_type, '') AS waits_for, count(*) AS connections,
        coalesce(max(extract(epoch FROM now() - xact_start)), 0)::bigint AS longest_seconds
    FROM pg_stat_activity WHERE datname = current_database() GROUP BY 1, 2, 3 ORDER BY 5 DESC"""
_FAILURES = """
    SELECT kind, coalesce(job, '') AS job, left(reason, 500) AS reason, count(*) AS letters, max(attempts) AS attempts,
        min(created_at) AS first_at, max(last_failed_at) AS last_at
    FROM dead_letters WHERE discarded_at IS NULL GROUP BY 1, 2, 3 ORDER BY 4 DESC LIMIT 100"""
_RUNS = """
    SELECT s.kind, r.source_id, r.outcome, r.started_at, r.finished_at, r.total_mailboxes, r.failed_mailboxes, r.archived,
        r.duplicates, r.failed, r.missing, coalesce(left(r.error_messages ->> 0, 500), '') AS reason
    FROM sync_runs r JOIN ingestion_sources s ON s.id = r.source_id ORDER BY r.finished_at DESC LIMIT 200"""
_HAS_STATISTICS = "SELECT to_regclass('pg_stat_statements') IS NOT NULL"
_STATISTICS = f"""
    SELECT query, calls, total_exec_time, mean_exec_time, rows FROM pg_stat_statements
    WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND query ~* '^\\s*(SELECT|WITH|INSERT|UPDATE|DELETE)' ORDER BY total_exec_time DESC LIMIT {_SLOWEST}"""  # noqa: S608
_NAMES = """
    SELECT name FROM ingestion_sources UNION SELECT email FROM users UNION SELECT name FROM users WHERE name IS NOT NULL
    UNION SELECT found.value FROM ingestion_sources s, jsonb_each_text(s.settings) AS found WHERE found.value ~ '[A-Za-z]{4}'
        AND found.value !~ '^(true|false|null)$'"""


@dataclass(frozen=True, slots=True)
class TableSize:
    name: str
    bytes: int
    index_bytes: int
    rows: int
    dead_rows: int
    vacuumed_at: datetime | None
    analysed_at: datetime | None


@dataclass(frozen=True, slots=True)
class ServerSetting:
    name: str
    setting: str
    unit: str


@dataclass(frozen=True, slots=True)
class ConnectionGroup:
    application: str
    state: str
    waits_for: str
    connections: int
    longest_seconds: int


@dataclass(frozen=True, slots=True)
class FailureGroup:
    kind: str
    job: str
    reason: str
    letters: int
    attempts: int
    first_at: datetime
    last_at: datetime


@dataclass(frozen=True, slots=True)
class RunOutline:
    kind: str
    source_id: UUID
    outcome: str
    started_at: datetime
    finished_at: datetime
    total_mailboxes: int
    failed_mailboxes: int
    archived: int
    duplicates: int
    failed: int
    missing: int
    reason: str


def describe_database(connection: Connection) -> dict[str, Any]:
    return {
        "version": query_one(connection, "SELECT version()", str),
        "tables": [asdict(row) for row in query(connection, _TABLES, TableSize)],
        "settings": [asdict(row) for row in query(connection, _SETTINGS, ServerSetting)],
        "connections": [asdict(row) for row in query(connection, _WAITS, ConnectionGroup)],
    }


def describe_failures(connection: Connection) -> list[dict[str, Any]]:
    return [asdict(row) for row in query(connection, _FAILURES, FailureGroup)]


def describe_runs(connection: Connection) -> list[dict[str, Any]]:
    """The newest runs, of all sources."""
    return [asdict(row) for row in query(connection, _RUNS, RunOutline)]


def load_names(connection: Connection) -> list[str]:
    """Of sources, users and servers, which the bundle must not name."""
    return query(connection, _NAMES, str)


def explain_slow(connection: Connection) -> list[dict[str, Any]]:
    """The plans of our own heavy statements, run once each; and, where the server counts them, those that took longest.

    Our statements take no values from mail, and statistics have none: Postgres replaces them by `$1`.
    """
    found = [_explain(connection, name, statement, "ANALYZE, BUFFERS") for name, statement in _own_statements().items()]
    if query_one(connection, _HAS_STATISTICS, bool):
        # not by `query`: where the extension is absent, the columns of its view can't be checked
        for statement, calls, total_ms, mean_ms, count in connection.exec_driver_sql(_STATISTICS):
            times = {"calls": calls, "total_ms": round(total_ms), "mean_ms": round(mean_ms, 2), "rows": count}
            found.append({**_explain(connection, STATISTICS, statement, "GENERIC_PLAN"), **times})
    return sorted(found, key=lambda one: -one.get("total_ms", 0))


def _own_statements() -> dict[str, str]:
    return {**{name: statement.text for name, statement in STATEMENTS}, **STATUS_STATEMENTS}


def _explain(connection: Connection, name: str, statement: str, options: str) -> dict[str, Any]:
    said: dict[str, Any] = {"name": name, "statement": " ".join(statement.split())}
    try:
        with connection.begin_nested():
            run(connection, f"SET LOCAL statement_timeout = {_EXPLAIN_SECONDS * 1000}")
            result = connection.exec_driver_sql(f"EXPLAIN ({options}) {statement}".replace("%", "%%"), ())
            lines = [str(line) for (line,) in result]
    except DBAPIError as error:
        return {**said, "error": type(error.orig).__name__}
    spent = next((float(line.split()[2]) for line in lines if line.startswith("Execution Time")), None)
    return {**said, "plan": lines, **({} if spent is None else {"total_ms": spent})}
