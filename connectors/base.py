"""What every connector gives and gets: the contract between where mail comes from and the engine that archives it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

Json = Any  # what `json.loads` gives

NOT_FOUND = "not_found"
"""The mark of a message that was listed and could not be found, in a dead letter's payload too."""
BATCH_MESSAGES = 200
BATCH_BYTES = 16 << 20
BATCH_SECONDS = 5.0
SPOOL_BYTES = 8 << 20
"""A message above this is spooled to disk."""

Known = Callable[[Collection[str]], set[str]]
"""checkDuplicate: which of these provider keys need not be fetched. Any number of keys; asks in bulk.

A key that ends with ␟ asks whether there is any message whose key begins with it.
"""


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

    @property
    def is_not_found(self) -> bool:
        return self.detail.get(NOT_FOUND) is True


def not_found(provider_key: str, folder: str = "") -> FailedMessage:
    """For a message that the source has listed, and says it does not have. It may be wrong for a while: the engine asks once
    more in a later cycle, and only then takes it for deleted."""
    return FailedMessage(provider_key, "not found at the source", folder, detail={NOT_FOUND: True})


@dataclass(frozen=True, slots=True)
class FolderListing:
    """The keys of a folder, when it was listed in full. What we hold of a whole one and is not listed is gone there."""

    folder: str
    provider_keys: Sequence[str]
    is_continued: bool = False
    """More keys of a folder whose listing began in an earlier batch: one too long for memory."""
    is_whole: bool = True
    """All keys of the folder are here. Otherwise nothing can be said about those that are not."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What is stored in one go. Ends at BATCH_MESSAGES, BATCH_BYTES or BATCH_SECONDS, whichever comes first."""

    messages: tuple[RawMessage, ...] = ()
    changes: tuple[CopyChange, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    failed: tuple[FailedMessage, ...] = ()
    listings: tuple[FolderListing, ...] = ()
    state: Mapping[str, Json] = field(default_factory=dict)
    """Sync state that is true once this batch is stored; a None deletes its key."""


@dataclass(frozen=True, slots=True)
class Quota:
    """What a provider allows one user, or one project. All workers share it."""

    name: str
    """The same for all who share it: `google:PROJECT:alice@example.org`."""
    units_per_minute: float


class Context(Protocol):
    """What the engine lends to a connector."""

    def wait_for_turn(self, cost: float = 1.0, quotas: Sequence[Quota] = (), most: int = 1) -> int:
        """The rate limiter: how many requests of this cost may be made now, from 1 to `most`.

        Raises Throttled when a quota is used up, so that the job frees its place instead of sleeping in it; Unavailable when
        the job has to stop.
        """

    def back_off(self, quota: Quota, seconds: float | None = None) -> float:
        """The server says that the quota is used up: nobody asks again for so many seconds (without them, a growing pause),
        and it counts as smaller than it was said to be. Returns the pause, for the Throttled to be raised."""

    def save_credentials(self, credentials: Mapping[str, Json]) -> None:
        """Refreshed ones, for the next time."""

    def leave_out(self, address: str, reason: str) -> None:
        """Told while mailboxes are listed: one that is there and will not be archived, and why."""

    def scratch_path(self) -> Path:
        """A folder on a disk with room, for what is costly to make again. It outlives the job, and may be emptied after it."""

    def should_stop(self) -> bool: ...

    def seconds_left(self) -> float: ...

    def progress(self, seen: int = 0, total: int | None = None) -> None:
        """Says that work goes on. A connector that says nothing for long is taken for hung."""

    @property
    def least_free_bytes(self) -> int:
        """What has to stay free on the disk of `scratch_path`."""

    @property
    def connections(self) -> int:
        """How many connections one mailbox may use at once, where that pays."""


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


class Watching(Connector, Protocol):
    """A connector that can be told of new mail instead of asking for it."""

    def watch(self, box: MailboxRef, on_news: Callable[[], None]) -> None:
        """Calls whenever something may have come in, and at the beginning. Returns if the server can't tell; else raises."""
