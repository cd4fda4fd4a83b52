"""Starts a cycle of one source: claims it, lists its mailboxes, and announces one job for each."""

from __future__ import annotations

from uuid import UUID

from archiver.logs import get_logger
from archiver.models.states import RunOutcome, SessionState
from archiver.queue.jobs import ContinuousSync, Envelope, InitialImport
from archiver.services import sources
from archiver.services.sources import Source
from archiver.sync import cycle, outbox, sessions, tick
from archiver.sync.sessions import ListedMailbox, SessionRow
from connectors.errors import AuthFailed, ConnectorError
from workers.work import ConnectorContext, Watch, Work

log = get_logger("continuous-sync")


def process(job: ContinuousSync | InitialImport, work: Work, envelope: Envelope) -> None:
    row_id = UUID(envelope.id)
    claimed = _claim(job, work, row_id)
    if claimed is None:
        return None
    source, session = claimed
    try:
        listed = _list_mailboxes(source, session, work)
    except ConnectorError as error:
        return _could_not_list(source, session, work, row_id, error)
    with work.engine.begin() as connection:
        total = sessions.publish(connection, session, listed, row_id)
        outbox.settle(connection, row_id)
    log.info("cycle_started", source=str(source.id), session=str(session.id), mailboxes=total)
    return None


def _claim(job: ContinuousSync | InitialImport, work: Work, row_id: UUID) -> tuple[Source, SessionRow] | None:
    """None: there is nothing to do, and the row is settled. A cycle that runs already is asked for another one."""
    with work.engine.begin() as connection:
        if not outbox.is_open(connection, row_id):
            return None
        source = sources.load(connection, job.source_id)
        importing = isinstance(job, InitialImport) or (source is not None and source.kind in sources.RUNS_ONCE)
        if source is None or not sources.begin_cycle(connection, source, importing=importing):
            outbox.settle(connection, row_id)
            return None
        session = sessions.claim(connection, source.id, is_initial_import=importing)
        if session.state != SessionState.LISTING:
            sessions.request_rerun(connection, source.id)
            outbox.settle(connection, row_id)
            return None
        return source, session


def _list_mailboxes(source: Source, session: SessionRow, work: Work) -> list[ListedMailbox]:
    def heartbeat(_: int | None) -> None:
        with work.engine.begin() as connection:
            sessions.touch(connection, session.id)

    context = ConnectorContext(work, source, work.settings.slice_seconds, heartbeat)
    connector = sources.open_source(source, work.keyring, context)
    listed = []
    with Watch(connector, context, work.settings.connector_idle_seconds):
        for box in connector.mailboxes():
            context.progress()
            listed.append(ListedMailbox(box.address, box.display_name, box.provider_id))
    return listed


def _could_not_list(source: Source, session: SessionRow, work: Work, row_id: UUID, error: ConnectorError) -> None:
    """Refused credentials stop the source until it is edited; anything else is tried again, with growing pauses."""
    log.warning("listing_failed", source=str(source.id), error=str(error))
    with work.engine.begin() as connection:
        cycle.abandon(connection, session.id, RunOutcome.FAILED, f"its mailboxes could not be listed: {error}")
        if isinstance(error, AuthFailed):
            tick.source_is_broken(connection, source.id, f"the server refuses the credentials: {error}")
        outbox.settle(connection, row_id)
