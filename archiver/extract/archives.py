"""Unpacks archives and mail, one file at a time, within limits on number and size."""

import bz2
import gzip
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import IO, cast

import py7zr
from py7zr.exceptions import ArchiveError, PasswordRequired

from archiver.extract import limits
from archiver.extract.extraction import ExtractionRefused, ExtractionState
from archiver.mail.budget import DecodeBudget as DecodingBudget
from archiver.mail.message import Message, read_message

ARCHIVES = frozenset({"zip", "tar", "7z", "gzip", "bzip2", "xz"})
PACKAGES = frozenset({"docx", "xlsx", "pptx"})
"""Documents that may contain other documents."""


@dataclass(slots=True)
class UnpackBudget:
    """How much may still be unpacked, in total over all levels."""

    bytes_left: int = limits.ARCHIVE_BYTES
    files_left: int = limits.ARCHIVE_FILES

    def take(self, size: int) -> None:
        self.bytes_left -= size
        self.files_left -= 1
        if self.bytes_left < 0:
            raise ExtractionRefused(ExtractionState.TOO_LARGE, "unpacks to more than the limit")
        if self.files_left < 0:
            raise ExtractionRefused(ExtractionState.TOO_LARGE, "contains more files than the limit")

    def read(self, source: IO[bytes]) -> bytes:
        """Reads a stream without trusting the size that the archive declares."""
        content = source.read(self.bytes_left + 1)
        self.take(len(content))
        return content


File = tuple[str, bytes]
_DAMAGED = (EOFError, ValueError, lzma.LZMAError, zlib.error)
"""What decompressors raise on damaged data."""
_OPENERS: dict[str, Callable[[BytesIO], IO[bytes]]] = {
    "gzip": lambda data: cast(IO[bytes], gzip.GzipFile(fileobj=data)),
    "bzip2": bz2.BZ2File,
    "xz": lzma.LZMAFile,
}


def unpack(kind: str, data: bytes, name: str, budget: UnpackBudget) -> Iterator[File]:
    if kind == "zip":
        return _zip(data, budget)
    if kind == "7z":
        return _seven_zip(data, budget)
    if kind == "tar":
        return _tar(data, budget)
    return _compressed(kind, data, name, budget)


def embedded_files(data: bytes, budget: UnpackBudget) -> Iterator[File]:
    """Documents embedded in an Office document."""
    return _zip(data, budget, "/embeddings/")


def _zip(data: bytes, budget: UnpackBudget, folder: str = "") -> Iterator[File]:
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            for entry in archive.infolist():
                if entry.is_dir() or folder not in entry.filename:
                    continue
                if entry.flag_bits & 1:
                    raise ExtractionRefused(ExtractionState.ENCRYPTED, "needs a password")
                with archive.open(entry) as source:
                    yield entry.filename, budget.read(source)
    except (zipfile.BadZipFile, NotImplementedError, *_DAMAGED) as error:
        raise ExtractionRefused(ExtractionState.BROKEN, f"zip: {error}") from error


def _tar(data: bytes, budget: UnpackBudget) -> Iterator[File]:
    try:
        with tarfile.open(fileobj=BytesIO(data), mode="r:") as archive:
            for entry in archive:
                source = archive.extractfile(entry) if entry.isfile() else None
                if source is not None:
                    yield entry.name, budget.read(source)
    except (tarfile.TarError, *_DAMAGED) as error:
        raise ExtractionRefused(ExtractionState.BROKEN, f"tar: {error}") from error


def _seven_zip(data: bytes, budget: UnpackBudget) -> Iterator[File]:
    try:
        with py7zr.SevenZipFile(BytesIO(data)) as archive:
            if archive.needs_password():
                raise ExtractionRefused(ExtractionState.ENCRYPTED, "needs a password")
            entries = [entry for entry in archive.list() if not entry.is_directory]
            for entry in entries:
                budget.take(entry.uncompressed)
            factory = py7zr.io.BytesIOFactory(limits.ARCHIVE_BYTES)
            archive.extractall(factory=factory)  # noqa: S202 - into memory, each file within the limit
            for entry in entries:
                content = factory.products.get(entry.filename)
                if content is not None:
                    yield entry.filename, content.read()
    except PasswordRequired as error:
        raise ExtractionRefused(ExtractionState.ENCRYPTED, "needs a password") from error
    except (ArchiveError, *_DAMAGED) as error:
        raise ExtractionRefused(ExtractionState.BROKEN, f"7z: {error}") from error


def _compressed(kind: str, data: bytes, name: str, budget: UnpackBudget) -> Iterator[File]:
    inner = name.rpartition("/")[2]
    for suffix, replacement in ((".tgz", ".tar"), (".gz", ""), (".bz2", ""), (".xz", "")):
        if inner.lower().endswith(suffix):
            inner = inner[: -len(suffix)] + replacement
            break
    try:
        with _OPENERS[kind](BytesIO(data)) as source:
            yield inner, budget.read(source)
    except (OSError, *_DAMAGED) as error:
        raise ExtractionRefused(ExtractionState.BROKEN, f"{kind}: {error}") from error


def open_mail(data: bytes, budget: UnpackBudget) -> tuple[Message, Iterator[File]]:
    """A message and its files; the text of nested messages is already part of its text."""
    decoding = DecodingBudget.of(len(data))
    decoding.left = min(decoding.left, budget.bytes_left)
    message = read_message(data, decoding)
    budget.bytes_left -= decoding.spent

    def files() -> Iterator[File]:
        for attachment in message.attachments:
            if not attachment.is_message:
                budget.take(attachment.size_bytes)
                yield attachment.name or "attachment", attachment.content

    return message, files()
