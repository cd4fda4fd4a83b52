"""Imports of mail files: each is a row, and one source per mailbox address knows what was imported before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import orjson
from sqlalchemy import Connection, Engine, text

from archiver.access import audit
from archiver.access.principal import LOCAL_OPERATOR, Principal
from archiver.db.ids import uuid7
from archiver.db.sql import query, query_optional
from archiver.db.states import ImportState, RunOutcome, SourceStatus, UserRole
from archiver.errors import ArchiverError, Conflict, NotFound, UsageError
from archiver.secrets import Keyring
from archiver.sources import access as source_access
from archiver.sources import rows as source_rows
from archiver.sources import service as sources
from archiver.sources import uploads
from archiver.sources.kinds import kind_of, validate
from archiver.sources.null_context import QuietContext
from archiver.sources.rows import Source
from archiver.sources.runs import Run, load_run
from archiver.sync import import_queue as turns
from archiver.sync import sessions
from archiver.sync.sessions import SyncSession

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

# The same import, requested twice before any of it was read.
_SAME = """
    SELECT id FROM imports WHERE source_id = :source AND outcome IS NULL AND session_id IS NULL AND upload_folder IS NULL
        AND settings = CAST(:settings AS jsonb) ORDER BY number DESC LIMIT 1"""

_TALLIES = """
    SELECT m.sync_state->('files:' || lower(m.address)) FROM mailboxes m
    WHERE m.source_id = :source AND m.sync_state->('files:' || lower(m.address))->>'turn' LIKE '%:' || CAST(:number AS text)"""
_SAVED_TALLIES = "SELECT jsonb_array_elements(tally) FROM imports WHERE id = :id AND outcome IS NOT NULL"

_DELETED = """
    SELECT provider_key FROM message_copies
    WHERE mailbox_id = :mailbox AND provider_key = ANY(:keys) AND deleted_at IS NOT NULL"""
_SKIPPED = """
    SELECT s.provider_key, s.rule FROM skipped_messages s JOIN mailboxes b ON b.id = s.mailbox_id
    WHERE b.source_id = :source AND s.skipped_at BETWEEN :since AND :until AND strpos(s.provider_key, :separator) = 0
        AND s.rule NOT LIKE 'could not be read before%'
    ORDER BY s.provider_key LIMIT :limit"""

_LEFT_OUT = """
    SELECT s.rule, count(*) AS messages FROM skipped_messages s JOIN mailboxes b ON b.id = s.mailbox_id
    WHERE b.source_id = :source AND s.skipped_at BETWEEN :since AND :until AND strpos(s.provider_key, :separator) > 0
    GROUP BY 1 ORDER BY 2 DESC, 1"""


_KEPT_UPLOADS = """
    SELECT source_id, count(*) AS imports FROM imports WHERE upload_folder IS NOT NULL AND upload_removed_at IS NULL
        AND outcome <> 'success' AND discarded_at IS NULL GROUP BY 1"""


class KeptUploads(NamedTuple):
    source_id: UUID
    imports: int


class LeftOutFile(NamedTuple):
    provider_key: str
    rule: str


class LeftOutMessages(NamedTuple):
    rule: str
    messages: int


class NotImported(ArchiverError):
    """The import ended without a run: it was cancelled while waiting, or its job could not be started."""


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
        """Without paths of the server."""
        message = self.message or ""
        for path in self.paths if self.upload_folder else ():
            message = message.replace(str(path), path.name)
        return message or None

    @property
    def keeps_upload(self) -> bool:
        """The uploaded files are still stored."""
        return self.upload_folder is not None and self.upload_removed_at is None

    @property
    def can_be_discarded(self) -> bool:
        """It is waiting, or it did not succeed and its upload is still stored."""
        return self.state is ImportState.WAITING or (self.outcome not in (None, RunOutcome.SUCCESS) and self.keeps_upload)


def source_name(mailbox: str) -> str:
    return f"import:{mailbox.lower()}"


def load(connection: Connection, import_id: UUID) -> Import:
    found = query_optional(connection, f"{_COLUMNS} WHERE i.id = :id", Import, id=import_id)
    if found is None:
        raise NotFound(f"there is no import {import_id}")
    return found


def load_own(connection: Connection, principal: Principal, import_id: UUID) -> Import:
    """The caller's own; administrators may load any."""
    found = load(connection, import_id)
    if principal.role is not UserRole.ADMINISTRATOR and (principal.user_id is None or found.user_id != principal.user_id):
        raise NotFound(f"there is no import {import_id}")
    return found


def find(connection: Connection, given: str) -> Import:
    """By its id, or a unique prefix of it."""
    found = query(connection, f"{_COLUMNS} WHERE CAST(i.id AS text) LIKE :id || '%' LIMIT 2", Import, id=given)
    if len(found) != 1:
        raise NotFound(f"{'several imports begin' if found else 'no import begins'} with {given!r}")
    return found[0]


def listed(
    connection: Connection,
    principal: Principal,
    source_id: UUID | None = None,
    limit: int = 100,
    before: datetime | None = None,
    *,
    only_kept: bool = False,
) -> list[Import]:
    """The caller's own, or all for an administrator, newest first. `before` continues after an entry, by its creation."""
    statement = (
        f"{_COLUMNS} WHERE (:all OR i.user_id = :user_id) AND (CAST(:source AS uuid) IS NULL OR i.source_id = :source)"
        " AND (CAST(:before AS timestamptz) IS NULL OR i.created_at < :before)"
        " AND (NOT :only_kept OR (i.upload_folder IS NOT NULL AND i.upload_removed_at IS NULL))"
        " ORDER BY i.created_at DESC, i.id DESC LIMIT :limit"
    )
    is_all = principal.role is UserRole.ADMINISTRATOR
    values = {"all": is_all, "user_id": principal.user_id, "source": source_id, "limit": limit, "before": before}
    values["only_kept"] = only_kept
    return query(connection, statement, Import, **values)


def of_source(connection: Connection, source_id: UUID, limit: int) -> list[Import]:
    """Newest first."""
    return listed(connection, LOCAL_OPERATOR, source_id, limit)


def kept_uploads(connection: Connection) -> dict[UUID, int]:
    """By source: the number of failed imports whose uploaded files are still stored, for a retry or to be discarded."""
    return dict(query(connection, _KEPT_UPLOADS, KeptUploads))


def begin(
    engine: Engine,
    keyring: Keyring,
    paths: Sequence[Path],
    mailbox: str,
    settings: Mapping[str, Any],
    principal: Principal = LOCAL_OPERATOR,
    *,
    import_id: UUID | None = None,
    upload_folder: str | None = None,
    upload_ids: Sequence[UUID] = (),
) -> Import:
    """Requests an import, which starts when its turn comes: imports into one mailbox run one at a time.

    `upload_ids`: the uploads that it reads. Raises Conflict if another import reads them, or has read them.
    """
    values = {**settings, "mailbox": mailbox, "paths": [str(path) for path in paths]}
    kept = _check_settings(keyring, values)
    with engine.begin() as connection:
        source = _source(connection, keyring, source_name(mailbox), principal)
        same = query_optional(connection, _SAME, UUID, source=source.id, settings=orjson.dumps(kept).decode())
        if same is not None and upload_folder is None:
            return load(connection, same)
        made = turns.request(
            connection,
            source.id,
            mailbox,
            kept,
            principal.name,
            principal.user_id,
            import_id=import_id,
            upload_folder=upload_folder,
        )
        if upload_ids:
            uploads.assign(connection, upload_ids, made)
        names = [path.name for path in paths] if upload_folder else [str(path) for path in paths]
        audit.record(connection, principal, "import.requested", "import", made, mailbox=mailbox, files=names)
        return load(connection, made)


def _check_settings(keyring: Keyring, values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as they are stored. Raises UsageError, or SourceCheckFailed if a file does not exist."""
    kept = validate(kind_of(KIND), values, {})[0].model_dump(mode="json", exclude_defaults=True)
    name = source_name(values["mailbox"])
    draft = Source(uuid7(), KIND, name, SourceStatus.PENDING, None, kept, None, None, 0, None, None, None, None)
    source_access.check(draft, keyring, QuietContext())
    return kept


def _source(connection: Connection, keyring: Keyring, name: str, principal: Principal) -> Source:
    """The mailbox's source, created if necessary, and locked. A paused one is resumed."""
    source_id = uuid7()
    no_secrets = keyring.seal(b"{}", source_id.bytes)
    values = {"id": source_id, "name": name, "credentials": no_secrets, "owner_id": principal.user_id}
    if connection.execute(_ADD_SOURCE, values).rowcount:
        sources.grant_own_mail(connection, principal, source_id)
        audit.record(connection, principal, "source.added", "source", source_id, kind=KIND, name=name)
    source = source_rows.find(connection, name)
    turns.lock(connection, source.id)
    source = source_rows.find(connection, name)
    if source.kind != KIND:
        raise UsageError(f"the source {name} is of kind {source.kind}: rename it, because imports need that name")
    if source.status is SourceStatus.PAUSED:
        sources.resume(connection, source, principal)
    return source


def claim(connection: Connection, source: Source, wanted: str) -> tuple[Source, SyncSession] | None:
    """A session that reads one import: the wanted one, unless another one is first. None if there is nothing to do."""
    picked = turns.pick(connection, source.id, wanted)
    if picked is None or not sources.begin_cycle(connection, source, importing=True):
        return None
    session = sessions.claim(connection, source.id, is_initial_import=True)
    if not turns.bind(connection, picked.id, source.id, session.id):
        return None
    return replace(source, settings=picked.settings), session


def with_import_settings(connection: Connection, source: Source, session_id: UUID) -> Source:
    """The source with the settings of the import that this session reads, if any."""
    settings = turns.load_settings(connection, session_id) if source.kind == KIND else None
    return source if settings is None else replace(source, settings=settings)


def deleted_keys(connection: Connection, mailbox_id: UUID, provider_keys: list[str]) -> set[str]:
    """The keys of copies that were deleted in the archive."""
    return set(query(connection, _DELETED, str, mailbox=mailbox_id, keys=provider_keys))


def cancel(connection: Connection, principal: Principal, item: Import) -> None:
    """Cancels a waiting import. Raises Conflict if it has started."""
    turns.lock(connection, item.source_id)
    statement = text(
        "UPDATE imports SET outcome = 'cancelled', message = 'cancelled before it began', finished_at = now()"
        " WHERE id = :id AND outcome IS NULL AND session_id IS NULL"
    )
    if not connection.execute(statement, {"id": item.id}).rowcount:
        raise Conflict("this import is running: pause its source, or wait until it ends")
    turns.start_next(connection, item.source_id)
    audit.record(connection, principal, "import.cancelled", "import", item.id, mailbox=item.mailbox)


def ended_run(connection: Connection, import_id: UUID) -> Run | None:
    """None while it has no outcome. Raises NotImported if it ended without a run."""
    item = load(connection, import_id)
    if item.outcome is None:
        return None
    run = load_run(connection, item.session_id) if item.session_id else None
    if run is None:
        raise NotImported(f"the import is {item.outcome}: {item.message or 'it never started'}")
    return run


@dataclass(frozen=True, slots=True)
class ImportTally:
    """The progress of an import, or its final counts."""

    total_bytes: int = 0
    read_bytes: int = 0
    found: int = 0
    kinds: Mapping[str, int] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)
    """By file: unreadable, truncated, damaged, or changed during the import."""
    variants: Mapping[str, str] = field(default_factory=dict)
    """The mbox variant that each file was read as, and why."""


def tally(connection: Connection, item: Import) -> ImportTally:
    """Summed over the mailboxes as of their last batches; after the end, the final counts."""
    saved = query(connection, _SAVED_TALLIES, dict, id=item.id)
    live = query(connection, _TALLIES, dict, source=item.source_id, number=item.number)
    total = read = found = 0
    kinds: dict[str, int] = {}
    failures: dict[str, str] = {}
    variants: dict[str, str] = {}
    for one in saved or live:
        total += one["total_bytes"] + sum(one["unpacked"].values())
        read += one["read_bytes"]
        found += one["found"]
        failures |= one["failures"]
        variants |= one.get("variants", {})  # imports of earlier releases have none
        for kind, number in one["kinds"].items():
            kinds[kind] = kinds.get(kind, 0) + number
    ordered = dict(sorted(kinds.items(), key=lambda pair: (-pair[1], pair[0])))
    return ImportTally(total, read, found, ordered, failures, variants)


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import did not archive, and why."""

    not_mail: tuple[tuple[str, str], ...]
    """File, and what kind of file it is."""
    left_out: tuple[tuple[str, int], ...]
    """Number of skipped messages, by rule."""
    known: int
    """Messages that were already in the archive."""
    tally: ImportTally

    @property
    def variants(self) -> tuple[tuple[str, str], ...]:
        """mbox files, and for which variant each was taken, and why."""
        return tuple(sorted(self.tally.variants.items()))

    def figures(self) -> dict[str, Any]:
        return {
            "found": self.tally.found,
            "kinds": dict(self.tally.kinds),
            "variants": [{"path": path, "variant": _named(said)[0], "reason": _named(said)[1]} for path, said in self.variants],
            "unreadable": [{"path": path, "reason": reason} for path, reason in sorted(self.tally.failures.items())],
            "not_mail": [{"path": path, "what": what} for path, what in self.not_mail],
            "left_out": dict(self.left_out),
        }


def _named(said: str) -> tuple[str, str]:
    name, _, reason = said.partition(": ")
    return name, reason


def report(connection: Connection, item: Import, run: Run) -> ImportReport:
    values = {"source": item.source_id, "since": run.started_at, "until": run.finished_at}
    values |= {"limit": _MOST_LISTED, "separator": _SEPARATOR}
    others = [(key, rule.removeprefix("not mail: ")) for key, rule in query(connection, _SKIPPED, LeftOutFile, **values)]
    left_out: list[tuple[str, int]] = [*query(connection, _LEFT_OUT, LeftOutMessages, **values)]
    if run.deleted_here:
        left_out.append(("deleted from the archive", run.deleted_here))
    counted = tally(connection, item)
    known = max(0, counted.found - run.archived - sum(number for _, number in left_out))
    return ImportReport(tuple(others), tuple(left_out), known, counted)
