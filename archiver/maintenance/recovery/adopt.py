"""Replays what is in the packs but not in the database: after an older dump, a lost commit, or a killed compaction.

All of it in one transaction: if it is killed, nothing has changed and the next run starts again. Rows of the database are never
replaced; what was deleted stays deleted; a message without a journal frame gets a mailbox of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from uuid import UUID

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import OperationalError

from archiver.db import sql
from archiver.db.ids import message_uuid
from archiver.db.states import PackState
from archiver.errors import DataFolderError
from archiver.logs import get_logger
from archiver.maintenance.recovery.found_mail import add_found
from archiver.maintenance.recovery.journal_entries import JournalEntries, add_damage
from archiver.maintenance.recovery.rebuild import describe_deletion, pack_row
from archiver.maintenance.recovery.rebuild_segment import OBJECT_KINDS, SegmentReader
from archiver.maintenance.recovery.replay import IN_MAILBOX, Replay, Replayed, ReplayProgress
from archiver.maintenance.rows import PACKS, PackRow
from archiver.queue.jobs import IndexEmailBatch
from archiver.retention import tombstones
from archiver.retention.delete import drop_unused
from archiver.store.archive import Archive
from archiver.store.backend import PackFile
from archiver.store.errors import Damage, LostPack
from archiver.store.frames import FrameKind
from archiver.store.journal import BEFORE_STAMPS
from archiver.store.listing import PackListing, list_pack
from archiver.store.pack import PACK_HEADER_BYTES, PackIndexEntry, PackLocation
from archiver.sync import outbox
from archiver.sync.ingest.archive_state import go_on_above, last_stamp, own_archive_id, raise_generation

_log = get_logger(__name__)
_TRIES = 3
_REST_SECONDS = 600.0
"""How long a pack must be idle before it is touched: its last batch may not be committed yet."""

_ONE_AT_A_TIME = text("SELECT pg_advisory_xact_lock(hashtextextended('archiver:adopt', 0))")
_POSITIONS = "SELECT position FROM objects WHERE pack_id = :id"
_FIND = """
    SELECT pack_id, position AS offset, stored_bytes AS length FROM objects WHERE sha256 = :sha256 AND kind = :kind"""
_PACK = "SELECT size_bytes FROM packs WHERE id = :id"
_HOLDING = "SELECT DISTINCT pack_id FROM objects WHERE pack_id = ANY(:ids)"
_RETIRE = text("""
    UPDATE packs p SET state = 'retired', retired_at = now() WHERE id = ANY(:ids)
    AND NOT EXISTS (SELECT 1 FROM objects o WHERE o.pack_id = p.id)""")
_LEAVE = text("UPDATE packs SET state = 'left' WHERE id = :id AND state = 'open'")
_ADD_PACK = text("""
    INSERT INTO packs (id, name, state, size_bytes, frames, sha256, sealed_at)
    VALUES (:id, :name, :state, :size, :frames, :sha256, CASE WHEN :state = 'sealed' THEN now() END)
    ON CONFLICT (id) DO UPDATE SET size_bytes = greatest(packs.size_bytes, excluded.size_bytes),
        frames = packs.frames + excluded.frames, sha256 = coalesce(packs.sha256, excluded.sha256),
        sealed_at = coalesce(packs.sealed_at, excluded.sealed_at),
        state = CASE WHEN packs.state = 'open' THEN excluded.state ELSE packs.state END""")
_WITHOUT_COPY = """
    SELECT m.id FROM messages m WHERE m.id = ANY(:ids)
    AND NOT EXISTS (SELECT 1 FROM message_copies c WHERE c.message_id = m.id AND c.deleted_at IS NULL)"""
_DROP_UNUSED = text("""
    DELETE FROM objects o WHERE o.pack_id = ANY(:ids) AND (
        (o.kind = 'message' AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.sha256 = o.sha256)
            AND NOT EXISTS (SELECT 1 FROM dead_letters d WHERE d.raw_sha256 = o.sha256)
            AND EXISTS (SELECT 1 FROM message_copies c WHERE c.deleted_sha256 = o.sha256))
        OR (o.kind = 'text' AND NOT EXISTS (SELECT 1 FROM attachments a WHERE a.text_sha256 = o.sha256))
        OR (o.kind = 'part' AND NOT EXISTS (SELECT 1 FROM message_parts p WHERE p.part_sha256 = o.sha256)
            AND NOT EXISTS (SELECT 1 FROM objects u WHERE u.kind = 'message' AND u.pack_id = ANY(:ids) AND NOT EXISTS (
                SELECT 1 FROM messages m WHERE m.sha256 = u.sha256))))""")
_INTENDED_HERE = "SELECT id FROM tombstones WHERE id = ANY(:ids)"
_LEARN = """
    UPDATE message_copies c SET deleted_sha256 = decode(x.h, 'hex')
    FROM json_to_recordset(:rows::json) AS x(b uuid, k text, h text)
    WHERE c.mailbox_id = x.b AND c.provider_key = x.k AND c.deleted_at IS NOT NULL AND c.deleted_sha256 IS NULL"""
_LEARNED = text("UPDATE archive_state SET knows_deletions = true WHERE NOT knows_deletions")
_KNOWS_DELETIONS = "SELECT knows_deletions FROM archive_state"


@dataclass(slots=True)
class Adopted(Replayed):
    in_use: int = 0
    """Packs with new frames that are being written, or were until a moment ago: left for the next run."""

    @property
    def is_empty(self) -> bool:
        return not (self.packs or self.messages or self.copies or self.deleted_copies)


@dataclass(frozen=True, slots=True)
class UnknownSegment:
    """The part of a pack that the database does not know."""

    pack: PackFile
    listing: PackListing
    objects: tuple[PackIndexEntry, ...]
    is_known: bool
    """There is nothing beyond the end that the database knows: only frames before it are examined again."""


def adopt(
    engine: Engine,
    archive: Archive,
    *,
    pack_ids: Collection[UUID] = (),
    held: Collection[UUID] = (),
    rest_seconds: float = _REST_SECONDS,
) -> Adopted:
    """Adds every pack that the database does not know, and the rest of each that it knows in part.

    `pack_ids`: in these packs, also frames before the known end, which a rolled-back batch left. `held`: packs that the caller
    already holds. Packs that were written to within the last `rest_seconds` are left for the next run.
    """
    tombstones.confirm(engine, archive)
    _learn_deletions(engine, archive)
    for tries_left in reversed(range(_TRIES)):
        try:
            with ExitStack() as holds, engine.begin() as connection:
                adoption = _Adoption(connection, archive, holds, held, rest_seconds)
                done = adoption.run(pack_ids)
            with engine.begin() as connection:
                go_on_above(connection, adoption.newest)
        except OperationalError as error:
            if not tries_left or getattr(error.orig, "sqlstate", None) not in ("40P01", "40001"):
                raise
            continue  # a deadlock or serialization failure: nothing has changed
        if not done.is_empty:
            _log.info("adopted", packs=done.packs, messages=done.messages, copies=done.copies, conflicts=done.conflicts)
        return done
    raise AssertionError("the last try returns or raises")


@dataclass(frozen=True, slots=True)
class Unknown:
    """What `adopt` would add."""

    packs: tuple[str, ...] = ()
    """Those that the database does not know, or not completely."""
    frames: int = 0
    is_rolled_back: bool = False
    """There are journal frames with numbers that this database has not assigned: it is older than the packs."""
    in_use: int = 0


def find_unknown(engine: Engine, archive: Archive, *, rest_seconds: float = _REST_SECONDS) -> Unknown:
    """Changes nothing. Packs that were written to within the last `rest_seconds` are not examined."""
    with ExitStack() as holds, engine.begin() as connection:
        adoption = _Adoption(connection, archive, holds, (), rest_seconds)
        since = last_stamp(connection)
        journal = JournalEntries(archive, [], since)
        found = [segment for segment in adoption.segments(set()) if not segment.is_known]
        for segment in found:
            journal.read(segment.pack, segment.listing.entries)
        adoption.refuse_foreign(found, journal)
        return Unknown(
            tuple(segment.pack.name for segment in found),
            sum(len(segment.listing.entries) for segment in found),
            any(entry.is_new for entry in journal.in_order()),
            adoption.result.in_use,
        )


class _Adoption:
    def __init__(
        self, connection: Connection, archive: Archive, holds: ExitStack, held: Collection[UUID], rest_seconds: float
    ) -> None:
        self.connection = connection
        self.archive = archive
        self.holds = holds
        self.held = held
        self.rest_seconds = rest_seconds
        self.result = Adopted()
        self.newest = BEFORE_STAMPS
        self.lost: list[UUID] = []
        """Packs that the database knows, but that are missing."""

    def run(self, pack_ids: Collection[UUID]) -> Adopted:
        self.connection.execute(_ONE_AT_A_TIME)
        since = last_stamp(self.connection)
        journal = JournalEntries(self.archive, self.result.damage, since)
        segments = list(self.segments(set(pack_ids)))
        for segment in segments:
            journal.read(segment.pack, segment.listing.entries)
            for damage in segment.listing.damage:
                add_damage(self.result.damage, damage)
        self.refuse_foreign(segments, journal)
        segments = [self._without_settled(segment, journal) for segment in segments]
        if any(segment.objects or segment.listing.damage or not segment.is_known for segment in segments):
            self._add_all(segments, journal)
        self.newest = journal.newest
        if self.newest.generation > since.generation or self.newest.number > since.number:
            raise_generation(self.connection, self.newest)
        return self.result

    def refuse_foreign(self, segments: list[UnknownSegment], journal: JournalEntries) -> None:
        """Two archives are never mixed: packs of another one are refused, unless this database is new."""
        ours = own_archive_id(self.connection)
        unknown = {segment.pack.id: segment.pack.name for segment in segments if not segment.is_known}
        for entry in journal.in_order() if ours is not None else ():
            names = [unknown[place.pack_id] for place in entry.places if place.pack_id in unknown]
            config = journal.decode(entry) if names and entry.kind is FrameKind.CONFIG else None
            if config is not None and config.archive_id not in (None, ours):
                raise DataFolderError(
                    f"pack {names[0]} belongs to archive {config.archive_id}, the database to archive {ours}: check that"
                    " DATABASE_URL and ARCHIVER_DATA (or STORAGE_S3_BUCKET) are of one archive. Nothing was changed."
                )

    def _add_all(self, segments: list[UnknownSegment], journal: JournalEntries) -> None:
        emptied = sql.query(self.connection, _HOLDING, UUID, ids=self.lost)
        added = self._read(segments, journal)
        buried = self._replay(segments, journal)
        self._drop_dead(added, buried, [segment.pack.id for segment in segments])
        self._register(segments)
        self.connection.execute(_RETIRE, {"ids": emptied})

    def segments(self, pack_ids: set[UUID]) -> Iterator[UnknownSegment]:
        known = {row.id: row for row in sql.query(self.connection, PACKS, PackRow)}
        there = list(self.archive.backend.packs())
        self.lost = [row.id for row in known.values() if row.state != PackState.RETIRED and row.id not in set(there)]
        for pack_id in there:
            row = known.get(pack_id)
            if row is not None and (row.state == PackState.RETIRED or self._is_known(row, pack_ids)):
                continue
            try:
                yield from self._segment(pack_id, pack_ids)
            except LostPack:
                continue  # a concurrent compaction removed it
            except Damage as damage:
                add_damage(self.result.damage, damage)

    def _is_known(self, row: PackRow, pack_ids: set[UUID]) -> bool:
        if row.id in pack_ids:
            return False
        if row.state == PackState.SEALED:
            return True
        try:
            return self.archive.backend.open(row.id).size <= row.size_bytes
        except LostPack:
            return True

    def _segment(self, pack_id: UUID, pack_ids: set[UUID]) -> Iterator[UnknownSegment]:
        if pack_id not in self.held:
            release = self.archive.backend.hold(pack_id, self.rest_seconds)
            if release is None:
                self.result.in_use += 1
                return
            self.holds.callback(release)
        pack = self.archive.backend.open(pack_id)  # held, so no process writes to it: now read how far the database knows it
        known_end = sql.query_optional(self.connection, _PACK, int, id=pack_id)
        end = max(known_end or 0, PACK_HEADER_BYTES)
        whole = known_end is None or pack_id in pack_ids
        listing = list_pack(pack, self.archive.frames, PACK_HEADER_BYTES if whole else end)
        known = set(sql.query(self.connection, _POSITIONS, int, id=pack_id))
        objects = tuple(entry for entry in listing.entries if entry.kind in OBJECT_KINDS and entry.offset not in known)
        yield UnknownSegment(pack, listing, objects, known_end is not None and listing.end <= end)

    def _without_settled(self, segment: UnknownSegment, journal: JournalEntries) -> UnknownSegment:
        """Messages whose copies are known or deleted need not be read, unless a known pack is missing."""
        if self.lost:
            return segment
        settled = self._settled_hashes(segment.pack.id, journal)
        tags = {key.content_tag(sha256) for key in self.archive.keys for sha256 in settled}
        left = tuple(entry for entry in segment.objects if entry.kind != FrameKind.MESSAGE or entry.tag not in tags)
        if segment.is_known and not any(entry.kind == FrameKind.MESSAGE for entry in left):
            left = ()  # nothing needs the parts
        return replace(segment, objects=left)

    def _settled_hashes(self, pack_id: UUID, journal: JournalEntries) -> set[bytes]:
        """The hashes of messages whose copies in the journal of this pack are all known."""
        mentioned: set[bytes] = set()
        unknown: set[bytes] = set()
        for entry, batch in journal.decoded_occurrences(pack_id):
            hashes = {copy.sha256 for copy in batch.copies}
            rows = [{"m": message_uuid(sha256), "h": sha256.hex()} for sha256 in sorted(hashes)]
            known = set()
            if not entry.is_new:
                mailbox_id = batch.origin.mailbox_id
                answer = sql.query(self.connection, IN_MAILBOX, str, rows=sql.rows(rows), mailbox_id=mailbox_id)
                known = set(map(bytes.fromhex, answer))
            mentioned |= hashes
            unknown |= hashes - known
        return mentioned - unknown

    def _begin(self) -> AbstractContextManager[Connection]:
        return nullcontext(self.connection)

    def _read(self, segments: list[UnknownSegment], journal: JournalEntries) -> set[UUID]:
        """Reads all messages, before the copies that refer to them. Returns the new ones."""
        reader = SegmentReader(self._begin, self.archive, journal.occurrences(), lost_packs=self.lost, look_up=self._find)
        outcomes = [reader.read_some(segment.pack.id, segment.objects) for segment in segments]
        outcomes.append(reader.read_postponed([item for outcome in outcomes for item in outcome.postponed]))
        for outcome in outcomes:
            self.result.damage += [line for line in outcome.damage if line not in self.result.damage]
        return {message_id for outcome in outcomes for message_id in outcome.added}

    def _find(self, sha256: bytes, kind: FrameKind) -> PackLocation | None:
        return sql.query_optional(self.connection, _FIND, PackLocation, sha256=sha256, kind=kind.label)

    def _replay(self, segments: list[UnknownSegment], journal: JournalEntries) -> set[UUID]:
        """Returns the messages that tombstones name."""
        reading = ReplayProgress()
        reading.finish(failed=False)
        replay = Replay(self._begin, journal, reading, self.result, is_rebuild=False)
        replay.damaged = {segment.pack.id for segment in segments if segment.listing.damage}
        replay.run()
        intended = {deletion.id: deletion for deletion in replay.burial.intended if deletion.id is not None}
        committed = set(sql.query(self.connection, _INTENDED_HERE, UUID, ids=list(intended)))
        self.result.unconfirmed = [
            describe_deletion(deletion) for deletion in intended.values() if deletion.id not in committed
        ]
        return {message_uuid(sha256) for deletion in replay.burial.tombstones for _, _, sha256 in deletion.copies}

    def _drop_dead(self, added: set[UUID], buried: set[UUID], pack_ids: list[UUID]) -> None:
        """A message without a copy was deleted, or belongs into the mailbox of found mail."""
        self.result.found = add_found(self.connection, added)
        dead = set(sql.query(self.connection, _WITHOUT_COPY, UUID, ids=sorted(added | buried)))
        if dead:
            drop_unused(self.connection, sorted(dead))
        self.connection.execute(_DROP_UNUSED, {"ids": pack_ids})
        self.result.messages = len(added - dead)
        outbox.announce(self.connection, IndexEmailBatch())

    def _register(self, segments: list[UnknownSegment]) -> None:
        for segment in segments:
            if not segment.is_known:
                self.connection.execute(_ADD_PACK, pack_row(segment.pack, segment.listing))
                self.result.packs += 1
            elif segment.listing.damage:
                self.connection.execute(_LEAVE, {"id": segment.pack.id})


def _learn_deletions(engine: Engine, archive: Archive) -> None:
    """Once after an upgrade: older versions recorded in the tombstones only which messages they deleted."""
    with engine.begin() as connection:
        if sql.query_one(connection, _KNOWS_DELETIONS, bool):
            return
        damage: list[str] = []
        journal = JournalEntries(archive, damage)
        for pack_id in archive.backend.packs():
            try:
                pack = archive.backend.open(pack_id)
                listing = list_pack(pack, archive.frames)
            except Damage:
                continue  # reported by `verify` and `rebuild`
            journal.read(pack, [entry for entry in listing.entries if entry.kind == FrameKind.TOMBSTONE])
        for entry in journal.in_order():
            found = journal.decode(entry)
            if found is not None:
                rows = [{"b": box, "k": key, "h": sha256.hex()} for box, key, sha256 in found.copies]
                sql.run(connection, _LEARN, rows=sql.rows(rows))
        connection.execute(_LEARNED)
