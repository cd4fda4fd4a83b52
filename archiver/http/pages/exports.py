"""Exports: what was requested, how far it is, and the files to download."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from fastapi import APIRouter
from fastapi.responses import Response

from archiver.access.principal import Right
from archiver.access.scope import scope_of
from archiver.errors import UsageError
from archiver.exports import service as exports
from archiver.exports.selection import FORMATS, LAYOUTS, PackageOptions, Selection
from archiver.http.pages.base import Form, Posted, View, Viewed, parse_id, redirect
from archiver.reading import messages

router = APIRouter(include_in_schema=False)

_VOLUME_MEGABYTES = (100, 650, 2048, 4096)
_MAILBOXES = 500


@router.get("/exports")
def exports_page(view: Viewed) -> Response:
    view.principal.require(Right.EXPORT)
    with view.context.reading() as connection:
        items = exports.listed(connection, view.principal)
        mailboxes = exports.mailbox_choices(connection, scope_of(connection, view.principal), _MAILBOXES)
    values: dict[str, Any] = {
        "exports": items,
        "is_running": any(item.is_open for item in items),
        "mailboxes": mailboxes,
        "formats": FORMATS,
        "layouts": LAYOUTS,
        "volumes": _VOLUME_MEGABYTES,
    }
    return view.page("exports.html", **values)


def selected_ids(form: dict[str, str]) -> tuple[UUID, ...]:
    """The ticked rows of a list: each names a message, and the other hits of the conversation that it stands for."""
    named = (id_ for name, also in form.items() if name.startswith("id.") for id_ in (name.removeprefix("id."), *also.split()))
    return tuple(dict.fromkeys(map(parse_id, named)))


@router.post("/export")
def export_from_search(view: Posted, form: Form) -> Response:
    """The selected messages, or everything that the search finds."""
    wanted = selected_ids(form)
    if form.get("do") == "all" or form.get("all") == "on":
        query = form.get("q", "").strip()
        return _request(view, _of_query(view, query) if query else Selection(everything=True), PackageOptions())
    if not wanted:
        raise UsageError(view.t("search.selection"))
    with view.context.reading() as connection:
        scope = scope_of(connection, view.principal)
        for one in wanted:
            messages.visible_hash(connection, scope, one)  # raises NotFound for a message that the user may not read
    return _request(view, Selection(message_ids=wanted), PackageOptions())


@router.post("/exports")
def request_export(view: Posted, form: Form) -> Response:
    query, mailbox = form.get("query", "").strip(), form.get("mailbox", "")
    folder = form.get("folder", "").strip() or None
    if mailbox:
        selection = Selection(mailbox_id=parse_id(mailbox), folder=folder)
    elif query:
        selection = _of_query(view, query)
    else:
        selection = Selection(everything=True)
    return _request(view, selection, _options(form))


def _options(form: dict[str, str]) -> PackageOptions:
    megabytes = form.get("volume", "2048")
    if not megabytes.isdecimal():
        raise UsageError(f"{megabytes[:20]!r} is not a size in megabytes")
    return PackageOptions(form.get("format", "eml"), form.get("layout", "folders"), int(megabytes) << 20)


def _of_query(view: View, query: str) -> Selection:
    """A query that can't be answered is refused now, and not by a worker later."""
    with view.context.reading() as connection:
        scope = scope_of(connection, view.principal)
    view.context.search.message_ids(query, scope, zone=view.zone)
    return Selection(query=query, zone=getattr(view.zone, "key", "UTC"))


def _request(view: View, selection: Selection, options: PackageOptions) -> Response:
    view.principal.require(Right.EXPORT)
    with view.context.engine.begin() as connection:
        exports.request(connection, view.context.settings, view.principal, selection, options)
    return redirect("/exports")


@router.post("/exports/remove")
def remove_export(view: Posted, form: Form) -> Response:
    view.principal.require(Right.EXPORT)
    exports.remove(view.context.engine, view.context.settings, view.principal, parse_id(form.get("id", "")))
    return redirect("/exports")
