"""One's own account: who am I, password, second factor, sessions, keys."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, Field

from archiver.api.auth import Account, Context, session_cookie, signed_in
from archiver.api.page import Body, Page
from archiver.models.states import Role
from archiver.services import api_keys, sessions, totp, users
from archiver.services.api_keys import KeyRow
from archiver.services.principal import ROLE_RIGHTS, Principal, Right, Scope
from archiver.services.sessions import SessionRow
from archiver.services.sign_in import confirm, confirm_password
from archiver.services.users import User

router = APIRouter(prefix="/me", tags=["account"])

Password = Annotated[str, Field(max_length=1024, description="The one that counts now.")]


class Me(BaseModel):
    id: UUID
    email: str
    name: str | None
    role: Role
    rights: list[Right]
    may_read_all: bool
    own_mail: bool
    second_factor: bool
    csrf_token: Annotated[str | None, Field(description="To be sent as X-CSRF-Token with every change; none for API keys.")]


class NewPassword(Body):
    password: Password
    new_password: Annotated[str, Field(max_length=1024)]


class Confirmed(Body):
    password: Password


class Confirmation(Body):
    """One of both. An account that has neither has to have signed in within the last minutes."""

    password: Annotated[str | None, Field(max_length=1024, description="The one that counts now.")] = None
    code: Annotated[str | None, Field(max_length=40, description="Of the second factor, or a recovery code.")] = None


class Code(Body):
    code: Annotated[str, Field(max_length=10, examples=["123456"])]


class TotpSecret(BaseModel):
    secret: Annotated[str, Field(description="Shown once. In base32, for an authenticator.")]
    uri: Annotated[str, Field(description="The same for a QR code.")]


class RecoveryCodes(BaseModel):
    recovery_codes: Annotated[list[str], Field(description="Shown once. Each one replaces a code, once.")]


class NewKey(Confirmation):
    """With a confirmation: the password, or a code."""

    name: Annotated[str, Field(max_length=100, examples=["backup script"])]
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=10)]
    expires_at: Annotated[datetime | None, Field(description="Without it after a year; at most API_KEY_DAYS from now.")] = None


class CreatedKey(BaseModel):
    id: UUID
    key: Annotated[str, Field(description="Shown once: only its hash is kept.")]


def shape_me(user: User, csrf_token: str | None, rights: frozenset[Right] | None = None) -> Me:
    return Me(
        id=user.id,
        email=user.email,
        name=user.name,
        role=user.role,
        rights=sorted(ROLE_RIGHTS[user.role] if rights is None else rights),
        may_read_all=user.may_read_all,
        own_mail=user.own_mail,
        second_factor=user.totp_confirmed_at is not None,
        csrf_token=csrf_token,
    )


@router.get("")
def who_am_i(who: Annotated[Principal, Depends(signed_in)], context: Context, request: Request) -> Me:
    assert who.user_id is not None
    with context.reading() as connection:
        user = users.load(connection, who.user_id)
    token = session_cookie(request) if who.session_id else None
    return shape_me(user, sessions.csrf_token(token) if token else None, who.rights)


@router.put("/password", status_code=204)
def change_password(given: NewPassword, who: Account, context: Context) -> None:
    """Ends all other sessions."""
    user = confirm_password(context.engine, who, given.password)
    with context.engine.begin() as connection:
        users.set_password(connection, who, user, given.new_password, keep_session=who.session_id)
    context.keep_config()


@router.get("/sessions")
def list_sessions(who: Account, context: Context) -> Page[SessionRow]:
    assert who.user_id is not None
    with context.reading() as connection:
        return Page(items=sessions.listed(connection, context.settings, who.user_id))


@router.delete("/sessions/{session_id}", status_code=204)
def end_one_session(session_id: UUID, who: Account, context: Context) -> None:
    with context.engine.begin() as connection:
        sessions.end(connection, who, session_id)


@router.post("/totp", status_code=201)
def begin_second_factor(given: Confirmed, who: Account, context: Context) -> TotpSecret:
    """A secret for an authenticator. It counts once a code was given for it."""
    confirm_password(context.engine, who, given.password)
    with context.engine.begin() as connection:
        return TotpSecret(**totp.begin(connection, context.keyring, who))


@router.put("/totp")
def confirm_second_factor(given: Code, who: Account, context: Context) -> RecoveryCodes:
    """Turns it on, and ends all other sessions."""
    with context.engine.begin() as connection:
        codes = totp.confirm(connection, context.keyring, who, given.code)
    context.keep_config()
    return RecoveryCodes(recovery_codes=codes)


@router.post("/totp/disable", status_code=204)
def disable_second_factor(given: Confirmation, who: Account, context: Context) -> None:
    user = confirm(context.engine, context.keyring, who, given.password, given.code)
    with context.engine.begin() as connection:
        totp.disable(connection, who, user.id)
    context.keep_config()


@router.get("/keys")
def list_keys(who: Account, context: Context) -> Page[KeyRow]:
    with context.reading() as connection:
        return Page(items=api_keys.listed(connection, who.user_id))


@router.post("/keys", status_code=201)
def create_key(given: NewKey, who: Account, context: Context) -> CreatedKey:
    """`400 confirmation_needed`: give `password` or `code` as well. The key expires."""
    confirm(context.engine, context.keyring, who, given.password, given.code)
    most_days = context.settings.api_key_days
    with context.engine.begin() as connection:
        key_id, key = api_keys.create(connection, who, given.name, given.scopes, given.expires_at, most_days)
    return CreatedKey(id=key_id, key=key)


@router.delete("/keys/{key_id}", status_code=204)
def revoke_key(key_id: UUID, who: Account, context: Context) -> None:
    with context.engine.begin() as connection:
        api_keys.revoke(connection, who, key_id)
