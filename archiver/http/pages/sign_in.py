"""First administrator, sign-in and sign-out."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from archiver.access.login import demo_link, first_start
from archiver.access.login.sign_in import Attempt, CodeNeeded, sign_in, sign_out
from archiver.access.principal import Principal
from archiver.errors import ArchiverError, NotFound, NotSignedIn, TooMany
from archiver.http.auth import (
    Anonymous,
    Context,
    device_cookie,
    drop_session_cookie,
    session_cookie,
    set_device_cookie,
    set_session_cookie,
)
from archiver.http.context import ApiContext
from archiver.http.pages.base import Form, Posted, local_path, redirect, render, texts_of
from archiver.maintenance import status

router = APIRouter(include_in_schema=False)


@router.get("/welcome")
def welcome(request: Request, principal: Anonymous, context: Context) -> Response:
    with context.reading() as connection:
        if not first_start.is_needed(connection):
            return redirect("/sign-in")
    return render(request, texts_of(request), "welcome.html", token="", form={})


@router.post("/welcome")
def create_administrator(request: Request, principal: Anonymous, context: Context, form: Form) -> Response:
    try:
        first_start.create_administrator(
            context.engine,
            context.settings,
            principal,
            form.get("token", ""),
            email=form.get("email", ""),
            password=form.get("password", ""),
            name=form.get("name") or None,
            own_mail=form.get("purpose") != "company",
        )
    except ArchiverError as error:
        values = {**form, "password": ""}
        page: dict[str, Any] = {"token": form.get("token", ""), "form": values, "error": str(error)}
        return render(request, texts_of(request), "welcome.html", 400, **page)
    context.save_config()
    next_path = "/" if status.count_rows(context.engine).messages else "/sources"  # mail may have been imported before
    return _sign_in(request, context, principal, form.get("email", ""), form.get("password", ""), None, next_path)


@router.get("/demo")
def demo_page(request: Request, context: Context) -> Response:
    """A script takes the token from the link's fragment and posts it: no log of requests ever has it."""
    if not context.settings.sample_sources:
        raise NotFound("This archive holds no sample data.")
    return render(request, texts_of(request), "demo.html")


@router.post("/demo")
def enter_demo(request: Request, principal: Anonymous, context: Context, form: Form) -> Response:
    agent = request.headers.get("User-Agent")
    try:
        session = demo_link.sign_in(context.engine, context.settings, principal, form.get("token", ""), agent)
    except NotSignedIn as error:
        return render(request, texts_of(request), "demo.html", 401, error=str(error))
    response = redirect("/")
    set_session_cookie(request, response, session.token)
    return response


@router.get("/sign-in")
def sign_in_page(request: Request, principal: Anonymous, context: Context) -> Response:
    with context.reading() as connection:
        if first_start.is_needed(connection):
            return redirect("/welcome")
    shown: dict[str, Any] = {
        "next": local_path(request.query_params.get("next")),
        "email": "",
        "error": None,
        "code_needed": False,
        "oidc": context.settings.oidc_issuer is not None,
    }
    return render(request, texts_of(request), "sign_in.html", **shown)


@router.post("/sign-in")
def submit_sign_in(request: Request, principal: Anonymous, context: Context, form: Form) -> Response:
    email, code = form.get("email", "")[:254], form.get("code", "").strip()[:40] or None
    return _sign_in(request, context, principal, email, form.get("password", "")[:1024], code, local_path(form.get("next")))


def _sign_in(
    request: Request, context: ApiContext, principal: Principal, email: str, password: str, code: str | None, next_path: str
) -> Response:
    agent = request.headers.get("User-Agent")
    cookies = session_cookie(request), device_cookie(request)
    attempt = Attempt(email, password, code, principal.client_address, agent, principal.request_id, *cookies)
    t = texts_of(request)
    oidc = context.settings.oidc_issuer is not None
    retry_values: dict[str, Any] = {"next": next_path, "email": email, "code_needed": False, "oidc": oidc}
    try:
        _, session = sign_in(context.engine, context.settings, context.keyring, attempt)
    except CodeNeeded:
        shown = {**retry_values, "code_needed": True, "error": t("sign_in.code_needed")}
        return render(request, t, "sign_in.html", 401, **shown)
    except TooMany as error:
        shown = {**retry_values, "error": t("sign_in.throttled", n=error.retry_after_seconds)}
        return render(request, t, "sign_in.html", 429, **shown)
    except ArchiverError:
        return render(
            request, t, "sign_in.html", 401, **{**retry_values, "code_needed": code is not None}, error=t("sign_in.wrong")
        )
    context.note_used_code(code)
    response = redirect(next_path)
    set_session_cookie(request, response, session.token)
    set_device_cookie(request, response, email)
    return response


@router.post("/sign-out")
def submit_sign_out(view: Posted) -> Response:
    sign_out(view.context.engine, view.principal)
    response = redirect("/sign-in")
    drop_session_cookie(view.request, response)
    return response
