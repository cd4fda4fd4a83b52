"""Exports: request, watch, download."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import Field, model_validator

from archiver.exports import service as exports
from archiver.exports.selection import DEFAULT_VOLUME_BYTES, MAX_SELECTED, MIN_VOLUME_BYTES, PackageOptions, Selection
from archiver.exports.service import ExportJob
from archiver.http.api.downloads import download
from archiver.http.api.page import Page, RequestBody
from archiver.http.auth import Context, Exporter
from archiver.http.public_text import without_paths_in

router = APIRouter(prefix="/exports", tags=["exports"])

_PIECE_BYTES = 1 << 20


class NewExport(RequestBody):
    """The results of a search, a mailbox or one of its folders, chosen messages, or everything that you may read."""

    query: Annotated[
        str | None, Field(min_length=1, max_length=2000, description="Words match exactly here; typos are not tolerated.")
    ] = None
    mailbox_id: UUID | None = None
    folder: Annotated[str | None, Field(max_length=1000, description="Of `mailbox_id`; all of its folders without it.")] = None
    message_ids: Annotated[list[UUID], Field(max_length=MAX_SELECTED)] = Field(default_factory=list)
    everything: bool = False
    format: Annotated[
        Literal["eml", "mbox", "maildir", "csv", "pdf", "zip"],
        Field(description="One .eml or .pdf file per message, one mbox or Maildir per folder, or a table. `zip` means `eml`."),
    ] = "eml"
    layout: Annotated[Literal["folders", "dates"], Field(description="The folders that .eml files are in.")] = "folders"
    volume_bytes: Annotated[int, Field(ge=MIN_VOLUME_BYTES, le=1 << 50, description="Size of the zip files.")] = (
        DEFAULT_VOLUME_BYTES
    )

    @model_validator(mode="after")
    def _one_selection(self) -> NewExport:
        if (self.query is not None) + (self.mailbox_id is not None) + bool(self.message_ids) + self.everything != 1:
            raise ValueError("select exactly one: query, mailbox_id, message_ids or everything")
        if self.folder is not None and self.mailbox_id is None:
            raise ValueError("folder needs mailbox_id")
        return self

    def selection(self) -> Selection:
        return Selection(self.query, self.mailbox_id, self.folder, tuple(self.message_ids), self.everything)

    def options(self) -> PackageOptions:
        return PackageOptions("eml" if self.format == "zip" else self.format, self.layout, self.volume_bytes)


@router.post("", status_code=202)
def request_export(body: NewExport, principal: Exporter, context: Context) -> ExportJob:
    """Written by the workers, with what you may read at that time, packed in zip files, signed, and stored for a week.

    All your exports together may contain at most `EXPORT_MAX_BYTES` of mail (`409 too_many_exports`: remove some first).
    """
    with context.engine.begin() as connection:
        export_id = exports.request(connection, context.settings, principal, body.selection(), body.options())
        return exports.load(connection, principal, export_id)


@router.get("")
def list_exports(principal: Exporter, context: Context) -> Page[ExportJob]:
    """Your own exports."""
    with context.reading() as connection:
        return Page(items=[without_paths_in(item, "error") for item in exports.listed(connection, principal)])


@router.get("/{export_id}")
def show_export(export_id: UUID, principal: Exporter, context: Context) -> ExportJob:
    with context.reading() as connection:
        return without_paths_in(exports.load(connection, principal, export_id), "error")


@router.get("/{export_id}/file", response_class=StreamingResponse)
def download_export(export_id: UUID, principal: Exporter, context: Context, request: Request) -> Response:
    """The only volume. An export with several is downloaded file by file."""
    return send_volume(request, *exports.downloadable(context.engine, context.settings, principal, export_id))


@router.get("/{export_id}/files/{name}", response_class=StreamingResponse)
def download_volume(export_id: UUID, name: str, principal: Exporter, context: Context, request: Request) -> Response:
    """One of the volumes that `files` names."""
    return send_volume(request, *exports.downloadable(context.engine, context.settings, principal, export_id, name))


@router.delete("/{export_id}", status_code=204)
def remove_export(export_id: UUID, principal: Exporter, context: Context) -> None:
    """Cancels an export that is being written; removes a finished one."""
    exports.remove(context.engine, context.settings, principal, export_id)


def send_volume(request: Request, item: ExportJob, path: Path) -> Response:
    """Resumable: what has a name is complete, and never changes."""
    return download(
        request,
        lambda: _pieces(path),
        size=path.stat().st_size,
        sha256=item.id.bytes + path.name.encode(),
        name=f"{item.finished_at:%Y-%m-%d}-{path.name}",
        content_type="application/zip",
    )


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece
