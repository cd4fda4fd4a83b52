"""Dead letters, which failed permanently: lists, finds, retries and discards them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, text

from archiver.access import audit
from archiver.access.principal import LOCAL_OPERATOR, Principal
from archiver.access.scope import EVERYTHING, MailScope
from archiver.db.sql import query, query_one
from archiver.errors import NotFound
from archiver.queue.jobs import IndexEmailBatch, JobEnvelope, QueueName
from archiver.sync import import_queue, outbox

_COLUMNS = """
    SELECT d.id, d.kind, s.name AS source, m.address AS mailbox, d.folder, d.provider_key, d.message_id, d.job, d.reason,
           d.attempts, d.created_at, d.last_failed_at, d.next_try_at, d.discarded_at, d.raw_sha256 IS NOT NULL AS has_bytes,
           d.source_id, d.payload, d.mailbox_id
    FROM dead_letters d LEFT JOIN ingestion_sources s ON s.id = d.source_id LEFT JOIN mailboxes m ON m.id = d.mailbox_id"""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    id: UUID
    kind: str
    source: str | None
    mailbox: str | None
    folder: str | None
    provider_key: str | None
    message_id: UUID | None
    job: str | None
    reason: str
    attempts: int
    created_at: datetime
    last_failed_at: datetime
    next_try_at: datetime | None
    discarded_at: datetime | None
    has_bytes: bool
    source_id: UUID | None
    payload: dict[str, Any]
    mailbox_id: UUID | None


def listed(
    connection: Connection,
    source_id: UUID | None = None,
    *,
    discarded: bool = False,
    limit: int = 100,
    before: tuple[datetime, UUID] | None = None,
    scope: MailScope = EVERYTHING,
) -> list[DeadLetter]:
    """Newest first; `before` continues after an entry, by its last failure and id. `scope`: what the caller may read."""
    statement = (
        _COLUMNS
        + " WHERE (CAST(:source AS uuid) IS NULL OR d.source_id = :source) AND (d.discarded_at IS NOT NULL) = :discarded"
        " AND (CAST(:at AS timestamptz) IS NULL OR (d.last_failed_at, d.id) < (:at, CAST(:id AS uuid)))"
        " ORDER BY d.last_failed_at DESC, d.id DESC LIMIT :limit"
    )
    at, letter_id = before or (None, None)
    values = {"source": source_id, "discarded": discarded, "limit": limit, "at": at, "id": letter_id}
    return [_shown(letter, scope) for letter in query(connection, statement, DeadLetter, **values)]


def _shown(letter: DeadLetter, scope: MailScope) -> DeadLetter:
    """Folder names are shown only to callers who may read the mailbox."""
    if letter.mailbox_id is None or scope.sees(letter.mailbox_id):
        return letter
    reason = letter.reason
    for name in (letter.provider_key, letter.folder):
        reason = reason.replace(name, "…") if name else reason
    return replace(letter, folder=None, provider_key=None, payload={}, reason=reason)


def find(connection: Connection, letter_id: str, scope: MailScope = EVERYTHING) -> DeadLetter:
    """By its id, or a unique prefix of it."""
    found = query(connection, _COLUMNS + " WHERE CAST(d.id AS text) LIKE :id || '%' LIMIT 2", DeadLetter, id=letter_id)
    if len(found) != 1:
        raise NotFound(f"{'several dead letters begin' if found else 'no dead letter begins'} with {letter_id!r}")
    return _shown(found[0], scope)


def retry(connection: Connection, letter: DeadLetter, principal: Principal = LOCAL_OPERATOR) -> None:
    """Makes it due at once: a message is fetched in the next cycle of its source, a document is rebuilt, a job is announced."""
    connection.execute(
        text("UPDATE dead_letters SET next_try_at = now(), discarded_at = NULL WHERE id = :id"), {"id": letter.id}
    )
    if letter.source_id is not None and letter.kind in ("message", "job") and _is_import(connection, letter.source_id):
        import_queue.repeat(connection, letter.source_id, principal.name, principal.user_id)
        connection.execute(text("DELETE FROM dead_letters WHERE id = :id AND kind = 'job'"), {"id": letter.id})
    elif letter.kind == "message":
        connection.execute(
            text("UPDATE ingestion_sources SET next_due_at = now() WHERE id = :id AND status IN ('active', 'error')"),
            {"id": letter.source_id},
        )
    elif letter.kind == "job" and letter.job is not None:
        outbox.announce(connection, JobEnvelope.decode(letter.job, letter.payload).job, source_id=letter.source_id)
        connection.execute(text("DELETE FROM dead_letters WHERE id = :id"), {"id": letter.id})
    elif letter.kind == "document":
        connection.execute(
            text("UPDATE messages SET index_version = index_version + 1 WHERE id = :id"), {"id": letter.message_id}
        )
        outbox.announce(connection, IndexEmailBatch())
    outbox.wake(connection, QueueName.INGESTION)
    audit.record(connection, principal, "dead_letter.retried", "dead_letter", letter.id)


def _is_import(connection: Connection, source_id: UUID) -> bool:
    """For an import source, a retry means another import of its files."""
    return query_one(connection, "SELECT EXISTS (SELECT 1 FROM imports WHERE source_id = :id)", bool, id=source_id)


def discard(connection: Connection, letter: DeadLetter, principal: Principal = LOCAL_OPERATOR) -> None:
    """Never retried. The entry stays, so that what is not archived remains accounted for."""
    connection.execute(text("UPDATE dead_letters SET discarded_at = now() WHERE id = :id"), {"id": letter.id})
    audit.record(connection, principal, "dead_letter.discarded", "dead_letter", letter.id, reason=letter.reason)
