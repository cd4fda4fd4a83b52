"""The formats of an export: how messages become files of a volume, and lines of the manifest."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from tempfile import SpooledTemporaryFile
from typing import IO, Any, Protocol

from archiver.exports.layout import CSV_FILE, file_name, numbered_name
from archiver.exports.selection import PDF, PackageOptions
from archiver.exports.volume import FIRST_IN_ZIP, LAST_IN_ZIP, Entry, Volume
from connectors import mboxrd

_PIECE_BYTES = 1 << 20
_IN_MEMORY_BYTES = 8 << 20
_CSV_COLUMNS = ("id", "sha256", "bytes", "date", "message_id", "from", "subject", "mailbox", "folder", "flags", "labels")


class MessagePacker(Protocol):
    def add(self, entry: Entry, message: IO[bytes]) -> None: ...

    def finish(self) -> None: ...

    def close(self) -> None:
        """Also after an error: what was not finished is dropped."""


@dataclass(slots=True)
class EmlPacker:
    """A file for each message."""

    out: Volume
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
class MaildirPacker(EmlPacker):
    """Like single files, in a Maildir for each folder."""

    _begun: set[str] = field(default_factory=set)

    def add(self, entry: Entry, message: IO[bytes]) -> None:
        folder = file_name(entry, "maildir", self.options.layout).rpartition("cur/")[0]
        self._begin(folder)
        EmlPacker.add(self, entry, message)

    def _begin(self, folder: str) -> None:
        if folder not in self._begun:
            self._begun.add(folder)
            for name in ("cur", "new", "tmp"):
                self.out.add_folder(f"{folder}{name}/")


@dataclass(slots=True)
class MboxPacker:
    """mboxrd (connectors/mboxrd.py), one file for each folder; a folder that exceeds a volume goes on in the next one."""

    out: Volume
    options: PackageOptions
    _folder: str | None = None
    _name: str = ""
    _file: IO[bytes] = field(default_factory=io.BytesIO)
    _at: datetime = FIRST_IN_ZIP
    _used: set[str] = field(default_factory=set)
    """Folders of different names may have the same name in the package."""

    def add(self, entry: Entry, message: IO[bytes]) -> None:
        folder = file_name(entry, "mbox", self.options.layout)
        if folder != self._folder:
            self.finish()
            self._folder, self._name, self._file = folder, numbered_name(folder, self._used), _scratch(self.out)
        offset, length = self._append(entry, message)
        place = {"kind": "message", "volume": self.out.number, "file": self._name, "offset": offset, "length": length}
        self.out.note({**place, **entry})

    def _append(self, entry: Entry, message: IO[bytes]) -> tuple[int, int]:
        at = datetime.fromisoformat(entry["date"])
        with _scratch(self.out) as quoted:
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
        self._at = max(self._at, min(at, LAST_IN_ZIP))
        return offset, length

    def finish(self) -> None:
        if self._folder is None:
            return
        size = self._file.tell()
        self._file.seek(0)
        self.out.note_file(self._name, size, self.out.add(self._name, size, self._at, self._file))
        self._file.close()
        self._folder, self._at = None, FIRST_IN_ZIP

    def close(self) -> None:
        self._file.close()


@dataclass(slots=True)
class CsvPacker:
    """A table of what is known about the messages, without the messages."""

    out: Volume
    options: PackageOptions
    _file: IO[bytes] | None = None

    def add(self, entry: Entry, message: IO[bytes]) -> None:
        if self._file is None:
            self._file = _scratch(self.out)
            self._file.write(_csv_line(_CSV_COLUMNS))
        for copy in entry["copies"]:
            lists = {"flags": " ".join(copy["flags"] or ()), "labels": " ".join(copy["labels"] or ())}
            row = {**entry, "mailbox": copy["mailbox"], "folder": copy["folder"], **lists}
            self._file.write(_csv_line([_harmless(row[name]) for name in _CSV_COLUMNS]))
        self.out.note({"kind": "listed", **entry})

    def finish(self) -> None:
        if self._file is not None:
            size = self._file.tell()
            self._file.seek(0)
            self.out.note_file(CSV_FILE, size, self.out.add(CSV_FILE, size, FIRST_IN_ZIP, self._file))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


@dataclass(slots=True)
class PdfPacker:
    """A PDF for each message. The manifest describes the message, and the file for itself."""

    out: Volume
    options: PackageOptions

    def add(self, entry: Entry, message: IO[bytes]) -> None:
        name, size = file_name(entry, PDF, self.options.layout), entry["pdf_bytes"]
        about = {key: value for key, value in entry.items() if key != "pdf_bytes"}
        self.out.note({"kind": "listed", "shown_in": name, **about})
        self.out.note_file(name, size, self.out.add(name, size, datetime.fromisoformat(entry["date"]), message))

    def finish(self) -> None:
        pass

    def close(self) -> None:
        pass


PACKERS: dict[str, Callable[[Volume, PackageOptions], MessagePacker]] = {
    "eml": EmlPacker,
    "maildir": MaildirPacker,
    "mbox": MboxPacker,
    "csv": CsvPacker,
    PDF: PdfPacker,
}


def _pieces(message: IO[bytes]) -> Iterator[bytes]:
    while piece := message.read(_PIECE_BYTES):
        yield piece


def _scratch(out: Volume) -> IO[bytes]:
    """In memory while it is small. Whoever asks for it closes it."""
    return SpooledTemporaryFile(_IN_MEMORY_BYTES, dir=str(out.scratch))


def _csv_line(values: Any) -> bytes:
    line = io.StringIO()
    csv.writer(line).writerow(values)
    return line.getvalue().encode("utf-8", "replace")


def _harmless(value: Any) -> Any:
    """Spreadsheets run what looks like a formula, and mail is written by strangers."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
