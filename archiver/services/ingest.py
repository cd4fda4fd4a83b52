"""Takes a batch of mail in: bytes into the packs, then everything about them in one transaction.

The order is the promise. The bytes are on disk before Postgres hears of them; sync state, counts and the announcement for
the index commit with the rows, or not at all; and a batch that comes again finds everything known.
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

from archiver.errors import ArchiverError, UsageError
from archiver.models.ids import message_uuid, uuid7
from archiver.services import batch_sql as sql
from archiver.services.archive_state import NEXT_STAMP
from archiver.services.intake import Intake, Item, Prepared, effective_changes, prepare, read_batch, sort_items, version_keys
from archiver.services.message_rows import describe_all
from archiver.services.provider_keys import fit_key
from archiver.store.archive import Archive
from archiver.store.backend import Written
from archiver.store.encoder import Record
from archiver.store.errors import StoreUnavailable
from archiver.store.frames import Kind
from archiver.store.journal import BEFORE_STAMPS, Change, Changes, Occurrences, Origin, Stamp
from connectors.base import Batch, FailedMessage

_log = structlog.get_logger(__name__)
_KEYS_PER_QUERY = 1000
_HEARTBEAT_SECONDS = 15.0
_PORTION = 50
_INDEXED_KINDS = frozenset({Kind.MESSAGE, Kind.PART, Kind.DICTIONARY, Kind.TEXT})
"""The kinds of frames that `objects` knows; the others are only replayed."""


class TakenOver(ArchiverError):
    """Somebody else holds this mailbox now. Nothing was changed; the caller stops."""


@dataclass(frozen=True, slots=True)
class Fence:
    """The slice of a session that the caller works in (DESIGN: fencing)."""

    session_id: UUID
    slice: int


@dataclass(frozen=True, slots=True)
class BatchResult:
    archived: int = 0
    """New copies."""
    duplicates: int = 0
    """Copies that were known."""
    failed: int = 0
    skipped: int = 0
    deleted_here: int = 0
    """Left out: deleted in the archive, and therefore not taken in again, whatever their key is by now."""
    changed: int = 0
    bytes: int = 0
    """Of the new copies, as they came."""


InSameTransaction = Callable[[Connection, BatchResult], None]


class Ingest:
    """One for a process; safe to use from several threads."""

    def __init__(self, engine: Engine, archive: Archive) -> None:
        self._engine = engine
        self._archive = archive
        self._touched: dict[UUID, float] = {}

    def store_batch(
        self, origin: Origin, batch: Batch, fence: Fence | None = None, also: InSameTransaction | None = None
    ) -> BatchResult:
        """Archives a batch as a whole, or raises and has changed nothing. The same batch again changes nothing.

        `also` may add statements of the caller to the transaction. StoreUnavailable: try again later. TakenOver: stop.
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
        """checkDuplicate: those that need not be fetched: there is a copy, a deleted one, or a dead letter not yet due."""
        asked = {fit_key(key): key for key in provider_keys}
        fitted = list(asked)
        found: set[str] = set()
        with self._engine.connect() as connection:
            for start in range(0, len(fitted), _KEYS_PER_QUERY):
                keys = fitted[start : start + _KEYS_PER_QUERY]
                rows = sql.run(connection, sql.KNOWN, mailbox_id=mailbox_id, keys=keys)
                found.update(asked[row.provider_key] for row in rows)
        return found

    def _heartbeat(self, session_id: UUID) -> None:
        """Apart from the batch: a session's row is shared by all its mailboxes."""
        now = time.monotonic()
        if now - self._touched.get(session_id, -_HEARTBEAT_SECONDS) < _HEARTBEAT_SECONDS:
            return
        self._touched = {key: at for key, at in self._touched.items() if now - at < 3600} | {session_id: now}
        with self._engine.begin() as connection:
            sql.run(connection, sql.HEARTBEAT, session_id=session_id)


def load_origin(connection: Connection, mailbox_id: UUID) -> Origin:
    """The mailbox with its source, as the packs will name it."""
    statement = text(
        "SELECT s.id AS source_id, s.kind, s.name, m.id, m.address, m.display_name, m.provider_id"
        " FROM mailboxes m JOIN ingestion_sources s ON s.id = m.source_id WHERE m.id = :id"
    )
    row = connection.execute(statement, {"id": mailbox_id}).one_or_none()
    if row is None:
        raise UsageError(f"there is no mailbox {mailbox_id}")
    return Origin(row.source_id, row.kind, row.name, row.id, row.address, row.display_name, row.provider_id)


class _Transaction:
    """One batch on its way into the archive."""

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
        self.sql = sql.Pipeline(
            connection,
            mailbox_id=origin.mailbox_id,
            source_id=origin.source_id,
            session_id=self.run_id,
            run_id=self.run_id,
            at=self.at,
        )

    def run(self, intake: Intake) -> BatchResult:
        with self.sql:
            fence = self.sql.send(sql.FENCE, slice=self.fence.slice) if self.fence else None
            keys = {item.key for item in intake.items} | {fit_key(change.provider_key) for change in self.batch.changes}
            mailbox = self.sql.send(sql.HOLD_MAILBOX)
            copies_known = self.sql.send(sql.FIND_COPIES, keys=sql.rows(sorted(keys))) if keys else None
            hashes = {item.sha256 for item in intake.items}
            messages_known = self._send_find_messages(hashes, keys)
            deleted = self.sql.send(sql.FIND_DELETED, hashes=sql.hashes(hashes)) if hashes else None
            stamp = self.sql.send(NEXT_STAMP)
            if fence is not None and not self.sql.fetch(fence):
                raise TakenOver(f"the mailbox {self.origin.address} is in other hands (session {self.run_id})")
            if not self.sql.fetch(mailbox):
                raise UsageError(f"there is no mailbox {self.origin.mailbox_id}")
            known = {row.provider_key: row for row in self.sql.fetch(copies_known)} if copies_known else {}
            rows_known = {bytes(row.sha256) for row in self.sql.fetch(messages_known)} if messages_known else set()
            self.stamp = Stamp(*self.sql.fetch(stamp)[0])
            versions = version_keys(intake.items, known)
            if versions:
                known |= {row.provider_key: row for row in self.sql.ask(sql.FIND_COPIES, keys=sql.rows(sorted(versions)))}
            reasons = {bytes(row.deleted_sha256): row.deleted_reason for row in self.sql.fetch(deleted)} if deleted else {}
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
            sql.record_pack(self.connection, self.written, self.sql.fetch(extended))
        return result

    def _send_find_messages(self, hashes: set[bytes], keys: set[str]) -> sql.Answer | None:
        if self.batch.changes:
            return self.sql.send(sql.FIND_MESSAGES_AND_CHANGED, hashes=sql.hashes(hashes), keys=sql.rows(sorted(keys)))
        return self.sql.send(sql.FIND_MESSAGES, hashes=sql.hashes(hashes)) if hashes else None

    def _send_extension(self, written: Written) -> sql.Answer:
        self.sql.send(sql.ADD_PACK, id=written.batch.pack_id, name=written.batch.pack_name)
        return self.sql.send(sql.EXTEND_PACK, **sql.extension(written))

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
        inserted = {row.id for cursor in added_messages for row in self.sql.fetch(cursor)}
        self._hold_messages(prepared, inserted)
        touched = {row.message_id for cursor in added_copies for row in self.sql.fetch(cursor)}
        changed = {row.message_id for cursor in changed_copies for row in self.sql.fetch(cursor)}
        self._announce(touched | changed, inserted)
        self.written = written
        return len(changed)

    def _find_objects(self, prepared: list[Prepared], intake: Intake) -> set[tuple[bytes, str]]:
        hashes = {item.item.sha256 for item in prepared} | set(intake.failed_hashes)
        hashes.update(part for item in prepared for part in item.part_hashes)
        rows = self.sql.ask(sql.FIND_OBJECTS, hashes=sql.hashes(hashes)) if hashes else []
        return {(bytes(row.sha256), row.kind) for row in rows}

    def _append(
        self,
        intake: Intake,
        prepared: list[Prepared],
        stored: set[tuple[bytes, str]],
        copies: list[Item],
        changes: list[Change],
    ) -> Written | None:
        records = [record for item in prepared for record in item.records(stored)]
        records += intake.failed_records(stored)
        journal = self._journal(copies, changes)
        return self.archive.append([*journal, *records, *journal]) if records or journal else None

    def _journal(self, copies: list[Item], changes: list[Change]) -> list[Record]:
        """It stands before the messages of the batch and behind them: a bad sector that takes both takes the messages, too."""
        journal = []
        if copies:
            occurrences = tuple(item.occurrence() for item in copies)
            journal.append(Occurrences(self.at, self.origin, self.run_id, occurrences, self.stamp).record())
        if changes:
            journal.append(Changes(self.at, self.origin, tuple(changes), self.stamp).record())
        return journal

    def _send_messages(self, prepared: list[Prepared]) -> list[sql.Answer]:
        """In portions, so that Postgres begins with the first while we read the headers of the next."""
        answers = []
        for start in range(0, len(prepared), _PORTION):
            items = [one.item for one in prepared[start : start + _PORTION]]
            described = describe_all([(item.raw, item.sha256, item.message.received_at) for item in items])
            answers.append(self.sql.send(sql.ADD_MESSAGES, rows=sql.rows([row.message for row in described])))
            participants = [entry for row in described for entry in row.participants]
            if participants:
                self.sql.send(sql.ADD_PARTICIPANTS, rows=sql.rows(participants))
        parts = [
            {"m": message_uuid(item.item.sha256), "h": part.hex()} for item in prepared for part in sorted(item.part_hashes)
        ]
        if parts:
            self.sql.send(sql.ADD_PARTS, rows=sql.rows(parts))
        return answers

    def _hold_messages(self, prepared: list[Prepared], inserted: set[UUID]) -> None:
        """In place of a foreign key: messages that others have added meanwhile stay until this batch is committed."""
        others = {one.item.sha256 for one in prepared if message_uuid(one.item.sha256) not in inserted}
        if others and len(self.sql.ask(sql.FIND_MESSAGES, hashes=sql.hashes(others))) < len(others):
            raise StoreUnavailable("a message of the batch was added and deleted by others meanwhile; the same again will work")

    def _send_copies(self, copies: list[Item]) -> list[sql.Answer]:
        if not copies:
            return []
        rows = [{**_copy_row(item), "m": message_uuid(item.sha256)} for item in sorted(copies, key=lambda item: item.key)]
        answer = self.sql.send(sql.ADD_COPIES, rows=sql.rows(rows))
        self.sql.send(sql.DROP_DEAD_LETTERS, keys=[item.key for item in copies])
        return [answer]

    def _send_deleted(self, left_out: list[Item], reasons: Mapping[bytes, str | None]) -> list[Item]:
        """Those that have no row under this key yet, each once."""
        once = {item.key: item for item in left_out}
        rows = [{**_copy_row(item), "w": reasons.get(item.sha256), "h": item.sha256.hex()} for _, item in sorted(once.items())]
        if rows:
            self.sql.send(sql.ADD_DELETED_COPIES, rows=sql.rows(rows))
            self.sql.send(sql.DROP_DEAD_LETTERS, keys=sorted(once))
        return list(once.values())

    def _send_changes(self, changes: list[Change]) -> list[sql.Answer]:
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
        return [self.sql.send(sql.CHANGE_COPIES, rows=sql.rows(rows))] if rows else []

    def _send_dead_letters(self, intake: Intake) -> None:
        once = {fit_key(failed.provider_key): failed for failed in intake.failed}
        rows = [_dead_letter(key, failed) for key, failed in sorted(once.items())]
        if rows:
            self.sql.send(sql.ADD_DEAD_LETTERS, rows=sql.rows(rows))

    def _send_state(self) -> None:
        if self.batch.state:
            kept = {key: value for key, value in self.batch.state.items() if value is not None}
            dropped = [key for key, value in self.batch.state.items() if value is None]
            self.sql.send(sql.MERGE_STATE, patch=sql.rows(kept), dropped=dropped)

    def _send_places(self, written: Written) -> None:
        rows = object_rows(written)
        if rows:
            self.sql.send(sql.ADD_OBJECTS, rows=sql.rows(rows), pack_id=written.batch.pack_id)

    def _announce(self, message_ids: set[UUID], inserted: set[UUID]) -> None:
        if not message_ids:
            return
        if message_ids - inserted:
            self.sql.send(sql.RAISE_VERSIONS, ids=sorted(message_ids - inserted))
        self.sql.send(sql.ADD_OUTBOX, id=uuid7())
        self.sql.send(sql.NOTIFY_OUTBOX)

    def _count(self, result: BatchResult) -> None:
        if self.fence:
            seen = len(self.batch.messages) + len(self.batch.failed) + len(self.batch.skipped)
            self.sql.send(
                sql.COUNT,
                seen=seen,
                archived=result.archived,
                duplicates=result.duplicates,
                skipped=result.skipped,
                deleted_here=result.deleted_here,
                failed=result.failed,
                bytes=result.bytes,
            )


def _copy_row(item: Item) -> dict[str, object]:
    message = item.message
    return {
        "i": uuid7(),
        "k": item.key,
        "f": item.folder,
        "g": message.flags,
        "l": message.labels,
        "r": message.received_at,
    }


def _dead_letter(key: str, failed: FailedMessage) -> dict[str, object]:
    sha256 = hashlib.sha256(failed.data).hexdigest() if failed.data is not None else None
    detail = {**failed.detail, "provider_key": failed.provider_key}
    return {"i": uuid7(), "k": key, "f": failed.folder, "d": detail, "h": sha256, "r": failed.reason}


def object_rows(written: Written) -> list[dict[str, object]]:
    """What `objects` is told about the frames of a batch."""
    return [
        {"h": frame.sha256.hex(), "k": frame.kind.label, "p": frame.place.offset, "s": frame.place.length, "r": frame.raw_bytes}
        for frame in sorted(written.batch.frames, key=lambda frame: (frame.sha256, frame.kind))
        if frame.kind in _INDEXED_KINDS
    ]
