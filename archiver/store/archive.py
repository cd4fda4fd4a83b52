"""The archive of bytes as the rest of the product sees it: append a batch, read an object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol
from uuid import UUID

from archiver.store.backend import Backend, PackFile, Written
from archiver.store.dictionaries import Decompressors, Dictionary, Trainer, dictionary_id
from archiver.store.encoder import Record
from archiver.store.errors import Damage, LostPack
from archiver.store.frames import FrameKind
from archiver.store.keys import PackKeys
from archiver.store.pack import PACK_HEADER_BYTES, PackHead, PackIndexEntry, PackLocation, decode_index, read_seal, walk
from archiver.store.reader import FrameReader, ObjectReader


class Places(Protocol):
    """What the database knows about where things are."""

    def find(self, sha256: bytes, kind: FrameKind) -> PackLocation | None: ...

    def dictionaries(self) -> list[tuple[bytes, PackLocation]]:
        """SHA-256 and place of each, oldest first."""

    def known_end(self, pack_id: UUID) -> int | None:
        """See archiver.store.writer.KnownEnd."""


class Archive:
    def __init__(self, backend: Backend, keys: PackKeys, trainer: Trainer, places: Places) -> None:
        self.backend = backend
        self.keys = keys
        self._trainer = trainer
        self._places = places
        self.frames = FrameReader(backend, keys, Decompressors(self._load_dictionary))
        self.objects = ObjectReader(self.frames, places.find)

    def append(self, records: Sequence[Record]) -> Written:
        return self.backend.append(records)

    def read(self, sha256: bytes, kind: FrameKind = FrameKind.MESSAGE) -> bytes:
        return self.objects.read(sha256, kind)

    def stream(self, sha256: bytes, kind: FrameKind = FrameKind.MESSAGE) -> Iterator[bytes]:
        return self.objects.stream(sha256, kind)

    def close(self) -> None:
        self.backend.close()

    def check_key(self) -> None:
        """Raises WrongKey if the newest pack can't be opened with the keys we have. An archive without packs fits every key."""
        for pack_id in reversed(list(self.backend.packs())):
            try:
                pack = self.backend.open(pack_id)
                head = PackHead.decode(pack.read_at(0, PACK_HEADER_BYTES), pack.name)
            except Damage:
                continue  # reported by `verify`
            self.keys.find(head.fingerprint, head.key_id)
            return

    def use_newest_dictionary(self) -> None:
        """Makes a new process compress like the previous one."""
        for _, place in reversed(self._places.dictionaries()):
            try:
                self._trainer.current = Dictionary.of(self.frames.open(place).bytes())
                self._trainer.stored.add(self._trainer.current.id)
            except (Damage, LostPack):
                continue
            return

    def _load_dictionary(self, wanted: int) -> bytes | None:
        for sha256, place in self._places.dictionaries():
            if dictionary_id(sha256) == wanted:
                try:
                    return self.frames.open(place).bytes()
                except Damage:
                    break  # other packs may carry the same dictionary
        return self._search_dictionary(wanted)

    def _search_dictionary(self, wanted: int) -> bytes | None:
        for pack_id in self.backend.packs():
            try:
                pack = self.backend.open(pack_id)
                for entry in entries(pack, self.frames):
                    if entry.kind == FrameKind.DICTIONARY:
                        frame = self.frames.open_in(pack, entry.offset, entry.length)
                        if dictionary_id(frame.sha256) == wanted:
                            return frame.bytes()
            except Damage:
                continue
        return None


def entries(pack: PackFile, frames: FrameReader) -> Iterator[PackIndexEntry]:
    """All frames of a pack: from its index if it is sealed, else by walking over them. Damage is skipped."""
    seal = read_seal(pack.read_at, pack.size)
    if seal is not None:
        try:
            yield from decode_index(frames.open_in(pack, seal.index_offset, 0).bytes())
            return
        except Damage:
            pass  # the index can't be read; the frames may still be readable
    for item in walk(pack.read_at, pack.size, pack.name):
        if not isinstance(item, Damage):
            yield PackIndexEntry(item.header.kind, item.offset, item.header.frame_length, item.header.tag)
