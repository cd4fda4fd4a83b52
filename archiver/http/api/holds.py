"""Legal holds: place, list, extend, release."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, BackgroundTasks
from pydantic import BaseModel, Field

from archiver.http.api.page import Page, RequestBody
from archiver.http.auth import Administrator, Auditor, Context
from archiver.http.context import ApiContext
from archiver.retention import holds
from archiver.retention.approval import needs_second_person
from archiver.retention.holds import Hold, NewHold

router = APIRouter(prefix="/holds", tags=["retention"])

Reason = Annotated[str, Field(min_length=1, max_length=2000)]


class HoldRequest(RequestBody):
    """Mail is on hold if it fits any of these, whenever it arrives."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    reason: Reason
    mailbox_ids: Annotated[tuple[UUID, ...], Field(max_length=10_000)] = ()
    addresses: Annotated[
        tuple[str, ...], Field(max_length=1_000, description="People: mail from, to and of these addresses.")
    ] = ()
    query: Annotated[str | None, Field(max_length=2000)] = None
    message_ids: Annotated[tuple[UUID, ...], Field(max_length=holds.MAX_SELECTED)] = ()


class HoldSelection(RequestBody):
    message_ids: Annotated[list[UUID], Field(min_length=1, max_length=holds.MAX_SELECTED)]


class HoldRelease(RequestBody):
    reason: Reason


class HoldShape(BaseModel):
    id: UUID
    name: str
    reason: str
    mailbox_ids: list[UUID]
    addresses: list[str]
    query: str | None
    created_by: str
    created_at: datetime
    release_requested_at: datetime | None
    release_requested_by: str | None
    release_reason: str | None
    released_at: datetime | None
    released_by: str | None
    messages: Annotated[int | None, Field(description="Messages on hold; for a query, those that it has found so far.")] = None


@router.get("")
def list_holds(principal: Auditor, context: Context, released: bool = False) -> Page[HoldShape]:
    """`released`: also those that are no longer in force."""
    with context.reading() as connection:
        return Page(items=[_shape(hold) for hold in holds.list_holds(connection, released=released)])


@router.post("", status_code=201)
def place_hold(body: HoldRequest, principal: Administrator, context: Context, background: BackgroundTasks) -> HoldShape:
    """In force when this returns: nothing deletes the mail until the hold is released."""
    hold = holds.place(context.engine, principal, NewHold(**body.model_dump()))
    context.save_config()
    background.add_task(refresh, context, hold)
    return _shape(hold)


@router.get("/{hold_id}")
def show_hold(hold_id: UUID, principal: Auditor, context: Context) -> HoldShape:
    with context.reading() as connection:
        hold = holds.load(connection, str(hold_id))
        return _shape(hold, holds.count(connection, hold))


@router.post("/{hold_id}/messages")
def extend_hold(hold_id: UUID, body: HoldSelection, principal: Administrator, context: Context) -> HoldShape:
    """Adds single messages."""
    with context.engine.begin() as connection:
        hold = holds.load(connection, str(hold_id))
        holds.add_messages(connection, principal, hold, body.message_ids)
        found = holds.count(connection, hold)
    context.save_config()
    return _shape(hold, found)


@router.post("/{hold_id}/release")
def release_hold(hold_id: UUID, body: HoldRelease, principal: Administrator, context: Context) -> HoldShape:
    """With two-person approval, the first call requests the release (`released_at` stays null), and the call of another
    administrator carries it out."""
    with context.engine.begin() as connection:
        hold = holds.load(connection, str(hold_id))
        second = needs_second_person(connection, context.settings)
        hold = holds.release(connection, principal, hold, body.reason, second_person=second)
    context.save_config()
    return _shape(hold)


@router.delete("/{hold_id}/release")
def withdraw_release(hold_id: UUID, principal: Administrator, context: Context) -> HoldShape:
    """Withdraws or refuses a request to release the hold."""
    with context.engine.begin() as connection:
        hold = holds.withdraw_release(connection, principal, holds.load(connection, str(hold_id)))
    context.save_config()
    return _shape(hold)


def refresh(context: ApiContext, hold: Hold) -> None:
    holds.refresh(context.engine, context.archive, context.search, hold)


def _shape(hold: Hold, messages: int | None = None) -> HoldShape:
    return HoldShape(
        **{name: value for name, value in asdict(hold).items() if name in HoldShape.model_fields}, messages=messages
    )
