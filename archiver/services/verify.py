"""Proves that the archive is what it was: quickly by sizes, checksums, seals and counts, or in full by every hash."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Engine, text

from archiver.models.states import PackState
from archiver.store.archive import Archive
from archiver.store.backend import PackFile
from archiver.store.errors import Damage, LostPack, Spot
from archiver.store.frames import Kind
from archiver.store.pack import PACK_HEADER_BYTES, SEAL_BYTES, Found, PackHead, payload_crc, read_seal, walk
from archiver.store.reader import CachingReader

_PIECE_BYTES = 1 << 20
_LABELS: dict[int, str] = {kind: kind.label for kind in Kind}
_PACKS = text("SELECT id, name, state, size_bytes, sha256, verified_at FROM packs WHERE state <> 'retired' ORDER BY id")
_OBJECTS = text("SELECT sha256, kind, position, stored_bytes FROM objects WHERE pack_id = :id ORDER BY position")
_TOUCHED = text("""
    SELECT m.id FROM messages m JOIN objects o ON o.sha256 = m.sha256 AND o.kind = 'message'
    WHERE o.pack_id = :pack_id AND o.position >= :start AND o.position < :end
    UNION
    SELECT p.message_id FROM message_parts p JOIN objects o ON o.sha256 = p.part_sha256 AND o.kind = 'part'
    WHERE o.pack_id = :pack_id AND o.position >= :start AND o.position < :end""")
_TOUCHED_BY_HASH = text("""
    SELECT id FROM messages WHERE sha256 = :sha256 UNION SELECT message_id FROM message_parts WHERE part_sha256 = :sha256""")
_VERIFIED = text("UPDATE packs SET verified_at = now() WHERE id = :id")
_SEALED = text(
    "UPDATE packs SET state = 'sealed', sha256 = :sha256, size_bytes = :size, sealed_at = coalesce(sealed_at, now())"
    " WHERE id = :id"
)
_COUNTS = text("""
    SELECT (SELECT count(*) FROM messages) AS messages,
        (SELECT count(*) FROM messages m WHERE NOT EXISTS (
            SELECT 1 FROM objects o WHERE o.sha256 = m.sha256 AND o.kind = 'message')) AS without_bytes,
        (SELECT count(*) FROM message_parts p WHERE NOT EXISTS (
            SELECT 1 FROM objects o WHERE o.sha256 = p.part_sha256 AND o.kind = 'part')) AS without_parts""")


@dataclass(frozen=True, slots=True)
class Problem:
    pack: str
    offset: int
    what: str
    messages: tuple[UUID, ...] = ()
    """The ones that it touches."""


@dataclass(slots=True)
class Report:
    packs: int = 0
    packs_skipped: int = 0
    """Verified already by the run that this one resumes."""
    frames: int = 0
    messages: int = 0
    bytes: int = 0
    """Read from the packs."""
    raw_bytes: int = 0
    """Of the messages whose hash was proved."""
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Worth knowing, and no damage."""

    @property
    def is_healthy(self) -> bool:
        return not self.problems


Progress = Callable[[int, int], None]
"""(bytes done, bytes in all)"""


def verify(
    engine: Engine, archive: Archive, *, full: bool = False, since: datetime | None = None, progress: Progress | None = None
) -> Report:
    """`since`: packs that were verified after this are passed over, so that a run that was stopped goes on."""
    return _Verification(engine, archive, full, progress or (lambda done, total: None)).run(since)


class _Verification:
    def __init__(self, engine: Engine, archive: Archive, full: bool, progress: Progress) -> None:
        self.engine = engine
        self.archive = archive
        self.full = full
        self.progress = progress
        self.report = Report()
        self.objects = CachingReader(archive.frames, archive.objects)

    def run(self, since: datetime | None) -> Report:
        with self.engine.connect() as connection:
            rows = connection.execute(_PACKS).all()
        total, done = sum(row.size_bytes for row in rows), 0
        for row in rows:
            if since is not None and row.verified_at is not None and row.verified_at >= since:
                self.report.packs_skipped += 1
            else:
                self._pack(row, lambda read, before=done: self.progress(before + read, total))  # type: ignore[misc]
            done += row.size_bytes
            self.progress(done, total)
        self._unknown_packs({row.id for row in rows})
        self._counts()
        return self.report

    def _pack(self, row: Any, progress: Callable[[int], None]) -> None:
        before = len(self.report.problems)
        self.report.packs += 1
        try:
            pack = self.archive.backend.open(row.id).read_ahead()
            self._check_pack(row, pack, progress)
        except LostPack:
            self._problem(row.id, row.name, 0, "the pack is missing", (0, 1 << 62))
            return
        except Damage as damage:
            self._problem(row.id, row.name, damage.spot.offset, damage.what, (0, 1 << 62))
            return
        if len(self.report.problems) == before:
            with self.engine.begin() as connection:
                connection.execute(_VERIFIED, {"id": row.id})

    def _check_pack(self, row: Any, pack: PackFile, progress: Callable[[int], None]) -> None:
        head = PackHead.decode(pack.read_at(0, PACK_HEADER_BYTES), pack.name)
        self.archive.keys.find(head.fingerprint, head.key_id)
        if head.id != row.id:
            raise Damage(Spot(pack.name, 0), f"the file is the pack {head.id}")
        if pack.size < row.size_bytes:
            end = (pack.size, 1 << 62)
            self._problem(row.id, pack.name, pack.size, f"the file ends {row.size_bytes - pack.size} bytes too early", end)
        self._check_seal(row, pack)
        self._check_frames(row, pack, progress)

    def _check_seal(self, row: Any, pack: PackFile) -> None:
        seal = read_seal(pack.read_at, pack.size)
        if seal is None:
            if row.state == PackState.SEALED:
                self._problem(row.id, pack.name, max(0, pack.size - SEAL_BYTES), "the seal is missing or damaged", (0, 0))
            return
        digest = hashlib.sha256()
        for at in range(0, pack.size - SEAL_BYTES, _PIECE_BYTES):
            digest.update(pack.read_at(at, min(_PIECE_BYTES, pack.size - SEAL_BYTES - at)))
        if digest.digest() != seal.sha256 or (row.sha256 is not None and bytes(row.sha256) != seal.sha256):
            self._problem(row.id, pack.name, 0, "the digest of the whole pack is wrong", (0, 0))
        elif row.state == PackState.OPEN:
            with self.engine.begin() as connection:  # the process that sealed it could not say so any more
                connection.execute(_SEALED, {"id": row.id, "sha256": seal.sha256, "size": pack.size})

    def _check_frames(self, row: Any, pack: PackFile, progress: Callable[[int], None]) -> None:
        with self.engine.connect() as connection:
            expected = {item.position: item for item in connection.execute(_OBJECTS, {"id": row.id}).all()}
        for item in walk(pack.read_at, pack.size, pack.name):
            if isinstance(item, Damage):
                offset = item.spot.offset
                if offset >= row.size_bytes:
                    self.report.notes.append(
                        f"{pack.name}: an unfinished batch at its end ({pack.size - offset} bytes), harmless"
                    )
                else:
                    self._problem(row.id, pack.name, offset, item.what, (offset, offset + 1))
                continue
            length = item.header.frame_length
            self.report.frames += 1
            self.report.bytes += length
            self._check_frame(row, pack, item, expected.pop(item.offset, None))
            progress(item.offset + length)
        for position, missing in expected.items():
            if not self._is_told(pack.name, position):
                self._problem(row.id, pack.name, position, f"no {missing.kind} frame here", (position, position + 1))

    def _check_frame(self, row: Any, pack: PackFile, item: Found, known: Any) -> None:
        span = (item.offset, item.offset + 1)
        if known is not None and not self._is_expected(item, known):
            self._problem(row.id, pack.name, item.offset, "another object lies here", span)
            return
        try:
            if not self.full:
                if payload_crc(pack.read_at, item) != item.header.payload_crc:
                    raise Damage(Spot(pack.name, item.offset), "the payload's checksum is wrong")
                return
            self._check_content(pack, item, known)
        except Damage as damage:
            if item.offset >= row.size_bytes and known is None:
                self.report.notes.append(f"{pack.name}: an unfinished batch at {item.offset}, harmless")
                return
            self._problem(row.id, pack.name, item.offset, damage.what, span, damage.sha256)

    def _is_expected(self, item: Found, known: Any) -> bool:
        if _LABELS.get(item.header.kind) != known.kind or known.stored_bytes != item.header.frame_length:
            return False
        if self.full:  # then the hash itself is compared
            return True
        key = self.archive.keys.find(item.header.fingerprint)
        return key.content_tag(bytes(known.sha256)) == item.header.tag

    def _check_content(self, pack: PackFile, item: Found, known: Any) -> None:
        frame = self.archive.frames.open_in(pack, item.offset, item.header.frame_length, item.header)
        if known is not None and frame.sha256 != bytes(known.sha256):
            raise Damage(frame.spot, "another object lies here", bytes(known.sha256))
        if item.header.kind == Kind.MESSAGE and frame.is_recipe and known is None:
            for _ in frame.pieces:  # a deleted message: its parts may be gone
                pass
            return
        if item.header.kind == Kind.PART:
            first = next(frame.pieces, b"")
            others = sum(1 for _ in frame.pieces)
            self.objects.keep(frame.sha256, frame.place, None if others else first)
            return
        pieces = self.objects.assemble(frame) if frame.is_recipe else frame.pieces
        size = sum(len(piece) for piece in pieces)
        if item.header.kind == Kind.MESSAGE:
            self.report.messages += 1
            self.report.raw_bytes += size

    def _problem(
        self, pack_id: UUID, pack: str, offset: int, what: str, span: tuple[int, int], sha256: bytes | None = None
    ) -> None:
        with self.engine.connect() as connection:
            parameters = {"pack_id": pack_id, "start": span[0], "end": span[1]}
            touched = set(connection.execute(_TOUCHED, parameters).scalars())
            if sha256 is not None:
                touched |= set(connection.execute(_TOUCHED_BY_HASH, {"sha256": sha256}).scalars())
        self.report.problems.append(Problem(pack, offset, what, tuple(sorted(touched))))

    def _is_told(self, pack: str, offset: int) -> bool:
        return any(problem.pack == pack and problem.offset == offset for problem in self.report.problems)

    def _unknown_packs(self, known: set[UUID]) -> None:
        for pack_id in self.archive.backend.packs():
            if pack_id not in known and not self._is_retired(pack_id):
                self.report.notes.append(f"{pack_id}.pack is unknown to the database; harmless, and `rebuild` would read it")

    def _is_retired(self, pack_id: UUID) -> bool:
        with self.engine.connect() as connection:
            return connection.execute(text("SELECT 1 FROM packs WHERE id = :id"), {"id": pack_id}).one_or_none() is not None

    def _counts(self) -> None:
        with self.engine.connect() as connection:
            counts = connection.execute(_COUNTS).one()
        if counts.without_bytes:
            self.report.problems.append(Problem("-", 0, f"{counts.without_bytes} messages have no bytes in any pack"))
        if counts.without_parts:
            self.report.problems.append(Problem("-", 0, f"{counts.without_parts} parts are in no pack"))
