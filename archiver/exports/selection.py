"""What is exported, and how: the input of the workflow."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from archiver.errors import UsageError
from archiver.exports.package_files import PackageFolder

PDF = "pdf"
FORMATS = ("eml", "mbox", "maildir", "csv", PDF)
LAYOUTS = ("folders", "dates")
FLAT = "flat"
"""The layout of a single file or Maildir (`archiver export -o`): everything in one place; .eml files by year and month."""
MAX_SELECTED = 10_000
MIN_VOLUME_BYTES = 1 << 20
DEFAULT_VOLUME_BYTES = 2 << 30
UNLIMITED_BYTES = 1 << 50


@dataclass(frozen=True, slots=True)
class Selection:
    """Exactly one of: a query, a mailbox (or one folder of it), chosen messages, everything."""

    query: str | None = None
    mailbox_id: UUID | None = None
    folder: str | None = None
    message_ids: tuple[UUID, ...] = ()
    everything: bool = False
    zone: str = "UTC"
    """In which the days of the query are meant."""

    def check(self) -> None:
        if bool(self.query) + (self.mailbox_id is not None) + bool(self.message_ids) + self.everything != 1:
            raise UsageError("select exactly one: a query, a mailbox, messages, or everything")
        if self.folder is not None and self.mailbox_id is None:
            raise UsageError("a folder needs its mailbox")
        if len(self.message_ids) > MAX_SELECTED:
            raise UsageError(f"at most {MAX_SELECTED:,} messages can be selected one by one: export a search instead")


@dataclass(frozen=True, slots=True)
class PackageOptions:
    format: str = "eml"
    layout: str = "folders"
    """Of .eml files: folders by mailbox and folder, or by year and month."""
    volume_bytes: int = DEFAULT_VOLUME_BYTES

    def check(self) -> None:
        if self.format not in FORMATS:
            raise UsageError(f"format {self.format!r}: expected one of {', '.join(FORMATS)}")
        if self.layout not in (*LAYOUTS, FLAT):
            raise UsageError(f"layout {self.layout!r}: expected one of {', '.join(LAYOUTS)}")
        if self.volume_bytes < MIN_VOLUME_BYTES:
            raise UsageError(f"a volume of {self.volume_bytes:,} bytes is too small: at least {MIN_VOLUME_BYTES:,}")


@dataclass(frozen=True, slots=True)
class ExportInput:
    selection: Selection
    options: PackageOptions
    user_id: UUID | None
    """Whose mail it may contain; None for the local operator."""
    requested_by: str
    folder: str
    """Where it is written."""
    output: str | None = None
    """The file or Maildir that a command asked for, instead of volumes; `folder` is then a scratch folder beside it."""

    @property
    def files(self) -> PackageFolder:
        return PackageFolder(Path(self.folder))
