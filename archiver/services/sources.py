"""Sources: added, edited, looked at, paused, resumed and removed; and opened as connectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID

import orjson
from croniter import croniter
from pydantic import BaseModel, SecretStr, ValidationError
from sqlalchemy import Connection, Engine, Row, TextClause, text
from sqlalchemy.exc import IntegrityError

from archiver.config import check_schedule, interval_seconds
from archiver.errors import ArchiverError, NotFound, UsageError
from archiver.models.ids import uuid7
from archiver.models.states import RunOutcome, SourceStatus
from archiver.queue.jobs import ContinuousSync, InitialImport, Job
from archiver.secrets import Keyring
from archiver.services import audit
from archiver.services.principal import LOCAL_OPERATOR, Principal
from archiver.services.quiet_context import QuietContext
from archiver.sync import cycle, outbox, sessions
from archiver.sync.moves import SOURCE_MOVES, before
from connectors.base import Connector, Context
from connectors.errors import ConnectorError
from connectors.imap import ImapSecrets, ImapSettings, ImapTarget
from connectors.imap import Outgoing as Outgoing
from connectors.kinds import KINDS, Kind
from connectors.sign_in import SignIn

WATCHED = frozenset(kind.name for kind in KINDS.values() if kind.watches)
RUNS_ONCE = frozenset(kind.name for kind in KINDS.values() if kind.runs_once)

_NAMES = (
    "id", "kind", "name", "status", "status_message", "settings", "credentials", "next_due_at", "failures", "last_started_at",
    "last_finished_at", "removed_at",
)  # fmt: skip
_COLUMNS = ", ".join(_NAMES)

_GRANT_OWN_MAIL = text("""
    INSERT INTO grants (id, user_id, source_id, granted_by)
    SELECT :id, u.id, :source_id, u.id FROM users u WHERE u.id = :user_id AND u.settings @> '{"own_mail": true}'
    ON CONFLICT DO NOTHING""")


@dataclass(frozen=True, slots=True)
class Source:
    id: UUID
    kind: str
    name: str
    status: SourceStatus
    status_message: str | None
    settings: dict[str, Any]
    credentials: bytes | None = field(repr=False)
    next_due_at: datetime | None
    failures: int
    last_started_at: datetime | None
    last_finished_at: datetime | None
    removed_at: datetime | None

    @property
    def never_ran(self) -> bool:
        return self.last_started_at is None


class SourceCheckFailed(ArchiverError):
    """The source did not accept what it was given. Says what it said."""


def _source(row: Row[Any]) -> Source:
    """From a row that begins with the source's columns."""
    values = dict(zip(_NAMES, row, strict=False))
    return Source(**{**values, "status": SourceStatus(values["status"])})


_LOAD = text(f"SELECT {_COLUMNS} FROM ingestion_sources WHERE id = :id")  # noqa: S608


def load(connection: Connection, source_id: UUID) -> Source | None:
    row = connection.execute(_LOAD, {"id": source_id}).first()
    return _source(row) if row else None


def with_mailbox(columns: str) -> TextClause:
    """For `load_with`: a source and these columns of its mailbox `m`, whose id is :id."""
    own = ", ".join(f"s.{name}" for name in _NAMES)
    return text(f"SELECT {own}, {columns} FROM mailboxes m JOIN ingestion_sources s ON s.id = m.source_id WHERE m.id = :id")  # noqa: S608


def load_with(connection: Connection, statement: TextClause, **values: Any) -> tuple[Source, Row[Any]]:
    row = connection.execute(statement, values).one()
    return _source(row), row


def find(connection: Connection, name: str) -> Source:
    """By its name, whatever the case, or its id."""
    row = connection.execute(
        text(
            f"SELECT {_COLUMNS} FROM ingestion_sources"  # noqa: S608
            " WHERE removed_at IS NULL AND (lower(name) = lower(:name) OR CAST(id AS text) = :name)"
        ),
        {"name": name},
    ).first()
    if row is None:
        raise NotFound(f"there is no source called {name!r}; `archiver source list` shows them")
    return _source(row)


def all_sources(connection: Connection) -> list[Source]:
    statement = text(f"SELECT {_COLUMNS} FROM ingestion_sources WHERE removed_at IS NULL ORDER BY lower(name)")  # noqa: S608
    return [_source(row) for row in connection.execute(statement)]


# --- settings and secrets


def kinds() -> list[Kind]:
    return list(KINDS.values())


def kind_of(name: str) -> Kind:
    if name not in KINDS:
        raise UsageError(f"there is no kind of source called {name!r}; there are: {', '.join(KINDS)}")
    return KINDS[name]


def validate(kind: Kind, settings: Mapping[str, Any], secrets: Mapping[str, Any]) -> tuple[BaseModel, BaseModel]:
    """Raises UsageError with a line for each wrong value; a secret's value is never shown."""
    checked = _validated(kind, kind.settings, settings, "setting")
    schedule = getattr(checked, "schedule", None)
    if schedule:
        try:
            check_schedule(schedule)
        except ValueError as error:
            raise UsageError(f"the setting schedule={schedule!r} of {kind.name}: expected {error}") from None
    return checked, _validated(kind, kind.secrets, secrets, "secret")


def _validated(kind: Kind, model: type[BaseModel], values: Mapping[str, Any], what: str) -> BaseModel:
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        known = ", ".join(model.model_fields) or "none"
        lines = []
        for item in error.errors(include_input=what == "setting"):
            name = ".".join(map(str, item["loc"]))
            given = f"={item['input']!r}" if what == "setting" and item["type"] not in ("missing", "extra_forbidden") else ""
            extra = f" ({what}s of {kind.name}: {known})" if item["type"] == "extra_forbidden" else ""
            lines.append(f"the {what} {name}{given} of {kind.name}: {item['msg']}{extra}")
        raise UsageError("\n".join(lines)) from None


def seal_secrets(keyring: Keyring, source_id: UUID, secrets: BaseModel) -> bytes:
    values = {name: value.get_secret_value() for name, value in secrets if isinstance(value, SecretStr)}
    return keyring.seal(orjson.dumps(values), source_id.bytes)


def _unseal(keyring: Keyring, source: Source) -> dict[str, str]:
    return dict(orjson.loads(keyring.unseal(source.credentials, source.id.bytes))) if source.credentials else {}


def open_source(source: Source, keyring: Keyring, context: Context) -> Connector:
    """Secrets are unsealed here, and nowhere else."""
    kind = kind_of(source.kind)
    settings, secrets = validate(kind, source.settings, _unseal(keyring, source))
    return kind.open(settings, secrets, context)


def check(source: Source, keyring: Keyring, context: Context) -> None:
    """Tries the credentials. Raises SourceCheckFailed with what the source says."""
    connector = open_source(source, keyring, context)
    try:
        connector.check()
    except ConnectorError as error:
        raise SourceCheckFailed(f"{source.name}: {error}") from error
    finally:
        connector.close()


def mailboxes(source: Source, keyring: Keyring, context: Context) -> list[str]:
    """The addresses that a sync would archive, as the source lists them now; the context hears of the others."""
    connector = open_source(source, keyring, context)
    try:
        return [box.address for box in connector.mailboxes()]
    except ConnectorError as error:
        raise SourceCheckFailed(f"{source.name}: {error}") from error
    finally:
        connector.close()


@contextmanager
def opened_target(kind: str, settings: Mapping[str, Any], secrets: Mapping[str, Any]) -> Iterator[ImapTarget]:
    """Where mail can be put back: an IMAP account, given as a source of that kind would be. Raises SourceCheckFailed."""
    checked, unsealed = validate(kind_of(kind), settings, secrets)
    target = ImapTarget(cast(ImapSettings, checked), cast(ImapSecrets, unsealed), QuietContext())
    try:
        yield target
    except ConnectorError as error:
        raise SourceCheckFailed(str(error)) from error
    finally:
        target.close()


def signed_in(
    kind: str, settings: Mapping[str, Any], secrets: Mapping[str, Any], ask: Callable[[SignIn], dict[str, str]]
) -> dict[str, str]:
    """The secrets, with those that signing in gives. Raises SourceCheckFailed with what the provider says."""
    chosen = kind_of(kind)
    if chosen.sign_in is None:
        able = ", ".join(name for name, one in KINDS.items() if one.sign_in)
        raise UsageError(f"nobody signs in for a source of the kind {kind!r}; the kinds with a sign-in: {able}")
    attempt = chosen.sign_in(*validate(chosen, settings, secrets))
    try:
        return {**secrets, **ask(attempt)}
    except ConnectorError as error:
        raise SourceCheckFailed(f"signing in failed: {error}") from error
    finally:
        attempt.close()


def signed_in_again(
    keyring: Keyring,
    source: Source,
    settings: Mapping[str, Any],
    secrets: Mapping[str, Any],
    ask: Callable[[SignIn], dict[str, str]],
) -> dict[str, str]:
    """The same for a source that is there: stored values count where none are given."""
    merged = {name: value for name, value in {**source.settings, **settings}.items() if value is not None}
    return signed_in(source.kind, merged, {**_unseal(keyring, source), **secrets}, ask)


# --- the life of a source


def add(
    engine: Engine,
    keyring: Keyring,
    context: Context,
    kind: str,
    name: str,
    settings: Mapping[str, Any],
    secrets: Mapping[str, Any],
    who: Principal = LOCAL_OPERATOR,
) -> Source:
    """Checks first, then keeps it; its first import starts at the next tick, or by `sync_now`."""
    chosen, source_id = kind_of(kind), uuid7()
    if not name.strip():
        raise UsageError("a source needs a name")
    checked, sealed = validate(chosen, settings, secrets)
    kept = checked.model_dump(mode="json", exclude_defaults=True)
    credentials = seal_secrets(keyring, source_id, sealed)
    draft = Source(source_id, kind, name.strip(), SourceStatus.PENDING, None, kept, credentials, None, 0, None, None, None)
    check(draft, keyring, context)
    values = {
        "id": source_id,
        "kind": kind,
        "name": draft.name,
        "settings": orjson.dumps(kept).decode(),
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
            _grant_own_mail(connection, who, source_id)
            audit.record(connection, who, "source.added", "source", source_id, kind=kind, name=draft.name, settings=kept)
    except IntegrityError as error:
        raise UsageError(f"there is a source called {name!r} already") from error
    return draft


def _grant_own_mail(connection: Connection, who: Principal, source_id: UUID) -> None:
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
) -> Source:
    """Given values replace stored ones; None removes a setting; a blank secret keeps the stored one. It is due at once."""
    kind = kind_of(source.kind)
    merged = {name: value for name, value in {**source.settings, **settings}.items() if value is not None}
    given = {name: value for name, value in secrets.items() if value}
    checked, sealed = validate(kind, merged, {**_unseal(keyring, source), **given})
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
            {"id": source.id, "settings": orjson.dumps(kept).decode(), "credentials": credentials},
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


def save_credentials(engine: Engine, keyring: Keyring, source: Source, credentials: Mapping[str, Any]) -> None:
    """Refreshed ones, from a connector."""
    merged = {**_unseal(keyring, source), **credentials}
    sealed = keyring.seal(orjson.dumps(merged), source.id.bytes)
    with engine.begin() as connection:
        connection.execute(
            text("UPDATE ingestion_sources SET credentials = :sealed WHERE id = :id"), {"sealed": sealed, "id": source.id}
        )


def sync_now(connection: Connection, source: Source, who: Principal = LOCAL_OPERATOR) -> UUID | None:
    """Starts a cycle, or asks the running one for another. The id of the session that runs, if one does."""
    if source.status is SourceStatus.PAUSED:
        raise UsageError(f"{source.name} is paused: `archiver source resume {source.name}` first")
    live = connection.execute(text("SELECT id FROM sync_sessions WHERE ingestion_source_id = :id"), {"id": source.id}).scalar()
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
    values = {"id": source.id, "status": str(status), "before": [*before(SOURCE_MOVES, status), str(status)]}
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
    _move(connection, source, SourceStatus.PAUSED)
    _end_session(connection, source, "paused")
    audit.record(connection, who, "source.paused", "source", source.id, name=source.name)


def resume(connection: Connection, source: Source, who: Principal = LOCAL_OPERATOR) -> None:
    _move(connection, source, SourceStatus.PENDING if source.never_ran else SourceStatus.ACTIVE)
    connection.execute(
        text("UPDATE ingestion_sources SET next_due_at = now(), status_message = NULL WHERE id = :id"), {"id": source.id}
    )
    audit.record(connection, who, "source.resumed", "source", source.id, name=source.name)


def remove(connection: Connection, source: Source, who: Principal = LOCAL_OPERATOR) -> None:
    """The mail stays, and so do the rows that say where it came from; nothing is fetched any more, credentials go."""
    _end_session(connection, source, "removed")
    connection.execute(
        text(
            "UPDATE ingestion_sources SET removed_at = now(), credentials = NULL, updated_at = now(), next_due_at = NULL"
            " WHERE id = :id"
        ),
        {"id": source.id},
    )
    audit.record(connection, who, "source.removed", "source", source.id, name=source.name)


def _move(connection: Connection, source: Source, target: SourceStatus) -> None:
    statement = text(
        "UPDATE ingestion_sources SET status = :target, updated_at = now() WHERE id = :id AND status = ANY(:before)"
    )
    allowed = before(SOURCE_MOVES, target)
    if not connection.execute(statement, {"id": source.id, "target": str(target), "before": allowed}).rowcount:
        raise UsageError(f"{source.name} is {source.status}, and can't become {target}")


def _end_session(connection: Connection, source: Source, why: str) -> None:
    connection.execute(text("DELETE FROM outbox WHERE source_id = :id AND queue = 'ingestion'"), {"id": source.id})
    session_id = connection.execute(
        text("SELECT id FROM sync_sessions WHERE ingestion_source_id = :id"), {"id": source.id}
    ).scalar()
    if session_id is not None:
        cycle.abandon(connection, session_id, RunOutcome.CANCELLED, why)
