"""Lists: a page of items, and where the next one begins."""

from __future__ import annotations

import base64
import binascii
from datetime import datetime
from typing import Annotated, Generic, TypeVar

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from archiver.errors import UsageError

Item = TypeVar("Item")

Limit = Annotated[int, Query(ge=1, le=500, description="At most so many items.")]
Cursor = Annotated[str | None, Query(max_length=500, description="`next` of the page before.")]


class Page(BaseModel, Generic[Item]):
    items: list[Item]
    next: Annotated[str | None, Field(description="Where the next page begins; null on the last one.")] = None


class Body(BaseModel):
    """What is sent to us: a field that we do not know is an error, so that nobody sets what they should not."""

    model_config = ConfigDict(extra="forbid")


def encode_cursor(*values: object) -> str:
    return base64.urlsafe_b64encode("|".join(map(str, values)).encode()).decode().rstrip("=")


def decode_cursor(cursor: str, count: int) -> list[str]:
    """Raises UsageError for one that we did not make."""
    try:
        values = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode().split("|")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        values = []
    if len(values) != count:
        raise UsageError("cursor: not one that a page before this gave")
    return values


def time_of(value: str) -> datetime:
    """From a cursor. Raises UsageError for one that we did not make."""
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise UsageError("cursor: not one that a page before this gave")
    return found
