"""The results of reading a file: messages, and remarks about anything else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class FoundMessage:
    key: str
    folder: str
    size: int
    data: bytes | None = field(repr=False)
    """None: too large for memory."""
    pieces: Callable[[], Iterator[bytes]] = field(repr=False)
    next: int
    """Where to continue in the file once this one is stored."""
    flags: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    received_at: datetime | None = None
    rule: str | None = None
    """The rule that excludes it."""
    is_last: bool = True
    """Of the copies of one message in a file: it is read again unless all of them are stored."""
    read_bytes: int | None = None
    """How much of the file was read by then, if `next` is not a position in it."""


@dataclass(frozen=True, slots=True)
class Remark:
    """About a file that is not mail, or could not be read completely."""

    key: str
    folder: str
    reason: str
    is_failure: bool
    """Listed with a reason either way; a failure keeps the run from being a success."""


Found = FoundMessage | Remark
