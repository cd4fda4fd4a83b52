"""Messages as somebody sees them: listed, one with its places, its thread, its bytes and its files. Everything through a Scope.

What lies outside of it does not exist here: not found, not counted, not named.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, text

from archiver.errors import NotFound
from archiver.services import conversations
from archiver.services.access import Scope

_LIST_COLUMNS = """m.id, encode(m.sha256, 'hex') AS sha256, m.sort_at AS date, m.sender, m.sender_name, m.subject, m.size_bytes,
    m.has_attachments, m.thread_id, {state} AS search_state"""
_PARTICIPANTS = """SELECT json_agg(json_build_array(p.role, p.address, p.name) ORDER BY p.position) FROM participants p
    WHERE p.message_id = m.id AND p.position < 2000"""
# Variants have one Message-ID, and so one thread, which has an index; their hash has none.
_VARIANTS = """
    SELECT v.id, encode(v.sha256, 'hex'), v.size_bytes, k.mailboxes, k.sources
    FROM messages m JOIN messages v ON v.thread_id = m.thread_id AND v.canonical_sha256 = m.canonical_sha256 AND v.id <> m.id,
        LATERAL (SELECT array_agg(DISTINCT b.address) AS mailboxes, array_agg(DISTINCT s.name) AS sources
                 FROM message_copies c JOIN mailboxes b ON b.id = c.mailbox_id JOIN ingestion_sources s ON s.id = b.source_id
                 WHERE c.message_id = v.id AND {seen}) AS k
    WHERE m.id = :id AND k.mailboxes IS NOT NULL ORDER BY v.sort_at, v.id"""
THREAD_MOST = 500


@dataclass(frozen=True, slots=True)
class MessageRow:
    id: UUID
    sha256: str
    date: datetime
    sender: str | None
    sender_name: str | None
    subject: str | None
    size_bytes: int
    has_attachments: bool
    thread_id: UUID | None
    search_state: str


@dataclass(frozen=True, slots=True)
class ThreadRow(MessageRow):
    variants: tuple[UUID, ...]
    """The same mail, stored with other line ends or marks of a mail program, and shown in this row."""


@dataclass(frozen=True, slots=True)
class Variant:
    """Another original of the same mail."""

    id: UUID
    sha256: str
    size_bytes: int
    mailboxes: list[str]
    sources: list[str]


@dataclass(frozen=True, slots=True)
class Copy:
    id: UUID
    mailbox_id: UUID
    mailbox: str
    source: str
    folder: str
    flags: list[str]
    labels: list[str]
    received_at: datetime | None
    archived_at: datetime
    gone_at: datetime | None
    handed_in: bool
    """By a program through the API, not fetched from a source."""


@dataclass(frozen=True, slots=True)
class ParticipantRow:
    role: str
    address: str
    name: str | None


@dataclass(frozen=True, slots=True)
class MessageDetail:
    message: MessageRow
    internet_message_id: str | None
    in_reply_to: str | None
    sent_at: datetime | None
    received_at: datetime | None
    date_origin: str
    archived_at: datetime
    defects: list[Any]
    participants: list[ParticipantRow]
    copies: list[Copy]
    variants: list[Variant]


@dataclass(frozen=True, slots=True)
class Around:
    """A stretch of a conversation, oldest first."""

    messages: list[ThreadRow]
    earlier: UUID | None
    """The message at its beginning, around which there is more; None: nothing comes before it."""
    later: UUID | None


@dataclass(frozen=True, slots=True)
class MailboxRow:
    id: UUID
    address: str
    display_name: str | None
    source: str
    copies: int
    folders: dict[str, int]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a list goes on."""

    date: datetime
    id: UUID


def listed(
    connection: Connection, scope: Scope, *, folder: str | None = None, below: Place | None = None, most: int = 50
) -> list[MessageRow]:
    """Newest first. `folder` makes sense with a scope of one mailbox."""
    where = ["true"]
    values: dict[str, Any] = {**scope.values(), "most": most}
    if below is not None:
        where.append("(m.sort_at, m.id) < (:below_date, :below_id)")
        values |= {"below_date": below.date, "below_id": below.id}
    condition = scope.copies("sc")
    if folder is not None:
        condition += " AND sc.folder = :folder"
        values["folder"] = folder
    statement = text(
        f"SELECT {_columns(scope)} FROM messages m WHERE {' AND '.join(where)}"  # noqa: S608
        f" AND EXISTS (SELECT 1 FROM message_copies sc WHERE sc.message_id = m.id AND {condition})"
        " ORDER BY m.sort_at DESC, m.id DESC LIMIT :most"
    )
    found = [MessageRow(*row) for row in connection.execute(statement, values)]
    shown = conversations.names(connection, scope, ((row.id, row.thread_id) for row in found))
    return [replace(row, thread_id=shown[row.id]) for row in found]


def _columns(scope: Scope) -> str:
    return _LIST_COLUMNS.format(state=scope.search_state())


def detail(connection: Connection, scope: Scope, message_id: UUID) -> MessageDetail:
    times = f"m.sent_at, {scope.received_at()} AS received_at, m.date_origin, {scope.archived_at()} AS archived_at"
    statement = text(
        f"SELECT {_columns(scope)}, m.internet_message_id, m.in_reply_to, {times}, m.defects, ({_PARTICIPANTS}) AS participants"  # noqa: S608
        f" FROM messages m WHERE m.id = :id AND {scope.messages('m')}"
    )
    row = connection.execute(statement, {"id": message_id, **scope.values()}).first()
    if row is None:
        raise NotFound(f"there is no message {message_id}")
    thread_id = conversations.names(connection, scope, [(row.id, row.thread_id)])[row.id]
    return MessageDetail(
        message=replace(MessageRow(*row[:10]), thread_id=thread_id),
        internet_message_id=row.internet_message_id,
        in_reply_to=row.in_reply_to,
        sent_at=row.sent_at,
        received_at=row.received_at,
        date_origin=row.date_origin,
        archived_at=row.archived_at,
        defects=row.defects,
        participants=[ParticipantRow(*one) for one in row.participants or ()],
        copies=copies(connection, scope, message_id),
        variants=variants(connection, scope, message_id),
    )


def variants(connection: Connection, scope: Scope, message_id: UUID) -> list[Variant]:
    """The other originals of a mail, as far as they are seen."""
    statement = text(_VARIANTS.format(seen=scope.copies()))
    found = [Variant(*row) for row in connection.execute(statement, {"id": message_id, **scope.values()})]
    if not found or scope.mailboxes is None:
        return found
    together = conversations.conversation(connection, scope, message_id)
    return [one for one in found if together is not None and one.id in together.members]


def copies(connection: Connection, scope: Scope, message_id: UUID) -> list[Copy]:
    """The places that the scope sees; at least one, or there is no such message."""
    statement = text(
        "SELECT c.id, c.mailbox_id, b.address, s.name, c.folder, c.flags, c.labels, c.received_at, c.created_at, c.gone_at,"  # noqa: S608
        " c.provider_key ~ '^api:[0-9a-f]{64}$'"
        " FROM message_copies c JOIN mailboxes b ON b.id = c.mailbox_id JOIN ingestion_sources s ON s.id = b.source_id"
        f" WHERE c.message_id = :id AND {scope.copies('c')} ORDER BY lower(b.address), c.folder, c.id LIMIT 1000"
    )
    found = [Copy(*row) for row in connection.execute(statement, {"id": message_id, **scope.values()}).all()]
    if not found:
        raise NotFound(f"there is no message {message_id}")
    return found


def thread(
    connection: Connection, scope: Scope, message_id: UUID, *, above: Place | None = None, most: int = THREAD_MOST
) -> tuple[list[ThreadRow], Place | None]:
    """The conversation, oldest first, as far as it is seen, and where it goes on: `above` continues there."""
    which, values = _conversation_of(connection, scope, message_id)
    values |= {"most": most}
    if above is not None:
        which += " AND (m.sort_at, m.id) > (:date, :above_id)"
        values |= {"date": above.date, "above_id": above.id}
    found = connection.execute(text(_conversation(scope, which, "ASC")), values).all()
    return _shown_once(found, message_id, values["name"]), Place(found[-1].date, found[-1].id) if len(found) == most else None


def around(connection: Connection, scope: Scope, message: MessageRow, each: int = 100) -> Around:
    """A message that the scope sees, among those of its conversation that come just before and after it."""
    which, values = _conversation_of(connection, scope, message.id)
    values |= {"date": message.date, "id": message.id, "most": each + 2}
    place = which + " AND (m.sort_at, m.id) {} (:date, :id)"
    both = (_conversation(scope, place.format(sign), order) for sign, order in (("<", "DESC"), (">=", "ASC")))
    found = connection.execute(text(" UNION ALL ".join(both)), values).all()
    before = [one for one in found if (one.date, one.id) < (message.date, message.id)]
    after = found[len(before) :]  # the message itself, and what follows
    return Around(
        _shown_once([*before[:each], *after[: each + 1]], message.id, values["name"]),
        earlier=before[each - 1].id if len(before) > each else None,
        later=after[each].id if len(after) > each + 1 else None,
    )


def _conversation_of(connection: Connection, scope: Scope, message_id: UUID) -> tuple[str, dict[str, Any]]:
    """The condition on its messages, and what it is bound to; `name` is the thread as this reader knows it."""
    if scope.mailboxes is None:
        values = {"id": message_id}
        statement = text(f"SELECT m.thread_id FROM messages m WHERE m.id = :id AND {scope.messages()}")  # noqa: S608
        row = connection.execute(statement, values).first()
        if row is None:
            raise NotFound(f"there is no message {message_id}")
        which = "m.thread_id = :name" if row.thread_id is not None else "m.id = :id"
        return which, {"id": message_id, "name": row.thread_id}
    found = conversations.conversation(connection, scope, message_id)
    if found is None:
        raise NotFound(f"there is no message {message_id}")
    return "m.id = ANY(:members)", {"members": list(found.members), "name": found.name, **scope.values()}


def _conversation(scope: Scope, which: str, order: str) -> str:
    return (
        f"(SELECT {_columns(scope)}, m.canonical_sha256 FROM messages m WHERE {which} AND {scope.messages('m')}"  # noqa: S608
        f" ORDER BY m.sort_at {order}, m.id {order} LIMIT :most)"
    )


def _shown_once(rows: Sequence[Any], asked: UUID, thread_id: UUID | None) -> list[ThreadRow]:
    """Variants of one mail in one row: that of the message that was asked for, or of the first."""
    shown: dict[bytes, ThreadRow] = {}
    for row in sorted(rows, key=lambda row: (row.id != asked, row.date, row.id)):
        first = shown.get(row.canonical_sha256)
        alone = replace(ThreadRow(*(*row[:-1], ())), thread_id=thread_id)
        variant = alone if first is None else replace(first, variants=(*first.variants, row.id))
        shown[row.canonical_sha256] = variant
    return sorted(shown.values(), key=lambda one: (one.date, one.id))


def mailboxes(connection: Connection, scope: Scope, *, after: str = "", most: int = 100) -> list[MailboxRow]:
    """Those that the scope sees, by address, with their folders."""
    visible = "true" if scope.mailboxes is None else "b.id = ANY(:scope_mailboxes)"
    statement = text(
        "SELECT b.id, b.address, b.display_name, s.name FROM mailboxes b JOIN ingestion_sources s ON s.id = b.source_id"  # noqa: S608
        f" WHERE {visible} AND (lower(b.address) || ' ' || b.id) > :after ORDER BY lower(b.address) || ' ' || b.id LIMIT :most"
    )
    rows = connection.execute(statement, {**scope.values(), "after": after, "most": most}).all()
    counted: dict[UUID, dict[str, int]] = {row.id: {} for row in rows}
    folders = text(
        "SELECT mailbox_id, folder, count(*) AS n FROM message_copies WHERE mailbox_id = ANY(:ids) AND deleted_at IS NULL"
        " GROUP BY 1, 2 ORDER BY 1, 2"
    )
    for row in connection.execute(folders, {"ids": list(counted)}):
        counted[row.mailbox_id][row.folder] = row.n
    return [
        MailboxRow(row.id, row.address, row.display_name, row.name, sum(counted[row.id].values()), counted[row.id])
        for row in rows
    ]


def visible_hash(connection: Connection, scope: Scope, message_id: UUID) -> tuple[bytes, int]:
    """SHA-256 and size of a message that the scope sees."""
    row = connection.execute(
        text(f"SELECT m.sha256, m.size_bytes FROM messages m WHERE m.id = :id AND {scope.messages('m')}"),  # noqa: S608
        {"id": message_id, **scope.values()},
    ).first()
    if row is None:
        raise NotFound(f"there is no message {message_id}")
    return bytes(row.sha256), int(row.size_bytes)


def is_read(connection: Connection, scope: Scope, message_id: UUID) -> bool:
    """Its own turn is over: what is known of its attachments may be shown, be it from other messages with the same files."""
    statement = text(f"SELECT {scope.search_state()} FROM messages m WHERE m.id = :id AND {scope.messages()}")  # noqa: S608
    return connection.execute(statement, {"id": message_id, **scope.values()}).scalar() in ("full", "partial")


def stretch(pieces: Iterator[bytes], start: int, end: int) -> Iterator[bytes]:
    """The bytes from `start` to before `end`. All pieces are taken when the end is the end, so that damage is noticed."""
    at = 0
    for piece in pieces:
        if at + len(piece) > start and at < end:
            yield piece[max(0, start - at) : end - at]
        at += len(piece)
        if at > end:
            return
