"""One server per data folder: a `flock`, which the kernel releases when its holder dies."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from archiver.errors import InUse


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Locks `folder` for this process. Raises InUse, with the pid of the holder, if another process has it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "lock"
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(handle, 32).decode("ascii", "replace").strip() or "unknown"
            raise InUse(f"the search index in {folder} is in use by another search server (process {holder})") from error
        os.ftruncate(handle, 0)
        os.write(handle, f"{os.getpid()}\n".encode())
        yield
    finally:
        os.close(handle)
