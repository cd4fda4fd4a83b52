"""Clean-ups of one source: the dry run, the start, and the log."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from fastapi import APIRouter
from fastapi.responses import Response

from archiver.access.principal import Right
from archiver.cleanups import service as cleanups
from archiver.errors import ArchiverError, NotFound
from archiver.http.pages.base import Form, Posted, View, Viewed, parse_id, redirect
from archiver.sources import rows

router = APIRouter(include_in_schema=False)

_SHOWN = 200


@router.get("/sources/{source_id}/cleanup")
def cleanup_page(view: Viewed, source_id: UUID) -> Response:
    return _page(view, source_id)


def _page(view: View, source_id: UUID, status: int = 200, error: str | None = None) -> Response:
    view.principal.require(Right.ADMIN)
    with view.context.reading() as connection:
        source = rows.load(connection, source_id)
        if source is None or source.removed_at is not None:
            raise NotFound(f"there is no source {source_id}")
        jobs = cleanups.list_cleanups(connection, view.principal, source_id)
        kept = cleanups.list_entries(connection, view.principal, jobs[0].id, "kept", limit=_SHOWN) if jobs else []
    values: dict[str, Any] = {"source": source, "jobs": jobs, "kept": kept, "error": error}
    values["days"] = source.settings.get("delete_after_days")
    values["needs_backup"] = source.settings.get("delete_needs_backup", True)
    return view.page("source_cleanup.html", status, **values)


@router.post("/sources/{source_id}/cleanup")
def change_cleanup(view: Posted, form: Form, source_id: UUID) -> Response:
    view.principal.require(Right.ADMIN)
    try:
        with view.context.engine.begin() as connection:
            source = rows.load(connection, source_id)
            if source is None:
                raise NotFound(f"there is no source {source_id}")
            match form.get("do"):
                case "check":
                    cleanups.request(connection, view.principal, source)
                case "start":
                    cleanups.start(connection, view.principal, parse_id(form.get("id", "")))
                case _:
                    cleanups.cancel(connection, view.principal, parse_id(form.get("id", "")))
    except ArchiverError as error:
        return _page(view, source_id, 409, str(error))
    return redirect(f"/sources/{source_id}/cleanup")
