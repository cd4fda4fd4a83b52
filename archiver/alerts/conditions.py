"""The condition of each rule: what it finds in the database, on the disk and in the queues."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, TextClause, text

from archiver.alerts import environment
from archiver.alerts.plan import Finding
from archiver.config import Settings
from archiver.db.states import AlertSeverity
from archiver.journal.activity import spool_folder
from archiver.journal.spool import read_backlog, read_oldest
from archiver.maintenance.checks import outcomes
from archiver.maintenance.checks.doctor import OPEN_AUDIT_GAPS

_FAILING = text("""
    SELECT s.id AS subject, s.name AS source, coalesce(s.status_message, '') AS reason,
           floor(extract(epoch FROM now() - coalesce(good.at, s.created_at)) / 3600) AS hours
    FROM ingestion_sources s LEFT JOIN LATERAL (
        SELECT r.finished_at AS at FROM sync_runs r WHERE r.source_id = s.id AND r.outcome IN ('success', 'incomplete')
        ORDER BY r.finished_at DESC LIMIT 1) AS good ON true
    WHERE s.removed_at IS NULL AND s.kind <> 'import' AND s.status NOT IN ('paused', 'imported') AND s.next_due_at IS NOT NULL
      AND (s.failures > 0 OR s.status = 'error')
      AND coalesce(good.at, s.created_at) < now() - :threshold * interval '1 hour'""")

_STALE = text("""
    SELECT s.id AS subject, s.name AS source,
           floor(extract(epoch FROM now() - coalesce(s.last_finished_at, s.created_at)) / 3600) AS hours
    FROM ingestion_sources s
    WHERE s.removed_at IS NULL AND s.kind <> 'import' AND s.status IN ('pending', 'importing', 'active', 'syncing')
      AND s.failures = 0 AND coalesce(s.last_finished_at, s.created_at) < now() - :threshold * interval '1 hour'
      AND NOT EXISTS (SELECT 1 FROM sync_sessions x WHERE x.ingestion_source_id = s.id
                      AND x.last_activity_at > now() - :threshold * interval '1 hour')""")

_GAP = text("""
    SELECT s.id AS subject, s.name AS source, last.missing AS n
    FROM ingestion_sources s, LATERAL (
        SELECT r.missing FROM sync_runs r WHERE r.source_id = s.id ORDER BY r.finished_at DESC LIMIT 1) AS last
    WHERE s.removed_at IS NULL AND last.missing >= :threshold""")

_GONE = text("""
    SELECT s.id AS subject, s.name AS source, count(*) AS n, min(m.address) AS example
    FROM mailboxes m JOIN ingestion_sources s ON s.id = m.source_id
    WHERE m.gone_at > now() - :threshold * interval '1 day' AND s.removed_at IS NULL GROUP BY s.id, s.name""")

# A source without a next due time waits for an administrator.
_REVOKED = text("""
    SELECT s.id AS subject, s.name AS source, coalesce(s.status_message, '') AS reason FROM ingestion_sources s
    WHERE s.removed_at IS NULL AND s.kind <> 'import' AND s.status = 'error' AND s.next_due_at IS NULL
    UNION ALL
    SELECT s.id, s.name, min(m.address || ': ' || m.status_message)
    FROM ingestion_sources s JOIN mailboxes m ON m.source_id = s.id
    WHERE s.removed_at IS NULL AND s.status NOT IN ('error', 'paused') AND m.failures > 0 AND m.gone_at IS NULL
      AND m.status_message LIKE 'the server rejected the credentials%' GROUP BY s.id, s.name""")

_DEAD = text("""
    SELECT '' AS subject, count(*) AS n FROM dead_letters
    WHERE discarded_at IS NULL AND last_failed_at > now() - interval '1 day' AND created_at > now() - interval '1 day'
    HAVING count(*) >= :threshold""")

_DEPTH = text("""
    SELECT queue AS subject, queue, count(*) AS n FROM outbox
    WHERE sent_at IS NULL AND available_at <= now() GROUP BY queue HAVING count(*) >= :threshold""")

# Only messages that the index does not have yet: one that is merely sent again may be years old.
_LAG = text("""
    SELECT '' AS subject, count(*) AS n, floor(extract(epoch FROM now() - min(archived_at)) / 60) AS minutes FROM messages
    WHERE search_state = 'pending' AND indexed_version < index_version
    HAVING min(archived_at) < now() - :threshold * interval '1 minute'""")

_API_KEYS = text("""
    SELECT k.id AS subject, k.name AS key, u.email AS owner, ceil(extract(epoch FROM k.expires_at - now()) / 86400) AS days
    FROM api_keys k JOIN users u ON u.id = k.user_id
    WHERE k.revoked_at IS NULL AND k.expires_at > now() AND k.expires_at < now() + :threshold * interval '1 day'
      AND k.last_used_at > now() - interval '30 days'""")

_APPROVALS = text("""
    SELECT '' AS subject, count(*) AS n, floor(extract(epoch FROM now() - min(since)) / 86400) AS days FROM (
        SELECT created_at AS since FROM policy_versions WHERE approved_at IS NULL AND rejected_at IS NULL
        UNION ALL SELECT release_requested_at FROM holds WHERE release_requested_at IS NOT NULL AND released_at IS NULL
        UNION ALL SELECT searched_at FROM erasures
            WHERE searched_at IS NOT NULL AND approved_at IS NULL AND rejected_at IS NULL) AS waiting
    HAVING min(since) < now() - :threshold * interval '1 day'""")

# Only the newest run counts: the next one that succeeds resolves it. An erasure that merely waits for a pack is no failure
# until it has waited for a week.
_RETENTION = text("""
    SELECT 'run' AS subject, error AS reason FROM (SELECT error FROM retention_runs ORDER BY id DESC LIMIT 1) AS newest
    WHERE error IS NOT NULL
    UNION ALL SELECT CAST(id AS text), name || ': ' || error FROM erasures WHERE error IS NOT NULL AND finished_at IS NULL
        AND rejected_at IS NULL AND (deleted_at IS NULL OR deleted_at < now() - interval '7 days')""")

_JOURNAL_SILENT = text("""
    SELECT s.id AS subject, floor(extract(epoch FROM now() - s.last_finished_at) / 3600) AS hours FROM ingestion_sources s
    WHERE s.kind = 'journal' AND s.removed_at IS NULL AND s.last_finished_at < now() - :threshold * interval '1 hour'""")

_FIRST_MAIL = text("SELECT min(created_at) FROM packs")


@dataclass(frozen=True, slots=True)
class Situation:
    connection: Connection
    settings: Settings
    now: datetime


Condition = Callable[[Situation, float], list[Finding]]
"""(situation, threshold) → what it finds now"""


def _query(rule: str, statement: TextClause) -> Condition:
    """A row is a finding: its subject, and the values in its text."""

    def check(situation: Situation, threshold: float) -> list[Finding]:
        values = {"threshold": threshold} if ":threshold" in statement.text else {}
        rows = situation.connection.execute(statement, values).mappings()
        return [
            Finding(rule, str(row["subject"]), {name: _plain(row[name]) for name in row if name != "subject"}) for row in rows
        ]

    return check


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int) else int(value)


def _damage(situation: Situation, _: float) -> list[Finding]:
    outcome = outcomes.load(situation.connection, outcomes.VERIFY)
    if outcome is None or not outcome.has_failed:
        return []
    return [Finding("damage_found", "", {"n": int(outcome.details.get("problems", 0))})]


def _audit_gap(situation: Situation, _: float) -> list[Finding]:
    row = situation.connection.execute(text(OPEN_AUDIT_GAPS)).first()
    return [] if row is None else [Finding("audit_gap", "", {"entry": int(row.id)})]


def _failed(rule: str, name: str) -> Condition:
    def check(situation: Situation, _: float) -> list[Finding]:
        outcome = outcomes.load(situation.connection, name)
        if outcome is None or not outcome.has_failed:
            return []
        return [Finding(rule, "", {"reason": str(outcome.details.get("reason", ""))})]

    return check


def _backup_old(situation: Situation, days: float) -> list[Finding]:
    """Counts from the first mail as long as there has been no backup."""
    outcome = outcomes.load(situation.connection, outcomes.BACKUP)
    last = outcome.succeeded_at if outcome else None
    since = last or situation.connection.execute(_FIRST_MAIL).scalar()
    if since is None or (age := (situation.now - since).total_seconds() / 86400) < days:
        return []
    return [Finding("backup_old", "" if last else "never", {"days": int(age)})]


def _keys_not_copied(situation: Situation, days: float) -> list[Finding]:
    since = situation.connection.execute(_FIRST_MAIL).scalar()
    if since is None or (situation.now - since).total_seconds() < days * 86400:
        return []
    missing = environment.uncopied_keys(situation.connection, situation.settings)
    return [Finding("keys_not_copied", "", {"keys": ", ".join(missing)})] if missing else []


def _disk_low(situation: Situation, gigabytes: float) -> list[Finding]:
    settings = situation.settings
    free = environment.free_bytes(settings)
    if free >= max(gigabytes * 1e9, 2 * settings.disk_min_free_bytes):
        return []
    return [Finding("disk_low", "", {"gigabytes": f"{free / 1e9:.1f}", "folder": str(settings.archiver_data)})]


def _disk_full(situation: Situation, _: float) -> list[Finding]:
    settings = situation.settings
    free = environment.free_bytes(settings)
    if free >= settings.disk_min_free_bytes:
        return []
    return [Finding("disk_full", "", {"gigabytes": f"{free / 1e9:.1f}", "folder": str(settings.archiver_data)})]


def _certificate(situation: Situation, days: float) -> list[Finding]:
    ends_at = environment.certificate_end(situation.settings)
    if ends_at is None or (left := (ends_at - situation.now).total_seconds() / 86400) > days:
        return []
    severity = AlertSeverity.CRITICAL if left < 2 else None
    return [
        Finding("certificate_ends", "", {"days": max(0, int(left)), "date": f"{ends_at.astimezone(UTC):%Y-%m-%d}"}, severity)
    ]


def _workers(situation: Situation, _: float) -> list[Finding]:
    return [
        Finding("worker_missing", queue, {"queue": queue}) for queue in environment.queues_without_worker(situation.settings)
    ]


def _journal_waits(situation: Situation, minutes: float) -> list[Finding]:
    """The oldest file of the spool, by its time: the process that delivers it may not run."""
    folder = spool_folder(situation.settings.archiver_data)
    found, oldest = [], read_oldest(folder)
    if oldest is not None and (age := (situation.now - oldest).total_seconds() / 60) >= minutes:
        found.append(Finding("journal_waits", "", {"minutes": int(age)}))
    if aside := read_backlog(folder).set_aside:
        found.append(Finding("journal_waits", "failed", {"n": aside}))
    return found


CONDITIONS: dict[str, Condition] = {
    "token_revoked": _query("token_revoked", _REVOKED),
    "source_failing": _query("source_failing", _FAILING),
    "sync_stale": _query("sync_stale", _STALE),
    "gap": _query("gap", _GAP),
    "mailbox_gone": _query("mailbox_gone", _GONE),
    "dead_letters": _query("dead_letters", _DEAD),
    "queue_depth": _query("queue_depth", _DEPTH),
    "index_lag": _query("index_lag", _LAG),
    "worker_missing": _workers,
    "disk_low": _disk_low,
    "disk_full": _disk_full,
    "certificate_ends": _certificate,
    "api_key_ends": _query("api_key_ends", _API_KEYS),
    "damage_found": _damage,
    "audit_gap": _audit_gap,
    "drill_failed": _failed("drill_failed", outcomes.DRILL),
    "backup_failed": _failed("backup_failed", outcomes.BACKUP),
    "backup_old": _backup_old,
    "keys_not_copied": _keys_not_copied,
    "approval_pending": _query("approval_pending", _APPROVALS),
    "retention_failed": _query("retention_failed", _RETENTION),
    "journal_silent": _query("journal_silent", _JOURNAL_SILENT),
    "journal_waits": _journal_waits,
}
