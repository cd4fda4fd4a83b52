"""Retention labels: define them, put them on messages, and what keeps a message."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter
from pydantic import AwareDatetime, BaseModel, Field

from archiver.access.principal import Principal, Right
from archiver.access.scope import scope_of
from archiver.http.api.page import Page, RequestBody
from archiver.http.auth import Administrator, Context, Labeller, Reader
from archiver.http.context import ApiContext
from archiver.reading import messages
from archiver.retention import holds, labels
from archiver.retention.keeping import explain
from archiver.retention.labels import Labelling, LabelRequest

router = APIRouter(tags=["retention"])

LabelName = Annotated[str, Field(min_length=1, max_length=60, pattern="^[a-z0-9][a-z0-9-]*$")]


class LabelDefinition(RequestBody):
    title: Annotated[str, Field(min_length=1, max_length=100)]
    hides_from_auditors: Annotated[bool, Field(description="Auditors do not see messages with this label.")] = False
    is_locked: Annotated[bool, Field(description="Once on a message, the label stays; a date can only move on.")] = False


class LabelShape(BaseModel):
    name: str
    title: str
    takes_date: Annotated[bool, Field(description="It is put on a message with the date until which it is kept.")]
    hides_from_auditors: bool
    is_locked: bool
    created_by: str
    created_at: datetime
    retired_at: datetime | None
    messages: Annotated[int, Field(description="On how many messages it is.")]


class LabelledMessages(RequestBody):
    message_ids: Annotated[list[UUID], Field(min_length=1, max_length=labels.MAX_MESSAGES)]


class LabelPut(LabelledMessages):
    keep_until: Annotated[AwareDatetime | None, Field(description="For labels with a date.")] = None
    reason: Annotated[str, Field(max_length=2000)] = ""


class LabelResult(BaseModel):
    changed: Annotated[int, Field(description="How many of the messages were changed.")]


class MessageLabelShape(BaseModel):
    name: str
    title: str
    keep_until: datetime | None
    reason: str
    set_by: str
    set_at: datetime
    is_locked: bool


class KeptByShape(BaseModel):
    policy_id: UUID
    name: str
    kept_until: datetime | None
    deleted_from: datetime | None
    is_unclear: Annotated[bool, Field(description="The mail has to be read to know; until then it counts as kept.")]


class MessageRetention(BaseModel):
    labels: list[MessageLabelShape]
    kept_until: Annotated[datetime | None, Field(description="The latest end of what keeps it, as far as you may know.")]
    policies: Annotated[list[KeptByShape], Field(description="Only for auditors and administrators.")]
    holds: Annotated[list[str], Field(description="Only for auditors and administrators.")]


@router.get("/retention-labels")
def list_labels(principal: Reader, context: Context, retired: bool = False) -> Page[LabelShape]:
    """`retired`: also those that can't be put on further messages."""
    with context.reading() as connection:
        uses = labels.count_uses(connection)
        found = labels.list_labels(connection, retired=retired)
    return Page(items=[LabelShape(**asdict(one), messages=uses.get(one.name, 0)) for one in found])


@router.put("/retention-labels/{name}")
def define_label(name: LabelName, body: LabelDefinition, principal: Administrator, context: Context) -> LabelShape:
    """Adds a label, or changes one. A lock on a label that is in use can't be undone."""
    with context.engine.begin() as connection:
        made = labels.define(connection, principal, name, body.title, hides=body.hides_from_auditors, locks=body.is_locked)
        uses = labels.count_uses(connection)
    context.save_config()
    return LabelShape(**asdict(made), messages=uses.get(made.name, 0))


@router.delete("/retention-labels/{name}", status_code=204)
def retire_label(name: LabelName, principal: Administrator, context: Context) -> None:
    """It stays on its messages."""
    with context.engine.begin() as connection:
        labels.retire(connection, principal, name)
    context.save_config()


@router.post("/retention-labels/{name}/messages")
def put_label(name: LabelName, body: LabelPut, principal: Labeller, context: Context) -> LabelResult:
    """On messages that you can read. In force when this returns."""
    request = LabelRequest(name, body.message_ids, body.keep_until, body.reason)
    return LabelResult(changed=labelling(context, principal).put(request))


@router.post("/retention-labels/{name}/removal")
def remove_label(name: LabelName, body: LabelledMessages, principal: Labeller, context: Context) -> LabelResult:
    """Labels that others have put on a message are removed by administrators only; locked ones stay."""
    return LabelResult(changed=labelling(context, principal).remove(LabelRequest(name, body.message_ids)))


@router.get("/messages/{message_id}/retention")
def show_retention(message_id: UUID, principal: Reader, context: Context) -> MessageRetention:
    """Until when a message is kept, and why."""
    with context.reading() as connection:
        scope = scope_of(connection, principal)
        messages.copies(connection, scope, message_id)
        found = labels.on_messages(connection, [message_id])
        may_know = Right.AUDIT in principal.rights
        kept = explain(connection, context.engine, message_id, scope.mailboxes) if may_know else []
        held = [name for _, name in holds.names_on_message(connection, message_id)] if may_know else []
    ends = [one.kept_until for one in kept if one.kept_until] + [one.keep_until for one in found if one.keep_until]
    latest = max(ends, default=None)
    return MessageRetention(
        labels=[MessageLabelShape(**{name: getattr(one, name) for name in MessageLabelShape.model_fields}) for one in found],
        kept_until=latest if latest and latest > datetime.now(UTC) else None,
        policies=[KeptByShape(**asdict(one)) for one in kept],
        holds=held,
    )


def labelling(context: ApiContext, principal: Principal) -> Labelling:
    with context.reading() as connection:
        scope = scope_of(connection, principal)
    return Labelling(context.engine, context.archive, principal, scope)
