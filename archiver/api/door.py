"""The door: first start, signing in and out."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from archiver.api.auth import (
    Account,
    Anybody,
    Context,
    device_cookie,
    drop_session_cookie,
    session_cookie,
    set_device_cookie,
    set_session_cookie,
)
from archiver.api.me import Me, shape_me
from archiver.api.page import Body
from archiver.services import first_start, sessions
from archiver.services.sign_in import Attempt, sign_in, sign_out

router = APIRouter(tags=["sign-in"])

Email = Annotated[str, Field(max_length=254, examples=["alice@example.org"])]
Password = Annotated[str, Field(max_length=1024, examples=["correct horse battery"])]


class FirstStart(BaseModel):
    needed: bool


class FirstAdministrator(Body):
    token: Annotated[str, Field(max_length=100, description="As `archiver up` shows it.")]
    email: Email
    password: Password
    name: Annotated[str | None, Field(max_length=200)] = None
    purpose: Annotated[
        Literal["own_mail", "company"],
        Field(description="own_mail: mailboxes that you add are yours to read. company: reading is granted apart."),
    ]


class SignIn(Body):
    email: Email
    password: Password
    code: Annotated[str | None, Field(max_length=40, description="Of the second factor, or a recovery code.")] = None


@router.get("/first-start")
def is_first_start_needed(who: Anybody, context: Context) -> FirstStart:
    """Whether the first administrator is still to be made. Until then everything else is closed."""
    with context.reading() as connection:
        return FirstStart(needed=first_start.needed(connection))


@router.post("/first-start", status_code=201)
def make_first_administrator(given: FirstAdministrator, who: Anybody, context: Context) -> FirstStart:
    """With the token that `archiver up` shows. Works once."""
    first_start.make_administrator(
        context.engine,
        context.settings,
        who,
        given.token,
        email=given.email,
        password=given.password,
        name=given.name,
        own_mail=given.purpose == "own_mail",
    )
    context.keep_config()
    return FirstStart(needed=False)


@router.post("/session", status_code=201)
def start_session(given: SignIn, who: Anybody, context: Context, request: Request, response: Response) -> Me:
    """Sign in. The answer sets the session's cookie, and has the CSRF token that every change needs as a header.

    `401 code_needed`: the second factor is on, send its code as well. `429`: too many failed tries.
    """
    attempt = Attempt(
        given.email,
        given.password,
        given.code,
        who.client_address,
        request.headers.get("User-Agent"),
        who.request_id,
        session_cookie(request),
        device_cookie(request),
    )
    user, session = sign_in(context.engine, context.settings, context.keyring, attempt)
    context.note_code(given.code)
    set_session_cookie(request, response, session.token)
    set_device_cookie(request, response, given.email)
    return shape_me(user, sessions.csrf_token(session.token))


@router.delete("/session", status_code=204)
def end_session(who: Account, context: Context, request: Request, response: Response) -> None:
    """Sign out."""
    sign_out(context.engine, who)
    drop_session_cookie(request, response)
