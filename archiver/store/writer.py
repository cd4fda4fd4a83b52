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

from archiver.models.ids import uuid7
from archiver.store import pack
from archiver.store.content import Memory
from archiver.store.dictionaries import Dictionary, Trainer
from archiver.store.encoder import IN_MEMORY_BYTES, Encoder, Record
from archiver.store.errors import Damage
from archiver.store.files import Files, forget_cached, told_plainly, try_lock, write_all
from archiver.store.frames import Kind
from archiver.store.keys import PackKey
from archiver.store.pack import IndexEntry, PackHead, Place, Seal

_PIECE_BYTES = 1 << 20

KnownEnd = Callable[[UUID], int | None]
"""Up to where the database knows a pack to be good: 0 if it does not know the pack, None if nobody may append to it."""


class Stored(NamedTuple):
    """A frame that is safely on disk."""

    kind: Kind
    sha256: bytes
    raw_bytes: int
    place: Place


@dataclass(frozen=True, slots=True)
class Appended:
    """One batch: all its frames, those that were written along with it too, and where the pack ends now."""

    pack_id: UUID
    pack_name: str
    frames: tuple[Stored, ...]
    end: int


def pack_name(pack_id: UUID) -> str:
    return f"{pack_id}.pack"


class PackWriter:
    """After an error it is closed: the file is cut back to where the batch began, and the caller begins a new pack."""

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
        with told_plainly("can't begin", path):
            descriptor = files.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            try_lock(descriptor)
            writer = cls(path, pack_id, descriptor, 0, Encoder(key, trainer), files)
            try:
                head = PackHead(pack_id, datetime.now(UTC), key.fingerprint, key.id).encode()
                write_all(files, descriptor, head)
            except OSError:
                writer._leave()
                raise
        writer.size = len(head)
        return writer

    @classmethod
    def adopt(cls, path: Path, key: PackKey, trainer: Trainer, files: Files, known_end: KnownEnd) -> PackWriter | None:
        """Goes on with a pack that nobody holds. None if it can't be: held, sealed, damaged, of another key, or
        with frames that the database does not know.

        `known_end` is asked once the lock is held: whoever held it before may have replaced the pack.
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
        if not path.exists() or path.stat().st_ino != os.fstat(descriptor).st_ino:
            return None
        # What an fsync could not write may still stand in the page cache; look at what the disk has.
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
        if end < size:
            files.truncate(descriptor, end)
            files.fsync(descriptor)
        os.lseek(descriptor, end, os.SEEK_SET)
        return cls(path, head.id, descriptor, end, Encoder(key, trainer), files)

    def append(self, records: Sequence[Record]) -> Appended:
        """All of the batch is on disk when this returns; if it raises, none of it is in the pack."""
        is_new = self.size == pack.PACK_HEADER_BYTES
        start = self.size
        with told_plainly("can't write to", self.path):
            try:
                frames = self._write([*self._preliminary(records, is_new=is_new), *records])
                self._files.fsync(self._descriptor)
                if is_new:
                    self._files.fsync_folder(self.path.parent)
            except BaseException:
                self._leave(cut_at=start)
                raise
        return Appended(self.pack_id, self.path.name, tuple(frames), self.size)

    # for compaction, which makes a whole pack before anybody may see it

    def begin(self) -> None:
        self._write(self._preliminary((), is_new=True))

    def add(self, record: Record) -> Place:
        return self._write([record])[0].place

    def write_raw(self, piece: bytes) -> None:
        """A part of a frame as it stands in another pack."""
        self._write_piece(piece)

    def _preliminary(self, records: Sequence[Record], *, is_new: bool) -> list[Record]:
        """The frames that have to stand before the batch: key check and dictionary."""
        before = []
        if is_new:
            text = b"archiver key check " + self._encoder.key.id.encode()
            before.append(Record(Kind.KEY_CHECK, hashlib.sha256(text).digest(), Memory(text)))
        dictionary = self._encoder.dictionary()
        if dictionary and dictionary.id not in self._dictionaries and any(record.uses_dictionary for record in records):
            before.append(dictionary_record(dictionary))
            self._dictionaries.add(dictionary.id)
        return before

    def knows_dictionaries(self, dictionary_ids: set[int]) -> None:
        """Says which dictionaries are in the archive already, where packs need not carry their own."""
        self._dictionaries |= dictionary_ids

    def _write(self, records: Sequence[Record]) -> list[Stored]:
        frames: list[Stored] = []
        buffer = bytearray()
        for record in records:
            offset = self.size + len(buffer)
            if record.content.size <= IN_MEMORY_BYTES:
                frame = self._encoder.encode(record)
                buffer += frame
                length = len(frame)
            else:
                self._flush(buffer)
                length = self._encoder.stream(record, offset, self._write_piece, self._patch)
            frames.append(Stored(record.kind, record.sha256, record.content.size, Place(self.pack_id, offset, length)))
            if len(buffer) > 2 * IN_MEMORY_BYTES:
                self._flush(buffer)
        self._flush(buffer)
        return frames

    def _flush(self, buffer: bytearray) -> None:
        write_all(self._files, self._descriptor, bytes(buffer))
        self.size += len(buffer)
        buffer.clear()

    def _write_piece(self, data: bytes) -> None:
        write_all(self._files, self._descriptor, data)
        self.size += len(data)

    def _patch(self, data: bytes, offset: int) -> None:
        self._files.write_at(self._descriptor, data, offset)

    def seal(self) -> Seal:
        """Writes the index and the digest of the whole file. The pack never changes again."""
        start = self.size
        with told_plainly("can't seal", self.path):
            try:
                seal = self._seal()
            except BaseException:
                self._leave(cut_at=start)
                raise
        self.close()
        return seal

    def _seal(self) -> Seal:
        content, frames = pack.encode_index(self._entries())
        offset = self.size
        self._write([Record(Kind.INDEX, hashlib.sha256(content).digest(), Memory(content))])
        seal = Seal.keyed(self._encoder.key, offset, frames, self._digest())
        self._write_piece(seal.encode())
        self._files.fsync(self._descriptor)
        with contextlib.suppress(OSError):
            self.path.chmod(0o400)
        return seal

    def _entries(self) -> Iterator[IndexEntry]:
        for item in pack.walk(self._read_at, self.size, self.path.name):
            if isinstance(item, Damage):
                raise item
            yield IndexEntry(item.header.kind, item.offset, item.header.frame_length, item.header.tag)

    def _digest(self) -> bytes:
        digest = hashlib.sha256()
        for at in range(0, self.size, _PIECE_BYTES):
            digest.update(self._read_at(at, min(_PIECE_BYTES, self.size - at)))
        return digest.digest()

    def _read_at(self, offset: int, length: int) -> bytes:
        return os.pread(self._descriptor, length, offset)

    def _leave(self, cut_at: int = 0) -> None:
        """Gives the pack up. What the failed batch left behind is cut off if the disk lets us, else by who opens it next."""
        with contextlib.suppress(OSError):
            if cut_at <= pack.PACK_HEADER_BYTES:
                self._files.unlink(self.path)
            else:
                self._files.truncate(self._descriptor, cut_at)
        self.close()

    def close(self) -> None:
        """Lets the lock go. An unsealed pack can be adopted by anyone then."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _end_to_write_at(read_at: pack.ReadAt, size: int, name: str, known_end: int | None) -> int | None:
    """Behind the last whole frame. None for a pack that is to be left as it is: the file ends below what the database knows,
    it is damaged in a way that no interrupted batch explains, or it holds what the database has yet to take in."""
    if known_end is None or size < known_end:
        return None
    found = pack.survey(read_at, size, name, max(known_end, pack.PACK_HEADER_BYTES))
    if found.has_content or found.has_gaps or (not known_end and found.is_damaged):
        return None
    return found.end


def dictionary_record(dictionary: Dictionary) -> Record:
    return Record(Kind.DICTIONARY, dictionary.sha256, Memory(dictionary.data))
