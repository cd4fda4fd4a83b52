"""Deletes copies permanently, by tombstone: the message goes with its last copy, a part with its last message.

Mail on hold, or kept by a policy, is never deleted. The copy's row stays, with `deleted_at` and the SHA-256, so that no
sync or import brings the message back into this mailbox, whatever its key; the next compaction removes the bytes. The tombstone
in the packs counts once it is confirmed, which happens after the commit: a rebuild never applies what was rolled back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from archiver.access import audit
from archiver.access.principal import LOCAL_OPERATOR, Principal
from archiver.db import sql
from archiver.errors import UsageError
from archiver.logs import get_logger
from archiver.queue.jobs import IndexEmailBatch
from archiver.retention import holds, tombstones
from archiver.retention.holds import OnHold
from archiver.retention.keeping import find_kept
from archiver.retention.mail_check import MailUnit
from archiver.store.archive import Archive
from archiver.store.errors import StoreUnavailable
from archiver.store.journal import Tombstones
from archiver.sync import outbox
from archiver.sync.ingest import statements

_log = get_logger(__name__)
_COPIES_PER_TRANSACTION = 5_000

_COPIES = """
    SELECT c.id, c.message_id, c.mailbox_id FROM message_copies c JOIN messages m ON m.id = c.message_id
    WHERE {what} AND c.deleted_at IS NULL AND (CAST(:after AS uuid) IS NULL OR c.id > :after) ORDER BY c.id LIMIT :limit"""
_COPIES_OF_MESSAGE = text(_COPIES.format(what="c.message_id = :message_id"))
_COPIES_OF_MAILBOX = text(_COPIES.format(what="c.mailbox_id = :mailbox_id"))

# Messages, then copies, each in a fixed order, as batches lock them. The rows are locked first and examined in the next
# statement, which sees what the previous holders of the locks have committed.
LOCK_MESSAGES = """
    SELECT count(*) FROM (
        SELECT 1 FROM messages WHERE id = ANY(:ids::uuid[]) ORDER BY sha256 FOR UPDATE) AS locked"""
_LOCK_MESSAGES_OF = """
    SELECT count(*) FROM (
        SELECT 1 FROM messages WHERE id IN (
            SELECT message_id FROM message_copies WHERE id = ANY(:ids::uuid[]) AND deleted_at IS NULL)
        ORDER BY sha256 FOR UPDATE) AS locked"""
_LOCK_COPIES = """
    SELECT c.id, c.message_id, c.mailbox_id, c.provider_key, m.sha256
    FROM message_copies c JOIN messages m ON m.id = c.message_id
    WHERE c.id = ANY(:ids::uuid[]) AND c.deleted_at IS NULL ORDER BY c.id FOR UPDATE OF c"""
_MARK = """
    UPDATE message_copies c SET deleted_at = :at, deleted_reason = :reason, deleted_sha256 = m.sha256, message_id = NULL
    FROM messages m WHERE m.id = c.message_id AND c.id = ANY(:ids::uuid[])"""
_DEAD_MESSAGES = """
    SELECT m.id, m.sha256 FROM messages m WHERE m.id = ANY(:ids::uuid[])
    AND NOT EXISTS (SELECT 1 FROM message_copies c WHERE c.message_id = m.id AND c.deleted_at IS NULL)"""
_PARTS = "SELECT DISTINCT part_sha256 FROM message_parts WHERE message_id = ANY(:ids::uuid[])"
_DROP_MESSAGES = "DELETE FROM messages WHERE id = ANY(:ids::uuid[])"
_SHED_COPIES = "UPDATE message_copies SET message_id = NULL WHERE message_id = ANY(:ids::uuid[])"
_DROP_PARTICIPANTS = "DELETE FROM participants WHERE message_id = ANY(:ids::uuid[])"
_DROP_MARKS = (
    "DELETE FROM message_tags WHERE message_id = ANY(:ids::uuid[])",
    "DELETE FROM notes WHERE message_id = ANY(:ids::uuid[])",
    "DELETE FROM message_labels WHERE message_id = ANY(:ids::uuid[])",
)
_HASHES = "ARRAY(SELECT decode(h, 'hex') FROM unnest(string_to_array(:hashes, ',')) AS h)"
_LOCK_OBJECTS = f"""
    SELECT count(*) FROM (
        SELECT 1 FROM objects WHERE sha256 = ANY({_HASHES}) ORDER BY sha256, kind FOR UPDATE) AS locked"""  # noqa: S608
_DROP_OBJECTS = f"""
    DELETE FROM objects o WHERE o.sha256 = ANY({_HASHES}) AND (
        (o.kind = 'message' AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.sha256 = o.sha256)
                            AND NOT EXISTS (SELECT 1 FROM dead_letters d WHERE d.raw_sha256 = o.sha256))
        OR (o.kind = 'part' AND NOT EXISTS (SELECT 1 FROM message_parts p WHERE p.part_sha256 = o.sha256)))
    RETURNING o.sha256"""  # noqa: S608
_ATTACHMENTS = "SELECT DISTINCT attachment_sha256 FROM message_attachments WHERE message_id = ANY(:ids::uuid[])"
_LOCK_ATTACHMENTS = f"""
    SELECT count(*) FROM (
        SELECT 1 FROM attachments WHERE sha256 = ANY({_HASHES}) ORDER BY sha256 FOR UPDATE) AS locked"""  # noqa: S608
_DROP_ATTACHMENTS = f"""
    WITH gone AS (
        DELETE FROM attachments a WHERE a.sha256 = ANY({_HASHES})
        AND NOT EXISTS (SELECT 1 FROM message_attachments m WHERE m.attachment_sha256 = a.sha256) RETURNING a.text_sha256)
    SELECT text_sha256 FROM gone WHERE text_sha256 IS NOT NULL"""  # noqa: S608
_DROP_TEXTS = f"""
    DELETE FROM objects o WHERE o.sha256 = ANY({_HASHES}) AND o.kind = 'text'
    AND NOT EXISTS (SELECT 1 FROM attachments a WHERE a.text_sha256 = o.sha256) RETURNING o.sha256"""  # noqa: S608
_RAISE = """
    UPDATE messages SET index_version = index_version + 1
    FROM (SELECT id FROM messages WHERE id = ANY(:ids::uuid[]) ORDER BY id FOR NO KEY UPDATE) AS changed
    WHERE messages.id = changed.id"""


@dataclass(frozen=True, slots=True)
class LockedCopy:
    id: UUID
    message_id: UUID
    mailbox_id: UUID
    provider_key: str
    sha256: bytes


@dataclass(frozen=True, slots=True)
class DeadMessage:
    id: UUID
    sha256: bytes


@dataclass(frozen=True, slots=True)
class Deleted:
    copies: int = 0
    messages: int = 0
    held: int = 0
    """Copies that stay, because they are on hold, or because a policy keeps them."""
    holds: tuple[str, ...] = ()
    """What keeps them."""

    def __add__(self, other: Deleted) -> Deleted:
        names = tuple(sorted({*self.holds, *other.holds}))
        return Deleted(self.copies + other.copies, self.messages + other.messages, self.held + other.held, names)


def delete_message(
    engine: Engine, archive: Archive, message_id: UUID, reason: str, principal: Principal = LOCAL_OPERATOR
) -> Deleted:
    """All copies of one message. Raises OnHold if one of them is on hold."""
    with engine.connect() as connection:
        found = connection.execute(text("SELECT 1 FROM messages WHERE id = :id"), {"id": message_id}).one_or_none()
    if found is None:
        raise UsageError(f"there is no message {message_id}")
    return _delete(engine, archive, {"message_id": message_id}, reason, principal)


def delete_mailbox_mail(
    engine: Engine, archive: Archive, mailbox_id: UUID, reason: str, principal: Principal = LOCAL_OPERATOR
) -> Deleted:
    """All copies in one mailbox, in portions; copies in other mailboxes stay, and so does what is on hold."""
    return _delete(engine, archive, {"mailbox_id": mailbox_id}, reason, principal)


def _delete(engine: Engine, archive: Archive, what: dict[str, UUID], reason: str, principal: Principal) -> Deleted:
    if not reason.strip():
        raise UsageError("a deletion needs a reason (--reason)")
    done, after = Deleted(), None
    select = _COPIES_OF_MESSAGE if "message_id" in what else _COPIES_OF_MAILBOX
    kind, deleted_id = next(iter(what.items()))
    while True:
        with engine.connect() as connection:
            found = connection.execute(select, {**what, "after": after, "limit": _COPIES_PER_TRANSACTION}).all()
        if not found:
            return done
        with engine.begin() as connection:
            deletion = Deletion(connection, engine, archive, reason, principal)
            some = deletion.delete([row.id for row in found], all_or_none=kind == "message_id")
            if some.copies:
                what_kind = kind.removesuffix("_id")
                audit.record(connection, principal, "message.deleted", what_kind, deleted_id, reason=reason, copies=some.copies)
        confirm(engine, archive)
        done += some
        after = found[-1].id


def confirm(engine: Engine, archive: Archive) -> None:
    """After the commit of a deletion."""
    try:
        tombstones.confirm(engine, archive)
    except StoreUnavailable as error:  # the deletion is committed; the next start, compaction or backup confirms it
        _log.warning("deletion_not_confirmed_yet", reason=str(error))


@dataclass(frozen=True, slots=True)
class Deletion:
    """The deletion of some copies in one transaction. The caller records it in the audit log, commits, and calls `confirm`."""

    connection: Connection
    engine: Engine
    archive: Archive
    reason: str
    principal: Principal
    tombstone_id: UUID | None = None
    is_retention: bool = False
    """The caller has locked the messages and evaluated the policies itself."""
    is_replay: bool = False
    """It was carried out before, when nothing kept the mail: neither holds nor policies are asked again."""
    copy_ids: list[UUID] = field(default_factory=list)
    """Those that were deleted."""
    objects: set[bytes] = field(default_factory=set)
    """The SHA-256 of messages, parts and texts that nothing refers to any more."""
    kept: dict[MailUnit, list[str]] = field(default_factory=dict)
    """Those that stay, with what keeps them."""

    def delete(self, copy_ids: Sequence[UUID], *, all_or_none: bool = False) -> Deleted:
        """Those of the copies that are not deleted yet, not on hold, and kept by no policy. `all_or_none`: raises OnHold if one
        of them is."""
        wanted = sql.uuids(copy_ids)
        if not self.is_retention:
            sql.run(self.connection, _LOCK_MESSAGES_OF, ids=wanted)
        rows = sql.query(self.connection, _LOCK_COPIES, LockedCopy, ids=wanted)
        if not rows:
            return Deleted()
        units = [MailUnit(row.message_id, row.mailbox_id) for row in rows]
        held = self._find_kept(units)
        self.kept.update(held)
        names = tuple(sorted({name for unit in held.values() for name in unit}))
        if held and all_or_none:
            raise OnHold(f"message {units[0].message_id} can't be deleted: {', '.join(names)}")
        free = [row for row, unit in zip(rows, units, strict=True) if unit not in held]
        gone = self._bury(free) if free else 0
        return Deleted(len(free), gone, len(rows) - len(free), names)

    def _find_kept(self, units: list[MailUnit]) -> dict[MailUnit, list[str]]:
        if self.is_replay:
            self.connection.execute(holds.REPLAYS)
            return {}
        held = holds.find_held(self.connection, self.engine, self.archive, units)
        return held if self.is_retention else {**find_kept(self.connection, self.engine, self.archive, units), **held}

    def _bury(self, rows: Sequence[LockedCopy]) -> int:
        at = datetime.now(UTC)
        places = tuple((row.mailbox_id, row.provider_key, row.sha256) for row in rows)
        deletion = Tombstones(at, self.reason, self.principal.name, places, self.tombstone_id)
        written = tombstones.intend(self.connection, self.archive, deletion)
        sql.run(self.connection, _MARK, at=at, reason=self.reason, ids=sql.uuids(row.id for row in rows))
        gone = drop_locked(self.connection, {row.message_id for row in rows}, self.objects)
        sql.run(self.connection, statements.ADD_PACK, id=written.batch.pack_id, name=written.batch.pack_name)
        statements.record_pack(self.connection, written)
        self.copy_ids.extend(row.id for row in rows)
        return gone


def drop_unused(connection: Connection, message_ids: list[UUID], dropped: set[bytes] | None = None) -> int:
    """Removes those of the messages that have no copy left, and the objects that nothing refers to any more, whose hashes it
    adds to `dropped`."""
    sql.run(connection, LOCK_MESSAGES, ids=sql.uuids(message_ids))
    return drop_locked(connection, set(message_ids), set() if dropped is None else dropped)


def drop_locked(connection: Connection, message_ids: set[UUID], dropped: set[bytes]) -> int:
    """The same, for messages that this transaction has locked."""
    dead = sql.query(connection, _DEAD_MESSAGES, DeadMessage, ids=sql.uuids(message_ids))
    dead_ids = {row.id for row in dead}
    if left := message_ids - dead_ids:
        sql.run(connection, _RAISE, ids=sql.uuids(left))
    if dead:
        ids = sql.uuids(dead_ids)
        parts = sql.query(connection, _PARTS, bytes, ids=ids)
        hashes = sql.hashes({*(row.sha256 for row in dead), *parts})
        sql.run(connection, _LOCK_OBJECTS, hashes=hashes)
        attachments = sql.query(connection, _ATTACHMENTS, bytes, ids=ids)
        sql.run(connection, _DROP_PARTICIPANTS, ids=ids)
        for drop in _DROP_MARKS:
            sql.run(connection, drop, ids=ids)
        sql.run(connection, _SHED_COPIES, ids=ids)
        sql.run(connection, _DROP_MESSAGES, ids=ids)
        _drop_attachments(connection, attachments, dropped)
        dropped.update(sql.query(connection, _DROP_OBJECTS, bytes, hashes=hashes))
    outbox.announce(connection, IndexEmailBatch(), more={"deleted": sorted(map(str, dead_ids))})
    return len(dead)


def _drop_attachments(connection: Connection, hashes: Sequence[bytes], dropped: set[bytes]) -> None:
    """The extracted text of a file is deleted with the last message that has the file."""
    if not hashes:
        return
    wanted = sql.hashes(hashes)
    sql.run(connection, _LOCK_ATTACHMENTS, hashes=wanted)
    if texts := sql.query(connection, _DROP_ATTACHMENTS, bytes, hashes=wanted):
        dropped.update(sql.query(connection, _DROP_TEXTS, bytes, hashes=sql.hashes(texts)))
