"""What every connector gives and gets: the contract between where mail comes from and the engine that archives it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

Json = Any  # what `json.loads` gives

BATCH_MESSAGES = 200
BATCH_BYTES = 16 << 20
BATCH_SECONDS = 5.0
SPOOL_BYTES = 8 << 20
"""A message above this is spooled to disk."""

Known = Callable[[Collection[str]], set[str]]
"""checkDuplicate: which of these provider keys need not be fetched. Any number of keys; asks in bulk."""


@dataclass(frozen=True, slots=True)
class MailboxRef:
    """A mailbox as the source knows it."""

    address: str
    display_name: str | None = None
    provider_id: str | None = None
    """The provider's own id, where it outlives a change of address."""


@dataclass(frozen=True, slots=True)
class RawMessage:
    """One message, exactly as the source gave it: in memory, or as a spooled file that the one who takes the batch removes."""

    provider_key: str
    data: bytes | None = field(default=None, repr=False)
    path: Path | None = None
    folder: str = ""
    flags: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    received_at: datetime | None = None
    """When the server says it came in; aware, or None."""

    def __post_init__(self) -> None:
        if (self.data is None) == (self.path is None):
            raise ValueError("a message is either in memory or in a file")


class ChangeKind(StrEnum):
    MOVED = "moved"
    RELABELLED = "relabelled"
    GONE = "gone"
    BACK = "back"


@dataclass(frozen=True, slots=True)
class CopyChange:
    """What happened at the source to a copy that we hold. A field that is None stays as it was."""

    kind: ChangeKind
    provider_key: str
    folder: str | None = None
    flags: tuple[str, ...] | None = None
    labels: tuple[str, ...] | None = None
    new_provider_key: str | None = None
    """For a move that changes the key, as IMAP's do."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """Left out by a rule, and which."""

    provider_key: str
    rule: str
    folder: str = ""


@dataclass(frozen=True, slots=True)
class FailedMessage:
    """Could not be fetched, or not be read. Becomes a dead letter."""

    provider_key: str
    reason: str
    folder: str = ""
    data: bytes | None = field(default=None, repr=False)
    """The bytes, if there are any: they are kept for the next try."""
    detail: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FolderListing:
    """All keys of a folder, when it was listed in full."""

    folder: str
    provider_keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """What is stored in one go. Ends at BATCH_MESSAGES, BATCH_BYTES or BATCH_SECONDS, whichever comes first."""

    messages: tuple[RawMessage, ...] = ()
    changes: tuple[CopyChange, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    failed: tuple[FailedMessage, ...] = ()
    listing: FolderListing | None = None
    state: Mapping[str, Json] = field(default_factory=dict)
    """Sync state that is true once this batch is stored; a None deletes its key."""


class Context(Protocol):
    """What the engine lends to a connector."""

    def wait_for_turn(self, cost: float = 1.0) -> None:
        """The rate limiter. Returns when the next request may be made; raises Unavailable when the job has to stop."""

    def save_credentials(self, credentials: Mapping[str, Json]) -> None:
        """Refreshed ones, for the next time."""

    def should_stop(self) -> bool: ...

    def seconds_left(self) -> float: ...

    def progress(self, seen: int = 0, total: int | None = None) -> None:
        """Says that work goes on. A connector that says nothing for long is taken for hung."""


class Connector(Protocol):
    """One per source and job. Raises the errors of connectors.errors, and no others of its libraries."""

    def check(self) -> None:
        """Tries the credentials."""

    def mailboxes(self) -> Iterator[MailboxRef]: ...

    def fetch(self, box: MailboxRef, state: Mapping[str, Json], known: Known) -> Iterator[Batch]:
        """Everything new since `state`. What `known` knows is not downloaded."""

    def refetch(self, box: MailboxRef, keys: Collection[str]) -> Iterator[Batch]:
        """Single messages again: dead letters and gaps."""

    def close(self) -> None:
        """From any thread; a fetch that is under way ends with Unavailable."""
