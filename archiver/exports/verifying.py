"""Checks a package against its signed manifest: that nothing in it was changed, renamed, left out or added.

docs/exports.md has the same check in plain Python, for people who do not want to trust this code.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import orjson

from archiver.errors import UsageError
from archiver.evidence.signing import is_signed, key_id
from archiver.exports.package_files import MANIFEST, SIGNATURE
from archiver.exports.volume_reading import OWN_FILES, UNREADABLE, ReadableVolume, find_volumes, open_volume
from connectors import mboxrd

SUBJECT = "archiver export manifest v1"
_PIECE_BYTES = 1 << 20
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


def verify_export(
    paths: Sequence[Path], expected_key: bytes | None = None, report: Callable[[int, int], None] = lambda _, __: None
) -> ExportCheck:
    """Raises UsageError for what is not an export at all; everything else is a problem in the answer."""
    check = ExportCheck()
    with ExitStack() as opened:
        volumes = [volume for path in find_volumes(paths) if (volume := _open(path, opened, check)) is not None]
        holder = next((one for one in reversed(volumes) if MANIFEST in one.names()), None)
        if holder is None:
            if not check.problems:
                raise UsageError(f"{paths[0]}: no volume contains {MANIFEST}: the last volume of the export is not there")
            return check
        try:
            with holder.open(MANIFEST) as manifest:
                digest = hashlib.sha256()
                _Contents(volumes, check, report).run(_note_pieces(manifest, digest.update))
        except (*UNREADABLE, KeyError) as error:
            check.add(f"{MANIFEST}: can't be read: {error}")
            return check
        _check_signature(holder, digest.digest(), expected_key, check)
    return check


def _open(path: Path, opened: ExitStack, check: ExportCheck) -> ReadableVolume | None:
    try:
        return open_volume(path, opened)
    except UNREADABLE as error:
        check.add(f"{path.name}: can't be opened: {error}")
        return None


def _check_signature(holder: ReadableVolume, digest: bytes, expected_key: bytes | None, check: ExportCheck) -> None:
    try:
        with holder.open(SIGNATURE) as file:
            given = orjson.loads(file.read(_PIECE_BYTES))
        public, signature = base64.b64decode(given["public_key"]), base64.b64decode(given["signature"])
    except (*UNREADABLE, KeyError, TypeError, binascii.Error):
        check.add(f"{SIGNATURE} is missing or damaged")
        return
    check.key_id = key_id(public)
    if not is_signed(public, SUBJECT, digest, signature):
        check.add(f"{MANIFEST} is not what was signed: a file, name, date or the order was changed")
    check.is_expected_key = expected_key is not None and public == expected_key
    if expected_key is not None and not check.is_expected_key:
        check.add(f"signed with another key ({check.key_id}) than expected ({key_id(expected_key)})")


class _Contents:
    """Compares the files of the volumes with the lines of the manifest, which may say anything."""

    def __init__(self, volumes: Sequence[ReadableVolume], check: ExportCheck, report: Callable[[int, int], None]) -> None:
        self._volumes = dict(enumerate(volumes, start=1))
        self._check, self._report = check, report
        self._in_file: dict[tuple[int, str], list[dict[str, Any]]] = {}
        self._expected: set[tuple[int, str]] = set()

    def run(self, lines: Iterator[bytes]) -> None:
        """Reads all lines, whatever is wrong with them: their hash is checked afterwards."""
        head = self._head(next(lines, b""))
        for done, line in enumerate(lines, start=1):
            if head is None:
                continue
            self._report(done, head["messages"])
            try:
                self._check_line(orjson.loads(line))
            except (ValueError, KeyError, TypeError, OverflowError):
                self._check.add(f"{MANIFEST}: line {done + 1} is damaged")
        if head is not None:
            self._check_extra()
            self._check_count(head)

    def _head(self, line: bytes) -> dict[str, Any] | None:
        try:
            head = orjson.loads(line)
            is_head = head["kind"] == "export" and isinstance(head["volumes"], int) and isinstance(head["messages"], int)
        except (ValueError, KeyError, TypeError):
            is_head = False
        if not is_head:
            self._check.add(f"{MANIFEST} does not begin with the description of an export")
            return None
        if head["volumes"] != len(self._volumes):
            self._check.add(f"the export has {head['volumes']} volumes; {len(self._volumes)} can be read here")
            return None
        return dict(head)

    def _check_line(self, line: dict[str, Any]) -> None:
        kind = line["kind"]
        if kind == "missing":
            self._check.missing += 1
        elif kind in ("message", "listed"):
            self._check.messages += 1
        if kind == "message" and "offset" in line:
            kept = {name: line[name] for name in ("id", "file", "sha256", "offset", "length")}
            self._in_file.setdefault((line["volume"], line["file"]), []).append(kept)
        elif kind in ("message", "file"):
            self._expected.add((line["volume"], line["file"]))
            self._check_file(line)

    def _check_file(self, line: dict[str, Any]) -> None:
        volume, name = self._volumes[line["volume"]], line["file"]
        inside = self._in_file.pop((line["volume"], name), [])
        try:
            if "date" in line and not volume.has_date(name, datetime.fromisoformat(line["date"])):
                self._check.add(f"{name}: its date was changed")
            with volume.open(name) as file:
                sha256 = _hash_mbox(file, inside, self._check) if inside else _hash(_read(file))
        except KeyError:
            self._check.add(f"{name}: is not in volume {line['volume']}")
        except UNREADABLE as error:
            self._check.add(f"{name}: can't be read: {error}")
        else:
            if sha256 != line["sha256"]:
                self._check.add(f"{name}: its content was changed")

    def _check_extra(self) -> None:
        for number, volume in self._volumes.items():
            names = [name for name in volume.names() if name not in OWN_FILES]
            for name in names:
                if (number, name) not in self._expected:
                    self._check.add(f"{name}: is not in the manifest")
            if len(names) != len(set(names)):
                self._check.add(f"volume {number} contains a name twice")

    def _check_count(self, head: dict[str, Any]) -> None:
        if self._in_file:
            self._check.add("the manifest names messages in files that it does not describe")
        if self._check.messages + self._check.missing != head["messages"]:
            self._check.add(f"the export has {head['messages']} messages; the manifest names {self._check.messages}")


def _read(file: IO[bytes]) -> Iterator[bytes]:
    return iter(lambda: file.read(_PIECE_BYTES), b"")


def _hash(pieces: Iterable[bytes]) -> str:
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
        quoted = _note_pieces(_take(file, line["length"]), whole.update)
        if _hash(mboxrd.change_lines(quoted, mboxrd.unquote)) != line["sha256"]:
            check.add(f"{line['file']}: the message {line['id']} was changed")
        position = line["offset"] + line["length"]
    for piece in _read(file):
        whole.update(piece)
    return whole.hexdigest()


def _take(file: IO[bytes], size: int) -> Iterator[bytes]:
    while size > 0 and (piece := file.read(min(size, _PIECE_BYTES))):
        size -= len(piece)
        yield piece


def _note_pieces(pieces: Iterable[bytes], note: Callable[[bytes], None]) -> Iterator[bytes]:
    for piece in pieces:
        note(piece)
        yield piece
