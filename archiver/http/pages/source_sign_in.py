"""Adding a source, or renewing its credentials, by signing in at the provider; and finding the server of an address."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit
from uuid import UUID

from fastapi import APIRouter
from fastapi.responses import Response

from archiver.access.principal import Right
from archiver.errors import ArchiverError, UsageError
from archiver.http.pages.base import Form, View, redirect
from archiver.http.pages.fields import parse_values
from archiver.http.pages.sources import SIGN_IN_CALLBACK, CanChange, CanView, addable_kind, load_source, redirect_uri, show_form
from archiver.sources import access as source_access
from archiver.sources import kinds as source_kinds
from archiver.sources.page_sign_in import PendingSignIn, SignIns, SourceDraft, save_source

router = APIRouter(include_in_schema=False)


def _sign_ins(view: View) -> SignIns:
    return SignIns(view.context.redis, view.context.keyring)


@router.post("/sources/add/{kind}/sign-in")
def start(view: CanChange, kind: str, form: Form) -> Response:
    chosen = addable_kind(view, kind)
    settings, secrets = parse_values(chosen, form)
    name = form.get("name", "")
    try:
        source_kinds.refuse_server_paths(chosen, settings)
        pending = _begin(view, SourceDraft(kind, name, settings, secrets))
    except ArchiverError as error:
        return show_form(view, chosen, settings, name, error)
    return redirect(f"/sources/sign-in/{pending.id}")


@router.post("/sources/{source_id}/sign-in")
def start_again(view: CanChange, source_id: UUID) -> Response:
    """With the settings of the source as they are."""
    source = load_source(view, source_id)
    settings, secrets = source_access.values_to_sign_in(view.context.keyring, source, {}, {})
    pending = _begin(view, SourceDraft(source.kind, source.name, settings, secrets, source.id))
    return redirect(f"/sources/sign-in/{pending.id}")


def _begin(view: View, draft: SourceDraft) -> PendingSignIn:
    return _sign_ins(view).begin(view.principal, draft, redirect_uri(view), view.context.settings.source_hosts)


@router.get(SIGN_IN_CALLBACK)
def finish(view: CanView) -> Response:
    """The provider's redirect. The state in it names the attempt, which belongs to this session."""
    view.principal.require(Right.ADMIN)
    query = dict(view.request.query_params)
    return _complete(view, query.get("state", ""), query)


@router.get("/sources/sign-in/{key}")
def waiting_page(view: CanView, key: str, poll: bool = False) -> Response:
    """Leads to the provider, or shows the code to enter there, and asks whether it was entered."""
    view.principal.require(Right.ADMIN)
    pending = _sign_ins(view).find(view.principal, key)
    if poll and pending.mode == "device" and (done := _sign_ins(view).poll(view.principal, key)) is not None:
        return _save(view, *done)
    host = urlsplit(pending.url).hostname
    return view.page("source_sign_in.html", pending=pending, host=host)


@router.post("/sources/sign-in/{key}")
def finish_by_paste(view: CanChange, key: str, form: Form) -> Response:
    query = dict(parse_qsl(urlsplit(form.get("address", "").strip()).query))
    if "state" not in query:
        raise UsageError(view.t("sources.paste_wrong"))
    return _complete(view, key, query)


def _complete(view: View, key: str, query: Mapping[str, str]) -> Response:
    return _save(view, *_sign_ins(view).complete(view.principal, key, query))


def _save(view: View, draft: SourceDraft, tokens: Mapping[str, str]) -> Response:
    context = view.context
    try:
        source = save_source(context.engine, context.keyring, view.principal, draft, tokens, context.settings.source_hosts)
    except ArchiverError as error:
        if draft.source_id is not None:
            raise
        return show_form(view, source_kinds.kind_of(draft.kind), draft.settings, draft.name, error)
    context.save_config()
    return redirect(f"/sources/{source.id}")
