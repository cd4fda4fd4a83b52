"""The contract of every connector: what it delivers to the engine that archives mail, and what it gets from it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from connectors.context import Context as Context
from connectors.context import Quota as Quota

Json = Any  # what `json.loads` returns

NOT_FOUND = "not_found"
"""Marks a message that was listed but could not be found, also in a dead letter's payload."""
BATCH_MESSAGES = 200
BATCH_BYTES = 16 << 20
BATCH_SECONDS = 5.0
SPOOL_BYTES = 8 << 20
"""A message larger than this is spooled to disk."""

Known = Callable[[Collection[str]], set[str]]
"""checkDuplicate: which of these provider keys need not be fetched. Takes any number of keys, and looks them up in bulk.

A key that ends with ␟ stands for every message whose key begins with it.
"""


@dataclass(frozen=True, slots=True)
class MailboxRef:
    """A mailbox as the source knows it."""

    address: str
    display_name: str | None = None
    provider_id: str | None = None
    """The provider's own id, if it survives a change of address."""


@dataclass(frozen=True, slots=True)
class RawMessage:
    """One message, byte for byte as the source delivered it: in memory, or as a spooled file that the engine removes."""

    provider_key: str
    data: bytes | None = field(default=None, repr=False)
    path: Path | None = None
    folder: str = ""
    flags: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    received_at: datetime | None = None
    """When the server received it; timezone-aware, or None."""
    recipients: tuple[str, ...] = ()
    """Who received it by the server's own record, as `role:address`, such as `bcc:ann@example.org`. Readers of this copy see
    it."""

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
    """A change at the source to a copy in the archive. Fields that are None did not change."""

    kind: ChangeKind
    provider_key: str
    folder: str | None = None
    flags: tuple[str, ...] | None = None
    labels: tuple[str, ...] | None = None
    new_provider_key: str | None = None
    """For a move that changes the key, as in IMAP."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """Not archived, because of a rule."""

    provider_key: str
    rule: str
    folder: str = ""


@dataclass(frozen=True, slots=True)
class FailedMessage:
    """A message that could not be fetched or read. It becomes a dead letter."""

    provider_key: str
    reason: str
    folder: str = ""
    data: bytes | None = field(default=None, repr=False)
    """The bytes, if there are any; stored for the next attempt."""
    detail: Mapping[str, Json] = field(default_factory=dict)

    @property
    def is_not_found(self) -> bool:
        return self.detail.get(NOT_FOUND) is True


def not_found(provider_key: str, folder: str = "") -> FailedMessage:
    """For a message that the source listed but does not find. That may be temporary: the engine asks again in a later cycle,
    and only then treats the message as deleted."""
    return FailedMessage(provider_key, "not found at the source", folder, detail={NOT_FOUND: True})


@dataclass(frozen=True, slots=True)
class FolderListing:
    """The keys of a folder. A copy in the archive that a whole listing lacks is gone at the source."""

    folder: str
    provider_keys: Sequence[str]
    is_continued: bool = False
    """Continues a listing that began in an earlier batch, because it is too long for memory."""
    is_whole: bool = True
    """The listing has all keys of the folder. Otherwise it says nothing about the others."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What is stored in one transaction. Ends at BATCH_MESSAGES, BATCH_BYTES or BATCH_SECONDS, whichever comes first."""

    messages: tuple[RawMessage, ...] = ()
    changes: tuple[CopyChange, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    failed: tuple[FailedMessage, ...] = ()
    listings: tuple[FolderListing, ...] = ()
    state: Mapping[str, Json] = field(default_factory=dict)
    """The sync state that is true once this batch is stored; None deletes a key."""


class Connector(Protocol):
    """One per source and job. Raises only the errors of connectors.errors, never those of its libraries."""

    def check(self) -> None:
        """Verifies the credentials."""

    def mailboxes(self) -> Iterator[MailboxRef]: ...

    def fetch(self, box: MailboxRef, state: Mapping[str, Json], known: Known) -> Iterator[Batch]:
        """Everything new since `state`. Messages that `known` returns are not downloaded."""

    def refetch(self, box: MailboxRef, keys: Collection[str]) -> Iterator[Batch]:
        """Fetches single messages again: dead letters and gaps."""

    def close(self) -> None:
        """May be called from any thread; a running fetch ends with Unavailable."""


class Noting(Connector, Protocol):
    """A connector that finds out something about its server that the owner of the source should know."""

    notes: tuple[str, ...]
    """Known after `check`."""


class Watching(Connector, Protocol):
    """A connector that can wait for notifications of new mail, instead of polling for it."""

    def watch(self, box: MailboxRef, on_news: Callable[[], None]) -> None:
        """Calls `on_news` at the start and whenever mail may have arrived. Returns only if the server has no notifications."""
