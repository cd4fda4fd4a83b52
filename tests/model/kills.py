"""A process that ends between any two writes: from one step on, nothing reaches the disk or the database any more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event

from archiver.store.files import OsFiles


class Killed(BaseException):
    """Not an Exception, as no code of ours may go on after it."""


class Steps:
    """Counts writes and commits, and ends the process before the one with the number `last`; None: never."""

    def __init__(self, last: int | None) -> None:
        self.count = 0
        self.last = last

    def step(self) -> None:
        if self.last is not None and self.count >= self.last:
            raise Killed
        self.count += 1

    def watch(self, engine: Engine) -> None:
        event.listen(engine, "commit", self._commit)

    def unwatch(self, engine: Engine) -> None:
        event.remove(engine, "commit", self._commit)

    def _commit(self, connection: Any) -> None:
        self.step()


class MortalFiles(OsFiles):
    """Files of a process that may be killed; a write that is cut short has reached the disk in part."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def open(self, path: Path, flags: int) -> int:
        self._steps.step()
        return super().open(path, flags)

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        try:
            self._steps.step()
        except Killed:
            if self._steps.count == self._steps.last:
                self._steps.count += 1
                super().write(descriptor, memoryview(data)[: len(data) // 2])
            raise
        return super().write(descriptor, data)

    def write_at(self, descriptor: int, data: bytes, offset: int) -> None:
        self._steps.step()
        super().write_at(descriptor, data, offset)

    def truncate(self, descriptor: int, length: int) -> None:
        self._steps.step()
        super().truncate(descriptor, length)

    def fsync(self, descriptor: int) -> None:
        self._steps.step()
        super().fsync(descriptor)

    def fsync_folder(self, folder: Path) -> None:
        self._steps.step()
        super().fsync_folder(folder)

    def rename(self, path: Path, target: Path) -> None:
        self._steps.step()
        super().rename(path, target)

    def unlink(self, path: Path) -> None:
        self._steps.step()
        super().unlink(path)
