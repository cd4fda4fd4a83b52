"""The head of the audit log as a frame: the state of the log at a time, sealed with a key that the database does not have."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from archiver.store.content import MemoryContent
from archiver.store.encoder import Record
from archiver.store.frames import FrameKind
from archiver.store.keys import PackKeys

VERSION = 1


@dataclass(frozen=True, slots=True)
class Anchor:
    at: datetime
    entry: int
    """The number of the last entry; as each hash covers the one before, all entries up to it are covered."""
    hash: bytes
    accepts: str | None
    """Why the log need not match earlier anchors: an administrator with the keys rebuilt or restored the database."""
    key: str
    """The fingerprint of the storage key of the MAC."""
    mac: bytes

    @classmethod
    def create(cls, keys: PackKeys, at: datetime, entry: int, hash_: bytes, accepts: str | None = None) -> Anchor:
        key = keys.active
        return cls(at, entry, hash_, accepts, key.fingerprint.hex(), key.anchoring.digest(_text(at, entry, hash_, accepts)))

    @property
    def head(self) -> str:
        return f"{self.entry}:{self.hash.hex()}"

    def is_genuine(self, keys: PackKeys) -> bool:
        """Also False if it was created with a key that is not among these."""
        text = _text(self.at, self.entry, self.hash, self.accepts)
        return any(
            key.fingerprint.hex() == self.key and hmac.compare_digest(key.anchoring.digest(text), self.mac) for key in keys
        )

    def encode(self) -> bytes:
        return orjson.dumps(
            {
                "v": VERSION,
                "at": self.at,
                "entry": self.entry,
                "hash": self.hash.hex(),
                "accepts": self.accepts,
                "key": self.key,
                "mac": self.mac.hex(),
            }
        )

    def record(self) -> Record:
        content = self.encode()
        return Record(FrameKind.AUDIT_ANCHOR, hashlib.sha256(content).digest(), MemoryContent(content))

    @classmethod
    def decode(cls, content: bytes) -> Anchor:
        """Raises ValueError for anything else."""
        try:
            data: dict[str, Any] = orjson.loads(content)
            if data["v"] != VERSION:
                raise ValueError(f"an audit anchor of version {data['v']}; this program reads version {VERSION}")
            at, digest, mac = datetime.fromisoformat(data["at"]), bytes.fromhex(data["hash"]), bytes.fromhex(data["mac"])
            return cls(at, int(data["entry"]), digest, data["accepts"], str(data["key"]), mac)
        except (KeyError, TypeError) as error:
            raise ValueError(f"not an audit anchor: {error}") from error


def _text(at: datetime, entry: int, hash_: bytes, accepts: str | None) -> bytes:
    return orjson.dumps(["archiver audit anchor", VERSION, at, entry, hash_.hex(), accepts])
