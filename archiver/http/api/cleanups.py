"""Clean-ups: archived mail is moved to the trash of its server, after a dry run. For administrators."""

from __future__ import annotations

from uuid import UUID

from fastapi import APIRouter

from archiver.cleanups import service as cleanups
from archiver.cleanups.rows import CleanupEntry, CleanupJob
from archiver.db.states import CleanupOutcome
from archiver.errors import NotFound
from archiver.http.api.page import Cursor, Limit, Page, RequestBody, decode_number, encode_cursor
from archiver.http.auth import Administrator, Context
from archiver.http.public_text import without_paths_in
from archiver.sources import rows

router = APIRouter(prefix="/cleanups", tags=["cleanups"])


class NewCleanup(RequestBody):
    source_id: UUID


@router.post("", status_code=202)
def request_cleanup(body: NewCleanup, principal: Administrator, context: Context) -> CleanupJob:
    """Begins the dry run: nothing is deleted. The source has to allow it with `delete_after_days`."""
    with context.engine.begin() as connection:
        source = rows.load(connection, body.source_id)
        if source is None or source.removed_at is not None:
            raise NotFound(f"there is no source {body.source_id}")
        cleanup_id = cleanups.request(connection, principal, source)
        return cleanups.load(connection, principal, cleanup_id)


@router.get("")
def list_cleanups(principal: Administrator, context: Context, source_id: UUID | None = None) -> Page[CleanupJob]:
    with context.reading() as connection:
        found = cleanups.list_cleanups(connection, principal, source_id)
    return Page(items=[without_paths_in(item, "error") for item in found])


@router.get("/{cleanup_id}")
def show_cleanup(cleanup_id: UUID, principal: Administrator, context: Context) -> CleanupJob:
    with context.reading() as connection:
        return without_paths_in(cleanups.load(connection, principal, cleanup_id), "error")


@router.post("/{cleanup_id}/start", status_code=202)
def start_cleanup(cleanup_id: UUID, principal: Administrator, context: Context) -> CleanupJob:
    """**Deletes mail on the server**: moves every message that is `ready` to its trash. Stops at the first surprise."""
    with context.engine.begin() as connection:
        cleanups.start(connection, principal, cleanup_id)
        return cleanups.load(connection, principal, cleanup_id)


@router.get("/{cleanup_id}/messages")
def list_cleanup_messages(
    cleanup_id: UUID,
    principal: Administrator,
    context: Context,
    outcome: CleanupOutcome | None = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[CleanupEntry]:
    """The log of each message, and why some are kept."""
    with context.reading() as connection:
        found = cleanups.list_entries(connection, principal, cleanup_id, outcome, after=decode_number(cursor), limit=limit)
    return Page(items=found, next=encode_cursor(found[-1].number) if len(found) == limit else None)


@router.delete("/{cleanup_id}", status_code=204)
def cancel_cleanup(cleanup_id: UUID, principal: Administrator, context: Context) -> None:
    """Stops one that is running. Removes one that has deleted nothing; the log of any other stays."""
    with context.engine.begin() as connection:
        cleanups.cancel(connection, principal, cleanup_id)
