"""Sources for the pages: mailboxes with their ledgers, and the removal of a source together with its mail."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, Engine

from archiver.access import audit
from archiver.access.principal import Principal
from archiver.access.scope import MailScope
from archiver.db.sql import query
from archiver.retention.delete import delete_mailbox_mail
from archiver.sources import service as sources
from archiver.sources.rows import Source
from archiver.store.archive import Archive
from archiver.sync import ledger
from archiver.sync.ledger import FolderAccount

_MAILBOXES = """
    SELECT id, address, display_name, status_message, gone_at FROM mailboxes
    WHERE source_id = :id AND lower(address) > lower(:after) ORDER BY lower(address) LIMIT :limit"""


@dataclass(frozen=True, slots=True)
class ListedBox:
    id: UUID
    address: str
    display_name: str | None
    status_message: str | None
    gone_at: datetime | None


@dataclass(frozen=True, slots=True)
class OpenMessages:
    id: UUID
    """Of the source."""
    dead_letters: int
    missing: int


@dataclass(frozen=True, slots=True)
class MailboxLedger:
    id: UUID
    address: str
    display_name: str | None
    status_message: str | None
    gone_at: datetime | None
    """When the source stopped listing it."""
    folders: list[FolderAccount]


def mailboxes(connection: Connection, scope: MailScope, source_id: UUID, after: str, limit: int) -> list[MailboxLedger]:
    """Ordered by address."""
    rows = query(connection, _MAILBOXES, ListedBox, id=source_id, after=after, limit=limit)
    return [
        MailboxLedger(
            row.id,
            row.address,
            row.display_name,
            row.status_message,
            row.gone_at,
            _seen(ledger.account(connection, row.id), scope, row.id),
        )
        for row in rows
    ]


def _seen(lines: list[FolderAccount], scope: MailScope, mailbox_id: UUID) -> list[FolderAccount]:
    """Folder names are shown only to callers who may read the mailbox; others get the total."""
    if scope.sees(mailbox_id) or not lines:
        return lines
    names = [field.name for field in fields(FolderAccount) if field.name not in ("folder", "listed_at")]
    sums = {name: sum(getattr(line, name) for line in lines) for name in names}
    oldest = min((line.listed_at for line in lines if line.listed_at), default=None)
    return [FolderAccount("", **sums, listed_at=oldest)]


def remove(engine: Engine, archive: Archive, principal: Principal, source: Source, *, delete_mail: bool) -> None:
    with engine.begin() as connection:
        sources.remove(connection, source, principal)
        boxes = query(connection, "SELECT id FROM mailboxes WHERE source_id = :id", UUID, id=source.id)
        if delete_mail:
            audit.record(connection, principal, "source.mail_deleted", "source", source.id, name=source.name)
    if delete_mail:
        for box in boxes:
            delete_mailbox_mail(engine, archive, box, f"the source {source.name} was removed", principal)


_OPEN = """
    SELECT s.id, (SELECT count(*) FROM dead_letters d WHERE d.source_id = s.id AND d.kind = 'message'
                  AND d.discarded_at IS NULL) AS dead_letters,
           (SELECT count(*) FROM unaccounted_keys u JOIN mailboxes b ON b.id = u.mailbox_id WHERE b.source_id = s.id) AS missing
    FROM ingestion_sources s WHERE s.removed_at IS NULL"""


def not_archived(connection: Connection) -> dict[UUID, tuple[int, int]]:
    """By source: messages that could not be fetched yet, and listed messages that are unaccounted for."""
    return {row.id: (row.dead_letters, row.missing) for row in query(connection, _OPEN, OpenMessages)}


# As workers/processors write it, for the source as a whole or for one of its mailboxes.
_REFUSED = """
    SELECT s.id FROM ingestion_sources s WHERE s.removed_at IS NULL
        AND s.status_message LIKE 'the server rejected the credentials%'
    UNION SELECT b.source_id FROM mailboxes b
    WHERE b.failures > 0 AND b.gone_at IS NULL AND b.status_message LIKE 'the server rejected the credentials%'"""


def refused(connection: Connection) -> frozenset[UUID]:
    """The sources whose credentials, or those of a mailbox, are rejected."""
    return frozenset(query(connection, _REFUSED, UUID))
