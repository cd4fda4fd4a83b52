"""Leases: the messages that one indexing process works on, and the counts of the results."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from archiver.indexing.indexes import Indexes
from archiver.indexing.rows import DueMessage

BODY, ATTACHMENTS = "body", "attachments"


@dataclass(slots=True)
class Lease:
    """Messages that belong to this process while `index_leases` has the lease, and the indexes for their documents."""

    id: UUID
    rows: Sequence[DueMessage]
    indexes: Indexes
    threads: Mapping[UUID, UUID | None]
    stage: str = BODY
    renewed: float = field(default_factory=time.monotonic)

    @property
    def ids(self) -> list[UUID]:
        return sorted(row.id for row in self.rows)


@dataclass(slots=True)
class Counts:
    indexed: int = 0
    failed: int = 0
    waiting: int = 0
    """How many of the indexed messages have unread attachments."""

    def add(self, other: Counts) -> None:
        self.indexed += other.indexed
        self.failed += other.failed
        self.waiting += other.waiting
