"""The searches of a drill: made from messages of the restored archive, run there, and compared with the archive in use."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from uuid import UUID

from sqlalchemy import Connection, Engine

from archiver.config import Settings
from archiver.db.sql import query, query_one
from archiver.errors import NotReady
from archiver.indexing.indexer import Indexer
from archiver.search.index import SearchServer
from archiver.search.service import MailSearch, open_search
from archiver.store.archive import Archive

SEARCHES = 100
_MAX_HITS = 2_000
"""A query with more is counted as run, but its hits are not compared one by one."""
_WORD = re.compile(r"[^\W\d_]{3,30}")
_WORDS = 4
_SAMPLE = """
    SELECT id, subject, sender FROM messages WHERE search_state <> 'failed' AND (subject IS NOT NULL OR sender IS NOT NULL)
    ORDER BY sha256 LIMIT :limit"""
_COUNT = "SELECT count(*) FROM messages"
_DONE = "SELECT count(*) FROM messages WHERE search_state <> 'pending'"
_EXPECTED = """
    SELECT id FROM messages WHERE id = ANY(:ids) AND archived_at < :made_at AND search_state NOT IN ('pending', 'failed')
        AND indexed_version >= index_version"""

Report = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class SampledMessage:
    id: UUID
    subject: str | None
    sender: str | None


@dataclass(frozen=True, slots=True)
class DrillSearch:
    query: str
    message_id: UUID
    """Which it was made from, and which it has to find."""
    found: list[UUID] | None
    """None if there are too many."""
    finds_its_message: bool


def index_all(settings: Settings, engine: Engine, archive: Archive, report: Report) -> None:
    """Without the text of attachments, which these searches do not need."""
    indexer = Indexer(engine, archive, SearchServer(settings), settings.meili_indexing_batch)
    with engine.connect() as connection:
        total = query_one(connection, _COUNT, int)

    def show() -> bool:
        with engine.connect() as connection:
            report(query_one(connection, _DONE, int), total)
        return False

    indexer.run(show)


def run_searches(settings: Settings, engine: Engine, limit: int, report: Report) -> list[DrillSearch]:
    search = open_search(settings, engine)
    with engine.connect() as connection:
        sample = query(connection, _SAMPLE, SampledMessage, limit=limit)
    done = []
    for number, message in enumerate(sample):
        if (words := query_for(message, number)) is not None:
            done.append(_run(search, words, message.id))
        report(number + 1, len(sample))
    return done


def query_for(message: SampledMessage, number: int) -> str | None:
    """By turns for the sender and for words of the subject; None for a message with neither."""
    words = _WORD.findall(message.subject or "")[:_WORDS]
    subject = f"subject:({' '.join(words)})" if words else None
    sender = f'from:"{message.sender}"' if message.sender and '"' not in message.sender else None
    return (sender or subject) if number % 3 == 2 else (subject or sender)


def _run(search: MailSearch, words: str, message_id: UUID) -> DrillSearch:
    found = list(islice(search.message_ids(words), _MAX_HITS + 1))
    if len(found) > _MAX_HITS:
        return DrillSearch(words, message_id, None, finds_its_message=True)
    return DrillSearch(words, message_id, found, message_id in found)


def compare_with_live(settings: Settings, engine: Engine, made_at: datetime, searches: list[DrillSearch]) -> tuple[bool, str]:
    """Whether the archive in use finds the same among the mail that the backup has; and a sentence."""
    lost = [one for one in searches if not one.finds_its_message]
    if lost:
        return False, f"{len(lost)} of {len(searches)} searches did not find the message that they were made from"
    search, compared, differences = open_search(settings, engine), 0, 0
    try:
        for one in (one for one in searches if one.found is not None):
            live = set(islice(search.message_ids(one.query), _MAX_HITS + 1))
            if len(live) > _MAX_HITS:
                continue
            compared += 1
            with engine.connect() as connection:
                differences += _differs(connection, live ^ set(one.found or ()), made_at)
    except NotReady:
        return True, f"{len(searches)} searches find their messages; the search server of the archive did not answer to compare"
    if differences:
        return False, f"{differences} of {compared} searches find other mail than the archive in use"
    return True, f"{len(searches)} searches, {compared} of them compared hit by hit with the archive in use"


def _differs(connection: Connection, ids: set[UUID], made_at: datetime) -> bool:
    """Mail that was deleted, archived or not yet indexed since the backup is no difference."""
    return bool(ids) and bool(query(connection, _EXPECTED, UUID, ids=list(ids), made_at=made_at))
