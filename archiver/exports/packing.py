"""Packs collected messages into volumes. A volume that is complete has its name, and is not packed again."""

from __future__ import annotations

import io
import shutil
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import orjson

from archiver.exports.package_files import PackageFolder, whole_file
from archiver.exports.packers import PACKERS
from archiver.exports.selection import PackageOptions
from archiver.exports.volume import Entry, Volume


@dataclass(frozen=True, slots=True)
class Collected:
    """The messages that were collected, in parts of equal size."""

    files: PackageFolder
    part_messages: int
    parts: int
    is_pdf: bool = False
    """The PDF files that were made of them, instead of the messages."""

    @property
    def size_name(self) -> str:
        return "pdf_bytes" if self.is_pdf else "bytes"

    def sizes(self) -> Iterator[int]:
        """Of all messages, in order; of one that could not be read, 0."""
        for part in range(self.parts):
            with self._paths(part)[1].open("rb") as details:
                for line in details:
                    yield orjson.loads(line).get(self.size_name, 0)

    def _paths(self, part: int) -> tuple[Path, Path]:
        if self.is_pdf:
            return self.files.pdfs(part), self.files.pdf_details(part)
        return self.files.mail(part), self.files.details(part)

    def messages(self, numbers: range) -> Iterator[tuple[Entry, IO[bytes]]]:
        if not numbers:
            return
        for part in range(numbers[0] // self.part_messages, numbers[-1] // self.part_messages + 1):
            first = part * self.part_messages
            for number, found in enumerate(self._part(part), start=first):
                if number in numbers:
                    yield found

    def _part(self, part: int) -> Iterator[tuple[Entry, IO[bytes]]]:
        content, about = self._paths(part)
        with content.open("rb") as mail, about.open("rb") as details:
            start = 0
            for line in details:
                entry: Entry = orjson.loads(line)
                mail.seek(start)
                size = entry.get(self.size_name, 0)
                window: Any = _Window(mail, size)
                yield entry, window
                start += size


@dataclass(slots=True)
class _Window(io.RawIOBase):
    """The bytes of one message in the file of its part."""

    file: IO[bytes]
    left: int

    def read(self, size: int = -1, /) -> bytes:
        piece = self.file.read(self.left if size < 0 else min(size, self.left))
        self.left -= len(piece)
        return piece


def pack_volume(
    collected: Collected,
    options: PackageOptions,
    number: int,
    numbers: range,
    report: Callable[[int, int], None],
    spend: Callable[[int], None],
) -> None:
    """`spend` is called with the size of each message and may raise to stop."""
    files = collected.files
    if files.packed(number).exists() and files.lines(number).exists():
        return
    with (
        whole_file(files.lines(number)) as lines,
        whole_file(files.packed(number)) as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, allowZip64=True, compresslevel=1) as zipped,
    ):
        out = Volume(number, zipped, lines, files.parts)
        with closing(PACKERS[options.format](out, options)) as packer:
            for done, (entry, message) in enumerate(collected.messages(numbers)):
                report(done, len(numbers))
                if "error" in entry:
                    out.note({"kind": "missing", **entry})
                    continue
                spend(entry[collected.size_name])
                packer.add(entry, message)
            packer.finish()


def remove_packed(files: PackageFolder, numbers: range) -> None:
    for number in numbers:
        files.packed(number).unlink(missing_ok=True)
        files.lines(number).unlink(missing_ok=True)


def seal_last(files: PackageFolder, volumes: int) -> None:
    """Puts the volumes in their places; the last one gets manifest, signature and key."""
    last = files.packed(volumes)
    sealed = last.with_name(f"{last.name}.{uuid4().hex}")
    shutil.copyfile(last, sealed)
    with zipfile.ZipFile(sealed, "a", zipfile.ZIP_DEFLATED, allowZip64=True) as out:
        for path in (files.manifest, files.signature, files.public_key):
            out.write(path, path.name)
    sealed.replace(files.volume(volumes))
    for number in range(1, volumes):
        link_or_copy(files.packed(number), files.volume(number))


def link_or_copy(packed: Path, volume: Path) -> None:
    """A second name for the same bytes: a step that runs again finds both where they were. The volume is never missing."""
    draft = packed.with_name(f"{packed.name}.{uuid4().hex}")
    try:
        draft.hardlink_to(packed)
    except OSError:  # a file system without links
        shutil.copyfile(packed, draft)
    draft.replace(volume)
