"""Packs collected messages into volumes: zip files of a chosen size, with a line for each message."""

from __future__ import annotations

import csv
import hashlib
import io
import shutil
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, Any, Protocol

import orjson

from archiver.exports.layout import file_name
from archiver.exports.package_files import PackageFolder
from archiver.exports.selection import PackageOptions
from connectors import mboxrd

_PIECE_BYTES = 1 << 20
_IN_MEMORY_BYTES = 8 << 20
_FIRST_IN_ZIP = datetime(1980, 1, 1, tzinfo=UTC)
_LAST_IN_ZIP = datetime(2107, 12, 31, 23, 59, 58, tzinfo=UTC)
CSV_FILE = "messages.csv"
_CSV_COLUMNS = ("id", "sha256", "bytes", "date", "message_id", "from", "subject", "mailbox", "folder", "flags", "labels")

Entry = dict[str, Any]


@dataclass(slots=True)
class Volumes:
    """The volume that is being written; a new one begins when the next file would exceed the size."""

    files: PackageFolder
    limit_bytes: int
    lines: IO[bytes]
    number: int = 0
    _size: int = 0
    _zip: zipfile.ZipFile | None = None

    def room_for(self, size: int) -> zipfile.ZipFile:
        if self._zip is None or (self._size and self._size + size > self.limit_bytes):
            self.begin()
        self._size += size
        assert self._zip is not None
        return self._zip

    def has_room_for(self, size: int) -> bool:
        return self._zip is not None and self._size + size <= self.limit_bytes

    def begin(self) -> None:
        self.close()
        self.number += 1
        self._size = 0
        self._zip = zipfile.ZipFile(self.files.packed(self.number), "w", zipfile.ZIP_DEFLATED, allowZip64=True, compresslevel=1)

    def add(self, name: str, size: int, at: datetime, content: IO[bytes]) -> str:
        """Returns the SHA-256 of what was written."""
        digest = hashlib.sha256()
        info = zipfile.ZipInfo(name, zip_date(at))
        info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o600 << 16
        with self.room_for(size).open(info, "w", force_zip64=size > (1 << 31) - 1) as file:
            while piece := content.read(_PIECE_BYTES):
                digest.update(piece)
                file.write(piece)
        return digest.hexdigest()

    def note(self, line: Entry) -> None:
        self.lines.write(orjson.dumps(line) + b"\n")

    def close(self) -> None:
        if self._zip is not None:
            self._zip.close()
            self._zip = None


class MessagePacker(Protocol):
    def add(self, entry: Entry, message: IO[bytes]) -> None: ...

    def finish(self) -> None: ...

    def close(self) -> None:
        """Also after an error: what was not finished is dropped."""


@dataclass(slots=True)
class FilePacker:
    """.eml files, or a Maildir: a file for each message."""

    out: Volumes
    options: PackageOptions

    def add(self, entry: Entry, message: IO[bytes]) -> None:
        name = file_name(entry, self.options.format, self.options.layout)
        self.out.add(name, entry["bytes"], datetime.fromisoformat(entry["date"]), message)
        self.out.note({"kind": "message", "volume": self.out.number, "file": name, **entry})

    def finish(self) -> None:
        pass

    def close(self) -> None:
        pass


@dataclass(slots=True)
class MboxPacker:
    """mboxrd (connectors/mboxrd.py), one file for each folder; a folder that exceeds a volume goes on in the next one."""

    out: Volumes
    options: PackageOptions
    _name: str | None = None
    _file: IO[bytes] = field(default_factory=io.BytesIO)
    _pending: list[Entry] = field(default_factory=list)
    _at: datetime = _FIRST_IN_ZIP

    def add(self, entry: Entry, message: IO[bytes]) -> None:
        name = file_name(entry, "mbox", self.options.layout)
        if name != self._name or self._file.tell() + entry["bytes"] > self.out.limit_bytes:
            self._end_file()
            self._name, self._file = name, _scratch(self.out.files)
        offset, length = self._append(entry, message)
        self._pending.append({"kind": "message", "file": name, "offset": offset, "length": length, **entry})

    def _append(self, entry: Entry, message: IO[bytes]) -> tuple[int, int]:
        at = datetime.fromisoformat(entry["date"])
        with SpooledTemporaryFile(_IN_MEMORY_BYTES, dir=str(self.out.files.parts)) as quoted:
            last = b""
            for piece in mboxrd.change_lines(_pieces(message), mboxrd.quote):
                quoted.write(piece)
                last = piece[-1:] or last
            length = quoted.tell()
            self._file.write(mboxrd.postmark(entry["from"] or "", at, length))
            offset = self._file.tell()
            quoted.seek(0)
            shutil.copyfileobj(quoted, self._file, _PIECE_BYTES)
            self._file.write(mboxrd.separator(last))
        self._at = max(self._at, min(at, _LAST_IN_ZIP))
        return offset, length

    def _end_file(self) -> None:
        if self._name is None:
            return
        size = self._file.tell()
        if not self.out.has_room_for(size):
            self.out.begin()
        self._file.seek(0)
        sha256 = self.out.add(self._name, size, self._at, self._file)
        self._file.close()
        for entry in self._pending:
            self.out.note({"volume": self.out.number, **entry})
        self.out.note({"kind": "file", "volume": self.out.number, "file": self._name, "sha256": sha256, "bytes": size})
        self._name, self._pending, self._at = None, [], _FIRST_IN_ZIP

    def finish(self) -> None:
        self._end_file()

    def close(self) -> None:
        self._file.close()


@dataclass(slots=True)
class CsvPacker:
    """A table of what is known about the messages, without the messages."""

    out: Volumes
    options: PackageOptions
    _file: Any = None

    def add(self, entry: Entry, message: IO[bytes]) -> None:
        if self._file is None:
            self._file = _scratch(self.out.files)
            self._file.write(_csv_line(_CSV_COLUMNS))
        for copy in entry["copies"]:
            lists = {"flags": " ".join(copy["flags"] or ()), "labels": " ".join(copy["labels"] or ())}
            row = {**entry, "mailbox": copy["mailbox"], "folder": copy["folder"], **lists}
            self._file.write(_csv_line([_harmless(row[name]) for name in _CSV_COLUMNS]))
        self.out.note({"kind": "listed", **entry})

    def finish(self) -> None:
        if self._file is None:
            return
        size = self._file.tell()
        self._file.seek(0)
        sha256 = self.out.add(CSV_FILE, size, _FIRST_IN_ZIP, self._file)
        self.out.note({"kind": "file", "volume": self.out.number, "file": CSV_FILE, "sha256": sha256, "bytes": size})

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


PACKERS: dict[str, Callable[[Volumes, PackageOptions], MessagePacker]] = {
    "eml": FilePacker,
    "maildir": FilePacker,
    "mbox": MboxPacker,
    "csv": CsvPacker,
}


def pack(
    files: PackageFolder, options: PackageOptions, parts: int, report: Callable[[int], None], spend: Callable[[int], None]
) -> int:
    """Returns the number of volumes. `spend` is called with the size of each message and may raise to stop."""
    with files.entries.open("wb") as lines:
        out = Volumes(files, options.volume_bytes, lines)
        packer, done = PACKERS[options.format](out, options), 0
        try:
            for part in range(parts):
                for entry, message in _collected(files, part):
                    report(done := done + 1)
                    if "error" in entry:
                        out.note({"kind": "missing", **entry})
                        continue
                    spend(entry["bytes"])
                    packer.add(entry, message)
            packer.finish()
            if not out.number:
                out.begin()  # an export of nothing still has a manifest
        finally:
            packer.close()
            out.close()
    return out.number


@dataclass(slots=True)
class _Window(io.RawIOBase):
    """The bytes of one message in the file of its part."""

    file: IO[bytes]
    left: int

    def read(self, size: int = -1, /) -> bytes:
        piece = self.file.read(self.left if size < 0 else min(size, self.left))
        self.left -= len(piece)
        return piece


def _collected(files: PackageFolder, part: int) -> Iterator[tuple[Entry, IO[bytes]]]:
    with files.mail(part).open("rb") as mail, files.details(part).open("rb") as details:
        for line in details:
            entry: Entry = orjson.loads(line)
            start, size = mail.tell(), entry.get("bytes", 0)
            window: Any = _Window(mail, size)
            yield entry, window
            mail.seek(start + size)


def remove_packed(files: PackageFolder) -> None:
    for path in (files.entries, *files.parts.glob("volume-*.zip")):
        path.unlink(missing_ok=True)


def zip_date(at: datetime) -> tuple[int, int, int, int, int, int]:
    """The zip format begins in 1980, ends in 2107, and counts two seconds at a time."""
    at = min(max(at.astimezone(UTC), _FIRST_IN_ZIP), _LAST_IN_ZIP)
    return at.year, at.month, at.day, at.hour, at.minute, at.second - at.second % 2


def _pieces(message: IO[bytes]) -> Iterator[bytes]:
    while piece := message.read(_PIECE_BYTES):
        yield piece


def _scratch(files: PackageFolder) -> IO[bytes]:
    """In memory while it is small. Whoever asks for it closes it."""
    return SpooledTemporaryFile(_IN_MEMORY_BYTES, dir=str(files.parts))


def _csv_line(values: Any) -> bytes:
    line = io.StringIO()
    csv.writer(line).writerow(values)
    return line.getvalue().encode("utf-8", "replace")


def _harmless(value: Any) -> Any:
    """Spreadsheets run what looks like a formula, and mail is written by strangers."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value


def seal_last(files: PackageFolder, volumes: int) -> None:
    """Puts the volumes in their places; the last one gets manifest, signature and key."""
    last = files.packed(volumes)
    sealed = last.with_suffix(".sealed")
    shutil.copyfile(last, sealed)
    with zipfile.ZipFile(sealed, "a", zipfile.ZIP_DEFLATED, allowZip64=True) as out:
        for path in (files.manifest, files.signature, files.public_key):
            out.write(path, path.name)
    sealed.replace(files.volume(volumes))
    for number in range(1, volumes):
        _link(files.packed(number), files.volume(number))


def _link(packed: Path, volume: Path) -> None:
    """A second name for the same bytes: a step that runs again finds both where they were."""
    volume.unlink(missing_ok=True)
    try:
        volume.hardlink_to(packed)
    except OSError:  # a file system without links
        shutil.copyfile(packed, volume)
