"""The archive's signing key (Ed25519): signs what leaves the archive, so that others can check where it came from.

The private key is sealed with ENCRYPTION_KEY in the database and in the snapshots of the configuration. A signature covers its
subject ("archiver export manifest v1"), so that what was signed as one thing proves nothing as another.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from sqlalchemy import Connection, text

from archiver.db.ids import uuid7
from archiver.errors import UsageError
from archiver.secrets import Keyring

_NEWEST = text("SELECT id, private_key FROM signing_keys ORDER BY id DESC LIMIT 1")
_ALL = text("SELECT public_key, created_at FROM signing_keys ORDER BY id")
_ADD = text("INSERT INTO signing_keys (id, public_key, private_key) VALUES (:id, :public_key, :private_key)")
_LOCK = text("SELECT pg_advisory_xact_lock(hashtextextended('archiver:signing_keys', 0))")


@dataclass(frozen=True, slots=True)
class SigningKey:
    _private: Ed25519PrivateKey = field(repr=False)

    @property
    def id(self) -> str:
        return key_id(self.public_bytes)

    @property
    def public_bytes(self) -> bytes:
        return _raw(self._private.public_key())

    def sign(self, subject: str, digest: bytes) -> bytes:
        return self._private.sign(_message(subject, digest))


@dataclass(frozen=True, slots=True)
class PublicSigningKey:
    id: str
    public_bytes: bytes
    created_at: datetime


def key_id(public_bytes: bytes) -> str:
    """The first 16 bytes of the key's SHA-256, in hexadecimal: short enough to compare by eye."""
    return hashlib.sha256(public_bytes).hexdigest()[:32]


def load_key(connection: Connection, keyring: Keyring) -> SigningKey | None:
    row = connection.execute(_NEWEST).first()
    if row is None:
        return None
    plain = keyring.unseal(bytes(row.private_key), purpose(row.id))
    return SigningKey(Ed25519PrivateKey.from_private_bytes(plain))


def create_key(connection: Connection, keyring: Keyring) -> bool:
    """Creates the first key; False if there is one. The caller stores a snapshot of the configuration afterwards."""
    connection.execute(_LOCK)
    if connection.execute(_NEWEST).first() is not None:
        return False
    private = Ed25519PrivateKey.generate()
    row_id = uuid7()
    sealed = keyring.seal(private.private_bytes_raw(), purpose(row_id))
    connection.execute(_ADD, {"id": row_id, "public_key": _raw(private.public_key()), "private_key": sealed})
    return True


def public_keys(connection: Connection) -> list[PublicSigningKey]:
    rows = [(bytes(row.public_key), row.created_at) for row in connection.execute(_ALL)]
    return [PublicSigningKey(key_id(public), public, created_at) for public, created_at in rows]


def public_pem(public_bytes: bytes) -> str:
    key = Ed25519PublicKey.from_public_bytes(public_bytes)
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo).decode()


def read_public_pem(pem: bytes) -> bytes:
    """Raises UsageError if it is not an Ed25519 public key."""
    try:
        key = serialization.load_pem_public_key(pem)
    except ValueError as error:
        raise UsageError("not a public key in PEM form") from error
    if not isinstance(key, Ed25519PublicKey):
        raise UsageError("not an Ed25519 public key")
    return _raw(key)


def is_signed(public_bytes: bytes, subject: str, digest: bytes, signature: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public_bytes).verify(signature, _message(subject, digest))
    except (InvalidSignature, ValueError):
        return False
    return True


def _message(subject: str, digest: bytes) -> bytes:
    return subject.encode() + b"\0" + digest


def purpose(row_id: UUID) -> bytes:
    """What the sealed private key of a row is bound to."""
    return b"signing-key:" + row_id.bytes


def _raw(key: Ed25519PublicKey) -> bytes:
    return key.public_bytes_raw()
