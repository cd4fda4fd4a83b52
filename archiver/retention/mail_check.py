"""Reads mail to decide whether it matches a query, where the database alone can't tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

import orjson
from sqlalchemy import Engine

from archiver.db import sql
from archiver.db.states import SearchState
from archiver.indexing import statements
from archiver.indexing.documents import DocumentMaker, Ready
from archiver.indexing.rows import DueMessage
from archiver.retention.matching import DocumentMatcher
from archiver.retention.predicate import MailQuery, leaves
from archiver.search.names import DatabaseNames
from archiver.search.query.syntax import Text
from archiver.store.archive import Archive

_MESSAGES_AT_ONCE = 500


class MailUnit(NamedTuple):
    """A message in a mailbox: what a policy applies to, and what a deletion deletes."""

    message_id: UUID
    mailbox_id: UUID


class MailCheck:
    """Not thread-safe."""

    def __init__(self, engine: Engine, archive: Archive) -> None:
        self._engine = engine
        self._maker = DocumentMaker(engine, archive)
        self._matcher = DocumentMatcher(DatabaseNames(engine))

    def check(self, query: MailQuery, units: Sequence[MailUnit]) -> Iterator[tuple[MailUnit, bool | None]]:
        """Whether each unit matches; None if that can't be known now: unreadable mail, or a query for words while attachments
        are not read yet."""
        mailboxes: dict[UUID, list[UUID]] = {}
        for unit in units:
            mailboxes.setdefault(unit.message_id, []).append(unit.mailbox_id)
        ids = list(mailboxes)
        for start in range(0, len(ids), _MESSAGES_AT_ONCE):
            yield from self._check(query, {one: mailboxes[one] for one in ids[start : start + _MESSAGES_AT_ONCE]})

    def _check(self, query: MailQuery, mailboxes: dict[UUID, list[UUID]]) -> Iterator[tuple[MailUnit, bool | None]]:
        with self._engine.connect() as connection:
            rows = sql.query(connection, statements.BY_IDS, DueMessage, ids=list(mailboxes), raised=0)
        asks_for_text = any(isinstance(leaf, Text) for leaf in leaves(query.tree))
        for made in self._maker.make(rows, {row.id: row.thread_id for row in rows}):
            for mailbox_id in mailboxes[made.row.id]:
                found = None
                if isinstance(made, Ready) and not (asks_for_text and made.state is SearchState.BODY):
                    found = self._matcher.matches(query.tree, orjson.loads(made.document), mailbox_id)
                yield MailUnit(made.row.id, mailbox_id), found
