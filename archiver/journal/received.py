"""Messages from the spool, ready to be archived: journal reports are taken apart, byte for byte."""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from archiver.journal.assignment import UNASSIGNED, Assignment, OwnDomains, assign
from archiver.journal.envelope import JournalEnvelope
from archiver.logs import get_logger
from archiver.mail.formats.journal_reports import JournalReport, find_delimiter
from archiver.parsing.readers import MailReaders
from connectors.base import SPOOL_BYTES, RawMessage

FOLDER = "Journal"
HEAD_BYTES = 1 << 20
"""What the parser gets of each message: header, and the part of a report that lists the recipients."""
_PIECE_BYTES = 1 << 20
_HINT = "archived unchanged; set JOURNAL_REPORTS=true if Exchange sends journal reports"

log = get_logger("journal")


@dataclass(frozen=True, slots=True)
class ReceivedMail:
    """In memory, or as a file if it is large."""

    envelope: JournalEnvelope
    data: bytes | None
    path: Path | None

    @property
    def size(self) -> int:
        return len(self.data) if self.data is not None else _size(self.path)

    @contextmanager
    def view(self) -> Iterator[bytes | mmap.mmap]:
        if self.path is None or _size(self.path) == 0:
            yield self.data or b""
            return
        with self.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            yield mapped

    @classmethod
    def receive(cls, envelope: JournalEnvelope, pieces: Iterator[bytes], scratch: Path) -> ReceivedMail:
        parts, size = [], 0
        for piece in pieces:
            parts.append(piece)
            size += len(piece)
            if size > SPOOL_BYTES:
                with scratch.open("xb") as file:
                    for part in (*parts, *pieces):
                        file.write(part)
                return cls(envelope, None, scratch)
        return cls(envelope, b"".join(parts), None)


@dataclass(frozen=True, slots=True)
class AssignedMail:
    """One message to archive, and where."""

    message: RawMessage
    assignments: tuple[Assignment, ...]

    def for_mailbox(self, assignment: Assignment) -> RawMessage:
        """Each report of a mail is a copy of its own: recipients are added, never replaced."""
        digest = _sha256(self.message)
        recorded = hashlib.sha256("\n".join(assignment.recipients).encode("utf-8", "replace")).hexdigest()[:16]
        return RawMessage(
            f"journal:{digest}:{recorded}",
            data=self.message.data,
            path=self.message.path,
            folder=FOLDER,
            received_at=self.message.received_at,
            recipients=assignment.recipients,
        )


def assign_all(mails: Sequence[ReceivedMail], own: OwnDomains, readers: MailReaders, *, unwrap: bool) -> list[AssignedMail]:
    heads = []
    for mail in mails:
        with mail.view() as view:
            heads.append(bytes(view[:HEAD_BYTES]))
    found: list[AssignedMail] = []
    for mail, read in zip(mails, readers.routes(heads), strict=True):
        route, report = read if read is not None else (None, None)
        inner = _inner_messages(mail, report) if report is not None and unwrap else []
        if inner:
            assignments = tuple(assign(own, mail.envelope, route, report))
        elif route is not None and route.is_report:
            # It names recipients of blind copies: for those who read everything, not for the mailboxes in its header.
            log.warning("journal_report_not_unwrapped", is_expected=unwrap, size=mail.size, hint=_HINT)
            assignments = (Assignment(UNASSIGNED, ()),)
        else:
            assignments = tuple(assign(own, mail.envelope, route, None))
        inner = inner or [_raw(mail.data, mail.path, mail.envelope)]
        found += [AssignedMail(message, assignments) for message in inner]
    return found


def _inner_messages(mail: ReceivedMail, report: JournalReport) -> list[RawMessage]:
    """Usually one. Microsoft 365 attaches a second, readable form of protected mail. None if the report has no end."""
    with mail.view() as view:
        ranges = list(inner_ranges(view, report))
        if mail.path is None:
            return [_raw(bytes(view[start:end]), None, mail.envelope) for start, end in ranges]
        found = []
        for number, (start, end) in enumerate(ranges):
            target = mail.path.with_name(f"{mail.path.name}-{number}")
            with target.open("wb") as file:
                for at in range(start, end, _PIECE_BYTES):
                    file.write(view[at : min(end, at + _PIECE_BYTES)])
            found.append(_raw(None, target, mail.envelope))
        return found


def inner_ranges(view: bytes | mmap.mmap, report: JournalReport) -> Iterable[tuple[int, int]]:
    """Where the journalled messages are in a report: the line end before a delimiter belongs to the delimiter."""
    start: int | None = report.inner_start
    while start is not None:
        delimiter = find_delimiter(view, report.boundary, start)  # type: ignore[arg-type]
        if delimiter is None:
            return
        yield start, delimiter[0]
        start = None if delimiter[2] else _next_message(view, delimiter[1])


def _next_message(view: bytes | mmap.mmap, start: int) -> int | None:
    """The body of a further part, if it is a message."""
    head = bytes(view[start : start + 4096])
    blank = min((at + len(mark) for mark in (b"\r\n\r\n", b"\n\n") if (at := head.find(mark)) >= 0), default=-1)
    return start + blank if blank >= 0 and b"message/rfc822" in head[:blank].lower() else None


def _raw(data: bytes | None, path: Path | None, envelope: JournalEnvelope) -> RawMessage:
    return RawMessage("", data=data, path=path, received_at=envelope.received_at)


def _sha256(message: RawMessage) -> str:
    if message.data is not None:
        return hashlib.sha256(message.data).hexdigest()
    assert message.path is not None
    with message.path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _size(path: Path | None) -> int:
    return path.stat().st_size if path is not None else 0
