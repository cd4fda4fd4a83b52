"""Imports of mail files: each is a row of its own, and one source for each mailbox address knows what was imported before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
from sqlalchemy import Connection, Engine, Row, text

from archiver.errors import ArchiverError, Conflict, NotFound, UsageError
from archiver.models.ids import uuid7
from archiver.models.states import ImportState, Role, RunOutcome, SourceStatus
from archiver.secrets import Keyring
from archiver.services import audit, source_access, source_rows, sources
from archiver.services.principal import LOCAL_OPERATOR, Principal
from archiver.services.quiet_context import QuietContext
from archiver.services.runs import Run, load_run
from archiver.services.source_kinds import kind_of, validate
from archiver.services.source_rows import Source
from archiver.sync import imports as turns
from archiver.sync import sessions
from archiver.sync.sessions import SessionRow

KIND = "import"
_MOST_LISTED = 1000
_SEPARATOR = "\u241f"

_COLUMNS = """
    SELECT i.id, i.source_id, s.name AS source, i.number, i.mailbox, i.settings, i.requested_by, i.user_id, i.upload_folder,
        i.upload_removed_at, i.session_id, i.outcome, i.message, i.created_at, i.started_at, i.finished_at, i.discarded_at
    FROM imports i JOIN ingestion_sources s ON s.id = i.source_id"""

_ADD_SOURCE = text("""
    INSERT INTO ingestion_sources (id, kind, name, credentials, owner_id, status)
    VALUES (:id, 'import', :name, :credentials, :owner_id, 'imported')
    ON CONFLICT (lower(name)) WHERE removed_at IS NULL DO NOTHING""")

# The same, requested twice before anybody has read a byte of it.
_SAME = text("""
    SELECT id FROM imports WHERE source_id = :source AND outcome IS NULL AND session_id IS NULL AND upload_folder IS NULL
        AND settings = CAST(:settings AS jsonb) ORDER BY number DESC LIMIT 1""")

_TALLIES = text("""
    SELECT m.sync_state->('files:' || lower(m.address)) FROM mailboxes m
    WHERE m.source_id = :source AND m.sync_state->('files:' || lower(m.address))->>'turn' LIKE '%:' || CAST(:number AS text)""")
_SAVED_TALLIES = text("SELECT jsonb_array_elements(tally) FROM imports WHERE id = :id AND outcome IS NOT NULL")

_SKIPPED = text("""
    SELECT s.provider_key, s.rule FROM skipped_messages s JOIN mailboxes b ON b.id = s.mailbox_id
    WHERE b.source_id = :source AND s.skipped_at BETWEEN :since AND :until AND strpos(s.provider_key, :separator) = 0
        AND s.rule NOT LIKE 'could not be read before%'
    ORDER BY s.provider_key LIMIT :most""")

_LEFT_OUT = text("""
    SELECT s.rule, count(*) FROM skipped_messages s JOIN mailboxes b ON b.id = s.mailbox_id
    WHERE b.source_id = :source AND s.skipped_at BETWEEN :since AND :until AND strpos(s.provider_key, :separator) > 0
    GROUP BY 1 ORDER BY 2 DESC, 1""")


class NotImported(ArchiverError):
    """It ended without a run: cancelled while it waited, or its job could not be started."""


@dataclass(frozen=True, slots=True)
class Import:
    id: UUID
    source_id: UUID
    source: str
    number: int
    mailbox: str
    settings: dict[str, Any]
    requested_by: str
    user_id: UUID | None
    upload_folder: str | None
    upload_removed_at: datetime | None
    session_id: UUID | None
    outcome: RunOutcome | None
    message: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    discarded_at: datetime | None

    @property
    def paths(self) -> list[Path]:
        return [Path(path) for path in self.settings["paths"]]

    @property
    def state(self) -> ImportState:
        if self.outcome is not None:
            return ImportState(self.outcome.value)
        return ImportState.RUNNING if self.session_id else ImportState.WAITING

    @property
    def shown_message(self) -> str | None:
        """Without folders of the server."""
        message = self.message or ""
        for path in self.paths if self.upload_folder else ():
            message = message.replace(str(path), path.name)
        return message or None

    @property
    def keeps_upload(self) -> bool:
        """The uploaded files are still there."""
        return self.upload_folder is not None and self.upload_removed_at is None

    @property
    def can_be_discarded(self) -> bool:
        """It waits, or it did not succeed and its upload is kept."""
        return self.state is ImportState.WAITING or (self.outcome not in (None, RunOutcome.SUCCESS) and self.keeps_upload)


def _import(row: Row[Any]) -> Import:
    return Import(**{**row._asdict(), "outcome": RunOutcome(row.outcome) if row.outcome else None})


def source_name(mailbox: str) -> str:
    return f"import:{mailbox.lower()}"


def load(connection: Connection, import_id: UUID) -> Import:
    row = connection.execute(text(f"{_COLUMNS} WHERE i.id = :id"), {"id": import_id}).first()
    if row is None:
        raise NotFound(f"there is no import {import_id}")
    return _import(row)


def load_own(connection: Connection, who: Principal, import_id: UUID) -> Import:
    """One's own; an administrator's are all."""
    found = load(connection, import_id)
    if who.role is not Role.ADMINISTRATOR and (who.user_id is None or found.user_id != who.user_id):
        raise NotFound(f"there is no import {import_id}")
    return found


def find(connection: Connection, given: str) -> Import:
    """By its id, or the beginning of it."""
    rows = connection.execute(text(f"{_COLUMNS} WHERE CAST(i.id AS text) LIKE :id || '%' LIMIT 2"), {"id": given}).all()
    if len(rows) != 1:
        raise NotFound(f"{'several imports begin' if rows else 'no import begins'} with {given!r}")
    return _import(rows[0])


def listed(
    connection: Connection,
    who: Principal,
    source_id: UUID | None = None,
    most: int = 100,
    before: datetime | None = None,
    *,
    only_kept: bool = False,
) -> list[Import]:
    """Newest first: one's own; an administrator's are all. `before` continues below one, by its request."""
    statement = text(
        f"{_COLUMNS} WHERE (:all OR i.user_id = :user_id) AND (CAST(:source AS uuid) IS NULL OR i.source_id = :source)"
        " AND (CAST(:before AS timestamptz) IS NULL OR i.created_at < :before)"
        " AND (NOT :only_kept OR (i.upload_folder IS NOT NULL AND i.upload_removed_at IS NULL))"
        " ORDER BY i.created_at DESC, i.id DESC LIMIT :most"
    )
    is_all = who.role is Role.ADMINISTRATOR
    values = {"all": is_all, "user_id": who.user_id, "source": source_id, "most": most, "before": before}
    values["only_kept"] = only_kept
    return [_import(row) for row in connection.execute(statement, values)]


def of_source(connection: Connection, source_id: UUID, most: int) -> list[Import]:
    """Newest first."""
    return listed(connection, LOCAL_OPERATOR, source_id, most)


def kept_uploads(connection: Connection) -> dict[UUID, int]:
    """By source: imports that ended without success, and whose uploaded files wait for somebody."""
    statement = text(
        "SELECT source_id, count(*) FROM imports WHERE upload_folder IS NOT NULL AND upload_removed_at IS NULL"
        " AND outcome <> 'success' AND discarded_at IS NULL GROUP BY 1"
    )
    return {row[0]: int(row[1]) for row in connection.execute(statement)}


def begin(
    engine: Engine,
    keyring: Keyring,
    paths: Sequence[Path],
    mailbox: str,
    settings: Mapping[str, Any],
    who: Principal = LOCAL_OPERATOR,
    *,
    import_id: UUID | None = None,
    upload_folder: str | None = None,
    also: Callable[[Connection, UUID], None] | None = None,
) -> Import:
    """Requested, and under way as soon as it is its turn: imports into one mailbox run one after the other.

    `also` may add statements of the caller to the transaction, which knows the import's id.
    """
    values = {**settings, "mailbox": mailbox, "paths": [str(path) for path in paths]}
    kept = _checked(keyring, values)
    with engine.begin() as connection:
        source = _source(connection, keyring, source_name(mailbox), who)
        same = connection.execute(_SAME, {"source": source.id, "settings": orjson.dumps(kept).decode()}).scalar()
        if same is not None and upload_folder is None:
            return load(connection, same)
        made = turns.request(
            connection, source.id, mailbox, kept, who.name, who.user_id, import_id=import_id, upload_folder=upload_folder
        )
        if also:
            also(connection, made)
        names = [path.name for path in paths] if upload_folder else [str(path) for path in paths]
        audit.record(connection, who, "import.requested", "import", made, mailbox=mailbox, files=names)
        return load(connection, made)


def _checked(keyring: Keyring, values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as they are kept. Raises UsageError, or SourceCheckFailed if the files are not there."""
    kept = validate(kind_of(KIND), values, {})[0].model_dump(mode="json", exclude_defaults=True)
    name = source_name(values["mailbox"])
    draft = Source(uuid7(), KIND, name, SourceStatus.PENDING, None, kept, None, None, 0, None, None, None)
    source_access.check(draft, keyring, QuietContext())
    return kept


def _source(connection: Connection, keyring: Keyring, name: str, who: Principal) -> Source:
    """That of the mailbox, made if need be, and locked. One that was paused goes on."""
    source_id = uuid7()
    no_secrets = keyring.seal(b"{}", source_id.bytes)
    values = {"id": source_id, "name": name, "credentials": no_secrets, "owner_id": who.user_id}
    if connection.execute(_ADD_SOURCE, values).rowcount:
        sources.grant_own_mail(connection, who, source_id)
        audit.record(connection, who, "source.added", "source", source_id, kind=KIND, name=name)
    source = source_rows.find(connection, name)
    turns.lock(connection, source.id)
    source = source_rows.find(connection, name)
    if source.kind != KIND:
        raise UsageError(f"the source {name} is of kind {source.kind}: rename it, the name is needed for imports")
    if source.status is SourceStatus.PAUSED:
        sources.resume(connection, source, who)
    return source


def claim(connection: Connection, source: Source, wanted: str) -> tuple[Source, SessionRow] | None:
    """A session that reads one import: the wanted one, unless another one's turn has come. None: there is nothing to do."""
    picked = turns.pick(connection, source.id, wanted)
    if picked is None or not sources.begin_cycle(connection, source, importing=True):
        return None
    session = sessions.claim(connection, source.id, is_initial_import=True)
    if not turns.bind(connection, picked.id, source.id, session.id):
        return None
    return replace(source, settings=picked.settings), session


def as_read_by(connection: Connection, source: Source, session_id: UUID) -> Source:
    """The source with the settings of the import that this session reads, if it reads one."""
    settings = turns.read_by(connection, session_id) if source.kind == KIND else None
    return source if settings is None else replace(source, settings=settings)


def cancel(connection: Connection, who: Principal, item: Import) -> None:
    """One that waits. Raises Conflict if its turn has come meanwhile."""
    turns.lock(connection, item.source_id)
    statement = text(
        "UPDATE imports SET outcome = 'cancelled', message = 'cancelled before it began', finished_at = now()"
        " WHERE id = :id AND outcome IS NULL AND session_id IS NULL"
    )
    if not connection.execute(statement, {"id": item.id}).rowcount:
        raise Conflict("this import is under way: pause its source, or wait for its end")
    turns.start_next(connection, item.source_id)
    audit.record(connection, who, "import.cancelled", "import", item.id, mailbox=item.mailbox)


def ended_run(connection: Connection, import_id: UUID) -> Run | None:
    """None as long as it has no outcome. Raises NotImported if it ended without a run."""
    item = load(connection, import_id)
    if item.outcome is None:
        return None
    run = load_run(connection, item.session_id) if item.session_id else None
    if run is None:
        raise NotImported(f"the import is {item.outcome}: {item.message or 'it never began'}")
    return run


@dataclass(frozen=True, slots=True)
class Tally:
    """How far an import is, or how far it came."""

    total_bytes: int = 0
    read_bytes: int = 0
    found: int = 0
    kinds: Mapping[str, int] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)
    """By file: unreadable, truncated, damaged, changed while it was read."""


def tally(connection: Connection, item: Import) -> Tally:
    """Added up from the mailboxes, as their last batches left it; after the end, as it was then."""
    saved = connection.execute(_SAVED_TALLIES, {"id": item.id}).scalars().all()
    live = connection.execute(_TALLIES, {"source": item.source_id, "number": item.number}).scalars().all()
    total = read = found = 0
    kinds: dict[str, int] = {}
    failures: dict[str, str] = {}
    for one in saved or live:
        total += one["total_bytes"] + sum(one["unpacked"].values())
        read += one["read_bytes"]
        found += one["found"]
        failures |= one["failures"]
        for kind, number in one["kinds"].items():
            kinds[kind] = kinds.get(kind, 0) + number
    return Tally(total, read, found, dict(sorted(kinds.items(), key=lambda pair: (-pair[1], pair[0]))), failures)


@dataclass(frozen=True, slots=True)
class Report:
    """What an import did not take in, and why."""

    not_mail: tuple[tuple[str, str], ...]
    """File, and what it is."""
    left_out: tuple[tuple[str, int], ...]
    """Messages, by the rule that says so."""
    known: int
    """Messages that were in the archive before."""
    tally: Tally

    def figures(self) -> dict[str, Any]:
        return {
            "found": self.tally.found,
            "kinds": dict(self.tally.kinds),
            "unreadable": [{"path": path, "reason": reason} for path, reason in sorted(self.tally.failures.items())],
            "not_mail": [{"path": path, "what": what} for path, what in self.not_mail],
            "left_out": dict(self.left_out),
        }


def report(connection: Connection, item: Import, run: Run) -> Report:
    values = {"source": item.source_id, "since": run.started_at, "until": run.finished_at}
    values |= {"most": _MOST_LISTED, "separator": _SEPARATOR}
    others = [(row[0], row[1].removeprefix("not mail: ")) for row in connection.execute(_SKIPPED, values)]
    left_out = [(row[0], int(row[1])) for row in connection.execute(_LEFT_OUT, values)]
    if run.deleted_here:
        left_out.append(("deleted here", run.deleted_here))
    counted = tally(connection, item)
    known = max(0, counted.found - run.archived - sum(number for _, number in left_out))
    return Report(tuple(others), tuple(left_out), known, counted)
