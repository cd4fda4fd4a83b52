"""Users and their grants. For administrators."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from archiver.access import api_keys, grants, users
from archiver.access.api_keys import KeyRow
from archiver.access.grants import Grant
from archiver.access.login import totp
from archiver.db.states import UserRole
from archiver.errors import UsageError
from archiver.http.api.page import INVALID_CURSOR, Cursor, Limit, Page, RequestBody, decode_cursor, encode_cursor
from archiver.http.auth import Administrator, Context

router = APIRouter(tags=["users"])


class UserShape(BaseModel):
    """Never contains a hash or a secret."""

    model_config = ConfigDict(from_attributes=True)

    id: UUID
    email: str
    name: str | None
    role: UserRole
    may_read_all: bool
    may_restore: bool
    address_verified_at: datetime | None
    totp_confirmed_at: Annotated[datetime | None, Field(description="When the second factor was turned on.")]
    has_oidc: bool
    created_at: datetime
    last_sign_in_at: datetime | None
    disabled_at: datetime | None


class NewUser(RequestBody):
    email: Annotated[str, Field(max_length=254, description="The user may read mailboxes with this address.")]
    name: Annotated[str | None, Field(max_length=200)] = None
    role: UserRole = UserRole.USER
    password: Annotated[
        str | None, Field(max_length=1024, description="Without a password the user can sign in only through OIDC.")
    ] = None


class UserChange(RequestBody):
    """Fields that are not sent stay unchanged."""

    name: Annotated[str | None, Field(max_length=200)] = None
    role: UserRole | None = None
    may_read_all: Annotated[
        bool | None, Field(description="Permission to read everyone's mail; a change is recorded in the audit log.")
    ] = None
    may_restore: Annotated[
        bool | None, Field(description="Permission to restore mail into their own mailboxes; recorded in the audit log.")
    ] = None
    disabled: bool | None = None
    address_verified: bool | None = None


class PasswordReset(RequestBody):
    new_password: Annotated[str, Field(max_length=1024)]
    disable_second_factor: bool = False


class NewGrant(RequestBody):
    """Exactly one of mailbox, pattern and source."""

    mailbox: Annotated[str | None, Field(max_length=320, description="Address or ID.")] = None
    pattern: Annotated[str | None, Field(max_length=320, examples=["*@sales.example.org"])] = None
    source: Annotated[str | None, Field(max_length=200, description="Name or ID of a source: all its mailboxes.")] = None
    may_ingest: Annotated[bool, Field(description="Also allows submitting messages (`POST /messages`).")] = False


@router.get("/users")
def list_users(principal: Administrator, context: Context, limit: Limit = 100, cursor: Cursor = None) -> Page[UserShape]:
    after = _id(decode_cursor(cursor, 1)[0]) if cursor else None
    with context.reading() as connection:
        found = users.list_users(connection, after=after, limit=limit)
    items = [UserShape.model_validate(user) for user in found]
    return Page(items=items, next=encode_cursor(found[-1].id) if len(found) == limit else None)


@router.post("/users", status_code=201)
def add_user(body: NewUser, principal: Administrator, context: Context) -> UserShape:
    with context.engine.begin() as connection:
        user = users.add(connection, principal, body.email, role=body.role, name=body.name, password=body.password)
    context.save_config()
    return UserShape.model_validate(user)


@router.get("/users/{user_id}")
def show_user(user_id: UUID, principal: Administrator, context: Context) -> UserShape:
    with context.reading() as connection:
        return UserShape.model_validate(users.load(connection, user_id))


@router.patch("/users/{user_id}")
def change_user(user_id: UUID, body: UserChange, principal: Administrator, context: Context) -> UserShape:
    with context.engine.begin() as connection:
        user = users.change(connection, principal, users.load(connection, user_id), **body.model_dump())
    context.save_config()
    return UserShape.model_validate(user)


@router.delete("/users/{user_id}", status_code=204)
def remove_user(user_id: UUID, principal: Administrator, context: Context) -> None:
    """Also removes the user's sessions, keys and grants. Mail and sources are kept."""
    with context.engine.begin() as connection:
        users.remove(connection, principal, users.load(connection, user_id))
    context.save_config()


@router.put("/users/{user_id}/password", status_code=204)
def reset_password(user_id: UUID, body: PasswordReset, principal: Administrator, context: Context) -> None:
    """Ends all sessions of the user, and revokes their API keys."""
    with context.engine.begin() as connection:
        user = users.load(connection, user_id)
        users.set_password(connection, principal, user, body.new_password)
        if body.disable_second_factor:
            totp.disable(connection, principal, user.id)
    context.save_config()


@router.get("/users/{user_id}/grants")
def list_grants(user_id: UUID, principal: Administrator, context: Context) -> Page[Grant]:
    with context.reading() as connection:
        return Page(items=grants.list_grants(connection, users.load(connection, user_id).id))


@router.post("/users/{user_id}/grants", status_code=201)
def add_grant(user_id: UUID, body: NewGrant, principal: Administrator, context: Context) -> Page[Grant]:
    """Returns all grants of the user."""
    with context.engine.begin() as connection:
        user = users.load(connection, user_id)
        target = grants.find_target(connection, **body.model_dump(exclude={"may_ingest"}))
        grants.add(connection, principal, user, target, may_ingest=body.may_ingest)
        found = grants.list_grants(connection, user.id)
    context.save_config()
    return Page(items=found)


@router.delete("/users/{user_id}/grants/{grant_id}", status_code=204)
def remove_grant(user_id: UUID, grant_id: UUID, principal: Administrator, context: Context) -> None:
    with context.engine.begin() as connection:
        grants.remove(connection, principal, users.load(connection, user_id), grant_id)
    context.save_config()


@router.get("/keys")
def list_all_keys(principal: Administrator, context: Context) -> Page[KeyRow]:
    """The API keys of all users, without the secret part."""
    with context.reading() as connection:
        return Page(items=api_keys.list_keys(connection, None))


@router.delete("/keys/{key_id}", status_code=204)
def revoke_any_key(key_id: UUID, principal: Administrator, context: Context) -> None:
    with context.engine.begin() as connection:
        api_keys.revoke(connection, principal, key_id)


def _id(value: str) -> UUID:
    try:
        return UUID(value)
    except ValueError:
        raise UsageError(INVALID_CURSOR) from None
