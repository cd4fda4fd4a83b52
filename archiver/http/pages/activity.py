"""Activity: running, waiting and failed work."""

from __future__ import annotations

import shutil
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi.responses import Response

from archiver.access.principal import Right
from archiver.access.scope import scope_of
from archiver.db.pause import find_pause
from archiver.errors import UsageError
from archiver.http.pages.base import Form, Posted, View, Viewed, parse_id, redirect
from archiver.maintenance import status
from archiver.maintenance.checks.health import check_parts
from archiver.sources import dead_letters, runs
from archiver.sources.dead_letters import DeadLetterFilter
from archiver.workflows import service as workflows

router = APIRouter(include_in_schema=False)

_LETTERS = 100


def _may_view(view: Viewed) -> View:
    view.principal.require(Right.VIEW)
    return view


CanView = Annotated[View, Depends(_may_view)]


@router.get("/activity")
def activity_page(view: CanView, discarded: bool = False) -> Response:
    context = view.context
    with context.reading() as connection:
        sessions = [(one, runs.mailboxes(connection, one.session_id, 20)) for one in runs.running(connection)]
        scope = scope_of(connection, view.principal)
        pause = find_pause(connection)
        recent = workflows.recent(connection)
        letters = dead_letters.listed(connection, DeadLetterFilter(discarded=discarded), limit=_LETTERS, scope=scope)
    url = context.settings.redis_url
    values: dict[str, Any] = {
        "parts": check_parts(context.settings),
        "pause": pause,
        "sessions": sessions,
        "letters": letters,
        "workflows": recent,
        "discarded": discarded,
        "counts": status.count_rows(context.engine),
        "queues": status.count_jobs(url.get_secret_value()) if url else {},
        "workers": status.workers_alive(url.get_secret_value()) if url else {},
        "index": status.index_state(context.engine),
        "pressure": context.backpressure.pressure(context.engine),
        "limits": context.backpressure.limits,
        "owners": context.backpressure.owners(context.engine) if Right.ADMIN in view.principal.rights else [],
        "disk_free": shutil.disk_usage(context.settings.archiver_data).free,
        "disk_least": context.settings.disk_min_free_bytes,
    }
    return view.page("activity.html", **values)


@router.get("/activity/dead-letters")
def dead_letters_address(_: CanView) -> Response:
    """The address of a form, which a browser may open again after a sign-in."""
    return redirect("/dead-letters")


@router.post("/activity/dead-letters")
def resolve_dead_letter(view: Posted, form: Form) -> Response:
    view.principal.require(Right.ADMIN)
    actions = {"retry": dead_letters.retry, "discard": dead_letters.discard}
    if form.get("do") not in actions:
        raise UsageError("unknown action: expected retry or discard")
    with view.context.engine.begin() as connection:
        actions[form["do"]](connection, dead_letters.find(connection, str(parse_id(form.get("id", "")))), view.principal)
    return redirect("/activity#dead-letters")
