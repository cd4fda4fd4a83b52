"""Notices of a legal hold: requested by administrators, and acknowledged by those who got one, who need no account."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from archiver.access.principal import Right
from archiver.alerts import custodian_notices
from archiver.http.auth import Anonymous, Context
from archiver.http.pages.base import Form, Posted, parse_id, redirect, render, texts_of
from archiver.retention import holds

router = APIRouter(include_in_schema=False)


@router.post("/retention/holds/notices")
def request_notices(view: Posted, form: Form) -> Response:
    view.principal.require(Right.ADMIN)
    with view.context.engine.begin() as connection:
        hold = holds.load(connection, str(parse_id(form.get("id", ""))))
        custodian_notices.request_notices(connection, view.context.settings, view.principal, hold, form.get("text", ""))
    view.context.save_config()
    return redirect(f"/retention#hold-{hold.id}")


@router.get("/hold-notices/{token}")
def show_notice(request: Request, principal: Anonymous, context: Context, token: str) -> Response:
    """Opening it acknowledges nothing: mail programs open links by themselves."""
    with context.reading() as connection:
        notice = custodian_notices.find_by_token(connection, token)
    return render(request, texts_of(request), "hold_notice.html", notice=notice, token=token)


@router.post("/hold-notices/{token}")
def acknowledge_notice(request: Request, principal: Anonymous, context: Context, token: str) -> Response:
    with context.engine.begin() as connection:
        notice = custodian_notices.acknowledge(connection, principal, token)
    context.save_config()
    return render(request, texts_of(request), "hold_notice.html", notice=notice, token=token)
