"""Compares a segment of a pack, frame by frame, with Postgres: the task of the processes of a verification."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Engine

from archiver.db.sql import query
from archiver.maintenance.rows import ExpectedObject
from archiver.quantity import quantity
from archiver.store.archive import Archive
from archiver.store.backend import PackFile
from archiver.store.errors import Damage, Spot
from archiver.store.frames import FrameKind
from archiver.store.pack import PACK_HEADER_BYTES, PRELIMINARY, FrameHeader, payload_crc, walk
from archiver.store.reader import CachingReader, Frame

SEGMENT_BYTES = 4 << 20
_LABELS: dict[int, str] = {kind: kind.label for kind in FrameKind}
_OBJECTS = """
    SELECT sha256, kind, position, stored_bytes FROM objects
    WHERE pack_id = :id AND position >= :start AND position < :end ORDER BY position"""


class VerifySegment(NamedTuple):
    """Consecutive frames of a pack, up to the beginning of another frame or to the end of the pack."""

    pack_id: UUID
    start: int
    end: int
    known_end: int
    """A frame at or after this offset belongs to a batch that was never finished, unless Postgres knows it."""
    is_left: bool = False
    """The pack is known to be damaged: no frame is then explained as an unfinished batch."""

    def is_unfinished(self, offset: int) -> bool:
        return offset >= self.known_end and not self.is_left


class VerifyFinding(NamedTuple):
    offset: int
    what: str
    sha256: bytes | None = None
    """Of the affected object, if it is known."""


class Unclaimed(NamedTuple):
    """An intact message frame that `objects` does not point to: a duplicate, a deleted message, or one never committed."""

    pack_id: UUID
    offset: int
    sha256: bytes


@dataclass(slots=True)
class VerifyOutcome:
    frames: int = 0
    messages: int = 0
    bytes: int = 0
    raw_bytes: int = 0
    findings: list[VerifyFinding] = field(default_factory=list)
    unclaimed: list[Unclaimed] = field(default_factory=list)
    unknown_end: int = 0
    """The end of the last intact frame of mail or of the journal beyond what Postgres knows; 0 if there is none."""
    notes: list[str] = field(default_factory=list)


def segments(pack: PackFile, known_end: int, *, is_left: bool) -> Iterator[VerifySegment]:
    """All frames of a pack, a few MiB at a time."""
    start = PACK_HEADER_BYTES
    for item in walk(pack.read_at, pack.size, pack.name):
        if isinstance(item, FrameHeader) and item.offset - start >= SEGMENT_BYTES:
            yield VerifySegment(pack.id, start, item.offset, known_end, is_left)
            start = item.offset
    yield VerifySegment(pack.id, start, max(pack.size, start), known_end, is_left)


class SegmentChecker:
    """Checksums only, or with `full` every hash."""

    def __init__(self, engine: Engine, archive: Archive, *, full: bool) -> None:
        self.engine = engine
        self._archive = archive
        self._full = full
        self._objects = CachingReader(archive.frames, archive.objects, holds_found=True)
        self._pack: PackFile | None = None
        self._outcome = VerifyOutcome()

    def check(self, segment: VerifySegment) -> VerifyOutcome:
        self._outcome = VerifyOutcome()
        try:
            self._check(segment, self._open(segment.pack_id))
        except Damage as damage:
            self._outcome.findings.append(VerifyFinding(segment.start, damage.what))
        return self._outcome

    def _check(self, segment: VerifySegment, pack: PackFile) -> None:
        outcome = self._outcome
        is_last = segment.end >= pack.size
        with self.engine.connect() as connection:
            values = {"id": segment.pack_id, "start": segment.start, "end": 1 << 62 if is_last else segment.end}
            expected = {item.position: item for item in query(connection, _OBJECTS, ExpectedObject, **values)}
        for item in walk(pack.read_at, segment.end, pack.name, segment.start):
            if isinstance(item, Damage):
                offset = item.spot.offset
                if segment.is_unfinished(offset):
                    outcome.notes.append(
                        f"{pack.name}: an unfinished batch at its end ({quantity(pack.size - offset, 'byte')}), harmless"
                    )
                else:
                    outcome.findings.append(VerifyFinding(offset, item.what))
                continue
            outcome.frames += 1
            outcome.bytes += item.header.frame_length
            if item.offset >= segment.known_end and item.header.kind not in PRELIMINARY:
                outcome.unknown_end = item.end
            self._check_frame(segment, pack, item, expected.pop(item.offset, None))
        reported = {finding.offset for finding in outcome.findings}
        outcome.findings += [
            VerifyFinding(at, f"no {missing.kind} frame here") for at, missing in expected.items() if at not in reported
        ]

    def _open(self, pack_id: UUID) -> PackFile:
        if self._pack is None or self._pack.id != pack_id:
            self._pack = self._archive.backend.open(pack_id).read_ahead()
        return self._pack

    def _check_frame(self, segment: VerifySegment, pack: PackFile, item: FrameHeader, known: Any) -> None:
        if known is not None and not self._is_expected(item, known):
            self._outcome.findings.append(VerifyFinding(item.offset, "another object is stored here"))
            return
        try:
            if not self._full:
                if payload_crc(pack.read_at, item) != item.header.payload_crc:
                    raise Damage(Spot(pack.name, item.offset), "the payload's checksum is wrong")
                if known is None and item.header.kind == FrameKind.MESSAGE:
                    self._note_unclaimed(self._archive.frames.open_in(pack, item.offset, item.header.frame_length, item.header))
                return
            self._check_content(pack, item, known)
        except Damage as damage:
            if segment.is_unfinished(item.offset) and known is None:
                self._outcome.notes.append(f"{pack.name}: an unfinished batch at {item.offset}, harmless")
                return
            self._outcome.findings.append(VerifyFinding(item.offset, damage.what, damage.sha256))

    def _note_unclaimed(self, frame: Frame) -> None:
        self._outcome.unclaimed.append(Unclaimed(frame.place.pack_id, frame.place.offset, frame.sha256))

    def _is_expected(self, item: FrameHeader, known: Any) -> bool:
        if _LABELS.get(item.header.kind) != known.kind or known.stored_bytes != item.header.frame_length:
            return False
        if self._full:  # the hash itself is compared later
            return True
        key = self._archive.keys.find(item.header.fingerprint)
        return key.content_tag(bytes(known.sha256)) == item.header.tag

    def _check_content(self, pack: PackFile, item: FrameHeader, known: Any) -> None:
        frame = self._archive.frames.open_in(pack, item.offset, item.header.frame_length, item.header)
        if known is not None and frame.sha256 != bytes(known.sha256):
            raise Damage(frame.spot, "another object is stored here", bytes(known.sha256))
        if item.header.kind == FrameKind.MESSAGE and known is None:
            self._note_unclaimed(frame)
            if frame.is_recipe:
                for _ in frame.pieces:  # the parts of a deleted message may be gone
                    pass
                return
        if item.header.kind == FrameKind.PART:
            first = next(frame.pieces, b"")
            others = sum(1 for _ in frame.pieces)
            self._objects.add(frame.sha256, frame.place, None if others else first)
            return
        pieces = self._objects.assemble(frame) if frame.is_recipe else frame.pieces
        size = sum(len(piece) for piece in pieces)
        if item.header.kind == FrameKind.MESSAGE:
            self._outcome.messages += 1
            self._outcome.raw_bytes += size
