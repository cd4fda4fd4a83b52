"""Sources: where mail comes from, how each one stands, and everything that can be done with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends
from fastapi.responses import Response

from archiver.api.public_text import without_paths
from archiver.errors import ArchiverError, NotFound, UsageError
from archiver.services import (
    imports,
    kept,
    runs,
    source_access,
    source_kinds,
    source_rows,
    source_view,
    sources,
    upload_imports,
)
from archiver.services.access import scope_of
from archiver.services.principal import Right
from archiver.services.quiet_context import QuietContext
from archiver.services.source_rows import Source
from archiver.sync import listings
from archiver.web.pages.base import Form, Posted, View, Viewed, given_id, see
from archiver.web.pages.fields import FormField, fields_of, given_values

router = APIRouter(include_in_schema=False)

_MAILBOXES = 200
_IMPORTS = 100


def _may_view(view: Viewed) -> View:
    view.who.require(Right.VIEW)
    return view


def _may_change(view: Posted) -> View:
    view.who.require(Right.ADMIN)
    return view


Looking = Annotated[View, Depends(_may_view)]
Changing = Annotated[View, Depends(_may_change)]


@router.get("/sources")
def list_page(view: Looking) -> Response:
    with view.context.reading() as connection:
        found = source_rows.all_sources(connection)
        last = {source.id: next(iter(runs.last_runs(connection, source.id, 1)), None) for source in found}
        running = {progress.source_id: progress for progress in runs.running(connection)}
        unexplained = source_view.not_archived(connection)
        kept_uploads = imports.kept_uploads(connection)
    cards = [
        {
            "source": one,
            "title": _title(view, one),
            "last": last[one.id],
            "running": running.get(one.id),
            "not_fetched": unexplained[one.id][0],
            "missing": unexplained[one.id][1],
            "kept_uploads": kept_uploads.get(one.id, 0),
        }
        for one in found
    ]
    return view.page("sources.html", cards=cards, kinds=_addable(view))


@router.get("/sources/add/{kind}")
def add_page(view: Looking, kind: str) -> Response:
    view.who.require(Right.ADMIN)
    chosen = _kind(view, kind)
    return view.page("source_form.html", kind=chosen, source=None, fields=_shown(chosen), name="", error=None)


@router.post("/sources/add/{kind}")
def add(view: Changing, kind: str, given: Form) -> Response:
    chosen = _kind(view, kind)
    settings, secrets = given_values(chosen, given)
    context = view.context
    name, hosts = given.get("name", ""), context.settings.source_hosts
    try:
        source_kinds.refuse_server_paths(chosen, settings)
        source = sources.add(
            context.engine, context.keyring, QuietContext(), kind, name, settings, secrets, view.who, hosts=hosts
        )
        with context.engine.begin() as connection:
            sources.sync_now(connection, source, view.who)
    except ArchiverError as error:
        fields = _shown(chosen, settings)
        values: dict[str, Any] = {
            "kind": chosen,
            "source": None,
            "fields": fields,
            "name": name,
            "error": without_paths(str(error)),
        }
        return view.page("source_form.html", 422, **values)
    context.keep_config()
    return see(f"/sources/{source.id}")


@router.post("/sources/import")
def import_uploads(view: Changing, given: Form) -> Response:
    """What was uploaded through /api/v1/uploads, into a mailbox."""
    context = view.context
    wanted = [given_id(one) for one in given.get("uploads", "").split()]
    mailbox = given.get("mailbox", "").strip()
    item = upload_imports.begin(context.engine, context.settings, context.keyring, view.who, wanted, mailbox)
    context.keep_config()
    return see(f"/sources/{item.source_id}")


@router.post("/sources/imports/{import_id}/discard")
def discard_import(view: Changing, import_id: UUID) -> Response:
    """Cancels one that waits, or removes the uploaded files of one that did not succeed."""
    context = view.context
    with context.reading() as connection:
        item = imports.load_own(connection, view.who, import_id)
    upload_imports.discard(context.engine, context.settings, view.who, item)
    return see(f"/sources/{item.source_id}")


@router.get("/sources/{source_id}")
def source_page(view: Looking, source_id: UUID) -> Response:
    source = _load(view, source_id)
    with view.context.reading() as connection:
        scope = scope_of(connection, view.who)
        running = next(iter(runs.running(connection, source_id)), None)
        values: dict[str, Any] = {
            "source": source,
            "title": _title(view, source),
            "is_fetched": source.kind in {kind.name for kind in source_kinds.kinds()},
            "is_import": source.kind in source_kinds.RUNS_ONCE,
            "imports": imports.of_source(connection, source_id, _IMPORTS) if source.kind in source_kinds.RUNS_ONCE else [],
            "running": running,
            "boxes": runs.mailboxes(connection, running.session_id, 50) if running else [],
            "runs": runs.last_runs(connection, source_id, 200),
            "listing": listings.last_of(connection, source_id),
            "ledger": source_view.mailboxes(connection, scope, source_id, "", _MAILBOXES),
            "kept": view.context.counted.get(("kept", source_id), lambda: kept.kept(connection, source_id)),
        }
    return view.page("source.html", **values)


@router.get("/sources/{source_id}/edit")
def edit_page(view: Looking, source_id: UUID) -> Response:
    view.who.require(Right.ADMIN)
    source = _load(view, source_id)
    chosen = source_kinds.kind_of(source.kind)
    fields = _shown(chosen, source.settings)
    return view.page("source_form.html", kind=chosen, source=source, fields=fields, name=source.name, error=None)


@router.post("/sources/{source_id}/edit")
def edit(view: Changing, source_id: UUID, given: Form) -> Response:
    source = _load(view, source_id)
    chosen = source_kinds.kind_of(source.kind)
    settings, secrets = given_values(chosen, given)
    shown = {field.name for field in _shown(chosen)}
    emptied = {name: None for name in source.settings if name in shown and name not in settings}
    context = view.context
    changes, hosts = {**settings, **emptied}, context.settings.source_hosts
    try:
        source_kinds.refuse_server_paths(chosen, settings)
        sources.edit(context.engine, context.keyring, QuietContext(), source, changes, secrets, view.who, hosts=hosts)
    except ArchiverError as error:
        told = without_paths(str(error))
        values = {"kind": chosen, "source": source, "fields": _shown(chosen, settings), "name": source.name, "error": told}
        return view.page("source_form.html", 422, **values)
    context.keep_config()
    return see(f"/sources/{source_id}")


@router.post("/sources/{source_id}/do")
def act(view: Changing, source_id: UUID, given: Form) -> Response:
    source, what = _load(view, source_id), given.get("do", "")
    actions = {"sync": sources.sync_now, "pause": sources.pause, "resume": sources.resume}
    if what == "check":
        source_access.check(source, view.context.keyring, QuietContext())
    elif what == "remove":
        if given.get("name") != source.name:
            raise UsageError(view.t("sources.remove_name", name=source.name))
        delete_mail = given.get("mail") == "delete"
        source_view.remove(view.context.engine, view.context.archive, view.who, source, delete_mail=delete_mail)
        view.context.keep_config()
        return see("/sources")
    elif what in actions:
        with view.context.engine.begin() as connection:
            actions[what](connection, source, view.who)
    else:
        raise UsageError(f"a source can't {what[:20]!r}")
    return see(f"/sources/{source_id}")


def _load(view: View, source_id: UUID) -> Source:
    with view.context.reading() as connection:
        source = source_rows.load(connection, source_id)
    if source is None or source.removed_at is not None:
        raise NotFound(f"there is no source {source_id}")
    return source


def _kind(view: View, name: str) -> Any:
    if name not in {kind.name for kind in _addable(view)}:
        raise NotFound(f"there is no kind of source called {name[:50]!r}")
    return source_kinds.kind_of(name)


def _shown(kind: Any, values: Mapping[str, Any] | None = None) -> list[FormField]:
    """Without those that name files of the server."""
    hidden = source_kinds.server_paths(kind)
    return [field for field in fields_of(kind, values) if field.name not in hidden]


def _addable(view: View) -> list[Any]:
    """Files come in by an upload: paths of the server are named on the server itself, by the command line."""
    offered = source_kinds.kinds(samples=view.context.settings.sample_sources)
    return [kind for kind in offered if not kind.runs_once and "paths" not in kind.settings.model_fields]


def _title(view: View, source: Source) -> str:
    """Messages that programs hand in have a source that nothing is fetched from, and that is no kind of its own."""
    titles = {kind.name: kind.title for kind in source_kinds.kinds() if not kind.runs_once}
    return titles.get(source.kind) or view.t(f"kind.{source.kind}")
