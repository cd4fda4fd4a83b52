"""Sources: all that `archiver source` does. To look at for auditors, to change for administrators."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field, field_validator

from archiver.api.auth import Administrator, Context, Viewer
from archiver.api.context import ApiContext
from archiver.api.page import Body, Cursor, Limit, Page, decode_cursor, encode_cursor, time_of
from archiver.api.public_text import without_paths
from archiver.errors import NotFound, UsageError
from archiver.models.states import SourceStatus
from archiver.services import runs, source_access, source_kinds, source_rows, source_view, sources
from archiver.services.access import scope_of
from archiver.services.quiet_context import QuietContext
from archiver.services.runs import Run
from archiver.services.source_rows import Source
from archiver.services.source_view import MailboxLedger

router = APIRouter(tags=["sources"])


class KindShape(BaseModel):
    kind: str
    title: str
    settings: dict[str, Any]
    secrets: list[str]


class SourceShape(BaseModel):
    """Secrets are taken, and never given."""

    model_config = ConfigDict(from_attributes=True)

    id: UUID
    kind: str
    name: str
    status: SourceStatus
    status_message: str | None
    settings: dict[str, Any]
    failures: int
    next_due_at: datetime | None
    last_started_at: datetime | None
    last_finished_at: datetime | None

    @field_validator("status_message")
    @classmethod
    def _without_paths(cls, value: str | None) -> str | None:
        return None if value is None else without_paths(value)


class NewSource(Body):
    kind: Annotated[str, Field(max_length=50, examples=["imap"])]
    name: Annotated[str, Field(max_length=200, examples=["work"])]
    settings: dict[str, Any] = Field(default_factory=dict)
    secrets: Annotated[dict[str, str], Field(default_factory=dict, description="Sealed at once, and never shown again.")]


class SourceChange(Body):
    settings: Annotated[dict[str, Any], Field(default_factory=dict, description="null removes a setting.")]
    secrets: Annotated[dict[str, str], Field(default_factory=dict, description="Those that are not given stay.")]


class SyncStarted(BaseModel):
    session_id: Annotated[UUID | None, Field(description="Of the cycle that runs, if one does: another will follow it.")]


@router.get("/source-kinds")
def list_kinds(who: Viewer, context: Context) -> Page[KindShape]:
    """What sources there can be, and their settings as JSON schema, without those that name files of the server."""
    return Page(
        items=[
            KindShape(
                kind=kind.name, title=kind.title, settings=source_kinds.schema(kind), secrets=list(kind.secrets.model_fields)
            )
            for kind in source_kinds.kinds(samples=context.settings.sample_sources)
        ]
    )


@router.get("/sources")
def list_sources(who: Viewer, context: Context) -> Page[SourceShape]:
    with context.reading() as connection:
        return Page(items=[SourceShape.model_validate(source) for source in source_rows.all_sources(connection)])


@router.post("/sources", status_code=201)
def add_source(given: NewSource, who: Administrator, context: Context) -> SourceShape:
    """The connection is tried first (`422 source_check_failed` says what the source said)."""
    _plain(given.name, *map(str, given.settings.values()))
    kind = source_kinds.kind_of(given.kind, samples=context.settings.sample_sources)
    source_kinds.refuse_server_paths(kind, given.settings)
    if given.kind in source_kinds.RUNS_ONCE:
        raise UsageError(f"{given.kind}: files come in by an upload (/api/v1/uploads), or by `archiver import`")
    source = sources.add(
        context.engine,
        context.keyring,
        QuietContext(),
        given.kind,
        given.name,
        given.settings,
        given.secrets,
        who,
        hosts=context.settings.source_hosts,
    )
    context.keep_config()
    return SourceShape.model_validate(source)


@router.get("/sources/{source_id}")
def show_source(source_id: UUID, who: Viewer, context: Context) -> SourceShape:
    return SourceShape.model_validate(_load(context, source_id))


@router.patch("/sources/{source_id}")
def change_source(source_id: UUID, given: SourceChange, who: Administrator, context: Context) -> SourceShape:
    """It is due at once. `400 secrets_needed`: it would talk to another server than before, so its secrets are needed again."""
    _plain(*map(str, given.settings.values()))
    before = _load(context, source_id)
    source_kinds.refuse_server_paths(source_kinds.kind_of(before.kind), given.settings)
    source = sources.edit(
        context.engine,
        context.keyring,
        QuietContext(),
        before,
        given.settings,
        given.secrets,
        who,
        hosts=context.settings.source_hosts,
    )
    context.keep_config()
    return SourceShape.model_validate(source)


@router.delete("/sources/{source_id}", status_code=204)
def remove_source(
    source_id: UUID,
    who: Administrator,
    context: Context,
    delete_mail: Annotated[bool, Query(description="Delete its mail from the archive as well, for good.")] = False,
) -> None:
    """Nothing is fetched any more, and its credentials go. Its mail stays, unless you say otherwise."""
    source_view.remove(context.engine, context.archive, who, _load(context, source_id), delete_mail=delete_mail)
    context.keep_config()


@router.post("/sources/{source_id}/check", status_code=204)
def check_source(source_id: UUID, who: Administrator, context: Context) -> None:
    """Tries the connection and the credentials."""
    source_access.check(_load(context, source_id), context.keyring, QuietContext())


@router.post("/sources/{source_id}/sync", status_code=202)
def sync_source(source_id: UUID, who: Administrator, context: Context) -> SyncStarted:
    """A cycle that runs already is followed by another one."""
    source = _load(context, source_id)
    with context.engine.begin() as connection:
        return SyncStarted(session_id=sources.sync_now(connection, source, who))


@router.post("/sources/{source_id}/pause", status_code=204)
def pause_source(source_id: UUID, who: Administrator, context: Context) -> None:
    source = _load(context, source_id)
    with context.engine.begin() as connection:
        sources.pause(connection, source, who)


@router.post("/sources/{source_id}/resume", status_code=204)
def resume_source(source_id: UUID, who: Administrator, context: Context) -> None:
    source = _load(context, source_id)
    with context.engine.begin() as connection:
        sources.resume(connection, source, who)


@router.get("/sources/{source_id}/mailboxes")
def list_source_mailboxes(
    source_id: UUID, who: Viewer, context: Context, limit: Limit = 100, cursor: Cursor = None
) -> Page[MailboxLedger]:
    """Each with its ledger: what the source has, and what became of it."""
    after = decode_cursor(cursor, 1)[0] if cursor else ""
    with context.reading() as connection:
        scope = scope_of(connection, who)
        found = source_view.mailboxes(connection, scope, _load(context, source_id).id, after.replace("\0", ""), limit)
    items = [replace(box, status_message=box.status_message and without_paths(box.status_message)) for box in found]
    return Page(items=items, next=encode_cursor(found[-1].address) if len(found) == limit else None)


@router.get("/sources/{source_id}/runs")
def list_runs(source_id: UUID, who: Viewer, context: Context, limit: Limit = 50, cursor: Cursor = None) -> Page[Run]:
    """Newest first."""
    before = time_of(decode_cursor(cursor, 1)[0]) if cursor else None
    with context.reading() as connection:
        found = runs.last_runs(connection, _load(context, source_id).id, limit, before)
    items = [replace(run, errors=[_public(error) for error in run.errors]) for run in found]
    return Page(items=items, next=encode_cursor(found[-1].finished_at.isoformat()) if len(found) == limit else None)


def _public(error: dict[str, str]) -> dict[str, str]:
    return {name: without_paths(str(value)) for name, value in error.items()}


def _load(context: ApiContext, source_id: UUID) -> Source:
    with context.reading() as connection:
        source = source_rows.load(connection, source_id)
    if source is None or source.removed_at is not None:
        raise NotFound(f"there is no source {source_id}")
    return source


def _plain(*values: str) -> None:
    if any("\0" in value for value in values):
        raise UsageError("a NUL character can't be part of a name or a setting")
