"""What the contract suite has to know about a connector in order to try it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from archiver.outlook import reader
from connectors.base import Batch, Connector, MailboxRef, Quota, RawMessage
from connectors.outlook import OutlookFile


@dataclass(frozen=True, slots=True)
class Subject:
    """A connector and the source it reads, which holds several batches of mail in at least one mailbox."""

    open: Callable[[], Connector]
    """Another connector to the same source, as the next process would open it."""
    open_blocked: Callable[[], Connector]
    """One whose fetch blocks for ever."""
    contents: Callable[[str], Counter[str]]
    """The SHA-256 of the messages that lie in a mailbox and can be read, wanted or not."""
    downloads: Callable[[], int]
    """How many messages were downloaded so far, by all connectors together."""
    is_live: bool = True
    """A server that can refuse, be away or hang; a file can't."""


class QuietContext:
    """A job that never has to stop, unless it is told."""

    connections = 2
    least_free_bytes = 0

    def __init__(self, scratch: Path | None = None) -> None:
        self._scratch = scratch
        self.stop = False
        self.turns = 0
        self.seen = 0
        self.total: int | None = None
        self.left_out: dict[str, str] = {}

    def wait_for_turn(self, cost: float = 1.0, quotas: Sequence[Quota] = (), limit: int = 1) -> int:
        self.turns += 1
        return limit

    def back_off(self, quota: Quota, seconds: float | None = None) -> float:
        return seconds or 1.0

    def save_credentials(self, credentials: Mapping[str, Any]) -> None:
        raise AssertionError("there are none to save")

    def leave_out(self, address: str, reason: str) -> None:
        self.left_out[address] = reason

    def scratch_path(self) -> Path:
        assert self._scratch is not None, "it needs no folder"
        return self._scratch

    def open_outlook(self, descriptor: int, kind: str, *, recover: bool) -> OutlookFile:
        return reader.open_outlook(descriptor, kind, recover=recover)

    def should_stop(self) -> bool:
        return self.stop

    def seconds_left(self) -> float:
        return 3600.0

    def progress(self, seen: int = 0, total: int | None = None) -> None:
        self.seen += seen
        self.total = total if total is not None else self.total


def nothing(_: Collection[str]) -> set[str]:
    return set()


@dataclass(slots=True)
class Taken:
    """What an engine would hold after it has stored these batches: messages by key, and the state."""

    hashes: dict[str, str] = field(default_factory=dict)
    given: list[str] = field(default_factory=list)
    """Keys in the order in which they came, repeated ones too."""
    skipped: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    listed: dict[str, set[str]] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict, compare=False)
    """Not what was taken, and free to tell when: two that took the same at different times are equal."""

    def store(self, batches: Iterable[Batch]) -> Taken:
        for batch in batches:
            for message in batch.messages:
                self.given.append(message.provider_key)
                self.hashes[message.provider_key] = hash_of(message)
            self.skipped |= {skipped.provider_key for skipped in batch.skipped}
            self.failed |= {failed.provider_key for failed in batch.failed}
            for listing in batch.listings:
                before = self.listed.get(listing.folder, set()) if listing.is_continued else set()
                self.listed[listing.folder] = before | set(listing.provider_keys)
            for key, value in batch.state.items():
                self.state[key] = value
                if value is None:
                    del self.state[key]
        return self

    @property
    def keys(self) -> set[str]:
        return set(self.hashes) | self.skipped | self.failed

    def known(self, keys: Collection[str]) -> set[str]:
        return (self.hashes.keys() | self.failed) & set(keys)


def read(message: RawMessage) -> bytes:
    if message.data is not None:
        return message.data
    assert message.path is not None
    return message.path.read_bytes()


def hash_of(message: RawMessage) -> str:
    """As the engine does it: the file of a spooled message is removed by the one who takes it."""
    data = read(message)
    if message.path:
        message.path.unlink()
    return sha256(data).hexdigest()


def fetch_all(connector: Connector, box: MailboxRef, state: Mapping[str, Any] | None = None) -> Taken:
    return Taken().store(connector.fetch(box, state or {}, nothing))
