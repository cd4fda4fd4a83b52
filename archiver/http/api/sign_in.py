"""First start, sign-in and sign-out."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from archiver.access.login import first_start, logins
from archiver.access.login.sign_in import Attempt, sign_in, sign_out
from archiver.http.api.me import Me, shape_me
from archiver.http.api.page import RequestBody
from archiver.http.auth import (
    Account,
    Anonymous,
    Context,
    device_cookie,
    drop_session_cookie,
    session_cookie,
    set_device_cookie,
    set_session_cookie,
)

router = APIRouter(tags=["sign-in"])

Email = Annotated[str, Field(max_length=254, examples=["alice@example.org"])]
Password = Annotated[str, Field(max_length=1024, examples=["correct horse battery"])]


class FirstStart(BaseModel):
    needed: bool


class FirstAdministrator(RequestBody):
    token: Annotated[str, Field(max_length=100, description="The one-time token that `archiver up` shows.")]
    email: Email
    password: Password
    name: Annotated[str | None, Field(max_length=200)] = None
    purpose: Annotated[
        Literal["own_mail", "company"],
        Field(description="own_mail: you may read the mailboxes that you add. company: reading is granted separately."),
    ]


class SignInRequest(RequestBody):
    email: Email
    password: Password
    code: Annotated[str | None, Field(max_length=40, description="An authenticator code or a recovery code.")] = None


@router.get("/first-start")
def is_first_start_needed(principal: Anonymous, context: Context) -> FirstStart:
    """Whether the first administrator has yet to be created. Until then, everything else is refused."""
    with context.reading() as connection:
        return FirstStart(needed=first_start.is_needed(connection))


@router.post("/first-start", status_code=201)
def create_first_administrator(body: FirstAdministrator, principal: Anonymous, context: Context) -> FirstStart:
    """Needs the token of the link that the terminal or the log of the web process shows. Works only once."""
    first_start.create_administrator(
        context.engine,
        context.settings,
        principal,
        body.token,
        email=body.email,
        password=body.password,
        name=body.name,
        own_mail=body.purpose == "own_mail",
    )
    context.save_config()
    return FirstStart(needed=False)


@router.post("/session", status_code=201)
def start_session(body: SignInRequest, principal: Anonymous, context: Context, request: Request, response: Response) -> Me:
    """Sign in. The response sets the session cookie, and contains the CSRF token that every change needs as a header.

    `401 code_needed`: the second factor is on; send `code` as well. `429`: too many failed attempts.
    """
    attempt = Attempt(
        body.email,
        body.password,
        body.code,
        principal.client_address,
        request.headers.get("User-Agent"),
        principal.request_id,
        session_cookie(request),
        device_cookie(request),
    )
    user, session = sign_in(context.engine, context.settings, context.keyring, attempt)
    context.note_used_code(body.code)
    set_session_cookie(request, response, session.token)
    set_device_cookie(request, response, body.email)
    return shape_me(user, logins.csrf_token(session.token))


@router.delete("/session", status_code=204)
def end_session(principal: Account, context: Context, request: Request, response: Response) -> None:
    """Sign out."""
    sign_out(context.engine, principal)
    drop_session_cookie(request, response)
