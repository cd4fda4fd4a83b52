"""Requests to erase a person's mail: who asks for it, what was found, what a review excludes, and who agrees.

Nothing is erased before a review and an approval. What a hold or a policy keeps stays, and the receipt says so. The search and
the erasure themselves are the work of `archiver.retention.person_search` and `archiver.maintenance.erasure`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from archiver.access import audit
from archiver.access.principal import Principal
from archiver.access.scope import MailScope
from archiver.db import sql
from archiver.db.ids import uuid7
from archiver.errors import Conflict, NotFound, UsageError
from archiver.indexing.jobs import announce_once
from archiver.queue.jobs import ApplyRetention
from archiver.retention.holds import find_held
from archiver.retention.keeping import find_kept
from archiver.retention.mail_check import MailUnit
from archiver.search.words import words
from archiver.store.archive import Archive

_MAX_CHARS = 2_000
_MAX_TERMS = 100
_COLUMNS = """id, name, reason, addresses, terms, created_by, created_at, search_requested_at, searched_at, unread, approved_by,
    approved_at, rejected_by, rejected_at, copies, messages, size_bytes, kept, excluded, exports, tombstone_ids, deleted_at,
    pack_ids, finished_at, error, receipt, signature, key"""
_LIST = f"SELECT {_COLUMNS} FROM erasures ORDER BY id DESC LIMIT :limit"  # noqa: S608
_FIND = f"SELECT {_COLUMNS} FROM erasures WHERE id::text = :name OR lower(name) = :name ORDER BY id DESC LIMIT 2"  # noqa: S608
_LOCK = f"SELECT {_COLUMNS} FROM erasures WHERE id = :id FOR UPDATE"  # noqa: S608
_INSERT = """
    INSERT INTO erasures (id, name, reason, addresses, terms, created_by, created_at, search_requested_at)
    VALUES (:id, :name, :reason, :addresses, :terms, :by, :at, :at)"""
_TAKEN = "SELECT 1 FROM erasures WHERE lower(name) = lower(:name)"
_SEARCH_AGAIN = "UPDATE erasures SET search_requested_at = clock_timestamp() WHERE id = :id"
_APPROVE = "UPDATE erasures SET approved_by = :by, approved_at = clock_timestamp() WHERE id = :id"
_REJECT = """
    UPDATE erasures SET rejected_by = :by, rejected_at = clock_timestamp(), addresses = '{}', terms = '{}',
        search_requested_at = NULL WHERE id = :id"""
_FORGET_FOUND = "DELETE FROM erasure_messages WHERE erasure_id = :id"
_EXCLUDE = """
    UPDATE erasure_messages SET excluded_by = :by, excluded_reason = :reason
    WHERE erasure_id = :id AND message_id = ANY(:ids) RETURNING message_id"""
_COUNTS = """
    SELECT count(*) AS found, count(*) FILTER (WHERE in_people) AS in_people,
        count(*) FILTER (WHERE excluded_reason IS NOT NULL) AS excluded
    FROM erasure_messages e WHERE erasure_id = :id AND EXISTS (SELECT 1 FROM messages m WHERE m.id = e.message_id)"""
_FOUND = """
    SELECT e.message_id, e.in_people, e.excluded_by, e.excluded_reason, m.sort_at, m.sender, m.subject, m.size_bytes
    FROM erasure_messages e JOIN messages m ON m.id = e.message_id
    WHERE e.erasure_id = :id AND (CAST(:after AS uuid) IS NULL OR e.message_id > :after) ORDER BY e.message_id LIMIT :limit"""
_IS_PURGING = "SELECT EXISTS (SELECT 1 FROM erasures WHERE deleted_at IS NOT NULL AND finished_at IS NULL)"
_LAST_FINISHED = "SELECT max(coalesce(finished_at, deleted_at)) FROM erasures"
_UNITS = """
    SELECT DISTINCT c.message_id, c.mailbox_id FROM message_copies c
    WHERE c.message_id = ANY(:ids) AND c.deleted_at IS NULL ORDER BY 1, 2"""
_UNITS_ERASED = """
    SELECT x.copy ->> 0 AS mailbox, x.copy ->> 2 AS sha256 FROM tombstones t, jsonb_array_elements(t.copies) AS x(copy)
    WHERE t.id = ANY(:ids) ORDER BY (x.copy ->> 0) COLLATE "C", (x.copy ->> 2) COLLATE "C\""""


@dataclass(frozen=True, slots=True)
class Erasure:
    id: UUID
    name: str
    reason: str
    addresses: list[str]
    terms: list[str]
    created_by: str
    created_at: datetime
    search_requested_at: datetime | None
    searched_at: datetime | None
    unread: int
    approved_by: str | None
    approved_at: datetime | None
    rejected_by: str | None
    rejected_at: datetime | None
    copies: int
    messages: int
    size_bytes: int
    kept: dict[str, Any]
    excluded: dict[str, Any]
    exports: list[Any]
    tombstone_ids: list[UUID]
    deleted_at: datetime | None
    pack_ids: list[UUID]
    finished_at: datetime | None
    error: str | None
    receipt: str | None
    signature: bytes | None
    key: str | None

    @property
    def state(self) -> str:
        """searching, review, approved, purging (the mail is no longer readable), finished, or rejected."""
        if self.rejected_at is not None:
            return "rejected"
        if self.finished_at is not None:
            return "finished"
        if self.deleted_at is not None:
            return "purging"
        if self.approved_at is not None:
            return "approved"
        return "searching" if self.search_requested_at is not None else "review"


@dataclass(frozen=True, slots=True)
class NewErasure:
    name: str
    reason: str
    addresses: Sequence[str] = ()
    terms: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class FoundCounts:
    found: int
    in_people: int
    excluded: int


@dataclass(frozen=True, slots=True)
class PersonMessage:
    message_id: UUID
    in_people: bool
    excluded_by: str | None
    excluded_reason: str | None
    sort_at: datetime
    sender: str | None
    subject: str | None
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ErasedUnit:
    mailbox: str
    sha256: str


def request(engine: Engine, principal: Principal, new: NewErasure) -> Erasure:
    """A worker searches for the person next. The audit log does not say who it is."""
    name, reason = " ".join(new.name.split()), new.reason.strip()
    if not name or not reason or len(name) > 200 or len(reason) > _MAX_CHARS:
        raise UsageError("an erasure needs a case reference (up to 200 characters) and a reason (up to 2,000)")
    addresses, terms = _addresses(new.addresses), _terms(new.terms)
    if not addresses and not terms:
        raise UsageError("say whose mail it is: addresses, names, or other words that identify the person")
    erasure_id = uuid7()
    with engine.begin() as connection:
        if sql.query(connection, _TAKEN, int, name=name):
            raise Conflict(f"there is already an erasure named {name}")
        values = {"name": name, "reason": reason, "by": principal.name, "at": datetime.now(UTC)}
        sql.run(connection, _INSERT, id=erasure_id, addresses=addresses, terms=terms, **values)
        audit.record(connection, principal, "erasure.requested", "erasure", erasure_id, name=name)
        announce_once(connection, ApplyRetention())
        return load(connection, str(erasure_id))


def _addresses(given: Sequence[str]) -> list[str]:
    found = sorted({one.strip().lower() for one in given if one.strip()})
    if wrong := next((one for one in found if one.count("@") != 1 or len(one) > 320 or '"' in one or "*" in one), None):
        raise UsageError(f"{wrong}: expected the address of a person")
    return _few(found)


def _terms(given: Sequence[str]) -> list[str]:
    found = sorted({" ".join(one.split()) for one in given if one.strip()})
    for one in found:
        if '"' in one or len(one) > 200 or sum(map(len, words(one))) < 3:
            raise UsageError(f"{one}: expected a name or other words, at least three letters, without quotation marks")
    return _few(found)


def _few(found: list[str]) -> list[str]:
    if len(found) > _MAX_TERMS:
        raise UsageError(f"at most {_MAX_TERMS} addresses, and as many names")
    return found


def search_again(connection: Connection, principal: Principal, erasure: Erasure) -> Erasure:
    """For mail that has arrived since. What the review has excluded stays excluded."""
    current = _locked(connection, erasure)
    _refuse_decided(current)
    sql.run(connection, _SEARCH_AGAIN, id=erasure.id)
    announce_once(connection, ApplyRetention())
    return load(connection, str(erasure.id))


def exclude(
    connection: Connection, principal: Principal, erasure: Erasure, message_ids: Sequence[UUID], reason: str | None
) -> None:
    """Messages that stay, with the reason; without a reason, they are to be erased after all."""
    _refuse_decided(_locked(connection, erasure))
    if reason is not None and (not reason.strip() or len(reason) > _MAX_CHARS):
        raise UsageError("what is excluded from an erasure needs a reason (up to 2,000 characters)")
    by = principal.name if reason is not None else None
    reason = reason.strip() if reason is not None else None
    wanted = set(message_ids)
    changed = set(sql.query(connection, _EXCLUDE, UUID, id=erasure.id, ids=sorted(wanted), by=by, reason=reason))
    if missing := next(iter(sorted(wanted - changed)), None):
        raise NotFound(f"the message {missing} was not found for this erasure")
    action = "erasure.included" if reason is None else "erasure.excluded"
    audit.record(connection, principal, action, "erasure", erasure.id, messages=len(changed), reason=reason)


def approve(connection: Connection, principal: Principal, erasure: Erasure, *, second_person: bool) -> Erasure:
    """From here on, a worker erases."""
    current = _locked(connection, erasure)
    _refuse_decided(current)
    if current.searched_at is None or current.search_requested_at is not None:
        raise Conflict("the search for this person has not ended yet: review what it finds first")
    if second_person and principal.name == current.created_by:
        raise Conflict(f"{principal.name} requested this erasure: another administrator has to approve it")
    sql.run(connection, _APPROVE, id=current.id, by=principal.name)
    counts = count(connection, current)
    audit.record(
        connection, principal, "erasure.approved", "erasure", current.id, messages=counts.found - counts.excluded,
        requested_by=current.created_by,
    )  # fmt: skip
    announce_once(connection, ApplyRetention())
    return load(connection, str(current.id))


def reject(connection: Connection, principal: Principal, erasure: Erasure) -> Erasure:
    """Also to withdraw it. What was found is forgotten."""
    _refuse_decided(_locked(connection, erasure))
    sql.run(connection, _REJECT, id=erasure.id, by=principal.name)
    sql.run(connection, _FORGET_FOUND, id=erasure.id)
    audit.record(connection, principal, "erasure.rejected", "erasure", erasure.id, name=erasure.name)
    return load(connection, str(erasure.id))


def _locked(connection: Connection, erasure: Erasure) -> Erasure:
    return sql.query_one(connection, _LOCK, Erasure, id=erasure.id)


def _refuse_decided(erasure: Erasure) -> None:
    if erasure.state not in ("searching", "review"):
        raise Conflict(f"this erasure is {erasure.state}: it can't be changed any more")


def load(connection: Connection, name: str) -> Erasure:
    """By id or by name."""
    found = sql.query(connection, _FIND, Erasure, name=name.strip().lower())
    if not found:
        raise NotFound(f"there is no erasure {name}")
    return found[0]


def list_erasures(connection: Connection, limit: int = 500) -> list[Erasure]:
    """Newest first."""
    return sql.query(connection, _LIST, Erasure, limit=limit)


def count(connection: Connection, erasure: Erasure) -> FoundCounts:
    return sql.query_one(connection, _COUNTS, FoundCounts, id=erasure.id)


def is_purging(connection: Connection) -> bool:
    """Some erasure waits for packs to be replaced."""
    return sql.query_one(connection, _IS_PURGING, bool)


def last_finished(connection: Connection) -> datetime | None:
    """Backups that were made before it contain erased mail."""
    return sql.query_one(connection, _LAST_FINISHED, datetime)


def found_messages(
    connection: Connection, erasure: Erasure, after: UUID | None = None, limit: int = 100
) -> list[PersonMessage]:
    """What the search has found and is still there, in the order of the ids."""
    return sql.query(connection, _FOUND, PersonMessage, id=erasure.id, after=after, limit=limit)


def readable_ids(connection: Connection, scope: MailScope, message_ids: Sequence[UUID]) -> set[UUID]:
    """Those of the messages that a reviewer may read anyway."""
    where = "true" if scope.is_everything else scope.messages("m")
    statement = text(f"SELECT m.id FROM messages m WHERE m.id = ANY(:ids) AND {where}")  # noqa: S608
    return set(connection.execute(statement, {"ids": list(message_ids), **scope.values()}).scalars())


def what_keeps(
    connection: Connection, engine: Engine, archive: Archive, message_ids: Sequence[UUID]
) -> dict[UUID, tuple[str, ...]]:
    """The holds and policies that keep a copy of these messages."""
    units = sql.query(connection, _UNITS, MailUnitRow, ids=list(message_ids))
    pairs = [MailUnit(one.message_id, one.mailbox_id) for one in units]
    kept: dict[UUID, set[str]] = {}
    for found in (find_held(connection, engine, archive, pairs), find_kept(connection, engine, archive, pairs)):
        for unit, names in found.items():
            kept.setdefault(unit.message_id, set()).update(names)
    return {message_id: tuple(sorted(names)) for message_id, names in kept.items()}


@dataclass(frozen=True, slots=True)
class MailUnitRow:
    message_id: UUID
    mailbox_id: UUID


def erased_units(connection: Connection, erasure: Erasure) -> Iterator[str]:
    """What was erased, one line each, in a fixed order: mailbox and SHA-256 of the message."""
    for row in sql.query(connection, _UNITS_ERASED, ErasedUnit, ids=erasure.tombstone_ids):
        yield f"{row.mailbox} {row.sha256}"
