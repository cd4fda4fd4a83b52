"""Reads one file, from a position to its end: the messages in it, and remarks on what is not mail."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from connectors import exported
from connectors.base import SPOOL_BYTES
from connectors.files import single
from connectors.files.bsmtp import Bsmtp
from connectors.files.detect import HEAD_BYTES, Detected, FileKind, detect
from connectors.files.exported_copies import is_own_file
from connectors.files.header import NO_MARKS, Marks, header_date, header_of, read_marks
from connectors.files.items import Found, FoundMessage, Remark
from connectors.files.mbox import Mbox, MessageSpan
from connectors.files.names import key_of, role_of, shown
from connectors.files.occurrences import KeyOccurrences
from connectors.files.open_file import OpenFile
from connectors.files.outlook import OpenOutlook, OutlookReading
from connectors.files.postmark import postmark_date
from connectors.files.restoring import RestoredCopies
from connectors.files.settings import FilesSettings
from connectors.files.single import Single
from connectors.files.survey import survey
from connectors.files.tree import FileDirectory
from connectors.files.variants import MboxVariant, forced_variant
from connectors.selection import date_rule, folder_rule

_ROLE_LABELS = ("Spam", "Trash", "Drafts")
_COVER_EVERY = 2000


class Splitter(Protocol):
    """A file of many messages."""

    file: OpenFile

    def spans(self, start: int = 0) -> Iterator[MessageSpan]: ...

    def content(self, span: MessageSpan) -> bytes: ...

    def pieces(self, span: MessageSpan) -> Iterator[bytes]: ...


@dataclass(frozen=True, slots=True)
class FileReading:
    """How files are read: the rules, the scratch folder, and the check whether to go on."""

    settings: FilesSettings
    scratch: Path
    alive: Callable[[], None]
    """Called often; raises when the job has to stop."""
    open_outlook: OpenOutlook
    restored: RestoredCopies
    notes: dict[str, str] = field(default_factory=dict)
    """What is in the Outlook files that were opened, by path, for the report."""

    def detect(self, directory: FileDirectory, name: str, file: OpenFile) -> Detected:
        if is_exported(name, file):
            return Detected(FileKind.MESSAGE)
        if is_own_file(name) and self.restored.is_used:
            return Detected(FileKind.OTHER, "part of an export of Archiver")
        if directory.is_maildir and "/" in name:
            if name.startswith("tmp/"):
                return Detected(FileKind.OTHER, "not delivered yet (in the tmp of a Maildir)")
            return Detected(FileKind.MESSAGE) if file.size else Detected(FileKind.EMPTY, "empty")
        forced = self.settings.kind
        if forced != "auto" and directory.only is not None:
            kind = FileKind.MBOX if forced.startswith("mbox") else FileKind.EMLX if forced == "emlx" else FileKind.MESSAGE
            return Detected(kind)
        found = detect(file.read(0, HEAD_BYTES), name)
        if found.kind is FileKind.OTHER and directory.only is not None:
            return Detected(found.kind, found.what, is_broken=True)  # the user named this very file as mail
        return found

    def messages(
        self,
        directory: FileDirectory,
        name: str,
        file: OpenFile,
        found: Detected,
        variant: MboxVariant | None = None,
        at: int = 0,
    ) -> Iterator[Found]:
        """Of an mbox or a single message. Raises OSError and Changed; what was yielded before is valid."""
        if found.kind is FileKind.MBOX:
            yield from self._many(directory, name, Mbox(file, variant or self.variant(file)), at)
        elif found.kind is FileKind.BSMTP:
            yield from self._many(directory, name, Bsmtp(file), at)
        elif found.kind in (FileKind.PST, FileKind.MSG, FileKind.OLM):
            outlook = OutlookReading(self.settings, self.open_outlook, self.notes, self.alive)
            yield from outlook.found(directory, name, file, found.kind, at)
        else:
            yield from self._single(directory, name, file, found)
        file.check()

    def variant(self, file: OpenFile) -> MboxVariant:
        """Decided on the whole file, before its first message is stored."""
        return forced_variant(self.settings.kind) or survey(file, self.alive)

    # --- many messages in a file

    def _many(self, directory: FileDirectory, name: str, splitter: Splitter, at: int) -> Iterator[Found]:
        file = splitter.file
        folder, path = directory.folder_of_file(name), directory.key_path(name)
        seen = KeyOccurrences(self.scratch, f"{directory.place}/{shown(name)}:{directory.fingerprint(file)}", file.size)
        with seen:
            self._catch_up(splitter, seen, at)
            for count, span in enumerate(splitter.spans(at)):
                if count % _COVER_EVERY == 0:
                    seen.cover(span.at)
                if span.is_cut:
                    yield Remark(
                        path, folder, "truncated: the file ends inside a message, which is archived as far as it goes", True
                    )
                yield from self._messages_of(splitter, span, seen, path, folder)
            seen.remove()

    def _catch_up(self, splitter: Splitter, seen: KeyOccurrences, at: int) -> None:
        """Reads again what an earlier slice read and is no longer on disk."""
        covered = seen.covered
        if covered >= at:
            return
        for count, span in enumerate(splitter.spans(covered)):
            if span.at >= at:
                break
            if count % _COVER_EVERY == 0:
                self.alive()
            seen.number(self._hash(splitter, span)[1], span.at)
        seen.cover(at)

    def _hash(self, splitter: Splitter, span: MessageSpan) -> tuple[bytes | None, bytes, int]:
        """The content if it fits into memory, its SHA-256, its length."""
        if span.end - span.start <= SPOOL_BYTES:
            data = splitter.content(span)
            return data, hashlib.sha256(data).digest(), len(data)
        return None, *self._hash_pieces(splitter.pieces(span))

    def _hash_pieces(self, pieces: Iterable[bytes]) -> tuple[bytes, int]:
        digest, size = hashlib.sha256(), 0
        for piece in pieces:
            digest.update(piece)
            size += len(piece)
            self.alive()
        return digest.digest(), size

    def _messages_of(
        self, splitter: Splitter, span: MessageSpan, seen: KeyOccurrences, path: str, folder: str
    ) -> Iterator[FoundMessage]:
        data, sha256, size = self._hash(splitter, span)
        if data is None and size <= SPOOL_BYTES:  # only its quoting made it too large
            data = b"".join(splitter.pieces(span))
        header = header_of(data if data is not None else splitter.file.read(span.start, span.start + (64 << 10)))
        marks = read_marks(header)
        lower = b"\n" + header.lower()
        undated = b"\ndate:" not in lower and b"\nreceived:" not in lower
        found = FoundMessage(
            key_of(path, sha256.hex(), seen.number(sha256, span.at)),
            folder,
            size,
            data,
            lambda: splitter.pieces(span),
            span.next,
            marks.flags,
            marks.labels,
            postmark_date(span.postmark) if undated else None,
            self._rule(folder, marks, header),
        )
        yield from self.restored.copies(found, sha256, lambda place: self._rule(place, NO_MARKS, header))

    # --- one message in a file

    def _single(self, directory: FileDirectory, name: str, file: OpenFile, detected: Detected) -> Iterator[Found]:
        in_maildir = directory.is_maildir and "/" in name
        is_emlx = detected.kind is FileKind.EMLX
        found = single.emlx(file, name) if is_emlx else single.plain(file, detected.start, detected.encoding)
        path, folder = directory.key_path(name), directory.folder
        if found.defect:
            yield Remark(path, folder, found.defect, True)
        yield from self._single_messages(file, found, path, folder, name.partition("/")[2] if in_maildir else None)

    def _single_messages(
        self, file: OpenFile, found: Single, path: str, folder: str, maildir: str | None
    ) -> Iterator[FoundMessage]:
        data = b"".join(found.pieces(file)) if found.end - found.start <= SPOOL_BYTES else None
        if data is not None:
            sha256, size = hashlib.sha256(data).digest(), len(data)
        else:
            sha256, size = self._hash_pieces(found.pieces(file))
        header = header_of(data if data is not None else next(found.pieces(file), b""))
        marks = read_marks(header)
        flags = (*found.flags, *marks.flags) if maildir is None else single.maildir_flags(maildir)
        message = FoundMessage(
            key_of(path, sha256.hex(), 0),
            folder,
            size,
            data,
            lambda: found.pieces(file),
            file.size,
            tuple(dict.fromkeys(flags)),
            marks.labels,
            found.received_at if maildir is None else single.maildir_date(maildir),
            self._rule(folder, marks if maildir is None else NO_MARKS, header),
        )
        yield from self.restored.copies(message, sha256, lambda place: self._rule(place, NO_MARKS, header))

    def _rule(self, folder: str, marks: Marks, header: bytes) -> str | None:
        rule = folder_rule(self.settings, folder, role_of(folder))
        for label in _ROLE_LABELS:
            if rule is None and label in marks.labels:
                rule = folder_rule(self.settings, folder, role_of(label))
        if rule is None and marks.is_expunged and not self.settings.include_deleted:
            rule = "include_deleted: no (deleted in Thunderbird, and not yet compacted away)"
        if rule is None and self.settings.has_dates:
            rule = date_rule(self.settings, header_date(header))
        return rule


def is_exported(name: str, file: OpenFile) -> bool:
    """Whether it is from an export of Archiver: its name contains the SHA-256 of its bytes."""
    message_id = exported.named_id(name)
    if message_id is None:
        return False
    digest = hashlib.sha256()
    for piece in file.pieces():
        digest.update(piece)
    return exported.id_of(digest.digest()) == message_id
