"""The content of a message: text, safe HTML and files, parsed from its bytes on demand, in a child process."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field

from archiver.errors import ArchiverError, UsageError
from archiver.extract.pool import ChildFailed
from archiver.parsing.opened_mail import IMAGE_TYPES, File, FileInfo, MailContent, ReadableHeader
from archiver.parsing.readers import MailReaders
from archiver.reading.user_slots import Turns
from archiver.store.archive import Archive

__all__ = ["IMAGE_TYPES", "LARGEST_BYTES", "File", "FileInfo", "MailContent", "Opener", "UnreadableMessage"]

LARGEST_BYTES = 64 << 20
"""A larger message is not opened, only downloaded."""
_READERS = 4
_SECONDS = 20.0
_WAIT_SECONDS = 15.0
_RECENT_SECONDS, _RECENT_ENTRIES, _RECENT_CHARS = 30.0, 64, 200_000
_AT_ONCE = 2
"""Messages that one person may open at the same time: half of the reader processes stay free for others."""


class UnreadableMessage(ArchiverError):
    """The mail can't be parsed; its bytes can still be downloaded."""


class RecentContent:
    """What was parsed a moment ago, for the message that a reader opens next. Short-lived, so that damage is found by every
    reading that a person would call a new one, and erased mail is gone from memory."""

    def __init__(self, seconds: float = _RECENT_SECONDS) -> None:
        self._seconds = seconds
        self._kept: OrderedDict[tuple[bytes, str], tuple[float, MailContent]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: tuple[bytes, str]) -> MailContent | None:
        with self._lock:
            self._forget_old()
            found = self._kept.get(key)
            return found[1] if found else None

    def put(self, key: tuple[bytes, str], content: MailContent) -> None:
        if len(content.text) + len(content.html) > _RECENT_CHARS:
            return
        with self._lock:
            self._forget_old()
            self._kept.pop(key, None)  # to the end
            self._kept[key] = (time.monotonic(), content)
            while len(self._kept) > _RECENT_ENTRIES:
                self._kept.popitem(last=False)

    def _forget_old(self) -> None:
        oldest = time.monotonic() - self._seconds
        while self._kept and next(iter(self._kept.values()))[0] < oldest:
            self._kept.popitem(last=False)


@dataclass(frozen=True, slots=True)
class Opener:
    """One per process. Raises TooMany or NotReady while too many messages are being opened."""

    archive: Archive
    readers: MailReaders = field(default_factory=lambda: MailReaders(_READERS, _SECONDS))
    turns: Turns = field(default_factory=lambda: Turns(_AT_ONCE, _WAIT_SECONDS))
    recent: RecentContent = field(default_factory=RecentContent)

    def read(self, reader: Hashable, sha256: bytes, size_bytes: int, files_at: str) -> MailContent:
        """`files_at` is the URL prefix under which images inside the message can be loaded by their number."""
        if size_bytes > LARGEST_BYTES:
            return MailContent(opened=False)
        if (known := self.recent.get((sha256, files_at))) is not None:
            return known
        try:
            with self.turns.of(reader):
                content = self.readers.content(self.archive.read(sha256), files_at, _WAIT_SECONDS)
        except ChildFailed as failed:
            return MailContent(opened=False, reason=str(failed))
        self.recent.put((sha256, files_at), content)
        return content

    def frame(self, reader: Hashable, sha256: bytes, size_bytes: int, *, keep_remote: bool) -> str:
        """The HTML for a sandboxed frame that can't fetch anything from us: the mail's own images are embedded."""
        _check_size(size_bytes)
        try:
            with self.turns.of(reader):
                return self.readers.frame(self.archive.read(sha256), keep_remote=keep_remote, wait=_WAIT_SECONDS)
        except ChildFailed as failed:
            raise _unreadable(failed) from failed

    def header(self, reader: Hashable, sha256: bytes, size_bytes: int) -> ReadableHeader:
        _check_size(size_bytes)
        try:
            with self.turns.of(reader):
                return self.readers.header(self.archive.read(sha256), _WAIT_SECONDS)
        except ChildFailed as failed:
            raise _unreadable(failed) from failed

    def file(self, reader: Hashable, sha256: bytes, size_bytes: int, number: int) -> File:
        _check_size(size_bytes)
        try:
            with self.turns.of(reader):
                return self.readers.file(self.archive.read(sha256), number, _WAIT_SECONDS)
        except ChildFailed as failed:
            raise _unreadable(failed) from failed

    def close(self) -> None:
        self.readers.close()


def _check_size(size_bytes: int) -> None:
    if size_bytes > LARGEST_BYTES:
        raise UsageError("this message is too large to open here: download the original instead")


def _unreadable(failed: ChildFailed) -> UnreadableMessage:
    return UnreadableMessage(f"this message can't be displayed: {failed}; download the original instead")
