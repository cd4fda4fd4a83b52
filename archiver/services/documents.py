"""From rows of messages to their documents: bytes out of the packs, parsed, with copies, people and texts beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ParamSpec, TypeVar
from uuid import UUID

import orjson
from sqlalchemy import Engine

from archiver.extract.extraction import Page
from archiver.logs import get_logger
from archiver.mail.attachments import Attachment
from archiver.mail.message import PARSER_VERSION, SIDE_BY_SIDE
from archiver.models.states import SearchState, TextState
from archiver.search.document import Copy, FileText, Inputs, Person, build_document
from archiver.services import batch_sql, indexing_sql
from archiver.services.stored_mail import MailReader, OpenedMail, StoredMail
from archiver.services.texts import KnownText, known_texts, read_pages
from archiver.store.archive import Archive
from archiver.store.errors import StoreError, StoreUnavailable
from archiver.store.pack import Place

_SIGNATURES = frozenset(
    {
        "application/pgp-signature",
        "application/pgp-keys",
        "application/pkcs7-signature",
        "application/x-pkcs7-signature",
    }
)

_IN_MEMORY = 200
"""So many messages are held at once."""
_SIDE_BY_SIDE_BYTES = 4 << 20
"""Of messages that are parsed together: their texts take several times as much meanwhile."""

log = get_logger("indexing")

P = ParamSpec("P")
T = TypeVar("T")
Row = Any
"""Of indexing_sql: a message with its place in the packs."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A message whose document can be sent, and what Postgres is told when it has arrived."""

    row: Row
    thread_id: UUID | None
    document: bytes
    state: SearchState
    reasons: list[dict[str, str]]
    has_attachments: bool
    attachments: list[dict[str, Any]] | None
    """Rows of message_attachments; None if they are there already."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    row: Row
    reason: str


Unread = list[tuple[Attachment, StoredMail]]
Extract = Callable[[Unread], None]
"""Reads these attachments, and stores what was found."""


class DocumentMaker:
    """For one thread."""

    def __init__(self, engine: Engine, archive: Archive) -> None:
        self._engine = engine
        self._archive = archive
        self.mail = MailReader(archive)

    def make(
        self, rows: Sequence[Row], threads: Mapping[UUID, UUID | None], extract: Extract | None = None
    ) -> Iterator[Ready | Unreadable]:
        """In the order of the rows. With `extract`, attachments that were never read are read first."""
        ids = batch_sql.uuids(row.id for row in rows)
        with self._engine.connect() as connection:
            copies = _grouped(batch_sql.run(connection, indexing_sql.COPIES, ids=ids), Copy)
            people = _grouped(batch_sql.run(connection, indexing_sql.PEOPLE, ids=ids), _person)
            for part in batch_sql.run(connection, indexing_sql.PARTS, ids=ids):
                self.mail.remember(bytes(part.part_sha256), Place(part.pack_id, part.position, part.stored_bytes))
        for start in range(0, len(rows), _IN_MEMORY):
            yield from self._make(rows[start : start + _IN_MEMORY], threads, extract, people, copies)

    def _make(
        self,
        rows: Sequence[Row],
        threads: Mapping[UUID, UUID | None],
        extract: Extract | None,
        people: Mapping[str, Sequence[Person]],
        copies: Mapping[str, Sequence[Copy]],
    ) -> Iterator[Ready | Unreadable]:
        mails: dict[bytes, StoredMail] = {}
        for group in side_by_side(rows):
            yield from self._read(group, mails)
        texts = self._texts(mails)
        if extract is not None:
            unread = _unread(mails, texts)
            if unread:
                extract(unread)
                texts = self._texts(mails)
        for row in rows:
            mail = mails.pop(row.sha256, None)
            if mail is None:
                continue
            message_id = str(row.id)
            try:
                yield self._ready(row, mail, threads.get(row.id), people.get(message_id, ()), copies.get(message_id, ()), texts)
            except StoreUnavailable:
                raise
            except Exception as error:
                log.exception("document_failed", message=str(row.id))
                yield Unreadable(row, f"no document can be made of it: {type(error).__name__}")

    def _read(self, rows: Sequence[Row], mails: dict[bytes, StoredMail]) -> Iterator[Unreadable]:
        """Puts the mail of the rows into `mails`, by its hash, and gives those that can't be read."""
        opened: dict[bytes, OpenedMail] = {}
        for row in rows:
            mail = _attempt(row, self.mail.open, row.sha256, _place(row))
            if isinstance(mail, Unreadable):
                yield mail
            else:
                opened[row.sha256] = mail
        try:
            mails.update(zip(opened, self.mail.parse(list(opened.values())), strict=True))
            return
        except Exception as error:  # noqa: BLE001  (of one of them: each by itself shows which)
            log.debug("not_read_side_by_side", error=type(error).__name__)
        for row in rows:
            if row.sha256 in opened:
                read = _attempt(row, self.mail.parse, [opened[row.sha256]])
                if isinstance(read, Unreadable):
                    yield read
                else:
                    mails[row.sha256] = read[0]

    def _texts(self, mails: Mapping[bytes, StoredMail]) -> dict[bytes, KnownText]:
        hashes = {attachment.sha256 for mail in mails.values() for attachment in mail.message.attachments}
        if not hashes:
            return {}
        with self._engine.connect() as connection:
            return known_texts(connection, hashes)

    def _ready(
        self,
        row: Row,
        mail: StoredMail,
        thread_id: UUID | None,
        people: Sequence[Person],
        copies: Sequence[Copy],
        texts: Mapping[bytes, KnownText],
    ) -> Ready:
        message = mail.message
        files, reasons, is_waiting = [], [], False
        for attachment in message.attachments:
            known = texts.get(attachment.sha256)
            pages: tuple[Page, ...] = ()
            if has_text_of_its_own(attachment):
                if known is None:
                    is_waiting = True
                else:
                    pages = read_pages(self._archive, known)
                    if known.reason is not None:
                        reasons.append({"file": attachment.name, "state": known.state, "reason": known.reason})
            files.append(FileText(attachment.name, attachment.content_type, attachment.sha256, pages))
        document = build_document(
            Inputs(
                id=row.id,
                version=row.version,
                sha256=row.sha256,
                sort_at=row.sort_at,
                size_bytes=row.size_bytes,
                message=message,
                internet_message_id=row.internet_message_id,
                thread_id=thread_id,
                sender=row.sender,
                subject=row.subject,
                people=people,
                copies=copies,
                files=files,
            )
        )
        if "text_too_large" in message.defects or document.get("cut"):
            reasons.append({"file": "", "state": "too_large", "reason": "more text than the limit; the rest is left out"})
        state = SearchState.BODY if is_waiting else SearchState.PARTIAL if reasons else SearchState.FULL
        attachments = None if row.parser_version == PARSER_VERSION else _attachment_rows(row.id, message.attachments)
        return Ready(row, thread_id, _json(document), state, reasons, message.has_attachments, attachments)


def side_by_side(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Groups to be parsed together: not too many messages, nor too large ones, and one in any case."""
    group: list[Row] = []
    size = 0
    for row in rows:
        if group and (len(group) == SIDE_BY_SIDE or size + row.size_bytes > _SIDE_BY_SIDE_BYTES):
            yield group
            group, size = [], 0
        group.append(row)
        size += row.size_bytes
    if group:
        yield group


def _attempt(row: Row, read: Callable[P, T], *given: P.args, **named: P.kwargs) -> T | Unreadable:
    """A mail that can't be read must not hold up the others; a store that does not answer holds up all."""
    try:
        return read(*given, **named)
    except StoreUnavailable:
        raise
    except StoreError as error:
        return Unreadable(row, f"the bytes can't be read: {error}")
    except Exception as error:
        log.exception("mail_unreadable", message=str(row.id))
        return Unreadable(row, f"the mail can't be read: {type(error).__name__}")


def has_text_of_its_own(attachment: Attachment) -> bool:
    """Not a mail inside the mail, whose text is part of the outer one; not a signature."""
    return not attachment.is_message and attachment.content_type not in _SIGNATURES


def _unread(mails: Mapping[bytes, StoredMail], texts: Mapping[bytes, KnownText]) -> Unread:
    """Each content once."""
    found: dict[bytes, tuple[Attachment, StoredMail]] = {}
    for mail in mails.values():
        for attachment in mail.message.attachments:
            if attachment.sha256 not in texts and has_text_of_its_own(attachment):
                found.setdefault(attachment.sha256, (attachment, mail))
    return list(found.values())


def _attachment_rows(message_id: UUID, attachments: Sequence[Attachment]) -> list[dict[str, Any]]:
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
            "s": TextState.PENDING if has_text_of_its_own(attachment) else TextState.EMPTY,
        }
        for number, attachment in enumerate(attachments)
    ]


def _place(row: Row) -> Place | None:
    return Place(row.pack_id, row.position, row.stored_bytes) if row.pack_id is not None else None


_person = lru_cache(maxsize=16384)(Person)
"""Who mostly comes again and again."""


def _grouped(rows: Sequence[Any], make: Callable[..., T]) -> dict[str, list[T]]:
    """By the message's id, which stands first in each row."""
    found: dict[str, list[T]] = {}
    for message_id, *values in rows:
        found.setdefault(message_id, []).append(make(*values))
    return found


def _json(document: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(document)
    except TypeError:  # lone surrogates
        return orjson.dumps(_clean(document))


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {key: _clean(item) for key, item in value.items()}
    return [_clean(item) for item in value] if isinstance(value, list) else value
