"""Where packs are stored: what a folder and a bucket have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol
from uuid import UUID

from archiver.store.encoder import Record
from archiver.store.pack import Seal
from archiver.store.writer import Appended

_WINDOW_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class PackFile:
    """A pack that can be read."""

    id: UUID
    name: str
    size: int
    read_at: Callable[[int, int], bytes]

    def read_ahead(self) -> PackFile:
        """The same pack for sequential reading: many frames with one system call."""
        return replace(self, read_at=_Window(self.read_at).read_at)


class _Window:
    """The range that was read last."""

    def __init__(self, read_at: Callable[[int, int], bytes]) -> None:
        self._read_at = read_at
        self._held, self._base = b"", 0

    def read_at(self, offset: int, length: int) -> bytes:
        if length > _WINDOW_BYTES // 4:
            return self._read_at(offset, length)
        at = offset - self._base
        if not 0 <= at <= len(self._held) - length:
            self._held, self._base, at = self._read_at(offset, _WINDOW_BYTES), offset, 0
        return self._held[at : at + length]


def _nothing() -> None:
    return None


@dataclass(frozen=True, slots=True)
class SealedPack:
    id: UUID
    size: int
    seal: Seal


@dataclass(frozen=True, slots=True)
class Written:
    """A batch that is durable, and the packs that were finished with it."""

    batch: Appended
    sealed: tuple[SealedPack, ...] = ()
    left: tuple[UUID, ...] = ()
    """Packs that turned out to be damaged when they were to be sealed."""
    give_up: Callable[[], None] = field(default=_nothing, compare=False, repr=False)
    """For a caller whose batch the database rejected: no other batch is added to this pack."""


class Backend(Protocol):
    def append(self, records: Sequence[Record]) -> Written:
        """Durable as a whole when it returns. StoreUnavailable: nothing was stored. Safe to call from several threads."""

    def open(self, pack_id: UUID) -> PackFile:
        """Raises LostPack."""

    def packs(self) -> Iterator[UUID]:
        """All of them, oldest first."""

    def hold(self, pack_id: UUID, rest_seconds: float) -> Callable[[], None] | None:
        """Blocks writers of a pack until the result is called. None: it is being written, or was within `rest_seconds`."""

    def release_idle(self) -> None:
        """Lets go of packs that this process is not writing at the moment, so that others can replace them."""

    def put(self, finished: Path, pack_id: UUID) -> None:
        """Adds a finished pack, atomically and durably."""

    def remove(self, pack_id: UUID) -> None:
        """No error if it is gone already. Raises PackLocked."""

    @property
    def can_lock(self) -> bool:
        """Whether packs can be locked until a time, which no one can shorten."""

    def lock_until(self, pack_id: UUID, until: datetime) -> None: ...

    def locked_until(self, pack_id: UUID) -> datetime | None:
        """None: it is not locked."""

    def sweep(self, age: timedelta) -> None:
        """Removes temporary files that killed processes left, older than `age`; never a pack."""

    def close(self) -> None: ...
