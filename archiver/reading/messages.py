"""Messages as a reader sees them: lists, details, copies, threads, bytes and files. Everything goes through a MailScope.

What is outside the scope does not exist here: not found, not counted, not named.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Connection

from archiver.access.scope import MailScope
from archiver.db.sql import query, query_optional, uuids
from archiver.errors import NotFound
from archiver.search import conversations
from archiver.search.conversations import MessageThread

_LIST_COLUMNS = """m.id, encode(m.sha256, 'hex') AS sha256, m.sort_at AS date, m.sender, m.sender_name, m.subject, m.size_bytes,
    m.has_attachments, m.thread_id, {state} AS search_state"""
_PARTICIPANTS = """SELECT json_agg(json_build_array(p.role, p.address, p.name) ORDER BY p.position) FROM participants p
    WHERE p.message_id = m.id AND p.position < 2000"""
# Variants share a Message-ID and therefore a thread, which is indexed; their hash is not.
_VARIANTS = """
    SELECT v.id, encode(v.sha256, 'hex') AS sha256, v.size_bytes, k.mailboxes, k.sources
    FROM messages m JOIN messages v ON v.thread_id = m.thread_id AND v.canonical_sha256 = m.canonical_sha256 AND v.id <> m.id,
        LATERAL (SELECT array_agg(DISTINCT b.address) AS mailboxes, array_agg(DISTINCT s.name) AS sources
                 FROM message_copies c JOIN mailboxes b ON b.id = c.mailbox_id JOIN ingestion_sources s ON s.id = b.source_id
                 WHERE c.message_id = v.id AND {seen}) AS k
    WHERE m.id = :id AND k.mailboxes IS NOT NULL ORDER BY v.sort_at, v.id"""
_FOLDERS = """
    SELECT mailbox_id, folder, count(*) AS copies FROM message_copies WHERE mailbox_id = ANY(:ids) AND deleted_at IS NULL
    GROUP BY 1, 2 ORDER BY 1, 2"""
THREAD_MOST = 500

_VISIBLE_AMONG = "SELECT m.id FROM messages m WHERE m.id = ANY(CAST(:ids AS uuid[])) AND {seen}"


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
    """The same mail with other line endings or client markers, shown in this row."""


@dataclass(frozen=True, slots=True)
class ConversationMessage(MessageRow):
    canonical_sha256: bytes
    """The same for all variants of a mail."""

    def alone(self, thread_id: UUID | None) -> ThreadRow:
        shared = {one.name: getattr(self, one.name) for one in fields(MessageRow)}
        return ThreadRow(**{**shared, "thread_id": thread_id}, variants=())


@dataclass(frozen=True, slots=True)
class DetailedMessage(MessageRow):
    internet_message_id: str | None
    in_reply_to: str | None
    sent_at: datetime | None
    received_at: datetime | None
    date_origin: str
    archived_at: datetime
    defects: list[Any]
    participants: list[list[Any]] | None
    """Role, address and name of each."""

    @property
    def listed(self) -> MessageRow:
        return MessageRow(**{one.name: getattr(self, one.name) for one in fields(MessageRow)})


class SizedHash(NamedTuple):
    sha256: bytes
    size_bytes: int


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
    recipients: list[str]
    """By the record of a journal, as `role:address`."""
    received_at: datetime | None
    archived_at: datetime
    gone_at: datetime | None
    handed_in: bool
    """Submitted through the API, not fetched from a source."""
    is_converted: bool
    """Built from an item of an Outlook file, as its import recorded. What the mail says about itself proves nothing."""


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
class ConversationWindow:
    """A section of a conversation, oldest first."""

    messages: list[ThreadRow]
    earlier: UUID | None
    """The first message, if there are earlier ones; None if nothing comes before it."""
    later: UUID | None


@dataclass(frozen=True, slots=True)
class MailboxRow:
    id: UUID
    address: str
    display_name: str | None
    source: str
    copies: int = 0
    folders: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FolderCount:
    mailbox_id: UUID
    folder: str
    copies: int


@dataclass(frozen=True, slots=True)
class PageCursor:
    """Where the next page of a list begins."""

    date: datetime
    id: UUID


def listed(
    connection: Connection, scope: MailScope, *, folder: str | None = None, below: PageCursor | None = None, limit: int = 50
) -> list[MessageRow]:
    """Newest first. `folder` is meant for a scope of one mailbox."""
    where = ["true"]
    values: dict[str, Any] = {**scope.values(), "limit": limit}
    if below is not None:
        where.append("(m.sort_at, m.id) < (:below_date, :below_id)")
        values |= {"below_date": below.date, "below_id": below.id}
    condition = scope.copies("sc")
    if folder is not None:
        condition += " AND sc.folder = :folder"
        values["folder"] = folder
    statement = (
        f"SELECT {_columns(scope)} FROM messages m WHERE {' AND '.join(where)}"  # noqa: S608
        f" AND EXISTS (SELECT 1 FROM message_copies sc WHERE sc.message_id = m.id AND {condition})"
        " ORDER BY m.sort_at DESC, m.id DESC LIMIT :limit"
    )
    found = query(connection, statement, MessageRow, **values)
    shown = conversations.names(connection, scope, ((row.id, row.thread_id) for row in found))
    return [replace(row, thread_id=shown[row.id]) for row in found]


def _columns(scope: MailScope) -> str:
    return _LIST_COLUMNS.format(state=scope.search_state())


def detail(connection: Connection, scope: MailScope, message_id: UUID) -> MessageDetail:
    times = (
        f"m.sent_at, {scope.received_at()} AS received_at, {scope.date_origin()} AS date_origin,"
        f" {scope.archived_at()} AS archived_at"
    )
    statement = (
        f"SELECT {_columns(scope)}, m.internet_message_id, m.in_reply_to, {times}, m.defects, ({_PARTICIPANTS}) AS participants"  # noqa: S608
        f" FROM messages m WHERE m.id = :id AND {scope.messages('m')}"
    )
    row = query_optional(connection, statement, DetailedMessage, id=message_id, **scope.values())
    if row is None:
        raise NotFound(f"there is no message {message_id}")
    thread_id = conversations.names(connection, scope, [(row.id, row.thread_id)])[row.id]
    return MessageDetail(
        message=replace(row.listed, thread_id=thread_id),
        internet_message_id=row.internet_message_id,
        in_reply_to=row.in_reply_to,
        sent_at=row.sent_at,
        received_at=row.received_at,
        date_origin=row.date_origin,
        archived_at=row.archived_at,
        defects=row.defects if scope.mailboxes is None else [one for one in row.defects if not _is_of_a_copy(one)],
        participants=[ParticipantRow(*one) for one in row.participants or ()],
        copies=copies(connection, scope, message_id),
        variants=variants(connection, scope, message_id),
    )


def _is_of_a_copy(defect: str) -> bool:
    """The copy that was archived first, whoever's it is; all others are of the message."""
    return defect.startswith("server_date_out_of_range")


def variants(connection: Connection, scope: MailScope, message_id: UUID) -> list[Variant]:
    """The other originals of a mail that the scope sees."""
    found = query(connection, _VARIANTS.format(seen=scope.copies()), Variant, id=message_id, **scope.values())
    if not found or scope.mailboxes is None:
        return found
    together = conversations.conversation(connection, scope, message_id)
    return [one for one in found if together is not None and one.id in together.members]


def copies(connection: Connection, scope: MailScope, message_id: UUID) -> list[Copy]:
    """The copies that the scope sees. Raises NotFound if there are none."""
    statement = (
        "SELECT c.id, c.mailbox_id, b.address AS mailbox, s.name AS source, c.folder, c.flags, c.labels, c.recipients,"  # noqa: S608
        " c.received_at, c.created_at AS archived_at, c.gone_at, c.provider_key ~ '^api:[0-9a-f]{64}$' AS handed_in,"
        " s.kind IN ('import', 'files') AND split_part(c.provider_key, '\u241f', 1) ~* '[.](pst|ost|msg)$' AS is_converted"
        " FROM message_copies c JOIN mailboxes b ON b.id = c.mailbox_id JOIN ingestion_sources s ON s.id = b.source_id"
        f" WHERE c.message_id = :id AND {scope.copies('c')} ORDER BY lower(b.address), c.folder, c.id LIMIT 1000"
    )
    found = query(connection, statement, Copy, id=message_id, **scope.values())
    if not found:
        raise NotFound(f"there is no message {message_id}")
    return found


def thread(
    connection: Connection, scope: MailScope, message_id: UUID, *, above: PageCursor | None = None, limit: int = THREAD_MOST
) -> tuple[list[ThreadRow], PageCursor | None]:
    """The visible conversation, oldest first, and where it continues: pass that as `above`."""
    which, values = _conversation_of(connection, scope, message_id)
    values |= {"limit": limit}
    if above is not None:
        which += " AND (m.sort_at, m.id) > (:date, :above_id)"
        values |= {"date": above.date, "above_id": above.id}
    found = query(connection, _conversation(scope, which, "ASC"), ConversationMessage, **values)
    return _merge_variants(found, message_id, values["name"]), PageCursor(found[-1].date, found[-1].id) if len(
        found
    ) == limit else None


def around(connection: Connection, scope: MailScope, message: MessageRow, each: int = 100) -> ConversationWindow:
    """A visible message with the messages of its conversation just before and after it."""
    which, values = _conversation_of(connection, scope, message.id)
    values |= {"date": message.date, "id": message.id, "limit": each + 2}
    place = which + " AND (m.sort_at, m.id) {} (:date, :id)"
    both = (_conversation(scope, place.format(sign), order) for sign, order in (("<", "DESC"), (">=", "ASC")))
    found = query(connection, " UNION ALL ".join(both), ConversationMessage, **values)
    before = [one for one in found if (one.date, one.id) < (message.date, message.id)]
    after = found[len(before) :]  # the message itself and those after it
    return ConversationWindow(
        _merge_variants([*before[:each], *after[: each + 1]], message.id, values["name"]),
        earlier=before[each - 1].id if len(before) > each else None,
        later=after[each].id if len(after) > each + 1 else None,
    )


def _conversation_of(connection: Connection, scope: MailScope, message_id: UUID) -> tuple[str, dict[str, Any]]:
    """The condition on its messages and its parameters; `name` is the thread id that this reader sees."""
    if scope.mailboxes is None:
        statement = f"SELECT m.thread_id FROM messages m WHERE m.id = :id AND {scope.messages()}"  # noqa: S608
        row = query_optional(connection, statement, MessageThread, id=message_id, **scope.values())
        if row is None:
            raise NotFound(f"there is no message {message_id}")
        which = "m.thread_id = :name" if row.thread_id is not None else "m.id = :id"
        return which, {"id": message_id, "name": row.thread_id, **scope.values()}
    found = conversations.conversation(connection, scope, message_id)
    if found is None:
        raise NotFound(f"there is no message {message_id}")
    return "m.id = ANY(:members)", {"members": list(found.members), "name": found.name, **scope.values()}


def _conversation(scope: MailScope, which: str, order: str) -> str:
    return (
        f"(SELECT {_columns(scope)}, m.canonical_sha256 FROM messages m WHERE {which} AND {scope.messages('m')}"  # noqa: S608
        f" ORDER BY m.sort_at {order}, m.id {order} LIMIT :limit)"
    )


def _merge_variants(rows: Sequence[ConversationMessage], requested: UUID, thread_id: UUID | None) -> list[ThreadRow]:
    """Combines variants of one mail into one row: that of the requested message, or else the first."""
    shown: dict[bytes, ThreadRow] = {}
    for row in sorted(rows, key=lambda row: (row.id != requested, row.date, row.id)):
        first = shown.get(row.canonical_sha256)
        variant = row.alone(thread_id) if first is None else replace(first, variants=(*first.variants, row.id))
        shown[row.canonical_sha256] = variant
    return sorted(shown.values(), key=lambda one: (one.date, one.id))


def mailboxes(connection: Connection, scope: MailScope, *, after: str = "", limit: int = 100) -> list[MailboxRow]:
    """The mailboxes that the scope sees, by address, with their folders."""
    visible = "true" if scope.mailboxes is None else "b.id = ANY(:scope_mailboxes)"
    statement = (
        "SELECT b.id, b.address, b.display_name, s.name AS source"  # noqa: S608
        " FROM mailboxes b JOIN ingestion_sources s ON s.id = b.source_id"
        f" WHERE {visible} AND (lower(b.address) || ' ' || b.id) > :after ORDER BY lower(b.address) || ' ' || b.id LIMIT :limit"
    )
    found = query(connection, statement, MailboxRow, **scope.values(), after=after, limit=limit)
    counted: dict[UUID, dict[str, int]] = {row.id: {} for row in found}
    for folder in query(connection, _FOLDERS, FolderCount, ids=list(counted)):
        counted[folder.mailbox_id][folder.folder] = folder.copies
    return [replace(row, copies=sum(counted[row.id].values()), folders=counted[row.id]) for row in found]


def visible_among(connection: Connection, scope: MailScope, message_ids: Sequence[UUID]) -> set[UUID]:
    """Those of the messages that exist and are visible."""
    statement = _VISIBLE_AMONG.format(seen=scope.messages())
    return set(query(connection, statement, UUID, ids=uuids(message_ids), **scope.values()))


def visible_hash(connection: Connection, scope: MailScope, message_id: UUID) -> tuple[bytes, int]:
    """SHA-256 and size of a message that the scope sees."""
    statement = f"SELECT m.sha256, m.size_bytes FROM messages m WHERE m.id = :id AND {scope.messages('m')}"  # noqa: S608
    found = query_optional(connection, statement, SizedHash, id=message_id, **scope.values())
    if found is None:
        raise NotFound(f"there is no message {message_id}")
    return found


def is_read(connection: Connection, scope: MailScope, message_id: UUID) -> bool:
    """True once the message's own attachments have been read: only then are texts that other messages share shown here."""
    statement = f"SELECT {scope.search_state()} FROM messages m WHERE m.id = :id AND {scope.messages()}"  # noqa: S608
    return query_optional(connection, statement, str, id=message_id, **scope.values()) in ("full", "partial")


def byte_range(pieces: Iterator[bytes], start: int, end: int) -> Iterator[bytes]:
    """The bytes in [start, end). If `end` is the end of the content, all pieces are consumed, so that damage is detected."""
    at = 0
    for piece in pieces:
        if at + len(piece) > start and at < end:
            yield piece[max(0, start - at) : end - at]
        at += len(piece)
        if at > end:
            return


_ADDRESSES = "SELECT id, address FROM mailboxes WHERE id = ANY(:ids)"


class AddressOfMailbox(NamedTuple):
    id: UUID
    address: str


def mailbox_addresses(connection: Connection, mailbox_ids: Sequence[UUID]) -> dict[UUID, str]:
    """For administrators, who see the addresses of all mailboxes."""
    return dict(query(connection, _ADDRESSES, AddressOfMailbox, ids=list(mailbox_ids)))
