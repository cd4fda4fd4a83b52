"""Identifiers: UUIDv7 (they sort by time of making) for all rows, UUIDv8 made from the content for messages."""

from __future__ import annotations

import os
import threading
import time
from uuid import UUID, SafeUUID

_lock = threading.Lock()
_last = 0


def uuid_of(value: int) -> UUID:
    """UUID(int=value) for a value that surely has 128 bits, in a third of the time: nothing is checked."""
    made = object.__new__(UUID)
    object.__setattr__(made, "int", value)
    object.__setattr__(made, "is_safe", SafeUUID.unknown)
    return made


def uuid7() -> UUID:
    """RFC 9562 version 7: milliseconds and a 12-bit fraction, so that the ids of one process only rise."""
    global _last
    with _lock:
        stamp = time.time_ns() // 250  # a unit of 250 ns fits 48 bits of milliseconds and 12 bits below them
        _last = max(stamp, _last + 1)
        milliseconds, fraction = divmod(_last, 4000)
    random = int.from_bytes(os.urandom(8)) & ((1 << 62) - 1)
    return uuid_of((milliseconds << 80) | (0x7 << 76) | (fraction << 64) | (0b10 << 62) | random)


def message_uuid(sha256: bytes) -> UUID:
    """RFC 9562 version 8: the first 122 free bits are those of the SHA-256, so that a rebuilt archive has the same ids."""
    if len(sha256) != 32:
        raise ValueError(f"a SHA-256 has 32 bytes, not {len(sha256)}")
    value = int.from_bytes(sha256[:16])
    value = value & ~(0xF << 76) | (0x8 << 76)
    value = value & ~(0b11 << 62) | (0b10 << 62)
    return uuid_of(value)
