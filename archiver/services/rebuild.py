"""An empty Postgres from the packs alone: sources (without credentials), mailboxes, messages, copies, changes, deletions.

Three passes. Frames into `objects` and `messages`, pack by pack; then the journal in the order in which it happened; then
the tombstones, and what has no copy goes. What a crash left without a commit comes in as well: more than before, never less.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from archiver.errors import UsageError
from archiver.models.ids import message_uuid, uuid7
from archiver.services import batch_sql as sql
from archiver.services.message_rows import MessageRows, describe
from archiver.services.snapshot import restore_config
from archiver.store.archive import Archive, entries
from archiver.store.backend import PackFile
from archiver.store.content import Memory, StoredMessage
from archiver.store.errors import Damage
from archiver.store.frames import Kind
from archiver.store.journal import Changes, Config, Occurrence, Occurrences, Origin, Tombstones
from archiver.store.pack import IndexEntry, Place, read_seal, torn_at
from archiver.store.reader import CachingReader, Frame, recipe_of

_PORTION = 200
_IN_MEMORY_BYTES = 8 << 20
_OBJECT_KINDS = (Kind.MESSAGE, Kind.PART, Kind.DICTIONARY, Kind.TEXT)
_JOURNAL: dict[int, Callable[[bytes], Any]] = {
    Kind.OCCURRENCE: Occurrences.decode,
    Kind.COPY_CHANGE: Changes.decode,
    Kind.TOMBSTONE: Tombstones.decode,
    Kind.CONFIG: Config.decode,
}

_ADD_SOURCE = text("""
    INSERT INTO ingestion_sources (id, kind, name, status, status_message)
    VALUES (:id, :kind, :name, 'paused', 'Rebuilt from the packs: enter its credentials again, then resume it.')
    ON CONFLICT (id) DO NOTHING""")
_SOURCE_NAME = text("SELECT 1 FROM ingestion_sources WHERE lower(name) = lower(:name) AND id <> :id AND removed_at IS NULL")
_ADD_MAILBOX = text("""
    INSERT INTO mailboxes (id, source_id, address, display_name, provider_id)
    VALUES (:id, :source_id, :address, :display_name, :provider_id) ON CONFLICT DO NOTHING""")
_ADD_PACK = text("""
    INSERT INTO packs (id, name, state, size_bytes, frames, sha256, sealed_at)
    VALUES (:id, :name, :state, :size, :frames, :sha256, CASE WHEN :state = 'sealed' THEN now() END)""")
_ADD_COPIES = """
    INSERT INTO message_copies (id, message_id, mailbox_id, provider_key, folder, flags, labels, received_at, run_id,
        created_at)
    SELECT i, x.m, %(mailbox_id)s, k, f, g, l, r, %(run_id)s, %(at)s
    FROM json_to_recordset(%(rows)s::json) AS x(i uuid, m uuid, k text, f text, g text[], l text[], r timestamptz)
    JOIN messages ON messages.id = x.m
    ON CONFLICT (mailbox_id, provider_key) DO NOTHING RETURNING message_id"""
_MISSING = """
    SELECT m, k FROM json_to_recordset(%(rows)s::json) AS x(m uuid, k text)
    WHERE NOT EXISTS (SELECT 1 FROM messages WHERE messages.id = x.m)"""
_ADD_PARTS = """
    INSERT INTO message_parts (message_id, part_sha256)
    SELECT m, decode(h, 'hex') FROM json_to_recordset(%(rows)s::json) AS x(m uuid, h text) JOIN messages ON messages.id = m
    ON CONFLICT DO NOTHING"""
# A copy whose message was compacted away has no row yet: without one, the next sync would bring it back.
_BURY = """
    INSERT INTO message_copies (id, mailbox_id, provider_key, folder, flags, labels, received_at, created_at, deleted_at,
        deleted_reason)
    SELECT i, m, k, coalesce(f, ''), coalesce(g, '{}'), coalesce(l, '{}'), r, %(at)s, %(at)s, %(reason)s
    FROM json_to_recordset(%(rows)s::json) AS x(i uuid, m uuid, k text, f text, g text[], l text[], r timestamptz)
    JOIN mailboxes ON mailboxes.id = m
    ON CONFLICT (mailbox_id, provider_key) DO UPDATE
    SET deleted_at = coalesce(message_copies.deleted_at, excluded.deleted_at), deleted_reason = excluded.deleted_reason
    RETURNING 1"""
_SHED = text("""
    UPDATE message_copies c SET message_id = NULL WHERE c.deleted_at IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM message_copies o WHERE o.message_id = c.message_id AND o.deleted_at IS NULL)""")
_DROP_MESSAGES = text("DELETE FROM messages m WHERE NOT EXISTS (SELECT 1 FROM message_copies c WHERE c.message_id = m.id)")
_DROP_PARTICIPANTS = text("DELETE FROM participants p WHERE NOT EXISTS (SELECT 1 FROM messages m WHERE m.id = p.message_id)")
_DROP_OBJECTS = text("""
    DELETE FROM objects o WHERE (kind = 'message' AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.sha256 = o.sha256))
    OR (kind = 'part' AND NOT EXISTS (SELECT 1 FROM message_parts p WHERE p.part_sha256 = o.sha256))""")
_ANNOUNCE = text("INSERT INTO outbox (id, queue, job, payload) VALUES (:id, 'indexing', 'reindex', '{}'::jsonb)")


@dataclass(slots=True)
class Rebuilt:
    packs: int = 0
    messages: int = 0
    copies: int = 0
    deleted_copies: int = 0
    lost_copies: int = 0
    """Copies whose message is in no pack any more."""
    damage: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Entry:
    at: datetime
    kind: Kind
    place: Place


FirstSeen = dict[bytes, tuple[Occurrence, Occurrences]]


@dataclass(frozen=True, slots=True)
class _Arrival:
    """A message and when and with which run it came, as far as its pack tells."""

    place: Place
    received_at: datetime | None = None
    run_id: UUID | None = None
    at: datetime | None = None
    sha256: bytes = b""
    content: Memory | StoredMessage | None = None
    parts: tuple[bytes, ...] = ()


Progress = Callable[[int, int], None]
"""(packs done, packs in all)"""


def rebuild(engine: Engine, archive: Archive, progress: Progress | None = None) -> Rebuilt:
    with engine.connect() as connection:
        filled = connection.execute(text("SELECT EXISTS (SELECT 1 FROM messages) OR EXISTS (SELECT 1 FROM packs)")).scalar_one()
    if filled:
        raise UsageError("rebuild wants an empty database: there are messages or packs in this one")
    return _Rebuild(engine, archive).run(progress or (lambda done, total: None))


class _Rebuild:
    def __init__(self, engine: Engine, archive: Archive) -> None:
        self.engine = engine
        self.archive = archive
        self.result = Rebuilt()
        self.objects = CachingReader(archive.frames, archive.objects)
        self.journal: list[_Entry] = []
        self.postponed: list[_Arrival] = []
        self.buried: set[tuple[UUID, UUID]] = set()
        """Mailbox and message of each deleted copy."""
        self.graves: dict[tuple[UUID, str], dict[str, Any]] = {}
        """What is known of deleted copies whose message is gone."""

    def run(self, progress: Progress) -> Rebuilt:
        packs = list(self.archive.backend.packs())
        for number, pack_id in enumerate(packs, start=1):
            self._pack(pack_id)
            progress(number, len(packs))
        self._postponed_messages()
        self._replay()
        with self.engine.begin() as connection:
            connection.execute(_SHED)
            connection.execute(_DROP_MESSAGES)
            connection.execute(_DROP_PARTICIPANTS)
            connection.execute(_DROP_OBJECTS)
            connection.execute(_ANNOUNCE, {"id": uuid7()})
            self.result.messages = connection.execute(text("SELECT count(*) FROM messages")).scalar_one()
        return self.result

    # first pass: frames

    def _pack(self, pack_id: UUID) -> None:
        try:
            pack = self.archive.backend.open(pack_id)
            listed = list(entries(pack, self.archive.frames))
        except Damage as damage:
            self.result.damage.append(str(damage))
            return
        self.result.packs += 1
        first = self._read_journal(pack, listed)
        with self.engine.begin() as connection:
            connection.execute(_ADD_PACK, _pack_row(pack, len(listed)))
            wanted = [entry for entry in listed if entry.kind in _OBJECT_KINDS]
            for start in range(0, len(wanted), _PORTION):
                self._portion(connection, pack, wanted[start : start + _PORTION], first)

    def _read_journal(self, pack: PackFile, listed: list[IndexEntry]) -> FirstSeen:
        """Remembers the journal frames for later; gives the first occurrence of each message, for its date of receipt."""
        first: FirstSeen = {}
        for entry in listed:
            if entry.kind not in _JOURNAL:
                continue
            place = Place(pack.id, entry.offset, entry.length)
            decoded = self._decode(place, Kind(entry.kind))
            if decoded is None:
                continue
            self.journal.append(_Entry(decoded.at, Kind(entry.kind), place))
            if isinstance(decoded, Occurrences):
                for copy in decoded.copies:
                    first.setdefault(copy.sha256, (copy, decoded))
        return first

    def _decode(self, place: Place, kind: Kind) -> Any:
        try:
            return _JOURNAL[kind](self.archive.frames.open(place).bytes())
        except Damage as damage:
            self.result.damage.append(str(damage))
            return None

    def _portion(
        self,
        connection: Connection,
        pack: PackFile,
        listed: list[IndexEntry],
        first: FirstSeen,
    ) -> None:
        objects: list[dict[str, Any]] = []
        messages: list[tuple[Frame, Place]] = []
        for entry in listed:
            try:
                frame = self.archive.frames.open_in(pack, entry.offset, entry.length)
            except Damage as damage:
                self.result.damage.append(str(damage))
                continue
            label = Kind(entry.kind).label
            raw_bytes = frame.header.content_length
            objects.append({"h": frame.sha256.hex(), "k": label, "p": entry.offset, "s": entry.length, "r": raw_bytes})
            if entry.kind == Kind.MESSAGE:
                messages.append((frame, Place(pack.id, entry.offset, entry.length)))
            elif entry.kind == Kind.PART:
                small = raw_bytes <= _IN_MEMORY_BYTES
                self.objects.keep(frame.sha256, frame.place, frame.bytes() if small else None)
        objects.sort(key=lambda row: (row["h"], row["k"]))
        with sql.Pipeline(connection) as pipeline:
            pipeline.send(sql.ADD_OBJECTS, rows=sql.rows(objects), pack_id=pack.id)
            self._messages(pipeline, messages, first)

    def _messages(self, pipeline: sql.Pipeline, messages: list[tuple[Frame, Place]], first: FirstSeen) -> None:
        """Rows of messages; those whose parts were not seen yet wait until all packs are read."""
        ready: list[_Arrival] = []
        for frame, place in messages:
            arrival = _arrival(place, first.get(frame.sha256))
            if frame.is_recipe or frame.header.content_length > _IN_MEMORY_BYTES:
                self._prepare(arrival, ready, may_postpone=True)
            else:
                ready.append(replace(arrival, sha256=frame.sha256, content=Memory(frame.bytes())))
        self._send(pipeline, ready)

    def _prepare(self, arrival: _Arrival, ready: list[_Arrival], *, may_postpone: bool) -> None:
        """A message that is put together from parts, or so large that it is read as a stream."""
        try:
            frame = self.archive.frames.open(arrival.place)
            content = _content(self.objects, frame)
            if may_postpone and not all(self.objects.knows(part) for part in content.parts):
                self.postponed.append(arrival)
                return
            held = Memory(b"".join(content.pieces())) if content.size <= _IN_MEMORY_BYTES else content
            ready.append(replace(arrival, sha256=frame.sha256, content=held, parts=content.parts))
        except Damage as damage:
            self.result.damage.append(str(damage))

    def _postponed_messages(self) -> None:
        for start in range(0, len(self.postponed), _PORTION):
            ready: list[_Arrival] = []
            for arrival in self.postponed[start : start + _PORTION]:
                self._prepare(arrival, ready, may_postpone=False)
            with self.engine.begin() as connection, sql.Pipeline(connection) as pipeline:
                self._send(pipeline, ready)

    def _send(self, pipeline: sql.Pipeline, ready: list[_Arrival]) -> None:
        self.result.damage += _send_messages(pipeline, ready)
        parts = sorted({(arrival.sha256, part) for arrival in ready for part in arrival.parts})
        if parts:
            rows = [{"m": message_uuid(sha256), "h": part.hex()} for sha256, part in parts]
            pipeline.send(_ADD_PARTS, rows=sql.rows(rows))

    # second pass: what happened, in order

    def _replay(self) -> None:
        self.journal.sort(key=lambda entry: (entry.at, entry.place.pack_id, entry.place.offset))
        tombstones = self._read_tombstones()
        self._config()
        for entry in self.journal:
            decoded = self._decode(entry.place, entry.kind)
            if isinstance(decoded, Occurrences):
                self._copies(decoded)
            elif isinstance(decoded, Changes):
                self._changes(decoded)
        for buried in tombstones:
            self._bury(buried)

    def _config(self) -> None:
        """First of all, as it knows the names and settings of today."""
        newest = next((entry for entry in reversed(self.journal) if entry.kind is Kind.CONFIG), None)
        config = self._decode(newest.place, Kind.CONFIG) if newest else None
        if config is not None:
            with self.engine.begin() as connection:
                restore_config(connection, config)

    def _read_tombstones(self) -> list[Tombstones]:
        entries_ = [entry for entry in self.journal if entry.kind is Kind.TOMBSTONE]
        found = [item for item in (self._decode(entry.place, entry.kind) for entry in entries_) if item is not None]
        for buried in found:
            for mailbox_id, _, sha256 in buried.copies:
                self.buried.add((mailbox_id, message_uuid(sha256)))
        return found

    def _copies(self, batch: Occurrences) -> None:
        rows = [
            {
                "i": uuid7(),
                "m": message_uuid(copy.sha256),
                "k": copy.provider_key,
                "f": copy.folder,
                "g": copy.flags,
                "l": copy.labels,
                "r": copy.received_at,
            }
            for copy in sorted(batch.copies, key=lambda copy: copy.provider_key)
        ]
        with self.engine.begin() as connection:
            mailbox_id = _add_origin(connection, batch.origin)
            with sql.Pipeline(connection, mailbox_id=mailbox_id, run_id=batch.run_id, at=batch.at) as pipeline:
                added = pipeline.ask(_ADD_COPIES, rows=sql.rows(rows))
                missing = pipeline.ask(_MISSING, rows=sql.rows(rows))
        self.result.copies += len(added)
        for row in missing:
            if (mailbox_id, row.m) not in self.buried:
                self.result.lost_copies += 1
            else:
                self.graves[mailbox_id, row.k] = next(item for item in rows if item["k"] == row.k)

    def _changes(self, batch: Changes) -> None:
        rows = [
            {
                "kind": change.kind,
                "key": change.provider_key,
                "folder": change.folder,
                "flags": change.flags,
                "labels": change.labels,
                "new_key": change.new_provider_key,
            }
            for change in batch.changes
        ]
        with self.engine.begin() as connection:
            mailbox_id = _add_origin(connection, batch.origin)
            sql.run(connection, sql.CHANGE_COPIES, rows=sql.rows(rows), mailbox_id=mailbox_id, at=batch.at)

    def _bury(self, buried: Tombstones) -> None:
        rows = [
            {**self.graves.get((mailbox_id, key), {}), "i": uuid7(), "m": mailbox_id, "k": key}
            for mailbox_id, key, _ in sorted(buried.copies)
        ]
        with self.engine.begin() as connection:
            done = sql.run(connection, _BURY, rows=sql.rows(rows), at=buried.at, reason=buried.reason)
        self.result.deleted_copies += len(done)


def _arrival(place: Place, seen: tuple[Occurrence, Occurrences] | None) -> _Arrival:
    if seen is None:
        return _Arrival(place)
    copy, batch = seen
    return _Arrival(place, copy.received_at, batch.run_id, batch.at)


def _content(objects: CachingReader, frame: Frame) -> StoredMessage:
    """A message that is read from the packs again whenever somebody looks at it."""
    place = frame.place
    if not frame.is_recipe:
        return StoredMessage(lambda: objects.frames.open(place).pieces, frame.header.content_length)
    recipe = recipe_of(frame)
    parts = tuple(sorted(set(recipe.part_hashes)))
    return StoredMessage(lambda: objects.assemble(objects.frames.open(place)), recipe.message_length, parts)


def _send_messages(pipeline: sql.Pipeline, arrivals: list[_Arrival]) -> list[str]:
    """Returns the damage that was met."""
    damage: list[str] = []
    groups: dict[tuple[UUID | None, datetime | None], list[MessageRows]] = {}
    for arrival in arrivals:
        assert arrival.content is not None
        try:
            row = describe(arrival.content, arrival.sha256, arrival.received_at)
        except Damage as error:
            damage.append(str(error))
            continue
        groups.setdefault((arrival.run_id, arrival.at), []).append(row)
    for (run_id, at), rows in groups.items():
        rows.sort(key=lambda row: row.sha256)
        messages = sql.rows([row.message for row in rows])
        pipeline.send(sql.ADD_MESSAGES, rows=messages, run_id=run_id, at=at or datetime.now(UTC))
        participants = [entry for row in rows for entry in row.participants]
        if participants:
            pipeline.send(sql.ADD_PARTICIPANTS, rows=sql.rows(participants))
    return damage


def _pack_row(pack: PackFile, frames: int) -> dict[str, Any]:
    seal = read_seal(pack.read_at, pack.size)
    size = pack.size if seal else torn_at(pack.read_at, pack.size, pack.name, 0)
    return {
        "id": pack.id,
        "name": pack.name,
        "state": "sealed" if seal else "open",
        "size": size,
        "frames": frames,
        "sha256": seal.sha256 if seal else None,
    }


def _add_origin(connection: Connection, origin: Origin) -> UUID:
    """The mailbox's id. Ids are those of before; a name that is taken gets the beginning of the id behind it."""
    name = origin.source_name
    if connection.execute(_SOURCE_NAME, {"name": name, "id": origin.source_id}).one_or_none():
        name = f"{name} ({str(origin.source_id)[-12:]})"
    connection.execute(_ADD_SOURCE, {"id": origin.source_id, "kind": origin.source_kind, "name": name})
    connection.execute(
        _ADD_MAILBOX,
        {
            "id": origin.mailbox_id,
            "source_id": origin.source_id,
            "address": origin.address,
            "display_name": origin.display_name,
            "provider_id": origin.provider_id,
        },
    )
    return origin.mailbox_id
