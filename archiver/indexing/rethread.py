"""Applies the rules of this release to the threads of an archive that older rules made.

First the keys of subjects, then thread after thread, in short transactions between which mail is indexed. It can be stopped and
killed at any point, and goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine

from archiver.db import sql
from archiver.indexing import jobs as index_jobs
from archiver.indexing.thread_splits import regroup
from archiver.indexing.threads import hold_threads_alone
from archiver.logs import get_logger
from archiver.mail.thread_groups import thread_subject
from archiver.mail.threads import normalise_subject

THREAD_RULES = 2
"""Rises when the same messages give other threads."""
_SUBJECTS, _THREADS = "subjects", "threads"
_MESSAGES = 2_000
"""In one transaction, during which no other joins threads; a larger thread has one of its own."""
_MOST_REGROUPED = 200_000
"""Messages of a thread, which are in memory together. A larger one is left as it is, and named in the log."""

log = get_logger("rethread")

_STATE = "SELECT version, stage, cursor FROM thread_rules FOR UPDATE"
_IS_BEHIND = "SELECT NOT EXISTS (SELECT 1 FROM thread_rules WHERE version >= :version)"
_SAVE = "UPDATE thread_rules SET version = :version, stage = :stage, cursor = :cursor"
# Version 1 took everything in brackets for the name of a list.
_BRACKETS = """
    SELECT id, subject, thread_subject FROM messages WHERE id > :cursor AND subject LIKE '%[%'
    ORDER BY id LIMIT :limit"""
_SET_SUBJECTS = """
    UPDATE messages SET thread_subject = changed.k
    FROM (SELECT m.id, x.k FROM json_to_recordset(:rows::json) AS x(i uuid, k uuid) JOIN messages m ON m.id = x.i
          ORDER BY m.id FOR NO KEY UPDATE OF m) AS changed
    WHERE messages.id = changed.id"""
_SIZES = """
    SELECT thread_id, count(*) AS messages FROM messages WHERE thread_id > :cursor
    GROUP BY thread_id ORDER BY thread_id LIMIT :limit"""


@dataclass(frozen=True, slots=True)
class ThreadRulesState:
    version: int
    stage: str
    cursor: UUID | None


@dataclass(frozen=True, slots=True)
class BracketedSubject:
    id: UUID
    subject: str | None
    thread_subject: UUID | None


@dataclass(frozen=True, slots=True)
class ThreadSize:
    thread_id: UUID
    messages: int


def needs_rethreading(connection: Connection) -> bool:
    return sql.query_one(connection, _IS_BEHIND, bool, version=THREAD_RULES)


def rethread(engine: Engine, should_stop: Callable[[], bool] = lambda: False) -> bool:
    """True when all threads follow the rules; False when it was stopped, and is to be called again."""
    while not should_stop():
        with engine.begin() as connection:
            state = sql.query_one(connection, _STATE, ThreadRulesState)
            if state.version >= THREAD_RULES:
                return True
            step = _follow_subjects if state.stage == _SUBJECTS else _follow_threads
            cursor = step(connection, state.cursor or UUID(int=0))
            values: dict[str, Any] = {"version": state.version, "stage": state.stage, "cursor": cursor}
            if cursor is None:
                values |= {"stage": _THREADS} if state.stage == _SUBJECTS else {"version": THREAD_RULES, "stage": _SUBJECTS}
            sql.run(connection, _SAVE, **values)
    return False


def _follow_subjects(connection: Connection, cursor: UUID) -> UUID | None:
    """Where to go on; None at the end."""
    rows = sql.query(connection, _BRACKETS, BracketedSubject, cursor=cursor, limit=_MESSAGES)
    wanted = ((row, thread_subject(*normalise_subject(row.subject or ""))) for row in rows)
    changed = [{"i": row.id, "k": key} for row, key in wanted if key != (row.thread_subject and row.thread_subject.hex)]
    if changed:
        sql.run(connection, _SET_SUBJECTS, rows=sql.rows(changed))
    return rows[-1].id if rows else None


def _follow_threads(connection: Connection, cursor: UUID) -> UUID | None:
    hold_threads_alone(connection)
    rows = _within(sql.query(connection, _SIZES, ThreadSize, cursor=cursor, limit=_MESSAGES))
    if not rows:
        return None
    for row in rows:
        if row.messages > _MOST_REGROUPED:
            log.warning("thread_not_regrouped", thread=str(row.thread_id), messages=row.messages)
    new = regroup(connection, [row.thread_id for row in rows if row.messages > 1], limit=_MOST_REGROUPED)
    if new:
        log.info("threads_split", new=new)
        index_jobs.announce_once(connection, index_jobs.BODY)
    return rows[-1].thread_id


def _within(rows: Sequence[ThreadSize]) -> Sequence[ThreadSize]:
    messages = 0
    for number, row in enumerate(rows):
        messages += row.messages
        if messages > _MESSAGES and number:
            return rows[:number]
    return rows
