"""The keys of the packs: what is derived from each key of the keyring, and finding the one that a frame needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256 as _sha256
from typing import NamedTuple

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from archiver.errors import WrongKey
from archiver.secrets import Keyring

TAG_BYTES = 16


class Mac(NamedTuple):
    """HMAC-SHA-256 with its key set up once: half the time of `hmac.digest` for short input."""

    inner: bytes
    outer: bytes

    @classmethod
    def of(cls, key: bytes) -> Mac:
        padded = key.ljust(64, b"\0")
        return cls(bytes(byte ^ 0x36 for byte in padded), bytes(byte ^ 0x5C for byte in padded))

    def digest(self, data: bytes) -> bytes:
        return _sha256(self.outer + _sha256(self.inner + data).digest()).digest()

    def __repr__(self) -> str:
        return "Mac(…)"


@dataclass(frozen=True, slots=True)
class PackKey:
    """One key of the keyring, split by purpose (docs/pack-format.md, "Keys")."""

    id: str
    fingerprint: bytes
    encryption: Mac = field(repr=False)
    tagging: Mac = field(repr=False)
    sealing: Mac = field(repr=False)
    dumping: Mac = field(repr=False)
    anchoring: Mac = field(repr=False)

    @classmethod
    def derive(cls, key_id: str, secret: bytes) -> PackKey:
        def part(purpose: bytes, length: int) -> bytes:
            return HKDF(SHA256(), length, None, b"archiver pack v1 " + purpose).derive(secret)

        purposes = (b"encryption", b"content tag", b"seal", b"dump", b"audit anchor")
        return cls(key_id, part(b"fingerprint", 4), *(Mac.of(part(purpose, 32)) for purpose in purposes))

    def content_tag(self, sha256: bytes) -> bytes:
        """Represents the content in the unencrypted header: it can be compared, but does not reveal the hash."""
        return self.tagging.digest(sha256)[:TAG_BYTES]

    def frame_key(self, salt: bytes) -> bytes:
        return self.encryption.digest(salt)

    def dump_key(self, salt: bytes) -> bytes:
        return self.dumping.digest(salt)

    def seal_digest(self, sealed: bytes) -> bytes:
        """The digest in a pack's seal, which can't be computed without the key."""
        return self.sealing.digest(sealed)


class PackKeys:
    """All available keys; the first one of the keyring encrypts."""

    def __init__(self, keyring: Keyring) -> None:
        self._keys = [_derive(key_id, secret) for key_id, secret in keyring.keys.items()]
        self._by_fingerprint = {key.fingerprint: key for key in self._keys}
        self.active = self._keys[0]

    def __iter__(self) -> Iterator[PackKey]:
        return iter(self._keys)

    def find(self, fingerprint: bytes, key_id: str = "") -> PackKey:
        """`key_id` is the id in the pack's header, for the error message."""
        key = self._by_fingerprint.get(fingerprint)
        if key is not None:
            return key
        available = ", ".join(known.id for known in self._keys)
        name = f" {key_id!r}" if key_id else ""
        if key_id in (known.id for known in self._keys):
            raise WrongKey(
                f"the archive is encrypted with a key{name} of fingerprint {fingerprint.hex()}; "
                "the configured key of this id is another one: configure the original key"
            )
        raise WrongKey(
            f"the archive is encrypted with a key{name} of fingerprint {fingerprint.hex()}, "
            f"which is not configured (only {available}): add it to STORAGE_ENCRYPTION_KEY or the key file"
        )


@cache
def _derive(key_id: str, secret: bytes) -> PackKey:
    return PackKey.derive(key_id, secret)
