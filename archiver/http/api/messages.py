"""Messages: list, read, download, submit."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field, TypeAdapter

from archiver.access import audit
from archiver.access.scope import scope_of
from archiver.db.ids import message_uuid
from archiver.errors import UsageError
from archiver.http.api.downloads import download, not_modified
from archiver.http.api.page import INVALID_CURSOR, Cursor, Limit, Page, decode_cursor, encode_cursor
from archiver.http.api.receiving import receive_body
from archiver.http.auth import Context, Ingester, Reader
from archiver.reading import messages
from archiver.reading.content import MailContent
from archiver.reading.messages import Copy, MailboxRow, MessageDetail, MessageRow, PageCursor, ThreadRow
from archiver.sources import submit
from archiver.store.capacity import check_disk_for_one
from archiver.sync.ingest.store_batch import Ingest

router = APIRouter(tags=["messages"])


class MessageShape(BaseModel):
    detail: MessageDetail
    content: Annotated[MailContent, Field(description="Parsed from the original bytes; `html` is safe for a sandboxed frame.")]


class HandedIn(BaseModel):
    """The same for new bytes and for bytes that were already archived."""

    id: UUID
    sha256: str
    mailbox_id: UUID


@router.get("/mailboxes")
def list_mailboxes(principal: Reader, context: Context, limit: Limit = 100, cursor: Cursor = None) -> Page[MailboxRow]:
    """The mailboxes that you may read, with their folders."""
    after = decode_cursor(cursor, 1)[0].replace("\0", "") if cursor else ""
    with context.reading() as connection:
        found = messages.mailboxes(connection, scope_of(connection, principal), after=after, limit=limit)
    more = encode_cursor(f"{found[-1].address.lower()} {found[-1].id}") if len(found) == limit else None
    return Page(items=found, next=more)


@router.get("/messages")
def list_messages(
    principal: Reader,
    context: Context,
    mailbox_id: UUID | None = None,
    folder: Annotated[str | None, Query(max_length=600)] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[MessageRow]:
    """All messages that you may read, newest first, or those of one mailbox or folder. Variants are listed separately."""
    below = _parse_cursor(*decode_cursor(cursor, 2)) if cursor else None
    folder = None if folder is None else folder.replace("\0", "")
    with context.reading() as connection:
        scope = scope_of(connection, principal).narrow_to(mailbox_id)
        found = messages.listed(connection, scope, folder=folder, below=below, limit=limit)
    audit.record_look(context.engine, principal, "message.listed", "mailbox", mailbox_id, folder=folder, shown=len(found))
    return Page(items=found, next=encode_cursor(found[-1].date.isoformat(), found[-1].id) if len(found) == limit else None)


@router.get("/messages/{message_id}", response_model=MessageShape)
def show_message(message_id: UUID, principal: Reader, context: Context, request: Request) -> Response:
    with context.reading() as connection:
        found = messages.detail(connection, scope_of(connection, principal), message_id)
    audit.record_look(context.engine, principal, "message.read", "message", message_id)
    files_at = f"/api/v1/messages/{message_id}/attachments"
    content = context.opener.read(principal.user_id, bytes.fromhex(found.message.sha256), found.message.size_bytes, files_at)
    body = _MESSAGE.dump_json(MessageShape(detail=found, content=content))
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"ETag": etag, "Cache-Control": "private, no-cache"}
    if not_modified(request, etag):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type="application/json", headers=headers)


@router.get("/messages/{message_id}/raw", response_class=StreamingResponse)
def download_message(message_id: UUID, principal: Reader, context: Context, request: Request) -> Response:
    """The original bytes. Ranges are supported; the ETag is the SHA-256."""
    with context.reading() as connection:
        sha256, size = messages.visible_hash(connection, scope_of(connection, principal), message_id)
    audit.record_look(context.engine, principal, "message.downloaded", "message", message_id)
    return download(
        request,
        lambda: context.archive.stream(sha256),
        size=size,
        sha256=sha256,
        name=f"{message_id}.eml",
        content_type="message/rfc822",
    )


@router.get("/messages/{message_id}/attachments/{number}", response_class=StreamingResponse)
def download_attachment(message_id: UUID, number: int, principal: Reader, context: Context, request: Request) -> Response:
    """One attachment of a message, by its number."""
    with context.reading() as connection:
        sha256, size = messages.visible_hash(connection, scope_of(connection, principal), message_id)
    file = context.opener.file(principal.user_id, sha256, size, number)
    audit.record_look(context.engine, principal, "attachment.downloaded", "message", message_id, number=number, name=file.name)
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
    message_id: UUID, principal: Reader, context: Context, limit: Limit = messages.THREAD_MOST, cursor: Cursor = None
) -> Page[ThreadRow]:
    """The conversation, oldest first, as far as you may read it. Variants of a message are one item, which lists the others."""
    above = _parse_cursor(*decode_cursor(cursor, 2)) if cursor else None
    with context.reading() as connection:
        found, further = messages.thread(connection, scope_of(connection, principal), message_id, above=above, limit=limit)
    audit.record_look(context.engine, principal, "message.listed", "message", message_id, shown=len(found))
    return Page(items=found, next=encode_cursor(further.date.isoformat(), further.id) if further else None)


@router.get("/messages/{message_id}/copies")
def list_copies(message_id: UUID, principal: Reader, context: Context) -> Page[Copy]:
    """The copies of the message in mailboxes that you may read."""
    with context.reading() as connection:
        return Page(items=messages.copies(connection, scope_of(connection, principal), message_id))


@router.post(
    "/messages",
    status_code=201,
    openapi_extra={
        "requestBody": {
            "required": True,
            "description": "The message, byte for byte as it should be archived.",
            "content": {
                "message/rfc822": {"schema": {"type": "string", "format": "binary"}},
                "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
            },
        }
    },
)
async def hand_in_message(
    principal: Ingester,
    context: Context,
    request: Request,
    mailbox: Annotated[str, Query(max_length=320, description="Address or ID.", examples=["alice@example.org"])],
) -> HandedIn:
    """Archive one message unchanged. Submitting the same bytes again changes nothing and returns the same response.

    `429 no_room`: the disk is nearly full; retry after `Retry-After`. A backlog of bulk imports never refuses single messages.
    """

    def prepare() -> UUID:
        check_disk_for_one(context.settings)
        with context.engine.begin() as connection:
            return submit.find_mailbox(connection, principal, mailbox)

    mailbox_id = await run_in_threadpool(prepare)
    async with receive_body(request, context.settings) as (path, sha256, size):
        if size == 0:
            raise UsageError("the request body is empty: send the message's bytes")
        ingest = Ingest(context.engine, await run_in_threadpool(lambda: context.archive))
        await run_in_threadpool(submit.archive_message, context.engine, ingest, principal, mailbox_id, path, sha256)
    return HandedIn(id=message_uuid(sha256), sha256=sha256.hex(), mailbox_id=mailbox_id)


_MESSAGE = TypeAdapter(MessageShape)


def _parse_cursor(date: str, message_id: str) -> PageCursor:
    try:
        position = PageCursor(datetime.fromisoformat(date), UUID(message_id))
    except ValueError:
        raise UsageError(INVALID_CURSOR) from None
    if position.date.tzinfo is None:
        raise UsageError(INVALID_CURSOR)
    return position
