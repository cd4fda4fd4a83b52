"""What is done with selected messages: tags, notes, holds and deletions; how far a change is, and its undo."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from fastapi import APIRouter, BackgroundTasks
from fastapi.responses import JSONResponse, Response

from archiver.access.principal import Right
from archiver.access.scope import scope_of
from archiver.errors import NotFound, UsageError
from archiver.exports.selection import Selection
from archiver.http.api.holds import refresh
from archiver.http.pages.base import Form, Posted, View, Viewed, local_path, parse_id, redirect
from archiver.http.pages.change_notice import describe_change
from archiver.http.pages.exports import selected_ids
from archiver.http.pages.search import link
from archiver.marks import changes, notes, tags
from archiver.marks import workflow as change_runs
from archiver.marks.changes import ChangeAction, ChangeRequest
from archiver.reading import messages
from archiver.retention import holds
from archiver.retention.holds import NewHold

router = APIRouter(include_in_schema=False)

_ASKED_FIRST = ("hold", "delete")


@router.post("/selection")
def change_selection(view: Posted, form: Form) -> Response:
    """`do`: tag, untag or note at once; hold and delete after a page that asks for the reason."""
    action = form.get("do", "")
    if action in _ASKED_FIRST:
        view.principal.require(Right.ADMIN)
        return _ask(view, form, action)
    if action not in ("tag", "untag", "note"):
        raise UsageError("unknown action: expected tag, untag, note, hold or delete")
    is_shared = form.get("shared") == "on"
    kind = "shared_note" if action == "note" and is_shared else action
    request = ChangeRequest(ChangeAction(kind), form.get("note" if action == "note" else "tag", ""), is_shared)
    return _start(view, form, request)


def _ask(view: View, form: dict[str, str], action: str, error: str = "") -> Response:
    is_all, ids = form.get("all") == "on", selected_ids(form)
    query = form.get("q", "").strip()
    count = len(ids)
    if is_all:
        if not query:
            raise UsageError(view.t("selection.not_everything"))
        count = view.context.search.search_as(view.principal, query, limit=0, zone=view.zone).total
    elif not ids:
        raise UsageError(view.t("search.selection"))
    values: dict[str, Any] = {
        "action": action,
        "is_all": is_all,
        "ids": {f"id.{one}": "" for one in ids},
        "q": query,
        "count": count,
        "next": _next(form),
        "form": form,
        "error": error,
    }
    return view.page("selection.html", 422 if error else 200, **values)


@router.post("/selection/confirmed")
def change_confirmed(view: Posted, form: Form, background: BackgroundTasks) -> Response:
    """A hold or a deletion, with its reason."""
    view.principal.require(Right.ADMIN)
    action = form.get("do", "")
    if action not in _ASKED_FIRST:
        raise UsageError("unknown action: expected hold or delete")
    if not form.get("reason", "").strip():
        return _ask(view, form, action, view.t("selection.reason_missing"))
    if action == "delete":
        return _start(view, form, ChangeRequest(ChangeAction.DELETE, form["reason"]))
    query = form.get("q", "").strip() if form.get("all") == "on" else None
    new = NewHold(
        form.get("name", ""),
        form["reason"],
        query=query,
        message_ids=() if query else _visible(view, selected_ids(form)),
        zone=_zone(view),
    )
    try:
        hold = holds.place(view.context.engine, view.principal, new)
    except UsageError as error:
        return _ask(view, form, action, str(error))
    view.context.save_config()
    background.add_task(refresh, view.context, hold)
    return redirect(f"/retention#hold-{hold.id}")


def _start(view: View, form: dict[str, str], request: ChangeRequest) -> Response:
    """Few messages are changed at once; a worker changes many, and deletes."""
    is_all, ids, query = form.get("all") == "on", selected_ids(form), form.get("q", "").strip()
    if not is_all and not ids:
        raise UsageError(view.t("search.selection"))
    if is_all or len(ids) > changes.DIRECT or request.action is ChangeAction.DELETE:
        if is_all:
            selection = Selection(query=query, zone=_zone(view)) if query else Selection(everything=True)
            _check_query(view, query)
        else:
            selection = Selection(message_ids=_visible(view, ids))
        with view.context.engine.begin() as connection:
            change = change_runs.start(connection, view.principal, request, selection)
    else:
        with view.context.engine.begin() as connection:
            change = changes.change_now(connection, view.principal, scope_of(connection, view.principal), request, ids)
        view.context.save_config()
    target = _next(form)
    return redirect(f"{target}{'&' if '?' in target else '?'}change={change.id}")


def _visible(view: View, ids: tuple[UUID, ...]) -> tuple[UUID, ...]:
    with view.context.reading() as connection:
        seen = messages.visible_among(connection, scope_of(connection, view.principal), ids)
    if len(seen) < len(ids):
        raise NotFound(f"there is no message {next(one for one in ids if one not in seen)}")
    return ids


def _check_query(view: View, query: str) -> None:
    """One that can't be answered is refused now, and not by a worker later."""
    with view.context.reading() as connection:
        scope = scope_of(connection, view.principal)
    view.context.search.message_ids(query, scope, zone=view.zone)


def _zone(view: View) -> str:
    return str(getattr(view.zone, "key", "UTC"))


def _next(form: dict[str, str]) -> str:
    return local_path(form.get("next"), link(form.get("q", "").strip()))


@router.get("/changes/{change_id}")
def show_change(view: Viewed, change_id: UUID) -> Response:
    return JSONResponse(describe_change(view, str(change_id)), headers={"Cache-Control": "private, no-store"})


@router.post("/changes/{change_id}/undo")
def undo_change(view: Posted, form: Form, change_id: UUID) -> Response:
    with view.context.engine.begin() as connection:
        changes.undo(connection, view.principal, change_id)
    view.context.save_config()
    target = _next(form)
    return redirect(f"{target}{'&' if '?' in target else '?'}change={change_id}")


@router.get("/tags")
def tags_page(view: Viewed) -> Response:
    with view.context.reading() as connection:
        listed = tags.list_tags(connection, scope_of(connection, view.principal))
    return view.page("tags.html", listed=listed, search=lambda name: link(f'tag:"{name}"'))


@router.post("/tags/remove")
def remove_tag(view: Posted, form: Form) -> Response:
    with view.context.engine.begin() as connection:
        tags.remove(connection, view.principal, parse_id(form.get("id", "")))
    view.context.save_config()
    return redirect("/tags")


@router.post("/messages/{message_id}/notes")
def change_notes(view: Posted, form: Form, message_id: UUID) -> Response:
    action, is_shared, text = form.get("do", ""), form.get("shared") == "on", form.get("note", "")
    with view.context.engine.begin() as connection:
        scope = scope_of(connection, view.principal)
        if action == "remove":
            notes.remove(connection, view.principal, scope, message_id, parse_id(form.get("id", "")))
        elif action == "change":
            note = parse_id(form.get("id", ""))
            notes.change(connection, view.principal, scope, message_id, note, text, is_shared=is_shared)
        elif action == "add":
            notes.add(connection, view.principal, scope, message_id, text, is_shared=is_shared)
        else:
            raise UsageError("unknown action: expected add, change or remove")
    view.context.save_config()
    return redirect(local_path(form.get("next"), f"/messages/{message_id}") + "#notes")
