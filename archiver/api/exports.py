"""Export jobs: asked for, watched, downloaded."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal
from uuid import UUID

import structlog
from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import Field, model_validator

from archiver.api.auth import Context, Exporter
from archiver.api.context import ApiContext
from archiver.api.downloads import download
from archiver.api.page import Body, Page
from archiver.services import exports
from archiver.services.exports import Export

router = APIRouter(prefix="/exports", tags=["exports"])
log = structlog.get_logger("api")

_PIECE_BYTES = 1 << 20
_LOOK_SECONDS = 60.0


class NewExport(Body):
    """What a search finds, one mailbox, or all that you may read."""

    query: Annotated[str | None, Field(min_length=1, max_length=2000, description="Words have to be exact here.")] = None
    mailbox_id: UUID | None = None
    everything: bool = False
    format: Annotated[
        Literal["zip", "mbox"], Field(description="zip: one .eml a message, with a manifest of SHA-256 values.")
    ] = "zip"

    @model_validator(mode="after")
    def _one_selection(self) -> NewExport:
        if (self.query is not None) + (self.mailbox_id is not None) + self.everything != 1:
            raise ValueError("say what to export: query, mailbox_id, or everything")
        return self


@router.post("", status_code=202)
def request_export(given: NewExport, who: Exporter, context: Context) -> Export:
    """It is written in the background, with what you may read at that time, and kept for a week.

    All your exports together hold at most `EXPORT_MAX_BYTES` of mail (`409 too_many_exports`: remove some first).
    """
    selection = given.model_dump(mode="json", exclude={"format"}, exclude_defaults=True)
    with context.engine.begin() as connection:
        made = exports.request(connection, context.settings, who, selection, given.format)
    context.exports_wanted.set()
    return made


@router.get("")
def list_exports(who: Exporter, context: Context) -> Page[Export]:
    """Your own."""
    with context.reading() as connection:
        return Page(items=exports.listed(connection, who))


@router.get("/{export_id}")
def show_export(export_id: UUID, who: Exporter, context: Context) -> Export:
    with context.reading() as connection:
        return exports.load(connection, who, export_id)


@router.get("/{export_id}/file", response_class=StreamingResponse)
def download_export(export_id: UUID, who: Exporter, context: Context, request: Request) -> Response:
    item, path = exports.finished_file(context.engine, context.settings, who, export_id)
    return download(
        request,
        lambda: _pieces(path),
        size=path.stat().st_size,
        sha256=export_id.bytes,
        name=f"export-{item.finished_at:%Y-%m-%d}.{item.format}",
        content_type="application/zip" if item.format == "zip" else "application/octet-stream",
    )


@router.delete("/{export_id}", status_code=204)
def remove_export(export_id: UUID, who: Exporter, context: Context) -> None:
    with context.engine.begin() as connection:
        exports.remove(connection, context.settings, who, export_id)


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece


def run_exports(context: ApiContext) -> None:
    """A thread of the web process: does what is asked for here, and what another process has left."""
    while not context.stopping.is_set():
        try:
            exports.run_open(context.engine, context.archive, context.settings)
        except Exception as error:  # noqa: BLE001  (servers may be away for a while)
            log.warning("exports_wait", error=type(error).__name__)
        context.exports_wanted.wait(_LOOK_SECONDS)
        context.exports_wanted.clear()


def start_exports(context: ApiContext) -> threading.Thread:
    thread = threading.Thread(target=run_exports, args=(context,), name="exports", daemon=True)
    thread.start()
    return thread
