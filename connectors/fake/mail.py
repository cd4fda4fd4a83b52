"""What mail there is, apart from how it is fetched: mailboxes, their folders, and messages by position."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Protocol

from connectors.base import MailboxRef, RawMessage
from connectors.selection import Role


class Folder(Protocol):
    """Positions begin at 0 and stay: what is new comes at the end."""

    @property
    def name(self) -> str: ...

    @property
    def role(self) -> Role | None: ...

    def count(self) -> int: ...

    def key(self, position: int) -> str: ...

    def find(self, key: str) -> int | None: ...

    def received_at(self, position: int) -> datetime | None: ...

    def unreadable(self, position: int) -> str | None:
        """Why this message can't be fetched, or None."""

    def message(self, position: int) -> RawMessage: ...


class Mail(Protocol):
    def mailboxes(self) -> Iterator[MailboxRef]: ...

    def folders(self, address: str) -> Sequence[Folder]:
        """Empty for an address that there is not."""
