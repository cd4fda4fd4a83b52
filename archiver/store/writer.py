"""Appends to one pack, whose `flock` it holds: all frames of a batch, then one fsync."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from archiver.db.ids import uuid7
from archiver.store import pack
from archiver.store.content import MemoryContent
from archiver.store.dictionaries import Dictionary, Trainer
from archiver.store.encoder import IN_MEMORY_BYTES, Encoder, Record
from archiver.store.errors import Damage
from archiver.store.files import Files, explain_os_errors, forget_cached, try_lock, write_all
from archiver.store.frames import FrameKind, new_salts
from archiver.store.keys import PackKey
from archiver.store.pack import PackHead, PackIndexEntry, PackLocation, Seal

_PIECE_BYTES = 1 << 20

KnownEnd = Callable[[UUID], int | None]
"""Up to where the database knows a pack to be good: 0 if it does not know the pack, None if it must not be appended to."""


class Stored(NamedTuple):
    """A frame that is durably on disk."""

    kind: FrameKind
    sha256: bytes
    raw_bytes: int
    place: PackLocation


@dataclass(frozen=True, slots=True)
class Appended:
    """One batch: all its frames, including preliminary ones, and the new end of the pack."""

    pack_id: UUID
    pack_name: str
    frames: tuple[Stored, ...]
    end: int


def pack_name(pack_id: UUID) -> str:
    return f"{pack_id}.pack"


class PackWriter:
    """After an error it is closed: the file is truncated to where the batch began, and the caller starts a new pack."""

    def __init__(self, path: Path, pack_id: UUID, descriptor: int, size: int, encoder: Encoder, files: Files) -> None:
        self.path = path
        self.pack_id = pack_id
        self.size = size
        self._descriptor = descriptor
        self._encoder = encoder
        self._files = files
        self._dictionaries: set[int] = set()

    @property
    def is_open(self) -> bool:
        return self._descriptor >= 0

    @classmethod
    def create(cls, folder: Path, key: PackKey, trainer: Trainer, files: Files) -> PackWriter:
        """A new pack. It has only its header until the first batch, and nothing is durable before that."""
        pack_id = uuid7()
        path = folder / pack_name(pack_id)
        with explain_os_errors("can't begin", path):
            descriptor = files.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            try_lock(descriptor)
            writer = cls(path, pack_id, descriptor, 0, Encoder(key, trainer), files)
            try:
                head = PackHead(pack_id, datetime.now(UTC), key.fingerprint, key.id).encode()
                write_all(files, descriptor, head)
            except OSError:
                writer._abandon()
                raise
        writer.size = len(head)
        return writer

    @classmethod
    def adopt(cls, path: Path, key: PackKey, trainer: Trainer, files: Files, known_end: KnownEnd) -> PackWriter | None:
        """Continues a pack that no process holds. None if that is not possible: it is held, sealed, damaged, of another key,
        or has frames that the database does not know.

        `known_end` is called once the lock is held: the previous holder may have replaced the pack.
        """
        descriptor = files.open(path, os.O_RDWR)
        writer = None
        try:
            writer = cls._adopt(path, descriptor, key, trainer, files, known_end)
        except (OSError, Damage):
            return None
        finally:
            if writer is None:
                os.close(descriptor)
        return writer

    @classmethod
    def _adopt(
        cls, path: Path, descriptor: int, key: PackKey, trainer: Trainer, files: Files, known_end: KnownEnd
    ) -> PackWriter | None:
        if not try_lock(descriptor):
            return None
        # Between `open` and the lock, compaction may have replaced the pack: then we hold the lock of a removed file.
        if not path.exists() or path.stat().st_ino != os.fstat(descriptor).st_ino:
            return None
        # The page cache may still contain what an fsync could not write: read what is on the disk.
        forget_cached(descriptor)
        size = os.fstat(descriptor).st_size

        def read_at(offset: int, length: int) -> bytes:
            return os.pread(descriptor, length, offset)

        if pack.read_seal(read_at, size) is not None:
            return None
        head = PackHead.decode(read_at(0, pack.PACK_HEADER_BYTES), path.name)
        if path.name != pack_name(head.id):
            return None
        end = _end_to_write_at(read_at, size, path.name, known_end(head.id))
        if end is None or head.fingerprint != key.fingerprint:
            return None
        # The rest of a batch that a killed process did not finish: the database does not refer to it.
        if end < size:
            files.truncate(descriptor, end)
            files.fsync(descriptor)
        os.lseek(descriptor, end, os.SEEK_SET)
        return cls(path, head.id, descriptor, end, Encoder(key, trainer), files)

    def append(self, records: Sequence[Record]) -> Appended:
        """All of the batch is on disk when this returns; if it raises, none of it is in the pack."""
        is_new = self.size == pack.PACK_HEADER_BYTES
        start = self.size
        with explain_os_errors("can't write to", self.path):
            try:
                frames = self._write([*self._preliminary(records, is_new=is_new), *records])
                self._files.fsync(self._descriptor)
                # Without it, a power failure can lose the name of a new file, although its content is on disk.
                if is_new:
                    self._files.fsync_folder(self.path.parent)
            except BaseException:
                # After a failed fsync, the kernel may drop the dirty pages and report success the next time, so this pack is
                # not written again.
                self._abandon(cut_at=start)
                raise
        return Appended(self.pack_id, self.path.name, tuple(frames), self.size)

    # for compaction, which writes a complete pack before it becomes visible

    def begin(self) -> None:
        self._write(self._preliminary((), is_new=True))

    def add(self, record: Record) -> PackLocation:
        return self._write([record])[0].place

    def write_raw(self, piece: bytes) -> None:
        """A piece of an encoded frame of another pack."""
        self._write_piece(piece)

    def _preliminary(self, records: Sequence[Record], *, is_new: bool) -> list[Record]:
        """The frames that must precede the batch: key check and dictionary."""
        before = []
        if is_new:
            text = b"archiver key check " + self._encoder.key.id.encode()
            before.append(Record(FrameKind.KEY_CHECK, hashlib.sha256(text).digest(), MemoryContent(text)))
        dictionary = self._encoder.dictionary()
        if dictionary and dictionary.id not in self._dictionaries and any(record.uses_dictionary for record in records):
            before.append(dictionary_record(dictionary))
            self._dictionaries.add(dictionary.id)
        return before

    def skip_dictionaries(self, dictionary_ids: set[int]) -> None:
        """Names dictionaries that are already in the archive, so that this pack need not include them."""
        self._dictionaries |= dictionary_ids

    def _write(self, records: Sequence[Record]) -> list[Stored]:
        frames: list[Stored] = []
        held: list[bytes] = []
        held_bytes = 0
        offset = self.size
        # Small frames are joined to few large writes; a large one is streamed, so that memory stays bounded.
        for record, salt in zip(records, new_salts(len(records)), strict=True):
            size = record.content.size
            if size <= IN_MEMORY_BYTES:
                frame = self._encoder.encode(record, salt)
                length = len(frame)
                held.append(frame)
                held_bytes += length
            else:
                self._flush(held)
                held_bytes = 0
                length = self._encoder.stream(record, salt, offset, self._write_piece, self._patch)
            frames.append(Stored(record.kind, record.sha256, size, PackLocation(self.pack_id, offset, length)))
            offset += length
            if held_bytes > 2 * IN_MEMORY_BYTES:
                self._flush(held)
                held_bytes = 0
        self._flush(held)
        return frames

    def _flush(self, held: list[bytes]) -> None:
        self._write_piece(b"".join(held))
        held.clear()

    def _write_piece(self, data: bytes) -> None:
        write_all(self._files, self._descriptor, data)
        self.size += len(data)

    def _patch(self, data: bytes, offset: int) -> None:
        self._files.write_at(self._descriptor, data, offset)

    def seal(self) -> Seal:
        """Writes the index and the digest of the whole file. The pack never changes again."""
        start = self.size
        with explain_os_errors("can't seal", self.path):
            try:
                seal = self._seal()
            except BaseException:
                self._abandon(cut_at=start)
                raise
        self.close()
        return seal

    def _seal(self) -> Seal:
        content, frames = pack.encode_index(self._entries())
        offset = self.size
        self._write([Record(FrameKind.INDEX, hashlib.sha256(content).digest(), MemoryContent(content))])
        seal = Seal.keyed(self._encoder.key, offset, frames, self._digest())
        self._write_piece(seal.encode())
        self._files.fsync(self._descriptor)
        with contextlib.suppress(OSError):
            # Only a reminder for people: what protects a sealed pack is its digest.
            self.path.chmod(0o400)
        return seal

    def _entries(self) -> Iterator[PackIndexEntry]:
        for item in pack.walk(self._read_at, self.size, self.path.name):
            if isinstance(item, Damage):
                raise item
            yield PackIndexEntry(item.header.kind, item.offset, item.header.frame_length, item.header.tag)

    def _digest(self) -> bytes:
        digest = hashlib.sha256()
        for at in range(0, self.size, _PIECE_BYTES):
            digest.update(self._read_at(at, min(_PIECE_BYTES, self.size - at)))
        return digest.digest()

    def _read_at(self, offset: int, length: int) -> bytes:
        return os.pread(self._descriptor, length, offset)

    def _abandon(self, cut_at: int = 0) -> None:
        """Abandons the pack. The rest of the failed batch is truncated now or, if the disk refuses, by the next writer."""
        with contextlib.suppress(OSError):
            if cut_at <= pack.PACK_HEADER_BYTES:
                self._files.unlink(self.path)
            else:
                self._files.truncate(self._descriptor, cut_at)
        self.close()

    def close(self) -> None:
        """Releases the lock: another process can then adopt the pack if it is not sealed."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _end_to_write_at(read_at: pack.ReadAt, size: int, name: str, known_end: int | None) -> int | None:
    """The end of the last intact frame. None for a pack that must not be appended to: it is shorter than the database knows, it
    is damaged in a way that no interrupted batch explains, or it has frames that the database does not know yet."""
    if known_end is None or size < known_end:
        return None
    found = pack.survey(read_at, size, name, max(known_end, pack.PACK_HEADER_BYTES))
    if found.has_content or found.has_gaps or (not known_end and found.is_damaged):
        return None
    return found.end


def dictionary_record(dictionary: Dictionary) -> Record:
    return Record(FrameKind.DICTIONARY, dictionary.sha256, MemoryContent(dictionary.data))
