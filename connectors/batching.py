"""Collects fetched messages until they fill a batch."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from connectors.base import (
    BATCH_BYTES,
    BATCH_SECONDS,
    Batch,
    CopyChange,
    FailedMessage,
    FolderListing,
    Json,
    RawMessage,
    Skipped,
)
from connectors.errors import Unavailable

_REMARKS = 1000
"""This many skipped and failed messages also fill a batch."""


Got = RawMessage | FailedMessage


def size_of(got: Got) -> int:
    if isinstance(got, RawMessage) and got.path is not None:
        try:
            return got.path.stat().st_size
        except OSError as error:
            raise Unavailable("the spooled message has disappeared") from error
    return len(got.data or b"")


@dataclass(slots=True)
class Packer:
    """Check `room_for` before each `put`, and `take` the batch if there is none."""

    most_messages: int
    most_bytes: int = BATCH_BYTES
    messages: list[RawMessage] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    failed: list[FailedMessage] = field(default_factory=list)
    bytes: int = 0
    began: float = field(default_factory=time.monotonic)

    @property
    def empty(self) -> bool:
        return not (self.messages or self.skipped or self.failed)

    @property
    def full(self) -> bool:
        return (
            len(self.messages) >= self.most_messages
            or self.bytes >= self.most_bytes
            or len(self.skipped) + len(self.failed) >= _REMARKS
            or (not self.empty and time.monotonic() - self.began >= BATCH_SECONDS)
        )

    def room_for(self, got: Got) -> bool:
        """A message larger than a batch gets a batch of its own."""
        return not self.full and (self.bytes == 0 or self.bytes + size_of(got) <= self.most_bytes)

    def put(self, got: Got) -> None:
        self.bytes += size_of(got)
        if isinstance(got, RawMessage):
            self.messages.append(got)
        else:
            self.failed.append(got)

    def skip(self, skipped: Skipped) -> None:
        self.skipped.append(skipped)

    def take(
        self,
        state: dict[str, Json] | None = None,
        listing: FolderListing | None = None,
        changes: tuple[CopyChange, ...] = (),
    ) -> Batch:
        listings = (listing,) if listing is not None else ()
        batch = Batch(tuple(self.messages), changes, tuple(self.skipped), tuple(self.failed), listings, state or {})
        self.messages, self.skipped, self.failed, self.bytes = [], [], [], 0
        self.began = time.monotonic()
        return batch
