"""Restores: choose what and where to, look at the dry run, start, and read the report."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from fastapi import APIRouter
from fastapi.responses import Response

from archiver.access.principal import Right
from archiver.errors import ArchiverError, UsageError
from archiver.exports.selection import MAX_SELECTED, Selection
from archiver.exports.service import mailbox_choices
from archiver.http.pages.base import Form, Posted, View, Viewed, parse_id, redirect
from archiver.http.pages.exports import selected_ids
from archiver.restores import service as restores
from archiver.restores.destination import RestoreDestination
from archiver.restores.workflow import restorable

router = APIRouter(include_in_schema=False)

_MAILBOXES = 500
_REFUSED = 200


@router.get("/restores")
def restores_page(view: Viewed) -> Response:
    return _page(view)


def _page(view: View, status: int = 200, **more: Any) -> Response:
    view.principal.require(Right.RESTORE)
    with view.context.reading() as connection:
        values: dict[str, Any] = {
            "restores": restores.list_restores(connection, view.principal),
            "mailboxes": mailbox_choices(connection, restorable(connection, view.principal), _MAILBOXES),
            "destinations": restores.mailbox_choices(connection, view.principal, _MAILBOXES),
            "form": {"to": "origins"},
            "ids": (),
            "error": None,
        }
    return view.page("restores.html", status, **{**values, **more})


@router.post("/restores/select")
def select_for_restore(view: Posted, form: Form) -> Response:
    """From the results of a search: the ticked messages, or all that it finds."""
    is_all, ids = form.get("all") == "on", selected_ids(form)
    if not is_all and not ids:
        raise UsageError(view.t("search.selection"))
    return _page(view, ids=() if is_all else ids, form={"to": "origins", "query": form.get("q", "").strip()})


@router.post("/restores")
def request_restore(view: Posted, form: Form) -> Response:
    view.principal.require(Right.RESTORE)
    ids = tuple(map(parse_id, form.get("ids", "").split()[: MAX_SELECTED + 1]))
    try:
        destination, password = _destination(form), form.get("password") or None
        with view.context.engine.begin() as connection:
            restore_id = restores.request(
                connection,
                view.context.settings,
                view.context.keyring,
                view.principal,
                _selection(view, form, ids),
                destination,
                password=password,
            )
    except ArchiverError as error:
        shown = {name: value for name, value in form.items() if name != "password"}
        return _page(view, 400, error=str(error), form=shown, ids=ids)
    return redirect(f"/restores/{restore_id}")


def _selection(view: View, form: dict[str, str], ids: tuple[UUID, ...]) -> Selection:
    query, mailbox = form.get("query", "").strip(), form.get("mailbox", "")
    if ids:
        return Selection(message_ids=ids)
    if mailbox:
        return Selection(mailbox_id=parse_id(mailbox), folder=form.get("folder", "").strip() or None)
    if not query:
        return Selection(everything=True)
    with view.context.reading() as connection:
        scope = restorable(connection, view.principal)
    view.context.search.message_ids(query, scope, zone=view.zone)  # a wrong query is refused now, not by a worker later
    return Selection(query=query, zone=getattr(view.zone, "key", "UTC"))


def _destination(form: dict[str, str]) -> RestoreDestination:
    below = form.get("below", "").strip().strip("/")
    match form.get("to", "origins"):
        case "mailbox":
            return RestoreDestination(mailbox_id=parse_id(form.get("destination", "")), below=below)
        case "imap":
            names = ("host", "user", "tls", "port")
            settings = {name: form[name].strip() for name in names if form.get(name, "").strip()}
            return RestoreDestination(imap=settings or {"host": ""}, below=below)
        case _:
            return RestoreDestination(origins=True, below=below)


@router.get("/restores/{restore_id}")
def restore_page(view: Viewed, restore_id: UUID) -> Response:
    view.principal.require(Right.RESTORE)
    with view.context.reading() as connection:
        item = restores.load(connection, view.principal, restore_id)
        refused = restores.report(connection, view.principal, restore_id, "refused", limit=_REFUSED)
    return view.page("restore.html", item=item, refused=refused)


@router.post("/restores/{restore_id}")
def change_restore(view: Posted, form: Form, restore_id: UUID) -> Response:
    view.principal.require(Right.RESTORE)
    with view.context.engine.begin() as connection:
        if form.get("do") == "start":
            restores.start(connection, view.principal, restore_id)
        else:
            is_open = restores.load(connection, view.principal, restore_id).is_open
            restores.cancel(connection, view.principal, restore_id)
            return redirect(f"/restores/{restore_id}" if is_open else "/restores")
    return redirect(f"/restores/{restore_id}")
