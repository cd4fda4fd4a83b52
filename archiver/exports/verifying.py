"""Checks a package against its signed manifest: that nothing in it was changed, renamed, left out or added.

docs/exports.md has the same check in plain Python, for people who do not want to trust this code.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import orjson

from archiver.errors import UsageError
from archiver.evidence.signing import is_signed, key_id
from archiver.exports.package_files import MANIFEST, PUBLIC_KEY, SIGNATURE
from archiver.exports.packing import zip_date
from connectors import mboxrd

SUBJECT = "archiver export manifest v1"
_PIECE_BYTES = 1 << 20
_OWN_FILES = frozenset({MANIFEST, SIGNATURE, PUBLIC_KEY})
_MAX_PROBLEMS = 100


@dataclass(slots=True)
class ExportCheck:
    messages: int = 0
    missing: int = 0
    """Messages that the manifest itself names as not exported."""
    key_id: str = ""
    is_expected_key: bool = False
    problems: list[str] = field(default_factory=list)

    def add(self, problem: str) -> None:
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(problem)


def find_volumes(paths: Sequence[Path]) -> list[Path]:
    """The zip files themselves, or those in a folder, in the order of their names."""
    found = [one for path in paths for one in (sorted(path.glob("*.zip")) if path.is_dir() else [path])]
    missing = [path for path in found if not path.is_file()]
    if missing or not found:
        raise UsageError(f"{(missing or list(paths))[0]}: not a volume of an export, nor a folder with volumes")
    return found


def verify_export(
    paths: Sequence[Path], expected_key: bytes | None = None, report: Callable[[int, int], None] = lambda _, __: None
) -> ExportCheck:
    """Raises UsageError for what is not an export at all; everything else is a problem in the answer."""
    check = ExportCheck()
    with ExitStack() as opened:
        volumes = [_open(path, opened, check) for path in find_volumes(paths)]
        readable = [volume for volume in volumes if volume is not None]
        holder = next((one for one in reversed(readable) if MANIFEST in one.namelist()), None)
        if holder is None:
            if not check.problems:
                raise UsageError(f"{paths[0]}: no volume contains {MANIFEST}: the last volume of the export is not there")
            return check
        manifest = holder.read(MANIFEST)
        _check_signature(holder, manifest, expected_key, check)
        try:
            lines = [orjson.loads(line) for line in manifest.splitlines()]
        except orjson.JSONDecodeError:
            check.add(f"{MANIFEST} is damaged")
            return check
        _Contents(readable, lines, check, report).run()
    return check


def _open(path: Path, opened: ExitStack, check: ExportCheck) -> zipfile.ZipFile | None:
    try:
        return opened.enter_context(zipfile.ZipFile(path))
    except (zipfile.BadZipFile, OSError) as error:
        check.add(f"{path.name}: can't be opened: {error}")
        return None


def _check_signature(holder: zipfile.ZipFile, manifest: bytes, expected_key: bytes | None, check: ExportCheck) -> None:
    try:
        given = orjson.loads(holder.read(SIGNATURE))
        public, signature = base64.b64decode(given["public_key"]), base64.b64decode(given["signature"])
    except (KeyError, TypeError, orjson.JSONDecodeError, binascii.Error):
        check.add(f"{SIGNATURE} is missing or damaged")
        return
    check.key_id = key_id(public)
    if not is_signed(public, SUBJECT, hashlib.sha256(manifest).digest(), signature):
        check.add(f"{MANIFEST} is not what was signed: a file, name, date or the order was changed")
    check.is_expected_key = expected_key is not None and public == expected_key
    if expected_key is not None and not check.is_expected_key:
        check.add(f"signed with another key ({check.key_id}) than expected ({key_id(expected_key)})")


class _Contents:
    """Compares the files of the volumes with the lines of the manifest."""

    def __init__(
        self,
        volumes: list[zipfile.ZipFile],
        lines: list[dict[str, Any]],
        check: ExportCheck,
        report: Callable[[int, int], None],
    ) -> None:
        self._volumes = dict(enumerate(volumes, start=1))
        self._lines, self._check, self._report = lines, check, report
        self._in_file: dict[tuple[int, str], list[dict[str, Any]]] = {}

    def run(self) -> None:
        head = self._lines[0] if self._lines else {}
        if head.get("kind") != "export":
            self._check.add(f"{MANIFEST} does not begin with the description of an export")
            return
        if head["volumes"] != len(self._volumes):
            self._check.add(f"the export has {head['volumes']} volumes; {len(self._volumes)} can be read here")
            return
        expected: set[tuple[int, str]] = set()
        for done, line in enumerate(self._lines[1:], start=1):
            self._report(done, len(self._lines))
            self._check_line(line, expected)
        self._check_extra(expected)
        self._check_count(head)

    def _check_line(self, line: dict[str, Any], expected: set[tuple[int, str]]) -> None:
        kind = line.get("kind")
        if kind == "missing":
            self._check.missing += 1
        elif kind in ("message", "listed"):
            self._check.messages += 1
        if kind == "message" and "offset" in line:
            self._in_file.setdefault((line["volume"], line["file"]), []).append(line)
        elif kind in ("message", "file"):
            expected.add((line["volume"], line["file"]))
            self._check_file(line)

    def _check_file(self, line: dict[str, Any]) -> None:
        volume, name = self._volumes[line["volume"]], line["file"]
        try:
            info = volume.getinfo(name)
        except KeyError:
            self._check.add(f"{name}: is not in volume {line['volume']}")
            return
        if "date" in line and info.date_time != zip_date(datetime.fromisoformat(line["date"])):
            self._check.add(f"{name}: its date was changed")
        inside = self._in_file.pop((line["volume"], name), [])
        try:
            with volume.open(info) as file:
                sha256 = _hash_mbox(file, inside, self._check) if inside else _hash(iter(lambda: file.read(_PIECE_BYTES), b""))
        except (zipfile.BadZipFile, OSError, EOFError) as error:
            self._check.add(f"{name}: can't be read: {error}")
            return
        if sha256 != line["sha256"]:
            self._check.add(f"{name}: its content was changed")

    def _check_extra(self, expected: set[tuple[int, str]]) -> None:
        for number, volume in self._volumes.items():
            names = [name for name in volume.namelist() if name not in _OWN_FILES]
            for name in names:
                if (number, name) not in expected:
                    self._check.add(f"{name}: is not in the manifest")
            if len(names) != len(set(names)):
                self._check.add(f"volume {number} contains a name twice")

    def _check_count(self, head: dict[str, Any]) -> None:
        if self._in_file:
            self._check.add("the manifest names messages in files that it does not describe")
        if self._check.messages + self._check.missing != head["messages"]:
            self._check.add(f"the export has {head['messages']} messages; the manifest names {self._check.messages}")


def _hash(pieces: Iterator[bytes]) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def _hash_mbox(file: IO[bytes], messages: list[dict[str, Any]], check: ExportCheck) -> str:
    """Of the whole file; on the way, each message in it is compared with its own hash."""
    whole, position = hashlib.sha256(), 0
    for line in messages:
        for piece in _take(file, line["offset"] - position):
            whole.update(piece)
        original = hashlib.sha256()
        quoted = _also(_take(file, line["length"]), whole.update)
        for piece in mboxrd.change_lines(quoted, mboxrd.unquote):
            original.update(piece)
        if original.hexdigest() != line["sha256"]:
            check.add(f"{line['file']}: the message {line['id']} was changed")
        position = line["offset"] + line["length"]
    for piece in iter(lambda: file.read(_PIECE_BYTES), b""):
        whole.update(piece)
    return whole.hexdigest()


def _take(file: IO[bytes], size: int) -> Iterator[bytes]:
    while size > 0 and (piece := file.read(min(size, _PIECE_BYTES))):
        size -= len(piece)
        yield piece


def _also(pieces: Iterator[bytes], note: Callable[[bytes], None]) -> Iterator[bytes]:
    for piece in pieces:
        note(piece)
        yield piece
