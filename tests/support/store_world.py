"""An archive to try things on: real packs in a folder, and the seam where each file operation can be made to fail."""

from __future__ import annotations

import base64
import errno
import hashlib
from pathlib import Path
from uuid import UUID

from archiver.secrets import Keyring
from archiver.store.archive import Archive
from archiver.store.content import MemoryContent
from archiver.store.dictionaries import Trainer
from archiver.store.encoder import Record
from archiver.store.files import OsFiles
from archiver.store.frames import FrameKind
from archiver.store.keys import PackKeys
from archiver.store.local import LocalPacks
from archiver.store.pack import PackLocation
from archiver.store.recipe import cut_message


class Failing(OsFiles):
    """The n-th operation fails, once; -1: none does. `count` tells how many there were."""

    def __init__(self, fail_at: int = -1, number: int = errno.EIO, torn: bool = False) -> None:
        self.fail_at = fail_at
        self.number = number
        self.torn = torn
        self.count = 0

    def _step(self) -> None:
        self.count += 1
        if self.count - 1 == self.fail_at:
            raise OSError(self.number, "injected")

    def open(self, path: Path, flags: int) -> int:
        self._step()
        return super().open(path, flags)

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        try:
            self._step()
        except OSError:
            if self.torn:  # half of it reaches the disk before the error
                super().write(descriptor, memoryview(data)[: len(data) // 2])
            raise
        return super().write(descriptor, data)

    def write_at(self, descriptor: int, data: bytes, offset: int) -> None:
        self._step()
        super().write_at(descriptor, data, offset)

    def truncate(self, descriptor: int, length: int) -> None:
        self._step()
        super().truncate(descriptor, length)

    def fsync(self, descriptor: int) -> None:
        self._step()
        super().fsync(descriptor)

    def fsync_folder(self, folder: Path) -> None:
        self._step()
        super().fsync_folder(folder)

    def rename(self, path: Path, target: Path) -> None:
        self._step()
        super().rename(path, target)

    def unlink(self, path: Path) -> None:
        self._step()
        super().unlink(path)


class RememberedPlaces:
    """What the database would know, in a dict."""

    def __init__(self) -> None:
        self.known: dict[tuple[bytes, FrameKind], PackLocation] = {}
        self.ends: dict[UUID, int] = {}

    def find(self, sha256: bytes, kind: FrameKind) -> PackLocation | None:
        return self.known.get((sha256, kind))

    def dictionaries(self) -> list[tuple[bytes, PackLocation]]:
        return [(sha256, place) for (sha256, kind), place in self.known.items() if kind is FrameKind.DICTIONARY]

    def known_end(self, pack_id: UUID) -> int | None:
        return self.ends.get(pack_id, 0)


class PackWorld:
    """Packs without a database."""

    def __init__(self, folder: Path, keyring: Keyring | None = None, **options: object) -> None:
        self.keyring = keyring or Keyring.generate()
        self.places = RememberedPlaces()
        self.folder = folder
        self.archive = self.open(**options)

    def open(self, **options: object) -> Archive:
        keys, trainer = PackKeys(self.keyring), Trainer()
        backend = LocalPacks(self.folder, keys, trainer, self.places.known_end, **options)  # type: ignore[arg-type]
        self.trainer = trainer
        self.archive = Archive(backend, keys, trainer, self.places)
        return self.archive

    def store(self, *messages: bytes) -> None:
        records = [record for message in messages for record in self.records(message)]
        written = self.archive.append(records)
        for frame in written.batch.frames:
            self.places.known.setdefault((frame.sha256, frame.kind), frame.place)
        self.places.ends[written.batch.pack_id] = written.batch.end

    def records(self, message: bytes) -> list[Record]:
        sha256 = hashlib.sha256(message).digest()
        cut = cut_message(MemoryContent(message))
        if cut is None:
            return [Record(FrameKind.MESSAGE, sha256, MemoryContent(message))]
        parts = [
            Record(FrameKind.PART, part, content, is_text=place.lines is None)
            for (part, content), place in zip(cut.parts, cut.cuts, strict=True)
            if (part, FrameKind.PART) not in self.places.known
        ]
        return [*parts, Record(FrameKind.MESSAGE, sha256, cut, is_recipe=True)]

    def read(self, message: bytes) -> bytes:
        return self.archive.read(hashlib.sha256(message).digest())


def mail(number: int, body: str = "", attachment: bytes | None = None, eol: str = "\r\n") -> bytes:
    """A small, plausible message; with an attachment, a multipart one."""
    head = [
        f"Message-ID: <{number}@example.org>",
        f"From: Sender {number % 7} <sender{number % 7}@example.org>",
        f"To: Reader <reader{number % 11}@example.com>",
        f"Subject: Invoice number {number}",
        f"Date: Tue, {1 + number % 28:02} Mar 2024 10:{number % 60:02}:00 +0000",
        "MIME-Version: 1.0",
    ]
    text = body or f"Dear reader,\n\nthis is the invoice with the number {number}. Please pay it soon.\n" * 3
    if attachment is None:
        return eol.join([*head, "Content-Type: text/plain", "", *text.splitlines(), ""]).encode()
    encoded = base64.b64encode(attachment).decode()
    lines = [encoded[at : at + 76] for at in range(0, len(encoded), 76)]
    return eol.join(
        [
            *head,
            'Content-Type: multipart/mixed; boundary="=_b"',
            "",
            *("--=_b", "Content-Type: text/plain", "", text),
            *("--=_b", "Content-Type: application/pdf", "Content-Transfer-Encoding: base64", "", *lines),
            *("--=_b--", ""),
        ]
    ).encode()
