"""The audit log: list, export, verify."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated

import orjson
from fastapi import APIRouter, Depends, Query
from fastapi.responses import StreamingResponse
from pydantic import AwareDatetime

from archiver.access import audit
from archiver.access.audit import AuditEntry, Verified
from archiver.errors import UsageError
from archiver.evidence.anchors import Anchors
from archiver.evidence.proof import prove
from archiver.http.api.page import INVALID_CURSOR, Cursor, Limit, Page, decode_cursor, encode_cursor
from archiver.http.auth import Auditor, Context

router = APIRouter(prefix="/audit", tags=["audit"])


class Filters:
    def __init__(
        self,
        actor: Annotated[str | None, Query(max_length=254)] = None,
        action: Annotated[
            str | None,
            Query(
                max_length=100,
                description="An action such as `message.read`, or a prefix such as `message` for all of its actions.",
            ),
        ] = None,
        object_kind: Annotated[str | None, Query(max_length=50)] = None,
        object_id: Annotated[str | None, Query(max_length=100)] = None,
        since: AwareDatetime | None = None,
        until: AwareDatetime | None = None,
    ) -> None:
        texts = {"actor": actor, "action": action, "object_kind": object_kind, "object_id": object_id}
        self.values: dict[str, str | datetime | None] = {
            name: value.replace("\0", "") if value else None for name, value in texts.items()
        }
        self.values |= {"since": since, "until": until}


@router.get("")
def list_entries(
    principal: Auditor, context: Context, filters: Annotated[Filters, Depends()], limit: Limit = 100, cursor: Cursor = None
) -> Page[AuditEntry]:
    """Newest first."""
    before = _number(decode_cursor(cursor, 1)[0]) if cursor else None
    with context.reading() as connection:
        found = audit.list_entries(connection, limit=limit, before=before, **filters.values)
    return Page(items=found, next=encode_cursor(found[-1].id) if len(found) == limit else None)


@router.get("/export", response_class=StreamingResponse)
def export_entries(principal: Auditor, context: Context, filters: Annotated[Filters, Depends()]) -> StreamingResponse:
    """All matching entries as JSON lines."""
    audit.record_look(context.engine, principal, "audit.exported", "audit")

    def lines() -> Iterator[bytes]:
        for entry in audit.export_entries(context.engine, **filters.values):
            yield orjson.dumps(entry) + b"\n"

    headers = {"Content-Disposition": 'attachment; filename="audit.jsonl"'}
    return StreamingResponse(lines(), media_type="application/x-ndjson", headers=headers)


@router.get("/verify")
def verify(principal: Auditor, context: Context, head: Annotated[str | None, Query(max_length=100)] = None) -> Verified:
    """Rehash every entry and compare the chain with the anchors in the packs. A `head` from an earlier response must still be
    part of the chain."""
    return prove(Anchors(context.engine, context.archive, context.settings.archiver_data), head)


def _number(value: str) -> int:
    if not value.isdecimal() or len(value) > 18:
        raise UsageError(INVALID_CURSOR)
    return int(value)
