"""Resumable uploads: a file in any number of pieces, each continuing where the previous one ended."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Header, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field
from starlette.requests import ClientDisconnect

from archiver.db.states import UploadState
from archiver.errors import UsageError
from archiver.http.api.page import Page, RequestBody
from archiver.http.api.receiving import pieces
from archiver.http.auth import Context, Ingester
from archiver.http.context import ApiContext
from archiver.sources import upload_imports, uploads
from archiver.sources.uploads import Upload

router = APIRouter(prefix="/uploads", tags=["uploads"])


class NewUpload(RequestBody):
    name: Annotated[str, Field(min_length=1, max_length=255, examples=["mail.mbox"])]
    size_bytes: Annotated[int, Field(ge=0, le=1 << 50)]
    sha256: Annotated[
        str | None, Field(pattern="^[0-9a-f]{64}$", description="If sent, it is verified when the upload completes.")
    ] = None


class UploadShape(BaseModel):
    id: UUID
    name: str
    size_bytes: int
    offset: Annotated[int, Field(description="Bytes received so far: the next piece starts here.")]
    sha256: str | None
    state: UploadState
    import_id: Annotated[UUID | None, Field(description="The most recent import that reads it.")]
    created_at: datetime


class ImportInto(RequestBody):
    mailbox: Annotated[
        str, Field(max_length=254, description="Address of the mailbox to import into.", examples=["alice@example.org"])
    ]


class ImportStarted(BaseModel):
    import_id: Annotated[UUID, Field(description="`GET /imports/{import_id}` shows its progress.")]
    source_id: UUID
    source: Annotated[str, Field(description="The source of the import; its runs show how it went.")]


@router.post("", status_code=201)
def begin_upload(body: NewUpload, principal: Ingester, context: Context) -> UploadShape:
    """`429 no_room`: the disk is nearly full. `429 backlog`: too much of your mail waits to be imported or indexed. Retry after
    `Retry-After`, which is estimated from how fast the backlog shrinks."""
    uploads.tidy(context.engine, context.settings)
    context.backpressure.admit(context.engine, principal.user_id, body.size_bytes)
    with context.engine.begin() as connection:
        return _shape(context, uploads.begin(connection, context.settings, principal, body.name, body.size_bytes, body.sha256))


@router.get("")
def list_uploads(principal: Ingester, context: Context) -> Page[UploadShape]:
    """Your own uploads."""
    with context.reading() as connection:
        return Page(
            items=[
                _shape(context, one) for one in uploads.listed(connection, principal) if uploads.is_there(context.settings, one)
            ]
        )


@router.get("/{upload_id}")
def show_upload(upload_id: UUID, principal: Ingester, context: Context) -> UploadShape:
    return _shape(context, _load(context, principal, upload_id))


@router.patch(
    "/{upload_id}",
    status_code=204,
    openapi_extra={
        "requestBody": {
            "required": True,
            "description": "The next bytes of the file, any number of them.",
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def send_piece(
    upload_id: UUID,
    principal: Ingester,
    context: Context,
    request: Request,
    upload_offset: Annotated[int, Header(ge=0, le=1 << 50, description="Where this piece starts: the current offset.")],
) -> Response:
    """Bytes received before a connection broke are stored: get the offset, and continue there.

    `429 no_room`: the disk is nearly full; received bytes are stored, continue after `Retry-After`.
    """
    upload = await run_in_threadpool(_resume, context, principal, upload_id)
    with uploads.open_for_append(context.settings, upload, upload_offset) as file:
        try:
            async for piece in pieces(request):
                await run_in_threadpool(uploads.add_piece, context.settings, file, upload, piece)
        except ClientDisconnect:
            raise UsageError(
                "the connection closed before the whole piece arrived: get the offset, and continue there"
            ) from None
        return Response(status_code=204, headers={"Upload-Offset": str(file.tell())})


@router.post("/{upload_id}/complete")
def complete_upload(upload_id: UUID, principal: Ingester, context: Context) -> UploadShape:
    """Compares size and SHA-256 with the announced values."""
    return _shape(context, uploads.complete(context.engine, context.settings, principal, upload_id))


@router.post("/{upload_id}/import", status_code=202)
def import_upload(upload_id: UUID, body: ImportInto, principal: Ingester, context: Context) -> ImportStarted:
    """Import the file like `archiver import` does: mbox, .eml, zip and other supported formats. Users import into their own
    mailbox, administrators into any. The upload is removed once the import has succeeded, not before.

    `429 backlog`: too much of your mail waits to be indexed; the upload stays, retry after `Retry-After`."""
    context.backpressure.admit(context.engine, principal.user_id)
    item = upload_imports.begin(context.engine, context.settings, context.keyring, principal, [upload_id], body.mailbox)
    context.save_config()
    return ImportStarted(import_id=item.id, source_id=item.source_id, source=item.source)


@router.delete("/{upload_id}", status_code=204)
def remove_upload(upload_id: UUID, principal: Ingester, context: Context) -> None:
    """Also discards the upload of a failed import. `409 conflict`: an import is reading it."""
    upload_imports.remove(context.engine, context.settings, principal, upload_id)


def _load(context: ApiContext, principal: Ingester, upload_id: UUID) -> Upload:
    with context.reading() as connection:
        return uploads.load(connection, principal, upload_id)


def _resume(context: ApiContext, principal: Ingester, upload_id: UUID) -> Upload:
    with context.engine.begin() as connection:
        upload = uploads.load(connection, principal, upload_id)
        uploads.renew_reservation(connection, context.settings, upload)
        return upload


def _shape(context: ApiContext, upload: Upload) -> UploadShape:
    return UploadShape(
        id=upload.id,
        name=upload.name,
        size_bytes=upload.size_bytes,
        offset=uploads.offset(context.settings, upload),
        sha256=upload.sha256.hex() if upload.sha256 else None,
        state=upload.state,
        import_id=upload.import_id,
        created_at=upload.created_at,
    )
