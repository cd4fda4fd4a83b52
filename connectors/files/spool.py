"""Temporary files of a scan: unpacked archives, and messages that are too large for memory."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from connectors.errors import Unavailable
from connectors.files.detect import FileKind
from connectors.files.open_file import fingerprint
from connectors.files.unpacking import Unpacking, UnpackingRefused

_FORGOTTEN_SECONDS = 7 * 86400


@dataclass(frozen=True, slots=True)
class Unpacked:
    folder: Path
    bytes: int
    is_archive: bool
    """Not a single compressed file."""
    problems: tuple[tuple[str, str], ...]


class FileSpool:
    """A folder for one mailbox of one source. Anything unused for a week is removed from all such folders."""

    def __init__(self, area: Path, owner: str, least_free_bytes: int) -> None:
        self.path = area / owner
        self._least_free_bytes = least_free_bytes
        self._numbers = count()
        self._large: list[Path] = []

    def prepare(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            for folder in self.path.parent.iterdir():
                _clean(folder)
            self.path.mkdir(exist_ok=True, mode=0o700)
        except OSError as error:
            raise Unavailable(f"{self.path} can't be used: {error.strerror}") from error

    def write_message(self, pieces: Iterable[bytes]) -> Path:
        """A message as a file, which the consumer of the batch removes."""
        if shutil.disk_usage(self.path).free < self._least_free_bytes:
            raise Unavailable("a large message can't be spooled: the disk is nearly full")
        path = self.path / f"large-{os.getpid()}-{id(self):x}-{next(self._numbers)}.eml"
        self._large.append(path)
        try:
            with path.open("wb") as file:
                file.writelines(pieces)
        except OSError as error:
            if isinstance(error, FileNotFoundError) or error.errno in (28, 122):  # ENOSPC, EDQUOT
                raise Unavailable(f"a large message can't be spooled: {error.strerror}") from error
            raise
        return path

    def unpack(self, path: Path, kind: FileKind, alive: Callable[[int], None]) -> Unpacked:
        """Unpacks once; later calls for the same file find it done. Raises Refused, or OSError."""
        folder, done = self._places(path)
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            work = Unpacking(path, folder, alive, self._least_free_bytes)
            try:
                work.run(kind)
            except (UnpackingRefused, OSError):
                shutil.rmtree(folder, ignore_errors=True)
                raise
            draft = done.with_suffix(".draft")
            saved = {"bytes": work.unpacked_bytes, "is_archive": work.is_archive, "problems": work.problems}
            draft.write_text(json.dumps(saved))
            draft.replace(done)
        with suppress(OSError):
            os.utime(done)
            os.utime(folder)
        saved = json.loads(done.read_text())
        return Unpacked(
            folder, saved["bytes"], saved["is_archive"], tuple((name, reason) for name, reason in saved["problems"])
        )

    def remove_unpacked(self, path: Path) -> None:
        """The archive was read to its end."""
        with suppress(OSError):
            folder, done = self._places(path)
            shutil.rmtree(folder, ignore_errors=True)
            done.unlink(missing_ok=True)

    def close(self) -> None:
        for path in self._large:
            path.unlink(missing_ok=True)

    def _places(self, path: Path) -> tuple[Path, Path]:
        name = hashlib.sha256(f"{path}:{fingerprint(path.stat())}".encode("utf-8", "surrogateescape")).hexdigest()[:24]
        return self.path / name, self.path / f"{name}.json"


def _clean(folder: Path) -> None:
    """Other processes may clean up, or work, at the same time."""
    with suppress(OSError):
        for entry in folder.iterdir():
            if time.time() - entry.stat().st_mtime > _FORGOTTEN_SECONDS:
                shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink(missing_ok=True)
        if time.time() - folder.stat().st_mtime > _FORGOTTEN_SECONDS:
            folder.rmdir()
