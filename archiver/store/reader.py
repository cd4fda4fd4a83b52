"""Reads frames and reassembles messages. Nothing is returned unchecked."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import IO, NamedTuple, cast

from zstandard import ZstdDecompressor, ZstdError

from archiver.store import stream
from archiver.store.backend import Backend, PackFile
from archiver.store.base64_lines import Lines
from archiver.store.dictionaries import Decompressors
from archiver.store.errors import Damage, LostDictionary, LostPack, NotStored, Spot
from archiver.store.frames import FLAG_RECIPE, HEADER_BYTES, SHA_BYTES, Codec, FrameKind, Header, decode_header, open_frame
from archiver.store.keys import PackKeys
from archiver.store.pack import PackLocation
from archiver.store.recipe import Literal, PartRef, Recipe, part_pieces

IN_MEMORY_BYTES = 8 << 20
_CACHED_PARTS_BYTES = 48 << 20
_KNOWN_PLACES = 200_000
_SEALED_CHUNK = stream.CHUNK_BYTES + stream.OVERHEAD_BYTES

FindPlace = Callable[[bytes, FrameKind], PackLocation | None]
"""Where the object with this SHA-256 is stored, according to the database."""


class Frame(NamedTuple):
    """An open frame: its header and its content, which is checked while it is read."""

    header: Header
    sha256: bytes
    pieces: Iterator[bytes]
    spot: Spot
    place: PackLocation

    @property
    def is_recipe(self) -> bool:
        return bool(self.header.flags & FLAG_RECIPE)

    def bytes(self) -> bytes:
        return b"".join(self.pieces)


class FrameReader:
    """Opens frames by their place; knows keys and dictionaries, but no database."""

    def __init__(self, backend: Backend, keys: PackKeys, decompressors: Decompressors) -> None:
        self._backend = backend
        self._keys = keys
        self._decompressors = decompressors

    def open(self, place: PackLocation) -> Frame:
        return self.open_in(self._backend.open(place.pack_id), place.offset, place.length)

    def open_in(self, pack: PackFile, offset: int, length: int, header: Header | None = None) -> Frame:
        """`length` is a hint of how much to read at once, 0 if it is not known; `header`, if it was read already."""
        spot = Spot(pack.name, offset)
        # One read for header and payload in the usual case: a bucket charges a round trip for each.
        data = pack.read_at(offset, min(max(length, HEADER_BYTES), IN_MEMORY_BYTES))
        header = header or decode_header(data[:HEADER_BYTES], spot)
        length = header.frame_length
        if length <= IN_MEMORY_BYTES and header.content_length <= IN_MEMORY_BYTES:
            if length > len(data):
                data += pack.read_at(offset + len(data), length - len(data))
            place = PackLocation(pack.id, offset, length)
            return self._open_whole(header, data[HEADER_BYTES:length], spot, place)
        return self._open_flow(pack, header, offset, spot)

    def _open_whole(self, header: Header, payload: bytes, spot: Spot, place: PackLocation) -> Frame:
        key = self._keys.find(header.fingerprint)
        sha256, body = open_frame(key, header, payload, spot)
        if header.codec == Codec.STORED:
            content = bytes(body)
        elif header.codec == Codec.ZSTD:
            try:
                # The limit is from the authenticated header: a damaged frame can't inflate to more than was stored.
                content = self._decompressor(header, spot).decompress(body, max_output_size=header.content_length)
            except ZstdError as error:
                raise Damage(spot, f"can't be decompressed ({error})", sha256) from error
        else:
            raise Damage(spot, f"unknown codec {header.codec}", sha256)
        if len(content) != header.content_length:
            raise Damage(spot, "the content has the wrong length", sha256)
        # A recipe has the SHA-256 of the message that it gives, which is checked when the message is put together.
        if not header.flags & FLAG_RECIPE and hashlib.sha256(content).digest() != sha256:
            raise Damage(spot, "the content does not match its SHA-256", sha256)
        return Frame(header, sha256, iter((content,)), spot, place)

    def _decompressor(self, header: Header, spot: Spot) -> ZstdDecompressor:
        found = self._decompressors.find(header.dictionary_id)
        if found is None:
            raise LostDictionary(spot, header.dictionary_id)
        return found

    def _open_flow(self, pack: PackFile, header: Header, offset: int, spot: Spot) -> Frame:
        plain = self._plain_chunks(pack, header, offset, spot)
        first = next(plain)
        sha256 = first[:SHA_BYTES]
        pieces = self._flow(header, sha256, first[SHA_BYTES:], plain, spot)
        return Frame(header, sha256, pieces, spot, PackLocation(pack.id, offset, header.frame_length))

    def _plain_chunks(self, pack: PackFile, header: Header, offset: int, spot: Spot) -> Iterator[bytes]:
        key = self._keys.find(header.fingerprint)
        begin, end = offset + HEADER_BYTES, offset + header.frame_length
        chunks = (pack.read_at(at, min(_SEALED_CHUNK, end - at)) for at in range(begin, end, _SEALED_CHUNK))
        prefix = header.salt[: stream.PREFIX_BYTES]
        try:
            yield from stream.open_chunks(key.frame_key(header.salt), prefix, header.front(), chunks, header.payload_length)
        except stream.Tampered:
            raise Damage(spot, "the payload can't be decrypted: it was changed, or encrypted with another key") from None

    def _flow(self, header: Header, sha256: bytes, first: bytes, rest: Iterator[bytes], spot: Spot) -> Iterator[bytes]:
        digest, length = hashlib.sha256(), 0
        body = _Source(_chain(first, rest))
        try:
            # A small frame may have huge content: the pieces of the content are bounded, too.
            contents = (
                self._decompressor(header, spot).read_to_iter(cast(IO[bytes], body))
                if header.codec == Codec.ZSTD
                else body.rest()
            )
            for content in contents:
                digest.update(content)
                length += len(content)
                yield content
        except ZstdError as error:
            raise Damage(spot, f"can't be decompressed ({error})", sha256) from error
        if length != header.content_length:
            raise Damage(spot, "the content has the wrong length", sha256)
        if not header.flags & FLAG_RECIPE and digest.digest() != sha256:
            raise Damage(spot, "the content does not match its SHA-256", sha256)


class ObjectReader:
    """Reads messages and parts by their SHA-256."""

    def __init__(self, frames: FrameReader, find: FindPlace) -> None:
        self.frames = frames
        self.find = find

    def read(self, sha256: bytes, kind: FrameKind = FrameKind.MESSAGE) -> bytes:
        """The whole object, checked before it is returned."""
        return b"".join(self.stream(sha256, kind))

    def stream(self, sha256: bytes, kind: FrameKind = FrameKind.MESSAGE) -> Iterator[bytes]:
        """Each piece is authentic; that they are the whole object is known when the last one was taken without an error."""
        frame = self.open(sha256, kind)
        if frame.sha256 != sha256:
            raise Damage(frame.spot, "another object is stored here", sha256)
        return self.assemble(frame) if frame.is_recipe else frame.pieces

    def open(self, sha256: bytes, kind: FrameKind) -> Frame:
        place = self.find(sha256, kind)
        if place is None:
            raise NotStored(f"there is no {kind.label} with the SHA-256 {sha256.hex()}")
        try:
            return self.frames.open(place)
        except LostPack:
            again = self.find(sha256, kind)  # a concurrent compaction may have moved it
            if again is None or again == place:
                raise LostPack(place.pack_id, place.offset, sha256) from None
            return self.frames.open(again)

    def assemble(self, frame: Frame) -> Iterator[bytes]:
        """The message that a recipe gives."""
        digest = hashlib.sha256()
        source = _Source(frame.pieces)
        recipe = read_recipe(source, frame.spot, frame.sha256)
        for step in recipe.steps:
            pieces = source.take(step.length) if isinstance(step, Literal) else self.part(step)
            for piece in pieces:
                digest.update(piece)
                yield piece
        if digest.digest() != frame.sha256:
            raise Damage(frame.spot, "the message does not match its SHA-256", frame.sha256)

    def part(self, ref: PartRef) -> Iterator[bytes]:
        """The range of a message that was cut out as this part."""
        return part_pieces(ref, self.stream(ref.sha256, FrameKind.PART))


class CachingReader(ObjectReader):
    """For reading everything in pack order: remembers where parts are, and the content of those that were seen last.

    The image of a newsletter is then read and encoded in base64 once, not for each copy of the newsletter.
    """

    def __init__(self, frames: FrameReader, objects: ObjectReader, *, holds_found: bool = False) -> None:
        """`holds_found`: also caches parts that were looked up, because another process reads their segment. Not for
        long-running readers: compaction moves parts."""
        super().__init__(frames, self._find_place)
        self._look_up = objects.find
        self._holds_found = holds_found
        self._places: OrderedDict[bytes, PackLocation] = OrderedDict()
        self._contents: OrderedDict[bytes | tuple[bytes, Lines], bytes] = OrderedDict()
        """By SHA-256 in stored form; with the lines as well, in the form that messages contain."""
        self._size = 0

    def add(self, sha256: bytes, place: PackLocation, content: bytes | None) -> None:
        """Caches the place of a part that was just read, and its content if available."""
        self._places[sha256] = place
        if len(self._places) > _KNOWN_PLACES:
            self._places.popitem(last=False)
        if content is not None:
            self._hold(sha256, content)

    def _hold(self, key: bytes | tuple[bytes, Lines], content: bytes) -> None:
        if len(content) <= _CACHED_PARTS_BYTES // 8 and key not in self._contents:
            self._contents[key] = content
            self._size += len(content)
            while self._size > _CACHED_PARTS_BYTES:
                self._size -= len(self._contents.popitem(last=False)[1])

    def stream(self, sha256: bytes, kind: FrameKind = FrameKind.MESSAGE) -> Iterator[bytes]:
        held = self._held(sha256) if kind is FrameKind.PART else None
        if held is not None:
            return iter((held,))
        pieces = super().stream(sha256, kind)
        return self._hold_single(sha256, pieces) if self._holds_found and kind is FrameKind.PART else pieces

    def _hold_single(self, sha256: bytes, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Caches content that consists of a single piece."""
        first, second = next(pieces, b""), next(pieces, None)
        if second is not None:
            return chain((first, second), pieces)
        self._hold(sha256, first)
        return iter((first,))

    def part(self, ref: PartRef) -> Iterator[bytes]:
        if ref.lines is None or ref.sha256 not in self._contents:
            return super().part(ref)
        encoded = self._held((ref.sha256, ref.lines))
        if encoded is None:
            encoded = b"".join(super().part(ref))
            self._hold((ref.sha256, ref.lines), encoded)
        return iter((encoded,))

    def _held(self, key: bytes | tuple[bytes, Lines]) -> bytes | None:
        content = self._contents.get(key)
        if content is not None:
            self._contents.move_to_end(key)
        return content

    def _find_place(self, sha256: bytes, kind: FrameKind) -> PackLocation | None:
        if kind is not FrameKind.PART:
            return self._look_up(sha256, kind)
        place = self._places.get(sha256)
        if place is None and (place := self._look_up(sha256, kind)) and self._holds_found:
            self.add(sha256, place, None)
        return place


class _Source:
    """Reads exact lengths from an iterator of pieces."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._held, self._at = b"", 0

    def read(self, length: int) -> bytes:
        """At most this many bytes; none at the end."""
        return next(self.take(length), b"")

    def rest(self) -> Iterator[bytes]:
        if self._at < len(self._held):
            yield self._held[self._at :]
        yield from self._pieces

    def take(self, length: int) -> Iterator[bytes]:
        while length:
            if self._at == len(self._held):
                self._held, self._at = next(self._pieces, b""), 0
                if not self._held:
                    return
            piece = self._held[self._at : self._at + length]
            self._at += len(piece)
            length -= len(piece)
            yield piece


def read_recipe(source: _Source, spot: Spot, sha256: bytes) -> Recipe:
    start = b"".join(source.take(4))
    try:
        data = start + b"".join(source.take(Recipe.head_length(start) - len(start)))
        return Recipe.decode(data)[0]
    except ValueError as error:
        raise Damage(spot, f"the recipe can't be read ({error})", sha256) from error


def recipe_of(frame: Frame) -> Recipe:
    """Of a frame that is a recipe; its literal bytes are left."""
    return read_recipe(_Source(frame.pieces), frame.spot, frame.sha256)


def _chain(first: bytes, rest: Iterable[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest
