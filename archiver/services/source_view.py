"""Sources as the page shows them: mailboxes with their ledgers; and a source removed with all that came of it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from archiver.services import audit, sources
from archiver.services.access import Scope
from archiver.services.delete import delete_mailbox_mail
from archiver.services.principal import Principal
from archiver.services.source_rows import Source
from archiver.store.archive import Archive
from archiver.sync import ledger
from archiver.sync.ledger import FolderAccount

_MAILBOXES = text("""
    SELECT id, address, display_name, status_message, gone_at FROM mailboxes
    WHERE source_id = :id AND lower(address) > lower(:after) ORDER BY lower(address) LIMIT :most""")


@dataclass(frozen=True, slots=True)
class MailboxLedger:
    id: UUID
    address: str
    display_name: str | None
    status_message: str | None
    gone_at: datetime | None
    """Since when the source does not list it any more."""
    folders: list[FolderAccount]


def mailboxes(connection: Connection, scope: Scope, source_id: UUID, after: str, most: int) -> list[MailboxLedger]:
    """By address."""
    rows = connection.execute(_MAILBOXES, {"id": source_id, "after": after, "most": most}).all()
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


def _seen(lines: list[FolderAccount], scope: Scope, mailbox_id: UUID) -> list[FolderAccount]:
    """Names of folders are for those who may read the mailbox; the others get the sum."""
    if scope.sees(mailbox_id) or not lines:
        return lines
    names = [field.name for field in fields(FolderAccount) if field.name != "folder"]
    return [FolderAccount("", **{name: sum(getattr(line, name) for line in lines) for name in names})]


def remove(engine: Engine, archive: Archive, who: Principal, source: Source, *, delete_mail: bool) -> None:
    with engine.begin() as connection:
        sources.remove(connection, source, who)
        boxes = connection.execute(text("SELECT id FROM mailboxes WHERE source_id = :id"), {"id": source.id}).scalars().all()
        if delete_mail:
            audit.record(connection, who, "source.mail_deleted", "source", source.id, name=source.name)
    if delete_mail:
        for box in boxes:
            delete_mailbox_mail(engine, archive, box, f"the source {source.name} was removed", who)


_OPEN = text("""
    SELECT s.id, (SELECT count(*) FROM dead_letters d WHERE d.source_id = s.id AND d.kind = 'message'
                  AND d.discarded_at IS NULL) AS dead_letters,
           (SELECT count(*) FROM unaccounted_keys u JOIN mailboxes b ON b.id = u.mailbox_id WHERE b.source_id = s.id) AS missing
    FROM ingestion_sources s WHERE s.removed_at IS NULL""")


def not_archived(connection: Connection) -> dict[UUID, tuple[int, int]]:
    """For each source: messages that could not be fetched yet, and listed ones that nothing explains."""
    return {row.id: (int(row.dead_letters), int(row.missing)) for row in connection.execute(_OPEN)}
