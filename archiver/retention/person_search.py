"""Finds a person's mail for an erasure: as sender or recipient, and by address or name in subjects, texts and attachments.

The database knows the people of every message. For words, the search index is asked, and what it does not contain yet is read.
Nothing is erased because of this: what was found is reviewed, and examined again when it is erased.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from uuid import UUID

from sqlalchemy import Connection, Engine

from archiver.access import audit
from archiver.access.principal import Principal
from archiver.db import sql
from archiver.retention.erasures import Erasure, MailUnitRow, count
from archiver.retention.mail_check import MailCheck, MailUnit
from archiver.retention.predicate import MailQuery
from archiver.search.service import MailSearch
from archiver.store.archive import Archive

_IDS_AT_ONCE = 5_000
_ADD_PEOPLE = """
    INSERT INTO erasure_messages (erasure_id, message_id, in_people)
    SELECT DISTINCT CAST(:id AS uuid), p.message_id, true FROM participants p JOIN messages m ON m.id = p.message_id
    WHERE left(p.address, 320) COLLATE "C" = ANY(:addresses)
    ON CONFLICT (erasure_id, message_id) DO UPDATE SET in_people = true"""
_ADD = """
    INSERT INTO erasure_messages (erasure_id, message_id, in_people)
    SELECT CAST(:id AS uuid), m.id, false FROM messages m WHERE m.id = ANY(:ids) ON CONFLICT DO NOTHING"""
_NOT_INDEXED = """
    SELECT DISTINCT ON (m.id) m.id AS message_id, c.mailbox_id FROM messages m JOIN message_copies c ON c.message_id = m.id
    WHERE c.deleted_at IS NULL AND (m.indexed_version < m.index_version OR m.search_state NOT IN ('full', 'partial'))
    ORDER BY m.id, c.mailbox_id"""
_PARTIAL = "SELECT count(*) FROM messages WHERE search_state = 'partial'"
_SEARCHED = """
    UPDATE erasures SET searched_at = :at, unread = :unread, error = NULL,
        search_requested_at = CASE WHEN search_requested_at > :asked THEN search_requested_at END
    WHERE id = :id AND approved_at IS NULL AND rejected_at IS NULL"""


def search_person(engine: Engine, archive: Archive, search: MailSearch, principal: Principal, erasure: Erasure) -> None:
    """Adds what is found to the request, and never removes anything from it."""
    with engine.begin() as connection:
        sql.run(connection, _ADD_PEOPLE, id=erasure.id, addresses=erasure.addresses)
    phrases = [*erasure.addresses, *erasure.terms]
    for phrase in phrases:
        found = search.message_ids(f'"{phrase}"')
        while some := list(islice(found, _IDS_AT_ONCE)):
            with engine.begin() as connection:
                sql.run(connection, _ADD, id=erasure.id, ids=some)
    unread = _read_the_rest(engine, archive, erasure, " OR ".join(f'"{phrase}"' for phrase in phrases))
    with engine.begin() as connection:
        asked = erasure.search_requested_at or erasure.created_at
        sql.run(connection, _SEARCHED, id=erasure.id, at=datetime.now(UTC), unread=unread, asked=asked)
        counts = count(connection, erasure)
        audit.record(
            connection, principal, "erasure.searched", "erasure", erasure.id, found=counts.found, in_people=counts.in_people,
            unread=unread,
        )  # fmt: skip


def _read_the_rest(engine: Engine, archive: Archive, erasure: Erasure, text: str) -> int:
    """Reads what the index does not have. Returns how many messages could not be read, or not completely."""
    query = MailQuery.parse(text, datetime.now(UTC), UTC)
    with engine.connect() as connection:
        units = [MailUnit(row.message_id, row.mailbox_id) for row in sql.query(connection, _NOT_INDEXED, MailUnitRow)]
        unread = sql.query_one(connection, _PARTIAL, int)
    for some in _portions(MailCheck(engine, archive).check(query, units)):
        unread += sum(1 for _, matches in some if matches is None)
        with engine.begin() as connection:
            _add(connection, erasure, [unit.message_id for unit, matches in some if matches])
    return unread


def _portions(checked: Iterator[tuple[MailUnit, bool | None]]) -> Iterator[list[tuple[MailUnit, bool | None]]]:
    while some := list(islice(checked, _IDS_AT_ONCE)):
        yield some


def _add(connection: Connection, erasure: Erasure, ids: list[UUID]) -> None:
    if ids:
        sql.run(connection, _ADD, id=erasure.id, ids=ids)
