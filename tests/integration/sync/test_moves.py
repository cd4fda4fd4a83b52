"""The tables of legal moves are what the statements do: each operation is tried from each state."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from sqlalchemy import Connection, Engine, text

from archiver.db.states import MailboxRunState, RunOutcome, SessionState, SourceStatus
from archiver.errors import UsageError
from archiver.sources import rows as source_rows
from archiver.sources import service as sources
from archiver.sources.rows import Source
from archiver.sync import cycle, scheduler, sessions
from archiver.sync.sessions import ListedMailbox, Slice
from archiver.sync.transitions import (
    CYCLE_BEGINS,
    CYCLE_ENDS,
    MAILBOX_BEGINS,
    MAILBOX_CANCELLED,
    MAILBOX_ENDS,
    MAILBOX_GIVEN_BACK,
    MAILBOX_GIVEN_UP,
    SESSION_PUBLISHED,
    SOURCE_BREAKS,
    SOURCE_PAUSED,
    SOURCE_RESUMED,
    Moves,
)
from tests.integration.sync.test_sessions import add_source, announced, publish, rows

SOON = datetime.now(UTC) + timedelta(hours=1)


def _refused(act: Callable[[], None]) -> None:
    try:
        act()
    except UsageError:
        return


def _end(connection: Connection, source: Source, outcome: RunOutcome) -> None:
    session = sessions.claim(connection, source.id, is_initial_import=False)
    cycle.abandon(connection, session.id, outcome, "why")


def _finish(connection: Connection, source: Source, once: frozenset[str]) -> None:
    session = sessions.claim(connection, source.id, is_initial_import=False)
    sessions.publish(connection, session, [], None)
    cycle.finish(connection, session.id, once)


OnSource = tuple[Callable[[Connection, Source], object], Moves[SourceStatus], SourceStatus]
OnMailbox = tuple[Callable[[Connection, Slice, UUID], object], Moves[MailboxRunState], MailboxRunState]
QUEUED, RUNNING, DONE, FAILED, CANCELLED = MailboxRunState

SOURCE_OPERATIONS: dict[str, OnSource] = {
    "an import begins": (lambda c, s: sources.begin_cycle(c, s, importing=True), CYCLE_BEGINS, SourceStatus.IMPORTING),
    "a sync begins": (lambda c, s: sources.begin_cycle(c, s, importing=False), CYCLE_BEGINS, SourceStatus.SYNCING),
    "a sync ends well": (lambda c, s: _finish(c, s, frozenset()), CYCLE_ENDS, SourceStatus.ACTIVE),
    "an import ends well": (lambda c, s: _finish(c, s, frozenset({"fake"})), CYCLE_ENDS, SourceStatus.IMPORTED),
    "a cycle fails": (lambda c, s: _end(c, s, RunOutcome.FAILED), CYCLE_ENDS, SourceStatus.ERROR),
    "a cycle is stale": (lambda c, s: _end(c, s, RunOutcome.STALE), CYCLE_ENDS, SourceStatus.ERROR),
    "credentials are refused": (lambda c, s: scheduler.mark_source_broken(c, s.id, "no"), SOURCE_BREAKS, SourceStatus.ERROR),
    "pause": (lambda c, s: _refused(lambda: sources.pause(c, s)), SOURCE_PAUSED, SourceStatus.PAUSED),
    "resume": (lambda c, s: _refused(lambda: sources.resume(c, s)), SOURCE_RESUMED, SourceStatus.PENDING),
}  # fmt: skip


@pytest.mark.parametrize("name", SOURCE_OPERATIONS)
def test_a_source_moves_as_its_tables_say(engine: Engine, name: str) -> None:
    act, moves, target = SOURCE_OPERATIONS[name]
    for number, status in enumerate(SourceStatus):
        source_id = add_source(engine, f"s{number}", status=str(status))
        with engine.begin() as connection:
            source = source_rows.load(connection, source_id)
            assert source is not None
            act(connection, source)
        ((after,),) = rows(engine, "SELECT status FROM ingestion_sources WHERE id = :id", id=source_id)
        assert after == (target if status in moves[target] else status), f"{name} from {status}"


def test_a_paused_source_stays_paused_and_keeps_its_message(engine: Engine) -> None:
    source_id = add_source(engine, status="paused", status_message="as it was")
    with engine.begin() as connection:
        scheduler.mark_source_broken(connection, source_id, "the server rejected the credentials")
    assert rows(engine, "SELECT status, status_message FROM ingestion_sources") == [("paused", "as it was")]


MAILBOX_OPERATIONS: dict[str, OnMailbox] = {
    "a slice begins": (lambda c, h, _: sessions.begin_slice(c, h.session_id, h.mailbox_id, h.row_id), MAILBOX_BEGINS, RUNNING),
    "given back": (lambda c, h, s: sessions.requeue(c, h, s), MAILBOX_GIVEN_BACK, QUEUED),
    "put off": (lambda c, h, _: sessions.defer(c, h, SOON), MAILBOX_GIVEN_BACK, QUEUED),
    "done": (lambda c, h, s: sessions.end_mailbox(c, h, s), MAILBOX_ENDS, DONE),
    "failed": (lambda c, h, s: sessions.end_mailbox(c, h, s, error="no"), MAILBOX_ENDS, FAILED),
    "given up": (lambda c, h, s: sessions.fail_mailbox(c, h.session_id, h.mailbox_id, s, "no"), MAILBOX_GIVEN_UP, FAILED),
    "cancelled": (lambda c, h, _: sessions.cancel(c, h.session_id), MAILBOX_CANCELLED, CANCELLED),
}  # fmt: skip


@pytest.mark.parametrize("name", MAILBOX_OPERATIONS)
def test_a_mailbox_moves_as_its_tables_say(engine: Engine, name: str) -> None:
    act, moves, target = MAILBOX_OPERATIONS[name]
    for number, state in enumerate(MailboxRunState):
        source_id = add_source(engine, f"s{number}")
        session = publish(engine, source_id, 2)
        row_id, job = next(item for item in announced(engine) if item[1].session_id == session.id)
        with engine.begin() as connection:
            connection.execute(
                text("UPDATE sync_session_mailboxes SET state = :state, slice = 7 WHERE mailbox_id = :id"),
                {"state": str(state), "id": job.mailbox_id},
            )
            act(connection, Slice(session.id, job.mailbox_id, 7, row_id), source_id)
        ((after,),) = rows(engine, "SELECT state FROM sync_session_mailboxes WHERE mailbox_id = :id", id=job.mailbox_id)
        assert after == (target if state in moves[target] else state), f"{name} from {state}"


@pytest.mark.parametrize("state", list(SessionState))
def test_a_session_is_published_as_its_table_says(engine: Engine, state: SessionState) -> None:
    source_id = add_source(engine)
    with engine.begin() as connection:
        session = sessions.claim(connection, source_id, is_initial_import=False)
        connection.execute(text("UPDATE sync_sessions SET state = :state"), {"state": str(state)})
        published = sessions.publish(connection, session, [ListedMailbox("a@example.org", None, None)], None)
    assert bool(published) is (state in SESSION_PUBLISHED[SessionState.RUNNING])
