"""The life cycle of a source: add, edit, sync, pause, resume and remove."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from croniter import croniter
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import IntegrityError

from archiver.access import audit
from archiver.access.principal import LOCAL_OPERATOR, Principal
from archiver.config import interval_seconds
from archiver.db.ids import uuid7
from archiver.db.sql import query_one, query_optional
from archiver.db.states import RunOutcome, SourceStatus
from archiver.db.values import json_text
from archiver.errors import UsageError
from archiver.queue.jobs import ContinuousSync, InitialImport, Job
from archiver.secrets import Keyring
from archiver.sources import back_off
from archiver.sources.access import check, seal_secrets, validate_change
from archiver.sources.destinations import check_hosts
from archiver.sources.kinds import RUNS_ONCE, kind_of, validate
from archiver.sources.rows import Source, load
from archiver.sync import cycle, import_queue, outbox, sessions
from archiver.sync.transitions import CYCLE_BEGINS, SOURCE_PAUSED, SOURCE_RESUMED, Moves, before
from connectors.base import Context

_GRANT_OWN_MAIL = text("""
    INSERT INTO grants (id, user_id, source_id, granted_by)
    SELECT :id, u.id, :source_id, u.id FROM users u WHERE u.id = :user_id AND u.settings @> '{"own_mail": true}'
    ON CONFLICT DO NOTHING""")

_SESSION = "SELECT id FROM sync_sessions WHERE ingestion_source_id = :id"
_IS_ANNOUNCED = """
    SELECT EXISTS (SELECT 1 FROM outbox WHERE source_id = :id AND job IN ('continuous-sync', 'initial-import'))"""


def add(
    engine: Engine,
    keyring: Keyring,
    context: Context,
    kind: str,
    name: str,
    settings: Mapping[str, Any],
    secrets: Mapping[str, Any],
    principal: Principal = LOCAL_OPERATOR,
    *,
    hosts: Sequence[str] = (),
) -> Source:
    """Checks the source, then stores it. With `hosts`, only these servers are allowed.

    Its first import starts at the next tick, or with `sync_now`.
    """
    chosen, source_id = kind_of(kind), uuid7()
    if not name.strip():
        raise UsageError("a source needs a name")
    checked, sealed = validate(chosen, settings, secrets)
    check_hosts(checked, hosts, principal)
    kept = checked.model_dump(mode="json", exclude_defaults=True)
    credentials = seal_secrets(keyring, source_id, sealed)
    draft = Source(
        source_id, kind, name.strip(), SourceStatus.PENDING, None, kept, credentials, None, 0, None, None, None, None
    )  # fmt: skip
    check(draft, keyring, context)
    values = {
        "id": source_id,
        "kind": kind,
        "name": draft.name,
        "settings": json_text(kept),
        "credentials": credentials,
        "owner_id": principal.user_id,
    }
    try:
        with engine.begin() as connection:
            connection.execute(
                text(
                    "INSERT INTO ingestion_sources (id, kind, name, settings, credentials, owner_id)"
                    " VALUES (:id, :kind, :name, CAST(:settings AS jsonb), :credentials, :owner_id)"
                ),
                values,
            )
            grant_own_mail(connection, principal, source_id)
            audit.record(connection, principal, "source.added", "source", source_id, kind=kind, name=draft.name, settings=kept)
    except IntegrityError as error:
        raise UsageError(f"a source named {name!r} already exists") from error
    return draft


def grant_own_mail(connection: Connection, principal: Principal, source_id: UUID) -> None:
    """A user who declared at the first start that the archive is for their own mail may read the sources they add."""
    granted = connection.execute(_GRANT_OWN_MAIL, {"id": uuid7(), "user_id": principal.user_id, "source_id": source_id})
    if granted.rowcount:
        audit.record(connection, principal, "grant.added", "user", principal.user_id, source_id=source_id, why="own mail")


def edit(
    engine: Engine,
    keyring: Keyring,
    context: Context,
    source: Source,
    settings: Mapping[str, Any],
    secrets: Mapping[str, Any],
    principal: Principal = LOCAL_OPERATOR,
    *,
    hosts: Sequence[str] = (),
) -> Source:
    """Given values replace stored ones; None removes a setting; a blank secret leaves the stored one, unless the source moves
    to another server. The source is due at once."""
    if kind_of(source.kind).runs_once:
        raise UsageError(f"{source.name} is an import source and can't be edited: start another import instead")
    given = {name: value for name, value in secrets.items() if value}
    checked, sealed = validate_change(keyring, source, settings, given)
    check_hosts(checked, hosts, principal)
    kept = checked.model_dump(mode="json", exclude_defaults=True)
    credentials = seal_secrets(keyring, source.id, sealed)
    changed = Source(
        source.id, source.kind, source.name, source.status, None, kept, credentials, None, 0, source.last_started_at,
        source.last_finished_at, source.removed_at, source.owner_id,
    )  # fmt: skip
    check(changed, keyring, context)
    with engine.begin() as connection:
        connection.execute(
            text(
                "UPDATE ingestion_sources SET settings = CAST(:settings AS jsonb), credentials = :credentials, failures = 0,"
                " status_message = NULL, next_due_at = now(), updated_at = now() WHERE id = :id"
            ),
            {"id": source.id, "settings": json_text(kept), "credentials": credentials},
        )
        # mailboxes that were refused with the old credentials are retried with the new ones
        connection.execute(
            text("UPDATE mailboxes SET failures = 0, next_due_at = NULL, status_message = NULL WHERE source_id = :id"),
            {"id": source.id},
        )
        audit.record(
            connection,
            principal,
            "source.changed",
            "source",
            source.id,
            name=source.name,
            settings=kept,
            new_secrets=sorted(given),
        )
    return changed


def sync_now(connection: Connection, source: Source, principal: Principal = LOCAL_OPERATOR) -> UUID | None:
    """Starts a cycle, or requests a rerun of the running one; mailboxes that wait after a failure are tried again.

    Returns the id of the running session, if another cycle will follow it.
    """
    if source.status is SourceStatus.PAUSED:
        raise UsageError(f"{source.name} is paused: run `archiver source resume {source.name}` first")
    live = query_optional(connection, _SESSION, UUID, id=source.id)
    if source.kind in RUNS_ONCE:
        import_queue.repeat(connection, source.id, principal.name, principal.user_id)
        audit.record(connection, principal, "source.sync_requested", "source", source.id, name=source.name)
        return UUID(str(live)) if live is not None else None
    back_off.end(connection, source.id)  # a person knows why it is worth a try
    if live is not None:
        sessions.request_rerun(connection, source.id)
        audit.record(connection, principal, "source.sync_requested", "source", source.id, name=source.name)
        return UUID(str(live))
    if not query_one(connection, _IS_ANNOUNCED, bool, id=source.id):
        job: Job = InitialImport(source.id) if source.never_ran else ContinuousSync(source.id)
        outbox.announce(connection, job, source_id=source.id)
    audit.record(connection, principal, "source.sync_requested", "source", source.id, name=source.name)
    return None


def begin_cycle(connection: Connection, source: Source, *, importing: bool) -> bool:
    """Marks the source as running. False if it was paused or removed in the meantime."""
    status = SourceStatus.IMPORTING if importing else SourceStatus.SYNCING
    statement = text(
        "UPDATE ingestion_sources SET status = :status, last_started_at = now(), updated_at = now()"
        " WHERE id = :id AND removed_at IS NULL AND status = ANY(:before)"
    )
    values = {"id": source.id, "status": str(status), "before": before(CYCLE_BEGINS, status)}
    return connection.execute(statement, values).rowcount > 0


def plan_next(connection: Connection, source_id: UUID) -> None:
    """A source with its own schedule is due accordingly; after a failure, its pause takes precedence."""
    source = load(connection, source_id)
    schedule = source.settings.get("schedule") if source else None
    if source is None or not schedule or source.failures:
        return
    seconds = interval_seconds(schedule)
    if seconds is not None:
        due = datetime.now(UTC) + timedelta(seconds=seconds)
    else:
        due = croniter(schedule, datetime.now(UTC), second_at_beginning=True).get_next(datetime)
    connection.execute(text("UPDATE ingestion_sources SET next_due_at = :due WHERE id = :id"), {"due": due, "id": source_id})


def pause(connection: Connection, source: Source, principal: Principal = LOCAL_OPERATOR) -> None:
    """Takes effect at the next batch: the running cycle ends as cancelled, and archived mail stays."""
    _end_session(connection, source, "paused")  # lock the session before the source, as the end of a cycle does
    _move(connection, source, SOURCE_PAUSED, SourceStatus.PAUSED)
    audit.record(connection, principal, "source.paused", "source", source.id, name=source.name)


def resume(connection: Connection, source: Source, principal: Principal = LOCAL_OPERATOR) -> None:
    if source.kind in RUNS_ONCE:
        _move(connection, source, SOURCE_RESUMED, SourceStatus.IMPORTED)
        import_queue.start_next(connection, source.id)
    else:
        _move(connection, source, SOURCE_RESUMED, SourceStatus.PENDING if source.never_ran else SourceStatus.ACTIVE)
    connection.execute(
        text("UPDATE ingestion_sources SET next_due_at = now(), status_message = NULL WHERE id = :id"), {"id": source.id}
    )
    audit.record(connection, principal, "source.resumed", "source", source.id, name=source.name)


def remove(connection: Connection, source: Source, principal: Principal = LOCAL_OPERATOR) -> None:
    """Stops fetching and deletes the credentials. The mail stays, and so do the rows that record its origin."""
    _end_session(connection, source, "removed")
    import_queue.cancel_waiting(connection, source.id, "its source was removed")
    connection.execute(
        text(
            "UPDATE ingestion_sources SET removed_at = now(), credentials = NULL, updated_at = now(), next_due_at = NULL"
            " WHERE id = :id"
        ),
        {"id": source.id},
    )
    audit.record(connection, principal, "source.removed", "source", source.id, name=source.name)


def _move(connection: Connection, source: Source, moves: Moves[SourceStatus], target: SourceStatus) -> None:
    statement = text(
        "UPDATE ingestion_sources SET status = :target, updated_at = now() WHERE id = :id AND status = ANY(:before)"
    )
    values = {"id": source.id, "target": str(target), "before": before(moves, target)}
    if not connection.execute(statement, values).rowcount:
        raise UsageError(f"{source.name} is {source.status} and can't become {target}")


def _end_session(connection: Connection, source: Source, why: str) -> None:
    session_id = query_optional(connection, _SESSION, UUID, id=source.id)
    if session_id is not None:
        cycle.abandon(connection, session_id, RunOutcome.CANCELLED, why)
    connection.execute(text("DELETE FROM outbox WHERE source_id = :id AND queue = 'ingestion'"), {"id": source.id})
