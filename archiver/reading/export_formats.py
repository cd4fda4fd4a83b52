"""The forms in which exports are written: a zip of .eml files, one mbox, or a Maildir; each with a manifest of SHA-256 values.

All of them come back byte for byte when they are imported again.
"""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, Protocol
from uuid import UUID

from archiver.errors import UsageError
from connectors import exported, mboxrd

IN_MEMORY_BYTES = 8 << 20
_PIECE_BYTES = 1 << 20
_FIRST_IN_ZIP = datetime(1980, 1, 1, tzinfo=UTC)
_LAST_IN_ZIP = datetime(2107, 12, 31, 23, 59, 58, tzinfo=UTC)
_MANIFEST = "manifest.jsonl"


@dataclass(frozen=True, slots=True)
class ExportedMessage:
    id: UUID
    sha256: bytes
    sort_at: datetime
    sender: str | None
    subject: str | None
    size_bytes: int


class ExportFormat(Protocol):
    """Writes to a draft; `finish` puts the draft and the manifest in their places."""

    def add(self, row: ExportedMessage, message: IO[bytes]) -> str | None:
        """The name of the message's file, if it has one of its own."""

    def finish(self, manifest: Path) -> None: ...

    def discard(self) -> None:
        """Removes the draft, if it is still there."""


class ZipExport:
    def __init__(self, draft: Path, target: Path) -> None:
        self._draft, self._target = draft, target
        self._zip = zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED, allowZip64=True)

    def add(self, row: ExportedMessage, message: IO[bytes]) -> str:
        name = f"{row.sort_at:%Y/%m}/{exported.eml_name(row.id)}"
        info = zipfile.ZipInfo(name, _zip_date(row.sort_at))
        info.compress_type = zipfile.ZIP_DEFLATED
        with self._zip.open(info, "w", force_zip64=row.size_bytes > (1 << 31) - 1) as file:
            shutil.copyfileobj(message, file, _PIECE_BYTES)
        return name

    def finish(self, manifest: Path) -> None:
        self._zip.write(manifest, _MANIFEST)
        self._zip.close()
        self._draft.replace(self._target)

    def discard(self) -> None:
        with suppress(Exception):  # what it would still write is of no use
            self._zip.close()
        self._draft.unlink(missing_ok=True)


class MboxExport:
    """mboxrd: see connectors/mboxrd.py."""

    def __init__(self, draft: Path, target: Path) -> None:
        self._draft, self._target = draft, target
        self._file = draft.open("wb")

    def add(self, row: ExportedMessage, message: IO[bytes]) -> None:
        with SpooledTemporaryFile(IN_MEMORY_BYTES, dir=str(self._draft.parent)) as quoted:
            last = b""
            for piece in mboxrd.change_lines(_pieces(message), mboxrd.quote):
                quoted.write(piece)
                last = piece[-1:] or last
            self._file.write(mboxrd.postmark(row.sender or "", row.sort_at, quoted.tell()))
            quoted.seek(0)
            shutil.copyfileobj(quoted, self._file, _PIECE_BYTES)
            self._file.write(mboxrd.separator(last))

    def finish(self, manifest: Path) -> None:
        self._file.close()
        manifest.replace(self._target.with_name(f"{self._target.name}.{_MANIFEST}"))
        self._draft.replace(self._target)

    def discard(self) -> None:
        with suppress(OSError):
            self._file.close()
        self._draft.unlink(missing_ok=True)


class MaildirExport:
    """A folder. Its manifest is beside it: in a Maildir everything is mail."""

    def __init__(self, draft: Path, target: Path) -> None:
        if target.exists() and not (target.is_dir() and not any(target.iterdir())):
            raise UsageError(f"{target} exists and is not an empty folder: name another one for the Maildir")
        self._draft, self._target = draft, target
        shutil.rmtree(draft, ignore_errors=True)  # of an earlier process with our number
        for name in ("cur", "new", "tmp"):
            (draft / name).mkdir(parents=True)

    def add(self, row: ExportedMessage, message: IO[bytes]) -> str:
        name = f"cur/{exported.maildir_name(row.id, row.sort_at)}"
        with (self._draft / name).open("xb") as file:
            shutil.copyfileobj(message, file, _PIECE_BYTES)
        return name

    def finish(self, manifest: Path) -> None:
        manifest.replace(self._target.with_name(f"{self._target.name}.{_MANIFEST}"))
        self._draft.replace(self._target)  # an empty folder may be in its place

    def discard(self) -> None:
        shutil.rmtree(self._draft, ignore_errors=True)


FORMATS: dict[str, Callable[[Path, Path], ExportFormat]] = {"zip": ZipExport, "mbox": MboxExport, "maildir": MaildirExport}


def _zip_date(at: datetime) -> tuple[int, int, int, int, int, int]:
    """The zip format ends in 2107 and begins in 1980."""
    at = min(max(at, _FIRST_IN_ZIP), _LAST_IN_ZIP)
    return at.year, at.month, at.day, at.hour, at.minute, at.second


def _pieces(message: IO[bytes]) -> Iterator[bytes]:
    while piece := message.read(_PIECE_BYTES):
        yield piece
