"""Sources: everything that `archiver source` does. Auditors may view, administrators may change."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field, field_validator

from archiver.access.scope import scope_of
from archiver.db.states import SourceStatus
from archiver.errors import NotFound, UsageError
from archiver.http.api.page import Cursor, Limit, Page, RequestBody, decode_cursor, encode_cursor, time_of
from archiver.http.auth import Administrator, Context, Viewer
from archiver.http.context import ApiContext
from archiver.http.public_text import without_paths
from archiver.sources import access as source_access
from archiver.sources import kinds as source_kinds
from archiver.sources import rows as source_rows
from archiver.sources import runs
from archiver.sources import service as sources
from archiver.sources import view as source_view
from archiver.sources.null_context import QuietContext
from archiver.sources.rows import Source
from archiver.sources.runs import Run
from archiver.sources.view import MailboxLedger

router = APIRouter(tags=["sources"])


class KindShape(BaseModel):
    kind: str
    title: str
    settings: dict[str, Any]
    secrets: list[str]


class SourceShape(BaseModel):
    """Never contains secrets: they are accepted, but not returned."""

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


class NewSource(RequestBody):
    kind: Annotated[str, Field(max_length=50, examples=["imap"])]
    name: Annotated[str, Field(max_length=200, examples=["work"])]
    settings: dict[str, Any] = Field(default_factory=dict)
    secrets: Annotated[dict[str, str], Field(default_factory=dict, description="Encrypted at once, and never returned.")]


class SourceChange(RequestBody):
    settings: Annotated[dict[str, Any], Field(default_factory=dict, description="`null` removes a setting.")]
    secrets: Annotated[dict[str, str], Field(default_factory=dict, description="Secrets that are not sent stay unchanged.")]


class SyncStarted(BaseModel):
    session_id: Annotated[UUID | None, Field(description="The cycle that is already running, if any; another one follows it.")]


@router.get("/source-kinds")
def list_kinds(principal: Viewer, context: Context) -> Page[KindShape]:
    """The available kinds of sources and their settings as JSON schema, without settings that name files on the server."""
    return Page(
        items=[
            KindShape(
                kind=kind.name, title=kind.title, settings=source_kinds.schema(kind), secrets=list(kind.secrets.model_fields)
            )
            for kind in source_kinds.kinds(samples=context.settings.sample_sources)
        ]
    )


@router.get("/sources")
def list_sources(principal: Viewer, context: Context) -> Page[SourceShape]:
    with context.reading() as connection:
        return Page(items=[SourceShape.model_validate(source) for source in source_rows.all_sources(connection)])


@router.post("/sources", status_code=201)
def add_source(body: NewSource, principal: Administrator, context: Context) -> SourceShape:
    """The connection is tested first (`422 source_check_failed` contains the reason)."""
    _reject_nul(body.name, *map(str, body.settings.values()))
    kind = source_kinds.kind_of(body.kind, samples=context.settings.sample_sources)
    source_kinds.refuse_server_paths(kind, body.settings)
    if body.kind in source_kinds.RUNS_ONCE:
        raise UsageError(f"{body.kind}: import files with an upload (/api/v1/uploads) or with `archiver import`")
    source = sources.add(
        context.engine,
        context.keyring,
        QuietContext(),
        body.kind,
        body.name,
        body.settings,
        body.secrets,
        principal,
        hosts=context.settings.source_hosts,
    )
    context.save_config()
    return SourceShape.model_validate(source)


@router.get("/sources/{source_id}")
def show_source(source_id: UUID, principal: Viewer, context: Context) -> SourceShape:
    return SourceShape.model_validate(_load(context, source_id))


@router.patch("/sources/{source_id}")
def change_source(source_id: UUID, body: SourceChange, principal: Administrator, context: Context) -> SourceShape:
    """The source is due at once. `400 secrets_needed`: it would connect to another server, so send its secrets again."""
    _reject_nul(*map(str, body.settings.values()))
    before = _load(context, source_id)
    source_kinds.refuse_server_paths(source_kinds.kind_of(before.kind), body.settings)
    source = sources.edit(
        context.engine,
        context.keyring,
        QuietContext(),
        before,
        body.settings,
        body.secrets,
        principal,
        hosts=context.settings.source_hosts,
    )
    context.save_config()
    return SourceShape.model_validate(source)


@router.delete("/sources/{source_id}", status_code=204)
def remove_source(
    source_id: UUID,
    principal: Administrator,
    context: Context,
    delete_mail: Annotated[bool, Query(description="Also delete its mail from the archive, permanently.")] = False,
) -> None:
    """Nothing more is fetched, and the credentials are deleted. Archived mail is kept, unless `delete_mail` is set."""
    source_view.remove(context.engine, context.archive, principal, _load(context, source_id), delete_mail=delete_mail)
    context.save_config()


@router.post("/sources/{source_id}/check", status_code=204)
def check_source(source_id: UUID, principal: Administrator, context: Context) -> None:
    """Test the connection and the credentials."""
    source_access.check(_load(context, source_id), context.keyring, QuietContext())


@router.post("/sources/{source_id}/sync", status_code=202)
def sync_source(source_id: UUID, principal: Administrator, context: Context) -> SyncStarted:
    """If a cycle is already running, another one follows it."""
    source = _load(context, source_id)
    with context.engine.begin() as connection:
        return SyncStarted(session_id=sources.sync_now(connection, source, principal))


@router.post("/sources/{source_id}/pause", status_code=204)
def pause_source(source_id: UUID, principal: Administrator, context: Context) -> None:
    source = _load(context, source_id)
    with context.engine.begin() as connection:
        sources.pause(connection, source, principal)


@router.post("/sources/{source_id}/resume", status_code=204)
def resume_source(source_id: UUID, principal: Administrator, context: Context) -> None:
    source = _load(context, source_id)
    with context.engine.begin() as connection:
        sources.resume(connection, source, principal)


@router.get("/sources/{source_id}/mailboxes")
def list_source_mailboxes(
    source_id: UUID, principal: Viewer, context: Context, limit: Limit = 100, cursor: Cursor = None
) -> Page[MailboxLedger]:
    """Mailboxes with their ledgers: what the source listed, and what was archived."""
    after = decode_cursor(cursor, 1)[0] if cursor else ""
    with context.reading() as connection:
        scope = scope_of(connection, principal)
        found = source_view.mailboxes(connection, scope, _load(context, source_id).id, after.replace("\0", ""), limit)
    items = [replace(box, status_message=box.status_message and without_paths(box.status_message)) for box in found]
    return Page(items=items, next=encode_cursor(found[-1].address) if len(found) == limit else None)


@router.get("/sources/{source_id}/runs")
def list_runs(source_id: UUID, principal: Viewer, context: Context, limit: Limit = 50, cursor: Cursor = None) -> Page[Run]:
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
        raise NotFound(f"source {source_id} not found")
    return source


def _reject_nul(*values: str) -> None:
    if any("\0" in value for value in values):
        raise UsageError("names and settings must not contain NUL characters")
