"""One file, from a place in it to its end: the messages in it, and remarks on what is none."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from connectors.base import SPOOL_BYTES
from connectors.files import single
from connectors.files.detect import HEAD_BYTES, Detected, FileKind, detect
from connectors.files.found import Found, FoundMessage, Remark
from connectors.files.header import NO_MARKS, Marks, header_date, header_of, read_marks
from connectors.files.mbox import VARIANTS, Mbox, Span, Variant
from connectors.files.names import key_of, role_of, shown
from connectors.files.occurrences import Occurrences
from connectors.files.opened import OpenFile
from connectors.files.postmark import postmark_date
from connectors.files.settings import FilesSettings
from connectors.files.single import Single
from connectors.files.tree import Directory
from connectors.selection import date_rule, folder_rule

_ROLE_LABELS = ("Spam", "Trash", "Drafts")
_COVER_EVERY = 2000


@dataclass(frozen=True, slots=True)
class Reading:
    """How files are read: under which rules, and with what beside."""

    settings: FilesSettings
    scratch: Path
    alive: Callable[[], None]
    """Called often; raises when the job has to stop."""

    def detected(self, directory: Directory, name: str, file: OpenFile) -> Detected:
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
            return Detected(found.kind, found.what, is_broken=True)  # somebody said that this is mail
        return found

    def messages(
        self, directory: Directory, name: str, file: OpenFile, kind: FileKind, variant: Variant | None = None, at: int = 0
    ) -> Iterator[Found]:
        """Of an mbox or a single message. Raises OSError and Changed; what was given before them stands."""
        if kind is FileKind.MBOX:
            yield from self._mbox(directory, name, file, variant or self.variant(file), at)
        else:
            yield from self._single(directory, name, file, kind)
        file.check()

    def variant(self, file: OpenFile) -> Variant:
        return VARIANTS.get(self.settings.kind) or Mbox(file).variant()

    # --- mbox

    def _mbox(self, directory: Directory, name: str, file: OpenFile, variant: Variant, at: int) -> Iterator[Found]:
        mbox = Mbox(file)
        folder, path = directory.folder_of_file(name), directory.key_path(name)
        seen = Occurrences(self.scratch, f"{directory.place}/{shown(name)}:{directory.fingerprint(file)}", file.size)
        with seen:
            self._catch_up(mbox, variant, seen, at)
            for count, span in enumerate(mbox.spans(at)):
                if count % _COVER_EVERY == 0:
                    seen.cover(span.at)
                if span.is_cut:
                    yield Remark(path, folder, "truncated: it ends inside a message, which is in as far as it goes", True)
                yield self._message_of(mbox, variant, span, seen, path, folder)
            seen.remove()

    def _catch_up(self, mbox: Mbox, variant: Variant, seen: Occurrences, at: int) -> None:
        """What was read in an earlier slice and not remembered."""
        covered = seen.covered
        if covered >= at:
            return
        for count, span in enumerate(mbox.spans(covered)):
            if span.at >= at:
                break
            if count % _COVER_EVERY == 0:
                self.alive()
            seen.number(self._hashed(mbox, variant, span)[1], span.at)
        seen.cover(at)

    def _hashed(self, mbox: Mbox, variant: Variant, span: Span) -> tuple[bytes | None, bytes, int]:
        """The content if it fits into memory, its SHA-256, its length."""
        if span.end - span.start <= SPOOL_BYTES:
            data = mbox.content(span, variant.quoting)
            return data, hashlib.sha256(data).digest(), len(data)
        digest, size = hashlib.sha256(), 0
        for piece in mbox.pieces(span, variant.quoting):
            digest.update(piece)
            size += len(piece)
            self.alive()
        return None, digest.digest(), size

    def _message_of(self, mbox: Mbox, variant: Variant, span: Span, seen: Occurrences, path: str, folder: str) -> FoundMessage:
        data, sha256, size = self._hashed(mbox, variant, span)
        if data is None and size <= SPOOL_BYTES:  # what it was quoted with made it too large
            data = b"".join(mbox.pieces(span, variant.quoting))
        header = header_of(data if data is not None else mbox.file.read(span.start, span.start + (64 << 10)))
        marks = read_marks(header)
        lower = b"\n" + header.lower()
        undated = b"\ndate:" not in lower and b"\nreceived:" not in lower
        return FoundMessage(
            key_of(path, sha256.hex(), seen.number(sha256, span.at)),
            folder,
            size,
            data,
            lambda: mbox.pieces(span, variant.quoting),
            span.next,
            marks.flags,
            marks.labels,
            postmark_date(span.postmark) if undated else None,
            self._rule(folder, marks, header),
        )

    # --- one message in a file

    def _single(self, directory: Directory, name: str, file: OpenFile, kind: FileKind) -> Iterator[Found]:
        in_maildir = directory.is_maildir and "/" in name
        found = single.emlx(file, name) if kind is FileKind.EMLX else single.plain(file)
        path, folder = directory.key_path(name), directory.folder
        if found.defect:
            yield Remark(path, folder, found.defect, True)
        yield self._single_message(file, found, path, folder, name.partition("/")[2] if in_maildir else None)

    def _single_message(self, file: OpenFile, found: Single, path: str, folder: str, maildir: str | None) -> FoundMessage:
        size = found.end - found.start
        data = file.read(found.start, found.end) if size <= SPOOL_BYTES else None
        digest = hashlib.sha256(data or b"")
        if data is None:
            for piece in file.pieces(found.start, found.end):
                digest.update(piece)
                self.alive()
        header = header_of(data if data is not None else file.read(found.start, found.start + (64 << 10)))
        marks = read_marks(header)
        flags = (*found.flags, *marks.flags) if maildir is None else single.maildir_flags(maildir)
        return FoundMessage(
            key_of(path, digest.hexdigest(), 0),
            folder,
            size,
            data,
            lambda: file.pieces(found.start, found.end),
            file.size,
            tuple(dict.fromkeys(flags)),
            marks.labels,
            found.received_at if maildir is None else single.maildir_date(maildir),
            self._rule(folder, marks if maildir is None else NO_MARKS, header),
        )

    def _rule(self, folder: str, marks: Marks, header: bytes) -> str | None:
        rule = folder_rule(self.settings, folder, role_of(folder))
        for label in _ROLE_LABELS:
            if rule is None and label in marks.labels:
                rule = folder_rule(self.settings, folder, role_of(label))
        if rule is None and marks.is_expunged and not self.settings.include_deleted:
            rule = "include_deleted: no (deleted in Thunderbird, and not yet compacted away)"
        if rule is None and self.settings.date_from is not None:
            rule = date_rule(self.settings, header_date(header))
        return rule
