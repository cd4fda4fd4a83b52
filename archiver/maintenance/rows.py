"""The rows that maintenance reads."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from archiver.db.states import PackState

PACKS = "SELECT id, name, state, size_bytes, sha256, verified_at FROM packs"


@dataclass(frozen=True, slots=True)
class PackRow:
    id: UUID
    name: str
    state: PackState
    size_bytes: int
    """How far the database knows it."""
    sha256: bytes | None
    """Of a sealed one."""
    verified_at: datetime | None


@dataclass(frozen=True, slots=True)
class FilledPack:
    """A pack that may be replaced, and how much of it is still needed."""

    id: UUID
    state: PackState
    size_bytes: int
    live_bytes: int


@dataclass(frozen=True, slots=True)
class ExpectedObject:
    sha256: bytes
    kind: str
    position: int
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class SealedValue:
    id: UUID
    value: bytes
