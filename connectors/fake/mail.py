"""The mail itself, independent of how it is fetched: mailboxes, their folders, and messages by position."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Protocol

from connectors.base import MailboxRef, RawMessage
from connectors.selection import FolderRole


class FakeFolder(Protocol):
    """Positions start at 0 and are stable: new messages are appended."""

    @property
    def name(self) -> str: ...

    @property
    def role(self) -> FolderRole | None: ...

    def count(self) -> int: ...

    def key(self, position: int) -> str: ...

    def find(self, key: str) -> int | None: ...

    def received_at(self, position: int) -> datetime | None: ...

    def unreadable(self, position: int) -> str | None:
        """Why this message can't be fetched, or None."""

    def message(self, position: int) -> RawMessage: ...


class Mail(Protocol):
    def mailboxes(self) -> Iterator[MailboxRef]: ...

    def folders(self, address: str) -> Sequence[FakeFolder]:
        """Empty for an unknown address."""
