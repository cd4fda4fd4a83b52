"""Sources: list, state, and every action on them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Query
from fastapi.responses import Response

from archiver.access.principal import Right
from archiver.access.scope import scope_of
from archiver.config import page_address
from archiver.errors import ArchiverError, NotFound, UsageError
from archiver.http.hosts import host_of
from archiver.http.pages.base import Form, Posted, View, Viewed, parse_id, redirect
from archiver.http.pages.fields import FormField, fields_of, parse_values
from archiver.http.public_text import without_paths
from archiver.journal.activity import JournalActivity, read_activity
from archiver.journal.statements import KIND as JOURNAL
from archiver.sources import access as source_access
from archiver.sources import discovery, imports, runs, upload_imports
from archiver.sources import kinds as source_kinds
from archiver.sources import rows as source_rows
from archiver.sources import service as sources
from archiver.sources import summary as source_summary
from archiver.sources import view as source_view
from archiver.sources.null_context import QuietContext
from archiver.sources.rows import Source
from archiver.sync import listings

router = APIRouter(include_in_schema=False)

_MAILBOXES = 200
_IMPORTS = 100
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
_SIGNED_IN_ONLY = frozenset({"refresh_token", "token"})
"""Secrets that a sign-in returns, and that no form asks for."""
SIGN_IN_CALLBACK = "/sources/sign-in/callback"


def _may_view(view: Viewed) -> View:
    view.principal.require(Right.VIEW)
    return view


def _may_change(view: Posted) -> View:
    view.principal.require(Right.ADMIN)
    return view


CanView = Annotated[View, Depends(_may_view)]
CanChange = Annotated[View, Depends(_may_change)]


@router.get("/sources")
def list_page(view: CanView) -> Response:
    with view.context.reading() as connection:
        found = source_rows.all_sources(connection)
        last = {source.id: next(iter(runs.last_runs(connection, source.id, 1)), None) for source in found}
        running = {progress.source_id: progress for progress in runs.running(connection)}
        unexplained = source_view.not_archived(connection)
        kept_uploads = imports.kept_uploads(connection)
        journal = _journal(view, connection)
        refused = source_view.refused(connection)
    cards = [
        {
            "source": one,
            "title": _title(view, one),
            "last": last[one.id],
            "running": running.get(one.id),
            "not_fetched": unexplained[one.id][0],
            "missing": unexplained[one.id][1],
            "kept_uploads": kept_uploads.get(one.id, 0),
            "journal": journal if one.kind == JOURNAL else None,
            "needs_sign_in": one.id in refused and source_access.signs_in(one.kind, one.settings),
        }
        for one in found
    ]
    return view.page("sources.html", cards=cards, kinds=_addable(view))


@router.get("/sources/add/{kind}")
def add_page(view: CanView, kind: str, address: Annotated[str, Query(max_length=320)] = "") -> Response:
    """With an address: the form is filled in with what is published about its server. No password is sent."""
    view.principal.require(Right.ADMIN)
    chosen = addable_kind(view, kind)
    found, settings = None, dict[str, Any]()
    if address.strip():
        found = discovery.find_server(address)
        settings = found.settings() if found else {}
    return show_form(view, chosen, settings, address.strip(), None, 200, found=found, address=address.strip())


@router.post("/sources/add/{kind}")
def add(view: CanChange, kind: str, form: Form) -> Response:
    chosen = addable_kind(view, kind)
    settings, secrets = parse_values(chosen, form)
    context = view.context
    name, hosts = form.get("name", ""), context.settings.source_hosts
    try:
        source_kinds.refuse_server_paths(chosen, settings)
        source = sources.add(
            context.engine, context.keyring, QuietContext(), kind, name, settings, secrets, view.principal, hosts=hosts
        )
        with context.engine.begin() as connection:
            sources.sync_now(connection, source, view.principal)
    except ArchiverError as error:
        return show_form(view, chosen, settings, name, error)
    context.save_config()
    return redirect(f"/sources/{source.id}")


@router.post("/sources/import")
def import_uploads(view: CanChange, form: Form) -> Response:
    """Imports files that were uploaded through /api/v1/uploads into a mailbox."""
    context = view.context
    wanted = [parse_id(one) for one in form.get("uploads", "").split()]
    mailbox = form.get("mailbox", "").strip()
    context.backpressure.admit(context.engine, view.principal.user_id)
    item = upload_imports.begin(context.engine, context.settings, context.keyring, view.principal, wanted, mailbox)
    context.save_config()
    return redirect(f"/sources/{item.source_id}")


@router.post("/sources/imports/{import_id}/discard")
def discard_import(view: CanChange, import_id: UUID) -> Response:
    """Cancels a waiting import, or removes the uploaded files of a failed one."""
    context = view.context
    with context.reading() as connection:
        item = imports.load_own(connection, view.principal, import_id)
    upload_imports.discard(context.engine, context.settings, view.principal, item)
    return redirect(f"/sources/{item.source_id}")


@router.get("/sources/{source_id}")
def source_page(view: CanView, source_id: UUID) -> Response:
    return _show(view, source_id)


def _show(view: View, source_id: UUID, checked: tuple[str, ...] | None = None) -> Response:
    """`checked`: what a check that has just succeeded noted about the server."""
    source = load_source(view, source_id)
    with view.context.reading() as connection:
        scope = scope_of(connection, view.principal)
        running = next(iter(runs.running(connection, source_id)), None)
        values: dict[str, Any] = {
            "source": source,
            "title": _title(view, source),
            "is_fetched": source.kind in {kind.name for kind in source_kinds.kinds()},
            "is_import": source.kind in source_kinds.RUNS_ONCE,
            "imports": imports.of_source(connection, source_id, _IMPORTS) if source.kind in source_kinds.RUNS_ONCE else [],
            "running": running,
            "checked": checked,
            "boxes": runs.mailboxes(connection, running.session_id, 50) if running else [],
            "runs": runs.last_runs(connection, source_id, 200),
            "listing": listings.load_last(connection, source_id),
            "journal": _journal(view, connection) if source.kind == JOURNAL else None,
            "signs_in": source_access.signs_in(source.kind, source.settings),
            "ledger": source_view.mailboxes(connection, scope, source_id, "", _MAILBOXES),
            "kept": view.context.count_cache.get(("kept", source_id), lambda: source_summary.kept(connection, source_id)),
        }
    return view.page("source.html", **values)


@router.get("/sources/{source_id}/edit")
def edit_page(view: CanView, source_id: UUID) -> Response:
    view.principal.require(Right.ADMIN)
    source = load_source(view, source_id)
    chosen = source_kinds.kind_of(source.kind)
    fields = _visible_fields(chosen, source.settings)
    return view.page("source_form.html", kind=chosen, source=source, fields=fields, name=source.name, error=None)


@router.post("/sources/{source_id}/edit")
def edit(view: CanChange, source_id: UUID, form: Form) -> Response:
    source = load_source(view, source_id)
    chosen = source_kinds.kind_of(source.kind)
    settings, secrets = parse_values(chosen, form)
    shown = {field.name for field in _visible_fields(chosen)}
    emptied = {name: None for name in source.settings if name in shown and name not in settings}
    context = view.context
    changes, hosts = {**settings, **emptied}, context.settings.source_hosts
    try:
        source_kinds.refuse_server_paths(chosen, settings)
        sources.edit(context.engine, context.keyring, QuietContext(), source, changes, secrets, view.principal, hosts=hosts)
    except ArchiverError as error:
        message = without_paths(str(error))
        values = {
            "kind": chosen,
            "source": source,
            "fields": _visible_fields(chosen, settings),
            "name": source.name,
            "error": message,
        }
        return view.page("source_form.html", 422, **values)
    context.save_config()
    return redirect(f"/sources/{source_id}")


@router.post("/sources/{source_id}/do")
def run_action(view: CanChange, source_id: UUID, form: Form) -> Response:
    source, action = load_source(view, source_id), form.get("do", "")
    actions = {"sync": sources.sync_now, "pause": sources.pause, "resume": sources.resume}
    if action == "check":
        return _show(view, source_id, source_access.check(source, view.context.keyring, QuietContext()))
    if action == "remove":
        if form.get("name") != source.name:
            raise UsageError(view.t("sources.remove_name", name=source.name))
        delete_mail = form.get("mail") == "delete"
        source_view.remove(view.context.engine, view.context.archive, view.principal, source, delete_mail=delete_mail)
        view.context.save_config()
        return redirect("/sources")
    if action in actions:
        with view.context.engine.begin() as connection:
            actions[action](connection, source, view.principal)
    else:
        raise UsageError(f"unknown action {action[:20]!r}: expected sync, pause, resume, check or remove")
    return redirect(f"/sources/{source_id}")


def show_form(
    view: View,
    kind: Any,
    settings: Mapping[str, Any],
    name: str,
    error: Exception | None,
    status: int = 422,
    /,
    **values: Any,
) -> Response:
    """The form of a new source, with what was entered, except for secrets."""
    shown = {
        "kind": kind,
        "source": None,
        "fields": _visible_fields(kind, settings),
        "name": name,
        "error": without_paths(str(error)) if error else None,
        "signs_in": kind.sign_in is not None,
        "only_signs_in": kind.sign_in is not None and kind.name != "imap",
        "redirect_uri": redirect_uri(view),
        "found": None,
        "address": "",
    }
    return view.page("source_form.html", status, **{**shown, **values})


def redirect_uri(view: View) -> str | None:
    """Where a provider sends the browser back to. None if the browser would not find the way: on another machine, without
    ARCHIVER_URL."""
    if view.context.settings.archiver_url:
        return page_address(view.context.settings) + SIGN_IN_CALLBACK
    if host_of(view.request.scope) in _LOCAL:
        return f"{view.request.url.scheme}://{view.request.url.netloc}{SIGN_IN_CALLBACK}"
    return None


def load_source(view: View, source_id: UUID) -> Source:
    with view.context.reading() as connection:
        source = source_rows.load(connection, source_id)
    if source is None or source.removed_at is not None:
        raise NotFound(f"source {source_id} not found")
    return source


def _journal(view: View, connection: Any) -> JournalActivity | None:
    return read_activity(connection, view.context.settings.archiver_data, datetime.now(UTC))


def addable_kind(view: View, name: str) -> Any:
    if name not in {kind.name for kind in _addable(view)}:
        raise NotFound(f"unknown kind of source {name[:50]!r}")
    return source_kinds.kind_of(name)


def _visible_fields(kind: Any, values: Mapping[str, Any] | None = None) -> list[FormField]:
    """Without settings that name files on the server."""
    hidden = source_kinds.server_paths(kind)
    if kind.sign_in is not None and kind.name != "imap":
        hidden |= _SIGNED_IN_ONLY
    return [field for field in fields_of(kind, values) if field.name not in hidden]


def _addable(view: View) -> list[Any]:
    """Kinds without server paths: files are imported by upload, and server paths only on the command line."""
    offered = source_kinds.kinds(samples=view.context.settings.sample_sources)
    return [kind for kind in offered if not kind.runs_once and "paths" not in kind.settings.model_fields]


def _title(view: View, source: Source) -> str:
    """Submitted messages and imports have sources without a connector kind; their titles come from the texts."""
    titles = {kind.name: kind.title for kind in source_kinds.kinds() if not kind.runs_once}
    return titles.get(source.kind) or view.t(f"kind.{source.kind}")
