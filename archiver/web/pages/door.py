"""The door: the first administrator, signing in and out."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from archiver.api.auth import (
    Anybody,
    Context,
    device_cookie,
    drop_session_cookie,
    session_cookie,
    set_device_cookie,
    set_session_cookie,
)
from archiver.api.context import ApiContext
from archiver.errors import ArchiverError, TooMany
from archiver.services import first_start
from archiver.services.principal import Principal
from archiver.services.sign_in import Attempt, CodeNeeded, sign_in, sign_out
from archiver.web.pages.base import Form, Posted, own_path, rendered, see, texts_of

router = APIRouter(include_in_schema=False)


@router.get("/welcome")
def welcome(request: Request, who: Anybody, context: Context) -> Response:
    with context.reading() as connection:
        if not first_start.needed(connection):
            return see("/sign-in")
    return rendered(request, texts_of(request), "welcome.html", token=request.query_params.get("token", ""), given={})


@router.post("/welcome")
def make_administrator(request: Request, who: Anybody, context: Context, given: Form) -> Response:
    try:
        first_start.make_administrator(
            context.engine,
            context.settings,
            who,
            given.get("token", ""),
            email=given.get("email", ""),
            password=given.get("password", ""),
            name=given.get("name") or None,
            own_mail=given.get("purpose") != "company",
        )
    except ArchiverError as error:
        kept = {**given, "password": ""}
        page: dict[str, Any] = {"token": given.get("token", ""), "given": kept, "error": str(error)}
        return rendered(request, texts_of(request), "welcome.html", 400, **page)
    context.keep_config()
    return _enter(request, context, who, given.get("email", ""), given.get("password", ""), None, "/sources")


@router.get("/sign-in")
def sign_in_page(request: Request, who: Anybody, context: Context) -> Response:
    with context.reading() as connection:
        if first_start.needed(connection):
            return see("/welcome")
    shown: dict[str, Any] = {
        "next": own_path(request.query_params.get("next")),
        "email": "",
        "error": None,
        "code_needed": False,
        "oidc": context.settings.oidc_issuer is not None,
    }
    return rendered(request, texts_of(request), "sign_in.html", **shown)


@router.post("/sign-in")
def enter(request: Request, who: Anybody, context: Context, given: Form) -> Response:
    email, code = given.get("email", "")[:254], given.get("code", "").strip()[:40] or None
    return _enter(request, context, who, email, given.get("password", "")[:1024], code, own_path(given.get("next")))


def _enter(
    request: Request, context: ApiContext, who: Principal, email: str, password: str, code: str | None, next_path: str
) -> Response:
    agent = request.headers.get("User-Agent")
    held = session_cookie(request), device_cookie(request)
    attempt = Attempt(email, password, code, who.client_address, agent, who.request_id, *held)
    t = texts_of(request)
    oidc = context.settings.oidc_issuer is not None
    again: dict[str, Any] = {"next": next_path, "email": email, "code_needed": False, "oidc": oidc}
    try:
        _, session = sign_in(context.engine, context.settings, context.keyring, attempt)
    except CodeNeeded:
        shown = {**again, "code_needed": True, "error": t("door.code_needed")}
        return rendered(request, t, "sign_in.html", 401, **shown)
    except TooMany as error:
        shown = {**again, "error": t("door.too_many", n=error.retry_after_seconds)}
        return rendered(request, t, "sign_in.html", 429, **shown)
    except ArchiverError:
        return rendered(request, t, "sign_in.html", 401, **{**again, "code_needed": code is not None}, error=t("door.wrong"))
    context.note_code(code)
    response = see(next_path)
    set_session_cookie(request, response, session.token)
    set_device_cookie(request, response, email)
    return response


@router.post("/sign-out")
def leave(view: Posted) -> Response:
    sign_out(view.context.engine, view.who)
    response = see("/sign-in")
    drop_session_cookie(view.request, response)
    return response
