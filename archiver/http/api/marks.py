"""Tags and notes: on single messages, and changes of many messages at once."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter
from pydantic import BaseModel, Field

from archiver.access.scope import scope_of
from archiver.errors import UsageError
from archiver.exports.selection import MAX_SELECTED, Selection
from archiver.http.api.page import Page, RequestBody
from archiver.http.auth import Context, Marker, Reader
from archiver.marks import changes, notes, tags
from archiver.marks import workflow as change_runs
from archiver.marks.changes import ChangeAction, ChangeRequest, MailChange
from archiver.marks.notes import MessageNote
from archiver.marks.tags import Tag

router = APIRouter(tags=["messages"])


class NoteRequest(RequestBody):
    text: Annotated[str, Field(min_length=1, max_length=notes.MAX_CHARS)]
    is_shared: Annotated[bool, Field(description="For everyone who can read the message.")] = False


class MailChangeRequest(RequestBody):
    """Of the messages that a query finds, or of chosen ones."""

    action: ChangeAction
    subject: Annotated[
        str, Field(min_length=1, max_length=notes.MAX_CHARS, description="The tag, the text of the note, or the reason.")
    ]
    is_shared: Annotated[bool, Field(description="Of a tag: for everyone who can read the message.")] = False
    query: Annotated[str | None, Field(max_length=2000)] = None
    message_ids: Annotated[tuple[UUID, ...], Field(max_length=MAX_SELECTED)] = ()


class MailChangeShape(BaseModel):
    id: UUID
    action: ChangeAction
    subject: str
    chosen: int
    done: int
    changed: Annotated[int, Field(description="Messages that are different now.")]
    refused: Annotated[int, Field(description="Messages that a hold or a policy keeps.")]
    error: str | None
    created_at: datetime
    finished_at: datetime | None
    undone_at: datetime | None
    can_be_undone: bool


class NoteCreated(BaseModel):
    id: UUID


@router.get("/tags")
def list_tags(principal: Reader, context: Context) -> Page[Tag]:
    """Your own, and the shared ones on mail that you can read."""
    with context.reading() as connection:
        return Page(items=tags.list_tags(connection, scope_of(connection, principal)))


@router.delete("/tags/{tag_id}", status_code=204)
def remove_tag(tag_id: UUID, principal: Marker, context: Context) -> None:
    """From all messages. A shared tag is removed by its creator, or by an administrator."""
    with context.engine.begin() as connection:
        tags.remove(connection, principal, tag_id)
    context.save_config()


@router.get("/messages/{message_id}/notes")
def list_notes(message_id: UUID, principal: Reader, context: Context) -> Page[MessageNote]:
    """Your own, and the shared ones."""
    with context.reading() as connection:
        scope = scope_of(connection, principal)
        notes.require_visible(connection, scope, message_id)
        return Page(items=notes.notes_on(connection, scope, message_id))


@router.post("/messages/{message_id}/notes", status_code=201)
def add_note(message_id: UUID, body: NoteRequest, principal: Marker, context: Context) -> NoteCreated:
    with context.engine.begin() as connection:
        scope = scope_of(connection, principal)
        note_id = notes.add(connection, principal, scope, message_id, body.text, is_shared=body.is_shared)
    context.save_config()
    return NoteCreated(id=note_id)


@router.put("/messages/{message_id}/notes/{note_id}", status_code=204)
def change_note(message_id: UUID, note_id: UUID, body: NoteRequest, principal: Marker, context: Context) -> None:
    """Only by its author."""
    with context.engine.begin() as connection:
        scope = scope_of(connection, principal)
        notes.change(connection, principal, scope, message_id, note_id, body.text, is_shared=body.is_shared)
    context.save_config()


@router.delete("/messages/{message_id}/notes/{note_id}", status_code=204)
def remove_note(message_id: UUID, note_id: UUID, principal: Marker, context: Context) -> None:
    """By its author; a shared one also by an administrator."""
    with context.engine.begin() as connection:
        notes.remove(connection, principal, scope_of(connection, principal), message_id, note_id)
    context.save_config()


@router.post("/changes", status_code=202)
def change_messages(body: MailChangeRequest, principal: Marker, context: Context) -> MailChangeShape:
    """Adds or removes a tag, adds a note, or deletes (administrators; what is on hold, or kept by a policy, stays). Up to 1,000
    chosen messages are changed at once; a worker changes the others, and deletes: `GET /changes/{change_id}` follows it."""
    request = ChangeRequest(body.action, body.subject, body.is_shared)
    if bool(body.query) == bool(body.message_ids):
        raise UsageError("select exactly one: a query or messages")
    is_direct = body.message_ids and len(body.message_ids) <= changes.DIRECT and body.action is not ChangeAction.DELETE
    with context.engine.begin() as connection:
        scope = scope_of(connection, principal)
        if is_direct:
            change = changes.change_now(connection, principal, scope, request, body.message_ids)
        else:
            if body.query:
                context.search.message_ids(body.query, scope)  # one that can't be answered is refused now
            selection = Selection(query=body.query, message_ids=body.message_ids)
            change = change_runs.start(connection, principal, request, selection)
        shape = _shape(change, changes.progress(connection, change).done)
    if is_direct:
        context.save_config()
    return shape


@router.get("/changes/{change_id}")
def show_change(change_id: UUID, principal: Marker, context: Context) -> MailChangeShape:
    """Your own."""
    with context.reading() as connection:
        change = changes.load(connection, principal, change_id)
        return _shape(change, changes.progress(connection, change).done)


@router.post("/changes/{change_id}/undo")
def undo_change(change_id: UUID, principal: Marker, context: Context) -> MailChangeShape:
    """Within a day; a deletion can't be undone. `409` otherwise."""
    with context.engine.begin() as connection:
        change = changes.undo(connection, principal, change_id)
        shape = _shape(change, change.chosen)
    context.save_config()
    return shape


def _shape(change: MailChange, done: int) -> MailChangeShape:
    return MailChangeShape(
        id=change.id,
        action=ChangeAction(change.action),
        subject=change.subject,
        chosen=change.chosen,
        done=done,
        changed=change.changed,
        refused=change.refused,
        error=change.error,
        created_at=change.created_at,
        finished_at=change.finished_at,
        undone_at=change.undone_at,
        can_be_undone=change.can_be_undone,
    )
