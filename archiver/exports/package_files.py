"""Where the files of an export are while it is written, and what they are called when it is finished."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from uuid import uuid4

MANIFEST = "manifest.jsonl"
SIGNATURE = "manifest.sig"
PUBLIC_KEY = "archive-key.pem"


def volume_order(path: Path) -> tuple[int, str]:
    """export-999 before export-1000."""
    return len(path.name), path.name


def beside(path: Path, name: str) -> Path:
    """Where manifest, signature and key of a plain mbox or Maildir are: in a Maildir everything is mail."""
    return path.with_name(f"{path.name}.{name}")


@dataclass(frozen=True, slots=True)
class PackageFolder:
    """`parts` holds what is collected and goes when the export is published; the volumes stay."""

    path: Path

    @property
    def parts(self) -> Path:
        return self.path / "parts"

    def mail(self, part: int) -> Path:
        return self.parts / f"{part:06}.mail"

    def details(self, part: int) -> Path:
        return self.parts / f"{part:06}.jsonl"

    def pdfs(self, part: int) -> Path:
        return self.parts / f"{part:06}.pdfs"

    def pdf_details(self, part: int) -> Path:
        return self.parts / f"{part:06}.pdfs.jsonl"

    @property
    def manifest(self) -> Path:
        return self.parts / MANIFEST

    @property
    def signature(self) -> Path:
        return self.parts / SIGNATURE

    @property
    def public_key(self) -> Path:
        return self.parts / PUBLIC_KEY

    def packed(self, number: int) -> Path:
        """A volume before the manifest is added to the last one."""
        return self.parts / f"volume-{number:06}.zip"

    def lines(self, number: int) -> Path:
        """The lines of the manifest about a volume."""
        return self.parts / f"volume-{number:06}.jsonl"

    def volume(self, number: int) -> Path:
        return self.path / f"export-{number:03}.zip"

    def volumes(self) -> list[Path]:
        return sorted(self.path.glob("export-*.zip"), key=volume_order)

    def create(self) -> None:
        self.parts.mkdir(mode=0o700, parents=True, exist_ok=True)

    def remove(self) -> None:
        """Only what an export writes: the folder may be one that the user named."""
        shutil.rmtree(self.parts, ignore_errors=True)
        for volume in self.volumes():
            volume.unlink(missing_ok=True)
        if self.path.is_dir() and not any(self.path.iterdir()):
            self.path.rmdir()


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that appears under its name when it is complete and on disk, and not before.

    The draft has a name of its own: a worker that was taken for dead may still be writing the same file.
    """
    draft = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        with draft.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
