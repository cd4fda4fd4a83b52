"""Activity: what runs, what waits, what failed."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi.responses import Response

from archiver.errors import UsageError
from archiver.services import dead_letters, overview, runs
from archiver.services.access import scope_of
from archiver.services.health import check_parts
from archiver.services.principal import Right
from archiver.web.pages.base import Form, Posted, View, Viewed, given_id, see

router = APIRouter(include_in_schema=False)

_LETTERS = 100


def _may_view(view: Viewed) -> View:
    view.who.require(Right.VIEW)
    return view


Looking = Annotated[View, Depends(_may_view)]


@router.get("/activity")
def activity_page(view: Looking, discarded: bool = False) -> Response:
    context = view.context
    with context.reading() as connection:
        sessions = [(one, runs.mailboxes(connection, one.session_id, 20)) for one in runs.running(connection)]
        scope = scope_of(connection, view.who)
        letters = dead_letters.listed(connection, None, discarded=discarded, most=_LETTERS, scope=scope)
    url = context.settings.redis_url
    values: dict[str, Any] = {
        "parts": check_parts(context.settings),
        "sessions": sessions,
        "letters": letters,
        "discarded": discarded,
        "counts": overview.count_rows(context.engine),
        "queues": overview.count_jobs(url.get_secret_value()) if url else {},
        "workers": overview.workers_alive(url.get_secret_value()) if url else {},
        "index": overview.index_state(context.engine),
    }
    return view.page("activity.html", **values)


@router.post("/activity/dead-letters")
def settle(view: Posted, given: Form) -> Response:
    view.who.require(Right.ADMIN)
    actions = {"retry": dead_letters.retry, "discard": dead_letters.discard}
    if given.get("do") not in actions:
        raise UsageError("a dead letter can be retried or discarded")
    with view.context.engine.begin() as connection:
        actions[given["do"]](connection, dead_letters.find(connection, str(given_id(given.get("id", "")))), view.who)
    return see("/activity#dead-letters")
