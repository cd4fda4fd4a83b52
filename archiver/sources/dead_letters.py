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
from archiver.db.sql import query, query_one, query_optional
from archiver.db.states import SourceStatus
from archiver.errors import Conflict, NotFound, UsageError
from archiver.queue.jobs import IndexEmailBatch, JobEnvelope, QueueName
from archiver.sync import import_queue, outbox

_COLUMNS = """
    SELECT d.id, d.kind, s.name AS source, m.address AS mailbox, d.folder, d.provider_key, d.message_id, d.job, d.reason,
           d.attempts, d.created_at, d.last_failed_at, d.next_try_at, d.discarded_at, d.raw_sha256 IS NOT NULL AS has_bytes,
           d.source_id, d.payload, d.mailbox_id
    FROM dead_letters d LEFT JOIN ingestion_sources s ON s.id = d.source_id LEFT JOIN mailboxes m ON m.id = d.mailbox_id"""


_MATCHES = """
    WHERE (d.discarded_at IS NOT NULL) = :discarded
      AND (CAST(:source AS uuid) IS NULL OR d.source_id = :source)
      AND (CAST(:kind AS text) IS NULL OR d.kind = :kind)
      AND (CAST(:reason AS text) IS NULL OR d.reason = :reason)
      AND (CAST(:contains AS text) IS NULL OR strpos(lower(d.reason), lower(:contains)) > 0)
      AND (CAST(:older AS float8) IS NULL OR d.last_failed_at < now() - :older * interval '1 hour')"""

_SOURCE = "SELECT name, status, removed_at FROM ingestion_sources WHERE id = :id"
_COUNT = "SELECT count(*) FROM dead_letters d" + _MATCHES  # noqa: S608
_REASONS = f"""
    SELECT d.kind, d.reason, count(*) AS count, max(d.last_failed_at) AS last_failed_at FROM dead_letters d {_MATCHES}
    GROUP BY 1, 2 ORDER BY 3 DESC, 4 DESC LIMIT :limit"""  # noqa: S608
_BYTES = "SELECT raw_sha256 FROM dead_letters WHERE id = :id AND raw_sha256 IS NOT NULL"
_MAX_AT_ONCE = 10_000


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


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    source_id: UUID | None = None
    kind: str | None = None
    reason: str | None = None
    """The whole reason."""
    reason_contains: str | None = None
    older_than_hours: float | None = None
    discarded: bool = False

    @property
    def values(self) -> dict[str, Any]:
        return {
            "source": self.source_id,
            "kind": self.kind,
            "reason": self.reason,
            "contains": self.reason_contains,
            "older": self.older_than_hours,
            "discarded": self.discarded,
        }


@dataclass(frozen=True, slots=True)
class FailureReason:
    """How many failed for the same reason: after a fix, all of them can be retried together."""

    kind: str
    reason: str
    count: int
    last_failed_at: datetime


@dataclass(frozen=True, slots=True)
class RetriedSource:
    name: str
    status: str
    removed_at: datetime | None


@dataclass(frozen=True, slots=True)
class RetriedLetters:
    retried: int
    refused: tuple[tuple[str, int], ...]
    """Why the others could not be retried, and how many of them."""


def listed(
    connection: Connection,
    wanted: DeadLetterFilter | None = None,
    *,
    limit: int = 100,
    before: tuple[datetime, UUID] | None = None,
    scope: MailScope = EVERYTHING,
) -> list[DeadLetter]:
    """Newest first; `before` continues after an entry, by its last failure and id. `scope`: what the caller may read."""
    statement = (
        _COLUMNS + _MATCHES + " AND (CAST(:at AS timestamptz) IS NULL OR (d.last_failed_at, d.id) < (:at, CAST(:id AS uuid)))"
        " ORDER BY d.last_failed_at DESC, d.id DESC LIMIT :limit"
    )
    at, letter_id = before or (None, None)
    values = {**(wanted or DeadLetterFilter()).values, "limit": limit, "at": at, "id": letter_id}
    return [_shown(letter, scope) for letter in query(connection, statement, DeadLetter, **values)]


def count(connection: Connection, wanted: DeadLetterFilter) -> int:
    return query_one(connection, _COUNT, int, **wanted.values)


def reasons(
    connection: Connection, wanted: DeadLetterFilter, limit: int = 20, scope: MailScope = EVERYTHING
) -> list[FailureReason]:
    """The most frequent first. A reason may name a folder: without access to all mail, those of messages are left out."""
    found = query(connection, _REASONS, FailureReason, **wanted.values, limit=limit)
    return [one for one in found if scope.mailboxes is None or one.kind != "message"]


def find_bytes(connection: Connection, letter: DeadLetter, scope: MailScope) -> bytes:
    """The SHA-256 of the message that was fetched, if the caller may read its mailbox."""
    digest = query_optional(connection, _BYTES, bytes, id=letter.id)
    if digest is None or letter.mailbox_id is None or not scope.sees(letter.mailbox_id):
        raise NotFound(f"the bytes of dead letter {letter.id} are not stored: it failed before they were fetched")
    return bytes(digest)


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
    """Makes it due at once: a message is fetched in the next cycle of its source, a document is rebuilt, a job is announced.

    Raises Conflict if nothing would fetch it.
    """
    is_import = letter.source_id is not None and _is_import(connection, letter.source_id)
    if letter.kind == "message" and letter.source_id is not None and not is_import:
        _check_source(connection, letter.source_id)
    connection.execute(
        text("UPDATE dead_letters SET next_try_at = now(), discarded_at = NULL WHERE id = :id"), {"id": letter.id}
    )
    if letter.source_id is not None and letter.kind in ("message", "job") and is_import:
        _repeat_import(connection, letter, principal)
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


def _repeat_import(connection: Connection, letter: DeadLetter, principal: Principal) -> None:
    assert letter.source_id is not None
    try:
        import_queue.repeat(connection, letter.source_id, principal.name, principal.user_id)
    except UsageError as error:
        raise Conflict(f"{letter.source}: {error}") from None
    connection.execute(text("DELETE FROM dead_letters WHERE id = :id AND kind = 'job'"), {"id": letter.id})


def _check_source(connection: Connection, source_id: UUID) -> None:
    """A message is fetched by a cycle: there has to be one."""
    row = query_one(connection, _SOURCE, RetriedSource, id=source_id)
    if row.removed_at is not None:
        raise Conflict(f"the source {row.name!r} was removed: its messages can't be fetched any more; discard this entry")
    if row.status == SourceStatus.PAUSED:
        raise Conflict(f"the source {row.name!r} is paused: resume it, then retry")
    if row.status == SourceStatus.IMPORTED:
        raise Conflict(f"the source {row.name!r} was imported once and is not synced: import its files again")


def retry_all(
    connection: Connection, wanted: DeadLetterFilter, principal: Principal = LOCAL_OPERATOR, scope: MailScope = EVERYTHING
) -> RetriedLetters:
    """All that match, at most 10,000 at once. What can't be retried is counted by its cause and stays."""
    refused: dict[str, int] = {}
    retried = 0
    for letter in listed(connection, wanted, limit=_MAX_AT_ONCE, scope=scope):
        try:
            with connection.begin_nested():
                retry(connection, letter, principal)
            retried += 1
        except Conflict as error:
            refused[str(error)] = refused.get(str(error), 0) + 1
    return RetriedLetters(retried, tuple(sorted(refused.items(), key=lambda item: -item[1])))


def discard_all(connection: Connection, wanted: DeadLetterFilter, principal: Principal = LOCAL_OPERATOR) -> int:
    """All that match, at most 10,000 at once."""
    found = listed(connection, replace(wanted, discarded=False), limit=_MAX_AT_ONCE)
    for letter in found:
        discard(connection, letter, principal)
    return len(found)


def _is_import(connection: Connection, source_id: UUID) -> bool:
    """For an import source, a retry means another import of its files."""
    return query_one(connection, "SELECT EXISTS (SELECT 1 FROM imports WHERE source_id = :id)", bool, id=source_id)


def discard(connection: Connection, letter: DeadLetter, principal: Principal = LOCAL_OPERATOR) -> None:
    """Never retried. The entry stays, so that what is not archived remains accounted for."""
    connection.execute(text("UPDATE dead_letters SET discarded_at = now() WHERE id = :id"), {"id": letter.id})
    audit.record(connection, principal, "dead_letter.discarded", "dead_letter", letter.id, reason=letter.reason)
