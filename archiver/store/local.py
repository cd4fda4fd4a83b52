"""Packs in a folder. Each batch borrows a writer; two batches at once write to two packs."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

from archiver.logs import get_logger
from archiver.store.backend import PackFile, SealedPack, Written
from archiver.store.dictionaries import Trainer
from archiver.store.encoder import Record
from archiver.store.errors import Damage, LostPack
from archiver.store.files import Files, OsFiles, explain_os_errors, remove_older, try_lock
from archiver.store.keys import PackKeys
from archiver.store.pack import PACK_HEADER_BYTES, PACK_LIMIT_BYTES, read_seal
from archiver.store.writer import KnownEnd, PackWriter, pack_name

_log = get_logger(__name__)
_OPEN_FILES = 128


class LocalPacks:
    def __init__(
        self,
        folder: Path,
        keys: PackKeys,
        trainer: Trainer,
        known_end: KnownEnd,
        *,
        files: Files | None = None,
        limit_bytes: int = PACK_LIMIT_BYTES,
    ) -> None:
        self.folder = folder
        self._keys = keys
        self._trainer = trainer
        self._known_end = known_end
        self._files = files or OsFiles()
        self._limit = limit_bytes
        self._lock = threading.Lock()
        self._idle: list[PackWriter] = []
        self._left: set[UUID] = set()
        self._readers = _OpenFiles(folder)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    # writing

    def append(self, records: Sequence[Record]) -> Written:
        finished: list[SealedPack | UUID] = []
        writer = self._borrow()
        try:
            expected = sum(record.content.size for record in records)
            if writer.size > PACK_HEADER_BYTES and writer.size + expected > self._limit:
                finished.append(self._seal(writer))
                writer = self._begin()
            self._trainer.train_if_due()
            batch = writer.append(records)
        except BaseException:
            self._give_back(writer)
            raise
        if writer.size >= self._limit:
            finished.append(self._seal(writer))
        self._give_back(writer)
        sealed = tuple(pack for pack in finished if isinstance(pack, SealedPack))
        left = tuple(pack for pack in finished if isinstance(pack, UUID))
        return Written(batch, sealed, left, lambda: self._close_idle(batch.pack_id))

    def _seal(self, writer: PackWriter) -> SealedPack | UUID:
        """Returns only the id of a damaged pack, which is left unchanged and never appended to again."""
        try:
            seal = writer.seal()
        except Damage as damage:
            _log.error("pack_damaged", pack=writer.path.name, reason=str(damage))
            self._left.add(writer.pack_id)
            return writer.pack_id
        return SealedPack(writer.pack_id, writer.size, seal)

    def _borrow(self) -> PackWriter:
        with self._lock:
            if self._idle:
                return self._idle.pop()
            return self._adopt_orphan() or self._begin()

    def _give_back(self, writer: PackWriter) -> None:
        if writer.is_open:
            with self._lock:
                self._idle.append(writer)

    def _begin(self) -> PackWriter:
        return PackWriter.create(self.folder, self._keys.active, self._trainer, self._files)

    def _adopt_orphan(self) -> PackWriter | None:
        """A pack that a process left unfinished when it ended."""
        for path in sorted(self.folder.glob("*.pack"), reverse=True):
            try:
                if not path.stat().st_mode & 0o200:  # sealed
                    continue
                writer = PackWriter.adopt(path, self._keys.active, self._trainer, self._files, self._end_known)
            except FileNotFoundError:
                continue
            if writer is not None and writer.size < self._limit:
                return writer
            if writer is not None:
                writer.close()
        return None

    def _end_known(self, pack_id: UUID) -> int | None:
        return None if pack_id in self._left else self._known_end(pack_id)

    # reading

    def open(self, pack_id: UUID) -> PackFile:
        return self._readers.open(pack_id)

    def packs(self) -> Iterator[UUID]:
        for path in sorted(self.folder.glob("*.pack")):
            try:
                yield UUID(path.stem)
            except ValueError:
                continue  # not ours

    # maintenance

    def hold(self, pack_id: UUID, rest_seconds: float) -> Callable[[], None] | None:
        self._close_idle(pack_id)
        try:
            descriptor = os.open(self.folder / pack_name(pack_id), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        rested = time.time() - os.fstat(descriptor).st_mtime >= rest_seconds
        if not rested or not try_lock(descriptor):
            os.close(descriptor)
            return None
        return lambda: os.close(descriptor)

    def release_idle(self) -> None:
        with self._lock:
            for writer in self._idle:
                writer.close()
            self._idle.clear()

    def _close_idle(self, pack_id: UUID) -> None:
        """Closes this process's idle writer of the pack, so that it does not count as in use."""
        with self._lock:
            for writer in [writer for writer in self._idle if writer.pack_id == pack_id]:
                writer.close()
                self._idle.remove(writer)

    def put(self, finished: Path, pack_id: UUID) -> None:
        target = self.folder / pack_name(pack_id)
        with explain_os_errors("can't take in", target):
            temporary = self.folder / f".{target.name}.new"
            if finished.parent != self.folder:
                shutil.copyfile(finished, temporary)
                finished = temporary
            descriptor = self._files.open(finished, os.O_RDONLY)
            try:
                self._files.fsync(descriptor)
                finished.chmod(0o400 if _is_sealed(descriptor) else 0o600)
            finally:
                os.close(descriptor)
            self._files.rename(finished, target)
            self._files.fsync_folder(self.folder)

    def remove(self, pack_id: UUID) -> None:
        self._readers.forget(pack_id)
        self._files.unlink(self.folder / pack_name(pack_id))
        self._files.fsync_folder(self.folder)

    @property
    def can_lock(self) -> bool:
        return False

    def lock_until(self, pack_id: UUID, until: datetime) -> None:
        """A folder has no such lock: sealed packs are read-only for their owner, who can change that."""

    def locked_until(self, pack_id: UUID) -> datetime | None:
        return None

    def sweep(self, age: timedelta) -> None:
        remove_older(self.folder.glob(".*.pack.new"), age)

    def close(self) -> None:
        self.release_idle()
        self._readers.close()


def _is_sealed(descriptor: int) -> bool:
    size = os.fstat(descriptor).st_size
    return read_seal(lambda offset, length: os.pread(descriptor, length, offset), size) is not None


class _OpenFiles:
    """Descriptors of the packs that were read last."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._open: OrderedDict[UUID, _Descriptor] = OrderedDict()

    def open(self, pack_id: UUID) -> PackFile:
        name = pack_name(pack_id)
        with self._lock:
            held = self._open.get(pack_id)
            if held is None:
                try:
                    held = _Descriptor(os.open(self._folder / name, os.O_RDONLY | os.O_CLOEXEC))
                except FileNotFoundError:
                    raise LostPack(name) from None
                self._open[pack_id] = held
                if len(self._open) > _OPEN_FILES:
                    self._open.popitem(last=False)
            self._open.move_to_end(pack_id)
        return PackFile(pack_id, name, os.fstat(held.number).st_size, held.read_at)

    def forget(self, pack_id: UUID) -> None:
        with self._lock:
            self._open.pop(pack_id, None)

    def close(self) -> None:
        with self._lock:
            self._open.clear()


class _Descriptor:
    """Closed with its last user: a removed pack stays readable for processes that are reading it."""

    def __init__(self, number: int) -> None:
        self.number = number

    def read_at(self, offset: int, length: int) -> bytes:
        return os.pread(self.number, length, offset)

    def __del__(self) -> None:
        os.close(self.number)
