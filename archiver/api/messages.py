"""Messages: listed, read, downloaded, handed in."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field, TypeAdapter

from archiver.api.auth import Context, Ingester, Reader
from archiver.api.downloads import download, not_modified
from archiver.api.page import Cursor, Limit, Page, decode_cursor, encode_cursor
from archiver.api.receiving import received
from archiver.errors import UsageError
from archiver.models.ids import message_uuid
from archiver.services import audit, direct, messages
from archiver.services.access import scope_of
from archiver.services.ingest import Ingest
from archiver.services.message_content import Content
from archiver.services.messages import Copy, MailboxRow, MessageDetail, MessageRow, Place, ThreadRow
from archiver.services.room import check_room

router = APIRouter(tags=["messages"])


class MessageShape(BaseModel):
    detail: MessageDetail
    content: Annotated[Content, Field(description="Read from the message's bytes; `html` is safe for a sandboxed frame.")]


class HandedIn(BaseModel):
    """The same for bytes that were known and for new ones."""

    id: UUID
    sha256: str
    mailbox_id: UUID


@router.get("/mailboxes")
def list_mailboxes(who: Reader, context: Context, limit: Limit = 100, cursor: Cursor = None) -> Page[MailboxRow]:
    """The mailboxes that you may read, with their folders."""
    after = decode_cursor(cursor, 1)[0].replace("\0", "") if cursor else ""
    with context.reading() as connection:
        found = messages.mailboxes(connection, scope_of(connection, who), after=after, most=limit)
    more = encode_cursor(f"{found[-1].address.lower()} {found[-1].id}") if len(found) == limit else None
    return Page(items=found, next=more)


@router.get("/messages")
def list_messages(
    who: Reader,
    context: Context,
    mailbox_id: UUID | None = None,
    folder: Annotated[str | None, Query(max_length=600)] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[MessageRow]:
    """Newest first: all that you may read, or of one mailbox or folder, each variant of a mail by itself."""
    below = _place(*decode_cursor(cursor, 2)) if cursor else None
    folder = None if folder is None else folder.replace("\0", "")
    with context.reading() as connection:
        scope = scope_of(connection, who).narrowed(mailbox_id)
        found = messages.listed(connection, scope, folder=folder, below=below, most=limit)
    audit.record_look(context.engine, who, "message.listed", "mailbox", mailbox_id, folder=folder, shown=len(found))
    return Page(items=found, next=encode_cursor(found[-1].date.isoformat(), found[-1].id) if len(found) == limit else None)


@router.get("/messages/{message_id}", response_model=MessageShape)
def show_message(message_id: UUID, who: Reader, context: Context, request: Request) -> Response:
    with context.reading() as connection:
        found = messages.detail(connection, scope_of(connection, who), message_id)
    audit.record_look(context.engine, who, "message.read", "message", message_id)
    files_at = f"/api/v1/messages/{message_id}/attachments"
    content = context.opener.read(who.user_id, bytes.fromhex(found.message.sha256), found.message.size_bytes, files_at)
    body = _MESSAGE.dump_json(MessageShape(detail=found, content=content))
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"ETag": etag, "Cache-Control": "private, no-cache"}
    if not_modified(request, etag):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type="application/json", headers=headers)


@router.get("/messages/{message_id}/raw", response_class=StreamingResponse)
def download_message(message_id: UUID, who: Reader, context: Context, request: Request) -> Response:
    """The original bytes. Ranges are understood; the ETag is the SHA-256."""
    with context.reading() as connection:
        sha256, size = messages.visible_hash(connection, scope_of(connection, who), message_id)
    audit.record_look(context.engine, who, "message.downloaded", "message", message_id)
    return download(
        request,
        lambda: context.archive.stream(sha256),
        size=size,
        sha256=sha256,
        name=f"{message_id}.eml",
        content_type="message/rfc822",
    )


@router.get("/messages/{message_id}/attachments/{number}", response_class=StreamingResponse)
def download_attachment(message_id: UUID, number: int, who: Reader, context: Context, request: Request) -> Response:
    """One file of a message, by its number."""
    with context.reading() as connection:
        sha256, size = messages.visible_hash(connection, scope_of(connection, who), message_id)
    file = context.opener.file(who.user_id, sha256, size, number)
    audit.record_look(context.engine, who, "attachment.downloaded", "message", message_id, number=number, name=file.name)
    return download(
        request,
        lambda: iter((file.data,)),
        size=len(file.data),
        sha256=file.sha256,
        name=file.name,
        content_type=file.content_type,
    )


@router.get("/messages/{message_id}/thread")
def show_thread(
    message_id: UUID, who: Reader, context: Context, limit: Limit = messages.THREAD_MOST, cursor: Cursor = None
) -> Page[ThreadRow]:
    """The conversation, oldest first, as far as you may read it. Variants of one mail are one item, which names the others."""
    above = _place(*decode_cursor(cursor, 2)) if cursor else None
    with context.reading() as connection:
        found, further = messages.thread(connection, scope_of(connection, who), message_id, above=above, most=limit)
    audit.record_look(context.engine, who, "message.listed", "message", message_id, shown=len(found))
    return Page(items=found, next=encode_cursor(further.date.isoformat(), further.id) if further else None)


@router.get("/messages/{message_id}/copies")
def list_copies(message_id: UUID, who: Reader, context: Context) -> Page[Copy]:
    """Where it lies, as far as you may see."""
    with context.reading() as connection:
        return Page(items=messages.copies(connection, scope_of(connection, who), message_id))


@router.post(
    "/messages",
    status_code=201,
    openapi_extra={
        "requestBody": {
            "required": True,
            "description": "The message, byte for byte.",
            "content": {
                "message/rfc822": {"schema": {"type": "string", "format": "binary"}},
                "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
            },
        }
    },
)
async def hand_in_message(
    who: Ingester,
    context: Context,
    request: Request,
    mailbox: Annotated[str, Query(max_length=320, description="Address or id.", examples=["alice@example.org"])],
) -> HandedIn:
    """Archive one message, as it is. The same bytes again change nothing, and the answer is the same.

    `429 no_room`: the disk or the outbox is over its limit; try again after `Retry-After`.
    """

    def prepare() -> UUID:
        with context.engine.begin() as connection:
            check_room(context.settings, connection)
            return direct.find_mailbox(connection, who, mailbox)

    mailbox_id = await run_in_threadpool(prepare)
    async with received(request, context.settings) as (path, sha256, size):
        if size == 0:
            raise UsageError("there is no message in this request")
        ingest = Ingest(context.engine, await run_in_threadpool(lambda: context.archive))
        await run_in_threadpool(direct.archive_message, context.engine, ingest, who, mailbox_id, path, sha256)
    return HandedIn(id=message_uuid(sha256), sha256=sha256.hex(), mailbox_id=mailbox_id)


_MESSAGE = TypeAdapter(MessageShape)


def _place(date: str, message_id: str) -> Place:
    try:
        place = Place(datetime.fromisoformat(date), UUID(message_id))
    except ValueError:
        raise UsageError("cursor: not one that a page before this gave") from None
    if place.date.tzinfo is None:
        raise UsageError("cursor: not one that a page before this gave")
    return place
