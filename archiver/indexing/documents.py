"""Builds search documents from message rows: the bytes from the packs, parsed, joined with copies, people and texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ParamSpec, TypeVar
from uuid import UUID

from sqlalchemy import Engine

from archiver.db import sql
from archiver.db.poison_rows import PoisonRow
from archiver.db.states import SearchState, TextState
from archiver.extract.pool import ChildFailed
from archiver.indexing import statements
from archiver.indexing.message_reader import MailReader, OpenedMail
from archiver.indexing.rows import CopyValues, DueMessage, LabelValues, PersonValues, StoredPart
from archiver.indexing.texts import KnownText, known_texts, read_pages
from archiver.logs import get_logger
from archiver.mail.message import PARSER_VERSION, SIDE_BY_SIDE
from archiver.parsing.readers import Document, MailGroup, MailReaders, ReadFile, ReadMail, process_readers
from archiver.store.archive import Archive
from archiver.store.errors import StoreError, StoreUnavailable
from archiver.store.pack import PackLocation

_SIGNATURES = frozenset(
    {
        "application/pgp-signature",
        "application/pgp-keys",
        "application/pkcs7-signature",
        "application/x-pkcs7-signature",
    }
)

MOST_ATTEMPTS = 2
"""Attempts at a message whose reading processes disappeared, before it counts as unreadable."""
_SIDE_BY_SIDE_BYTES = 4 << 20
"""Total size of messages that are parsed together: their texts take several times as much memory."""

log = get_logger("indexing")

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ready:
    """A message whose document can be sent, and what is written to Postgres once it has arrived."""

    row: DueMessage
    thread_id: UUID | None
    document: bytes
    state: SearchState
    reasons: list[dict[str, str]]
    has_attachments: bool
    attachments: list[dict[str, Any]] | None
    """Rows of message_attachments; None if they exist already."""


@dataclass(frozen=True, slots=True)
class UnreadableDocument:
    row: DueMessage | PoisonRow
    reason: str


@dataclass(frozen=True, slots=True)
class UnreadFile:
    """An attachment whose text has not been extracted yet."""

    message: int
    """The index, within the group, of the message that it belongs to."""
    file: ReadFile
    content: Callable[[], bytes]
    """Its content, if it is not stored as a part."""


Unread = list[UnreadFile]
Extract = Callable[[Unread], None]
"""Reads these attachments and stores their texts."""


@dataclass(frozen=True, slots=True)
class Beside:
    """What is known about the messages of a batch, apart from their bytes."""

    threads: Mapping[UUID, UUID | None]
    people: Mapping[str, Sequence[Sequence[Any]]]
    copies: Mapping[str, Sequence[Sequence[Any]]]
    labels: Mapping[str, Sequence[Sequence[Any]]]


class DocumentMaker:
    """Not thread-safe. Mail is parsed, and documents are built, in a child process."""

    def __init__(self, engine: Engine, archive: Archive, readers: MailReaders | None = None) -> None:
        self._engine = engine
        self._archive = archive
        self._readers = readers or process_readers()
        self.mail = MailReader(archive)

    def make(
        self,
        rows: Sequence[DueMessage],
        threads: Mapping[UUID, UUID | None],
        extract: Extract | None = None,
        begin: Callable[[Sequence[DueMessage]], None] = lambda rows: None,
        tick: Callable[[], None] = lambda: None,
    ) -> Iterator[Ready | UnreadableDocument]:
        """Yields documents in the order of the rows. With `extract`, unread attachments are read first.

        `begin` receives the rows that are read next: a group of unsuspicious ones, or a single one whose last reader
        disappeared. `tick` is called every few seconds during any wait.
        """
        beside = self._beside(rows, threads)
        begin([row for row in rows if not row.attempts])
        for group in parse_groups(rows):
            first = group[0]
            if first.attempts >= MOST_ATTEMPTS:
                yield UnreadableDocument(first, f"its reading process disappeared {first.attempts} times")
                continue
            if first.attempts:
                begin(group)
                made = list(self._make(group, beside, extract, tick))
                begin(())
                yield from made
            else:
                yield from self._make(group, beside, extract, tick)

    def _beside(self, rows: Sequence[DueMessage], threads: Mapping[UUID, UUID | None]) -> Beside:
        ids = sql.uuids(row.id for row in rows)
        with self._engine.connect() as connection:
            copies = _grouped(sql.query(connection, statements.COPIES, CopyValues, ids=ids))
            people = _grouped(sql.query(connection, statements.PEOPLE, PersonValues, ids=ids))
            labels = _grouped(sql.query(connection, statements.LABELS, LabelValues, ids=ids))
            for part in sql.query(connection, statements.PARTS, StoredPart, ids=ids):
                self.mail.remember(part.part_sha256, PackLocation(part.pack_id, part.position, part.stored_bytes))
        return Beside(threads, people, copies, labels)

    def _make(
        self,
        rows: Sequence[DueMessage],
        beside: Beside,
        extract: Extract | None,
        tick: Callable[[], None],
        *,
        is_last: bool = False,
    ) -> Iterator[Ready | UnreadableDocument]:
        """One child reads them together. If it dies, each is read again alone, which identifies the message that killed it."""
        opened: list[tuple[DueMessage, OpenedMail]] = []
        for row in rows:
            mail = _attempt(row, self.mail.open, row.sha256, row.place)
            if isinstance(mail, UnreadableDocument):
                yield mail
            else:
                opened.append((row, mail))
        try:
            yield from self._documents(opened, beside, extract, tick) if opened else ()
        except StoreUnavailable:
            raise
        except (ChildFailed, StoreError) as failed:
            if is_last:
                log.warning("mail_unreadable", message=str(opened[0][0].id), reason=str(failed))
                what = "mail" if isinstance(failed, ChildFailed) else "bytes"
                yield UnreadableDocument(opened[0][0], f"the {what} can't be read: {failed}")
                return
            log.warning("not_read_side_by_side", messages=len(opened), reason=str(failed))
            for row, _ in opened:
                yield from self._make([row], beside, extract, tick, is_last=True)

    def _documents(
        self,
        opened: Sequence[tuple[DueMessage, OpenedMail]],
        beside: Beside,
        extract: Extract | None,
        tick: Callable[[], None],
    ) -> list[Ready | UnreadableDocument]:
        with self._readers.group(tick) as group:
            mails = self.mail.read(group, [mail for _, mail in opened])
            texts = self._texts(mails)
            if extract is not None and (unread := _unread(group, mails, texts)):
                extract(unread)
                texts = self._texts(mails)
            inputs = [self._inputs(row, mail, beside, texts) for (row, _), mail in zip(opened, mails, strict=True)]
            made = group.documents(inputs)
        return [
            self._ready(row, *one, beside, texts) for (row, _), one in zip(opened, zip(mails, made, strict=True), strict=True)
        ]

    def _texts(self, mails: Sequence[ReadMail]) -> dict[bytes, KnownText]:
        hashes = {file.sha256 for mail in mails for file in mail.files}
        if not hashes:
            return {}
        with self._engine.connect() as connection:
            return known_texts(connection, hashes)

    def _inputs(self, row: DueMessage, mail: ReadMail, beside: Beside, texts: Mapping[bytes, KnownText]) -> list[Any]:
        """The arguments that the child process expects (archiver.parsing.answers)."""
        message_id = str(row.id)
        pages = {
            str(number): [(page.number, page.text, page.file) for page in read_pages(self._archive, texts[file.sha256])]
            for number, file in enumerate(mail.files)
            if file.sha256 in texts and has_own_text(file)
        }
        return [
            message_id,
            row.version,
            row.sha256.hex(),
            row.sort_at,
            row.size_bytes,
            row.internet_message_id,
            beside.threads.get(row.id),
            row.sender,
            row.subject,
            beside.people.get(message_id, ()),
            beside.copies.get(message_id, ()),
            pages,
            [label for (label,) in beside.labels.get(message_id, ())],
        ]

    def _ready(
        self, row: DueMessage, mail: ReadMail, made: Document, beside: Beside, texts: Mapping[bytes, KnownText]
    ) -> Ready | UnreadableDocument:
        if made.error is not None:
            log.error("document_failed", message=str(row.id), error=made.error)
            return UnreadableDocument(row, f"no search document can be built from it: {made.error}")
        reasons, is_waiting = [], False
        for file in mail.files:
            known = texts.get(file.sha256)
            if has_own_text(file):
                if known is None:
                    is_waiting = True
                elif known.reason is not None:
                    reasons.append({"file": file.name, "state": known.state, "reason": known.reason})
        if mail.is_cut or made.is_cut:
            reasons.append({"file": "", "state": "too_large", "reason": "more text than the limit; the rest is omitted"})
        state = SearchState.BODY if is_waiting else SearchState.PARTIAL if reasons else SearchState.FULL
        attachments = None if row.parser_version == PARSER_VERSION else _attachment_rows(row.id, mail.files)
        return Ready(row, beside.threads.get(row.id), made.json, state, reasons, mail.has_attachments, attachments)


def parse_groups(rows: Sequence[DueMessage]) -> Iterator[list[DueMessage]]:
    """Groups of messages to parse together, limited in number and size, with at least one each.

    A message whose last reader disappeared is parsed alone, after all others.
    """
    group: list[DueMessage] = []
    size = 0
    for row in rows:
        if row.attempts:
            continue
        if group and (len(group) == SIDE_BY_SIDE or size + row.size_bytes > _SIDE_BY_SIDE_BYTES):
            yield group
            group, size = [], 0
        group.append(row)
        size += row.size_bytes
    if group:
        yield group
    yield from ([row] for row in rows if row.attempts)


def _attempt(row: DueMessage, read: Callable[P, T], *given: P.args, **named: P.kwargs) -> T | UnreadableDocument:
    """An unreadable mail must not stop the others; an unavailable store stops all of them."""
    try:
        return read(*given, **named)
    except StoreUnavailable:
        raise
    except StoreError as error:
        return UnreadableDocument(row, f"the bytes can't be read: {error}")
    except Exception as error:
        log.exception("mail_unreadable", message=str(row.id))
        return UnreadableDocument(row, f"the mail can't be read: {type(error).__name__}")


def has_own_text(file: ReadFile) -> bool:
    """False for a mail inside the mail, whose text is part of the outer one, and for a signature."""
    return not file.is_message and file.content_type not in _SIGNATURES


def _unread(group: MailGroup, mails: Sequence[ReadMail], texts: Mapping[bytes, KnownText]) -> Unread:
    """Each content once."""
    found: dict[bytes, UnreadFile] = {}
    for number, mail in enumerate(mails):
        for place, file in enumerate(mail.files):
            if file.sha256 not in texts and has_own_text(file):
                found.setdefault(file.sha256, UnreadFile(number, file, partial(group.content, number, place)))
    return list(found.values())


def _attachment_rows(message_id: UUID, attachments: Sequence[ReadFile]) -> list[dict[str, Any]]:
    return [
        {
            "m": message_id,
            "n": number,
            "h": attachment.sha256.hex(),
            "b": attachment.size_bytes,
            "f": attachment.name or None,
            "t": attachment.content_type,
            "l": attachment.inline,
            "c": attachment.content_id or None,
            "d": {"part": attachment.position, "is_message": attachment.is_message},
            "s": TextState.PENDING if has_own_text(attachment) else TextState.EMPTY,
        }
        for number, attachment in enumerate(attachments)
    ]


def _grouped(rows: Sequence[tuple[Any, ...]]) -> dict[str, list[Sequence[Any]]]:
    """By the message's id, the first column of each row."""
    found: dict[str, list[Sequence[Any]]] = {}
    for message_id, *values in rows:
        found.setdefault(message_id, []).append(values)
    return found
