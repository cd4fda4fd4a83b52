"""A file that is sealed with a storage key: the dump in a backup (docs/pack-format.md, "Sealed dumps")."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from archiver.store import stream
from archiver.store.errors import Damage, Spot
from archiver.store.frames import SALT_BYTES
from archiver.store.keys import PackKey, PackKeys

MAGIC = b"ARCHDUMP"
VERSION = 1
_HEAD = struct.Struct("<8sHH4s16s")
_SEALED_CHUNK = stream.CHUNK_BYTES + stream.OVERHEAD_BYTES
_PLAIN_BYTES = 1 << 20


def seal_pieces(key: PackKey, pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The bytes of the file, for content of any length."""
    salt = os.urandom(SALT_BYTES)
    head = _HEAD.pack(MAGIC, VERSION, 0, key.fingerprint, salt)
    yield head
    yield from stream.seal_chunks(key.dump_key(salt), salt[: stream.PREFIX_BYTES], head, pieces)


def unseal_pieces(keys: PackKeys, path: Path) -> Iterator[bytes]:
    """The content; a file that is not sealed, as older versions wrote it, is returned unchanged.

    Each piece is authentic; they are known to be complete when the last one was read without an error.
    """
    with path.open("rb") as file:
        head = file.read(_HEAD.size)
        if head[: len(MAGIC)] != MAGIC:
            file.seek(0)
            yield from iter(lambda: file.read(_PLAIN_BYTES), b"")
            return
        spot = Spot(path.name, 0)
        if len(head) < _HEAD.size:
            raise Damage(spot, "the file is truncated")
        _, version, _, fingerprint, salt = _HEAD.unpack(head)
        if version != VERSION:
            raise Damage(spot, f"a sealed file of version {version}; this program reads version {VERSION}")
        key = keys.find(fingerprint).dump_key(salt)
        length = path.stat().st_size - _HEAD.size
        chunks = iter(lambda: file.read(_SEALED_CHUNK), b"")
        try:
            yield from stream.open_chunks(key, salt[: stream.PREFIX_BYTES], head, chunks, length)
        except stream.Tampered:
            raise Damage(spot, "the file can't be decrypted: it was changed or truncated") from None
