"""What the manifest of one of Archiver's own exports says about messages: mailbox, folder, flags and labels of every copy.

A manifest is a hint, not a proof: what it says counts only for bytes with the SHA-256 that it names, and a line that can't be
read is as good as none. Stored in SQLite, because an export may hold millions of messages.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from connectors.files.names import shown
from connectors.files.open_file import fingerprint
from connectors.files.tree import FileDirectory

MANIFEST = "manifest.jsonl"
_OWN = re.compile(r"(.*\.)?(manifest\.jsonl|manifest\.sig|archive-key\.pem)", re.DOTALL)
_VOLUME = re.compile(r"(.*-)?export-\d+\.zip", re.DOTALL)
_LINE_BYTES = 16 << 20
_TEXT_CHARS = 500
_VERSION = 1
_UNREADABLE = (OSError, EOFError, ValueError, RuntimeError, NotImplementedError, zipfile.BadZipFile)


def is_own_file(name: str) -> bool:
    """Manifest, signature and key: part of an export, and not mail."""
    return _OWN.fullmatch(name) is not None


def is_volume(name: str) -> bool:
    return _VOLUME.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class CopyPlace:
    """One copy of a message, as it was in the archive that exported it."""

    mailbox: str
    folder: str
    flags: tuple[str, ...]
    labels: tuple[str, ...]
    received_at: datetime | None


@dataclass(frozen=True, slots=True)
class ManifestFile:
    path: Path
    """The manifest, or the zip file that it is in."""
    is_zipped: bool

    def lines(self) -> Iterator[bytes]:
        with closing(_open(self)) as file:
            while line := file.readline(_LINE_BYTES):
                yield line


def _open(found: ManifestFile) -> IO[bytes]:
    return zipfile.ZipFile(found.path).open(MANIFEST) if found.is_zipped else found.path.open("rb")


def find_manifests(roots: Iterable[FileDirectory]) -> list[ManifestFile]:
    """Beside a named mbox, table or Maildir, in a named zip file, and directly in a named folder."""
    found: dict[ManifestFile, None] = {}
    for root in roots:
        for path in _candidates(root):
            is_zipped = path.suffix.lower() == ".zip"
            if _holds_manifest(path) if is_zipped else path.is_file():
                found[ManifestFile(path, is_zipped)] = None
    return list(found)


def _candidates(root: FileDirectory) -> Iterator[Path]:
    if root.only is None:
        yield _beside(root.path)
        with suppress(OSError):
            entries = sorted(root.path.iterdir())
            yield from (path for path in entries if path.suffix.lower() == ".zip" or path.name.endswith(MANIFEST))
        return
    for name in root.only:
        path = root.path / name
        yield _beside(path)
        if path.suffix.lower() == ".zip":
            yield path


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.{MANIFEST}")


def _holds_manifest(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as zipped:
            return {MANIFEST, "manifest.sig"} <= set(zipped.namelist())
    except _UNREADABLE:
        return False


class ExportedCopies:
    """Read once for each state of the manifests, and then looked up."""

    def __init__(self, folder: Path, manifests: Sequence[ManifestFile]) -> None:
        self._database: sqlite3.Connection | None = None
        self.mailboxes: tuple[str, ...] = ()
        """That the manifests name, in lower case."""
        if manifests:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._database = _load(folder / f"{_digest(manifests)}.sqlite", manifests)
            self.mailboxes = tuple(row[0] for row in self._database.execute("SELECT DISTINCT mailbox FROM copies ORDER BY 1"))

    def places(self, sha256: bytes) -> list[CopyPlace]:
        if self._database is None:
            return []
        rows = self._database.execute(
            "SELECT mailbox, folder, flags, labels, received_at FROM copies WHERE sha256 = ? ORDER BY number", (sha256,)
        )
        return [_place(row) for row in rows]

    def close(self) -> None:
        if self._database is not None:
            self._database.close()


def _place(row: Any) -> CopyPlace:
    received_at = datetime.fromisoformat(row[4]) if row[4] else None
    return CopyPlace(row[0], row[1], tuple(json.loads(row[2])), tuple(json.loads(row[3])), received_at)


def _digest(manifests: Sequence[ManifestFile]) -> str:
    known = "\n".join(f"{_VERSION} {shown(str(one.path))} {fingerprint(one.path.stat())}" for one in manifests)
    return f"copies-{hashlib.sha256(known.encode()).hexdigest()[:24]}"


def _load(path: Path, manifests: Sequence[ManifestFile]) -> sqlite3.Connection:
    with suppress(sqlite3.DatabaseError):
        database = sqlite3.connect(path, check_same_thread=False)
        if database.execute("SELECT count(*) FROM sqlite_master WHERE name = 'complete'").fetchone()[0]:
            path.touch()  # in use: not to be cleaned up
            return database
        database.close()
    path.unlink(missing_ok=True)
    database = sqlite3.connect(path, check_same_thread=False)
    database.execute("PRAGMA journal_mode = OFF")
    database.execute("PRAGMA synchronous = OFF")
    database.execute(
        "CREATE TABLE copies (sha256 BLOB, number INTEGER, mailbox TEXT, folder TEXT, flags TEXT, labels TEXT,"
        " received_at TEXT, PRIMARY KEY (sha256, number)) WITHOUT ROWID"
    )
    for manifest in manifests:
        with suppress(*_UNREADABLE):
            rows = (row for line in manifest.lines() for row in _rows(line))
            database.executemany("INSERT OR IGNORE INTO copies VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    database.execute("CREATE TABLE complete (yes INTEGER)")
    database.commit()
    return database


def _rows(line: bytes) -> Iterator[tuple[Any, ...]]:
    try:
        entry = json.loads(line)
        if entry["kind"] != "message":
            return
        sha256 = bytes.fromhex(entry["sha256"])
        rows = [(sha256, number, *_copy(copy)) for number, copy in enumerate(entry["copies"])]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return
    yield from rows if len(sha256) == 32 else ()


def _copy(copy: dict[str, Any]) -> tuple[str, str, str, str, str | None]:
    flags, labels = (json.dumps([_text(one) for one in copy[name] or ()]) for name in ("flags", "labels"))
    received_at = copy["received_at"]
    if received_at is not None and datetime.fromisoformat(received_at).tzinfo is None:
        raise ValueError("a time without a zone")
    return _text(copy["mailbox"]).lower(), _text(copy["folder"] or ""), flags, labels, received_at


def _text(value: str) -> str:
    """As Postgres can hold it."""
    return value.replace("\0", "")[:_TEXT_CHARS].encode("utf-8", "replace").decode()
