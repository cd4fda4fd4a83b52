"""The life of a source: added, edited, synced, paused, resumed and removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from croniter import croniter
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import IntegrityError

from archiver.config import interval_seconds
from archiver.db import json_text
from archiver.errors import UsageError
from archiver.models.ids import uuid7
from archiver.models.states import RunOutcome, SourceStatus
from archiver.queue.jobs import ContinuousSync, InitialImport, Job
from archiver.secrets import Keyring
from archiver.services import audit
from archiver.services.principal import LOCAL_OPERATOR, Principal
from archiver.services.source_access import check, seal_secrets, validate_change
from archiver.services.source_destinations import check_hosts
from archiver.services.source_kinds import RUNS_ONCE, kind_of, validate
from archiver.services.source_rows import Source, load
from archiver.sync import cycle, imports, outbox, sessions
from archiver.sync.moves import CYCLE_BEGINS, SOURCE_PAUSED, SOURCE_RESUMED, Moves, before
from connectors.base import Context

_GRANT_OWN_MAIL = text("""
    INSERT INTO grants (id, user_id, source_id, granted_by)
    SELECT :id, u.id, :source_id, u.id FROM users u WHERE u.id = :user_id AND u.settings @> '{"own_mail": true}'
    ON CONFLICT DO NOTHING""")


def add(
    engine: Engine,
    keyring: Keyring,
    context: Context,
    kind: str,
    name: str,
    settings: Mapping[str, Any],
    secrets: Mapping[str, Any],
    who: Principal = LOCAL_OPERATOR,
    *,
    hosts: Sequence[str] = (),
) -> Source:
    """Checks first, then keeps it; with `hosts`, only these servers are allowed.

    Its first import starts at the next tick, or by `sync_now`.
    """
    chosen, source_id = kind_of(kind), uuid7()
    if not name.strip():
        raise UsageError("a source needs a name")
    checked, sealed = validate(chosen, settings, secrets)
    check_hosts(checked, hosts, who)
    kept = checked.model_dump(mode="json", exclude_defaults=True)
    credentials = seal_secrets(keyring, source_id, sealed)
    draft = Source(source_id, kind, name.strip(), SourceStatus.PENDING, None, kept, credentials, None, 0, None, None, None)
    check(draft, keyring, context)
    values = {
        "id": source_id,
        "kind": kind,
        "name": draft.name,
        "settings": json_text(kept),
        "credentials": credentials,
        "owner_id": who.user_id,
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
            grant_own_mail(connection, who, source_id)
            audit.record(connection, who, "source.added", "source", source_id, kind=kind, name=draft.name, settings=kept)
    except IntegrityError as error:
        raise UsageError(f"there is a source called {name!r} already") from error
    return draft


def grant_own_mail(connection: Connection, who: Principal, source_id: UUID) -> None:
    """Whoever said at the first start that the archive is for their own mail reads the sources they add."""
    granted = connection.execute(_GRANT_OWN_MAIL, {"id": uuid7(), "user_id": who.user_id, "source_id": source_id})
    if granted.rowcount:
        audit.record(connection, who, "grant.added", "user", who.user_id, source_id=source_id, why="own mail")


def edit(
    engine: Engine,
    keyring: Keyring,
    context: Context,
    source: Source,
    settings: Mapping[str, Any],
    secrets: Mapping[str, Any],
    who: Principal = LOCAL_OPERATOR,
    *,
    hosts: Sequence[str] = (),
) -> Source:
    """Given values replace stored ones; None removes a setting; a blank secret keeps the stored one, unless the source moves
    to another server. It is due at once."""
    if kind_of(source.kind).runs_once:
        raise UsageError(f"{source.name} reads files once, as each import says: start another import instead")
    given = {name: value for name, value in secrets.items() if value}
    checked, sealed = validate_change(keyring, source, settings, given)
    check_hosts(checked, hosts, who)
    kept = checked.model_dump(mode="json", exclude_defaults=True)
    credentials = seal_secrets(keyring, source.id, sealed)
    changed = Source(
        source.id, source.kind, source.name, source.status, None, kept, credentials, None, 0, source.last_started_at,
        source.last_finished_at, source.removed_at,
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
        # whoever was refused with the old credentials tries again with the new ones
        connection.execute(
            text("UPDATE mailboxes SET failures = 0, next_due_at = NULL, status_message = NULL WHERE source_id = :id"),
            {"id": source.id},
        )
        audit.record(
            connection, who, "source.changed", "source", source.id, name=source.name, settings=kept, new_secrets=sorted(given)
        )
    return changed


def sync_now(connection: Connection, source: Source, who: Principal = LOCAL_OPERATOR) -> UUID | None:
    """Starts a cycle, or asks the running one for another. The id of the session that runs, if one does."""
    if source.status is SourceStatus.PAUSED:
        raise UsageError(f"{source.name} is paused: `archiver source resume {source.name}` first")
    live = connection.execute(text("SELECT id FROM sync_sessions WHERE ingestion_source_id = :id"), {"id": source.id}).scalar()
    if source.kind in RUNS_ONCE:
        imports.repeat(connection, source.id, who.name, who.user_id)
        audit.record(connection, who, "source.sync_requested", "source", source.id, name=source.name)
        return UUID(str(live)) if live is not None else None
    if live is not None:
        sessions.request_rerun(connection, source.id)
        audit.record(connection, who, "source.sync_requested", "source", source.id, name=source.name)
        return UUID(str(live))
    announced = text("SELECT 1 FROM outbox WHERE source_id = :id AND job IN ('continuous-sync', 'initial-import')")
    if connection.execute(announced, {"id": source.id}).first() is None:
        job: Job = InitialImport(source.id) if source.never_ran else ContinuousSync(source.id)
        outbox.announce(connection, job, source_id=source.id)
    audit.record(connection, who, "source.sync_requested", "source", source.id, name=source.name)
    return None


def begin_cycle(connection: Connection, source: Source, *, importing: bool) -> bool:
    """Marks the source as running. False: it was paused or removed meanwhile."""
    status = SourceStatus.IMPORTING if importing else SourceStatus.SYNCING
    statement = text(
        "UPDATE ingestion_sources SET status = :status, last_started_at = now(), updated_at = now()"
        " WHERE id = :id AND removed_at IS NULL AND status = ANY(:before)"
    )
    values = {"id": source.id, "status": str(status), "before": before(CYCLE_BEGINS, status)}
    return connection.execute(statement, values).rowcount > 0


def plan_next(connection: Connection, source_id: UUID) -> None:
    """A source with a schedule of its own is due when that says; one that has failed keeps its pause."""
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


def pause(connection: Connection, source: Source, who: Principal = LOCAL_OPERATOR) -> None:
    """Takes effect at the next batch: the running cycle ends as cancelled, and what was archived stays."""
    _end_session(connection, source, "paused")  # session before source, as a cycle that ends does
    _move(connection, source, SOURCE_PAUSED, SourceStatus.PAUSED)
    audit.record(connection, who, "source.paused", "source", source.id, name=source.name)


def resume(connection: Connection, source: Source, who: Principal = LOCAL_OPERATOR) -> None:
    if source.kind in RUNS_ONCE:
        _move(connection, source, SOURCE_RESUMED, SourceStatus.IMPORTED)
        imports.start_next(connection, source.id)
    else:
        _move(connection, source, SOURCE_RESUMED, SourceStatus.PENDING if source.never_ran else SourceStatus.ACTIVE)
    connection.execute(
        text("UPDATE ingestion_sources SET next_due_at = now(), status_message = NULL WHERE id = :id"), {"id": source.id}
    )
    audit.record(connection, who, "source.resumed", "source", source.id, name=source.name)


def remove(connection: Connection, source: Source, who: Principal = LOCAL_OPERATOR) -> None:
    """The mail stays, and so do the rows that say where it came from; nothing is fetched any more, credentials go."""
    _end_session(connection, source, "removed")
    imports.cancel_waiting(connection, source.id, "its source was removed")
    connection.execute(
        text(
            "UPDATE ingestion_sources SET removed_at = now(), credentials = NULL, updated_at = now(), next_due_at = NULL"
            " WHERE id = :id"
        ),
        {"id": source.id},
    )
    audit.record(connection, who, "source.removed", "source", source.id, name=source.name)


def _move(connection: Connection, source: Source, moves: Moves[SourceStatus], target: SourceStatus) -> None:
    statement = text(
        "UPDATE ingestion_sources SET status = :target, updated_at = now() WHERE id = :id AND status = ANY(:before)"
    )
    values = {"id": source.id, "target": str(target), "before": before(moves, target)}
    if not connection.execute(statement, values).rowcount:
        raise UsageError(f"{source.name} is {source.status}, and can't become {target}")


def _end_session(connection: Connection, source: Source, why: str) -> None:
    session_id = connection.execute(
        text("SELECT id FROM sync_sessions WHERE ingestion_source_id = :id"), {"id": source.id}
    ).scalar()
    if session_id is not None:
        cycle.abandon(connection, session_id, RunOutcome.CANCELLED, why)
    connection.execute(text("DELETE FROM outbox WHERE source_id = :id AND queue = 'ingestion'"), {"id": source.id})
