"""Users and what they may see. For administrators."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from archiver.api.auth import Administrator, Context
from archiver.api.page import Body, Cursor, Limit, Page, decode_cursor, encode_cursor
from archiver.errors import UsageError
from archiver.models.states import Role
from archiver.services import api_keys, grants, totp, users
from archiver.services.api_keys import KeyRow
from archiver.services.grants import Grant

router = APIRouter(tags=["users"])


class UserShape(BaseModel):
    """Never a hash, never a secret."""

    model_config = ConfigDict(from_attributes=True)

    id: UUID
    email: str
    name: str | None
    role: Role
    may_read_all: bool
    address_verified_at: datetime | None
    totp_confirmed_at: Annotated[datetime | None, Field(description="Since when the second factor is on.")]
    has_oidc: bool
    created_at: datetime
    last_sign_in_at: datetime | None
    disabled_at: datetime | None


class NewUser(Body):
    email: Annotated[str, Field(max_length=254, description="Mailboxes of this address are theirs to read.")]
    name: Annotated[str | None, Field(max_length=200)] = None
    role: Role = Role.USER
    password: Annotated[str | None, Field(max_length=1024, description="Without one they sign in by OIDC only.")] = None


class UserChange(Body):
    """What is left out stays."""

    name: Annotated[str | None, Field(max_length=200)] = None
    role: Role | None = None
    may_read_all: Annotated[
        bool | None, Field(description="The right to read everybody's mail; an audit entry of its own.")
    ] = None
    disabled: bool | None = None
    address_verified: bool | None = None


class NewPassword(Body):
    new_password: Annotated[str, Field(max_length=1024)]
    disable_second_factor: bool = False


class NewGrant(Body):
    """One of the three."""

    mailbox: Annotated[str | None, Field(max_length=320, description="Address or id.")] = None
    pattern: Annotated[str | None, Field(max_length=320, examples=["*@sales.example.org"])] = None
    source: Annotated[str | None, Field(max_length=200, description="Name or id: all its mailboxes.")] = None
    may_ingest: Annotated[bool, Field(description="Not only read: messages may be handed in, too (`POST /messages`).")] = False


@router.get("/users")
def list_users(who: Administrator, context: Context, limit: Limit = 100, cursor: Cursor = None) -> Page[UserShape]:
    after = _id(decode_cursor(cursor, 1)[0]) if cursor else None
    with context.reading() as connection:
        found = users.listed(connection, after=after, most=limit)
    items = [UserShape.model_validate(user) for user in found]
    return Page(items=items, next=encode_cursor(found[-1].id) if len(found) == limit else None)


@router.post("/users", status_code=201)
def add_user(given: NewUser, who: Administrator, context: Context) -> UserShape:
    with context.engine.begin() as connection:
        user = users.add(connection, who, given.email, role=given.role, name=given.name, password=given.password)
    context.keep_config()
    return UserShape.model_validate(user)


@router.get("/users/{user_id}")
def show_user(user_id: UUID, who: Administrator, context: Context) -> UserShape:
    with context.reading() as connection:
        return UserShape.model_validate(users.load(connection, user_id))


@router.patch("/users/{user_id}")
def change_user(user_id: UUID, given: UserChange, who: Administrator, context: Context) -> UserShape:
    with context.engine.begin() as connection:
        user = users.change(connection, who, users.load(connection, user_id), **given.model_dump())
    context.keep_config()
    return UserShape.model_validate(user)


@router.delete("/users/{user_id}", status_code=204)
def remove_user(user_id: UUID, who: Administrator, context: Context) -> None:
    """With their sessions, keys and grants. Mail and sources stay."""
    with context.engine.begin() as connection:
        users.remove(connection, who, users.load(connection, user_id))
    context.keep_config()


@router.put("/users/{user_id}/password", status_code=204)
def reset_password(user_id: UUID, given: NewPassword, who: Administrator, context: Context) -> None:
    """Ends all their sessions, and revokes their API keys."""
    with context.engine.begin() as connection:
        user = users.load(connection, user_id)
        users.set_password(connection, who, user, given.new_password)
        if given.disable_second_factor:
            totp.disable(connection, who, user.id)
    context.keep_config()


@router.get("/users/{user_id}/grants")
def list_grants(user_id: UUID, who: Administrator, context: Context) -> Page[Grant]:
    with context.reading() as connection:
        return Page(items=grants.listed(connection, users.load(connection, user_id).id))


@router.post("/users/{user_id}/grants", status_code=201)
def add_grant(user_id: UUID, given: NewGrant, who: Administrator, context: Context) -> Page[Grant]:
    """The answer lists all grants of the user."""
    with context.engine.begin() as connection:
        user = users.load(connection, user_id)
        target = grants.find_target(connection, **given.model_dump(exclude={"may_ingest"}))
        grants.add(connection, who, user, target, may_ingest=given.may_ingest)
        found = grants.listed(connection, user.id)
    context.keep_config()
    return Page(items=found)


@router.delete("/users/{user_id}/grants/{grant_id}", status_code=204)
def remove_grant(user_id: UUID, grant_id: UUID, who: Administrator, context: Context) -> None:
    with context.engine.begin() as connection:
        grants.remove(connection, who, users.load(connection, user_id), grant_id)
    context.keep_config()


@router.get("/keys")
def list_all_keys(who: Administrator, context: Context) -> Page[KeyRow]:
    """Everybody's keys, without the keys."""
    with context.reading() as connection:
        return Page(items=api_keys.listed(connection, None))


@router.delete("/keys/{key_id}", status_code=204)
def revoke_any_key(key_id: UUID, who: Administrator, context: Context) -> None:
    with context.engine.begin() as connection:
        api_keys.revoke(connection, who, key_id)


def _id(value: str) -> UUID:
    try:
        return UUID(value)
    except ValueError:
        raise UsageError("cursor: not one that a page before this gave") from None
