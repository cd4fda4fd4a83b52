"""From content to frames: compress, encrypt, checksum; small ones in memory, large ones as a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from google_crc32c import extend
from zstandard import ZstdCompressor

from archiver.store import stream
from archiver.store.content import FrameContent, as_bytes
from archiver.store.dictionaries import Dictionary, Trainer, compressor
from archiver.store.frames import FLAG_RECIPE, HEADER_BYTES, Codec, FrameKind, finish_header, new_front, seal_frame
from archiver.store.keys import PackKey

IN_MEMORY_BYTES = 4 << 20
WITH_DICTIONARY_BYTES = 256 << 10
"""Above this a dictionary no longer helps."""
_SMALLEST = 32
_MIXED = frozenset({FrameKind.MESSAGE, FrameKind.PART})


class Record(NamedTuple):
    """Content that is to be stored as a frame."""

    kind: FrameKind
    sha256: bytes
    content: FrameContent
    is_recipe: bool = False
    is_text: bool = True
    """False for decoded attachments: they have no words in common with mail."""

    @property
    def uses_dictionary(self) -> bool:
        return self.kind in _MIXED and self.is_text and self.content.size <= WITH_DICTIONARY_BYTES


class Encoder:
    """Encodes the frames of one pack. Not thread-safe."""

    def __init__(self, key: PackKey, trainer: Trainer) -> None:
        self.key = key
        self._trainer = trainer
        self._plain = compressor(None)
        self._dictionary: Dictionary | None = None
        self._trained = self._plain

    def dictionary(self) -> Dictionary | None:
        """The one that the next frames are compressed with."""
        current = self._trainer.current
        if current is not self._dictionary:
            self._dictionary, self._trained = current, compressor(current)
        return self._dictionary

    def encode(self, record: Record, salt: bytes) -> bytes:
        data = as_bytes(record.content)
        size = len(data)
        dictionary_id = 0
        if record.kind in _MIXED and record.is_text and size <= WITH_DICTIONARY_BYTES:  # as `uses_dictionary`
            self._trainer.observe(data)
            dictionary_id = self._dictionary.id if self._dictionary else 0
        codec, body = Codec.STORED, data
        if size >= _SMALLEST:
            packed = (self._trained if dictionary_id else self._plain).compress(data)
            if len(packed) < size:
                codec, body = Codec.ZSTD, packed
        used = dictionary_id if codec is Codec.ZSTD else 0
        front = new_front(self.key, record.kind, codec, _flags(record), used, size, record.sha256, salt)
        return seal_frame(self.key, front, salt, record.sha256, body)

    def stream(
        self, record: Record, salt: bytes, offset: int, write: Callable[[bytes], None], patch: Callable[[bytes, int], None]
    ) -> int:
        """Writes a frame of any size from `offset` on; the header comes last. Returns the frame's length."""
        front = new_front(self.key, record.kind, Codec.ZSTD, _flags(record), 0, record.content.size, record.sha256, salt)
        write(bytes(HEADER_BYTES))
        length = crc = 0
        pieces = _compress(record, self._plain)
        for chunk in stream.seal_chunks(self.key.frame_key(salt), salt[: stream.PREFIX_BYTES], front, pieces):
            write(chunk)
            length += len(chunk)
            crc = extend(crc, chunk)
        patch(finish_header(front, length, crc), offset)
        return HEADER_BYTES + length


def _flags(record: Record) -> int:
    return FLAG_RECIPE if record.is_recipe else 0


def _compress(record: Record, plain: ZstdCompressor) -> Iterator[bytes]:
    yield record.sha256
    flow = plain.compressobj(size=record.content.size)
    for piece in record.content.pieces():
        packed = flow.compress(piece)
        if packed:
            yield packed
    yield flow.flush()
