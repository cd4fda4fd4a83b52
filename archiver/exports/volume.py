"""One zip file of an export while it is written, and the lines of the manifest about what is in it."""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import orjson

_PIECE_BYTES = 1 << 20
_LARGE_BYTES = (1 << 31) - 1
FIRST_IN_ZIP = datetime(1980, 1, 1, tzinfo=UTC)
LAST_IN_ZIP = datetime(2107, 12, 31, 23, 59, 58, tzinfo=UTC)

Entry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Volume:
    number: int
    zip: zipfile.ZipFile
    lines: IO[bytes]
    scratch: Path
    """A folder for temporary files."""

    def add(self, name: str, size: int, at: datetime, content: IO[bytes]) -> str:
        """Returns the SHA-256 of what was written."""
        digest = hashlib.sha256()
        info = zipfile.ZipInfo(name, zip_date(at))
        info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o600 << 16
        with self.zip.open(info, "w", force_zip64=size > _LARGE_BYTES) as file:
            while piece := content.read(_PIECE_BYTES):
                digest.update(piece)
                file.write(piece)
        return digest.hexdigest()

    def add_folder(self, name: str) -> None:
        """An empty one. It is not in the manifest."""
        info = zipfile.ZipInfo(name, zip_date(FIRST_IN_ZIP))
        info.external_attr = 0o700 << 16 | 0x10
        self.zip.writestr(info, b"")

    def note(self, line: Entry) -> None:
        self.lines.write(orjson.dumps(line) + b"\n")

    def note_file(self, name: str, size: int, sha256: str) -> None:
        """A file that holds several messages, or none."""
        self.note({"kind": "file", "volume": self.number, "file": name, "sha256": sha256, "bytes": size})


def zip_date(at: datetime) -> tuple[int, int, int, int, int, int]:
    """The zip format begins in 1980, ends in 2107, and counts two seconds at a time."""
    at = min(max(at.astimezone(UTC), FIRST_IN_ZIP), LAST_IN_ZIP)
    return at.year, at.month, at.day, at.hour, at.minute, at.second - at.second % 2
