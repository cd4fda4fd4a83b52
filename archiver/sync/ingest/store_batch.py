"""Archives a batch of mail: the bytes go into the packs, then everything about them into Postgres in one transaction.

The order is the promise. The bytes are on disk before Postgres refers to them; sync state, counts and the announcement for
the index commit with the rows, or not at all; and a batch that is delivered again finds everything known.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

import structlog
from sqlalchemy import Connection, Engine, text

from archiver.date_range import archivable
from archiver.db import sql
from archiver.db.ids import message_uuid, uuid7, uuid7s
from archiver.errors import ArchiverError, UsageError
from archiver.store.archive import Archive
from archiver.store.backend import Written
from archiver.store.encoder import Record
from archiver.store.errors import StoreUnavailable
from archiver.store.journal import BEFORE_STAMPS, Change, Changes, OccurrenceBatch, Origin, Stamp
from archiver.sync.ingest import statements
from archiver.sync.ingest.archive_state import NEXT_STAMP
from archiver.sync.ingest.object_rows import object_rows
from archiver.sync.ingest.plan import (
    DeletedContent,
    Intake,
    Item,
    KnownCopy,
    PreparedMessage,
    StoredObject,
    effective_changes,
    prepare,
    read_batch,
    sort_items,
    version_keys,
)
from archiver.sync.ingest.provider_keys import SEPARATOR, fit_key
from archiver.sync.ingest.rows import describe_all
from connectors.base import Batch, FailedMessage

_log = structlog.get_logger(__name__)
_KEYS_PER_QUERY = 1000
_HEARTBEAT_SECONDS = 15.0
_PORTION = 200


class TakenOver(ArchiverError):
    """Another worker holds this mailbox now. Nothing was changed; the caller stops."""


@dataclass(frozen=True, slots=True)
class Fence:
    """The slice that the caller holds. A batch is stored only while no later slice of the mailbox has begun."""

    session_id: UUID
    slice: int


@dataclass(frozen=True, slots=True)
class BatchResult:
    archived: int = 0
    """New copies."""
    duplicates: int = 0
    """Copies that were already known."""
    failed: int = 0
    skipped: int = 0
    deleted_here: int = 0
    """Skipped because they were deleted from the archive, whatever key they have now."""
    changed: int = 0
    bytes: int = 0
    """Original size of the new copies."""


InSameTransaction = Callable[[Connection, BatchResult], None]


class Ingest:
    """One per process; thread-safe."""

    def __init__(self, engine: Engine, archive: Archive) -> None:
        self._engine = engine
        self._archive = archive
        self._touched: dict[UUID, float] = {}

    def store_batch(
        self, origin: Origin, batch: Batch, fence: Fence | None = None, also: InSameTransaction | None = None
    ) -> BatchResult:
        """Archives the whole batch, or raises and changes nothing. Storing the same batch again changes nothing.

        `also` may add statements of the caller to the transaction. Raises StoreUnavailable if a later attempt may succeed, and
        TakenOver if the caller must stop.
        """
        started = time.monotonic()
        with ExitStack() as opened:
            intake = read_batch(batch, opened)
            with self._engine.begin() as connection:
                result = _Transaction(connection, self._archive, origin, batch, fence).run(intake)
                if also:
                    also(connection, result)
        if fence:
            self._heartbeat(fence.session_id)
        _log.info(
            "batch_stored",
            source=str(origin.source_id),
            mailbox=str(origin.mailbox_id),
            archived=result.archived,
            duplicates=result.duplicates,
            deleted_here=result.deleted_here,
            failed=result.failed,
            seconds=round(time.monotonic() - started, 3),
        )
        return result

    def known(self, mailbox_id: UUID, provider_keys: Collection[str]) -> set[str]:
        """checkDuplicate: the keys that need no fetch, having a copy, a deleted copy, or a dead letter that is not yet due."""
        asked = {fit_key(key): key for key in provider_keys}
        beginnings = [key for key in asked if key.endswith(SEPARATOR)]
        whole = [key for key in asked if not key.endswith(SEPARATOR)]
        found: set[str] = set()
        with self._engine.connect() as connection:
            for statement, keys in ((statements.KNOWN, whole), (statements.KNOWN_BEGINNINGS, beginnings)):
                for start in range(0, len(keys), _KEYS_PER_QUERY):
                    some = keys[start : start + _KEYS_PER_QUERY]
                    held = sql.query(connection, statement, str, mailbox_id=mailbox_id, keys=some)
                    found.update(asked[key] for key in held)
        return found

    def _heartbeat(self, session_id: UUID) -> None:
        """In a transaction of its own: all mailboxes of a session share its row."""
        now = time.monotonic()
        if now - self._touched.get(session_id, -_HEARTBEAT_SECONDS) < _HEARTBEAT_SECONDS:
            return
        self._touched = {key: at for key, at in self._touched.items() if now - at < 3600} | {session_id: now}
        with self._engine.begin() as connection:
            sql.run(connection, statements.HEARTBEAT, session_id=session_id)


def load_origin(connection: Connection, mailbox_id: UUID) -> Origin:
    """The mailbox and its source, as the packs record them."""
    statement = text(
        "SELECT s.id AS source_id, s.kind, s.name, m.id, m.address, m.display_name, m.provider_id"
        " FROM mailboxes m JOIN ingestion_sources s ON s.id = m.source_id WHERE m.id = :id"
    )
    row = connection.execute(statement, {"id": mailbox_id}).one_or_none()
    if row is None:
        raise UsageError(f"there is no mailbox {mailbox_id}")
    return Origin(row.source_id, row.kind, row.name, row.id, row.address, row.display_name, row.provider_id)


class _Transaction:
    """The transaction that archives one batch."""

    def __init__(self, connection: Connection, archive: Archive, origin: Origin, batch: Batch, fence: Fence | None) -> None:
        self.connection = connection
        self.archive = archive
        self.origin = origin
        self.batch = batch
        self.fence = fence
        self.run_id = fence.session_id if fence else None
        self.at = datetime.now(UTC)
        self.stamp = BEFORE_STAMPS
        self.written: Written | None = None
        self.pipeline = sql.Pipeline(
            connection,
            mailbox_id=origin.mailbox_id,
            source_id=origin.source_id,
            session_id=self.run_id,
            run_id=self.run_id,
            at=self.at,
        )

    def run(self, intake: Intake) -> BatchResult:
        with self.pipeline:
            fence = self.pipeline.send(statements.FENCE, slice=self.fence.slice) if self.fence else None
            keys = {item.key for item in intake.items} | {fit_key(change.provider_key) for change in self.batch.changes}
            mailbox = self.pipeline.send(statements.HOLD_MAILBOX)
            copies_known = self.pipeline.send(statements.FIND_COPIES, keys=sql.encoded_rows(sorted(keys))) if keys else None
            hashes = {item.sha256 for item in intake.items}
            messages_known = self._send_find_messages(hashes, keys)
            deleted = self.pipeline.send(statements.FIND_DELETED, hashes=sql.hashes(hashes)) if hashes else None
            stamp = self.pipeline.send(NEXT_STAMP)
            if fence is not None and not self.pipeline.fetch(fence, int):
                raise TakenOver(f"the mailbox {self.origin.address} is in other hands (session {self.run_id})")
            if not self.pipeline.fetch(mailbox, int):
                raise UsageError(f"there is no mailbox {self.origin.mailbox_id}")
            known = {copy.provider_key: copy for copy in self.pipeline.fetch(copies_known, KnownCopy)} if copies_known else {}
            rows_known = set(self.pipeline.fetch(messages_known, bytes)) if messages_known else set()
            (self.stamp,) = self.pipeline.fetch(stamp, Stamp)
            versions = version_keys(intake.items, known)
            if versions:
                more = self.pipeline.ask(statements.FIND_COPIES, KnownCopy, keys=sql.encoded_rows(sorted(versions)))
                known |= {copy.provider_key: copy for copy in more}
            reasons = dict(self.pipeline.fetch(deleted, DeletedContent)) if deleted else {}
            copies, left_out = sort_items(intake.items, known, reasons)
            buried = self._send_deleted([item for item in left_out if item.key not in known], reasons)
            changes = effective_changes(self.batch, intake.items, known)
            changed = self._store(intake, copies, buried, changes, rows_known)
            result = BatchResult(
                archived=len(copies),
                duplicates=len(intake.items) - len(copies) - len(left_out),
                failed=len(intake.failed),
                skipped=len(self.batch.skipped),
                deleted_here=len(left_out),
                changed=changed,
                bytes=sum(item.raw.size for item in copies),
            )
            self._count(result)
            extended = self._send_extension(self.written) if self.written else None
        if self.written and extended:
            statements.record_pack(self.connection, self.written, self.pipeline.fetch(extended, UUID))
        return result

    def _send_find_messages(self, hashes: set[bytes], keys: set[str]) -> sql.SentStatement | None:
        if self.batch.changes:
            return self.pipeline.send(
                statements.FIND_MESSAGES_AND_CHANGED, hashes=sql.hashes(hashes), keys=sql.encoded_rows(sorted(keys))
            )
        return self.pipeline.send(statements.FIND_MESSAGES, hashes=sql.hashes(hashes)) if hashes else None

    def _send_extension(self, written: Written) -> sql.SentStatement:
        self.pipeline.send(statements.ADD_PACK, id=written.batch.pack_id, name=written.batch.pack_name)
        return self.pipeline.send(statements.EXTEND_PACK, **statements.extension(written))

    def _store(
        self, intake: Intake, copies: list[Item], buried: list[Item], changes: list[Change], rows_known: set[bytes]
    ) -> int:
        """Postgres works on the rows while we write the bytes; the commit comes after both."""
        prepared = sorted(prepare(item for item in copies if item.sha256 not in rows_known), key=lambda item: item.item.sha256)
        stored = self._find_objects(prepared, intake)
        added_messages = self._send_messages(prepared)
        added_copies = self._send_copies(copies)
        changed_copies = self._send_changes(changes)
        self._send_dead_letters(intake)
        self._send_state()
        written = self._append(intake, prepared, stored, [*copies, *buried], changes)
        if written:
            self._send_places(written)
        self.written = written
        if not rows_known and not changes and self.pipeline.count(added_messages) == len(prepared):
            # The usual batch: all its messages are new, so that none is to be held, and no version is to be raised.
            if self.pipeline.count(added_copies):
                self._announce(set())
            return 0
        inserted = {message_id for sent in added_messages for message_id in self.pipeline.fetch(sent, UUID)}
        self._hold_messages(prepared, inserted)
        touched = {message_id for sent in added_copies for message_id in self.pipeline.fetch(sent, UUID)}
        changed = {message_id for sent in changed_copies for message_id in self.pipeline.fetch(sent, UUID)}
        if touched or changed:
            self._announce((touched | changed) - inserted)
        return len(changed)

    def _find_objects(self, prepared: list[PreparedMessage], intake: Intake) -> set[StoredObject]:
        hashes = {item.item.sha256 for item in prepared} | set(intake.failed_hashes)
        hashes.update(part for item in prepared for part in item.part_hashes)
        return set(self.pipeline.ask(statements.FIND_OBJECTS, StoredObject, hashes=sql.hashes(hashes))) if hashes else set()

    def _append(
        self,
        intake: Intake,
        prepared: list[PreparedMessage],
        stored: set[StoredObject],
        copies: list[Item],
        changes: list[Change],
    ) -> Written | None:
        records = [record for item in prepared for record in item.records(stored)]
        records += intake.failed_records(stored)
        journal = self._journal(copies, changes)
        return self.archive.append([*journal, *records, *journal]) if records or journal else None

    def _journal(self, copies: list[Item], changes: list[Change]) -> list[Record]:
        """Written before and after the messages of the batch: damage that destroys both copies destroys the messages too."""
        journal = []
        if copies:
            occurrences = tuple(item.occurrence() for item in copies)
            journal.append(OccurrenceBatch(self.at, self.origin, self.run_id, occurrences, self.stamp).record())
        if changes:
            journal.append(Changes(self.at, self.origin, tuple(changes), self.stamp).record())
        return journal

    def _send_messages(self, prepared: list[PreparedMessage]) -> list[sql.SentStatement]:
        """In portions, so that Postgres inserts one while we parse the headers of the next."""
        answers = []
        for start in range(0, len(prepared), _PORTION):
            items = [one.item for one in prepared[start : start + _PORTION]]
            described = describe_all([(item.raw, item.sha256, item.message.received_at) for item in items])
            answers.append(
                self.pipeline.send(statements.ADD_MESSAGES, rows=sql.encoded_rows([row.message for row in described]))
            )
            participants = [entry for row in described for entry in row.participants]
            if participants:
                self.pipeline.send(statements.ADD_PARTICIPANTS, rows=sql.encoded_rows(participants))
        parts = [
            {"m": message_uuid(item.item.sha256), "h": part.hex()} for item in prepared for part in sorted(item.part_hashes)
        ]
        if parts:
            self.pipeline.send(statements.ADD_PARTS, rows=sql.encoded_rows(parts))
        return answers

    def _hold_messages(self, prepared: list[PreparedMessage], inserted: set[UUID]) -> None:
        """In place of a foreign key: messages that other transactions have just added stay until this batch is committed."""
        others = {one.item.sha256 for one in prepared if message_uuid(one.item.sha256) not in inserted}
        if others and len(self.pipeline.ask(statements.FIND_MESSAGES, bytes, hashes=sql.hashes(others))) < len(others):
            raise StoreUnavailable("a message of the batch was added and deleted by others meanwhile; the same again will work")

    def _send_copies(self, copies: list[Item]) -> list[sql.SentStatement]:
        if not copies:
            return []
        ordered = sorted(copies, key=lambda item: item.key)
        ids = uuid7s(len(ordered))
        rows = [{**_copy_row(item, id_), "m": message_uuid(item.sha256)} for item, id_ in zip(ordered, ids, strict=True)]
        answer = self.pipeline.send(statements.ADD_COPIES, rows=sql.encoded_rows(rows))
        self.pipeline.send(statements.DROP_DEAD_LETTERS, keys=sql.encoded_rows([item.key for item in copies]))
        return [answer]

    def _send_deleted(self, left_out: list[Item], reasons: Mapping[bytes, str | None]) -> list[Item]:
        """Adds a row for each deleted message whose key has none yet, and returns those messages."""
        once = {item.key: item for item in left_out}
        rows = [
            {**_copy_row(item, uuid7()), "w": reasons.get(item.sha256), "h": item.sha256.hex()}
            for _, item in sorted(once.items())
        ]
        if rows:
            self.pipeline.send(statements.ADD_DELETED_COPIES, rows=sql.encoded_rows(rows))
            self.pipeline.send(statements.DROP_DEAD_LETTERS, keys=sql.encoded_rows(sorted(once)))
        return list(once.values())

    def _send_changes(self, changes: list[Change]) -> list[sql.SentStatement]:
        rows = [
            {
                "kind": change.kind,
                "key": change.provider_key,
                "folder": change.folder,
                "flags": change.flags,
                "labels": change.labels,
                "new_key": change.new_provider_key,
            }
            for change in changes
        ]
        return [self.pipeline.send(statements.CHANGE_COPIES, rows=sql.encoded_rows(rows))] if rows else []

    def _send_dead_letters(self, intake: Intake) -> None:
        once = {fit_key(failed.provider_key): failed for failed in intake.failed}
        rows = [_dead_letter(key, failed) for key, failed in sorted(once.items())]
        if rows:
            self.pipeline.send(statements.ADD_DEAD_LETTERS, rows=sql.encoded_rows(rows))

    def _send_state(self) -> None:
        if self.batch.state:
            kept = {key: value for key, value in self.batch.state.items() if value is not None}
            dropped = [key for key, value in self.batch.state.items() if value is None]
            self.pipeline.send(statements.MERGE_STATE, patch=sql.encoded_rows(kept), dropped=dropped)

    def _send_places(self, written: Written) -> None:
        rows = object_rows(written)
        if rows:
            self.pipeline.send(statements.ADD_OBJECTS, rows=sql.encoded_rows(rows), pack_id=written.batch.pack_id)

    def _announce(self, known_before: set[UUID]) -> None:
        if known_before:
            self.pipeline.send(statements.RAISE_VERSIONS, ids=sorted(known_before))
        self.pipeline.send(statements.ADD_OUTBOX, id=uuid7())
        self.pipeline.send(statements.NOTIFY_OUTBOX)

    def _count(self, result: BatchResult) -> None:
        if self.fence:
            seen = len(self.batch.messages) + len(self.batch.failed) + len(self.batch.skipped)
            self.pipeline.send(
                statements.COUNT,
                seen=seen,
                archived=result.archived,
                duplicates=result.duplicates,
                skipped=result.skipped,
                deleted_here=result.deleted_here,
                failed=result.failed,
                bytes=result.bytes,
            )


def _copy_row(item: Item, copy_id: UUID) -> dict[str, object]:
    message = item.message
    return {
        "i": copy_id,
        "k": item.key,
        "f": item.folder,
        "g": message.flags,
        "l": message.labels,
        "r": archivable(message.received_at),
    }


def _dead_letter(key: str, failed: FailedMessage) -> dict[str, object]:
    sha256 = hashlib.sha256(failed.data).hexdigest() if failed.data is not None else None
    detail = {**failed.detail, "provider_key": failed.provider_key}
    return {"i": uuid7(), "k": key, "f": failed.folder, "d": detail, "h": sha256, "r": failed.reason}
