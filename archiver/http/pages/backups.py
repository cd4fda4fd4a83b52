"""Backups: where they go, when, whether the newest one can be restored; and both at the press of a button."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from archiver.access.principal import Right
from archiver.errors import ArchiverError, UsageError
from archiver.http.pages.base import Form, Posted, View, Viewed, redirect
from archiver.maintenance.backups import schedule
from archiver.maintenance.checks import outcomes
from archiver.workflows import service as workflows

router = APIRouter(include_in_schema=False)

_WORKFLOWS = ("backup", "drill")


@router.get("/backups")
def backups_page(view: Viewed) -> Response:
    return _page(view)


def _page(view: View, status: int = 200, error: str | None = None) -> Response:
    view.principal.require(Right.VIEW)
    settings, now = view.context.settings, datetime.now(UTC)
    with view.context.reading() as connection:
        values: dict[str, Any] = {
            "backup": outcomes.load(connection, outcomes.BACKUP),
            "drill": outcomes.load(connection, outcomes.DRILL),
            "next_backup": schedule.next_backup(connection, settings, now),
            "next_drill": schedule.next_drill(connection, settings, now),
            "runs": [run for run in workflows.recent(connection, 200) if run.workflow in _WORKFLOWS][:20],
        }
    return view.page("backups.html", status, target=settings.backup_target, keep=settings.backup_keep, error=error, **values)


@router.post("/backups")
def start(view: Posted, form: Form) -> Response:
    view.principal.require(Right.ADMIN)
    actions = {"backup": schedule.start_backup, "drill": schedule.start_drill}
    act = actions.get(form.get("do", ""))
    if act is None:
        raise UsageError(f"unknown action {form.get('do', '')[:20]!r}: expected backup or drill")
    try:
        with view.context.engine.begin() as connection:
            act(connection, view.context.settings, view.principal)
    except ArchiverError as error:
        return _page(view, 400, error=str(error))
    return redirect("/backups")
