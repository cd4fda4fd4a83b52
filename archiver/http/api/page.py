"""Paged lists: the items of a page, and the cursor of the next one."""

from __future__ import annotations

import base64
import binascii
from datetime import datetime
from typing import Annotated, Generic, TypeVar

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from archiver.errors import UsageError

INVALID_CURSOR = "cursor: not valid; send the `next` value of the previous page unchanged"

Item = TypeVar("Item")

Limit = Annotated[int, Query(ge=1, le=500, description="Maximum number of items.")]
Cursor = Annotated[str | None, Query(max_length=500, description="`next` of the previous page.")]


class Page(BaseModel, Generic[Item]):
    items: list[Item]
    next: Annotated[str | None, Field(description="Cursor of the next page; null on the last page.")] = None


class RequestBody(BaseModel):
    """A request body. Unknown fields are errors, so that a client cannot set what it should not."""

    model_config = ConfigDict(extra="forbid")


def encode_cursor(*values: object) -> str:
    return base64.urlsafe_b64encode("|".join(map(str, values)).encode()).decode().rstrip("=")


def decode_cursor(cursor: str, count: int) -> list[str]:
    """Raises UsageError for a cursor that this server did not issue."""
    try:
        values = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode().split("|")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        values = []
    if len(values) != count:
        raise UsageError(INVALID_CURSOR)
    return values


def decode_number(cursor: str | None) -> int:
    """The number in a cursor; 0 without one."""
    if cursor is None:
        return 0
    value = decode_cursor(cursor, 1)[0]
    if not value.isascii() or not value.isdecimal() or len(value) > 18:
        raise UsageError(INVALID_CURSOR)
    return int(value)


def time_of(value: str) -> datetime:
    """The time in a cursor. Raises UsageError for a cursor that this server did not issue."""
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise UsageError(INVALID_CURSOR)
    return found
