"""The few operations on files that durability rests on, behind a seam where tests make each of them fail."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from archiver.store.errors import StoreUnavailable

_REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EIO: "the disk reports an I/O error",
    errno.EACCES: "no permission to write",
}


class Files(Protocol):
    def open(self, path: Path, flags: int) -> int: ...
    def write(self, descriptor: int, data: bytes | memoryview) -> int: ...
    def write_at(self, descriptor: int, data: bytes, offset: int) -> None: ...
    def truncate(self, descriptor: int, length: int) -> None: ...
    def fsync(self, descriptor: int) -> None: ...
    def fsync_folder(self, folder: Path) -> None: ...
    def rename(self, path: Path, target: Path) -> None: ...
    def unlink(self, path: Path) -> None: ...


class OsFiles:
    def open(self, path: Path, flags: int) -> int:
        return os.open(path, flags | os.O_CLOEXEC, 0o600)

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        return os.write(descriptor, data)

    def write_at(self, descriptor: int, data: bytes, offset: int) -> None:
        if os.pwrite(descriptor, data, offset) != len(data):
            raise OSError(errno.EIO, "fewer bytes were written than requested")

    def truncate(self, descriptor: int, length: int) -> None:
        os.ftruncate(descriptor, length)

    def fsync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def fsync_folder(self, folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, path: Path, target: Path) -> None:
        path.replace(target)

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)


def write_all(files: Files, descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[files.write(descriptor, view) :]


def try_lock(descriptor: int) -> bool:
    """The `flock` of the one process that may append, truncate or seal. The system releases it when the process ends."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def remove_older(paths: Iterable[Path], age: timedelta) -> None:
    """Removes files and folders that were last written to more than `age` ago."""
    for path in paths:
        with suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime >= age.total_seconds():
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def forget_cached(descriptor: int) -> None:
    """Drops the file from the page cache, where the system can: the next read shows what the disk has."""
    if hasattr(os, "posix_fadvise"):  # not on macOS
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


@contextmanager
def explain_os_errors(what: str, path: Path) -> Iterator[None]:
    """Translates an OSError into an error that an administrator can act on."""
    try:
        yield
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, error.strerror or str(error))
        raise StoreUnavailable(f"{what} {path}: {reason}; nothing of this batch was stored") from error
