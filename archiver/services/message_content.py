"""What is inside a message: text, safe HTML and files, read from its bytes when somebody looks, in a child process."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from archiver.errors import ArchiverError, UsageError
from archiver.extract.pool import ChildFailed
from archiver.services.mail_readers import MailReaders
from archiver.services.opened_mail import IMAGE_TYPES, Content, File, FileInfo
from archiver.services.turns import Turns
from archiver.store.archive import Archive

__all__ = ["IMAGE_TYPES", "LARGEST_BYTES", "Content", "File", "FileInfo", "Opener", "Unreadable"]

LARGEST_BYTES = 64 << 20
"""A larger message is not opened here: its bytes can be downloaded."""
_READERS = 4
_SECONDS = 20.0
_WAIT_SECONDS = 15.0
_AT_ONCE = 2
"""Messages that one person opens at the same time: half of the readers are left for the others."""


class Unreadable(ArchiverError):
    """The mail can't be read here, whatever is tried; its bytes are there."""


@dataclass(frozen=True, slots=True)
class Opener:
    """One for a process. TooMany or NotReady: all that may be opened at once is being opened."""

    archive: Archive
    readers: MailReaders = field(default_factory=lambda: MailReaders(_READERS, _SECONDS))
    turns: Turns = field(default_factory=lambda: Turns(_AT_ONCE, _WAIT_SECONDS))

    def read(self, who: Hashable, sha256: bytes, size_bytes: int, files_at: str) -> Content:
        """`files_at` is the address below which images inside the message can be loaded by their number."""
        if size_bytes > LARGEST_BYTES:
            return Content(opened=False)
        try:
            with self.turns.of(who):
                return self.readers.content(self.archive.read(sha256), files_at, _WAIT_SECONDS)
        except ChildFailed as failed:
            return Content(opened=False, reason=str(failed))

    def frame(self, who: Hashable, sha256: bytes, size_bytes: int, *, keep_remote: bool) -> str:
        """The HTML for a sandboxed frame that can fetch nothing from us: images that came with the mail are inside it."""
        _check_size(size_bytes)
        try:
            with self.turns.of(who):
                return self.readers.frame(self.archive.read(sha256), keep_remote=keep_remote, wait=_WAIT_SECONDS)
        except ChildFailed as failed:
            raise _unreadable(failed) from failed

    def file(self, who: Hashable, sha256: bytes, size_bytes: int, number: int) -> File:
        _check_size(size_bytes)
        try:
            with self.turns.of(who):
                return self.readers.file(self.archive.read(sha256), number, _WAIT_SECONDS)
        except ChildFailed as failed:
            raise _unreadable(failed) from failed

    def close(self) -> None:
        self.readers.close()


def _check_size(size_bytes: int) -> None:
    if size_bytes > LARGEST_BYTES:
        raise UsageError("this message is too large to be opened here: download it as a whole")


def _unreadable(failed: ChildFailed) -> Unreadable:
    return Unreadable(f"this message can't be read here: {failed}; download it as a whole")
