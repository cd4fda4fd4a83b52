"""Uploads: a file in as many pieces as it takes, each one going on where the last one ended."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Header, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field
from starlette.requests import ClientDisconnect

from archiver.api.auth import Context, Ingester
from archiver.api.context import ApiContext
from archiver.api.page import Body, Page
from archiver.api.receiving import pieces
from archiver.errors import UsageError
from archiver.models.states import UploadState
from archiver.services import upload_imports, uploads
from archiver.services.uploads import Upload

router = APIRouter(prefix="/uploads", tags=["uploads"])


class NewUpload(Body):
    name: Annotated[str, Field(min_length=1, max_length=255, examples=["mail.mbox"])]
    size_bytes: Annotated[int, Field(ge=0, le=1 << 50)]
    sha256: Annotated[str | None, Field(pattern="^[0-9a-f]{64}$", description="If given, it is compared at the end.")] = None


class UploadShape(BaseModel):
    id: UUID
    name: str
    size_bytes: int
    offset: Annotated[int, Field(description="How much has arrived: the next piece goes on here.")]
    sha256: str | None
    state: UploadState
    import_id: Annotated[UUID | None, Field(description="The newest import that reads it.")]
    created_at: datetime


class ImportInto(Body):
    mailbox: Annotated[str, Field(max_length=254, description="Whose mail it is.", examples=["alice@example.org"])]


class ImportStarted(BaseModel):
    import_id: Annotated[UUID, Field(description="`GET /imports/{import_id}` says how it goes.")]
    source_id: UUID
    source: Annotated[str, Field(description="The source of the import; its runs say how it went.")]


@router.post("", status_code=201)
def begin_upload(given: NewUpload, who: Ingester, context: Context) -> UploadShape:
    """`429 no_room`: the disk or the outbox is over its limit; try again after `Retry-After`."""
    uploads.tidy(context.engine, context.settings)
    with context.engine.begin() as connection:
        return _shape(context, uploads.begin(connection, context.settings, who, given.name, given.size_bytes, given.sha256))


@router.get("")
def list_uploads(who: Ingester, context: Context) -> Page[UploadShape]:
    """Your own."""
    with context.reading() as connection:
        return Page(
            items=[_shape(context, one) for one in uploads.listed(connection, who) if uploads.is_there(context.settings, one)]
        )


@router.get("/{upload_id}")
def show_upload(upload_id: UUID, who: Ingester, context: Context) -> UploadShape:
    return _shape(context, _load(context, who, upload_id))


@router.patch(
    "/{upload_id}",
    status_code=204,
    openapi_extra={
        "requestBody": {
            "required": True,
            "description": "The next bytes of the file, as many as you like.",
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def send_piece(
    upload_id: UUID,
    who: Ingester,
    context: Context,
    request: Request,
    upload_offset: Annotated[int, Header(ge=0, le=1 << 50, description="Where this piece begins: the offset so far.")],
) -> Response:
    """What arrived of a piece that broke off stays: ask for the offset, and go on there.

    `429 no_room`: the disk is nearly full; what arrived stays, go on after `Retry-After`.
    """
    upload = await run_in_threadpool(_go_on, context, who, upload_id)
    with uploads.appending(context.settings, upload, upload_offset) as file:
        try:
            async for piece in pieces(request):
                await run_in_threadpool(uploads.add_piece, context.settings, file, upload, piece)
        except ClientDisconnect:
            raise UsageError("the connection broke off") from None
        return Response(status_code=204, headers={"Upload-Offset": str(file.tell())})


@router.post("/{upload_id}/complete")
def complete_upload(upload_id: UUID, who: Ingester, context: Context) -> UploadShape:
    """Compares size and SHA-256 with what was announced."""
    return _shape(context, uploads.complete(context.engine, context.settings, who, upload_id))


@router.post("/{upload_id}/import", status_code=202)
def import_upload(upload_id: UUID, given: ImportInto, who: Ingester, context: Context) -> ImportStarted:
    """Read the file into the archive, as `archiver import` does: mbox, .eml, zip and what else it knows. Into your own mailbox;
    as an administrator into any. The upload is removed when the import has succeeded, and not before."""
    item = upload_imports.begin(context.engine, context.settings, context.keyring, who, [upload_id], given.mailbox)
    context.keep_config()
    return ImportStarted(import_id=item.id, source_id=item.source_id, source=item.source)


@router.delete("/{upload_id}", status_code=204)
def remove_upload(upload_id: UUID, who: Ingester, context: Context) -> None:
    """`409 conflict`: an import reads it. After an import that did not succeed, this discards it."""
    upload_imports.remove(context.engine, context.settings, who, upload_id)


def _load(context: ApiContext, who: Ingester, upload_id: UUID) -> Upload:
    with context.reading() as connection:
        return uploads.load(connection, who, upload_id)


def _go_on(context: ApiContext, who: Ingester, upload_id: UUID) -> Upload:
    with context.engine.begin() as connection:
        upload = uploads.load(connection, who, upload_id)
        uploads.go_on(connection, context.settings, upload)
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
