"""The mailboxes of a source: which listed ones are known, new, back, or a different mailbox at a known address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from sqlalchemy import Connection, text

from archiver.db.ids import uuid7
from archiver.db.sql import query
from archiver.db.values import clean, json_text

_KEYS = "SELECT lower(a) FROM unnest(CAST(:addresses AS text[])) WITH ORDINALITY AS x(a, n) ORDER BY n"
_KNOWN = """
    SELECT id, lower(address) AS key, address, display_name, provider_id, gone_at IS NOT NULL AS is_gone FROM mailboxes
    WHERE source_id = :source AND (:all OR lower(address) = ANY(:keys))"""
_ADD = """
    INSERT INTO mailboxes (id, source_id, address, display_name, provider_id, replaces_id)
    SELECT id, :source, address, display_name, provider_id, replaces_id FROM json_to_recordset(CAST(:rows AS json))
        AS r(id uuid, address text, display_name text, provider_id text, replaces_id uuid)
    ORDER BY lower(address)
    ON CONFLICT (source_id, lower(address)) DO UPDATE SET gone_at = NULL RETURNING id"""
_LISTED = """
    SELECT address, display_name, provider_id FROM mailboxes
    WHERE source_id = :source AND id = ANY(:ids) AND gone_at IS NULL"""
_CHANGE = text("""
    UPDATE mailboxes m SET gone_at = NULL, display_name = coalesce(r.display_name, m.display_name),
        provider_id = coalesce(r.provider_id, m.provider_id)
    FROM json_to_recordset(CAST(:rows AS json)) AS r(id uuid, display_name text, provider_id text) WHERE m.id = r.id""")
_GONE = text("UPDATE mailboxes SET gone_at = now() WHERE id = ANY(:ids) AND gone_at IS NULL")
# The address belongs to the mailbox that has it now. It no longer gives its owner access to the former mailbox.
_RETIRE = text("""
    UPDATE mailboxes SET former_address = address, address = address || ' (former ' || right(CAST(id AS text), 12) || ')',
        gone_at = coalesce(gone_at, now()), next_due_at = NULL WHERE id = ANY(:ids) AND former_address IS NULL""")


@dataclass(frozen=True, slots=True)
class ListedMailbox:
    """A mailbox as the source names it."""

    address: str
    display_name: str | None
    provider_id: str | None


@dataclass(frozen=True, slots=True)
class KnownMailbox:
    id: UUID
    key: str
    """The address lowercased by Postgres, which sometimes differs from Python."""
    address: str
    display_name: str | None
    provider_id: str | None
    is_gone: bool


@dataclass(slots=True)
class MailboxPlan:
    """What a listing changes about the mailboxes of a source."""

    known: list[UUID] = field(default_factory=list)
    changed: list[tuple[UUID, ListedMailbox]] = field(default_factory=list)
    """Known mailboxes that are back, or have a new name or id."""
    new: list[tuple[ListedMailbox, UUID | None]] = field(default_factory=list)
    """New mailboxes, each with the mailbox that had its address before."""
    retired: list[KnownMailbox] = field(default_factory=list)
    """Mailboxes whose address now belongs to another mailbox."""
    gone: list[KnownMailbox] = field(default_factory=list)
    """Mailboxes that the source no longer lists."""


def plan(listed: Mapping[str, ListedMailbox], known: Sequence[KnownMailbox], *, is_whole: bool) -> MailboxPlan:
    """Pure. Both sides are keyed by the address lowercased by Postgres. `is_whole`: unlisted mailboxes no longer exist."""
    found = MailboxPlan()
    held = {box.key: box for box in known}
    for key, box in listed.items():
        before = held.get(key)
        if before is None:
            found.new.append((box, None))
        elif before.provider_id and box.provider_id and before.provider_id != box.provider_id:
            found.retired.append(before)
            found.new.append((box, before.id))
        else:
            found.known.append(before.id)
            if before.is_gone or _has_changed(box, before):
                found.changed.append((before.id, box))
    if is_whole:
        found.gone = [box for box in known if not box.is_gone and box.key not in listed]
    return found


def _has_changed(listed: ListedMailbox, known: KnownMailbox) -> bool:
    named = listed.display_name not in (None, known.display_name)
    return named or listed.provider_id not in (None, known.provider_id)


@dataclass(frozen=True, slots=True)
class Recorded:
    """The mailboxes of a listing, and the ones that disappeared from it."""

    ids: list[UUID]
    new: int = 0
    gone: list[str] = field(default_factory=list)
    retired: list[str] = field(default_factory=list)


def record(connection: Connection, source_id: UUID, listed: Sequence[ListedMailbox], *, is_whole: bool) -> Recorded:
    """Inserts, updates and marks the rows. Unchanged rows are not written."""
    by_key = _by_key(connection, listed)
    known = query(connection, _KNOWN, KnownMailbox, source=source_id, all=is_whole, keys=list(by_key))
    found = plan(by_key, known, is_whole=is_whole)
    retire(connection, [box.id for box in found.retired])
    if found.changed:
        rows = [
            {"id": known_id, "display_name": box.display_name, "provider_id": box.provider_id}
            for known_id, box in found.changed
        ]
        connection.execute(_CHANGE, {"rows": json_text(rows)})
    if found.gone:
        connection.execute(_GONE, {"ids": [box.id for box in found.gone]})
    added = _add(connection, source_id, found.new)
    return Recorded(
        [*found.known, *added], len(added), [box.address for box in found.gone], [box.address for box in found.retired]
    )


def retire(connection: Connection, mailbox_ids: Sequence[UUID]) -> None:
    """Takes the address from mailboxes whose address was reassigned. They retain their rows, state and granted readers."""
    if mailbox_ids:
        connection.execute(_RETIRE, {"ids": list(mailbox_ids)})


def _by_key(connection: Connection, listed: Sequence[ListedMailbox]) -> dict[str, ListedMailbox]:
    boxes = [ListedMailbox(clean(box.address), clean(box.display_name), clean(box.provider_id)) for box in listed]
    keys = query(connection, _KEYS, str, addresses=[box.address for box in boxes])
    return dict(zip(keys, boxes, strict=True))


def _add(connection: Connection, source_id: UUID, new: Sequence[tuple[ListedMailbox, UUID | None]]) -> list[UUID]:
    if not new:
        return []
    rows = [
        {
            "id": uuid7(),
            "address": box.address,
            "display_name": box.display_name,
            "provider_id": box.provider_id,
            "replaces_id": replaced,
        }
        for box, replaced in new
    ]
    return query(connection, _ADD, UUID, source=source_id, rows=json_text(rows))


def load_listed(connection: Connection, source_id: UUID, mailbox_ids: Sequence[UUID]) -> list[ListedMailbox]:
    """The mailboxes that the source still has, as it named them."""
    return query(connection, _LISTED, ListedMailbox, source=source_id, ids=list(mailbox_ids))
