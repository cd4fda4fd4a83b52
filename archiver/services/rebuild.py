"""An empty Postgres from the packs alone: sources (without credentials), mailboxes, messages, copies, changes, deletions.

First a look at the journal of all packs. Then frames into `objects` and `messages`, pack by pack, and behind that, in a thread
of its own, the journal in the order in which it happened; then the tombstones, and what has no copy goes. What a crash left
without a commit comes in as well: more than before, never less.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Engine, text

from archiver.errors import UsageError
from archiver.models.ids import message_uuid, uuid7
from archiver.services import batch_sql as sql
from archiver.services.message_rows import MessageRows, describe, describe_all
from archiver.services.replay import Entry, Reading, Rebuilt, Replay
from archiver.store.archive import Archive, entries
from archiver.store.backend import PackFile
from archiver.store.content import Memory, StoredMessage
from archiver.store.errors import Damage
from archiver.store.frames import Kind
from archiver.store.journal import Changes, Config, Occurrence, Occurrences, Tombstones, written_at
from archiver.store.pack import IndexEntry, Place, read_seal, torn_at
from archiver.store.reader import CachingReader, Frame, recipe_of
from archiver.store.recipe import Recipe

_PORTION = 100  # rows of more messages do not fit into the socket, and we would wait for Postgres
_PORTIONS = 10  # in a transaction
_IN_MEMORY_BYTES = 8 << 20
_OBJECT_KINDS = (Kind.MESSAGE, Kind.PART, Kind.DICTIONARY, Kind.TEXT)
_JOURNAL: dict[int, Callable[[bytes], Any]] = {
    Kind.OCCURRENCE: Occurrences.decode,
    Kind.COPY_CHANGE: Changes.decode,
    Kind.TOMBSTONE: Tombstones.decode,
    Kind.CONFIG: Config.decode,
}

_HURRY = text("SET LOCAL synchronous_commit = off")  # a crash means to begin anew anyway
_ADD_PACK = text("""
    INSERT INTO packs (id, name, state, size_bytes, frames, sha256, sealed_at)
    VALUES (:id, :name, :state, :size, :frames, :sha256, CASE WHEN :state = 'sealed' THEN now() END)""")
_ADD_PARTS = """
    INSERT INTO message_parts (message_id, part_sha256)
    SELECT m, decode(h, 'hex') FROM json_to_recordset(%(rows)s::json) AS x(m uuid, h text) JOIN messages ON messages.id = m
    ON CONFLICT DO NOTHING"""
_SHED = text("""
    UPDATE message_copies c SET message_id = NULL WHERE c.deleted_at IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM message_copies o WHERE o.message_id = c.message_id AND o.deleted_at IS NULL)""")
_DROP_MESSAGES = text("DELETE FROM messages m WHERE NOT EXISTS (SELECT 1 FROM message_copies c WHERE c.message_id = m.id)")
_DROP_PARTICIPANTS = text("DELETE FROM participants p WHERE NOT EXISTS (SELECT 1 FROM messages m WHERE m.id = p.message_id)")
_DROP_OBJECTS = text("""
    DELETE FROM objects o WHERE (kind = 'message' AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.sha256 = o.sha256))
    OR (kind = 'part' AND NOT EXISTS (SELECT 1 FROM message_parts p WHERE p.part_sha256 = o.sha256))""")
_HOMELESS = text("SELECT count(*) FROM message_copies c WHERE NOT EXISTS (SELECT 1 FROM mailboxes m WHERE m.id = c.mailbox_id)")
_ANNOUNCE = text("INSERT INTO outbox (id, queue, job, payload) VALUES (:id, 'indexing', 'reindex', '{}'::jsonb)")


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
        self.journal: dict[UUID, list[Entry]] = {}
        self.reading = Reading()
        self.replaying: Future[None]
        self.occurrences: dict[Place, Occurrences] = {}
        self.postponed: list[_Arrival] = []

    def run(self, progress: Progress) -> Rebuilt:
        packs = list(self.archive.backend.packs())
        for pack_id in packs:
            self._read_journal(pack_id)
        journal = [entry for entries_ in self.journal.values() for entry in entries_]
        replay = Replay(self.engine, journal, self._decoded, self.reading, self.result)
        with ThreadPoolExecutor(1, "replay") as beside:
            self.replaying = beside.submit(replay.run)
            try:
                self._read_packs(packs, progress)
            except BaseException:
                self.reading.finish(failed=True)
                raise
            self.reading.finish(failed=False)
            self.replaying.result()
        with self.engine.begin() as connection:
            connection.execute(_SHED)
            connection.execute(_DROP_MESSAGES)
            connection.execute(_DROP_PARTICIPANTS)
            connection.execute(_DROP_OBJECTS)
            if homeless := connection.execute(_HOMELESS).scalar_one():
                self.result.damage.append(f"{homeless} copies are of a mailbox that is not there")
            connection.execute(_ANNOUNCE, {"id": uuid7()})
            self.result.messages = connection.execute(text("SELECT count(*) FROM messages")).scalar_one()
        return self.result

    def _read_journal(self, pack_id: UUID) -> None:
        """Remembers where the journal frames of a pack are, and when they were written."""
        self.journal[pack_id] = found = []
        try:
            listed = list(entries(self.archive.backend.open(pack_id), self.archive.frames))
        except Damage:
            return  # told when its messages are read
        for entry in listed:
            if entry.kind in _JOURNAL:
                place, kind = Place(pack_id, entry.offset, entry.length), Kind(entry.kind)
                try:
                    found.append(Entry(written_at(self.archive.frames.open(place).bytes()), kind, place))
                except Damage as damage:
                    self.result.damage.append(str(damage))

    # frames

    def _read_packs(self, packs: list[UUID], progress: Progress) -> None:
        for number, pack_id in enumerate(packs, start=1):
            self._pack(pack_id)
            progress(number, len(packs))
        self._postponed_messages()

    def _pack(self, pack_id: UUID) -> None:
        try:
            pack = self.archive.backend.open(pack_id).read_ahead()
            listed = list(entries(pack, self.archive.frames))
        except Damage as damage:
            self.result.damage.append(str(damage))
            return
        self.result.packs += 1
        first = self._first_seen(pack_id)
        wanted = [entry for entry in listed if entry.kind in _OBJECT_KINDS]
        with self.engine.begin() as connection:
            connection.execute(_ADD_PACK, _pack_row(pack, len(listed)))
        for start in range(0, len(wanted), _PORTION * _PORTIONS):
            some = wanted[start : start + _PORTION * _PORTIONS]
            with self.engine.begin() as connection:
                connection.execute(_HURRY)
                with sql.Pipeline(connection) as pipeline:  # Postgres inserts a portion while we read the next
                    for at in range(0, len(some), _PORTION):
                        self._portion(pipeline, pack, some[at : at + _PORTION], first)
            self.reading.reached(pack_id, some[-1].offset)
            if self.replaying.done():
                self.replaying.result()  # raises what stopped it
        self.reading.reached(pack_id, pack.size)

    def _first_seen(self, pack_id: UUID) -> FirstSeen:
        """The first occurrence of each message of a pack, for its date of receipt."""
        first: FirstSeen = {}
        self.occurrences = {}
        for entry in self.journal[pack_id]:
            if entry.kind is Kind.OCCURRENCE and (decoded := self._decode(entry.place, entry.kind)) is not None:
                self.occurrences[entry.place] = decoded
                for copy in decoded.copies:
                    first.setdefault(copy.sha256, (copy, decoded))
        return first

    def _decoded(self, place: Place, kind: Kind) -> Any:
        """Those of the pack that is being read are at hand."""
        return self.occurrences.get(place) or self._decode(place, kind)

    def _decode(self, place: Place, kind: Kind) -> Any:
        try:
            return _JOURNAL[kind](self.archive.frames.open(place).bytes())
        except Damage as damage:
            self.result.damage.append(str(damage))
            return None

    def _portion(self, pipeline: sql.Pipeline, pack: PackFile, listed: list[IndexEntry], first: FirstSeen) -> None:
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
        pipeline.send(sql.ADD_OBJECTS, rows=sql.rows(objects), pack_id=pack.id)
        self._messages(pipeline, messages, first)

    def _messages(self, pipeline: sql.Pipeline, messages: list[tuple[Frame, Place]], first: FirstSeen) -> None:
        """Rows of messages; those whose parts were not seen yet wait until all packs are read."""
        ready: list[_Arrival] = []
        for frame, place in messages:
            seen = first.get(frame.sha256)
            if frame.is_recipe or frame.header.content_length > _IN_MEMORY_BYTES:
                self._prepare(frame, _arrival(place, seen), ready, may_postpone=True)
            else:
                ready.append(_arrival(place, seen, frame.sha256, Memory(frame.bytes())))
        self._send(pipeline, ready)

    def _prepare(self, frame: Frame, arrival: _Arrival, ready: list[_Arrival], *, may_postpone: bool) -> None:
        """A message that is put together from parts, or so large that it is read as a stream."""
        try:
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
                try:
                    frame = self.archive.frames.open(arrival.place)
                except Damage as damage:
                    self.result.damage.append(str(damage))
                    continue
                self._prepare(frame, arrival, ready, may_postpone=False)
            with self.engine.begin() as connection, sql.Pipeline(connection) as pipeline:
                self._send(pipeline, ready)

    def _send(self, pipeline: sql.Pipeline, ready: list[_Arrival]) -> None:
        self.result.damage += _send_messages(pipeline, ready)
        parts = sorted({(arrival.sha256, part) for arrival in ready for part in arrival.parts})
        if parts:
            rows = [{"m": message_uuid(sha256), "h": part.hex()} for sha256, part in parts]
            pipeline.send(_ADD_PARTS, rows=sql.rows(rows))


def _arrival(
    place: Place, seen: tuple[Occurrence, Occurrences] | None, sha256: bytes = b"", content: Memory | None = None
) -> _Arrival:
    if seen is None:
        return _Arrival(place, sha256=sha256, content=content)
    copy, batch = seen
    return _Arrival(place, copy.received_at, batch.run_id, batch.at, sha256, content)


def _content(objects: CachingReader, frame: Frame) -> StoredMessage:
    """A message that is read from the packs again whenever somebody looks at it."""
    place = frame.place
    if not frame.is_recipe:
        return StoredMessage(lambda: objects.frames.open(place).pieces, frame.header.content_length)
    if frame.header.content_length <= _IN_MEMORY_BYTES:
        data = frame.bytes()
        recipe, _ = Recipe.decode(data)
        again = lambda: objects.assemble(frame._replace(pieces=iter((data,))))  # noqa: E731
        return StoredMessage(again, recipe.message_length, _parts(recipe))
    recipe = recipe_of(frame)
    return StoredMessage(lambda: objects.assemble(objects.frames.open(place)), recipe.message_length, _parts(recipe))


def _parts(recipe: Recipe) -> tuple[bytes, ...]:
    return tuple(sorted(set(recipe.part_hashes)))


def _send_messages(pipeline: sql.Pipeline, arrivals: list[_Arrival]) -> list[str]:
    """Returns the damage that was met."""
    damage: list[str] = []
    groups: dict[tuple[UUID | None, datetime | None], list[MessageRows]] = {}
    held = [(one, (one.content, one.sha256, one.received_at)) for one in arrivals if isinstance(one.content, Memory)]
    for (arrival, _), row in zip(held, describe_all([mail for _, mail in held]), strict=True):
        groups.setdefault((arrival.run_id, arrival.at), []).append(row)
    for arrival in arrivals:
        if isinstance(arrival.content, StoredMessage):
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
