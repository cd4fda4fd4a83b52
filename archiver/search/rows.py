"""Rows of the statements behind a search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID


@dataclass(frozen=True, slots=True)
class HitRow:
    id: UUID
    sha256: str
    sort_at: datetime
    sender: str | None
    sender_name: str | None
    subject: str | None
    size_bytes: int
    has_attachments: bool
    thread_id: UUID | None
    search_state: str
    canonical_sha256: bytes
    copies: list[Mapping[str, Any]]


class UnsearchableCount(NamedTuple):
    state: str
    reason: str | None
    """None for the count of the state itself."""
    messages: int


class MailboxAddress(NamedTuple):
    id: UUID
    address: str
