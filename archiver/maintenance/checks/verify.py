"""Verifies the archive: quickly by sizes, checksums, seals and counts, or fully by every hash."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from sqlalchemy import Engine, text

from archiver.db.sql import query, query_one, query_optional
from archiver.db.states import PackState
from archiver.maintenance.backups.pack_removal import returned_packs
from archiver.maintenance.checks import outcomes
from archiver.maintenance.checks.verify_segment import (
    SEGMENT_BYTES,
    SegmentChecker,
    Unclaimed,
    VerifyOutcome,
    VerifySegment,
    segments,
)
from archiver.maintenance.erasure.check import check_erasures
from archiver.maintenance.object_locks import lock_problems
from archiver.maintenance.process_pool import MAX_PROCESSES, useful_processes, workers
from archiver.maintenance.recovery.journal_loss import copies_without_journal
from archiver.maintenance.rows import PACKS, PackRow
from archiver.quantity import quantity
from archiver.store.archive import Archive
from archiver.store.backend import PackFile
from archiver.store.errors import Damage, LostPack, Spot
from archiver.store.keys import PackKey
from archiver.store.pack import PACK_HEADER_BYTES, SEAL_BYTES, PackHead, read_seal
from archiver.store.writer import pack_name

_PIECE_BYTES = 1 << 20
_HASHES = 50_000
_PACKS = f"{PACKS} WHERE state <> 'retired' ORDER BY id"
_TOUCHED = """
    SELECT m.id FROM messages m JOIN objects o ON o.sha256 = m.sha256 AND o.kind = 'message'
    WHERE o.pack_id = :pack_id AND o.position >= :start AND o.position < :end
    UNION
    SELECT p.message_id FROM message_parts p JOIN objects o ON o.sha256 = p.part_sha256 AND o.kind = 'part'
    WHERE o.pack_id = :pack_id AND o.position >= :start AND o.position < :end"""
_TOUCHED_BY_HASH = """
    SELECT id FROM messages WHERE sha256 = :sha256 UNION SELECT message_id FROM message_parts WHERE part_sha256 = :sha256"""
# A pack that was left because of damage and is intact again was restored from a backup.
_VERIFIED = text("""
    UPDATE packs SET verified_at = now(), state = CASE state WHEN 'left' THEN 'open' ELSE state END WHERE id = :id""")
_SEALED = text(
    "UPDATE packs SET state = 'sealed', sha256 = :sha256, size_bytes = :size, sealed_at = coalesce(sealed_at, now())"
    " WHERE id = :id"
)
_KNOWN_END = "SELECT size_bytes FROM packs WHERE id = :id AND state <> 'retired'"
_LEFT = text("UPDATE packs SET state = 'left' WHERE id = :id AND state = 'open'")
# Deleted messages are known by their hash, once `adopt` has read those of older versions from the tombstones.
_UNKNOWN = """
    SELECT h FROM unnest(CAST(:hashes AS bytea[])) AS h
    WHERE NOT EXISTS (SELECT 1 FROM objects o WHERE o.sha256 = h AND o.kind = 'message')
    AND h NOT IN (SELECT deleted_sha256 FROM message_copies WHERE deleted_sha256 IS NOT NULL)
    AND (SELECT knows_deletions FROM archive_state)"""
_ADVICE = "`archiver compact --all` adds it"
_COUNTS = """
    SELECT (SELECT count(*) FROM messages m WHERE NOT EXISTS (
            SELECT 1 FROM objects o WHERE o.sha256 = m.sha256 AND o.kind = 'message')) AS without_bytes,
        (SELECT count(*) FROM message_parts p WHERE NOT EXISTS (
            SELECT 1 FROM objects o WHERE o.sha256 = p.part_sha256 AND o.kind = 'part')) AS without_parts,
        (SELECT count(*) FROM message_copies c WHERE c.message_id IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM messages m WHERE m.id = c.message_id)) AS without_message"""


@dataclass(frozen=True, slots=True)
class MissingRows:
    """What rows refer to, and is not there."""

    without_bytes: int
    without_parts: int
    without_message: int


@dataclass(frozen=True, slots=True)
class VerifyProblem:
    pack: str
    offset: int
    what: str
    messages: tuple[UUID, ...] = ()
    """The affected messages."""


@dataclass(slots=True)
class VerifyReport:
    packs: int = 0
    packs_skipped: int = 0
    """Already verified by the run that this one resumes."""
    frames: int = 0
    messages: int = 0
    bytes: int = 0
    """Read from the packs."""
    raw_bytes: int = 0
    """Of the messages whose hash was verified."""
    problems: list[VerifyProblem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Findings that are no damage."""

    @property
    def is_healthy(self) -> bool:
        return not self.problems


Progress = Callable[[int, int], None]
"""(bytes done, bytes in total)"""


def verify(
    engine: Engine,
    archive: Archive,
    *,
    full: bool = False,
    since: datetime | None = None,
    progress: Progress | None = None,
    processes: int | None = None,
    settle_seconds: float = 0,
) -> VerifyReport:
    """`since`: packs that were verified after this time are skipped, which resumes an interrupted run.

    `processes`: the number of readers; by default, as many as are useful on this machine.
    `settle_seconds`: in a bucket, how long a batch may take from its pack into the database.
    """
    work = _Verification(engine, archive, full, progress or (lambda done, total: None), processes, settle_seconds)
    report = work.run(since)
    with engine.begin() as connection:
        outcomes.record(connection, outcomes.VERIFY, succeeded=report.is_healthy, problems=len(report.problems), full=full)
    return report


class _Verification:
    check: Callable[[VerifySegment], Future[VerifyOutcome]]

    def __init__(
        self,
        engine: Engine,
        archive: Archive,
        full: bool,
        progress: Progress,
        processes: int | None,
        settle_seconds: float,
    ) -> None:
        self.engine = engine
        self.archive = archive
        self.full = full
        self.progress = progress
        self.processes = processes
        self.settle_seconds = settle_seconds
        self.report = VerifyReport()
        self.unclaimed: list[Unclaimed] = []
        self.unknown_ends: dict[UUID, int] = {}

    def run(self, since: datetime | None) -> VerifyReport:
        with self.engine.connect() as connection:
            rows = query(connection, _PACKS, PackRow)
        total = sum(row.size_bytes for row in rows)
        self.processes = useful_processes(self.archive, total // SEGMENT_BYTES + 1, self.processes)
        checker = SegmentChecker(self.engine, self.archive, full=self.full)
        with workers(self.engine, checker.check, self.processes) as self.check:
            self._packs(rows, since, total)
        self._journal()
        self._unknown_packs({row.id for row in rows})
        self._unknown_ends()
        self._unknown_messages()
        self._erasures()
        self._locks()
        self._counts()
        return self.report

    def _packs(self, rows: Sequence[PackRow], since: datetime | None, total: int) -> None:
        done = 0
        for row in rows:
            if since is not None and row.verified_at is not None and row.verified_at >= since:
                self.report.packs_skipped += 1
            else:
                self._pack(row, lambda read, before=done: self.progress(before + read, total))  # type: ignore[misc]
            done += row.size_bytes
            self.progress(done, total)

    def _pack(self, row: PackRow, progress: Callable[[int], None]) -> None:
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
        with self.engine.begin() as connection:
            connection.execute(_VERIFIED if len(self.report.problems) == before else _LEFT, {"id": row.id})

    def _check_pack(self, row: PackRow, pack: PackFile, progress: Callable[[int], None]) -> None:
        head = PackHead.decode(pack.read_at(0, PACK_HEADER_BYTES), pack.name)
        key = self.archive.keys.find(head.fingerprint, head.key_id)
        if head.id != row.id:
            raise Damage(Spot(pack.name, 0), f"the file contains pack {head.id}")
        if pack.size < row.size_bytes:
            end = (pack.size, 1 << 62)
            self._problem(
                row.id, pack.name, pack.size, f"the file is {quantity(row.size_bytes - pack.size, 'byte')} too short", end
            )
        self._check_seal(row, pack, key)
        self._check_frames(row, pack, progress)

    def _check_seal(self, row: PackRow, pack: PackFile, key: PackKey) -> None:
        seal = read_seal(pack.read_at, pack.size)
        if seal is None:
            if row.state == PackState.SEALED:
                self._problem(row.id, pack.name, max(0, pack.size - SEAL_BYTES), "the seal is missing or damaged", (0, 0))
            return
        digest = hashlib.sha256()
        for at in range(0, pack.size - SEAL_BYTES, _PIECE_BYTES):
            digest.update(pack.read_at(at, min(_PIECE_BYTES, pack.size - SEAL_BYTES - at)))
        if not seal.is_of(digest.digest(), key) or (row.sha256 is not None and row.sha256 != seal.digest):
            self._problem(row.id, pack.name, 0, "the digest of the whole pack is wrong", (0, 0))
        elif row.state == PackState.OPEN:
            with self.engine.begin() as connection:  # the process that sealed it ended before it could record that
                connection.execute(_SEALED, {"id": row.id, "sha256": seal.digest, "size": pack.size})

    def _check_frames(self, row: PackRow, pack: PackFile, progress: Callable[[int], None]) -> None:
        """Keeps several segments in progress; their results are collected in order."""
        pending: deque[tuple[VerifySegment, Future[VerifyOutcome]]] = deque()
        is_left = row.state == PackState.LEFT
        whole = (
            VerifySegment(pack.id, PACK_HEADER_BYTES, pack.size, row.size_bytes, is_left),
        )  # a single process needs no segments
        for segment in whole if self.processes == 1 else segments(pack, row.size_bytes, is_left=is_left):
            pending.append((segment, self.check(segment)))
            if len(pending) > 2 * MAX_PROCESSES:
                self._take(row, pack, *pending.popleft(), progress)
        while pending:
            self._take(row, pack, *pending.popleft(), progress)

    def _take(
        self,
        row: PackRow,
        pack: PackFile,
        segment: VerifySegment,
        checked: Future[VerifyOutcome],
        progress: Callable[[int], None],
    ) -> None:
        outcome, report = checked.result(), self.report
        report.frames += outcome.frames
        report.messages += outcome.messages
        report.bytes += outcome.bytes
        report.raw_bytes += outcome.raw_bytes
        report.notes += outcome.notes
        self.unclaimed += outcome.unclaimed
        if outcome.unknown_end:
            self.unknown_ends[row.id] = outcome.unknown_end
        for found in outcome.findings:
            self._problem(row.id, pack.name, found.offset, found.what, (found.offset, found.offset + 1), found.sha256)
        progress(segment.end)

    def _problem(
        self, pack_id: UUID, pack: str, offset: int, what: str, span: tuple[int, int], sha256: bytes | None = None
    ) -> None:
        with self.engine.connect() as connection:
            touched = set(query(connection, _TOUCHED, UUID, pack_id=pack_id, start=span[0], end=span[1]))
            if sha256 is not None:
                touched |= set(query(connection, _TOUCHED_BY_HASH, UUID, sha256=sha256))
        self.report.problems.append(VerifyProblem(pack, offset, what, tuple(sorted(touched))))

    def _unknown_packs(self, known: set[UUID]) -> None:
        for pack_id in self.archive.backend.packs():
            if pack_id not in known and not self._is_known(pack_id):
                self._unknown(pack_id, 0, "the database does not know this pack")
        for pack_id in returned_packs(self.engine, self.archive):
            what = "this pack was replaced and is there again, perhaps with deleted mail: `archiver compact` removes it"
            self.report.problems.append(VerifyProblem(pack_name(pack_id), 0, what))

    def _unknown_ends(self) -> None:
        for pack_id, end in self.unknown_ends.items():
            with self.engine.connect() as connection:
                known_end = query_optional(connection, _KNOWN_END, int, id=pack_id)
            if known_end is not None and known_end < end:
                self._unknown(pack_id, known_end, "the database does not know the frames from here on")

    def _unknown_messages(self) -> None:
        """Checked at the end: batches that were being committed when their pack was read are in the database by now."""
        for start in range(0, len(self.unclaimed), _HASHES):
            portion = {item.sha256: item for item in self.unclaimed[start : start + _HASHES]}
            with self.engine.connect() as connection:
                unknown = query(connection, _UNKNOWN, bytes, hashes=list(portion))
            for found in sorted(portion[sha256] for sha256 in unknown):
                self._unknown(found.pack_id, found.offset, "the database does not know this message")

    def _unknown(self, pack_id: UUID, offset: int, what: str) -> None:
        release = self.archive.backend.hold(pack_id, self.settle_seconds)
        if release is None:
            self.report.notes.append(f"{pack_name(pack_id)} at {offset}: {what}; its batch may not be committed yet")
            return
        release()
        self.report.problems.append(VerifyProblem(pack_name(pack_id), offset, f"{what}: {_ADVICE}"))

    def _is_known(self, pack_id: UUID) -> bool:
        with self.engine.connect() as connection:
            return query_one(connection, "SELECT EXISTS (SELECT 1 FROM packs WHERE id = :id)", bool, id=pack_id)

    def _journal(self) -> None:
        """The copies that a rebuild would lose because of the damage, besides the damaged messages."""
        lost = copies_without_journal(self.engine, self.archive) if self.report.problems else 0
        if lost:
            what = f"{quantity(lost, 'copy')} in no readable journal frame: a rebuild would not know in which mailbox they were"
            self.report.problems.append(VerifyProblem("-", 0, what))

    def _erasures(self) -> None:
        with self.engine.connect() as connection:
            notes, problems = check_erasures(connection, self.unclaimed)
        self.report.notes += notes
        for frame, what in problems:
            pack, offset = (pack_name(frame.pack_id), frame.offset) if frame else ("-", 0)
            self.report.problems.append(VerifyProblem(pack, offset, what))

    def _locks(self) -> None:
        for pack_id, what in lock_problems(self.engine, self.archive):
            self.report.problems.append(VerifyProblem(pack_name(pack_id), 0, what))

    def _counts(self) -> None:
        with self.engine.connect() as connection:
            counts = query_one(connection, _COUNTS, MissingRows)
        if counts.without_bytes:
            self.report.problems.append(VerifyProblem("-", 0, f"{quantity(counts.without_bytes, 'message')} in no pack"))
        if counts.without_parts:
            self.report.problems.append(VerifyProblem("-", 0, f"{quantity(counts.without_parts, 'part')} in no pack"))
        if counts.without_message:
            self.report.problems.append(
                VerifyProblem("-", 0, f"{quantity(counts.without_message, 'copy')} of messages that do not exist")
            )
