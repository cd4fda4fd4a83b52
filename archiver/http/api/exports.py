"""Export jobs: request, watch, download."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import Field, model_validator

from archiver.http.api.downloads import download
from archiver.http.api.page import Page, RequestBody
from archiver.http.auth import Context, Exporter
from archiver.http.context import ApiContext
from archiver.http.public_text import without_paths_in
from archiver.logs import get_logger
from archiver.reading import export_jobs
from archiver.reading.export_jobs import ExportJob

router = APIRouter(prefix="/exports", tags=["exports"])
log = get_logger("api")

_PIECE_BYTES = 1 << 20
_POLL_SECONDS = 60.0


class NewExport(RequestBody):
    """The results of a search, one mailbox, or everything that you may read."""

    query: Annotated[
        str | None, Field(min_length=1, max_length=2000, description="Words match exactly here; typos are not tolerated.")
    ] = None
    mailbox_id: UUID | None = None
    everything: bool = False
    format: Annotated[
        Literal["zip", "mbox"], Field(description="zip: one .eml file per message and a manifest of SHA-256 values.")
    ] = "zip"

    @model_validator(mode="after")
    def _one_selection(self) -> NewExport:
        if (self.query is not None) + (self.mailbox_id is not None) + self.everything != 1:
            raise ValueError("select exactly one: query, mailbox_id or everything")
        return self


@router.post("", status_code=202)
def request_export(body: NewExport, principal: Exporter, context: Context) -> ExportJob:
    """Written in the background, with what you may read at that time, and stored for a week.

    All your exports together may contain at most `EXPORT_MAX_BYTES` of mail (`409 too_many_exports`: remove some first).
    """
    selection = body.model_dump(mode="json", exclude={"format"}, exclude_defaults=True)
    with context.engine.begin() as connection:
        job = export_jobs.request(connection, context.settings, principal, selection, body.format)
    context.export_requested.set()
    return job


@router.get("")
def list_exports(principal: Exporter, context: Context) -> Page[ExportJob]:
    """Your own exports."""
    with context.reading() as connection:
        return Page(items=[without_paths_in(item, "error") for item in export_jobs.listed(connection, principal)])


@router.get("/{export_id}")
def show_export(export_id: UUID, principal: Exporter, context: Context) -> ExportJob:
    with context.reading() as connection:
        return without_paths_in(export_jobs.load(connection, principal, export_id), "error")


@router.get("/{export_id}/file", response_class=StreamingResponse)
def download_export(export_id: UUID, principal: Exporter, context: Context, request: Request) -> Response:
    item, path = export_jobs.finished_file(context.engine, context.settings, principal, export_id)
    return download(
        request,
        lambda: _pieces(path),
        size=path.stat().st_size,
        sha256=export_id.bytes,
        name=f"export-{item.finished_at:%Y-%m-%d}.{item.format}",
        content_type="application/zip" if item.format == "zip" else "application/octet-stream",
    )


@router.delete("/{export_id}", status_code=204)
def remove_export(export_id: UUID, principal: Exporter, context: Context) -> None:
    with context.engine.begin() as connection:
        export_jobs.remove(connection, context.settings, principal, export_id)


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece


def run_exports(context: ApiContext) -> None:
    """Runs in a thread of the web process: new requests, and jobs that a previous process left unfinished."""
    while not context.stopping.is_set():
        try:
            export_jobs.run_open(context.engine, context.archive, context.settings)
        except Exception as error:  # noqa: BLE001  (Postgres or the store may be unavailable for a while)
            log.warning("exports_wait", error=type(error).__name__)
        context.export_requested.wait(_POLL_SECONDS)
        context.export_requested.clear()


def start_exports(context: ApiContext) -> threading.Thread:
    thread = threading.Thread(target=run_exports, args=(context,), name="exports", daemon=True)
    thread.start()
    return thread
