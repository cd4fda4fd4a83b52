"""The caller's own account: identity, password, second factor, sessions, keys."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, Field

from archiver.access import api_keys, users
from archiver.access.api_keys import KeyRow
from archiver.access.login import logins, totp
from archiver.access.login.logins import LoginSession
from archiver.access.login.sign_in import confirm, confirm_password
from archiver.access.principal import KeyScope, Principal, Right
from archiver.access.users import User
from archiver.db.states import UserRole
from archiver.http.api.page import Page, RequestBody
from archiver.http.auth import Account, Context, session_cookie, signed_in

router = APIRouter(prefix="/me", tags=["account"])

Password = Annotated[str, Field(max_length=1024, description="Your current password.")]


class Me(BaseModel):
    id: UUID
    email: str
    name: str | None
    role: UserRole
    rights: list[Right]
    may_read_all: bool
    own_mail: bool
    second_factor: bool
    csrf_token: Annotated[str | None, Field(description="Send it as X-CSRF-Token with every change; null for API keys.")]


class PasswordChange(RequestBody):
    password: Password
    new_password: Annotated[str, Field(max_length=1024)]


class Confirmed(RequestBody):
    password: Password


class Confirmation(RequestBody):
    """A password or a code. An account that has neither must have signed in within the last few minutes."""

    password: Annotated[str | None, Field(max_length=1024, description="Your current password.")] = None
    code: Annotated[str | None, Field(max_length=40, description="An authenticator code or a recovery code.")] = None


class Code(RequestBody):
    code: Annotated[str, Field(max_length=10, examples=["123456"])]


class TotpSecret(BaseModel):
    secret: Annotated[str, Field(description="For an authenticator, in base32. Shown only once.")]
    uri: Annotated[str, Field(description="The same secret as a URI, for a QR code.")]


class RecoveryCodes(BaseModel):
    recovery_codes: Annotated[
        list[str], Field(description="Each can be used once instead of an authenticator code. Shown only once.")
    ]


class NewKey(Confirmation):
    """Needs a confirmation: `password` or `code`."""

    name: Annotated[str, Field(max_length=100, examples=["backup script"])]
    scopes: Annotated[list[KeyScope], Field(min_length=1, max_length=10)]
    expires_at: Annotated[datetime | None, Field(description="Default: in one year. At most API_KEY_DAYS from now.")] = None


class CreatedKey(BaseModel):
    id: UUID
    key: Annotated[str, Field(description="Shown only once: only its hash is stored.")]


def shape_me(user: User, csrf_token: str | None, rights: frozenset[Right] | None = None) -> Me:
    return Me(
        id=user.id,
        email=user.email,
        name=user.name,
        role=user.role,
        rights=sorted(user.principal().rights if rights is None else rights),
        may_read_all=user.may_read_all,
        own_mail=user.own_mail,
        second_factor=user.totp_confirmed_at is not None,
        csrf_token=csrf_token,
    )


@router.get("")
def who_am_i(principal: Annotated[Principal, Depends(signed_in)], context: Context, request: Request) -> Me:
    assert principal.user_id is not None
    with context.reading() as connection:
        user = users.load(connection, principal.user_id)
    token = session_cookie(request) if principal.session_id else None
    return shape_me(user, logins.csrf_token(token) if token else None, principal.rights)


@router.put("/password", status_code=204)
def change_password(body: PasswordChange, principal: Account, context: Context) -> None:
    """All other sessions end."""
    user = confirm_password(context.engine, principal, body.password)
    with context.engine.begin() as connection:
        users.set_password(connection, principal, user, body.new_password, keep_session=principal.session_id)
    context.save_config()


@router.get("/sessions")
def list_sessions(principal: Account, context: Context) -> Page[LoginSession]:
    assert principal.user_id is not None
    with context.reading() as connection:
        return Page(items=logins.list_sessions(connection, context.settings, principal.user_id))


@router.delete("/sessions/{session_id}", status_code=204)
def end_one_session(session_id: UUID, principal: Account, context: Context) -> None:
    with context.engine.begin() as connection:
        logins.end(connection, principal, session_id)


@router.post("/totp", status_code=201)
def begin_second_factor(body: Confirmed, principal: Account, context: Context) -> TotpSecret:
    """A secret for an authenticator. It takes effect once it is confirmed with a code."""
    confirm_password(context.engine, principal, body.password)
    with context.engine.begin() as connection:
        return TotpSecret(**totp.begin(connection, context.keyring, principal))


@router.put("/totp")
def confirm_second_factor(body: Code, principal: Account, context: Context) -> RecoveryCodes:
    """Turn on the second factor, and end all other sessions."""
    with context.engine.begin() as connection:
        codes = totp.confirm(connection, context.keyring, principal, body.code)
    context.save_config()
    return RecoveryCodes(recovery_codes=codes)


@router.post("/totp/disable", status_code=204)
def disable_second_factor(body: Confirmation, principal: Account, context: Context) -> None:
    user = confirm(context.engine, context.keyring, principal, body.password, body.code)
    with context.engine.begin() as connection:
        totp.disable(connection, principal, user.id)
    context.save_config()


@router.get("/keys")
def list_keys(principal: Account, context: Context) -> Page[KeyRow]:
    with context.reading() as connection:
        return Page(items=api_keys.list_keys(connection, principal.user_id))


@router.post("/keys", status_code=201)
def create_key(body: NewKey, principal: Account, context: Context) -> CreatedKey:
    """Every key expires. `400 confirmation_needed`: send `password` or `code` as well."""
    confirm(context.engine, context.keyring, principal, body.password, body.code)
    max_days = context.settings.api_key_days
    with context.engine.begin() as connection:
        key_id, key = api_keys.create(connection, principal, body.name, body.scopes, body.expires_at, max_days)
    return CreatedKey(id=key_id, key=key)


@router.delete("/keys/{key_id}", status_code=204)
def revoke_key(key_id: UUID, principal: Account, context: Context) -> None:
    with context.engine.begin() as connection:
        api_keys.revoke(connection, principal, key_id)
