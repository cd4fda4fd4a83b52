"""Carries out erasures: searches, deletes what was approved, removes the bytes from the packs, and signs the receipt.

Each stage may be killed and repeated. After `deleted_at`, the mail is no longer readable. The erasure is finished once no
pack has its bytes: packs in use are replaced later, and the files of replaced packs stay for a day, because they may be read.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import orjson
from sqlalchemy import Connection, Engine

from archiver.access import audit
from archiver.config import Settings
from archiver.db import sql
from archiver.db.engine import held_lock
from archiver.db.ids import message_uuid, uuid7
from archiver.db.values import json_text
from archiver.errors import ArchiverError
from archiver.exports.erased import remove_containing
from archiver.logs import get_logger
from archiver.maintenance.backups.pack_removal import remove_retired
from archiver.maintenance.backups.target import open_target
from archiver.maintenance.checks import outcomes
from archiver.maintenance.compact import compact
from archiver.maintenance.erasure.index import clear_index
from archiver.maintenance.erasure.register import REGISTER, add_objects, register_content, write_register
from archiver.maintenance.rows import PACKS, PackRow
from archiver.retention import erasures
from archiver.retention.delete import Deletion, confirm
from archiver.retention.erasures import Erasure
from archiver.retention.person_search import search_person
from archiver.retention.runs import SYSTEM, Sign
from archiver.search.index import SearchServer
from archiver.search.service import open_search
from archiver.store.archive import Archive
from archiver.store.capacity import check_disk
from archiver.store.errors import Damage
from archiver.store.listing import list_pack
from archiver.sync.ingest.archive_state import archive_id

_log = get_logger(__name__)
SUBJECT = "archiver erasure receipt v1"
_MESSAGES_AT_ONCE = 500
_REST_SECONDS = 600
KEEP_RETIRED = timedelta(days=1)

_OPEN = """
    SELECT id FROM erasures WHERE rejected_at IS NULL AND finished_at IS NULL
        AND (approved_at IS NOT NULL OR search_requested_at IS NOT NULL) ORDER BY id"""
_NEXT = """
    SELECT message_id FROM erasure_messages WHERE erasure_id = :id AND excluded_reason IS NULL
        AND (CAST(:after AS uuid) IS NULL OR message_id > :after) ORDER BY message_id LIMIT :limit"""
_COPIES = "SELECT id FROM message_copies WHERE message_id = ANY(:ids) AND deleted_at IS NULL ORDER BY id"
_SIZES = "SELECT coalesce(sum(size_bytes), 0)::bigint FROM messages WHERE id = ANY(:ids)"
_ADVANCE = """
    UPDATE erasures SET copies = copies + :copies, messages = messages + :messages, size_bytes = size_bytes + :bytes,
        tombstone_ids = tombstone_ids || CAST(:tombstones AS uuid[]) WHERE id = :id"""
# What could not be archived: its bytes, too, if they are those of an erased message.
_DEAD_LETTERS = """
    DELETE FROM dead_letters d WHERE d.raw_sha256 = ANY(:hashes)
        AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.sha256 = d.raw_sha256) RETURNING d.raw_sha256"""
_DROP_OBJECTS = """
    DELETE FROM objects o WHERE o.sha256 = ANY(:hashes) AND o.kind = 'message'
        AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.sha256 = o.sha256)"""
_EXCLUDED = """
    SELECT excluded_reason AS reason, count(*) AS messages FROM erasure_messages
    WHERE erasure_id = :id AND excluded_reason IS NOT NULL GROUP BY 1 ORDER BY 1"""
_DELETED = """
    UPDATE erasures SET deleted_at = clock_timestamp(), kept = :kept::jsonb, excluded = :excluded::jsonb,
        exports = :exports::jsonb, addresses = '{}', terms = '{}', error = NULL WHERE id = :id"""
_FORGET_FOUND = "DELETE FROM erasure_messages WHERE erasure_id = :id"
_OBJECTS = """
    SELECT sha256 FROM erasure_objects WHERE erasure_id = :id
    UNION SELECT decode(x.copy ->> 2, 'hex') FROM tombstones t, jsonb_array_elements(t.copies) AS x(copy)
    WHERE t.id = ANY(:tombstone_ids)"""
_LIVE = "SELECT position FROM objects WHERE pack_id = :id"
_NOTE_PACKS = """
    UPDATE erasures SET pack_ids = ARRAY(SELECT DISTINCT unnest(pack_ids || CAST(:ids AS uuid[]))) WHERE id = :id"""
_FILES_LEFT = "SELECT count(*) FROM packs WHERE id = ANY(:ids) AND removed_at IS NULL"
_LOCKED_UNTIL = "SELECT max(locked_until) FROM packs WHERE id = ANY(:ids) AND removed_at IS NULL"
_FINISH = """
    UPDATE erasures SET finished_at = :at, receipt = :receipt, signature = :signature, key = :key, error = NULL
    WHERE id = :id"""
_FORGET_OBJECTS = "DELETE FROM erasure_objects WHERE erasure_id = :id"
_ERROR = "UPDATE erasures SET error = :error WHERE id = :id"
_UPLOADS = "SELECT count(*) FROM uploads"


@dataclass(frozen=True, slots=True)
class ExcludedCount:
    reason: str
    messages: int


@dataclass(frozen=True, slots=True)
class Eraser:
    settings: Settings
    engine: Engine
    archive: Archive
    sign: Sign
    stopping: Callable[[], bool] = lambda: False
    rest_seconds: float = _REST_SECONDS
    keep_retired: timedelta = KEEP_RETIRED

    def advance(self) -> list[UUID]:
        """Goes on with every open erasure as far as possible now. Returns those that it finished."""
        finished: list[UUID] = []
        with held_lock(self.engine, "archiver:erasures") as got:
            for erasure_id in self._open() if got else ():
                if self.stopping():
                    break
                try:
                    if self._advance(erasure_id):
                        finished.append(erasure_id)
                except (ArchiverError, OSError) as failed:
                    _log.error("erasure_failed", erasure=str(erasure_id), error=str(failed))
                    with self.engine.begin() as connection:
                        sql.run(connection, _ERROR, id=erasure_id, error=str(failed)[:2000])
        return finished

    def _open(self) -> list[UUID]:
        with self.engine.connect() as connection:
            return sql.query(connection, _OPEN, UUID)

    def _load(self, erasure_id: UUID) -> Erasure:
        with self.engine.connect() as connection:
            return erasures.load(connection, str(erasure_id))

    def _advance(self, erasure_id: UUID) -> bool:
        erasure = self._load(erasure_id)
        if erasure.state == "searching":
            search_person(self.engine, self.archive, open_search(self.settings, self.engine), SYSTEM, erasure)
            return False
        if erasure.state == "approved":
            self._delete(erasure)
        return not self.stopping() and self._purge(self._load(erasure_id))

    # deletion

    def _delete(self, erasure: Erasure) -> None:
        after, kept = None, Counter[str]()
        while True:
            with self.engine.connect() as connection:
                ids = sql.query(connection, _NEXT, UUID, id=erasure.id, after=after, limit=_MESSAGES_AT_ONCE)
            if not ids:
                break
            if self.stopping():
                return
            kept += self._delete_some(erasure, ids)
            after = ids[-1]
        with self.engine.begin() as connection:
            hashes = {line.rpartition(" ")[2] for line in self._units(connection, erasure)}
            self._drop_dead_letters(connection, erasure, hashes)
        removed = remove_containing(self.engine, self.settings, SYSTEM, hashes)
        with self.engine.begin() as connection:
            excluded = {row.reason: row.messages for row in sql.query(connection, _EXCLUDED, ExcludedCount, id=erasure.id)}
            exports = json_text([*erasure.exports, *(asdict(one) for one in removed)])
            values = {"kept": json_text(dict(kept)), "excluded": json_text(excluded), "exports": exports}
            sql.run(connection, _DELETED, id=erasure.id, **values)
            sql.run(connection, _FORGET_FOUND, id=erasure.id)
        self._register()

    def _units(self, connection: Connection, erasure: Erasure) -> list[str]:
        return list(erasures.erased_units(connection, erasures.load(connection, str(erasure.id))))

    def _delete_some(self, erasure: Erasure, message_ids: list[UUID]) -> Counter[str]:
        """Returns how many copies stay, by what keeps them."""
        tombstone_id = uuid7()
        with self.engine.begin() as connection:
            size = sql.query_one(connection, _SIZES, int, ids=message_ids)
            copy_ids = sql.query(connection, _COPIES, UUID, ids=message_ids)
            deletion = Deletion(connection, self.engine, self.archive, f"erasure {erasure.id}", SYSTEM, tombstone_id)
            done = deletion.delete(copy_ids)
            left = sql.query_one(connection, _SIZES, int, ids=message_ids)
            tombstones = [tombstone_id] if done.copies else []
            values = {"copies": done.copies, "messages": done.messages, "bytes": size - left, "tombstones": tombstones}
            sql.run(connection, _ADVANCE, id=erasure.id, **values)
            add_objects(connection, erasure.id, deletion.objects)
            if done.copies:
                audit.record(connection, SYSTEM, "erasure.deleted", "erasure", erasure.id, copies=done.copies)
        confirm(self.engine, self.archive)
        return Counter(", ".join(names) for names in deletion.kept.values())

    def _drop_dead_letters(self, connection: Connection, erasure: Erasure, hashes: set[str]) -> None:
        raw = [bytes.fromhex(one) for one in hashes]
        found = set(sql.query(connection, _DEAD_LETTERS, bytes, hashes=raw))
        if found:
            sql.run(connection, _DROP_OBJECTS, hashes=sorted(found))
            add_objects(connection, erasure.id, found)

    def _register(self) -> None:
        """Beside the archive and, if it can be reached, beside the last backup, which is older than this erasure."""
        with self.engine.connect() as connection:
            write_register(connection, self.settings.archiver_data)
            last = outcomes.load(connection, outcomes.BACKUP)
            target = last.details.get("target") if last else None
            if target:
                try:
                    open_target(self.settings, target).write(REGISTER, [register_content(connection)])
                except (OSError, ArchiverError) as error:
                    _log.warning("erasure_register_not_copied", target=target, reason=str(error))

    # the bytes

    def _purge(self, erasure: Erasure) -> bool:
        """Whether it is finished."""
        if erasure.deleted_at is None:
            return False
        if holding := self._packs_with(erasure):
            with self.engine.begin() as connection:
                sql.run(connection, _NOTE_PACKS, id=erasure.id, ids=sorted(holding))
            compact(
                self.engine, self.archive, self.settings.archiver_data / "scratch", only=holding,
                keep_retired=self.keep_retired, rest_seconds=self.rest_seconds, check_room=partial(check_disk, self.settings),
            )  # fmt: skip
            if holding := self._packs_with(erasure):
                return self._wait(erasure, f"{len(holding)} packs with its bytes are in use or damaged")
        remove_retired(self.engine, self.archive, self.keep_retired)
        with self.engine.connect() as connection:
            left = sql.query_one(connection, _FILES_LEFT, int, ids=self._load(erasure.id).pack_ids)
        if left:
            return self._wait(erasure, self._why_files_stay(erasure, left))
        self._register()  # again, if a process was killed before it could
        return self._finish(erasure.id, self._clear_index(erasure))

    def _why_files_stay(self, erasure: Erasure, count: int) -> str:
        with self.engine.connect() as connection:
            until: datetime | None = sql.query_one(connection, _LOCKED_UNTIL, datetime, ids=self._load(erasure.id).pack_ids)
        if until is not None and until > datetime.now(UTC):
            return f"{count} replaced packs are under Object Lock, the last until {until:%Y-%m-%d}: the bucket keeps the bytes"
        return f"{count} replaced pack files are removed a day after"

    def _wait(self, erasure: Erasure, why: str) -> bool:
        with self.engine.begin() as connection:
            sql.run(connection, _ERROR, id=erasure.id, error=why)
        return False

    def _packs_with(self, erasure: Erasure) -> set[UUID]:
        """The packs in which frames of erased content are that nothing refers to."""
        with self.engine.connect() as connection:
            hashes = sql.query(connection, _OBJECTS, bytes, id=erasure.id, tombstone_ids=erasure.tombstone_ids)
            packs = [row.id for row in sql.query(connection, f"{PACKS} WHERE state <> 'retired'", PackRow)]
        tags = {key.content_tag(sha256) for key in self.archive.keys for sha256 in hashes}
        return {pack_id for pack_id in packs if self._holds(pack_id, tags)}

    def _holds(self, pack_id: UUID, tags: set[bytes]) -> bool:
        try:
            listed = list_pack(self.archive.backend.open(pack_id), self.archive.frames)
        except Damage:
            return True  # what can't be read can't be ruled out
        found = {entry.offset for entry in listed.entries if entry.tag in tags}
        if not found:
            return False
        with self.engine.connect() as connection:
            return not found <= set(sql.query(connection, _LIVE, int, id=pack_id))

    # the receipt

    def _clear_index(self, erasure: Erasure) -> str:
        if self.settings.meili_host is None:
            return "there is no search server"
        with self.engine.connect() as connection:
            lines = erasures.erased_units(connection, erasure)
            ids = {message_uuid(bytes.fromhex(line.rpartition(" ")[2])) for line in lines}
        return clear_index(self.engine, SearchServer(self.settings), ids)

    def _finish(self, erasure_id: UUID, index: str) -> bool:
        with self.engine.begin() as connection:
            erasure = erasures.load(connection, str(erasure_id))
            at = datetime.now(UTC)
            receipt = write_receipt(connection, erasure, at, index)
            digest = hashlib.sha256(receipt.encode())
            key, signature = self.sign(SUBJECT, digest.digest())
            sql.run(connection, _FINISH, id=erasure_id, at=at, receipt=receipt, signature=signature, key=key)
            sql.run(connection, _FORGET_OBJECTS, id=erasure_id)
            audit.record(
                connection, SYSTEM, "erasure.finished", "erasure", erasure_id, copies=erasure.copies, messages=erasure.messages,
                receipt_sha256=digest.hexdigest(),
            )  # fmt: skip
        return True


def write_receipt(connection: Connection, erasure: Erasure, at: datetime, index: str) -> str:
    """The text that is signed. It does not say whom the request was about."""
    lines = list(erasures.erased_units(connection, erasure))
    wanted = (
        "name",
        "reason",
        "created_by",
        "created_at",
        "approved_by",
        "approved_at",
        "deleted_at",
        "kept",
        "excluded",
        "unread",
    )
    content: dict[str, Any] = {
        "kind": "archiver erasure receipt",
        "version": 1,
        "archive": archive_id(connection),
        "erasure": erasure.id,
        **{name: getattr(erasure, name) for name in wanted},
        "finished_at": at,
        "erased_copies": erasure.copies,
        "erased_messages": erasure.messages,
        "erased_bytes": erasure.size_bytes,
        "exports_removed": erasure.exports,
        "packs_replaced": sorted(erasure.pack_ids),
        "search_index": index,
        "listed": len(lines),
        "list_sha256": list_digest(lines),
        "older_copies": _older_copies(connection, erasure),
    }
    return orjson.dumps(content, default=str, option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2).decode()


def list_digest(lines: list[str]) -> str:
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


def _older_copies(connection: Connection, erasure: Erasure) -> list[str]:
    """What can still give the mail back, to whoever has it together with the keys."""
    found = [f"copies of the packs that were made before {erasure.deleted_at:%Y-%m-%d %H:%M} UTC, outside of this archive"]
    last = outcomes.load(connection, outcomes.BACKUP)
    if last is not None and last.succeeded_at is not None:
        is_older = erasure.deleted_at is None or last.succeeded_at < erasure.deleted_at
        state = (
            "its next run removes the mail"
            if is_older
            else "made after the deletion; packs with the mail leave it with the next run"
        )
        found.append(f"the backup at {last.details.get('target')}, of {last.succeeded_at:%Y-%m-%d %H:%M} UTC: {state}")
    found += [
        f"export {one['id']}, downloaded on {one['downloaded_at'][:10]}" for one in erasure.exports if one["downloaded_at"]
    ]
    if uploads := sql.query_one(connection, _UPLOADS, int):
        found.append(f"{uploads} uploaded files that wait for an import and were not searched")
    return found
