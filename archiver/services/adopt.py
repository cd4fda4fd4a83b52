"""Replays what the packs know and the database does not: after an older dump, a lost commit, a compaction that was killed.

All of it in one transaction: killed anywhere, nothing has happened, and the next run does it. What the database knows is never
displaced; what was deleted stays deleted; a message that no journal frame tells of is kept in a mailbox of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import OperationalError

from archiver.models.ids import message_uuid, uuid7
from archiver.models.states import PackState
from archiver.services import batch_sql as sql
from archiver.services import tombstones
from archiver.services.archive_state import go_on_above, last_stamp, raise_generation
from archiver.services.delete import drop_unused
from archiver.services.found_mail import keep_found
from archiver.services.journal_entries import JournalEntries, tell
from archiver.services.rebuild import described, pack_row
from archiver.services.rebuild_stretch import OBJECT_KINDS, StretchReader
from archiver.services.replay import IN_MAILBOX, Reading, Replay, Replayed
from archiver.store.archive import Archive
from archiver.store.backend import PackFile
from archiver.store.errors import Damage, LostPack
from archiver.store.frames import Kind
from archiver.store.journal import BEFORE_STAMPS
from archiver.store.listing import Listing, list_pack
from archiver.store.pack import PACK_HEADER_BYTES, IndexEntry, Place

_log = structlog.get_logger(__name__)
_TRIES = 3
_REST_SECONDS = 600.0
"""A pack rests for so long before it is touched: a batch that is in it may still be on its way into the database."""

_ONE_AT_A_TIME = text("SELECT pg_advisory_xact_lock(hashtextextended('archiver:adopt', 0))")
_PACKS = text("SELECT id, state, size_bytes FROM packs")
_POSITIONS = text("SELECT position FROM objects WHERE pack_id = :id")
_FIND = text("SELECT pack_id, position, stored_bytes FROM objects WHERE sha256 = :sha256 AND kind = :kind")
_PACK = text("SELECT size_bytes FROM packs WHERE id = :id")
_HOLDING = text("SELECT DISTINCT pack_id FROM objects WHERE pack_id = ANY(:ids)")
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
_WITHOUT_COPY = text("""
    SELECT m.id FROM messages m WHERE m.id = ANY(:ids)
    AND NOT EXISTS (SELECT 1 FROM message_copies c WHERE c.message_id = m.id AND c.deleted_at IS NULL)""")
_DROP_UNUSED = text("""
    DELETE FROM objects o WHERE o.pack_id = ANY(:ids) AND (
        (o.kind = 'message' AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.sha256 = o.sha256)
            AND NOT EXISTS (SELECT 1 FROM dead_letters d WHERE d.raw_sha256 = o.sha256)
            AND EXISTS (SELECT 1 FROM message_copies c WHERE c.deleted_sha256 = o.sha256))
        OR (o.kind = 'text' AND NOT EXISTS (SELECT 1 FROM attachments a WHERE a.text_sha256 = o.sha256))
        OR (o.kind = 'part' AND NOT EXISTS (SELECT 1 FROM message_parts p WHERE p.part_sha256 = o.sha256)
            AND NOT EXISTS (SELECT 1 FROM objects u WHERE u.kind = 'message' AND u.pack_id = ANY(:ids) AND NOT EXISTS (
                SELECT 1 FROM messages m WHERE m.sha256 = u.sha256))))""")
_ANNOUNCE = """
    INSERT INTO outbox (id, queue, job, payload) VALUES (%(id)s, 'indexing', 'index-email-batch', '{}'::jsonb)"""
_INTENDED_HERE = text("SELECT id FROM tombstones WHERE id = ANY(:ids)")
_LEARN = """
    UPDATE message_copies c SET deleted_sha256 = decode(x.h, 'hex')
    FROM json_to_recordset(%(rows)s::json) AS x(b uuid, k text, h text)
    WHERE c.mailbox_id = x.b AND c.provider_key = x.k AND c.deleted_at IS NOT NULL AND c.deleted_sha256 IS NULL"""
_LEARNED = text("UPDATE archive_state SET knows_deletions = true WHERE NOT knows_deletions")
_KNOWS_DELETIONS = text("SELECT knows_deletions FROM archive_state")


@dataclass(slots=True)
class Adopted(Replayed):
    in_use: int = 0
    """Packs with something new that somebody writes to, or did just now: for the next time."""

    @property
    def is_empty(self) -> bool:
        return not (self.packs or self.messages or self.copies or self.deleted_copies)


@dataclass(frozen=True, slots=True)
class Stretch:
    """What the database does not know of a pack."""

    pack: PackFile
    listing: Listing
    objects: tuple[IndexEntry, ...]
    is_known: bool
    """Nothing is behind the end that the database knows: only frames before it are looked at again."""


def adopt(
    engine: Engine,
    archive: Archive,
    *,
    pack_ids: Collection[UUID] = (),
    held: Collection[UUID] = (),
    rest_seconds: float = _REST_SECONDS,
) -> Adopted:
    """Every pack that the database does not know, and the end of each that it knows a part of.

    `pack_ids`: of these, also frames that later batches have passed: those of a batch that was rolled back. `held`: packs that
    the caller holds already. Packs that somebody writes to, or did in the last `rest_seconds`, are left for the next time.
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
            continue  # others were in the way; nothing has happened
        if not done.is_empty:
            _log.info("adopted", packs=done.packs, messages=done.messages, copies=done.copies, conflicts=done.conflicts)
        return done
    raise AssertionError("the last try returns or raises")


@dataclass(frozen=True, slots=True)
class Unknown:
    """What `adopt` would take in."""

    packs: tuple[str, ...] = ()
    """Those that the database does not know, or not to their end."""
    frames: int = 0
    is_rolled_back: bool = False
    """There are journal frames with numbers that this database has not given out: it is older than the packs."""
    in_use: int = 0


def find_unknown(engine: Engine, archive: Archive, *, rest_seconds: float = _REST_SECONDS) -> Unknown:
    """Changes nothing. Packs that somebody writes to, or did in the last `rest_seconds`, are not looked at."""
    with ExitStack() as holds, engine.begin() as connection:
        adoption = _Adoption(connection, archive, holds, (), rest_seconds)
        since = last_stamp(connection)
        journal = JournalEntries(archive, [], since)
        found = [stretch for stretch in adoption.stretches(set()) if not stretch.is_known]
        for stretch in found:
            journal.read(stretch.pack, stretch.listing.entries)
        return Unknown(
            tuple(stretch.pack.name for stretch in found),
            sum(len(stretch.listing.entries) for stretch in found),
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
        """Packs that the database knows, and that are not there."""

    def run(self, pack_ids: Collection[UUID]) -> Adopted:
        self.connection.execute(_ONE_AT_A_TIME)
        since = last_stamp(self.connection)
        journal = JournalEntries(self.archive, self.result.damage, since)
        stretches = list(self.stretches(set(pack_ids)))
        for stretch in stretches:
            journal.read(stretch.pack, stretch.listing.entries)
            for damage in stretch.listing.damage:
                tell(self.result.damage, damage)
        stretches = [self._without_settled(stretch, journal) for stretch in stretches]
        if any(stretch.objects or stretch.listing.damage or not stretch.is_known for stretch in stretches):
            self._take_in(stretches, journal)
        self.newest = journal.newest
        if self.newest.generation > since.generation or self.newest.number > since.number:
            raise_generation(self.connection, self.newest)
        return self.result

    def _take_in(self, stretches: list[Stretch], journal: JournalEntries) -> None:
        emptied = list(self.connection.execute(_HOLDING, {"ids": self.lost}).scalars())
        added = self._read(stretches, journal)
        buried = self._replay(stretches, journal)
        self._drop_dead(added, buried, [stretch.pack.id for stretch in stretches])
        self._register(stretches)
        self.connection.execute(_RETIRE, {"ids": emptied})

    def stretches(self, pack_ids: set[UUID]) -> Iterator[Stretch]:
        known = {row.id: row for row in self.connection.execute(_PACKS)}
        there = list(self.archive.backend.packs())
        self.lost = [row.id for row in known.values() if row.state != PackState.RETIRED and row.id not in set(there)]
        for pack_id in there:
            row = known.get(pack_id)
            if row is not None and (row.state == PackState.RETIRED or self._is_known(row, pack_ids)):
                continue
            try:
                yield from self._stretch(pack_id, pack_ids)
            except LostPack:
                continue  # removed by a compaction meanwhile
            except Damage as damage:
                tell(self.result.damage, damage)

    def _is_known(self, row: Any, pack_ids: set[UUID]) -> bool:
        if row.id in pack_ids:
            return False
        if row.state == PackState.SEALED:
            return True
        try:
            return bool(self.archive.backend.open(row.id).size <= row.size_bytes)
        except LostPack:
            return True

    def _stretch(self, pack_id: UUID, pack_ids: set[UUID]) -> Iterator[Stretch]:
        if pack_id not in self.held:
            release = self.archive.backend.hold(pack_id, self.rest_seconds)
            if release is None:
                self.result.in_use += 1
                return
            self.holds.callback(release)
        pack = self.archive.backend.open(pack_id)  # nobody writes to it any more: now ask how far it is known
        row = self.connection.execute(_PACK, {"id": pack_id}).one_or_none()
        end = max(row.size_bytes, PACK_HEADER_BYTES) if row is not None else PACK_HEADER_BYTES
        whole = row is None or pack_id in pack_ids
        listing = list_pack(pack, self.archive.frames, PACK_HEADER_BYTES if whole else end)
        known = set(self.connection.execute(_POSITIONS, {"id": pack_id}).scalars())
        objects = tuple(one for one in listing.entries if one.kind in OBJECT_KINDS and one.offset not in known)
        yield Stretch(pack, listing, objects, row is not None and listing.end <= end)

    def _without_settled(self, stretch: Stretch, journal: JournalEntries) -> Stretch:
        """Messages whose copies are known, or were deleted, need not be read, unless the place that is known is gone."""
        if self.lost:
            return stretch
        settled = self._settled(stretch.pack.id, journal)
        tags = {key.content_tag(sha256) for key in self.archive.keys for sha256 in settled}
        left = tuple(one for one in stretch.objects if one.kind != Kind.MESSAGE or one.tag not in tags)
        if stretch.is_known and not any(one.kind == Kind.MESSAGE for one in left):
            left = ()  # nothing needs the parts
        return replace(stretch, objects=left)

    def _settled(self, pack_id: UUID, journal: JournalEntries) -> set[bytes]:
        """The hashes of messages of which this pack tells copies, and all of these are known."""
        told: set[bytes] = set()
        unknown: set[bytes] = set()
        for entry, batch in journal.decoded_occurrences(pack_id):
            hashes = {copy.sha256 for copy in batch.copies}
            rows = [{"m": message_uuid(sha256), "h": sha256.hex()} for sha256 in sorted(hashes)]
            known = set()
            if not entry.is_new:
                answer = sql.run(self.connection, IN_MAILBOX, rows=sql.rows(rows), mailbox_id=batch.origin.mailbox_id)
                known = {bytes.fromhex(row.h) for row in answer}
            told |= hashes
            unknown |= hashes - known
        return told - unknown

    def _begin(self) -> AbstractContextManager[Connection]:
        return nullcontext(self.connection)

    def _read(self, stretches: list[Stretch], journal: JournalEntries) -> set[UUID]:
        """All messages first: the copies are put to them. Returns those that are new."""
        reader = StretchReader(self._begin, self.archive, journal.occurrences(), lost_packs=self.lost, look_up=self._find)
        outcomes = [reader.read_some(stretch.pack.id, stretch.objects) for stretch in stretches]
        outcomes.append(reader.read_postponed([one for outcome in outcomes for one in outcome.postponed]))
        for outcome in outcomes:
            self.result.damage += [one for one in outcome.damage if one not in self.result.damage]
        return {message_id for outcome in outcomes for message_id in outcome.added}

    def _find(self, sha256: bytes, kind: Kind) -> Place | None:
        row = self.connection.execute(_FIND, {"sha256": sha256, "kind": kind.label}).one_or_none()
        return Place(row.pack_id, row.position, row.stored_bytes) if row else None

    def _replay(self, stretches: list[Stretch], journal: JournalEntries) -> set[UUID]:
        """Returns the messages that tombstones tell of."""
        reading = Reading()
        reading.finish(failed=False)
        replay = Replay(self._begin, journal, reading, self.result, is_rebuild=False)
        replay.damaged = {stretch.pack.id for stretch in stretches if stretch.listing.damage}
        replay.run()
        intended = {one.id: one for one in replay.burial.intended if one.id is not None}
        committed = set(self.connection.execute(_INTENDED_HERE, {"ids": list(intended)}).scalars())
        self.result.unconfirmed = [described(one) for one in intended.values() if one.id not in committed]
        return {message_uuid(sha256) for one in replay.burial.tombstones for _, _, sha256 in one.copies}

    def _drop_dead(self, added: set[UUID], buried: set[UUID], pack_ids: list[UUID]) -> None:
        """What has no copy was deleted, or is kept as found."""
        self.result.found = keep_found(self.connection, added)
        dead = set(self.connection.execute(_WITHOUT_COPY, {"ids": sorted(added | buried)}).scalars())
        if dead:
            drop_unused(self.connection, sorted(dead))
        self.connection.execute(_DROP_UNUSED, {"ids": pack_ids})
        self.result.messages = len(added - dead)
        sql.run(self.connection, _ANNOUNCE, id=uuid7())

    def _register(self, stretches: list[Stretch]) -> None:
        for stretch in stretches:
            if not stretch.is_known:
                self.connection.execute(_ADD_PACK, pack_row(stretch.pack, stretch.listing))
                self.result.packs += 1
            elif stretch.listing.damage:
                self.connection.execute(_LEAVE, {"id": stretch.pack.id})


def _learn_deletions(engine: Engine, archive: Archive) -> None:
    """Once, after an older version: which messages its deletions were of stands in the tombstones only."""
    with engine.begin() as connection:
        if connection.execute(_KNOWS_DELETIONS).scalar_one():
            return
        damage: list[str] = []
        journal = JournalEntries(archive, damage)
        for pack_id in archive.backend.packs():
            try:
                pack = archive.backend.open(pack_id)
                listing = list_pack(pack, archive.frames)
            except Damage:
                continue  # told by those who look for damage
            journal.read(pack, [entry for entry in listing.entries if entry.kind == Kind.TOMBSTONE])
        for entry in journal.in_order():
            found = journal.decode(entry)
            if found is not None:
                rows = [{"b": box, "k": key, "h": sha256.hex()} for box, key, sha256 in found.copies]
                sql.run(connection, _LEARN, rows=sql.rows(rows))
        connection.execute(_LEARNED)
