"""Outlook's files as a connector sees them. The engine reads them, in a confined child process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

PST, MSG, OLM = "pst", "msg", "olm"


class OutlookUnreadable(Exception):
    """The file can't be opened; the text says why."""


@dataclass(frozen=True, slots=True)
class OutlookEntry:
    """An item as a message, or why there is none."""

    number: int
    """Items are always counted in the same order."""
    node: int
    folder: tuple[str, ...]
    data: bytes | None = field(default=None, repr=False)
    """None: too large for memory, or there is no message."""
    pieces: Callable[[], Iterator[bytes]] | None = field(default=None, repr=False)
    """Of a message that is too large for memory. Can be called again, and gives the same bytes."""
    flags: tuple[str, ...] = ()
    received_at: datetime | None = None
    problems: tuple[str, ...] = ()
    """What is missing in the message."""
    error: str = ""
    """The item can't be read."""
    is_left_out: bool = False
    """Settings of a program, not mail; `error` says what."""


class OutlookFile(Protocol):
    total: int
    summary: str
    """What is in it, for the report."""

    def entries(self, start: int = 0) -> Iterator[OutlookEntry]:
        """From the item with this number on."""

    def close(self) -> None: ...
