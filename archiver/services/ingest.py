"""Takes a batch of mail in: bytes into the packs, then everything about them in one transaction.

The order is the promise. The bytes are on disk before Postgres hears of them; sync state, counts and the announcement for
the index commit with the rows, or not at all; and a batch that comes again finds everything known.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

import structlog
from sqlalchemy import Connection, Engine, text

from archiver.errors import ArchiverError, UsageError
from archiver.models.ids import message_uuid, uuid7
from archiver.services import batch_sql as sql
from archiver.services.intake import Intake, Item, Prepared, effective_changes, new_copies, prepare, read_batch
from archiver.services.message_rows import MessageRows, describe
from archiver.services.provider_keys import fit_key
from archiver.store.archive import Archive
from archiver.store.backend import Written
from archiver.store.content import Memory
from archiver.store.encoder import Record
from archiver.store.frames import Kind
from archiver.store.journal import Change, Changes, Occurrences, Origin
from archiver.store.writer import pack_name
from connectors.base import Batch, FailedMessage

_log = structlog.get_logger(__name__)
_KEYS_PER_QUERY = 1000
_HEARTBEAT_SECONDS = 15.0
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
    """Copies that were known, deleted ones too."""
    failed: int = 0
    skipped: int = 0
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
                if fence:
                    _check_fence(connection, origin, fence)
                result = _Transaction(connection, self._archive, origin, batch, intake, fence).run()
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


def _check_fence(connection: Connection, origin: Origin, fence: Fence) -> None:
    if not sql.run(connection, sql.FENCE, session_id=fence.session_id, mailbox_id=origin.mailbox_id, slice=fence.slice):
        raise TakenOver(f"the mailbox {origin.address} is in other hands (session {fence.session_id}, slice {fence.slice})")


class _Transaction:
    """One batch on its way into the archive."""

    def __init__(
        self, connection: Connection, archive: Archive, origin: Origin, batch: Batch, intake: Intake, fence: Fence | None
    ) -> None:
        self.connection = connection
        self.archive = archive
        self.origin = origin
        self.batch = batch
        self.intake = intake
        self.fence = fence
        self.run_id = fence.session_id if fence else None
        self.at = datetime.now(UTC)

    def run(self) -> BatchResult:
        items = self.intake.items
        keys = {item.key for item in items} | {fit_key(change.provider_key) for change in self.batch.changes}
        known = {row.provider_key: row for row in self._query(sql.FIND_COPIES, keys=sorted(keys))}
        copies = new_copies(items, known)
        changes = effective_changes(self.batch, items, known)
        described = self._bytes_first(copies, changes)
        changed = self._rows_after(copies, changes, described)
        result = BatchResult(
            archived=len(copies),
            duplicates=len(items) - len(copies),
            failed=len(self.intake.failed),
            skipped=len(self.batch.skipped),
            changed=changed,
            bytes=sum(item.raw.size for item in copies),
        )
        self._count(result)
        return result

    # the bytes

    def _bytes_first(self, copies: list[Item], changes: list[Change]) -> list[MessageRows]:
        """Appends what is not stored yet, and tells `objects` where it is. Returns the rows of the new messages."""
        hashes = sorted({item.sha256 for item in copies})
        rows_known = {bytes(row.sha256) for row in self._query(sql.FIND_MESSAGES, hashes=hashes)}
        prepared = prepare(item for item in copies if item.sha256 not in rows_known)
        parts = (part for item in prepared for part in item.part_hashes)
        wanted = sorted({*(item.item.sha256 for item in prepared), *parts, *self._failed_hashes()})
        stored = {(bytes(row.sha256), row.kind) for row in self._query(sql.FIND_OBJECTS, hashes=wanted)}
        records = [record for item in prepared for record in item.records(stored)]
        records += self._failed_records(stored)
        records += self._journal(copies, changes)
        self.written = self.archive.append(records) if records else None
        self.parts = [(message_uuid(item.item.sha256), part) for item in prepared for part in sorted(item.part_hashes)]
        return sorted((_describe(item) for item in prepared), key=lambda row: row.sha256)

    def _journal(self, copies: list[Item], changes: list[Change]) -> list[Record]:
        records = []
        if copies:
            occurrences = tuple(item.occurrence() for item in copies)
            records.append(Occurrences(self.at, self.origin, self.run_id, occurrences).record())
        if changes:
            records.append(Changes(self.at, self.origin, tuple(changes)).record())
        return records

    def _failed_hashes(self) -> list[bytes]:
        return [hashlib.sha256(failed.data).digest() for failed in self.intake.failed if failed.data is not None]

    def _failed_records(self, stored: set[tuple[bytes, str]]) -> list[Record]:
        """The bytes of dead letters are kept like those of messages."""
        records = []
        for failed in self.intake.failed:
            if failed.data is not None:
                sha256 = hashlib.sha256(failed.data).digest()
                if (sha256, Kind.MESSAGE.label) not in stored:
                    stored.add((sha256, Kind.MESSAGE.label))
                    records.append(Record(Kind.MESSAGE, sha256, Memory(failed.data)))
        return records

    # the rows

    def _rows_after(self, copies: list[Item], changes: list[Change], described: list[MessageRows]) -> int:
        if self.written:
            self._query(sql.ADD_PACK, id=self.written.batch.pack_id, name=self.written.batch.pack_name)
        inserted = self._add_messages(described)
        if self.written:
            add_objects(self.connection, self.written)
        if self.parts:
            self._bulk(sql.ADD_PARTS, [{"m": message_id, "h": part.hex()} for message_id, part in sorted(self.parts)])
        touched = set(self._add_copies(copies))
        changed = self._change_copies(changes)
        self._raise_versions((touched | changed) - inserted)
        self._dead_letters()
        self._merge_state()
        if touched or changed:
            source_id, session_id = self.origin.source_id, self.run_id
            self._query(sql.ADD_OUTBOX, id=uuid7(), source_id=source_id, session_id=session_id)
            self._query(sql.NOTIFY_OUTBOX)
        if self.written:
            extend_pack(self.connection, self.written)
        return len(changed)

    def _add_messages(self, described: list[MessageRows]) -> set[UUID]:
        if not described:
            return set()
        rows = sql.rows([row.message for row in described])
        added = {row.id for row in self._query(sql.ADD_MESSAGES, rows=rows, run_id=self.run_id, at=self.at)}
        participants = [entry for row in described if row.id in added for entry in row.participants]
        if participants:
            self._bulk(sql.ADD_PARTICIPANTS, participants)
        return added

    def _add_copies(self, copies: list[Item]) -> Sequence[UUID]:
        if not copies:
            return []
        rows = [
            {
                "i": uuid7(),
                "m": message_uuid(item.sha256),
                "k": item.key,
                "f": item.folder,
                "g": item.message.flags,
                "l": item.message.labels,
                "r": item.message.received_at,
            }
            for item in sorted(copies, key=lambda item: item.key)
        ]
        added = self._query(sql.ADD_COPIES, rows=sql.rows(rows), run_id=self.run_id, at=self.at)
        self._query(sql.DROP_DEAD_LETTERS, keys=[item.key for item in copies])
        return [row.message_id for row in added]

    def _change_copies(self, changes: list[Change]) -> set[UUID]:
        if not changes:
            return set()
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
        return {row.message_id for row in self._query(sql.CHANGE_COPIES, rows=sql.rows(rows), at=self.at)}

    def _raise_versions(self, message_ids: set[UUID]) -> None:
        if message_ids:
            self._query(sql.RAISE_VERSIONS, ids=sorted(message_ids))

    def _dead_letters(self) -> None:
        if not self.intake.failed:
            return
        once = {fit_key(failed.provider_key): failed for failed in self.intake.failed}
        rows = [_dead_letter(key, failed) for key, failed in sorted(once.items())]
        self._query(sql.ADD_DEAD_LETTERS, rows=sql.rows(rows), source_id=self.origin.source_id)

    def _merge_state(self) -> None:
        if self.batch.state:
            kept = {key: value for key, value in self.batch.state.items() if value is not None}
            dropped = [key for key, value in self.batch.state.items() if value is None]
            self._query(sql.MERGE_STATE, patch=sql.rows(kept), dropped=dropped)

    def _count(self, result: BatchResult) -> None:
        if self.fence:
            seen = len(self.batch.messages) + len(self.batch.failed) + len(self.batch.skipped)
            self._query(
                sql.COUNT,
                session_id=self.fence.session_id,
                seen=seen,
                archived=result.archived,
                duplicates=result.duplicates,
                skipped=result.skipped,
                failed=result.failed,
                bytes=result.bytes,
            )

    def _query(self, statement: str, **parameters: object) -> Sequence[sql.AnyRow]:
        return sql.run(self.connection, statement, mailbox_id=self.origin.mailbox_id, **parameters)

    def _bulk(self, statement: str, rows: list[dict[str, object]]) -> None:
        self._query(statement, rows=sql.rows(rows))


def _describe(prepared: Prepared) -> MessageRows:
    item = prepared.item
    return describe(item.raw, item.sha256, item.message.received_at)


def _dead_letter(key: str, failed: FailedMessage) -> dict[str, object]:
    sha256 = hashlib.sha256(failed.data).hexdigest() if failed.data is not None else None
    detail = {**failed.detail, "provider_key": failed.provider_key}
    return {"i": uuid7(), "k": key, "f": failed.folder, "d": detail, "h": sha256, "r": failed.reason}


def add_objects(connection: Connection, written: Written) -> None:
    """Tells `objects` where the frames of a batch are. A place that is known already stays."""
    rows = [
        {"h": frame.sha256.hex(), "k": frame.kind.label, "p": frame.place.offset, "s": frame.place.length, "r": frame.raw_bytes}
        for frame in sorted(written.batch.frames, key=lambda frame: (frame.sha256, frame.kind))
        if frame.kind in _INDEXED_KINDS
    ]
    if rows:
        sql.run(connection, sql.ADD_OBJECTS, rows=sql.rows(rows), pack_id=written.batch.pack_id)


def extend_pack(connection: Connection, written: Written) -> None:
    batch = written.batch
    sql.run(connection, sql.EXTEND_PACK, id=batch.pack_id, end=batch.end, frames=len(batch.frames))
    for pack in sorted(written.sealed, key=lambda pack: pack.id):
        sql.run(
            connection,
            sql.SEAL_PACK,
            id=pack.id,
            name=pack_name(pack.id),
            size=pack.size,
            frames=pack.seal.frames,
            sha256=pack.seal.sha256,
        )
