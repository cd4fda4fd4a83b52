"""Imports of mail files: what was requested, how it went, and which uploads are still stored after a failure."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from archiver.db.states import ImportState
from archiver.http.api.page import Cursor, Limit, Page, decode_cursor, encode_cursor, time_of
from archiver.http.auth import Context, Ingester
from archiver.http.public_text import without_paths
from archiver.sources import imports, upload_imports
from archiver.sources.imports import Import

router = APIRouter(prefix="/imports", tags=["uploads"])


class ImportShape(BaseModel):
    id: UUID
    source_id: UUID
    source: Annotated[str, Field(description="One source for each mailbox address; its runs show how the imports went.")]
    mailbox: str
    files: Annotated[list[str], Field(description="Names of the files that it reads.")]
    requested_by: str
    state: Annotated[ImportState, Field(description="Imports into the same mailbox run one after the other.")]
    message: str | None
    keeps_upload: Annotated[
        bool, Field(description="The uploaded files are still stored, because the import has not succeeded yet.")
    ]
    run_id: UUID | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


def shape(item: Import) -> ImportShape:
    return ImportShape(
        id=item.id,
        source_id=item.source_id,
        source=item.source,
        mailbox=item.mailbox,
        files=[path.name for path in item.paths],
        requested_by=item.requested_by,
        state=item.state,
        message=without_paths(item.shown_message or "") or None,
        keeps_upload=item.keeps_upload,
        run_id=item.session_id,
        created_at=item.created_at,
        started_at=item.started_at,
        finished_at=item.finished_at,
    )


@router.get("")
def list_imports(
    principal: Ingester,
    context: Context,
    kept: Annotated[bool, Query(description="Only imports whose uploaded files are still stored.")] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[ImportShape]:
    """Your own imports, newest first; administrators see all imports."""
    before = time_of(decode_cursor(cursor, 1)[0]) if cursor else None
    with context.reading() as connection:
        found = imports.listed(connection, principal, limit=limit, before=before, only_kept=kept)
    more = encode_cursor(found[-1].created_at.isoformat()) if len(found) == limit else None
    return Page(items=[shape(item) for item in found], next=more)


@router.get("/{import_id}")
def show_import(import_id: UUID, principal: Ingester, context: Context) -> ImportShape:
    with context.reading() as connection:
        return shape(imports.load_own(connection, principal, import_id))


@router.delete("/{import_id}", status_code=204)
def discard_import(import_id: UUID, principal: Ingester, context: Context) -> None:
    """Cancel a waiting import, or remove the uploaded files of a failed one. The entry itself stays.

    `409 conflict`: the import is running, or none of its files are stored.
    """
    with context.reading() as connection:
        item = imports.load_own(connection, principal, import_id)
    upload_imports.discard(context.engine, context.settings, principal, item)
