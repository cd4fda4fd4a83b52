"""Notices to the people of a legal hold."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter
from pydantic import BaseModel, Field

from archiver.alerts import custodian_notices
from archiver.alerts.custodian_notices import HoldNotice
from archiver.http.api.page import Page, RequestBody
from archiver.http.auth import Administrator, Auditor, Context
from archiver.retention import holds

router = APIRouter(prefix="/holds/{hold_id}/notices", tags=["retention"])


class NoticeRequest(RequestBody):
    text: Annotated[str, Field(min_length=1, max_length=custodian_notices.MAX_CHARS, description="The text of the notice.")]


class NoticeShape(BaseModel):
    id: UUID
    address: str
    text: str
    state: Annotated[str, Field(description="waiting, sent, acknowledged or failed")]
    requested_by: str
    requested_at: datetime
    sent_at: datetime | None
    error: str | None
    acknowledged_at: datetime | None


@router.get("")
def list_notices(hold_id: UUID, principal: Auditor, context: Context) -> Page[NoticeShape]:
    with context.reading() as connection:
        hold = holds.load(connection, str(hold_id))
        return Page(items=[_shape(one) for one in custodian_notices.list_notices(connection, hold)])


@router.post("", status_code=202)
def request_notices(hold_id: UUID, body: NoticeRequest, principal: Administrator, context: Context) -> Page[NoticeShape]:
    """To every person of the hold, by mail. Each is asked to acknowledge it by a link."""
    with context.engine.begin() as connection:
        hold = holds.load(connection, str(hold_id))
        found = custodian_notices.request_notices(connection, context.settings, principal, hold, body.text)
    context.save_config()
    return Page(items=[_shape(one) for one in found])


def _shape(notice: HoldNotice) -> NoticeShape:
    return NoticeShape(**{name: getattr(notice, name) for name in NoticeShape.model_fields})
