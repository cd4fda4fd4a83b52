"""What damage in the journal costs: copies that are in no readable frame any more."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, Engine, text

from archiver.db import sql
from archiver.db.ids import message_uuid
from archiver.maintenance.recovery.found_mail import FOUND_MAILBOX
from archiver.maintenance.recovery.journal_entries import JournalEntries
from archiver.store.archive import Archive
from archiver.store.errors import Damage
from archiver.store.frames import FrameKind
from archiver.store.journal import OccurrenceBatch
from archiver.store.listing import list_pack

# The temporary table is created by the owner of the tables: the program's own role must not (archiver.sync.ledger).
_CREATE = text("SELECT create_listed_keys()")
_ADD = """
    INSERT INTO pg_temp.listed_keys SELECT concat(:mailbox_id::uuid, '/', id) FROM unnest(:ids::uuid[]) AS id"""
_ANALYZE = text("SELECT analyze_listed_keys()")
_COUNT = text("""
    SELECT count(*) FROM message_copies c WHERE c.deleted_at IS NULL AND c.mailbox_id <> :found AND NOT EXISTS (
        SELECT 1 FROM pg_temp.listed_keys k WHERE k.key = concat(c.mailbox_id, '/', c.message_id))""")


def copies_without_journal(engine: Engine, archive: Archive) -> int:
    """How many copies a rebuild would lose: it keeps their messages, but does not know in which mailbox they were.

    Reads the journal of all packs: call it only when damage was found.
    """
    with engine.begin() as connection:
        connection.execute(_CREATE)
        for batch in _readable(archive):
            ids = sql.uuids({message_uuid(copy.sha256) for copy in batch.copies})
            sql.run(connection, _ADD, mailbox_id=batch.origin.mailbox_id, ids=ids)
        return _count(connection)


def _readable(archive: Archive) -> Iterable[OccurrenceBatch]:
    journal = JournalEntries(archive, [])
    for pack_id in archive.backend.packs():
        try:
            pack = archive.backend.open(pack_id)
            listing = list_pack(pack, archive.frames)
        except Damage:
            continue  # already reported by the caller
        journal.read(pack, [entry for entry in listing.entries if entry.kind == FrameKind.OCCURRENCE])
    decoded = (journal.decode(entry) for entry in journal.in_order())
    return (batch for batch in decoded if batch is not None)


def _count(connection: Connection) -> int:
    connection.execute(_ANALYZE)
    return int(connection.execute(_COUNT, {"found": FOUND_MAILBOX}).scalar_one())
