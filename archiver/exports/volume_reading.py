"""The files of an export as they are read back: from zip files, or from a plain mbox or Maildir with the manifest beside it."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Protocol

import orjson

from archiver.errors import UsageError
from archiver.exports.layout import CSV_FILE, MBOX_FILE
from archiver.exports.package_files import MANIFEST, PUBLIC_KEY, SIGNATURE, beside, volume_order
from archiver.exports.volume import zip_date

OWN_FILES = frozenset({MANIFEST, SIGNATURE, PUBLIC_KEY})
UNREADABLE = (zipfile.BadZipFile, OSError, EOFError, NotImplementedError, RuntimeError, ValueError)
"""What a damaged file, or a hostile zip file, may raise."""


class ReadableVolume(Protocol):
    def names(self) -> list[str]:
        """Of its files, without folders."""

    def has_date(self, name: str, at: datetime) -> bool: ...

    def open(self, name: str) -> IO[bytes]:
        """Raises KeyError if there is no such file, or one of UNREADABLE."""


@dataclass(frozen=True, slots=True)
class ZipVolume:
    zip: zipfile.ZipFile

    def names(self) -> list[str]:
        return [name for name in self.zip.namelist() if not name.endswith("/")]

    def has_date(self, name: str, at: datetime) -> bool:
        return self.zip.getinfo(name).date_time == zip_date(at)

    def open(self, name: str) -> IO[bytes]:
        return self.zip.open(self.zip.getinfo(name))


class PlainVolume:
    """One file or one Maildir. A copied file has another date; that of the message is in the manifest."""

    def __init__(self, path: Path) -> None:
        self._path, self._files = path, dict(_mail_files(path))
        self._files |= {name: found for name in sorted(OWN_FILES) if (found := beside(path, name)).is_file()}

    def names(self) -> list[str]:
        return list(self._files)

    def has_date(self, name: str, at: datetime) -> bool:
        return True

    def open(self, name: str) -> IO[bytes]:
        return self._files[name].open("rb")


def _mail_files(path: Path) -> Iterator[tuple[str, Path]]:
    """By the names that they have in the manifest. A single file may have been renamed."""
    if path.is_dir():
        yield from ((one.relative_to(path).as_posix(), one) for one in path.rglob("*") if not one.is_dir())
    elif head := _beginning(path):
        yield (MBOX_FILE if head.startswith(b"From ") else CSV_FILE), path


def _beginning(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(5)


def find_volumes(paths: Sequence[Path]) -> list[Path]:
    """The files themselves, or the zip files in a folder, in the order of their numbers."""
    found = [one for path in paths for one in _volumes_at(path)]
    missing = [path for path in found if not path.exists()]
    if missing or not found:
        raise UsageError(f"{(missing or list(paths))[0]}: not a volume of an export, nor a folder with volumes")
    return found


def _volumes_at(path: Path) -> list[Path]:
    if not path.is_dir() or is_plain(path):
        return [path]
    return sorted(path.glob("*.zip"), key=volume_order)


def is_plain(path: Path) -> bool:
    """A Maildir, an mbox or a table, with the manifest beside it."""
    return beside(path, MANIFEST).is_file() and (path.is_dir() or not _beginning(path).startswith(b"PK"))


def open_volume(path: Path, opened: ExitStack) -> ReadableVolume:
    """Raises one of UNREADABLE."""
    if is_plain(path):
        return PlainVolume(path)
    return ZipVolume(opened.enter_context(zipfile.ZipFile(path)))


def missing_messages(path: Path) -> list[dict[str, str]]:
    """What a single exported file or Maildir names as not exported, and why."""
    with ExitStack() as opened:
        manifest = opened.enter_context(open_volume(path, opened).open(MANIFEST))
        lines = (orjson.loads(line) for line in manifest if b'"missing"' in line)
        return [{name: value for name, value in line.items() if name != "kind"} for line in lines if line["kind"] == "missing"]
