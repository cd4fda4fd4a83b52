"""AES-256-GCM in chunks (STREAM): content of any size is encrypted and checked as a stream.

Each chunk has the nonce `prefix ‖ counter ‖ last`, so that reordering, dropping or truncating chunks is detected.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

CHUNK_BYTES = 1 << 20
OVERHEAD_BYTES = 16
PREFIX_BYTES = 7
_ONLY = b"\0\0\0\0\x01"  # the end of the nonce of a chunk that is the first and the last


class Tampered(Exception):
    """A chunk does not open: changed, reordered, truncated, or sealed with another key."""


def sealed_length(plain_length: int) -> int:
    chunks = max(1, -(-plain_length // CHUNK_BYTES))
    return plain_length + chunks * OVERHEAD_BYTES


def seal(key: bytes, prefix: bytes, associated: bytes, plain: bytes) -> bytes:
    if len(plain) <= CHUNK_BYTES:
        return AESGCM(key).encrypt(prefix + _ONLY, plain, associated)
    return b"".join(seal_chunks(key, prefix, associated, [plain]))


def seal_chunks(key: bytes, prefix: bytes, associated: bytes, pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Encrypts pieces of any length into chunks of CHUNK_BYTES; the last one may be shorter, and empty input is one chunk."""
    cipher = AESGCM(key)
    pending = bytearray()
    counter = 0
    for piece in pieces:
        pending += piece
        while len(pending) > CHUNK_BYTES:
            chunk = bytes(pending[:CHUNK_BYTES])
            del pending[:CHUNK_BYTES]
            yield cipher.encrypt(_nonce(prefix, counter, last=False), chunk, associated)
            counter += 1
    yield cipher.encrypt(_nonce(prefix, counter, last=True), bytes(pending), associated)


def open_sealed(key: bytes, prefix: bytes, associated: bytes, payload: bytes) -> bytes:
    if len(payload) <= CHUNK_BYTES + OVERHEAD_BYTES:
        try:
            return AESGCM(key).decrypt(prefix + _ONLY, payload, associated)
        except InvalidTag:
            raise Tampered from None
    size = CHUNK_BYTES + OVERHEAD_BYTES
    chunks = (payload[start : start + size] for start in range(0, len(payload), size))
    return b"".join(open_chunks(key, prefix, associated, chunks, len(payload)))


def open_chunks(key: bytes, prefix: bytes, associated: bytes, chunks: Iterable[bytes], length: int) -> Iterator[bytes]:
    """`chunks` are the sealed chunks, each complete; `length` is their total length."""
    cipher = AESGCM(key)
    left = length
    for counter, chunk in enumerate(chunks):
        left -= len(chunk)
        try:
            yield cipher.decrypt(_nonce(prefix, counter, last=left == 0), chunk, associated)
        except InvalidTag:
            raise Tampered from None
    if left != 0:
        raise Tampered


def _nonce(prefix: bytes, counter: int, *, last: bool) -> bytes:
    return prefix + counter.to_bytes(4, "big") + (b"\x01" if last else b"\x00")
