"""What `/metrics` exports beyond counters: the present state of queues, sources, index, store, disk, workers and alerts."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from dataclasses import dataclass

import redis
from sqlalchemy import Connection, Engine, TextClause, text
from sqlalchemy.exc import DBAPIError

from archiver.config import Settings
from archiver.db.counters import CounterKey, read_counts
from archiver.journal.activity import spool_folder
from archiver.journal.spool import read_backlog
from archiver.queue.jobs import QueueName
from archiver.queue.queues import JobQueues


@dataclass(frozen=True, slots=True)
class Figure:
    """One sample of a gauge."""

    name: str
    labels: tuple[str, ...]
    """The values, in the order of the metric's label names."""
    value: float


def _worker(value: str) -> TextClause:
    """Of each process that was seen within the last minute."""
    return text(
        f"SELECT queue, host || '-' || pid, {value} FROM worker_processes WHERE seen_at > now() - interval '1 minute'"  # noqa: S608
    )


# name of the metric, and a statement with its labels and, at the end, its value
STATEMENTS: tuple[tuple[str, TextClause], ...] = (
    ("archiver_outbox_rows", text("""
        SELECT queue, CASE WHEN sent_at IS NULL THEN 'pending' ELSE 'sent' END, count(*) FROM outbox GROUP BY 1, 2""")),
    ("archiver_outbox_oldest_seconds", text("""
        SELECT queue, extract(epoch FROM now() - min(available_at)) FROM outbox
        WHERE sent_at IS NULL AND available_at <= now() GROUP BY 1""")),
    ("archiver_dead_letters", text("SELECT kind, count(*) FROM dead_letters WHERE discarded_at IS NULL GROUP BY 1")),
    ("archiver_dead_letter_oldest_seconds", text("""
        SELECT kind, extract(epoch FROM now() - min(created_at)) FROM dead_letters WHERE discarded_at IS NULL GROUP BY 1""")),
    ("archiver_ledger_gap_messages", text("""
        SELECT s.name, count(*) FROM unaccounted_keys u JOIN mailboxes m ON m.id = u.mailbox_id
        JOIN ingestion_sources s ON s.id = m.source_id WHERE s.removed_at IS NULL GROUP BY 1""")),
    ("archiver_source_state", text("SELECT name, status, 1 FROM ingestion_sources WHERE removed_at IS NULL")),
    ("archiver_source_failures", text("SELECT name, failures FROM ingestion_sources WHERE removed_at IS NULL")),
    ("archiver_source_last_success_timestamp_seconds", text("""
        SELECT s.name, extract(epoch FROM good.at) FROM ingestion_sources s, LATERAL (
            SELECT r.finished_at AS at FROM sync_runs r WHERE r.source_id = s.id AND r.outcome = 'success'
            ORDER BY r.finished_at DESC LIMIT 1) AS good WHERE s.removed_at IS NULL""")),
    ("archiver_session_age_seconds", text("""
        SELECT s.name, extract(epoch FROM now() - x.created_at) FROM sync_sessions x
        JOIN ingestion_sources s ON s.id = x.ingestion_source_id""")),
    ("archiver_session_idle_seconds", text("""
        SELECT s.name, extract(epoch FROM now() - x.last_activity_at) FROM sync_sessions x
        JOIN ingestion_sources s ON s.id = x.ingestion_source_id""")),
    ("archiver_journal_last_message_timestamp_seconds", text("""
        SELECT extract(epoch FROM last_finished_at) FROM ingestion_sources
        WHERE kind = 'journal' AND removed_at IS NULL AND last_finished_at IS NOT NULL ORDER BY id LIMIT 1""")),
    ("archiver_packs", text("SELECT state, count(*) FROM packs WHERE removed_at IS NULL GROUP BY 1")),
    ("archiver_pack_bytes", text("SELECT coalesce(sum(size_bytes), 0) FROM packs WHERE removed_at IS NULL")),
    ("archiver_message_bytes", text("SELECT coalesce(sum(size_bytes), 0) FROM messages")),
    ("archiver_spool_bytes", text("""
        SELECT coalesce(sum(u.size_bytes), 0) FROM uploads u LEFT JOIN imports i ON i.id = u.import_id
        WHERE i.outcome IS DISTINCT FROM 'success'""")),
    ("archiver_alerts_open", text("""
        SELECT rule, severity, count(*) FROM alerts WHERE raised_at IS NOT NULL AND resolved_at IS NULL GROUP BY 1, 2""")),
    ("archiver_notices_pending", text("SELECT count(*) FROM alert_deliveries WHERE state = 'pending'")),
    ("archiver_maintenance_success_timestamp_seconds", text("""
        SELECT name, extract(epoch FROM succeeded_at) FROM maintenance_outcomes WHERE succeeded_at IS NOT NULL""")),
    ("archiver_maintenance_failure_timestamp_seconds", text("""
        SELECT name, extract(epoch FROM failed_at) FROM maintenance_outcomes WHERE failed_at IS NOT NULL""")),
    ("archiver_worker_resident_bytes", _worker("resident_bytes")),
    ("archiver_worker_cpu_seconds", _worker("cpu_seconds")),
    ("archiver_worker_running_jobs", _worker("running_jobs")),
    ("archiver_worker_seen_timestamp_seconds", _worker("extract(epoch FROM seen_at)")),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SharedFigures:
    figures: list[Figure]
    counts: dict[CounterKey, float]


def shared_figures(engine: Engine) -> SharedFigures | None:
    """None while the database is down, or not migrated yet."""
    try:
        with engine.connect() as connection:
            return SharedFigures(database_figures(engine), read_counts(connection))
    except DBAPIError:
        return None


def database_figures(engine: Engine) -> list[Figure]:
    """Some take long in a large archive: the caller remembers them."""
    with engine.connect() as connection:
        return [figure for name, statement in STATEMENTS for figure in _read(connection, name, statement)]


def _read(connection: Connection, name: str, statement: TextClause) -> Iterator[Figure]:
    for *labels, value in connection.execute(statement):
        yield Figure(name, tuple(map(str, labels)), float(value or 0))


def queue_figures(settings: Settings) -> list[Figure]:
    """Empty while Redis is down."""
    if settings.redis_url is None:
        return []
    try:
        return asyncio.run(_queues(settings.redis_url.get_secret_value()))
    except (redis.RedisError, OSError):
        return []


async def _queues(url: str) -> list[Figure]:
    found: list[Figure] = []
    async with JobQueues(url) as queues:
        for queue in QueueName:
            counts = await queues.counts(queue)
            found += [Figure("archiver_queue_jobs", (queue.value, state), count) for state, count in counts.items()]
            found.append(Figure("archiver_queue_paused", (queue.value,), await queues.is_paused(queue)))
            found.append(Figure("archiver_workers", (queue.value,), len(await queues.listening(queue))))
    return found


def disk_figures(settings: Settings) -> list[Figure]:
    place = settings.archiver_data
    while not place.exists():
        place = place.parent
    usage = shutil.disk_usage(place)
    found = [Figure("archiver_disk_free_bytes", (), usage.free), Figure("archiver_disk_bytes", (), usage.total)]
    if (spool := spool_folder(settings.archiver_data)).is_dir():
        backlog = read_backlog(spool)
        found.append(Figure("archiver_journal_waiting_files", (), backlog.files))
        found.append(Figure("archiver_journal_waiting_bytes", (), backlog.bytes))
    return found
