"""The spool: where a message is durable before the mail server gets its 250, whatever happens to Postgres or to this process.

A file holds the messages of all connections that waited for the disk at the same moment: one fsync for all of them. A large
message has a file of its own, written while it arrives. A file gets its final name after its content is on the disk, so there
are no torn files to repair. Files are sealed with the storage key, like the packs.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from archiver.db.ids import uuid7
from archiver.errors import InUse
from archiver.journal.envelope import JournalEnvelope
from archiver.store.errors import Damage, Spot
from archiver.store.files import Files, OsFiles, write_all
from archiver.store.keys import PackKeys
from archiver.store.sealed_file import seal_pieces, unseal_pieces

_HEAD = struct.Struct("<IQ")  # length of the envelope, length of the message
_TO_THE_END = (1 << 64) - 1
"""The length of a message that was written while it arrived: it is the last in its file."""
_FINAL, _TEMPORARY, _SET_ASIDE = ".mail", ".tmp", ".failed"


@dataclass(slots=True)
class _Waiting:
    head: bytes
    data: bytes
    is_durable: bool = False
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class SpoolBacklog:
    files: int
    bytes: int
    set_aside: int
    """Files that can't be delivered, and wait for an administrator."""


@dataclass(slots=True)
class JournalSpool:
    """Any number of threads may append; one process at a time holds the folder (`hold`)."""

    folder: Path
    keys: PackKeys
    check_space: Callable[[int], None] = lambda _: None
    """Raises an error if this many more bytes do not fit."""
    files: Files = field(default_factory=OsFiles)
    _queue: list[_Waiting] = field(default_factory=list)
    _queue_lock: threading.Lock = field(default_factory=threading.Lock)
    _disk_lock: threading.Lock = field(default_factory=threading.Lock)
    arrived: threading.Event = field(default_factory=threading.Event)
    """Set whenever there is something new to deliver."""

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Removes what a killed process had not finished: none of it was acknowledged."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self.folder / "lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InUse(f"{self.folder}: another `archiver journal` uses this spool") from None
            for unfinished in self.folder.glob(f"*{_TEMPORARY}"):
                unfinished.unlink()
            yield

    def append(self, envelope: JournalEnvelope, data: bytes) -> None:
        """Returns once the message is durable. Raises OSError, or what `check_space` raises, if it is not."""
        self.check_space(len(data))
        entry = _Waiting(_head(envelope, len(data)), data)
        with self._queue_lock:
            self._queue.append(entry)
        with self._disk_lock:  # whoever gets it writes for all who wait
            if not entry.is_durable and entry.error is None:
                self._write_group()
        if entry.error is not None:
            raise entry.error
        assert entry.is_durable

    def append_stream(self, envelope: JournalEnvelope, pieces: Iterable[bytes]) -> None:
        """The same for a message of any size. An error in `pieces` leaves nothing behind."""

        def checked() -> Iterator[bytes]:
            yield _head(envelope, _TO_THE_END)
            for piece in pieces:
                self.check_space(len(piece))
                yield piece

        self._write(checked())

    def _write_group(self) -> None:
        with self._queue_lock:
            group, self._queue = self._queue, []
        try:
            self._write(piece for entry in group for piece in (entry.head, entry.data))
        except BaseException as error:  # noqa: BLE001  (each of the waiting connections raises it)
            for entry in group:
                entry.error = error
        else:
            for entry in group:
                entry.is_durable = True

    def _write(self, pieces: Iterable[bytes]) -> None:
        name = str(uuid7())
        temporary, final = self.folder / f"{name}{_TEMPORARY}", self.folder / f"{name}{_FINAL}"
        try:
            self._write_file(temporary, pieces)
            self.files.rename(temporary, final)
            self.files.fsync_folder(self.folder)
        except BaseException:
            for unacknowledged in (temporary, final):
                with contextlib.suppress(OSError):
                    unacknowledged.unlink(missing_ok=True)
            raise
        self.arrived.set()

    def _write_file(self, path: Path, pieces: Iterable[bytes]) -> None:
        descriptor = self.files.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            for sealed in seal_pieces(self.keys.active, pieces):
                write_all(self.files, descriptor, sealed)
            self.files.fsync(descriptor)
        finally:
            os.close(descriptor)

    def waiting(self) -> list[Path]:
        """In order of arrival."""
        return sorted(self.folder.glob(f"*{_FINAL}"))

    def backlog(self) -> SpoolBacklog:
        return read_backlog(self.folder)

    def read(self, path: Path) -> Iterator[tuple[JournalEnvelope, Iterator[bytes]]]:
        """The messages of a file. The pieces of one have to be consumed before the next. Raises Damage."""
        source = _PieceReader(unseal_pieces(self.keys, path))
        while head := source.take(_HEAD.size):
            if len(head) < _HEAD.size:
                raise Damage(Spot(path.name, 0), "it ends in the middle of a message")
            envelope_bytes, message_bytes = _HEAD.unpack(head)
            envelope = JournalEnvelope.decode(source.take(envelope_bytes))
            yield envelope, source.pieces(None if message_bytes == _TO_THE_END else message_bytes)

    def remove(self, path: Path) -> None:
        """After its messages are in the archive. If the disk forgets it, they are delivered again, which changes nothing."""
        path.unlink(missing_ok=True)

    def set_aside(self, path: Path) -> Path:
        """For a file that can't be delivered: the others go on, and nothing is lost."""
        target = path.with_suffix(_SET_ASIDE)
        path.rename(target)
        return target


def read_backlog(folder: Path) -> SpoolBacklog:
    """From any process, while another one writes and removes files."""
    sizes, aside = [], 0
    if folder.is_dir():
        for entry in os.scandir(folder):
            aside += entry.name.endswith(_SET_ASIDE)
            if entry.name.endswith(_FINAL):
                with contextlib.suppress(FileNotFoundError):
                    sizes.append(entry.stat().st_size)
    return SpoolBacklog(len(sizes), sum(sizes), aside)


def read_oldest(folder: Path) -> datetime | None:
    """When the oldest message that still waits arrived."""
    names = (entry.name for entry in os.scandir(folder) if entry.name.endswith(_FINAL)) if folder.is_dir() else iter(())
    waiting = min(names, default=None)
    return datetime.fromtimestamp((UUID(waiting.removesuffix(_FINAL)).int >> 80) / 1000, UTC) if waiting else None


def _head(envelope: JournalEnvelope, length: int) -> bytes:
    encoded = envelope.encode()
    return _HEAD.pack(len(encoded), length) + encoded


class _PieceReader:
    """Reads exact lengths from a sequence of pieces."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._held = pieces, b""

    def take(self, length: int) -> bytes:
        """Fewer bytes only at the end."""
        return b"".join(self.pieces(length))

    def pieces(self, length: int | None) -> Iterator[bytes]:
        """Up to the end, if no length is given."""
        left = length
        while left is None or left > 0:
            if not self._held:
                self._held = next(self._pieces, b"")
                if not self._held:
                    return
            taken = self._held if left is None else self._held[:left]
            self._held = self._held[len(taken) :]
            left = None if left is None else left - len(taken)
            yield taken
